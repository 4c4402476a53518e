"""Decoding vectors kept current while workers come and go."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import (
    Output,
    check_dtype,
    check_index,
    check_output,
    check_workers,
    unit_roundoff,
)
from ..kernels import Status
from ..kernels.cyclic import CyclicStream, CyclicTables, StreamCalls
from .near_exact import square

__all__ = ["Follower", "Stream", "worth_following"]

# Events after which products are computed anew: each adds two roundings, and those of one worker
# that comes and goes all the time add up, to 2e-13 at most.
REBUILD_AFTER = 1024

# A round follows its vector from so many factors on, in all and of one entry. Its last message and
# gradient took up to 1.6 times less there, and never more, with C and with Numba. Fewer factors of
# an entry take no longer to multiply than it takes to read what a stream keeps.
FOLLOW_FROM = 1 << 18
FEWEST_FACTORS = 32

# Messages still needed when a round begins to follow, at most, and no more than an eighth of the
# stragglers: if they come all at once, their steps are to cost little beside the products.
STEPS = 16


class Streamed(Protocol):
    """What a stream asks of its scheme."""

    n: int
    stragglers: int
    clusters: int

    @property
    def threshold(self) -> int: ...
    @property
    def tables(self) -> CyclicTables: ...
    def _bind_stream(self, unit: float) -> tuple[CyclicStream, StreamCalls, float]: ...
    def _could_be_better(
        self, survivors: NDArray[np.int64], vector: NDArray[np.complex128]
    ) -> bool: ...
    def _vector_by(
        self, survivors: NDArray[np.int64], method: str, unit: float
    ) -> NDArray[np.complex128]: ...
    def _raise(self, status: Status, where: int, survivors: NDArray[np.int64]) -> None: ...


class Stream:
    """Decoding vector of a Reed-Solomon code, current while workers come and go.

    Each arrival and departure multiplies all magnitudes by one factor of Halbawi et al.'s eq. (14)
    or its inverse, in O(n); phases are integers, and exact. The vector itself then is O(n) away at
    any time, however many stragglers there are. Now and then products are computed anew, so that
    rounding errors stay below 1e-12.

    Goes on with the backend it was made under. Not for use by two threads at once.

    Parameters
    ----------
    scheme : ReedSolomonScheme
    members : integer array, or (n,) bool array
        Workers that are there at the beginning.
    message_dtype : numpy dtype, default float64
        As in `Code.decoding_vector`.

    Raises
    ------
    TypeError, ValueError
        If a member does not exist or is named twice.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.ReedSolomon(n=8, stragglers=2)
    >>> stream = code.stream(range(7))
    >>> stream.arrive(7)
    >>> stream.depart(3)
    >>> np.allclose(stream.vector(), code.decoding_vector(stream.members))
    True
    """

    def __init__(
        self,
        scheme: Streamed,
        members: ArrayLike = (),
        *,
        message_dtype: DTypeLike = np.float64,
    ) -> None:
        self.scheme = scheme
        self._unit = unit_roundoff(check_dtype(message_dtype, halves=True))
        self._state, self._calls, self._longest = scheme._bind_stream(self._unit)
        self.reset(members)

    def reset(self, members: ArrayLike = ()) -> None:
        """Begin anew with these members.

        Raises
        ------
        TypeError, ValueError
            If a member does not exist or is named twice; nothing has changed then.
        """
        chosen = self._chosen("members", members)
        self._state.away[:] = True
        self._state.away[chosen] = False
        self._calls.rebuild()
        self._events = 0

    def __repr__(self) -> str:
        return f"<Stream of {self.scheme!r}: {len(self.members)} workers there>"

    @property
    def members(self) -> NDArray[np.int64]:
        """The workers that are there, in ascending order."""
        return np.flatnonzero(~self._state.away)

    @property
    def decodable(self) -> bool:
        """Whether the members suffice."""
        state, tables = self._state, self.scheme.tables
        return bool((np.diff(tables.start) - state.lost >= tables.need).all())

    def arrive(self, worker: int) -> None:
        """A worker comes; ValueError if it is there already."""
        worker = check_index("worker", worker, self.scheme.n)
        if not self._state.away[worker]:
            raise ValueError(f"worker {worker} is there already: it cannot arrive")
        self._calls.join(worker)
        self._count()

    def depart(self, worker: int) -> None:
        """A worker goes; ValueError if it is not there."""
        worker = check_index("worker", worker, self.scheme.n)
        if self._state.away[worker]:
            raise ValueError(f"worker {worker} is not there: it cannot depart")
        self._calls.leave(worker)
        self._count()

    def vector(
        self, survivors: ArrayLike | None = None, out: Output | None = None
    ) -> NDArray[np.complex128]:
        """Decoding vector of the members, as `Code.decoding_vector` by the method "locator".

        Or as by "auto", where it is long.

        Parameters
        ----------
        survivors : (f,) integer array, or (n,) bool array, optional
            The members, all of them, in the order of the entries. Default: ascending.
        out : (f,) complex128 array, optional
            Contiguous and writable.

        Raises
        ------
        NotDecodableError
            If more members are needed; says how many.
        OverflowError
            If an entry is beyond float64.
        TypeError, ValueError
            If `survivors` are not the members, or `out` does not fit.
        """
        members = self.members
        if survivors is None:
            chosen = members
        else:
            chosen = self._chosen("survivors", survivors)
            strangers = chosen[self._state.away[chosen]]
            if strangers.size:
                raise ValueError(f"survivors name worker {strangers[0]}, who is not there")
            if chosen.size < members.size:
                absent = np.setdiff1d(members, chosen)
                raise ValueError(f"survivors must name all members: worker {absent[0]} is missing")
        vector = np.empty(chosen.size, dtype=np.complex128)
        target = vector if out is None else check_output("out", out, vector.dtype, vector.shape)
        status = self._calls.vector(chosen, vector)
        if status == Status.OVERFLOW or not (status or square(vector) <= self._longest):
            vector[:] = self.scheme._vector_by(chosen, "auto", self._unit)
        elif status:
            self.scheme._raise(Status(status), self._calls.where[0], chosen)
        if target is not vector:
            target[:] = vector
        return target if out is None else out

    def _chosen(self, what: str, workers: ArrayLike) -> NDArray[np.int64]:
        chosen = check_workers(what, workers, self.scheme.n)
        outside = (chosen < 0) | (chosen >= self.scheme.n)
        if outside.any():
            raise ValueError(
                f"{what} name worker {chosen[outside][0]}, who does not exist: they are numbered 0 "
                f"to {self.scheme.n - 1}"
            )
        seen = np.zeros(self.scheme.n, dtype=np.bool_)
        seen[chosen] = True
        if np.count_nonzero(seen) < chosen.size:
            twice = np.flatnonzero(np.bincount(chosen) > 1)[0]
            raise ValueError(f"{what} name worker {twice} twice")
        return chosen

    def _count(self) -> None:
        self._events += 1
        if self._events == REBUILD_AFTER:
            self._calls.rebuild()
            self._events = 0


def worth_following(scheme: Streamed) -> bool:
    """Whether rounds of a code save time by following their decoding vectors."""
    factors = min(scheme.n - scheme.threshold, scheme.threshold)
    # of several clusters, mostly some have messages to spare, of which "auto" chooses
    return scheme.clusters == 1 and factors >= FEWEST_FACTORS and scheme.n * factors >= FOLLOW_FROM


class Follower:
    """Prepares the decoding vector of a round while its messages come.

    Nothing is done before a few messages more would suffice. Then the products are computed for
    those that came, in the shadow of the wait for the rest, and each of these takes a step. Where
    as many stragglers are declared as may be, products are computed for all the other workers, and
    their messages take no step.

    Parameters
    ----------
    scheme : ReedSolomonScheme
        Of one cluster.
    survivors : (n,) int64 array
        Where the workers that came are read from, in order of arrival.
    vector : (n,) complex128 array
        Where entries are written.
    unit : float
        Unit roundoff of messages.
    """

    def __init__(
        self,
        scheme: Streamed,
        survivors: NDArray[np.int64],
        vector: NDArray[np.complex128],
        unit: float,
    ) -> None:
        self._scheme, self._survivors, self._vector = scheme, survivors, vector
        self._state, self._calls, self._longest = scheme._bind_stream(unit)
        self._steps = min(STEPS, max(1, scheme.stragglers // 8))
        self.reset()

    def reset(self) -> None:
        """Forget all messages, and who straggles."""
        self._state.away[:] = True
        self._declared: set[int] = set()
        self._lacking = self._scheme.threshold  # messages
        self._there = -1  # workers that products are of, once they are computed

    def receive(self, worker: int) -> None:
        """A worker's message came."""
        self._declared.discard(worker)
        self._lacking -= 1
        if self._there < 0:
            self._state.away[worker] = False
            self._begin()
        elif self._state.away[worker]:
            self._calls.join(worker)
            self._there += 1

    def straggles(self, worker: int) -> None:
        """No message of this worker, which did not come, is to be expected."""
        if worker in self._declared:
            return
        self._declared.add(worker)
        if self._there < 0:
            self._begin()
        elif not self._state.away[worker]:
            self._calls.leave(worker)
            self._there -= 1

    def _begin(self) -> None:
        """Compute the products, unless more than a few steps would follow."""
        away = self._state.away
        if len(self._declared) >= self._scheme.stragglers:
            away[:] = False
            away[list(self._declared)] = True
        elif self._lacking > self._steps:
            return
        self._calls.rebuild()
        self._there = away.size - int(np.count_nonzero(away))

    def vector(self, f: int) -> NDArray[Any] | None:
        """Decoding vector for the f messages that came, as by "auto"; None if none is prepared."""
        if self._there != f:
            return None
        survivors, vector = self._survivors[:f], self._vector[:f]
        if self._calls.vector(survivors, vector):
            return None
        if f > self._scheme.threshold and self._scheme._could_be_better(survivors, vector):
            return None
        return vector if square(vector) <= self._longest else None
