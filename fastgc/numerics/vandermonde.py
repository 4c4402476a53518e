"""Vandermonde systems in O(m^2): the algorithms of Björck and Pereyra.

Let V = np.vander(nodes, increasing=True). ``V x = b`` asks for the coefficients x of the polynomial
with given values b at the nodes, and ``V^T x = b`` for the weights x of a sum over the nodes with
given moments b. Decoding a Reed-Solomon code is of the second kind: its nodes are the survivors'
roots of unity, and its moments are (1, 0, ..., 0).

The accuracy of the result depends on the order of the nodes (Higham, "Accuracy and Stability of
Numerical Algorithms", ch. 22). If nodes fill a circle or an interval, Leja order nearly always
makes the largest numbers accurate: for 224 of the 256th roots of unity the errors are near 1e-13,
but beyond 1e+30 in natural order. Nodes of one sign, from the smallest on, make the smallest
numbers accurate too, unless the computation cancels, which a running error bound shows.

Systems of two kinds lose digits in any order: those whose nodes are in clusters or of many scales,
and those of polynomials that are small at most nodes. They are solved by the inverse. Its columns
are the coefficients of Lagrange's polynomials, each good to its last digits (by deflation from both
ends: Peters and Wilkinson 1971). A solution is a sum of them, and good unless its terms cancel,
which the sum shows.

Solutions do not depend on the nodes' scale: nodes are divided by a power of two, which changes no
digit. It brings their mean distance near 1 (it is the capacity of what they fill: 1/2 for [-1, 1]),
so that products of distances stay in a double's range for thousands of nodes. Systems whose numbers
leave it all the same are solved by the same steps on vectors with exponents of their own. So the
time grows by m^2 for nodes of all kinds: 0.1 to 5 ms for 1024 nodes and 2 to 100 ms for 4096,
where LAPACK takes 20 ms and 1 s, and 60 ms and 3 s for complex nodes (benches/test_vandermonde.py).

Systems that neither way solves are solved in decimals, which takes a thousand times as long: sums
with smooth moments over clustered nodes are such. So are systems that you ask to refine, or to
bound where the running bounds do not suffice.

This table shows the largest error relative to a number, for 60 nodes (in brackets, if it is much
smaller, the largest error relative to the largest number; benches/vandermonde_orders.py):

    ==================  =========  =======  ===============  ===============  ===============
    nodes               b          system   as given         Leja             chosen
    ==================  =========  =======  ===============  ===============  ===============
    1 ... 60            (-1)^i     V x      7e-16            6e-15            7e-16
    1 ... 60            (-1)^i     V^T x    5e-16            1e+00 (1e-14)    5e-16
    1 ... 60            random     V^T x    2e-13            7e-01 (1e-14)    2e-13
    1/(i+3)             (-1)^i     V x      8e-16            2e-15            9e-16
    1/(i+3)             (-1)^i     V^T x    2e-15            1e+52 (1e-14)    1e-15
    1/(i+2)             (-1)^i     V^T x    2e-15            2e+58 (9e-15)    2e-15
    1/(i+2)             random     V^T x    2e-15            1e+50 (1e-14)    2e-15
    even in [0, 1]      1          V^T x    Inf (3e+10)      0                0
    even in [0, 1]      random     V^T x    1e-15            4e-01 (1e-14)    1e-15
    even in [-1, 1]     random     V x      2e-03 (2e-10)    9e-15            9e-15
    Chebyshev's         random     V^T x    4e-08 (3e-09)    2e-13            2e-13
    ==================  =========  =======  ===============  ===============  ===============
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from functools import lru_cache
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from .. import kernels
from .._base.arrays import (
    Array,
    Floats,
    Ints,
    Output,
    as_array,
    at_least,
    check_finite,
    check_flag,
    check_line,
    check_numbers,
    check_permutation,
    output_of,
)
from .._base.text import listing

__all__ = ["leja_order", "roots_order", "solve"]
__dir__ = listing(__all__)

_INT64 = np.dtype(np.int64)
_AUTO: Literal["auto"] = "auto"
_ORDERS = (_AUTO, "leja", "given")
_FLOAT, _COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)
_UNIT = 2.0**-53 * 1.001  # a rounding, including terms of second order
_GOOD = 2.0**-30  # a bound this small, relative to its number, is not improved
_LEAST = 2.0**-1074  # the least number above 0
_DIGITS, _BITS = 58, math.log2(10)  # digits of the first attempt in decimal numbers; bits of each


def leja_order(nodes: ArrayLike) -> Ints:
    """Order in which each node is as far as possible from those before it.

    The first node has the largest modulus. Each further one has the largest product of distances to
    its predecessors (Leja 1957; Reichel 1990). Coincident nodes come last.

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
    TypeError, ValueError
        If the nodes are not numbers, one is not finite, or there is none.
    """
    nodes = check_line("nodes", nodes)
    check_finite("nodes", nodes)
    order = np.empty(nodes.size, dtype=np.int64)
    kernels.unchecked.leja_order(nodes, order)
    return order


@lru_cache(maxsize=64)
def _golden_order(f: int) -> Ints:
    """Ranks of the fractional parts of k / golden ratio, k = 0 .. f-1.

    Every run of these ranks is spread evenly over 0 .. f-1.
    """
    golden = (np.sqrt(5.0) - 1) / 2
    order = np.argsort(np.argsort(np.arange(f) * golden % 1.0, kind="stable"), kind="stable")
    order.flags.writeable = False
    return order


def roots_order(n: int, exponents: ArrayLike) -> Ints:
    """Order, as good as Leja's and in O(f log f), of nodes that are n-th roots of unity.

    Nodes are sorted around the circle and then taken in steps of the golden section, by rank. This
    is better than the obvious candidate, the Leja order of all n roots restricted to those present.
    With 224 of 256 random roots (900 of 1000), the worst errors of the latter are 1e-11 (1e-7),
    those of this order 6e-14 (1e-13), and those of true Leja order 6e-14 (2e-13).

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
    TypeError, ValueError
        If the exponents are not integers, or two name the same root.
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
) -> Array: ...
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
) -> tuple[Array, Floats]: ...
def solve(
    nodes: ArrayLike,
    b: ArrayLike,
    transpose: bool = False,
    *,
    order: Literal["auto", "leja", "given"] | ArrayLike = _AUTO,
    refine: int = 0,
    out: Output | None = None,
    return_bound: bool = False,
) -> Array | tuple[Array, Floats]:
    """Solve ``V x = b`` or ``V^T x = b``, where V = np.vander(nodes, increasing=True).

    This uses the algorithms of Björck & Pereyra, "Solution of Vandermonde systems of equations"
    (1970), in O(m^2) per column and O(m^2) for the order.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    b : (m,) or (m, r) array_like
        One right-hand side, or one in each column. It is not written, unless it is `out`.
    transpose : bool
        Solve ``V^T x = b``.
    order : {"auto", "leja", "given"} or (m,) array_like of int
        The order in which nodes are used: one that suits these nodes and b, `leja_order`, the
        given order, or a permutation, for instance from `roots_order`. It does not change the
        meaning of x. Notes explain "auto".
    refine : int
        If positive, columns whose error may exceed one rounding are solved in decimals, with as
        many digits as necessary: each number is then the exact solution, rounded once. This takes
        some milliseconds for 60 nodes, and about a second for 1000.
    out : array, optional
        Where to write: contiguous, with b's shape, float64, or complex128 if nodes or b are
        complex. It may be b itself.
    return_bound : bool
        Also return bounds of the errors. They come with the solve (Higham, "Accuracy and
        Stability", 3.3). If one exceeds 2^-30 of its number, it comes from the distance to the
        solution of `refine`, which takes far longer.

    Returns
    -------
    x : (m,) or (m, r) float64 or complex128 array
        A number too large for a double is Inf, with a RuntimeWarning. The others of its column may
        then lack digits, as errors are relative to the column's largest number: see `refine`.
    bound : float64 array of x's shape
        If `return_bound`: no entry of x differs by more than this from the exact solution for these
        nodes and this b, even if something under- or overflows on the way. It is Inf if the entry
        is. A thread that flushes subnormal numbers to zero may lose more.

    Raises
    ------
    TypeError, ValueError
        If nodes or b are not numbers or not finite, two nodes coincide, a shape or the dtype of
        `out` does not fit, or `order` is not a permutation. Nothing has been written in that case.

    Notes
    -----
    ``order="auto"`` takes for each column the first of these ways that is known, or shown, to lose
    few digits.

    1. Real nodes of one sign are used from the smallest on. This has high relative accuracy for a b
       of alternating sign (Higham 1987) and often for others. It is taken if a running error bound
       shows that no number has an error of more than 2^-40 m of it.
    2. Leja order is trusted, without a bound, for nodes that fill what they lie in: if the
       geometric mean of a node's distances from those before it is never below 2^-3.5 of the
       largest node. It is not trusted for a column of ``V x = b`` in which few numbers matter
       (fewer than m / 2 of one size would have the same ratio of sum to norm), for more than 8
       nodes.
    3. The column is solved by the inverse, if no terms of the sums cancel: the largest is at most
       2^12 of the largest number. If a bound is asked for, this way is left out.
    4. Leja order is used after all, if nodes fill what they lie in and no bound is asked for.
       Otherwise it is used if a running bound shows what it has to show in 1.
    5. The column is solved in decimals and rounded once.

    Only the first and the last way are proven. In tests on nodes of 16 kinds and b of 7, the
    largest error is below 1e-10 of the largest number, for nodes of size about 1. (s times as large
    nodes have s^-j times as large numbers x_j, and errors.) It may be larger where roundings of b
    matter as much: a polynomial through 50 values of a smooth function consists of them. If in
    doubt, ask for the bound.
    """
    transpose = check_flag("transpose", transpose)
    # The hot path: one test that nearly every call passes.
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
        # An order that names a node twice gives a non-finite result: `_solve` then raises.
        choose = named and order == _AUTO
        permutation: Any = order
        if named:
            permutation = _as_given(*shape) if order == "given" else None
        if kernels.unchecked.solve_vandermonde(
            nodes, b, permutation, transpose, x, None, choose, False
        ):
            return x
    x, bound = _solve(nodes, b, transpose, order, refine, out, bool(return_bound))
    return x if bound is None else (x, bound)


