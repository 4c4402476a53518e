"""What workers send in a round and which messages suffice, as the completion kernels read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "CELLS", "EDGES", "SPAN", "TILING", "Completion", "CompletionPlan"]

# The numbers are csrc/fastgc.h's fgc_rule.
BLOCKS = 0  # of every block so many messages, whichever they are
CELLS = 1  # of cells so many that they weigh enough
TILING = 2  # intervals, as edges between their ends, that connect 0 and k
EDGES = 3  # edges of a graph whose components have an odd cycle, or sides of as many vertices
SPAN = 4  # rows that span: those can be spared that did not come

# What columns of `spare` count as zero, where they are orthonormal, and where 1 is the largest. (As
# in csrc/completion.c.)
ZERO = 1e-9
SOLVED = 1e-6


class CompletionPlan(NamedTuple):
    """A round of n workers and M messages.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    kind : int
        ``BLOCKS``, ``CELLS``, ``TILING``, ``EDGES`` or ``SPAN``: when messages suffice.
    first : (n + 1,) int64 array
        Messages of worker i are ``first[i] .. first[i+1] - 1``, sent in this order.
    share : (M,) float64 array
        Part of its worker's work after which a message is sent, in (0, 1], ascending.
    loads : (n,) int64 array
        Computations of each worker.
    group : (M,) int64 array
        Of each message its block, or cell, or the start of its interval or edge.
    other : (M,) or (0,) int64 array
        ``TILING`` and ``EDGES``: the end of it.
    need : (groups,) int64 array
        ``BLOCKS``: messages needed of each block; ``CELLS``: weight of each cell.
    total : int
        ``CELLS``: weight needed, each cell counted once; ``TILING``: k; ``EDGES``: vertices.
    wait : int
        All messages of so many workers suffice in any case; 0: they do not.
    spare : (M, q + 1) or (0, 0) float64 array
        ``SPAN``: messages can be spared if, in their rows, the first column is a combination of the
        others. These are orthonormal; of the first, 1 is the largest. C-contiguous.
    """

    kind: int
    first: NDArray[np.int64]
    share: NDArray[np.float64]
    loads: NDArray[np.int64]
    group: NDArray[np.int64]
    other: NDArray[np.int64]
    need: NDArray[np.int64]
    total: int
    wait: int = 0
    spare: NDArray[np.float64] = np.empty((0, 0))


class Completion(NamedTuple):
    """How rounds went; arrays of shape (rounds,).

    Attributes
    ----------
    time : float64 array
        Seconds until the gradient is known; Inf where all messages do not suffice.
    messages, workers, computations : int64 array
        Messages that had come when they sufficed, workers that had sent any, and computations
        that all workers had finished then.
    """

    time: NDArray[np.float64]
    messages: NDArray[np.int64]
    workers: NDArray[np.int64]
    computations: NDArray[np.int64]

    @classmethod
    def empty(cls, rounds: int) -> Completion:
        """Room for so many rounds."""
        counts = np.empty((3, rounds), dtype=np.int64)
        return cls(np.empty(rounds), *counts)

    def part(self, lo: int, hi: int) -> Completion:
        """Rounds lo .. hi-1; a view."""
        piece = slice(lo, hi)
        return Completion(
            self.time[piece], self.messages[piece], self.workers[piece], self.computations[piece]
        )
