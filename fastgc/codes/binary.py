"""Numerically stable binary gradient coding (Charalambides, Mahdavifar, Hero 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from .. import kernels
from .._base.arrays import Floats, Ints, check_index, check_word
from ..coding.arguments import check_sizes, check_stragglers
from ..coding.clusters import apportion, check_speeds
from ..coding.code import Code
from ..coding.precision import Precision
from ..coding.rules import Tiling
from ..coding.scheme import Scheme, VectorFunction, vector_function
from ..kernels.rows import DOUBLE
from ..numerics.parity import CHECKS, Parity

BySpeed = Literal["spread", "aligned", "classes", "uniform"]
ASSIGNMENTS: tuple[BySpeed, ...] = get_args(BySpeed)


class BinaryCode(Code):
    """Coefficients 0 and 1 only, for every n, s and k; nothing is multiplied or divided.

    Worker i belongs to class i mod (s + 1). The members of each class share all k partitions in
    contiguous blocks that are as even as possible, the larger ones first. (Algorithms 1 and 2
    amount to this.) The messages of a complete class add up to the gradient, and any n - s messages
    contain a complete class.

    Often fewer messages suffice: blocks of different classes fit together where their ends meet,
    even if one must be subtracted. The code decodes whenever any linear decoder could.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, n by default; at least ceil(n / (s + 1)), so that no worker is idle.
    stragglers : int
        Stragglers to tolerate, s.
    speeds : sequence of n positive numbers, optional
        Relative speeds of the workers. Default: all are equally fast.
    assignment : {"spread", "aligned", "classes", "uniform"}, optional
        How blocks follow from `speeds`: see Notes. Default: "spread" if `speeds` are given.

    Raises
    ------
    ValueError
        If no code has these parameters, or `assignment` is unknown or lacks `speeds`; the error
        says why.

    Notes
    -----
    Any s workers may straggle, whatever the assignment. It decides how long rounds take:

    - ``"spread"``: the partitions are cut into ceil(n / (s + 1)) blocks, each held by s + 1
      workers. The fastest workers hold different blocks, and so do the next fastest; the length of
      a block is proportional to the speed of its fastest holder. If s + 1 does not divide n, the
      slowest workers hold two adjacent blocks each. (If almost all workers would hold the same two
      of three blocks, there are two blocks instead.)
    - ``"aligned"``: the same blocks, but workers of similar speed share one.
    - ``"classes"``: the paper's section VI, for any number of types of workers. The length of a
      worker's block is proportional to its speed, so that all workers of a class end at the same
      time. Classes are about equally fast.
    - ``"uniform"``: as if no speeds were given.

    With "classes", each class has its own cuts. Its blocks rarely fit those of other classes, so
    rounds wait for a whole class, and with varying delays they often take longer than without
    speeds. With "spread", any holder of a block suffices. Slow workers compute as much as fast ones
    and rarely come first, which costs nothing until fast workers fail: if s workers are dead in
    every round, "aligned" may take half the time. ``benches/assignments.py`` measures this: over 27
    clusters "spread" takes at most 3 % longer than the better of "classes" and "uniform", "classes"
    up to 1.8 times as long, "uniform" 2.4, "aligned" 1.6. If s workers are dead, "spread" takes up
    to 1.5 times as long. This is with k = 10 n. With k = n blocks are rounded to whole partitions,
    and "spread" may take 15 % longer. `fastgc.planning.plan` with ``speeds=`` simulates
    all of them.

    If s + 1 does not divide n, some workers have more than others: without speeds the only member
    of a class has all of it (`CyclicRepetition` has equal loads), and with "spread" the slowest
    workers have most. For speeds 3, 2, 1 and s = 1 loads are 2, 1, 3 with "spread", and 3, 2, 1
    with "classes". A round without delays then takes 2/3 as long with "spread", because the slowest
    worker is not waited for, and three times as long while the fastest is dead. Each worker has at
    least one partition: with k = n and s = 0 all have one, whatever the speeds.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.BinaryCode(11, stragglers=3)
    >>> code.scheme.loads.tolist()
    [4, 4, 4, 6, 4, 4, 4, 5, 3, 3, 3]
    >>> code.decoding_vector([0, 4, 7, 8, 9]).tolist()
    [1.0, 1.0, 0.0, 1.0, 0.0]
    >>> speeds = [4, 3, 2, 2, 1, 1]
    >>> fastgc.BinaryCode(6, 12, stragglers=1, speeds=speeds).scheme.loads.tolist()
    [5, 4, 3, 5, 4, 3]
    >>> code = fastgc.BinaryCode(6, 12, stragglers=1, speeds=speeds, assignment="classes")
    >>> code.scheme.loads.tolist()
    [7, 6, 4, 3, 2, 2]
    >>> fastgc.BinaryCode(5, stragglers=2).scheme.loads.tolist()
    [3, 3, 5, 2, 2]
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int,
        speeds: Sequence[float] | None = None,
        assignment: BySpeed | None = None,
    ) -> None:
        n, k = check_sizes(n, k)
        s = check_stragglers(stragglers, n)
        if k < -(-n // (s + 1)):
            raise ValueError(
                f"k must be at least ceil(n / (s + 1)) = {-(-n // (s + 1))}, not {k}: the members "
                "of a class share the partitions"
            )
        check_word("assignment", assignment, None, *ASSIGNMENTS)
        if speeds is None:
            if assignment is not None:
                raise ValueError(f"assignment={assignment!r} needs speeds=")
            blocks = _even(n, k, s)
        else:
            speed = check_speeds(speeds, n)
            assignment = assignment or "spread"
            if assignment == "uniform":
                blocks = _even(n, k, s)
            elif assignment == "classes":
                blocks = _by_classes(k, s, speed)
            else:
                blocks = _by_blocks(k, s, speed, together=assignment == "aligned")
        self.assignment = assignment
        super().__init__(BinaryScheme(k, s, *blocks))


class _Precision(Precision):
    """Every coefficient is 1."""

    scheme: BinaryScheme

    @property
    def row_sums(self) -> Floats:
        return self.scheme.loads.astype(np.float64)

    @property
    def row_norms(self) -> Floats:
        return self.row_sums / self.scheme.k


class BinaryScheme(Scheme):
    """The scheme of `BinaryCode`: contiguous blocks of partitions, start .. stop - 1."""

    precision = cached_property(_Precision)
    exact = True
    is_complex = False
    stragglers: int

    def __init__(self, k: int, stragglers: int, start: Ints, stop: Ints) -> None:
        self.n, self.k, self.stragglers = start.size, k, stragglers
        self._start, self._stop = start, stop
        self.load = int((stop - start).max())

    def row(self, worker: int) -> tuple[Ints, Floats]:
        worker = check_index("worker", worker, self.n)
        held = np.arange(self._start[worker], self._stop[worker])
        return held, np.ones(held.size)

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Floats]:
        first = np.append(0, np.cumsum(self.loads))
        held = np.arange(first[-1]) + np.repeat(self._start - first[:-1], self.loads)
        return first, held, np.ones(held.size)

    @property
    def loads(self) -> Ints:
        held: Ints = self._stop - self._start
        return held

    @cached_property
    def rule(self) -> Tiling:
        return Tiling(self._start, self._stop, self.k)

    def bind_vector(self, survivors: Ints, vector: Floats, unit: float = DOUBLE) -> VectorFunction:
        """The fewest messages that fit; if none do, some of them subtracted. O(n)."""
        run = kernels.unchecked.bind_tiling(self._tiling, survivors, vector)
        return vector_function(self, run, survivors)

    @cached_property
    def _tiling(self) -> kernels.cover.TilingPlan:
        return kernels.cover.tiling_plan(*self.rule)

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """The messages around a circle of blocks add up to zero."""
        edges = self.rule.edges(survivors)
        first, position, coefficient = self.rule.circles(edges)
        return Parity(first, position, coefficient, np.zeros(first.size), edges)


