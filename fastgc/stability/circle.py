"""The polynomial behind a Reed-Solomon decoding vector, all around its circle."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import check_dtype, check_workers, unit_roundoff
from ..codes import Code, ReedSolomon

__all__ = ["CircleValues", "circle_values"]


class CircleValues(NamedTuple):
    """Sizes of two polynomials p at the code's n roots of unity, in their order on the circle.

    Of survivors, ``p(alpha^i)`` is the coefficient a_i of a decoding vector; of stragglers, what is
    left out of the gradient for it. Adding up all n messages has 1/n everywhere.

    Attributes
    ----------
    lost : (n,) bool array
        The roots of stragglers.
    exact : (n,) float64 array
        Decimal logarithms of ``n |p|`` for the exact vector, which may be beyond float64; -Inf at
        stragglers.
    near_exact : (n,) float64 array
        The same for the near-exact vector; rarely -Inf.
    """

    lost: NDArray[np.bool_]
    exact: NDArray[np.float64]
    near_exact: NDArray[np.float64]


def circle_values(code: Code, stragglers: ArrayLike, dtype: DTypeLike = np.float64) -> CircleValues:
    """What the methods "locator" and "near-exact" make of a set of stragglers, at every root.

    Also where columns of B are alike, and the code has exact vectors that are shorter than these.

    Parameters
    ----------
    code : Code
        A `ReedSolomon` code of one cluster.
    stragglers : integer array, or (n,) bool array
        Silent workers, as many as the code tolerates at most.
    dtype : numpy dtype
        Of the messages.

    Returns
    -------
    CircleValues

    Raises
    ------
    TypeError
        If the code is another one.
    ValueError
        If it has several clusters, or stragglers do not exist, are named twice, or are more than it
        tolerates.
    """
    if not isinstance(code, ReedSolomon):
        raise TypeError(f"only Reed-Solomon codes have polynomials on a circle, not {code!r}")
    if code.clusters > 1:
        raise ValueError(f"{code!r} has {code.clusters} circles: give a code with clusters=1")
    unit = unit_roundoff(check_dtype(dtype, halves=True))
    silent = check_workers("stragglers", stragglers, code.n)
    if silent.size and not 0 <= silent.min() <= silent.max() < code.n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {code.n - 1}, not {silent.tolist()}")
    if np.unique(silent).size < silent.size:
        raise ValueError(f"stragglers must not be named twice: {silent.tolist()}")
    if silent.size > code.stragglers:
        raise ValueError(f"{silent.size} stragglers, but {code!r} tolerates {code.stragglers}")
    lost = np.isin(code.rings()[0], silent)
    turns = np.flatnonzero(lost)
    apart = (np.arange(code.n)[:, None] - turns) % code.n
    with np.errstate(divide="ignore"):
        exact = np.log10(2 * np.sin(math.pi / code.n * apart)).sum(axis=1)
        values = kernels.near_exact(turns, code.n, code.stragglers, unit)
        near = np.log10(code.n * np.abs(values))
    return CircleValues(lost, exact, near)
