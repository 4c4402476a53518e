"""Decoding vectors of survivor sets that come again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import kernels
from .rules import Numbers

__all__ = [
    "CacheInfo",
    "SurvivorCache",
    "SurvivorMask",
    "VectorFunction",
    "filling",
    "key_of",
    "remembering",
]

T = TypeVar("T")

# Called with a number f and a method: writes the vector of the first f survivors of a buffer.
VectorFunction = Callable[[int, str], None]

# Bytes, at most, that the vectors kept for one code take: three at n = 2^20, thousands at n = 1000.
CACHE_BYTES = 64 << 20
ENTRY_BYTES = 200  # what Python takes for an entry, about

# One for all caches, held for less than a microsecond. A fork waits for it: its child would find a
# lock that another thread held, for ever, and what that thread was about to change.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class CacheInfo(NamedTuple):
    """What a cache has done so far.

    Attributes
    ----------
    hits, misses : int
        Sets that were found, and that were not.
    entries, nbytes : int
        Sets known now, those included that came once only, and what is kept for them.
    """

    hits: int
    misses: int
    entries: int
    nbytes: int


class SurvivorCache(Generic[T]):
    """What was computed for the survivor sets used last, by their exact bit masks.

    Safe for use by several threads at once. What is kept is shared: it must not be written.

    Parameters
    ----------
    entries : int, optional
        Sets kept, at most; as many as fit into `nbytes` by default.
    nbytes : int
        What they may take together.

    Attributes
    ----------
    entries, nbytes
        As given. They may be changed at any time, and take effect when the next set is kept: with
        0, none is.
    """

    def __init__(self, entries: int | None = None, nbytes: int = CACHE_BYTES) -> None:
        self.entries, self.nbytes = entries, nbytes
        # sets that came once only have None
        self._found: OrderedDict[bytes, tuple[T | None, int]] = OrderedDict()
        self._held = self._hits = self._misses = 0

    def get(self, key: bytes) -> T | None:
        """What was kept for this set, or None."""
        with _lock:
            found, _ = self._found.get(key, (None, 0))
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._found.move_to_end(key)
            return found

    def came_before(self, key: bytes) -> bool:
        """Whether this was asked of the set before: else nothing need be kept for it yet."""
        with _lock:
            if key in self._found:
                return True
        self.keep(key, None, 0)
        return False

    def keep(self, key: bytes, value: T | None, nbytes: int) -> None:
        """Keep `value`, of so many bytes, for this set; forget what was used longest ago."""
        nbytes += len(key) + ENTRY_BYTES
        with _lock:
            self._drop(key)  # another thread may have been as fast
            if nbytes <= self.nbytes:  # else everything else would have to go, in vain
                self._found[key] = value, nbytes
                self._held += nbytes
            most = len(self._found) if self.entries is None else self.entries
            while self._held > self.nbytes or len(self._found) > most:
                self._drop(next(iter(self._found)))

    def _drop(self, key: bytes) -> None:
        _, nbytes = self._found.pop(key, (None, 0))
        self._held -= nbytes

    def clear(self) -> None:
        """Forget everything, and begin to count anew."""
        with _lock:
            self._found.clear()
            self._held = self._hits = self._misses = 0

    def __repr__(self) -> str:
        return f"<SurvivorCache: {self.info()}>"

    def info(self) -> CacheInfo:
        """What it has done so far."""
        with _lock:
            return CacheInfo(self._hits, self._misses, len(self._found), self._held)


class SurvivorMask:
    """Sets of numbers in a fixed buffer: checks, and keys for a `SurvivorCache`.

    Not for use by two threads at once.

    Parameters
    ----------
    count : int
        Numbers are below it.
    survivors : int64 array
        The buffer.
    """

    __slots__ = ("_bits", "_mask")

    def __init__(self, count: int, survivors: NDArray[np.int64]) -> None:
        bits = np.empty(-(-count // 8), dtype=np.uint8)
        self._bits: Any = bits.data
        self._mask = kernels.unchecked.bind_survivor_mask(count, survivors, bits)

    def sound(self, f: int) -> bool:
        """Whether ``survivors[:f]`` are distinct, and numbers below the count."""
        return not self._mask(f)

    def key(self, f: int) -> bytes | None:
        """The key of ``survivors[:f]``, in any order; None if they are not `sound`."""
        return self._bits.tobytes() if self.sound(f) else None


def key_of(n: int, survivors: Numbers) -> bytes:
    """The key of distinct numbers in 0 .. n-1, as a `SurvivorMask` makes it."""
    present = np.zeros(n, dtype=np.bool_)
    present[survivors] = True
    return np.packbits(present, bitorder="little").tobytes()


class _Checks(Protocol):
    _made_by: type[Any]

    def check_survivors(self, survivors: ArrayLike) -> NDArray[np.int64]: ...
    def raise_too_few(self, survivors: NDArray[np.int64]) -> NoReturn: ...


def filling(
    code: _Checks, run: Callable[[int], int], survivors: NDArray[np.int64]
) -> VectorFunction:
    """What `Scheme.bind_vector` returns: ``run(f)`` is 0, or these are too few, or none."""

    def fill(f: int, method: str) -> None:
        if method != "auto":
            raise ValueError(f'{code._made_by.__name__} knows the method "auto", not {method!r}')
        if run(f):
            code.raise_too_few(code.check_survivors(survivors[:f]))

    return fill


def remembering(
    fill: VectorFunction,
    count: int,
    survivors: NDArray[np.int64],
    vector: NDArray[Any],
    cache: SurvivorCache[NDArray[Any]],
    kind: bytes = b"",
) -> VectorFunction:
    """As `fill`, but the vector of a set that comes a third time is looked up: the same numbers.

    It is kept by number of message, so that these may come in any order. Methods other than "auto"
    are always used. `kind` tells vectors of the same sets apart that are computed otherwise.
    """
    mask = SurvivorMask(count, survivors)

    def remember(f: int, method: str) -> None:
        key = mask.key(f) if method == "auto" and cache.nbytes else None
        if key is None:  # maybe no set: `fill` says why
            fill(f, method)
            return
        key += kind
        found = cache.get(key)
        if found is not None:
            found.take(
                survivors[:f], axis=0, out=vector[:f], mode="clip"
            )  # else by way of a temporary
            return
        fill(f, method)
        if cache.came_before(key):
            of_all = np.zeros((count, *vector.shape[1:]), dtype=vector.dtype)
            of_all[survivors[:f]] = vector[:f]
            cache.keep(key, of_all, of_all.nbytes)

    return remember
