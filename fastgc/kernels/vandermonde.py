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
    widely: bool = False,
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
        Solve each column in an order that is known, or is shown, to be good. See Notes.
    widely : bool
        Solve a column that under- or overflows on the way again, on numbers with exponents of their
        own. A number too large for a double is then Inf, and so is its bound.

    Returns
    -------
    bool
        Whether `out` and `bound` have been written. If not, an input is not finite, nodes coincide,
        a column under- or overflowed on the way, or no order is shown to be good. Columns before
        the one at fault may have been written.

    Notes
    -----
    With `choose`, nodes on one ray from 0 are first taken by modulus, the smallest first. So are
    other nodes for which Leja's order may lose digits: nodes in clusters or of many scales and, for
    columns of ``V x = b`` that are mostly 0, nodes that do not fill a circle or an interval. All
    other nodes are taken in Leja's order.

    If the bounds of the order by modulus do not say that the result is accurate, Leja's order is
    taken, too. On a ray the first result is kept if its bounds prove that its largest relative
    error of a number is smaller, and that its largest error is smaller, too, or at most 2^-32 of
    the largest number; else Leja's is. If Leja's order may lose digits, its bounds must say that
    the result is accurate.

    For a column of ``V x = b`` with at most three entries other than 0, and more that are 0, Leja's
    order is changed: nodes with an entry of 0 come first.
    """
    solved = unchecked.solve_vandermonde(nodes, b, order, transpose, out, bound, choose, widely)
    return bool(solved)
