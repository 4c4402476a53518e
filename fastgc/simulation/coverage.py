"""Without sampling: when workers that compute in circular-shift order have covered the partitions.

These are UC-MMC and UC-MMC-PG of Ozfatura et al. (`fastgc.Uncoded` with ``load=``). The partitions
lie on a circle, in n blocks of k / n. Worker i begins with block i, goes round the circle, and
sends a message after every `batch` partitions. A worker's reach at time t is the number of
partitions that it has sent. Reaches of different workers are independent.

Cut the circle after every block with a missing partition. A worker that begins in an arc between
two cuts never reaches beyond the arc's end, because it would have sent the missing partition. So
arcs are independent of each other. Let k = n, U(z) be the generating function of the arcs' lengths,
and W(z) = 1 / (1 - U(z)). The probability that g or more partitions are missing is the coefficient
of z^n in z U'(z) U(z)^(g-1) W(z): the arc across block 0 in all its positions, g - 1 further arcs,
and any number of others. All terms are positive, so no digits cancel.

`late_after` conditions on the reach of one worker: it sums over that worker's places in its arc,
and multiplies the probabilities of what lies before it and behind it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least, check_integer
from ..delays import Delays, Heterogeneous
from .closed_forms import CompletionTime, check_batch, messages_pmf, works_of

__all__ = ["covered_cdf", "covered_mean", "covered_messages"]

Array = NDArray[np.float64]

_AT_A_TIME = 1 << 16  # numbers in an array; more would not fit the nearest caches
_KEPT = 1 << 20  # numbers in the array that `_late_after` keeps for all blocks

_TOLERANCE = 1e-11  # error of the messages counted in a panel, in messages per worker
_HALVINGS = 40
_TOGETHER = 1e-6  # a moment with more probability than this may have two messages
_GROWTH = 8  # ratio of the lengths of successive intervals without a kink
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_APART = _NODES[:, np.newaxis] - _NODES + np.eye(16)
# l_j'(x_i): derivatives at the nodes of the polynomials of Lagrange through the nodes.
_SLOPES = _APART.prod(axis=1)[:, np.newaxis] / (_APART * _APART.prod(axis=1))
np.fill_diagonal(_SLOPES, (1 / _APART).sum(axis=1) - 1)


def covered_cdf(
    t: ArrayLike,
    n: int,
    load: int,
    delays: Delays,
    *,
    k: int | None = None,
    needed: int | None = None,
    batch: int = 1,
    cost: float = 0.0,
) -> Array:
    """Probability that n workers together have sent `needed` different partitions by time t.

    Pr(T <= t) of UC-MMC and UC-MMC-PG of Ozfatura et al. (section III and eq. (11)), for any model
    with equal workers; the paper only simulates it. Worker i computes partitions i k / n, i k / n +
    1, ..., modulo k, in this order. Raises as `threshold_cdf`, and ValueError if workers differ.

    Parameters
    ----------
    t, n, delays, cost
        As in `threshold_cdf`.
    load : int
        Computations of each worker, r; k / n .. k.
    k : int, optional
        Partitions, a multiple of n; n by default.
    needed : int, optional
        Number of different partitions that end a round, as ``tolerance=1 - needed / k`` of
        `Uncoded` does. Default: all partitions that are sent.
    batch : int
        Computations between messages, as in `total_cdf`; 1 for `Uncoded`.

    Returns
    -------
    float64 array of the shape of t
        The absolute error is of the order of n roundings.

    Notes
    -----
    For k = n, the cost is O(n r + g n^2) for each t, with g = k - needed + 1.

    Examples
    --------
    >>> from fastgc.delays import ShiftedExponential
    >>> delays = ShiftedExponential(shift=0.01, rate=10)  # of each computation, in seconds
    >>> covered_cdf([0.1, 0.3, 0.6], 40, 4, delays).round(4)
    array([0.0036, 0.8974, 0.9998])
    """
    return _Circle(n, load, delays, k, needed, batch, cost).time().cdf(t)


def covered_mean(
    n: int,
    load: int,
    delays: Delays,
    *,
    k: int | None = None,
    needed: int | None = None,
    batch: int = 1,
    cost: float = 0.0,
) -> float:
    """Mean seconds until n workers together have sent `needed` different partitions.

    E[T] of UC-MMC and UC-MMC-PG of Ozfatura et al., by adaptive quadrature; exact for `Empirical`
    delays. Parameters and errors as in `covered_cdf`, and ValueError if the mean does not exist.
    """
    return _Circle(n, load, delays, k, needed, batch, cost).time().mean()


def covered_messages(
    n: int,
    load: int,
    delays: Delays,
    *,
    k: int | None = None,
    needed: int | None = None,
    batch: int = 1,
    cost: float = 0.0,
) -> float:
    """Mean number of messages until n workers have sent `needed` different partitions.

    The communication load of UC-MMC and UC-MMC-PG of Ozfatura et al. (figure 2(b)), by adaptive
    quadrature. A message counts if the round has not ended before it comes. Parameters and errors
    as in `covered_cdf`, and ValueError if messages may come at the same moment, as with `Empirical`
    delays; use a simulation for these.

    Returns
    -------
    float
        The mean, including the message that ends the round. It has 9 digits or more, unless delays
        vary by less than a millionth of themselves.
    """
    circle = _Circle(n, load, delays, k, needed, batch, cost)
    knots = circle.work.delays.knots()
    before = circle.work.delays.cdf(np.nextafter(knots, -np.inf))
    jump = float((circle.work.delays.cdf(knots) - before).max())
    if jump > _TOGETHER:
        raise ValueError(
            f"under {delays!r} messages come at the same moment, so that their number depends on "
            "which of them come first: simulate"
        )
    return circle.messages(max(_TOLERANCE, 1000 * jump))


class _Circle:
    """Blocks of partitions, and workers that begin with one each.

    The reach at a block is the largest number of partitions, counted from the block's beginning,
    that any worker has sent.
    """

    def __init__(
        self,
        n: int,
        load: int,
        delays: Delays,
        k: int | None,
        needed: int | None,
        batch: int,
        cost: float,
    ) -> None:
        self.n = n = at_least("n", n, 1)
        k = n if k is None else at_least("k", k, 1)
        if k % n:
            raise ValueError(f"k must be a multiple of n = {n}, not {k}")
        load, self.batch = check_batch(load, batch)
        self.block = k // n
        if not self.block <= load <= k:
            raise ValueError(f"load must be in k / n = {self.block} .. k = {k}, not {load}")
        self.farthest = load // batch * batch
        most = k if self.farthest >= self.block else n * self.farthest
        needed = most if needed is None else check_integer("needed", needed)
        if not 1 <= needed <= most:
            raise ValueError(
                f"needed must be in 1 .. {most}, the partitions that are sent at all, not {needed}"
            )
        self.lost = k - needed + 1  # a round goes on while this many partitions are missing
        if isinstance(delays, Heterogeneous):
            raise ValueError("workers must be alike, not Heterogeneous: simulate")
        [self.work] = works_of(delays, [load], cost)
        self.done = np.arange(batch, load + 1, batch)  # computations before each message

    def time(self) -> CompletionTime:
        """Return the time until fewer than `lost` partitions are missing."""
        # The smallest set of workers without which `lost` partitions are missing: neighbours.
        silent = min(self.n, (self.lost + self.farthest - 1) // self.block)
        sent, each, needed = self.done / self.work.load, [1] * self.n, self.n + 1 - silent
        return CompletionTime(self.late, [self.work], sent, self.work.delays, each, needed)

    def late(self, t: Array) -> Array:
        """Probability that `lost` or more partitions are missing at each of the times."""
        step = max(1, _AT_A_TIME // max(self.farthest + 1, self.n + 1, self.block))
        parts = [self._late(t[at : at + step]) for at in range(0, t.size, step)]
        return np.concatenate([np.zeros(0), *parts])

    def _late(self, t: Array) -> Array:
        reach = self._reach(t)
        arcs = self._arcs(reach)
        rest = self._rest(reach, arcs)
        size = np.arange(self.n + 1)  # an arc of this length covers block 0 in as many positions
        some: Array = (size * arcs[1:] * rest[1:, :, ::-1]).sum(axis=(0, 2))
        return np.minimum(some, 1.0)

    def _reach(self, t: Array) -> Array:
        """Probability of each reach of a worker, padded with zeros to a block at least."""
        reach = np.zeros((t.size, max(self.farthest + 1, self.block)))
        reach[:, : self.farthest + 1 : self.batch] = messages_pmf(t, self.work, self.batch)
        return reach

    def _rest(self, reach: Array, arcs: Array) -> Array:
        """Probability that the arcs after the first one fill the circle and keep the round going.

        Entry [m, :, b] is for a first arc that misses m partitions and leaves b blocks: the other
        arcs then miss ``lost - m`` or more. An array (block + 1, times, n + 1); row 0 is not used.
        """
        more = np.cumsum(arcs[::-1], axis=0)[::-1]  # arcs that miss so many partitions or more
        # lose[m]: probability, by length, of a chain of arcs that misses m partitions or more
        lose = [self._any_arcs(reach)]
        for lost in range(1, self.lost):
            some = _one_after_another(more[lost], lose[0]) if lost <= self.block else 0 * lose[0]
            for first in range(1, min(self.block + 1, lost)):
                some += _one_after_another(arcs[first], lose[lost - first])
            lose.append(some)
        firsts = range(1, self.block + 1)
        return np.stack([lose[0], *(lose[max(self.lost - first, 0)] for first in firsts)])

    def _arcs(self, reach: Array) -> Array:
        """Probability of an arc, by the partitions missing in its last block, and by its length.

        An array (block + 1, times, n + 1), with zeros for no missing partition and for length 0.
        """
        block = self.block
        arcs = np.zeros((block + 1, len(reach), self.n + 1))
        less = np.zeros_like(reach)  # probability that a worker's reach is shorter
        np.cumsum(reach[:, :-1], axis=1, out=less[:, 1:])
        arcs[1:, :, 1] = reach[:, block - 1 :: -1].T
        here = reach
        for length in range(2, self.n + 1):
            before = _beyond(here, block)
            here = reach * np.cumsum(before, axis=1) + before * less
            arcs[1:, :, length] = here[:, block - 1 :: -1].T
        return arcs

    def _any_arcs(self, reach: Array) -> Array:
        """Probability of a cut so many blocks after a cut, whatever lies between: (times, n + 1).

        This is the probability that no worker between the cuts reaches the end of the last block.
        """
        within = np.cumsum(reach, axis=1)
        ends = np.arange(1, self.n + 1) * self.block - 1
        some = np.ones((len(reach), self.n + 1))
        np.cumprod(within[:, np.minimum(ends, within.shape[1] - 1)], axis=1, out=some[:, 1:])
        return some

    def messages(self, tolerance: float) -> float:
        """Return the mean number of messages that come before a round is over.

        The error is about `tolerance` times the number of workers. Panels are halved until the two
        halves agree with the whole.
        """
        edges = self._edges()
        left, right = edges[:-1], edges[1:]
        whole, total = self._messages(left, right), 0.0
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            lower = self._messages(left, middle)
            upper = self._messages(middle, right)
            bad = np.abs(lower + upper - whole) > tolerance * self.n
            total += float((lower + upper)[~bad].sum())
            left = np.concatenate([left[bad], middle[bad]])
            right = np.concatenate([middle[bad], right[bad]])
            whole = np.concatenate([lower[bad], upper[bad]])
            if not left.size:
                break
        return total + float(whole.sum())

    def _edges(self) -> Array:
        """Return the edges of the panels of quadrature, up to a time after which hardly any counts.

        Edges lie at the kinks of the law of the messages' times. Between kinks that lie far apart,
        panels grow by a constant ratio: one long panel could miss what happens soon after a kink.
        """
        knots = self.work.delays.knots()
        kinks = np.unique(np.concatenate([self.work.seconds(knots, float(m)) for m in self.done]))
        times: list[float] = kinks[:2].tolist()
        for kink in [*kinks[2:].tolist(), math.inf]:
            while (far := times[-1] + _GROWTH * (times[-1] - times[-2])) < kink:
                if kink == math.inf and self._to_come(times[-1]) < _TOLERANCE:
                    return np.array(times)
                times.append(far)
            times.append(kink)
        raise ValueError(
            f"{self.work.delays!r} is too heavy-tailed: workers are late beyond all floats"
        )

    def _to_come(self, t: float) -> float:
        """Bound on the mean number of messages after time `t` and before the end of the round."""
        at = np.array([t])
        late = self.late_after(at)[0, 0] * self.work.survival(at, int(self.done[-1]))[0]
        return self.n * self.done.size * float(late)

    def _messages(self, left: Array, right: Array) -> Array:
        """Return the mean number of messages in each panel that come before a round is over.

        A worker's message s (from 0) counts if the round goes on given its s messages before. The
        rate of message s is the derivative of its distribution function, by interpolation.
        """
        half = (right - left)[:, np.newaxis] / 2
        t = left[:, np.newaxis] + half * (1 + _NODES)
        goes_on = self.late_after(t.ravel()).reshape(*t.shape, -1)
        came = -self.work.survival(t[..., np.newaxis], self.done)
        rate = np.einsum("ij,tjs->tis", _SLOPES, came)  # per half a panel
        counts: Array = self.n * np.einsum("tis,tis,i->t", goes_on, rate, _WEIGHTS)
        return counts

    def late_after(self, t: Array) -> Array:
        """Probability of `late` given that one worker has sent s messages.

        An array (times, messages), for s from 0 to one less than a worker sends in all.
        """
        width = max(self.farthest + 1, self.block)
        step = max(1, _KEPT // (self.n * width))
        parts = [self._late_after(t[at : at + step]) for at in range(0, t.size, step)]
        return np.concatenate(parts)

    def _late_after(self, t: Array) -> Array:
        n, block = self.n, self.block
        reach = self._reach(t)
        shorter = np.cumsum(reach, axis=1)  # probability that a reach is as short, or shorter
        rest = self._rest(reach, self._arcs(reach))
        # before[b, :, r]: probability that r partitions are left of the reach of the workers before
        # a block whose arc began b blocks earlier
        before = np.zeros((n, *reach.shape))
        before[0, :, 0] = 1
        for length in range(1, n):
            past = before[length - 1]
            here = reach * np.cumsum(past, axis=1)
            here[:, 1:] += past[:, 1:] * shorter[:, :-1]
            before[length] = _beyond(here, block)
        sent = np.arange(0, self.farthest, self.batch)
        found = np.zeros((t.size, sent.size))
        # `value`: probability that the round goes on, by the reach at block number `length` of the
        # arc; `after`: the same for the next block.
        after = np.zeros_like(reach)
        for length in range(n, 0, -1):
            # The next block's worker comes farther than the reach that is left, or does not.
            farther = np.zeros_like(reach)
            farther[:, :-1] = np.cumsum((reach * after)[:, :0:-1], axis=1)[:, ::-1]
            value = np.zeros_like(reach)
            value[:, block:] = (after * shorter + farther)[:, : reach.shape[1] - block]
            value[:, block - 1 :: -1] = rest[1:, :, n - length].T
            past = before[length - 1]
            beyond = np.zeros_like(reach)
            beyond[:, :-1] = np.cumsum((past * value)[:, :0:-1], axis=1)[:, ::-1]
            found += (np.cumsum(past, axis=1) * value + beyond)[:, sent]
            after = value
        return found


def _beyond(reach: Array, block: int) -> Array:
    """Return the probability of each reach left at the next block; drop reaches that end before."""
    beyond = np.zeros_like(reach)
    beyond[:, : reach.shape[1] - block] = reach[:, block:]
    return beyond


def _one_after_another(first: Array, second: Array) -> Array:
    """Convolve along the last axis."""
    total = np.zeros_like(first)
    for length in range(first.shape[-1]):
        total[..., length:] += first[..., : first.shape[-1] - length] * second[..., length, None]
    return total
