"""Gradient codes of any encoding matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Array, Bools, Floats, Ints, as_array, check_flag, check_index
from ..coding.arguments import check_stragglers
from ..coding.code import Code
from ..coding.precision import Precision
from ..coding.rules import check_wait
from ..coding.scheme import Scheme
from ..coding.trust import check_stability
from ..kernels.rows import DOUBLE
from ..numerics.parity import CHECKS, Parity
from ..numerics.solve import SOLVED, near_exact_vector, row_sizes


class LinearCode(Code):
    """The gradient code of any encoding matrix.

    Decoding vectors satisfy a_F B_F = 1 and make rounding errors of messages grow as little as
    possible: ``sum_i |a_i|^2 ||B_i||^2`` is minimal, as if all rows had norm 1. Let N be an
    orthonormal basis of the left null space of B, with rows scaled to norm 1, and a the shortest
    vector for all workers. Then the vector is a - y N, where y makes the stragglers' entries
    vanish: O(s^3 + n s) for s stragglers, after one singular value decomposition. One step of
    iterative refinement follows, O(n k). If the expected error is still above 1e-10, because all
    exact vectors are long, the vector is the one with the smallest expected error, of residual and
    rounding together: a ridge regression, in O((n + k) n^2). Vectors of recent survivor sets are
    kept.

    Parameters
    ----------
    B : (n, k) array
        Real or complex. Worker i computes the partitions j with B[i, j] != 0.
    stragglers : int, optional
        Stragglers s that the matrix tolerates in the worst case, if you know it. Any n - s messages
        are then decoded; `residual` and `trust` say what they leave out. Default: found by trying
        all sets for small n, otherwise unknown (None).
    wait : int, optional
        Most workers that a round waits for, for an approximate code. Their messages are decoded by
        least squares, unless fewer gave the exact gradient before. `residual` and `trust` say what
        a gradient leaves out. The matrix need not determine the gradient. Default: None, rounds
        wait until the gradient is exact.
    packed : bool, default True
        For complex matrices, as in `ReedSolomon`.
    strict : bool, default False
        As in `ReedSolomon`. It does not concern codes with `wait`, where least squares keep
        rounding errors small compared with the residual.

    Raises
    ------
    ValueError
        If a row or column is zero, an entry is not finite, `wait` is not in 1 .. n, or if without
        `wait` not even all messages determine the gradient.
    UnstableCodeError
        As `ReedSolomon` does.
    """

    def __init__(
        self,
        B: ArrayLike,
        *,
        stragglers: int | None = None,
        wait: int | None = None,
        packed: bool = True,
        strict: bool = False,
    ) -> None:
        matrix = check_matrix(B)
        wait = check_wait(wait, len(matrix))
        scheme = LinearScheme(matrix, check_flag("packed", packed), wait)
        if wait is None and scheme._solve(np.arange(scheme.n))[1] > SOLVED:
            raise ValueError(
                "not even the messages of all workers determine the gradient: for an "
                "approximation give wait=, how many workers to wait for"
            )
        if stragglers is not None:
            scheme.stragglers = check_stragglers(stragglers, scheme.n)
        super().__init__(scheme)
        if wait is None:
            check_stability(scheme, strict, "use a matrix whose rows are better conditioned")


class _Precision(Precision):
    """What rounding leaves of a_F B_F = 1: vectors may be less precise than the messages."""

    left_out = Precision.residual


class LinearScheme(Scheme):
    """The scheme of `LinearCode`, with its arguments; `B` was checked by `check_matrix`."""

    precision = cached_property(_Precision)

    def __init__(self, B: Array, packed: bool = True, wait: int | None = None) -> None:
        self._B = B
        self._sizes = row_sizes(B)
        self.n, self.k = B.shape
        self.is_complex = B.dtype.kind == "c"
        self.packed, self.wait = packed, wait
        self.load = int((B != 0).sum(axis=1).max())

    def row(self, worker: int) -> tuple[Ints, Array]:
        row = self._B[check_index("worker", worker, self.n)]
        held = np.flatnonzero(row)
        return held, row[held]

    # ------------------------------------------------------------------------------ decoding

    @cached_property
    def _null(self) -> tuple[Array, Array]:
        """For B with rows of norm 1: its pseudoinverse, and an orthonormal basis of x B = 0."""
        rows = self._B / self._sizes[:, None]
        U, S, Vh = np.linalg.svd(rows, full_matrices=self.k < self.n)  # all of U, not of V
        least = S[0] * (max(self.n, self.k) * np.finfo(np.float64).eps)
        rank = int((least < S).sum())
        inverse = (Vh[:rank].conj().T / S[:rank]) @ U[:, :rank].conj().T
        return inverse, U[:, rank:].conj().T

    def _solve(self, survivors: Ints, unit: float = DOUBLE) -> tuple[Array, float]:
        # The rest is for sets that determine the gradient by complex combinations.
        if self.wait is not None or self.layout == "complex":
            return super()._solve(survivors, unit)
        inverse, null = self._null
        sizes = self._sizes[survivors]
        solve = without_lost(null, lambda wanted: wanted @ inverse, survivors, sizes)
        return near_exact_vector(solve, self._B[survivors], sizes, np.ones(self.k), unit)

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """Parity checks: the combinations of rows that are 0 and do not contain stragglers."""
        H = checks_of(self._null[1], survivors) / self._sizes[survivors]
        return Parity.of(H, error=np.linalg.norm(H @ self._B[survivors], axis=1))


def without_lost(
    null: Array, shortest: Callable[[Array], Array], survivors: Ints, sizes: Floats
) -> Callable[[Array], Array]:
    """Return ``solve(wanted)``, which finds vectors of these survivors from those of all workers.

    For rows of norm 1, `null` is an orthonormal basis of x B = 0, (m, n), and ``shortest(wanted)``
    is the shortest vector of all workers for a sum. `sizes` are the norms of the survivors' rows.
    """
    lost = _without(survivors, null.shape[1])
    kept = null[:, survivors]
    undo = np.linalg.pinv(null[:, lost], rcond=lost.size * np.finfo(np.float64).eps)

    def solve(wanted: Array) -> Array:
        a = shortest(wanted)
        found: Array = (a[survivors] - a[lost] @ undo @ kept) / sizes
        return found

    return solve


def checks_of(null: Array, survivors: Ints) -> Array:
    """The combinations of a basis of x B = 0 in which stragglers do not occur, for survivors."""
    lost = _without(survivors, null.shape[1])
    least = lost.size * np.finfo(np.float64).eps
    left, singular, _ = np.linalg.svd(null[:, lost])
    rank = int((singular > least).sum())
    H: Array = left[:, rank:].conj().T @ null[:, survivors]
    H[np.abs(H) < least] = 0
    return H


def _without(survivors: Ints, n: int) -> Bools:
    lost = np.ones(n, dtype=bool)
    lost[survivors] = False
    return lost


def check_matrix(matrix: ArrayLike) -> Array:
    """Check an encoding matrix; return it as float64 or complex128."""
    B = as_array("B", matrix)
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
    return B
