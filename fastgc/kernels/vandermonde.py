"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

from .._base.arrays import Array, Floats, Ints
from . import unchecked
from .contract import NODES, check_numbers_below, reads, takes, writes

__all__ = ["leja_order", "solve_vandermonde"]


@takes(nodes=reads(NODES, "m", least=1), order=writes("int64", "m"))
def leja_order(nodes: Array, order: Ints) -> None:
    """Write to `order` a permutation that puts the nodes in Leja order.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
        If one is not finite, `order` is filled with some numbers in 0 .. m-1.
    order : (m,) int64 array
    """
    unchecked.leja_order(nodes, order)


def _check_order(nodes: Array, order: Ints | None) -> None:
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
    nodes: Array,
    b: Array,
    order: Ints | None,
    transpose: bool,
    out: Array,
    bound: Floats | None = None,
    choose: bool = False,
    may_overflow: bool = False,
) -> bool:
    """Solve ``V x = b`` or ``V^T x = b``, V = np.vander(nodes, increasing=True).

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
    b, out : (m,) or (m, r) array
        Of the nodes' dtype. `out` may be `b`, but overlap it in no other way.
    order : (m,) int64 array or None
        The order in which to take the nodes, a permutation; None: `leja_order`.
    transpose : bool
    bound : array of b's shape or None
        On entry, bounds of the moduli of b's errors; on return, of the errors of `out`, including
        roundings and underflow. Contiguous.
    choose : bool
        Solve each column in a way that is known, or is shown, to be good. See Notes.
    may_overflow : bool
        Write a column although it holds a number too large for a double. This number is Inf, and so
        is its bound.

    Returns
    -------
    bool
        Whether `out` and `bound` have been written. If not, an input is not finite, nodes coincide,
        a number is too large for a double, or no way is known or shown to be good. Columns before
        the one at fault may have been written.

    Notes
    -----
    With `choose`, real nodes of one sign are first taken by modulus, the smallest first, with
    bounds, which must say that the result is accurate. Otherwise nodes are taken in Leja's order,
    where that is trusted: if nodes are not in clusters or of many scales and, for a column of
    ``V x = b``, many numbers matter. Other columns are solved by the inverse, if no terms cancel.
    If they do, or if `bound` is wanted, they are solved in Leja's order all the same, whose bounds
    must then say that the result is accurate; only for nodes in whose order one may trust, and
    without `bound`, they need not.
    """
    solved = unchecked.solve_vandermonde(
        nodes, b, order, transpose, out, bound, choose, may_overflow
    )
    return bool(solved)