# Where the block of each worker begins and ends.
Blocks = tuple[Ints, Ints]


def _even(n: int, k: int, s: int) -> Blocks:
    """Worker i in class i mod (s + 1); each class cuts the partitions evenly."""
    place, mine = np.divmod(np.arange(n), s + 1)
    least, more = np.divmod(k, np.bincount(mine)[mine])
    start = place * least + np.minimum(place, more)
    return start, start + least + (place < more)


def classes_by_speed(stragglers: int, speed: Floats) -> Ints:
    """The class of each worker, such that classes are about equally fast.

    In each turn the next s + 1 workers are dealt, the faster ones to the classes that are slower so
    far. If s + 1 divides n, the sums of two classes then differ by at most the speeds of two
    workers that were dealt in one turn.
    """
    each = stragglers + 1
    by_speed = np.argsort(-speed, kind="stable")
    mine = np.empty(speed.size, dtype=np.int64)
    total = np.zeros(each)
    with np.errstate(under="ignore"):
        share = speed / speed.max()
    for at in range(0, speed.size, each):
        dealt = by_speed[at : at + each]
        slowest = np.argsort(total, kind="stable")[: dealt.size]
        mine[dealt] = slowest
        total[slowest] += share[dealt]
    return mine


def _by_classes(k: int, s: int, speed: Floats) -> Blocks:
    """Each class cuts in proportion to its workers' speeds, the fastest worker first."""
    mine = classes_by_speed(s, speed)
    start, stop = np.empty((2, speed.size), dtype=np.int64)
    for c in range(s + 1):
        members = np.flatnonzero(mine == c)
        members = members[np.argsort(-speed[members], kind="stable")]
        ends = np.cumsum(apportion(k, speed[members]))
        start[members] = np.append(0, ends[:-1])
        stop[members] = ends
    return start, stop


