"""Messages that are plain sums, as the kernels that choose among them read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CellsPlan", "TilingPlan", "tiling_plan"]


class CellsPlan(NamedTuple):
    """Messages that are each the sum over one cell of the partitions.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    cell : (M,) int64 array
        Of each message.
    weight : (cells,) int64 array
    need : int
        What distinct cells must weigh.
    whole : float
        What came is multiplied by this over its weight; 0: it is not.
    """

    cell: NDArray[np.int64]
    weight: NDArray[np.int64]
    need: int
    whole: float


class TilingPlan(NamedTuple):
    """Messages that are each the sum over an interval, as edges of a graph of their ends.

    A named tuple, so that Numba takes it as an argument. Points are the ends of intervals in
    ascending order, from 0 to k; each edge is there twice, once at either of its ends.

    Attributes
    ----------
    messages : int
    first : (points + 1,) int64 array
        Edges of point p are ``first[p] .. first[p+1] - 1``, in the order of their messages.
    point, other, message : (2 M,) int64 array
        Of each edge: the point that it is at, its other end, and its message.
    """

    messages: int
    first: NDArray[np.int64]
    point: NDArray[np.int64]
    other: NDArray[np.int64]
    message: NDArray[np.int64]


def tiling_plan(start: NDArray[np.int64], stop: NDArray[np.int64], k: int) -> TilingPlan:
    """Of messages that are sums over ``start[i]:stop[i]`` and are to give [0, k)."""
    messages = np.arange(start.size)
    ends, place = np.unique(np.concatenate([start, stop, [0, k]]), return_inverse=True)
    at, other = place[: 2 * start.size], np.roll(place[: 2 * start.size], start.size)
    message = np.tile(messages, 2)
    order = np.lexsort((message, at))
    first = np.searchsorted(at[order], np.arange(ends.size + 1))
    return TilingPlan(start.size, first, at[order], other[order], message[order])
