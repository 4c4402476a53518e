"""Any encoding matrix at all."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_index, check_integer
from .base import Code
from .cache import SurvivorCache, key_of
from .parity import Parity
from .rules import Numbers, Rule, Tracker

__all__ = ["LinearCode"]

# Relative residual up to which a_F B_F = 1 counts as solved. Where rounding alone exceeds it, the
# gradient would be worthless.
SOLVED = 1e-6

SETS_TRIED = 20_000  # survivor sets, at most, when the stragglers tolerated are to be found


class LinearCode(Code):
    """The gradient code of any encoding matrix.

    Decoding vectors are the shortest that satisfy a_F B_F = 1. With N an orthonormal basis of what
    B maps to zero from the left, and a the shortest vector for all workers, they are a - y N, where
    y makes the stragglers' entries vanish: O(s^3 + n s) for s stragglers, after one singular
    value decomposition of B. They are kept for the survivor sets used last.

    Parameters
    ----------
    B : (n, k) array
        Real or complex. Worker i computes the partitions where row i is not zero.
    stragglers : int, optional
        Stragglers that the matrix tolerates in the worst case, if that is known; it is taken on
        trust. Default: found by trying all sets, for small n.
    packed : bool, default True
        For complex matrices, as in `ReedSolomon`.
    cache : int, default 256
        Survivor sets whose vectors are kept.
    strict : bool, default False
        Refuse codes that lose more than half of float64's digits when as many random workers
        straggle as may; else an `InstabilityWarning` says so.

    Raises
    ------
    ValueError
        If a row or column is zero, an entry is not finite, not even all messages determine the
        gradient, or there are too many sets to find out what the matrix tolerates.
    UnstableCodeError
        If the code is unstable, and `strict`.
    """

    cache: SurvivorCache[tuple[NDArray[Any], float]]

    def __init__(
        self,
        B: ArrayLike,
        *,
        stragglers: int | None = None,
        packed: bool = True,
        cache: int = 256,
        strict: bool = False,
    ) -> None:
        self._set_matrix(np.asarray(B), cache)
        self.packed = bool(packed)
        self._given = stragglers
        if self._solve(np.arange(self.n))[1] > SOLVED:
            raise ValueError("not even the messages of all workers determine the gradient")
        if stragglers is None:
            self.stragglers = self._tolerated()
        else:
            self.stragglers = check_integer("stragglers", stragglers)
            if not 0 <= self.stragglers < self.n:
                raise ValueError(f"stragglers must be in 0 .. n-1 = {self.n - 1}, not {stragglers}")
        self._check_stability(strict, "use a matrix whose rows are better conditioned")

    def _set_matrix(self, B: NDArray[Any], cache: int) -> None:
        if B.ndim != 2 or 0 in B.shape:
            raise ValueError(f"B must be a matrix with a row for each worker, not {B.shape}")
        if B.dtype.kind not in "biufc":
            raise TypeError(f"B must be real or complex, not {B.dtype}")
        B = B.astype(np.complex128 if B.dtype.kind == "c" else np.float64)
        if not np.isfinite(B).all():
            raise ValueError("B holds NaN or Inf")
        for what, axis in (("row", 1), ("column", 0)):
            zero = np.flatnonzero(~B.any(axis=axis))
            if zero.size:
                raise ValueError(f"{what} {zero[0]} of B is zero")
        self._B = B
        self.n, self.k = B.shape
        self._complex = B.dtype.kind == "c"
        self.load = int((B != 0).sum(axis=1).max())
        self._kept = check_integer("cache", cache)
        if self._kept < 0:
            raise ValueError(f"cache must not be negative, but is {cache}")
        self.cache = SurvivorCache(self._kept)

    def _parameters(self) -> dict[str, Any]:
        return {
            "B": self._B,
            "stragglers": self.stragglers,
            "packed": self.packed,
            "cache": self._kept,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}(B of shape {self._B.shape}, stragglers={self.stragglers})"

    def _row(self, worker: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        row = self._B[check_index("worker", worker, self.n)]
        held = np.flatnonzero(row)
        return held, row[held]

    def _tolerated(self) -> int:
        tried = 0
        for s in range(1, self.n):
            tried += comb(self.n, s)
            if tried > SETS_TRIED:
                raise ValueError(
                    f"finding out how many stragglers B tolerates takes {tried} sets or more: "
                    "give stragglers="
                )
            for lost in combinations(range(self.n), s):
                if self._solve(np.delete(np.arange(self.n), lost))[1] > SOLVED:
                    return s - 1
        return self.n - 1

    def _typical_error(self) -> float:
        error = super()._typical_error()
        self.cache.clear()  # of sets that nobody asked for
        return error

    # ------------------------------------------------------------------------------ decoding

    @cached_property
    def _rule(self) -> Rule:
        return _Span(self)

    def _vector(self, survivors: NDArray[np.int64]) -> NDArray[Any]:
        vector, residual = self._solution(survivors)
        if residual > SOLVED:
            self._raise_too_few(survivors)
        return vector[survivors]

    def _left_out(self, survivors: NDArray[np.int64]) -> float:
        # What rounding made of a_F B_F = 1: these vectors may be less precise than the messages.
        return self._solution(survivors)[1]

    def _solution(self, survivors: Numbers) -> tuple[NDArray[Any], float]:
        """Vector by number of message, and its relative residual; from the cache if there."""
        key = key_of(self.n, survivors)
        found = self.cache.get(key)
        if found is None:
            ascending = np.sort(survivors)
            solved, residual = self._solve(ascending)
            vector = np.zeros(self.n, dtype=solved.dtype)
            vector[ascending] = solved
            found = vector, residual
            self.cache.keep(key, found, vector.nbytes)
        return found

    @cached_property
    def _null(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The shortest a with a B = 1, and an orthonormal basis of the x with x B = 0."""
        U, S, Vh = np.linalg.svd(self._B, full_matrices=self.k < self.n)  # all of U, not of V
        rank = self._rank(S)
        a = (Vh[:rank].conj().sum(axis=1) / S[:rank]) @ U[:, :rank].conj().T
        return a, U[:, rank:].conj().T

    def _rank(self, singular: NDArray[np.float64]) -> int:
        least = singular[0] * (max(self.n, self.k) * np.finfo(np.float64).eps)
        return int((singular > least).sum())

    def _solve(self, survivors: NDArray[np.int64]) -> tuple[NDArray[Any], float]:
        a, null = self._null
        lost = np.ones(self.n, dtype=bool)
        lost[survivors] = False
        vector = a[survivors]
        if lost.any():
            y = np.linalg.lstsq(null[:, lost].T, a[lost])[0]
            vector = vector - y @ null[:, survivors]
        residual = np.linalg.norm(vector @ self._B[survivors] - 1) / np.sqrt(self.k)
        return vector, float(residual)

    def _parity(self, survivors: NDArray[np.int64]) -> Parity:
        """The combinations of what B maps to zero in which stragglers do not occur."""
        _, null = self._null
        lost = np.ones(self.n, dtype=bool)
        lost[survivors] = False
        left, singular, _ = np.linalg.svd(null[:, lost])
        rank = int((singular > self.n * np.finfo(np.float64).eps).sum())
        H = left[:, rank:].conj().T @ null[:, survivors]
        H[np.abs(H) < self.n * np.finfo(np.float64).eps] = 0
        return Parity.of(H, error=np.linalg.norm(H @ self._B[survivors], axis=1))


class _Span(NamedTuple):
    """The rows that came span the row of ones."""

    code: LinearCode

    def missing(self, survivors: Numbers) -> int:
        code = self.code
        if code._solution(survivors)[1] <= SOLVED:
            return 0
        # At least so many that, with the largest supports, every partition is in some message.
        came = (code._B[survivors] != 0).any(axis=0)
        return max(1, -(-int((~came).sum()) // code.load))

    def tracker(self) -> Tracker:
        return _SpanTracker(self.code)


class _SpanTracker:
    def __init__(self, code: LinearCode) -> None:
        self._code = code
        self._support = code._B != 0
        self.reset()

    def reset(self) -> None:
        self._came: list[int] = []
        self._covered = np.zeros(self._code.k, dtype=bool)
        self._ready = False

    def add(self, message: int) -> bool:
        self._came.append(message)
        if not self._ready:
            self._covered |= self._support[message]
            self._ready = bool(self._covered.all()) and (
                self._code._solution(np.array(self._came))[1] <= SOLVED
            )
        return self._ready