def _by_blocks(k: int, s: int, speed: Floats, together: bool) -> Blocks:
    """Blocks common to all workers, each as long as its fastest holder is fast.

    Any s workers may straggle: there are s + 1 disjoint sets of workers, each of which adds up to
    the gradient. For a pair of blocks that some workers hold together, a set takes one of these
    workers, or one holder of each block; there are s + 1 such choices.
    """
    n = speed.size
    blocks = -(-n // (s + 1))
    if blocks == 3 and 6 * (n - 2 * (s + 1)) < s + 1:  # most workers would hold the same two
        blocks = 2
    pairs = blocks // 2
    # The `double` slowest workers hold a pair of adjacent blocks each, all others one block.
    double = max(blocks * (s + 1) - n, 0)
    pair = np.arange(double) % (1 if together else max(pairs, 1))
    holders = np.full(blocks, s + 1)
    holders[: 2 * pairs] -= np.repeat(np.bincount(pair, minlength=pairs), 2)
    holders += np.bincount(np.arange(n - double - holders.sum()) % blocks, minlength=blocks)

    block = np.repeat(np.arange(blocks), holders)
    nth = np.arange(block.size) - np.repeat(np.cumsum(holders) - holders, holders)
    block = block[np.lexsort((nth, -block) if together else (-block, nth))]
    fast, slow = np.split(np.argsort(-speed, kind="stable"), [n - double])
    fastest = np.zeros(blocks)
    np.maximum.at(fastest, block, speed[fast])
    ends = np.append(0, np.cumsum(apportion(k, fastest)))
    start, stop = np.empty((2, n), dtype=np.int64)
    start[fast], stop[fast] = ends[block], ends[block + 1]
    start[slow], stop[slow] = ends[2 * pair], ends[2 * pair + 2]
    return start, stop
