"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import NODES, check_numbers_below, reads, takes, writes

__all__ = ["leja_order", "solve_vandermonde"]


@takes(nodes=reads(NODES, "m", least=1), order=writes("int64", "m"))
def leja_order(nodes: NDArray[Any], order: NDArray[np.int64]) -> None:
    """Write to `order` a permutation that puts the nodes in Leja order.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
        If they are not all finite, `order` is filled with some numbers in 0 .. m-1.
    order : (m,) int64 array
    """
    m, complex_ = nodes.size, nodes.dtype.kind == "c"
    parts = np.array([nodes.real, nodes.imag] if complex_ else [nodes])
    order[:] = np.arange(m)
    low = max(8, 1 << (m - 1).bit_length()) - 1
    with np.errstate(all="ignore"):
        parts *= 2.0 ** -min(max(_exponent(float(np.abs(parts).max())), -1022), 1022)
        product = np.ones(m)
        best, growth = int(np.argmax(_squares(parts))), 1.0
        for k in range(m - 1):
            for each in (*parts, product, order):
                each[[k, best]] = each[[best, k]]
            distance = parts[:, k + 1 :] * growth - growth * parts[:, k : k + 1]
            rest = product[k + 1 :]
            rest *= _squares(distance) if complex_ else np.abs(distance[0])
            top = int(((rest.view(np.int64) & ~low) | np.arange(k + 1, m)).max())
            best = top & low
            if not (top & ~low and k < best < m):  # all are 0, or not finite
                best = k + 1
            exponent = _exponent(float(np.int64(top).view(np.float64)))
            growth = 1.0
            if abs(exponent) <= 1000:
                growth = 2.0 ** -(exponent >> 1 if complex_ else exponent)
            if k % 16 == 15:  # the order of the hopeless changes nothing
                np.maximum(rest, 2.0**-500, out=rest)


def _squares(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = (parts**2).sum(axis=0)
    return squares


def _exponent(x: float) -> int:
    """That of the power of two at or below x; -1023 of zero, and of what is not normal."""
    return (int(np.float64(x).view(np.int64)) >> 52 & 0x7FF) - 1023


# csrc/vandermonde.c says what these are.
_UNIT, _ACCURATE, _HARMLESS, _RAY = 2.0**-53 * 1.001, 2.0**-48, 2.0**-32, 2.0**-20


def _check_order(
    nodes: NDArray[Any], b: NDArray[Any], order: NDArray[np.int64] | None, *_: Any
) -> None:
    if order is not None:
        check_numbers_below("order", order, nodes.size)


@takes(
    _check_order,
    nodes=reads(NODES, "m", least=1),
    b=reads("nodes", "m ..."),
    order=reads("int64", "m", optional=True),
    out=writes("nodes", "b", same="b"),
    bound=writes("float64", "b", optional=True),
)
def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool = False,
    bound: NDArray[np.float64] | None = None,
    choose: bool = False,
) -> bool:
    """Solve ``V x = b`` or ``V^T x = b``, V = np.vander(nodes, increasing=True).

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
    b, out : (m,) or (m, r) array
        Of the nodes' dtype. `out` may be `b`, but overlap it in no other way.
    order : (m,) int64 array or None
        In which order to take the nodes, a permutation; None: `leja_order`.
    transpose : bool
    forced : bool
        Write numbers that are not finite, too.
    bound : array of b's shape or None
        Bounds of the moduli of b's errors, and then of those of `out`, roundings included (but for
        what underflows); Inf where there is none. Contiguous.
    choose : bool
        Instead of Leja's order take each column in that of the two that is shown to be better:
        for nodes on one ray from 0 first that of the moduli, from the smallest on, and Leja's if
        the bounds do not say that the result is accurate. Leja's is then left for the other where
        the bounds prove that the largest error relative to a number becomes smaller, and that the
        largest error does too, or is at most 2^-32 of the largest number.

    Returns
    -------
    bool
        Whether all results, and nodes, are finite; they never are if nodes coincide or if `b` is
        not. If not, unless `forced`, the column at fault is not written, and none at all if it is
        the nodes' fault or there is one column.
    """
    m = nodes.size
    columns = b.reshape(m, -1)
    errors = np.zeros(columns.shape) if bound is None else bound.reshape(m, -1)
    rising = _order_on_ray(nodes) if choose and order is None else None
    with np.errstate(all="ignore"):
        if rising is not None:
            found, limits = _solve_in_order(nodes, columns, errors, rising, transpose, True)
            short = ~_are_accurate(found, limits)
            if short.any():
                first = found[:, short], limits[:, short]
                order, rest = _leja(nodes), (columns[:, short], errors[:, short])
                other = _solve_in_order(nodes, *rest, order, transpose, bound is not None)
                found[:, short], limits[:, short] = _better(first, other)
        else:
            order = _leja(nodes) if order is None else order
            bounded = bound is not None
            found, limits = _solve_in_order(nodes, columns, errors, order, transpose, bounded)
    finite = bool(np.isfinite(nodes).all() and np.isfinite(found).all())
    if finite or forced:
        out[...] = found.reshape(out.shape)
        if bound is not None:
            bound[...] = limits.reshape(bound.shape)
    return finite


