"""Partial work of slow workers counts: Ramamoorthy, Meng, Girimaji 2024, with whole messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._base.arrays import Ints, check_flag, check_integer
from ..coding.arguments import check_sizes
from ..coding.cells import CellScheme
from ..coding.code import Code


class PartialWork(Code):
    """Every partial gradient is sent, and counts, as soon as it is computed.

    A round ends once every partition has been computed by some worker, so the work of stragglers
    counts too (UC-MMC). It takes as long as with `Uncoded` and the same load, but workers may hold
    any partitions, in an order for which few computations always suffice.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    load : int, optional
        Partitions per worker, at least k / n. Worker i begins with partition floor(i k / n) and
        goes on from there, modulo k. Required unless `assignment` is given.
    assignment : sequence of n sequences of int, optional
        The partitions of each worker, in place of a load.
    ordered : bool, default True
        Compute each worker's partitions of `assignment` in the order that `in_good_order` finds.
        False: in the order given.

    Attributes
    ----------
    threshold : int
        Number of computations, by all workers together, after which every partition must have been
        computed, however the computations are distributed. (The paper's metric of an order, Q_max,
        with ℓ = 1.)

    Raises
    ------
    ValueError, TypeError
        If the parameters do not fit; the error says which and why.

    Notes
    -----
    In the paper each partition is computed ℓ times, and messages are ℓ times shorter. Here ℓ = 1:
    messages are partial gradients, and decoding loses nothing to rounding.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.PartialWork(4, load=3)
    >>> code.partitions(1).tolist()
    [1, 2, 3]
    >>> code.threshold, code.stragglers  # computations that always suffice; silent workers
    (7, 2)
    >>> came = [0, 1, 3, 6, 7]  # two computations of workers 0 and 2, and the first of worker 1
    >>> code.decoding_vector(came).tolist()  # one of the two that are of partition 1
    [1.0, 1.0, 0.0, 1.0, 1.0]
    """

    stragglers: int
    threshold: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        ordered: bool = True,
    ) -> None:
        n, k = check_sizes(n, k)
        if (load is None) == (assignment is None):
            raise ValueError("either load or assignment must be given, which say what workers hold")
        if load is not None:
            load = check_integer("load", load)
            if not -(-k // n) <= load <= k:
                raise ValueError(f"load must be in k/n = {-(-k // n)} .. k = {k}, not {load}")
            starts = np.arange(n) * k // n
            held = ((starts[:, np.newaxis] + np.arange(load)) % k).tolist()
        else:
            assert assignment is not None
            held = _checked(assignment, n, k)
            if check_flag("ordered", ordered):
                held = in_good_order(held, k)
        sizes = np.array([len(mine) for mine in held], dtype=np.int64)
        choices = np.array([j for mine in held for j in mine], dtype=np.int64)
        s = int(np.bincount(choices, minlength=k).min()) - 1
        super().__init__(CellScheme(np.arange(k + 1), sizes, choices, stragglers=s))


def _checked(assignment: Sequence[Sequence[int]], n: int, k: int) -> list[list[int]]:
    """The partitions of each worker, as lists; raises an error if they are not valid."""
    held = [[check_integer("partition", j) for j in mine] for mine in assignment]
    if len(held) != n:
        raise ValueError(f"assignment must have a list for each of n={n} workers, not {len(held)}")
    for worker, mine in enumerate(held):
        if not mine:
            raise ValueError(f"assignment gives worker {worker} no partition")
        if len(set(mine)) < len(mine):
            raise ValueError(f"assignment names a partition twice for worker {worker}: {mine}")
        outside = [j for j in mine if not 0 <= j < k]
        if outside:
            raise ValueError(
                f"assignment gives worker {worker} partition {outside[0]}: they are numbered 0 to "
                f"{k - 1}"
            )
    missing = set(range(k)).difference(*held)
    if missing:
        raise ValueError(f"assignment gives partition {min(missing)} to no worker")
    return held


def in_good_order(held: Sequence[Sequence[int]], k: int) -> list[list[int]]:
    """Order each worker's partitions so that few computations always cover all k partitions.

    The worst that can happen to a partition is that its holders stop just before it, and all other
    workers go on to their ends. The number of computations that are then missing is the sum, over
    its holders, of their loads less its position (counted from 0). The order makes the least of
    these sums large (Ramamoorthy, Meng, Girimaji 2024, the metric Q_max). In no order is the least
    sum above the mean of the sums.

    First every partition gets different positions at its holders, by colouring the edges between
    workers and partitions (König). That is optimal if each partition is held by as many workers as
    each worker holds partitions. Otherwise workers then swap two of their partitions as long as
    that brings the sums of the two closer together.
    """
    order = _coloured(held, k)
    unseen = np.zeros(k, dtype=np.int64)
    for mine in order:
        for at, j in enumerate(mine):
            unseen[j] += len(mine) - at
    while _swap(order, unseen):
        pass
    return order


def _swap(order: list[list[int]], unseen: Ints) -> bool:
    """For each worker, swap the two partitions for which that helps most; return whether any did.

    The sum of squares falls with every swap, so this ends.
    """
    any_swapped = False
    for mine in order:
        here = unseen[mine]
        steps = np.arange(len(mine))
        # gain[a, b]: by how much the squares fall if the partitions at a < b change places.
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
    """Each worker's partitions by the colours of a proper edge colouring with the fewest colours.

    A partition that more workers hold than there are colours counts as several copies.
    """
    colours = max((len(mine) for mine in held), default=0)
    of_worker: list[dict[int, int]] = [{} for _ in held]  # each worker's copies, by colour
    of_copy: list[dict[int, int]] = []  # of each copy, by colour: its worker
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
    """Exchange two colours along the path from a copy that lacks b; it then lacks a."""
    path: list[tuple[int, int, int]] = []  # edges of the path: worker, copy, colour
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
