"""Simulated rounds: random delays of workers, and when their messages suffice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._base.arrays import Floats, Ints

# Rules by which messages suffice. The numbers are those of fgc_rule in csrc/fastgc.h.
BLOCKS = 0  # any `need` messages of each block
CELLS = 1  # messages of cells that weigh `total` together
TILING = 2  # intervals that, as edges between their ends, connect 0 and k
EDGES = 3  # edges of a graph whose components each have an odd cycle, or two sides of one size
SPAN = 4  # rows that span a target


class CompletionPlan(NamedTuple):
    """The messages of a round: n workers send M messages.

    Attributes
    ----------
    kind : int
        The rule by which messages suffice: ``BLOCKS``, ``CELLS``, ``TILING``, ``EDGES`` or
        ``SPAN``.
    first : (n + 1,) int64 array
        Worker i sends messages ``first[i] .. first[i+1] - 1``, in this order.
    share : (M,) float64 array
        Share of its worker's work after which a message is sent, in (0, 1]; ascending for each
        worker.
    loads : (n,) int64 array
        Computations of each worker.
    group : (M,) int64 array
        The block or cell of each message, or the start of its interval or edge.
    other : (M,) or (0,) int64 array
        ``TILING`` and ``EDGES``: the end of the interval or edge.
    need : (groups,) int64 array
        ``BLOCKS``: messages needed of each block; ``CELLS``: weight of each cell.
    total : int
        ``CELLS``: weight needed, each cell counted once; ``TILING``: k; ``EDGES``: vertices.
    wait : int
        All messages of so many workers suffice in any case; 0: no such limit.
    spare : (M rows, q + 1) or (0, 0) float64 array
        ``SPAN``: each message has as many rows. Messages can be spared if, in their rows, the first
        column is a combination of the others. Over all rows the others are orthonormal, and the
        largest number of the first column is 1. C-contiguous.
    forwards : bool
        Instead, messages suffice if the first column is none. Rows have norm 1.
    """

    kind: int
    first: Ints
    share: Floats
    loads: Ints
    group: Ints
    other: Ints
    need: Ints
    total: int
    wait: int = 0
    spare: Floats = np.empty((0, 0))
    forwards: bool = False


class Completion(NamedTuple):
    """How rounds went; arrays of shape (rounds,).

    Attributes
    ----------
    time : float64 array
        Seconds until the gradient is known; Inf if all messages together do not suffice.
    messages, workers, computations : int64 array
        At the time when messages suffice: the messages that have come, the workers that have sent
        any, and the computations that all workers have finished.
    """

    time: Floats
    messages: Ints
    workers: Ints
    computations: Ints

    @classmethod
    def empty(cls, rounds: int) -> Completion:
        """Return arrays with room for `rounds` rounds."""
        counts = np.empty((3, rounds), dtype=np.int64)
        return cls(np.empty(rounds), *counts)

    def part(self, lo: int, hi: int) -> Completion:
        """Return a view of rounds lo .. hi-1."""
        return Completion._make(each[lo:hi] for each in self)


_TOGETHER = 512  # delays that compiled loops draw at a time


class DelayPlan(NamedTuple):
    """Delays and works of n workers in any round: each random number can be drawn by itself.

    With h exponential of mean 1, worker i is late by ``shift[i] + scale[i] h``, or if
    ``power[i] > 0`` by ``shift[i] + scale[i] exp(power[i] h)``, or by its given delay. It begins
    after ``onset`` times this delay, and works for ``load[i]`` times the delay plus ``work[i]``
    seconds. Both times are multiplied by the same random number between 1 and 1 + 2^-40, so that
    simultaneous messages come in random order. One random number gives h and this factor.

    Attributes
    ----------
    key : uint64
        The random numbers are SplitMix64's, ``round n + worker`` steps after this counter.
    onset : float
    shift, scale, power, load, work : (repeats n,) float64 array
        The numbers of all workers, `repeats` times over, for loops over several rounds.
    repeats : int
    given : (rounds, n) float64 array
        The given delays of some rounds; without rounds if delays are random.
    start : int
        The number of the first of these rounds.
    whole : (rounds, n) float64 array
        If it has rounds: `given` says exactly when workers begin, and this how long they work.
    """

    key: np.uint64
    onset: float
    shift: Floats
    scale: Floats
    power: Floats
    load: Floats
    work: Floats
    repeats: int
    given: Floats
    start: int = 0
    whole: Floats = np.empty((0, 0))

    @classmethod
    def of(
        cls,
        key: np.uint64,
        onset: float,
        shift: Floats,
        scale: Floats,
        power: Floats,
        load: Floats,
        work: Floats,
    ) -> DelayPlan:
        """Return the plan of n workers with random delays; each array has shape (n,)."""
        n = shift.size
        repeats = max(1, _TOGETHER // n)
        numbers = np.tile([shift, scale, power, load, work], repeats)
        shift, scale, power, load, work = numbers
        return cls(key, onset, shift, scale, power, load, work, repeats, np.empty((0, n)))
