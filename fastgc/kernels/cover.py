"""Plans for decoding vectors of plain sums: over cells, over intervals, or of two blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._base.arrays import Complexes, Floats, Ints


class CellsPlan(NamedTuple):
    """Messages that are each the sum over one cell of the partitions.

    Attributes
    ----------
    cell : (M,) int64 array
        The cell of each message.
    weight : (cells,) int64 array
    need : int
        The weight that distinct cells must have together.
    whole : float
        The sum of the cells that came is multiplied by `whole` over their weight; 0: it is not.
    inverse : (M,) complex128 array, optional
        Each message is the sum over its cell divided by this. Default: it is the sum.
    """

    cell: Ints
    weight: Ints
    need: int
    whole: float
    inverse: Complexes | None = None


class TilingPlan(NamedTuple):
    """Messages that are each the sum over an interval: edges between the intervals' ends.

    Points are the ends of intervals in
    ascending order, from 0 to k. Each edge is listed twice, once at either of its ends.

    Attributes
    ----------
    messages : int
    first : (points + 1,) int64 array
        Point p has edges ``first[p] .. first[p+1] - 1``, in order of their messages.
    point, other, message : (2 M,) int64 array
        Of each edge: the point that lists it, its other end, and its message.
    """

    messages: int
    first: Ints
    point: Ints
    other: Ints
    message: Ints


def tiling_plan(start: Ints, stop: Ints, k: int) -> TilingPlan:
    """Plan for messages i that are the sums over ``start[i]:stop[i]``; the whole is [0, k)."""
    messages = np.arange(start.size)
    ends, place = np.unique(np.concatenate([start, stop, [0, k]]), return_inverse=True)
    at, other = place[: 2 * start.size], np.roll(place[: 2 * start.size], start.size)
    message = np.tile(messages, 2)
    order = np.lexsort((message, at))
    first = np.searchsorted(at[order], np.arange(ends.size + 1))
    return TilingPlan(start.size, first, at[order], other[order], message[order])


class EdgesPlan(NamedTuple):
    """Messages that are each the sum of two blocks: edges of a graph whose vertices are the blocks.

    Attributes
    ----------
    ends : (M, 2) int64 array
        The two vertices of each edge, which differ. C-contiguous.
    weight : (vertices,) float64 array
        The partitions of each block, positive.
    need : int
        So many messages are combined in any case, as well as possible.
    """

    ends: Ints
    weight: Floats
    need: int