@lru_cache(maxsize=16)  # making it takes a tenth of the time of a small system
def _as_given(m: int) -> Ints:
    """The given order. Callers must not write to it, although it is not read-only."""
    return np.arange(m)


def _is_plain(order: Any, shape: tuple[int, ...]) -> bool:
    """Whether an order can be passed to a kernel as it is: no entry is out of range."""
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
) -> tuple[Array, Floats | None]:
    nodes, b = check_line("nodes", nodes), check_numbers("b", b)
    m = nodes.size
    if b.ndim not in (1, 2) or len(b) != m:
        raise ValueError(f"b must have shape ({m},) or ({m}, r), not {b.shape}")
    refine = at_least("refine", refine, 0)
    permutation, choose = _permutation(order, m)
    if nodes.dtype is _COMPLEX and b.dtype is _FLOAT:
        b = b.astype(_COMPLEX)
    written = output_of(out, b.dtype, b.shape)
    nodes, b = (a.copy() if np.may_share_memory(written, a) else a for a in (nodes, b))
    check_finite("nodes", nodes)
    check_finite("b", b)
    _check_distinct(nodes)
    shape, halves = b.shape, nodes.dtype is _FLOAT and b.dtype is _COMPLEX
    b, x = (a.view(nodes.dtype).reshape(m, -1) for a in (b, written))  # complex: two real ones
    bound = np.zeros(b.shape) if refine or return_bound else None

    def run(b: Array, x: Array, bound: Floats | None) -> bool:
        solved: bool = kernels.unchecked.solve_vandermonde(
            nodes, b, permutation, transpose, x, bound, choose, True
        )
        return solved

    width = b.shape[1]
    precise = lru_cache(lambda: _Precise(nodes, transpose))  # made if some column needs it
    approximate = set(range(width))
    if not run(b, x, bound):
        for col in range(width):
            column, found = np.ascontiguousarray(b[:, col]), np.empty(m, dtype=b.dtype)
            limit = None if bound is None else np.zeros(m)
            if width == 1 or not run(column, found, limit):
                found, limit = precise().solve(column)
                approximate.remove(col)
            x[:, col] = found
            if bound is not None:
                bound[:, col] = limit
    if not np.isfinite(x).all():
        warnings.warn("overflow in solving a Vandermonde system", RuntimeWarning, stacklevel=3)
    if bound is not None:
        for col in approximate:
            _improve(precise, b[:, col], x[:, col], bound[:, col], bool(refine))
    result: Any = written if out is None else out
    if not return_bound:
        return result, None
    assert bound is not None
    if halves:
        parts = bound[:, ::2], bound[:, 1::2]
        bound = np.hypot(*parts) * (1 + 2.0**-50) + np.where(parts[0] + parts[1] > 0, _LEAST, 0.0)
    return result, bound.reshape(shape)


