"""In which order workers compute their partitions, where what stragglers have done counts, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_good_order"]


def in_good_order(held: Sequence[Sequence[int]], k: int) -> list[list[int]]:
    """The same partitions of each worker, ordered so that few computations always cover all k.

    The worst that can happen to a partition is that its holders stop just before it, and all other
    workers go on to their ends. What then is not computed is the sum, over its holders, of their
    loads less its position (counted from 0). The order is to make the least of these sums large
    (Ramamoorthy, Meng, Girimaji 2024, the metric Q_max). No order has a least sum above their mean.

    First every partition gets different positions, by colouring the edges between workers and
    partitions (König). That is the best there is where each is held by as many workers as each
    worker holds partitions. Otherwise a worker then swaps two of its partitions as long as that
    brings their sums closer together.

    Parameters
    ----------
    held : sequence of n sequences of int
        Distinct partitions of each worker.
    k : int

    Returns
    -------
    list of n lists of int
    """
    order = _coloured(held, k)
    unseen = np.zeros(k, dtype=np.int64)
    for mine in order:
        for at, j in enumerate(mine):
            unseen[j] += len(mine) - at
    while _swap(order, unseen):
        pass
    return order


def _swap(order: list[list[int]], unseen: NDArray[np.int64]) -> bool:
    """Swap two partitions of each worker for which that helps most; whether any did.

    Sums of squares fall with every swap, so that there is an end.
    """
    any_swapped = False
    for mine in order:
        here = unseen[mine]
        steps = np.arange(len(mine))
        # gain[a, b]: by how much the squares fall if the partitions at a < b change places
        ahead = steps[None, :] - steps[:, None]
        gain = ahead * (here[:, None] - here[None, :] - ahead)
        gain[ahead <= 0] = 0
        a, b = divmod(int(gain.argmax()), len(mine)) if mine else (0, 0)
        if mine and gain[a, b] > 0:
            unseen[mine[a]] -= b - a
            unseen[mine[b]] += b - a
            mine[a], mine[b] = mine[b], mine[a]
            any_swapped = True
    return any_swapped


def _coloured(held: Sequence[Sequence[int]], k: int) -> list[list[int]]:
    """Each worker's partitions by the colours of a proper colouring, with as few as can be.

    A partition that more workers hold than there are colours counts as several of them.
    """
    colours = max((len(mine) for mine in held), default=0)
    of_worker: list[dict[int, int]] = [{} for _ in held]  # by colour: the copy of a partition
    of_copy: list[dict[int, int]] = []  # by colour: the worker
    partition_of: list[int] = []
    newest = [-1] * k
    degree: list[int] = []
    for worker, mine in enumerate(held):
        for j in mine:
            if newest[j] < 0 or degree[newest[j]] == colours:
                newest[j] = len(of_copy)
                of_copy.append({})
                degree.append(0)
                partition_of.append(j)
            copy = newest[j]
            degree[copy] += 1
            free = next(c for c in range(colours) if c not in of_worker[worker])
            other = next(c for c in range(colours) if c not in of_copy[copy])
            if free in of_copy[copy]:
                _exchange(of_worker, of_copy, copy, free, other)
            of_worker[worker][free] = copy
            of_copy[copy][free] = worker
    return [[partition_of[mine[c]] for c in sorted(mine)] for mine in of_worker]


def _exchange(
    of_worker: list[dict[int, int]], of_copy: list[dict[int, int]], copy: int, a: int, b: int
) -> None:
    """Exchange two colours along the path of them from a copy that lacks b, so that it lacks a."""
    path: list[tuple[int, int, int]] = []  # worker, copy, colour of an edge
    colour, other = a, b
    while (worker := of_copy[copy].get(colour)) is not None:
        path.append((worker, copy, colour))
        following = of_worker[worker].get(other)
        if following is None:
            break
        path.append((worker, following, other))
        copy = following
    for worker, end, colour in path:
        del of_worker[worker][colour], of_copy[end][colour]
    for worker, end, colour in path:
        new = b if colour == a else a
        of_worker[worker][new], of_copy[end][new] = end, worker
