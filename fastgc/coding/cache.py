"""Caches of decoding vectors, for sets of survivors that come again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .. import kernels
from .._base.arrays import Array, Bools, Ints

T = TypeVar("T")

# ``bind(mode, rows, out, check)`` returns ``decode(f) -> status``.
BindDecoder = Callable[[int, kernels.Rows, Array, bool], Callable[[int], int]]

# Most bytes of the vectors kept for one code: three vectors at n = 2^20, thousands at n = 1000.
CACHE_BYTES = 64 << 20
ENTRY_BYTES = 200  # an entry's overhead in Python, about

# One lock for all caches, held for less than a microsecond. A fork waits for it. Otherwise the
# child could find it held forever by a thread that it does not have, and a cache half changed.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class VectorFunction:
    """Writes decoding vectors on bound buffers: what `Scheme.bind_vector` returns.

    ``function(f, method)`` writes the vector of the first f survivors in the buffer.

    Attributes
    ----------
    decoder : callable or None
        Binds the vector by "auto", and a combination of rows by it, to one compiled call:
        ``decode = decoder(mode, rows, out, check)``. If ``decode(f)`` returns another status than
        ``OK``, do it step by step; the function says what is wrong.
    many : callable or None
        ``many(masks, method, out)`` writes the vectors of many sets to `out`, which is 0, and
        returns whether each could be decoded; or None if it does not know the method.
    """

    __slots__ = ("_fill", "decoder", "many")

    def __init__(
        self,
        fill: Callable[[int, str], None],
        decoder: BindDecoder | None = None,
        many: Callable[[Bools, str, Array], Bools | None] | None = None,
    ) -> None:
        self._fill, self.decoder, self.many = fill, decoder, many

    def __call__(self, f: int, method: str = "auto") -> None:
        self._fill(f, method)


class CacheInfo(NamedTuple):
    """What a cache has done so far.

    Attributes
    ----------
    hits, misses : int
        Number of sets that were found, and that were not.
    entries, nbytes : int
        Number of sets known now, including those seen only once, and their size in bytes.
    """

    hits: int
    misses: int
    entries: int
    nbytes: int


class SurvivorCache(Generic[T]):
    """Results for the sets of survivors used last, by their exact bit masks.

    Several threads may use it at once. Results are shared: do not write to them.

    Parameters
    ----------
    entries : int, optional
        Largest number of sets kept. Default: as many as fit into `nbytes`.
    nbytes : int
        Most bytes that they may take together.

    Attributes
    ----------
    entries, nbytes
        As given. You may change them at any time; they take effect when the next set is kept. With
        0, no set is kept.
    """

    def __init__(self, entries: int | None = None, nbytes: int = CACHE_BYTES) -> None:
        self.entries, self.nbytes = entries, nbytes
        # None for sets that were seen only once.
        self._found: OrderedDict[bytes, tuple[T | None, int]] = OrderedDict()
        self._held = self._hits = self._misses = 0

    def get(self, key: bytes) -> T | None:
        """Return what was kept for this set, or None."""
        with _lock:
            found, _ = self._found.get(key, (None, 0))
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._found.move_to_end(key)
            return found

    def came_before(self, key: bytes) -> bool:
        """Note the set, and say whether it was noted before: only then keep a result for it."""
        with _lock:
            if key in self._found:
                return True
        self.keep(key, None, 0)
        return False

    def keep(self, key: bytes, value: T | None, nbytes: int) -> None:
        """Keep `value`, of `nbytes`, for this set, and forget the sets used longest ago."""
        nbytes += len(key) + ENTRY_BYTES
        with _lock:
            self._drop(key)  # another thread may have kept it meanwhile
            if nbytes <= self.nbytes:  # otherwise all other sets would go, in vain
                self._found[key] = value, nbytes
                self._held += nbytes
            most = len(self._found) if self.entries is None else self.entries
            while self._held > self.nbytes or len(self._found) > most:
                self._drop(next(iter(self._found)))

    def _drop(self, key: bytes) -> None:
        _, nbytes = self._found.pop(key, (None, 0))
        self._held -= nbytes

    def clear(self) -> None:
        """Forget everything, and reset the counts."""
        with _lock:
            self._found.clear()
            self._held = self._hits = self._misses = 0

    def __repr__(self) -> str:
        return f"<SurvivorCache: {self.info()}>"

    def info(self) -> CacheInfo:
        """Return what it has done so far."""
        with _lock:
            return CacheInfo(self._hits, self._misses, len(self._found), self._held)


class SurvivorMask:
    """Sets of numbers below `count` in a fixed buffer: checks, and keys for a `SurvivorCache`.

    Not for use by two threads at once.
    """

    __slots__ = ("_bits", "_mask")

    def __init__(self, count: int, survivors: Ints) -> None:
        bits = np.empty(-(-count // 8), dtype=np.uint8)
        self._bits: Any = bits.data
        self._mask = kernels.unchecked.bind_survivor_mask(count, survivors, bits)

    def sound(self, f: int) -> bool:
        """Say whether ``survivors[:f]`` are distinct numbers below the count."""
        return not self._mask(f)

    def key(self, f: int) -> bytes | None:
        """Return the key of ``survivors[:f]``, in any order; None if they are not `sound`."""
        return self._bits.tobytes() if self.sound(f) else None


def key_of(n: int, survivors: Ints) -> bytes:
    """Return the key of distinct numbers in 0 .. n-1, as a `SurvivorMask` makes it."""
    present = np.zeros(n, dtype=np.bool_)
    present[survivors] = True
    return np.packbits(present, bitorder="little").tobytes()


def remembering(
    fill: Callable[[int, str], None],
    count: int,
    survivors: Ints,
    vector: Array,
    cache: SurvivorCache[Array],
    kind: bytes = b"",
    many: Callable[[Bools, str, Array], Bools | None] | None = None,
) -> VectorFunction:
    """Return `fill` with a cache: a set's vector is looked up from the third time on.

    The numbers are the same. Vectors are kept by number of message, so messages may come in any
    order. Only "auto" uses the cache. `kind` distinguishes vectors of other kinds of the same set.
    """
    mask = SurvivorMask(count, survivors)

    def remember(f: int, method: str) -> None:
        key = mask.key(f) if method == "auto" and cache.nbytes else None
        if key is None:  # possibly no set of survivors: `fill` says why
            fill(f, method)
            return
        key += kind
        found = cache.get(key)
        if found is not None:
            # Without a mode, numpy would write to a temporary array first.
            found.take(survivors[:f], axis=0, out=vector[:f], mode="clip")
            return
        fill(f, method)
        if cache.came_before(key):
            of_all = np.zeros((count, *vector.shape[1:]), dtype=vector.dtype)
            of_all[survivors[:f]] = vector[:f]
            cache.keep(key, of_all, of_all.nbytes)

    return VectorFunction(remember, many=many)