def _improve(
    precise: Callable[[], _Precise], b: Array, x: Array, bound: Floats, refine: bool
) -> None:
    """Refine a column in place if its error may exceed one rounding; or only improve its bound."""
    with np.errstate(under="ignore"):
        enough = (_UNIT if refine else _GOOD) * np.abs(x)
    if (bound <= enough).all():
        return
    found, limit = precise().solve(np.ascontiguousarray(b))
    finite = np.isfinite(found) & np.isfinite(x)
    if refine:
        x[finite], bound[finite] = found[finite], limit[finite]
        return
    with np.errstate(all="ignore"):
        far = np.abs(np.where(finite, x - found, np.inf)) * (1 + 2.0**-50) + limit
    bound[:] = np.fmin(bound, np.where(finite, far, np.inf))


def _check_distinct(nodes: Array) -> None:
    """Raise a ValueError that names two equal nodes, if there are any."""
    order = np.argsort(nodes, kind="stable")
    same = np.flatnonzero(nodes[order[1:]] == nodes[order[:-1]])
    if same.size:
        i, j = order[same[0]], order[same[0] + 1]
        raise ValueError(f"nodes {i} and {j} are both {nodes[i]}: nodes must be distinct")


def _permutation(
    order: Literal["auto", "leja", "given"] | ArrayLike, m: int
) -> tuple[Ints | None, bool]:
    """The order as an array, or None for Leja's; and whether the kernel chooses between orders."""
    if isinstance(order, str):
        if order in (_AUTO, "leja"):
            return None, order == _AUTO
        if order == "given":
            return _as_given(m), False
        raise ValueError(f"order must be 'auto', 'leja', 'given' or a permutation, not {order!r}")
    return check_permutation("order", order, m), False


