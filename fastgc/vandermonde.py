"""Vandermonde systems in O(m^2): the algorithms of Björck and Pereyra.

With V = np.vander(nodes, increasing=True), ``V x = b`` asks for the polynomial of given values at
the nodes (x: its coefficients), ``V^T x = b`` for the weights of a sum over the nodes with given
moments. Decoding a Reed-Solomon code is of the second kind: its nodes are the survivors' roots of
unity and its moments (1, 0, ..., 0).

How accurate the result is depends on the order of the nodes (Higham, "Accuracy and Stability of
Numerical Algorithms", ch. 22). Leja order, each node as far from those before it as can be, is
nearly always good in the largest numbers: for 224 of the 256th roots of unity the errors are near
1e-13, but beyond 1e+30 in natural order. Nodes of one sign, from the smallest on, keep the smallest
numbers good too, unless what is computed cancels. Which of the two it is, a running error bound
tells: it costs as much as finding Leja's order, and where it is small that order is not needed.

The largest error relative to a number, for 60 nodes (in brackets, where it is much smaller: the
largest error over the largest number; benches/vandermonde_orders.py):

    ==================  =========  =======  ===============  ===============  ===============
    nodes               b          system   as given         Leja             chosen
    ==================  =========  =======  ===============  ===============  ===============
    1 ... 60            (-1)^i     V x      7e-16            6e-15            7e-16
    1 ... 60            (-1)^i     V^T x    6e-16            1e+00 (1e-14)    6e-16
    1 ... 60            random     V^T x    2e-13            7e-01 (1e-14)    2e-13
    1/(i+3)             (-1)^i     V x      8e-16            2e-15            1e-15
    1/(i+3)             (-1)^i     V^T x    2e-15            1e+52 (1e-14)    1e-15
    1/(i+2)             (-1)^i     V^T x    2e-15            2e+58 (9e-15)    2e-15
    1/(i+2)             random     V^T x    2e-15            1e+50 (9e-15)    2e-15
    even in [0, 1]      1          V^T x    Inf (4e+10)      0                0
    even in [0, 1]      random     V^T x    1e-15            4e-01 (7e-15)    1e-15
    even in [-1, 1]     random     V x      2e-03 (2e-10)    8e-15            8e-15
    Chebyshev's         random     V^T x    4e-08 (3e-09)    3e-13            3e-13
    ==================  =========  =======  ===============  ===============  ===============
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import kernels
from ._arrays import (
    Output,
    as_array,
    at_least,
    check_finite,
    check_integer,
    check_line,
    check_numbers,
    check_output,
)
from ._shown import listing
from .kernels.numpy.pairs import Pair, two_product, two_sum

__all__ = ["leja_order", "roots_order", "solve"]
__dir__ = listing(__all__)

_INT64 = np.dtype(np.int64)
_AUTO: Literal["auto"] = "auto"
_ORDERS = (_AUTO, "leja", "given")
_FLOAT, _COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)
_ROUNDING = 2.0**-50  # of a solution: corrections so small are its last roundings
_UNIT = 2.0**-53 * 1.001  # a rounding, and what is of second order
_ACCURATE = 2.0**-48  # times m: where a bound relative to a number has nothing to wish for
_GOOD = 2.0**-30  # bounds relative to a number for which no better ones are looked for


def leja_order(nodes: ArrayLike) -> NDArray[np.int64]:
    """Order in which each node is as far as can be from those before it.

    The first has the largest modulus, each further one the largest product of distances to its
    predecessors (Leja 1957; Reichel 1990). Coincident nodes come last.

    Parameters
    ----------
    nodes : (m,) array_like
        Real or complex numbers.

    Returns
    -------
    (m,) int64 array
        A permutation: ``nodes[order]`` is in Leja order.

    Raises
    ------
    TypeError
        If the nodes are no numbers.
    ValueError
        If one is not finite, or there is none.
    """
    nodes = check_line("nodes", nodes)
    check_finite("nodes", nodes)
    order = np.empty(nodes.size, dtype=np.int64)
    kernels.unchecked.leja_order(nodes, order)
    return order


@lru_cache(maxsize=64)
def _golden_order(f: int) -> NDArray[np.int64]:
    """Ranks of the fractional parts of k / golden ratio, k = 0 .. f-1.

    Every run of them is spread evenly over 0 .. f-1.
    """
    golden = (np.sqrt(5.0) - 1) / 2
    order = np.argsort(np.argsort(np.arange(f) * golden % 1.0, kind="stable"), kind="stable")
    order.flags.writeable = False
    return order


def roots_order(n: int, exponents: ArrayLike) -> NDArray[np.int64]:
    """Order, as good as Leja's and in O(f log f), of nodes that are n-th roots of unity.

    Sorted around the circle and then taken in steps of the golden section, by rank. That beats the
    obvious candidate, the Leja order of all n roots restricted to those present: with 224 of 256
    random roots its worst errors are 1e-11 (900 of 1000: 1e-7), these 6e-14 (1e-13), true Leja
    order's 6e-14 (2e-13).

    Parameters
    ----------
    n : int
    exponents : (f,) array_like of int
        Node l is ``exp(2 pi i exponents[l] / n)``; any integers that differ modulo n.

    Returns
    -------
    (f,) int64 array
        A permutation of 0 .. f-1.

    Raises
    ------
    TypeError
        If the exponents are no integers.
    ValueError
        If two name the same root.
    """
    n = at_least("n", n, 1)
    chosen = as_array("the exponents", exponents)
    if chosen.ndim != 1:
        raise ValueError(f"exponents must be one-dimensional, not of shape {chosen.shape}")
    if chosen.size and chosen.dtype.kind not in "iu":
        raise TypeError(f"exponents must be integers, not {chosen.dtype}")
    chosen = (chosen % n).astype(np.int64)
    around = np.argsort(chosen, kind="stable")
    same = np.flatnonzero(np.diff(chosen[around]) == 0)
    if same.size:
        i, j = around[same[0]], around[same[0] + 1]
        raise ValueError(f"exponents {i} and {j} are the same root of unity modulo {n}")
    return around[_golden_order(chosen.size)]


@overload
def solve(
    nodes: ArrayLike,
    b: ArrayLike,
    transpose: bool = False,
    *,
    order: Literal["auto", "leja", "given"] | ArrayLike = _AUTO,
    refine: int = 0,
    out: Output | None = None,
    return_bound: Literal[False] = False,
) -> NDArray[Any]: ...
@overload
def solve(
    nodes: ArrayLike,
    b: ArrayLike,
    transpose: bool = False,
    *,
    order: Literal["auto", "leja", "given"] | ArrayLike = _AUTO,
    refine: int = 0,
    out: Output | None = None,
    return_bound: Literal[True],
) -> tuple[NDArray[Any], NDArray[np.float64]]: ...
def solve(
    nodes: ArrayLike,
    b: ArrayLike,
    transpose: bool = False,
    *,
    order: Literal["auto", "leja", "given"] | ArrayLike = _AUTO,
    refine: int = 0,
    out: Output | None = None,
    return_bound: bool = False,
) -> NDArray[Any] | tuple[NDArray[Any], NDArray[np.float64]]:
    """Solve ``V x = b`` or ``V^T x = b``, V = np.vander(nodes, increasing=True).

    By the algorithms of Björck & Pereyra, "Solution of Vandermonde systems of equations" (1970), in
    O(m^2) a column and O(m^2) for the order.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    b : (m,) or (m, r) array_like
        One right-hand side, or one in each column. Not written, unless it is `out`.
    transpose : bool
        Solve ``V^T x = b``.
    order : {"auto", "leja", "given"} or (m,) array_like of int
        In which order nodes are taken: `leja_order`, as they come, or a permutation, for instance
        `roots_order`'s. It does not change the meaning of x.
        "auto": nodes of one sign (complex ones: on one ray from 0) from the smallest on, which has
        high relative accuracy for a b of alternating sign (Higham 1987) and often for others, if a
        running error bound shows each number to be good to about its last digits (2^-48 m of it);
        otherwise Leja's, unless the bound proves that with Leja's the largest relative error is
        larger (and that the largest error is, too, or that it is below 2^-32 of the largest number
        with either). All other nodes in Leja's, where no bound could tell one order from another.
        Each column for itself.
    refine : int
        Steps of iterative refinement at most, with residuals in twice the precision. Corrections
        are added where a bound proves that they make a number better, and nowhere else: refinement
        never hurts, but for a rounding. With a RuntimeWarning if of some column, which would need
        it, no number can be shown to become better.
    out : array, optional
        Where to write: contiguous, of b's shape, float64, or complex128 if nodes or b are complex.
        May be b itself.
    return_bound : bool
        Return bounds of the errors, too. They come with the solve (Higham, "Accuracy and
        Stability", 3.3) and, where they are larger than 2^-30 of a number, from the residual in
        twice the precision and the size of the inverse: O(m^2) too, but far slower.

    Returns
    -------
    x : (m,) or (m, r) float64 or complex128 array
        A number too large for a double is Inf or NaN, with a RuntimeWarning.
    bound : float64 array of x's shape
        If `return_bound`: no entry of x is farther than this from that of the exact solution for
        these nodes and this b, unless something underflows. Inf where nothing is known.

    Raises
    ------
    TypeError
        If nodes or b are no numbers, or `out` has another dtype.
    ValueError
        If two nodes coincide, a number is not finite, a shape does not fit, or `order` is no
        permutation. Nothing has then been written.
    """
    # The hot path: one test of what nearly every call brings.
    if (
        type(nodes) is np.ndarray
        and type(b) is np.ndarray
        and ((dtype := nodes.dtype) is _FLOAT or dtype is _COMPLEX)
        and b.dtype is dtype
        and (shape := nodes.shape) == b.shape[:1]
        and len(shape) == 1
        and b.ndim < 3
        and (flags := nodes.flags).c_contiguous
        and flags.aligned
        and (flags := b.flags).c_contiguous
        and flags.aligned
        and out is None
        and not refine
        and not return_bound
        and b.size
        and ((named := type(order) is str and order in _ORDERS) or _is_plain(order, shape))
    ):
        x = np.empty_like(b)
        # An order that names a node twice gives a result that is not finite: `_solve` says so.
        choose = named and order == _AUTO
        permutation: Any = order
        if named:
            permutation = _as_given(*shape) if order == "given" else None
        if kernels.unchecked.solve_vandermonde(
            nodes, b, permutation, transpose, x, False, None, choose
        ):
            return x
    x, bound = _solve(nodes, b, transpose, order, refine, out, bool(return_bound))
    return x if bound is None else (x, bound)


@lru_cache(maxsize=16)  # a tenth of what solving a small system takes
def _as_given(m: int) -> NDArray[np.int64]:
    """The order of nodes as they come; not to be written, though it might be."""
    return np.arange(m)


def _is_plain(order: Any, shape: tuple[int, ...]) -> bool:
    """Whether an order can go to a kernel as it is: no entry is out of range."""
    return (
        type(order) is np.ndarray
        and order.dtype is _INT64
        and order.shape == shape
        and order.flags.c_contiguous
        and order.flags.aligned
        and bool(order.view(np.uint64).max() < shape[0])
    )


def _solve(
    nodes: ArrayLike,
    b: ArrayLike,
    transpose: bool,
    order: Literal["auto", "leja", "given"] | ArrayLike,
    refine: int,
    out: Output | None,
    return_bound: bool,
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    nodes, b = check_line("nodes", nodes), check_numbers("b", b)
    m = nodes.size
    if b.ndim not in (1, 2) or len(b) != m:
        raise ValueError(f"b must have shape ({m},) or ({m}, r), not {b.shape}")
    refine = check_integer("refine", refine)
    if refine < 0:
        raise ValueError(f"refine must not be negative: {refine}")
    permutation, choose = _permutation(order, m)
    if nodes.dtype is _COMPLEX and b.dtype is _FLOAT:
        b = b.astype(_COMPLEX)
    x, nodes, b = _placed(out, nodes, b, bool(refine or return_bound))
    written = x if out is None else out
    # A kernel stops at the first columns that are not finite, but has then written others. Faulty
    # nodes spoil all columns.
    check_finite("b", b)
    shape, halves = b.shape, nodes.dtype is _FLOAT and b.dtype is _COMPLEX
    b, x = (a.view(nodes.dtype).reshape(m, -1) for a in (b, x))  # a complex column is two real ones

    def run(
        b: NDArray[Any],
        x: NDArray[Any],
        forced: bool = False,
        bound: NDArray[np.float64] | None = None,
    ) -> bool:
        return kernels.unchecked.solve_vandermonde(
            nodes, b, permutation, transpose, x, forced, bound, choose
        )

    bound = np.zeros(b.shape) if refine or return_bound else None
    if not run(b, x, False, bound):
        check_finite("nodes", nodes)
        _check_distinct(nodes)
        if bound is not None:
            bound[:] = 0.0
        run(b, x, True, bound)
        warnings.warn("overflow in solving a Vandermonde system", RuntimeWarning, stacklevel=3)
    elif bound is not None:
        improve = _Correction(nodes, b, transpose, run)
        if refine and not improve.refine(x, bound, refine):
            warnings.warn(
                "refinement cannot be shown to improve the solution of a Vandermonde system, and "
                "was left out: the system is too ill-conditioned for it",
                RuntimeWarning,
                stacklevel=3,
            )
        elif return_bound and not refine and not (bound <= _GOOD * np.abs(x)).all():
            improve.find(x, bound)
    if not return_bound:
        return written, None
    assert bound is not None
    if halves:
        bound = np.hypot(bound[:, ::2], bound[:, 1::2]) * (1 + _ROUNDING)
    return written, bound.reshape(shape)


def _placed(
    out: Output | None, nodes: NDArray[Any], b: NDArray[Any], again: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Where x is written, and nodes and b, copied where x would overwrite what is read later.

    `again`: b is read again after x was written.
    """
    if out is None:
        return np.empty_like(b), nodes, b
    x = check_output("out", out, b.dtype, b.shape)
    # A kernel may write where it has read all that it needs: the very place of b.
    if np.may_share_memory(x, b) and (
        again or kernels.unchecked.address(x) != kernels.unchecked.address(b)
    ):
        b = b.copy()
    if np.may_share_memory(x, nodes):
        nodes = nodes.copy()
    return x, nodes, b


def _check_distinct(nodes: NDArray[Any]) -> None:
    """Raise ValueError that names the first two equal nodes."""
    order = np.argsort(nodes, kind="stable")
    same = np.flatnonzero(nodes[order[1:]] == nodes[order[:-1]])
    if same.size:
        i, j = order[same[0]], order[same[0] + 1]
        raise ValueError(f"nodes {i} and {j} are both {nodes[i]}: nodes must be distinct")


def _permutation(
    order: Literal["auto", "leja", "given"] | ArrayLike, m: int
) -> tuple[NDArray[np.int64] | None, bool]:
    """The order as an array, or None for the kernel to find Leja's, or to choose."""
    if isinstance(order, str):
        if order in (_AUTO, "leja"):
            return None, order == _AUTO
        if order == "given":
            return _as_given(m), False
        raise ValueError(f"order must be 'auto', 'leja', 'given' or a permutation, not {order!r}")
    given = as_array("order", order)
    if given.dtype.kind not in "iu":
        raise TypeError(f"order must be integers, not {given.dtype}")
    if given.shape != (m,):
        raise ValueError(f"order must have shape ({m},), not {given.shape}")
    present = np.zeros(m, dtype=bool)
    if (given < 0).any() or (given >= m).any():
        raise ValueError(f"order must be a permutation of 0 to {m - 1}: it reaches outside")
    present[given] = True
    if not present.all():
        raise ValueError(
            f"order must be a permutation of 0 to {m - 1}: {int(np.argmin(present))} is missing"
        )
    return np.ascontiguousarray(given, dtype=np.int64), False


class _Correction:
    """What a solution lacks, found by solving for its residual, and how well that is known."""

    def __init__(
        self, nodes: NDArray[Any], b: NDArray[Any], transpose: bool, run: Callable[..., bool]
    ) -> None:
        self._nodes, self._b, self._transpose, self._run = nodes, b, transpose, run
        self._norms: list[tuple[float, NDArray[np.float64]]] | None = None

    def refine(self, x: NDArray[Any], bound: NDArray[np.float64], steps: int) -> bool:
        """Improve x, and its bounds, in place; False if a column needed it and got nothing.

        A correction that is known to half its size, or better, leaves no more than it takes away.
        """
        failed = False
        for step in range(steps):
            short = bound > _ACCURATE * len(x) * np.abs(x)
            correction, limit, size = self.find(x, bound)
            keep = (limit <= 0.5 * size) & np.isfinite(size)
            if not step:
                needed = (short & (size > _ROUNDING * np.abs(x).max(axis=0))).any(axis=0)
                failed = bool((needed & ~keep.any(axis=0)).any())
            moves = keep & (size > _UNIT * np.abs(x))
            x[keep] += correction[keep]
            bound[keep] = np.fmin(bound, limit + 2 * _UNIT * np.abs(x))[keep]
            if not moves.any():
                break
        return not failed

    def find(
        self, x: NDArray[Any], bound: NDArray[np.float64]
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
        """The correction, bounds of its errors, and its size; x's bounds with it, in place."""
        rest, limit = self._residual(self._b, x)
        lacks, correction = limit.copy(), np.empty_like(x)
        self._run(rest, correction, True, limit)
        with np.errstate(all="ignore"):
            limit[np.isnan(limit)] = np.inf
            size = np.abs(correction)
            if (limit > 0.5 * size).any():
                # A second bound: by the correction's own residual, and the norms of the inverse.
                left, more = self._residual(rest, correction)
                limit = np.fmin(limit, self._inverse_times(np.abs(left) + more + lacks))
            bound[:] = np.fmin(bound, 1.001 * (size + limit))
        return correction, limit, size

    def _residual(
        self, b: NDArray[Any], x: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """``b - V x``, or ``b - V^T x``, and bounds of its errors."""
        m = len(x)
        residual = _residual(self._nodes, b, x, self._transpose)
        with np.errstate(all="ignore"):
            powers = np.vander(np.abs(self._nodes), increasing=True)
            sums = (powers.T if self._transpose else powers) @ np.abs(x)
            # In twice the precision no step loses more than 32 of its roundings.
            limit = _UNIT * (np.abs(residual) + 32 * m * _UNIT * sums)
        limit[np.isnan(limit)] = np.inf
        return residual, limit

    def _inverse_times(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bounds of the inverse times numbers that are no larger than these."""
        if self._norms is None:
            self._norms = list(_basis_norms(self._nodes))
        limit = np.full(sizes.shape, np.inf)
        power = np.arange(len(sizes))[:, None]
        log = np.log(sizes)
        for radius, norms in self._norms:
            if self._transpose:
                found = norms[:, None] + 0.5 * _log_sum(2 * (log - power * radius))
            else:
                found = _log_sum(norms[:, None] + log) - power * radius
            limit = np.fmin(limit, 1.01 * np.exp(found))
        return limit


def _log_sum(log: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the sums over the first axis."""
    most = log.max(axis=0)
    sums: NDArray[np.float64] = np.where(
        np.isfinite(most), most + np.log(np.exp(log - most).sum(axis=0)), most
    )
    return sums


def _basis_norms(nodes: NDArray[Any]) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """For some radii r, log r and those of the 2-norms of (c_j r^j), c_j the basis' coefficients.

    The inverse's entries are the coefficients of Lagrange's basis polynomials l_i. By Parseval
    these norms are root mean squares of l_i at m points of the circle of radius r, and products of
    distances know no cancellation.
    """
    m, largest = nodes.size, float(np.abs(nodes).max())
    with np.errstate(all="ignore"):
        apart = np.log(np.abs(nodes[:, None] - nodes) + np.eye(m)).sum(axis=1)
        turn = np.exp(2j * np.pi * (np.arange(m) + 0.5) / m)
        for radius in (largest or 1.0) * (1 + 1 / m) * 2.0 ** -np.arange(4.0):
            distance = np.abs(radius * turn[:, None] - nodes)
            if distance.min() < 1e-6 * radius:  # points are known to 1e-16 of it
                continue
            log = np.log(distance)
            values = log.sum(axis=1)[:, None] - log - apart
            yield math.log(radius), 0.5 * (_log_sum(2 * values) - math.log(m))


def _residual(
    nodes: NDArray[Any], b: NDArray[Any], x: NDArray[Any], transpose: bool
) -> NDArray[Any]:
    """``b - V x``, or ``b - V^T x``, as if computed in twice the precision and rounded once.

    Extended precision would not do: Björck and Pereyra's errors are often far below what the
    system's condition number allows, and a residual must be better still.
    """
    if b.dtype is _FLOAT and nodes.dtype is _FLOAT:
        return _residual_parts([nodes], [b], [x], transpose)[0]
    t, c, a = ([part.real, part.imag] for part in (nodes, b, x))
    residual = np.empty_like(b)
    residual.real, residual.imag = _residual_parts(t, c, a, transpose)
    return residual


def _residual_parts(
    nodes: list[NDArray[Any]], b: list[NDArray[Any]], x: list[NDArray[Any]], transpose: bool
) -> list[NDArray[Any]]:
    """The residual from real parts, and imaginary parts if there are two of each."""
    shape = b[0].shape
    nodes = [part.reshape(-1, *[1] * (len(shape) - 1)) for part in nodes]
    m = len(nodes[0])
    residual = [np.empty(shape) for _ in b]
    with np.errstate(all="ignore"):
        if transpose:
            powers: list[Pair] = [(part, np.zeros(shape)) for part in x]
            for k in range(m):
                for into, part, (high, low) in zip(residual, b, powers, strict=True):
                    terms = np.concatenate([part[k : k + 1], -high, -low])
                    into[k] = np.apply_along_axis(math.fsum, 0, terms)
                powers = _times(powers, nodes)
        else:
            value: list[Pair] = [(np.zeros(shape), np.zeros(shape)) for _ in b]
            for k in range(m - 1, -1, -1):
                value = [_plus(v, part[k]) for v, part in zip(_times(value, nodes), x, strict=True)]
            for into, part, (high, low) in zip(residual, b, value, strict=True):
                total, error = _plus((-high, -low), part)
                into[:] = total + error
    return residual


def _times(a: list[Pair], t: list[NDArray[Any]]) -> list[Pair]:
    """Product of a (real, or real and imaginary parts) and doubles."""
    if len(t) == 1:
        return [_scaled(a[0], t[0])]
    (re, im), (tr, ti) = a, t
    return [_sum(_scaled(re, tr), _scaled(im, -ti)), _sum(_scaled(re, ti), _scaled(im, tr))]


def _scaled(a: Pair, t: NDArray[Any]) -> Pair:
    product, error = two_product(a[0], t)
    return two_sum(product, error + a[1] * t)


def _plus(a: Pair, t: NDArray[Any]) -> Pair:
    total, error = two_sum(a[0], t)
    return two_sum(total, error + a[1])


def _sum(a: Pair, b: Pair) -> Pair:
    total, error = two_sum(a[0], b[0])
    return two_sum(total, error + (a[1] + b[1]))