def _leja(nodes: NDArray[Any]) -> NDArray[np.int64]:
    order = np.empty(nodes.size, dtype=np.int64)
    leja_order(nodes, order)
    return order


def _order_on_ray(nodes: NDArray[Any]) -> NDArray[np.int64] | None:
    """Order by modulus, if all nodes are on one ray from 0, or nearly so."""
    size = _larger_part(nodes)
    far = nodes[np.argmax(size)]
    with np.errstate(all="ignore"):
        if nodes.dtype.kind == "c":
            along = nodes.real * far.real + nodes.imag * far.imag
            across = np.abs(nodes.imag * far.real - nodes.real * far.imag)
            on_ray = bool((across <= _RAY * along).all())
        else:
            on_ray = not ((nodes > 0) if far < 0 else (nodes < 0)).any()
    return np.argsort(size, kind="stable") if on_ray else None


def _larger_part(x: NDArray[Any]) -> NDArray[np.float64]:
    larger: NDArray[np.float64] = np.maximum(np.abs(x.real), np.abs(x.imag))
    return larger


def _solve_in_order(
    nodes: NDArray[Any],
    b: NDArray[Any],
    errors: NDArray[np.float64],
    order: NDArray[np.int64],
    transpose: bool,
    bounded: bool,
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The solution and, if wanted, bounds of its errors, from those of b."""
    m, complex_ = nodes.size, nodes.dtype.kind == "c"
    in_product, in_quotient = (3, 12) if complex_ else (1, 6)
    x = nodes[order].reshape(-1, 1)
    c, e = (a.copy() if transpose else a[order] for a in (b, errors / _UNIT))

    def subtract(k: int, to: slice, what: slice) -> None:
        if bounded:
            e[to] += np.abs(x[k]) * (e[what] + in_product * np.abs(c[what]))
        c[to] -= x[k] * c[what]
        if bounded:
            e[to] += np.abs(c[to])

    for k in range(m - 1):
        if transpose:
            subtract(k, slice(k + 1, None), slice(k, -1))
        else:
            d = x[k + 1 :] - x[: m - k - 1]
            c[k + 1 :] = (c[k + 1 :] - c[k:-1]) / d
            if bounded:
                e[k + 1 :] = (e[k + 1 :] + e[k:-1]) / np.abs(d)
                e[k + 1 :] += (in_quotient + 1) * np.abs(c[k + 1 :])
    for k in range(m - 2, -1, -1):
        if transpose:
            d = x[k + 1 :] - x[: m - k - 1]
            c[k + 1 :] /= d
            if bounded:
                e[k + 1 :] = e[k + 1 :] / np.abs(d) + in_quotient * np.abs(c[k + 1 :])
                e[k:-1] += e[k + 1 :]
            c[k:-1] -= c[k + 1 :]
            if bounded:
                e[k:-1] += np.abs(c[k:-1])
        else:
            subtract(k, slice(k, -1), slice(k + 1, None))
    e *= _UNIT
    e[:, ~np.isfinite(c).all(axis=0)] = np.inf
    e[np.isnan(e)] = np.inf
    if not transpose:
        return c, e
    found, limits = np.empty_like(c), np.empty_like(e)
    found[order], limits[order] = c, e
    return found, limits


def _are_accurate(x: NDArray[Any], e: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of which columns all numbers are good to about their last digits."""
    good: NDArray[np.bool_] = np.all(e <= _ACCURATE * len(x) * _larger_part(x), axis=0)
    return good


def _better(
    first: tuple[NDArray[Any], NDArray[np.float64]],
    second: tuple[NDArray[Any], NDArray[np.float64]],
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Of each column the second, unless the bounds prove that the first is better."""
    (x, e), (other, others) = first, second
    size, gap = _larger_part(x), _larger_part(x - other)
    proven = np.maximum(gap - e, 0.0)  # the other's error is no less
    known = (e < size) | (e == 0)
    relative = np.where(e > 0, e / (size - e), 0.0)
    least = np.where(proven > 0, proven / (1.5 * size + e), 0.0)
    most = e.max(axis=0)
    better = known.all(axis=0) & (relative.max(axis=0) < least.max(axis=0))
    better &= (most <= proven.max(axis=0)) | (most <= _HARMLESS * size.max(axis=0))
    better |= np.isfinite(x).all(axis=0) & ~np.isfinite(other).all(axis=0)
    far = np.abs(x - other)
    # What is near a number of known error has not much more of it.
    e, others = np.fmin(e, 1.001 * (far + others)), np.fmin(others, 1.001 * (far + e))
    return np.where(better, x, other), np.where(better, e, others)