class _Precise:
    """Solves for any nodes, rounding once: Björck and Pereyra's steps in decimal numbers.

    To know how many digits suffice, the steps are done on moduli, which are added and never
    subtracted: they bound how large each number may become. All roundings together amount to a few
    units of the last digit of these bounds. Nothing over- or underflows. If the digits do not
    suffice, more are taken.
    """

    def __init__(self, nodes: Array, transpose: bool) -> None:
        # By modulus, for any nodes: the order decides how many digits are needed, not whether they
        # are right. On 54 systems of 16 to 500 nodes, the better of this order and Leja's by their
        # bounds was no faster in the median, and Leja's alone took up to 34 times as long.
        order = np.argsort(np.abs(nodes), kind="stable")
        self._order, self._transpose, nodes = order, transpose, nodes[order]
        self._nodes, self._moduli = _decimals(nodes), _logarithms(nodes, np.zeros_like(nodes))
        self._distances = [
            _logarithms(nodes[k + 1 :], nodes[: -k - 1]) for k in range(len(order) - 1)
        ]

    def solve(self, b: Array) -> tuple[Array, Floats]:
        """The solution for a column, each part of a number rounded once, and bounds of its errors.

        A number too large for a double is Inf, with the bound Inf.
        """
        given, digits = b if self._transpose else b[self._order], _DIGITS
        size = self._sizes(given)
        while True:
            parts = self._run(given, digits)
            # Each of 3 m steps rounds by a few units, of at most 10^(1-digits) of a bound.
            error = size + math.log2(64 * len(b)) - (digits - 1) * _BITS
            lack = _lack(parts, error, 3 * digits * _BITS)
            if lack <= 0:
                break
            digits += math.ceil(lack / _BITS)
        x = np.array(parts, dtype=np.float64).T.copy().view(b.dtype)[:, 0] + 0.0  # -0.0 becomes 0.0
        with np.errstate(all="ignore"):
            modulus = np.abs(x)
            # A part's rounding or underflow; errors before it are below 2^-64 of the part.
            bound = 1.01 * 2.0**-53 * modulus + np.where(modulus < 2.0**-900, _LEAST, 0.0)
        bound[~np.isfinite(x)] = np.inf
        if self._transpose:
            rows = np.argsort(self._order)
            return x[rows], bound[rows]
        return x, bound

    @np.errstate(under="ignore")
    def _sizes(self, b: Array) -> Floats:
        """Logarithms of bounds of the solution's moduli, in the order of the steps."""
        log = _logarithms(b, np.zeros_like(b))
        for what, k, to, source in _steps(len(b), self._transpose):
            if what == "over":
                log[to] -= self._distances[k]
            else:
                by = self._moduli[k] if what == "times" else 0.0
                log[to] = np.logaddexp2(log[to], log[source] + by)
        return log

    def _run(self, b: Array, digits: int) -> list[list[Decimal]]:
        """The solution's parts, in the order of the steps, computed with so many digits."""
        x, c = self._nodes, _decimals(b)
        with localcontext(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX):
            for what, k, to, source in _steps(len(b), self._transpose):
                old, others = ([part[at] for part in c] for at in (to, source))
                if what == "over":
                    apart = [
                        [a - d for a, d in zip(part[k + 1 :], part, strict=False)] for part in x
                    ]
                    new = _quotients(old, apart)
                else:
                    if what == "times":
                        others = _products([part[k] for part in x], others)
                    new = [
                        [a - d for a, d in zip(*each, strict=True)]
                        for each in zip(old, others, strict=True)
                    ]
                for part, numbers in zip(c, new, strict=True):
                    part[to] = numbers
        return c


