"""The simple randomised scheme (Li, Mousavi Kalan, Avestimehr, Soltanolkotabi 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_integer
from .cells import CellCode

__all__ = ["RandomAssignment"]

SEEDS_TRIED = 100  # to advise one that covers all partitions


class RandomAssignment(CellCode):
    """Each worker picks partitions at random, and sends each partial gradient by itself.

    No worker needs to know of another: worker i draws from a generator seeded with (seed, i). The
    master adds up the first copy of each partial gradient. It waits for about (k / r) log k workers
    and k log k messages (eqs. (5) and (6)); `CouponCollector` needs fewer of both.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, n by default.
    load : int or sequence of n ints
        Partitions that each worker picks, without repetition; a sequence for workers that differ
        (the generalised scheme of section IV).
    seed : int, default 0

    Raises
    ------
    ValueError
        If the parameters do not fit, or if with this seed some partition is picked by nobody.
    """

    def __init__(
        self, n: int, k: int | None = None, *, load: int | Sequence[int], seed: int = 0
    ) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        if n < 1 or k < 1:
            raise ValueError(f"n and k must be at least 1, not n={n}, k={k}")
        loads = check_loads(load, n, k)
        self.n, self.k, self.seed = n, k, check_seed(seed)
        self._cuts = np.arange(k + 1)
        self._choices, holders = choose(self.seed, k, loads, "partition")
        self.load = max(loads)
        self.stragglers = holders - 1


class UncoveredError(ValueError):
    """With this seed nobody picks some partition.

    Attributes
    ----------
    seed : int or None
        One with which all are picked, if one was found.
    """

    def __init__(self, seed: int | None, message: str) -> None:
        super().__init__(seed, message)  # all arguments, so that it pickles
        self.seed = seed

    def __str__(self) -> str:
        return str(self.args[1])


def check_loads(load: int | Sequence[int], n: int, k: int) -> list[int]:
    """The load of each worker, or an error."""
    loads = [load] * n if np.ndim(load) == 0 else list(load)  # type: ignore[arg-type]
    loads = [check_integer("load", r) for r in loads]
    if len(loads) != n:
        raise ValueError(f"{n} workers need {n} loads, not {len(loads)}")
    for r in loads:
        if not 1 <= r <= k:
            raise ValueError(f"load must be in 1 .. k = {k}, not {r}")
    return loads


def check_seed(seed: int) -> int:
    """A seed, or an error."""
    seed = check_integer("seed", seed)
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    return seed


def pick(seed: int, worker: int, count: int, size: int) -> NDArray[np.int64]:
    """What a worker picks by itself: `size` of `count`, in random order."""
    return np.random.default_rng([seed, worker]).choice(count, size, replace=False)


def choose(
    seed: int, count: int, sizes: Sequence[int], what: str
) -> tuple[list[NDArray[np.int64]], int]:
    """Every worker's choice, and how often the rarest cell was chosen; ValueError if never."""

    def choices(seed: int) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
        made = [pick(seed, i, count, size) for i, size in enumerate(sizes)]
        return made, np.bincount(np.concatenate(made), minlength=count)

    made, holders = choices(seed)
    if holders.all():
        return made, int(holders.min())
    others = range(seed + 1, seed + 1 + SEEDS_TRIED)
    better = next((other for other in others if choices(other)[1].all()), None)
    advice = f"seed={better} will" if better else f"none of the next {SEEDS_TRIED} seeds would"
    raise UncoveredError(
        better,
        f"with seed={seed} no worker picks {what} {np.argmin(holders)}, so that the gradient can "
        f"never be had; {advice} cover all; so may a larger load or more workers",
    )
