"""The simple randomised scheme (Li, Mousavi Kalan, Avestimehr, Soltanolkotabi 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Ints, at_least, check_integer, check_word
from ..coding.arguments import check_sizes
from ..coding.cells import CellScheme
from ..coding.code import Code

# To suggest a seed that covers all partitions: the most seeds tried, and numbers drawn.
SEEDS_TRIED, DRAWS_TRIED = 100, 1 << 25


class RandomAssignment(Code):
    """Each worker picks partitions at random, and sends each partial gradient by itself.

    Workers need not know of each other: what worker i picks is a function of (seed, i). The master
    adds up the first copy of each partial gradient. By default a worker sends each partial gradient
    as soon as it is computed. In the paper it sends all of them when it has computed all,
    ``send="together"``: the master then waits for about (k / r) log k workers and receives k log k
    messages (eqs. (5) and (6)), and rounds take longer but involve fewer workers. `CouponCollector`
    needs fewer workers and fewer messages.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    load : int or sequence of n ints
        Partitions that each worker picks, without repetition, r. Give a sequence if workers differ
        (the generalised scheme of section IV).
    send : {"each", "together"}
        A worker sends each message as soon as it is computed, or all together when it has computed
        all.
    seed : int, default 0

    Raises
    ------
    ValueError
        If the parameters do not fit, or if no worker picks some partition with this seed.
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int | Sequence[int],
        send: Literal["each", "together"] = "each",
        seed: int = 0,
    ) -> None:
        n, k = check_sizes(n, k)
        sizes = check_loads(load, n, k)
        super().__init__(picked(np.arange(k + 1), sizes, send, seed, "partition"))


class UncoveredError(ValueError):
    """With this seed some partition is picked by no worker; with `seed`, if found, all are."""

    def __init__(self, seed: int | None, message: str) -> None:
        super().__init__(seed, message)  # all arguments, so that it pickles
        self.seed = seed

    def __str__(self) -> str:
        return str(self.args[1])


def check_loads(load: int | Sequence[int], n: int, k: int) -> Ints:
    """Check and return the load of each worker."""
    if np.ndim(load) == 0:
        loads = np.full(n, check_integer("load", load))
    else:
        loads = np.array([check_integer("load", r) for r in load], dtype=object)  # type: ignore[union-attr]
    if loads.size != n:
        raise ValueError(f"{n} workers need {n} loads, not {loads.size}")
    outside = np.flatnonzero((loads < 1) | (loads > k))
    if outside.size:
        raise ValueError(f"load must be in 1 .. k = {k}, not {loads[outside[0]]}")
    return loads.astype(np.int64)


def picked(cuts: Ints, sizes: Ints, send: str, seed: int, what: str) -> CellScheme:
    """The scheme of workers that pick so many cells each; UncoveredError if none picks some cell.

    Errors call a cell `what`.
    """
    check_word("send", send, "each", "together")
    seed, count = at_least("seed", seed, 0), cuts.size - 1

    def choices(seed: int) -> tuple[Ints, Ints]:
        made = np.empty(sizes.sum(), dtype=np.int64)
        first = np.cumsum(sizes) - sizes
        for size in np.unique(sizes).tolist():
            alike = np.flatnonzero(sizes == size)
            at = first[alike, np.newaxis] + np.arange(size)
            made[at] = distinct_draws(seed, alike, count, size)
        return made, np.bincount(made, minlength=count)

    made, holders = choices(seed)
    if holders.all():
        s, together = int(holders.min()) - 1, send == "together"
        return CellScheme(cuts, sizes, made, stragglers=s, together=together)
    others = range(seed + 1, seed + 1 + max(1, min(SEEDS_TRIED, DRAWS_TRIED // made.size)))
    better = next((other for other in others if choices(other)[1].all()), None)
    advice = (
        f"take seed={better}, a larger load or more workers"
        if better
        else f"none of the next {len(others)} seeds covers all: take a larger load or more workers"
    )
    raise UncoveredError(
        better,
        f"with seed={seed} no worker picks {what} {np.argmin(holders)}, so that the gradient can "
        f"never be had; {advice}",
    )


Bits = NDArray[np.uint64]

_BLOCK = 1 << 18  # numbers drawn at a time: they stay in the cache


def distinct_draws(seed: int, workers: Ints, count: int, size: int) -> Ints:
    """The picks of these workers: `size` of `count`, in random order, without repetition.

    Every worker has an endless sequence of random numbers, a function of (seed, worker) alone, and
    takes the first `size` distinct ones. If it takes more than half of all, it takes those with the
    smallest numbers instead. All choices and orders are equally likely. The result has shape
    (workers, size), and 1 <= size <= count.
    """
    # Mean length of a sequence with `size` distinct numbers, plus four standard deviations.
    taken = np.arange(min(size, count // 2 + 1)) / count
    width = size + int((taken / (1 - taken)).sum() + 4 * np.sqrt((taken / (1 - taken) ** 2).sum()))
    dense = 2 * size > count
    picked = np.empty((workers.size, size), dtype=np.int64)
    rows = max(1, _BLOCK // (count if dense else width))
    starts = _starts(seed, workers)
    for at in range(0, workers.size, rows):
        block, out = starts[at : at + rows], picked[at : at + rows]
        if dense:
            out[:] = np.argsort(_numbers(block, count), axis=1)[:, :size]
        else:
            _first_distinct(block, count, width, out)
    return picked


def _first_distinct(starts: Bits, count: int, width: int, out: Ints) -> None:
    """Write to `out` the first distinct numbers below `count` of each sequence, as many as fit."""
    size = out.shape[1]
    lacking = np.arange(starts.size)
    while lacking.size:
        # 2^64 is not a multiple of `count`: probabilities differ by the fraction count / 2^64 at
        # most, 6e-14 for a million.
        drawn = (_numbers(starts[lacking], width) % np.uint64(count)).view(np.int64)
        if size == 1:
            out[lacking] = drawn[:, :1]
            return
        order = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, order, axis=1)
        new = np.ones(drawn.shape, dtype=bool)  # whether a number was not drawn before
        np.put_along_axis(new, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)
        rank = np.cumsum(new, axis=1)
        enough = rank[:, -1] >= size
        new &= (rank <= size) & enough[:, np.newaxis]
        out[lacking[enough]] = drawn[new].reshape(-1, size)
        lacking, width = lacking[~enough], 2 * width


def _starts(seed: int, workers: Ints) -> Bits:
    """Where the sequence of each worker begins.

    Starts have 64 bits. The sequences of two of n workers share one of w numbers with a probability
    of at most n^2 w / 2^64: 1e-6 for a million workers and w = 20.
    """
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    return _mixed(key + (workers.astype(np.uint64) + np.uint64(1)) * _STEP)


def _numbers(starts: Bits, width: int) -> Bits:
    """The first numbers of each sequence, (rows, width), by SplitMix64."""
    return _mixed(starts[:, np.newaxis] + np.arange(1, width + 1, dtype=np.uint64) * _STEP)


# SplitMix64 (Steele, Lea, Flood 2014), with its constants.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


def _mixed(bits: Bits) -> Bits:
    for shift, factor in _ROUNDS:
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    return bits