def _lack(parts: list[list[Decimal]], error: Floats, more: float) -> float:
    """How many bits are lacking for errors with these logarithms; not positive if none are.

    Errors must be below 2^-64 of every part of a number, or far below the least double. If a number
    is not larger than its error, `more` further bits are tried.
    """
    lacks = 0.0
    for log, number in zip(error.tolist(), zip(*parts, strict=True), strict=True):
        size = min(part.adjusted() if part else -math.inf for part in number) * _BITS
        known = log + 64 - size if size > log + 2 else more
        lacks = max(lacks, min(known, log + 1090))
    return lacks


def _decimals(x: Array) -> list[list[Decimal]]:
    """The real parts, and the imaginary ones if any, without rounding."""
    return [list(map(Decimal, part.tolist())) for part in _parts(x)]


def _parts(x: Array) -> list[Floats]:
    return [x.real, x.imag] if x.dtype.kind == "c" else [x]


def _logarithms(x: Array, y: Array) -> Floats:
    """log2 of the moduli of x - y, as precise for numbers of any size."""
    logs = []
    for one, other in zip(_parts(x), _parts(y), strict=True):
        e = np.maximum(np.frexp(one)[1], np.frexp(other)[1])
        with np.errstate(divide="ignore", under="ignore"):
            logs.append(e + np.log2(np.abs(np.ldexp(one, -e) - np.ldexp(other, -e))))
    found: Floats = logs[0] if len(logs) == 1 else np.logaddexp2(*np.multiply(logs, 2)) / 2
    return found


def _steps(m: int, transpose: bool) -> Iterator[tuple[str, int, slice, slice]]:
    """Each step: what it does, the k of its node or distances, its targets and its sources."""
    for k in range(m - 1):
        rest, before = slice(k + 1, m), slice(k, m - 1)
        yield ("times" if transpose else "minus"), k, rest, before
        if not transpose:
            yield "over", k, rest, rest
    for k in range(m - 2, -1, -1):
        rest, before = slice(k + 1, m), slice(k, m - 1)
        if transpose:
            yield "over", k, rest, rest
        yield ("minus" if transpose else "times"), k, before, rest


def _products(by: list[Decimal], c: list[list[Decimal]]) -> list[list[Decimal]]:
    """Products of numbers, real or complex, with one number."""
    if len(c) == 1:
        return [[by[0] * a for a in c[0]]]
    x, y = by
    return [
        [x * a - y * b for a, b in zip(*c, strict=True)],
        [x * b + y * a for a, b in zip(*c, strict=True)],
    ]


def _quotients(c: list[list[Decimal]], by: list[list[Decimal]]) -> list[list[Decimal]]:
    """Quotients of numbers, real or complex."""
    if len(c) == 1:
        return [[a / d for a, d in zip(c[0], by[0], strict=True)]]
    real, imaginary = [], []
    for a, b, x, y in zip(*c, *by, strict=True):
        square = x * x + y * y
        real.append((a * x + b * y) / square)
        imaginary.append((b * x - a * y) / square)
    return [real, imaginary]
