"""Monte Carlo of rounds: how long they take, from how many workers, at what load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import kernels
from .._arrays import as_array, at_least, check_cost, check_real, check_reals
from .._shown import duration, plural, short
from ..codes import Code
from ..codes.graph import Parts
from ..coding.approximation import residual_of_each
from ..coding.rules import Blocks, Cells, Tiling, Waiting
from ..coding.span import SOLVED, Span
from ..delays import DelayModel
from ..delays.interface import check_model, described, per_of, tail_bounds, tails
from ..delays.laws import law_of
from .asking import Asking
from .shared import Shared

__all__ = ["Simulation", "simulate"]

_DRAWN = 1 << 20  # delays that a model draws at a time: 8 MB
_CACHED = 1 << 16  # delays that kernels draw and use at a time: 512 KB

# Works take this much of a usual time at least, which is less than any clock could tell: messages
# of a worker come one by one, too, if their computation takes no time.
_LEAST = 2.0**-40

# Rounds, at most, of which it is computed what their gradients leave out.
_JUDGED = 1000
_JUDGED_PRODUCTS = 1e9  # where that takes least squares, of n k^2 each

_SUPPORT = 1 << 22  # entries of B, at most, whose zeros are remembered


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated rounds.

    Attributes
    ----------
    times : (rounds,) float64 array
        Seconds from the hand-off of the parameters until the gradient could be decoded.
    messages, workers : (rounds,) int64 array
        Messages that had come by then, and the workers that sent them.
    computations : (rounds,) int64 array
        Partial gradients that all workers together had computed by then.
    message_weight : float
        Size of a message, in gradients.
    mean_exists : bool, optional
        True: the delays' tails are such that the mean time does, which that of the simulated rounds
        then estimates. None: it is unknown, as the delays do not say how heavy their tails are, or
        the code does not say how many stragglers it tolerates.
    residuals : (judged,) float64 array, optional
        What the gradients of the first rounds leave out, as `fastgc.codes.Approximation.residual`,
        of 1000 rounds at most. None, not computed: the code decodes no round before it is exact up
        to rounding.
    """

    times: NDArray[np.float64]
    messages: NDArray[np.int64]
    workers: NDArray[np.int64]
    computations: NDArray[np.int64]
    message_weight: float = 1.0
    mean_exists: bool | None = None
    residuals: NDArray[np.float64] | None = None

    @property
    def residual(self) -> float:
        """Root of the mean square of `residuals`; NaN where they were not computed."""
        return math.nan if self.residuals is None else float(np.sqrt(np.mean(self.residuals**2)))

    def __repr__(self) -> str:
        return (
            f"Simulation({plural(self.times.size, 'round')}: {duration(self.mean)} ± "
            f"{duration(self.standard_error)} on average, {short(self.mean_workers)} workers "
            f"waited for, {short(self.mean_messages)} messages)"
        )

    @property
    def mean(self) -> float:
        """Mean time of a round, in seconds."""
        return float(self.times.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `mean`, were the rounds independent; NaN from one round."""
        rounds = self.times.size
        with np.errstate(over="ignore"):  # of squares
            return float(self.times.std(ddof=1)) / math.sqrt(rounds) if rounds > 1 else math.nan

    @property
    def mean_messages(self) -> float:
        """Messages received, on average."""
        return float(self.messages.mean())

    @property
    def mean_workers(self) -> float:
        """Workers waited for, on average: the recovery threshold K of Li et al., definition 2."""
        return float(self.workers.mean())

    @property
    def mean_computations(self) -> float:
        """Partial gradients computed, on average."""
        return float(self.computations.mean())

    @property
    def communication_load(self) -> float:
        """Gradients' worth of messages received, on average (Li et al., definition 3)."""
        return self.mean_messages * self.message_weight

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Time in seconds within which this fraction of the rounds was over, elementwise."""
        return np.asarray(np.quantile(self.times, check_reals("q", q)))

    def cdf(self, t: ArrayLike) -> NDArray[np.float64]:
        """Fraction of the rounds that were over after t seconds, elementwise."""
        over: NDArray[np.float64] = (
            np.searchsorted(np.sort(self.times), check_reals("t", t), side="right")
            / self.times.size
        )
        return over


def simulate(
    code: Code,
    delays: DelayModel | None = None,
    *,
    cost: ArrayLike = 0.0,
    receive: float = 0.0,
    overhead: float = 0.0,
    rounds: int = 10_000,
    seed: int = 0,
    interrupted: bool = True,
    processors: ArrayLike | None = None,
    method: Literal["auto", "kernel", "round"] = "auto",
    request: float = 0.0,
    progress: bool = False,
) -> Simulation:
    """Simulate rounds of a code.

    Worker i, of load w, begins after D seconds and computes for ``cost * w``; or, where the delays
    are per computation, it begins at once and computes for ``(D + cost) * w``. Of m messages that
    it sends, each takes an m-th of the computation; where its code has it send them together, all
    come at the end of it, and whatever comes with the last one needed is received, too.

    Workers that send sums on request (`PartialWork`) keep their messages until all that is needed
    was computed by anybody. Those that the master then asks answer at once, with one message each,
    and only these are counted and received.

    Parameters
    ----------
    code : Code
    delays : DelayModel, optional
        Of which D is drawn for each worker and round. Default: none.
    cost : float or (n,) array
        Seconds to compute one partial gradient, of each worker if they differ.
    receive : float
        Seconds that the master's link is busy with a message, one message after another.
    overhead : float
        Seconds between a gradient and the next round: decoding, updating.
    rounds : int
    seed : int
        Codes of equal n see the same delays for the same seed.
    interrupted : bool
        Whether workers drop what they are at when a round is over, as the papers have it, so that
        rounds are independent. Otherwise they first finish the message they are at, as those of
        `fastgc.engines` do, and whoever is very late misses rounds.
    processors : float or (n,) array, optional
        How many processors all workers share, or a number that names the processor of each. `cost`
        is then that of a worker alone. A processor divides its time evenly among those of its
        workers that compute; a worker that is late sleeps, and uses none. Times per computation are
        computing. Simulated event by event, which takes longer. Default: one for each worker.
    method : {"auto", "kernel", "round"}
        "kernel" computes the time at which the rule of the code is met, compiled; "round" hands
        message after message to ``code.round`` until it is ready, which any code can. They agree
        round by round, unless rounds wait for better messages than those that suffice, or for more
        (`LagrangeCode`, where workers send several). Default: what rounds do, by the kernel for
        codes that have a rule which it knows, and do not wait. Workers are asked for sums by
        "auto" only, and where `processors` are not shared; else they send every message, as with
        engines that cannot ask.
    request : float
        Seconds of a round trip: from the moment when the master asks for sums until they begin to
        come.
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``).

    Returns
    -------
    Simulation

    Raises
    ------
    ValueError
        If an argument is negative or does not fit the code, or if the delays are such that the
        mean time does not exist.
    TypeError
        If an argument is of a wrong type.

    Examples
    --------
    >>> import fastgc
    >>> late = fastgc.delays.Pareto(scale=0.005, shape=1.5)
    >>> run = fastgc.simulation.simulate(fastgc.BinaryCode(20, stragglers=4), late, cost=2e-4)
    >>> bool(0.006 < run.mean < run.quantile(0.99) < 0.05)  # in seconds
    True
    >>> round(run.mean_workers)  # waited for
    7
    """
    if method not in ("auto", "kernel", "round"):
        raise ValueError(f'method must be "auto", "kernel" or "round", not {method!r}')
    if not isinstance(code, Code):
        raise TypeError(f"code must be a code of fastgc, not {code!r}")
    check_model(delays)
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    receive, overhead = check_real("receive", receive), check_real("overhead", overhead)
    request = check_real("request", request)
    with np.errstate(over="ignore"):
        work = check_cost(code.n, cost) * code.loads
        bounded = np.isfinite(work * rounds).all()
    if not bounded:
        raise ValueError(
            f"cost is too large for loads up to {code.loads.max()} and {rounds} rounds: {cost!r}"
        )
    interrupted = bool(interrupted)
    mean_exists = require_mean(code, delays, interrupted)
    rule = kernel_rule(code)
    if processors is not None and method != "auto":
        raise ValueError(f'processors are shared by method="auto" only, not {method!r}')
    if processors is not None and request:
        raise ValueError(
            "request is of rounds with a processor for each worker: not with processors"
        )
    if rule is None and method == "kernel":
        raise ValueError(f'{type(code).__name__} has no kernel to simulate it: use method="round"')
    run: _Kernel | _Rounds | Asking | Shared
    judged = _Judge(code, rounds) if code.approximate else None
    if processors is not None:
        run = Shared(code, processors, None if judged is None else judged.take)
    elif method != "round" and rule is None and isinstance(code.rule, Waiting):
        run = _Awaiting(code, judged)
    elif method == "round" or rule is None:
        run = _Rounds(code, judged)
    elif method == "auto" and code.on_request and isinstance(code.rule, Cells):
        run = Asking(code, request)
    elif method == "auto" and code.waits:
        run = _Waiting(code, judged)
    else:
        run = _Kernel(rule, judged)
    late = np.zeros(code.n)
    parts: list[tuple[NDArray[Any], ...]] = []
    shown: AbstractContextManager[Callable[[], None]] = nullcontext(lambda: None)
    step = max(1, _DRAWN // code.n)
    if progress:
        from ..progress import task_bar

        shown = task_bar("simulating", -(-rounds // step))
    with shown as advance:
        for first, count, drawn in _draw(code, delays, work, receive, rounds, seed, step):
            parts.append(run(drawn, first, count, late, receive, overhead, interrupted))
            advance()
    times, messages, workers, computations = (
        each[0] if len(each) == 1 else np.concatenate(each) for each in zip(*parts, strict=True)
    )
    left = None
    if judged is not None:
        left = judged.residuals()
    weight = code.message_weight
    return Simulation(times, messages, workers, computations, weight, mean_exists, left)


def require_mean(code: Code, delays: DelayModel | None, interrupted: bool) -> bool | None:
    """Whether a round's mean time exists, in the worst case; raise ValueError if it does not.

    None: it is unknown, as the delays do not say how heavy their tails are, or the code does not
    say how many stragglers it tolerates.

    A round is late beyond any bound when those s + 1 workers are that it cannot do without (s is
    n - f where it waits for f); with power tails the probability of it falls with the sum of their
    exponents, which must exceed 1.
    Workers that are not interrupted must come back in the mean, each by itself, or one after the
    other is lost for good: of them s + 1 must not have exponents of 1 or less.
    """
    least, index = tail_bounds(tails(delays, code.n))
    if code.awaited is None:
        # whatever the code tolerates, the mean exists where that of each worker's delay does
        return True if least[0] > 1 else None
    spared = code.n - code.awaited
    needed = spared + 1
    if not interrupted and index[needed - 1] <= 1:
        raise ValueError(
            f"the mean time of a round does not exist where workers finish what they are at: more "
            f"than the {spared} that {type(code).__name__} can do without have delays of "
            f"no mean, {delays!r}, and are late for ever longer"
        )
    if index[:needed].sum() <= 1:
        raise ValueError(
            f"the mean time of a round does not exist: {type(code).__name__} waits for all but "
            f"{spared} of the workers in the worst case, and the delays {delays!r} of "
            f"{needed} are too heavy-tailed (tail exponents must add up to more than 1, not "
            f"{index[:needed].sum():g})"
        )
    exists = least[:needed].sum() > 1 and (interrupted or least[needed - 1] > 1)
    return True if exists else None


def _draw(
    code: Code,
    delays: DelayModel | None,
    work: NDArray[np.float64],
    receive: float,
    rounds: int,
    seed: int,
    step: int,
) -> Iterator[tuple[int, int, kernels.DelayPlan]]:
    """The first of some rounds, their number, and how late workers are in them.

    Where the law of the delays is known, kernels draw them; else the model does, `step` rounds at a
    time, and kernels draw only who of those that answer at the same moment is first.
    """
    n = code.n
    law = law_of(delays, n)
    onset, load = 1.0, np.zeros(n)
    if per_of(delays) == "computation":
        onset, load = 0.0, code.loads.astype(np.float64)
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    if law is not None:
        usual = float(np.where(law.power > 0, np.exp(law.power), 1.0) @ law.scale + law.shift.sum())
        least = _LEAST * (receive + usual / n or 1.0)
        plan = kernels.DelayPlan.of(key, onset, *law, load, work + least)
        for first in range(0, rounds, step):
            yield first, min(step, rounds - first), plan
        return
    zeros = np.zeros(n)
    assert delays is not None
    for first, drawn in _given(delays, rounds, n, seed, step):
        least = _LEAST * (receive + float(drawn.mean()) or 1.0)
        plan = kernels.DelayPlan.of(key, onset, zeros, zeros, zeros, load, work + least)
        yield first, len(drawn), plan._replace(given=drawn)


def _given(
    delays: DelayModel, rounds: int, n: int, seed: int, step: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The delays of all rounds as the model draws them, `step` rounds at a time, with the first."""
    rng = np.random.default_rng(seed)
    draw = getattr(delays, "draw", None)
    for at in range(0, rounds, step):
        count = min(step, rounds - at)
        if draw is not None:
            drawn = as_array("delays", draw(rng, count, n))
        else:
            rows = [as_array("delays", delays.sample(r, n, seed)) for r in range(at, at + count)]
            try:
                drawn = check_reals("delays", np.array(rows))
            except (TypeError, ValueError):
                raise ValueError(
                    f"delays must be {n} real numbers in each round, from {described(delays)}"
                ) from None
        if drawn.shape != (count, n):
            raise ValueError(f"delays must be an array of shape {(count, n)}, not {drawn.shape}")
        if not ((drawn >= 0) & (drawn < np.inf)).all():
            raise ValueError("delays must be finite and not negative")
        yield at, np.ascontiguousarray(drawn, dtype=np.float64)


def kernel_rule(code: Code) -> kernels.CompletionPlan | None:
    """What the kernel needs to know of a code; None if it does not know the code's rule."""
    rule, wait, said = code.rule, 0, code.rule
    none = np.empty(0, dtype=np.int64)
    if isinstance(said, Waiting):
        if min(code.message_counts) < 1:
            return None
        rule, wait = said.rule, said.wait
    spare = np.empty((0, 0))
    if isinstance(rule, Span) and wait:
        found = rule.spare()
        if found is None:
            return None
        spare = found
        if spare.shape[1] == 1 and np.abs(spare).min() > SOLVED:  # none can be spared
            rule = Blocks.one(rule.messages, rule.messages)
    if isinstance(rule, Blocks):
        kind, group, other, need, total = kernels.BLOCKS, rule.block, none, rule.need, 0
    elif isinstance(rule, Cells):
        kind, group, other, need, total = kernels.CELLS, rule.cell, none, rule.weight, rule.need
    elif isinstance(rule, Tiling):
        kind, group, other, need, total = kernels.TILING, rule.start, rule.stop, none, rule.k
    elif isinstance(rule, Parts):
        group, other = np.ascontiguousarray(rule.ends.T)
        kind, need, total = kernels.EDGES, none, rule.vertices
    elif isinstance(rule, Span) and wait:
        kind, group, other, need, total = kernels.SPAN, none, none, none, 0
    else:
        return None
    if kind == kernels.BLOCKS and code.message_count == code.n and need.size == 1 and wait:
        need, wait = np.minimum(need, wait), 0
    first = np.array(code.first_messages, dtype=np.int64)
    return kernels.CompletionPlan(
        kind,
        first,
        code.message_shares,
        code.loads,
        group,
        other,
        need,
        int(total),
        wait,
        np.ascontiguousarray(spare),
    )


class _Kernel:
    """Rounds by the kernels, a few at a time, so that what is drawn stays in the caches."""

    def __init__(self, rule: kernels.CompletionPlan, judge: _Judge | None = None) -> None:
        self._rule, self._judge = rule, judge
        self._sender = np.repeat(np.arange(rule.loads.size), np.diff(rule.first))

    def __call__(
        self,
        delays: kernels.DelayPlan,
        first: int,
        rounds: int,
        late: NDArray[np.float64],
        receive: float,
        overhead: float,
        interrupted: bool,
    ) -> tuple[NDArray[Any], ...]:
        rule, out = self._rule, kernels.Completion.empty(rounds)
        most = 0 if self._judge is None else self._judge.most - first
        lo = 0
        while lo < rounds:
            judged = lo < most
            step = max(1, _CACHED // late.size)
            if judged:  # who is not interrupted is late for the next round
                step = min(step, most - lo) if interrupted else 1
            hi = min(lo + step, rounds)
            wait, work = kernels.draw(delays.part(lo, hi), first + lo, hi - lo)
            begin = late + wait if judged else wait
            done = out.part(lo, hi)
            kernels.completion(rule, wait, work, late, receive, overhead, interrupted, done)
            if judged and self._judge is not None:
                arrival = begin[:, self._sender] + work[:, self._sender] * rule.share
                order = np.argsort(arrival, axis=1, kind="stable")
                for came, count in zip(order, done.messages, strict=True):
                    self._judge.take(came[:count])
            lo = hi
        return out


class _Judge:
    """What the first rounds leave out."""

    def __init__(self, code: Code, rounds: int) -> None:
        self._code = code
        solves = type(code).vector is Code.vector
        affordable = int(_JUDGED_PRODUCTS / (code.n * float(code.k) ** 2)) if solves else _JUDGED
        self.most = min(rounds, _JUDGED, max(affordable, 20))
        self._taken: list[NDArray[np.int64]] = []

    def take(self, survivors: NDArray[np.int64]) -> None:
        if len(self._taken) < self.most:
            self._taken.append(survivors)

    def residuals(self) -> NDArray[np.float64]:
        """Of each round, one of each set that occurs."""
        masks = np.zeros((len(self._taken), self._code.message_count), dtype=np.bool_)
        for mask, survivors in zip(masks, self._taken, strict=True):
            mask[survivors] = True
        distinct, index = np.unique(np.packbits(masks, axis=1), axis=0, return_inverse=True)
        sets = np.unpackbits(distinct, axis=1, count=masks.shape[1]).astype(np.bool_)
        found: NDArray[np.float64] = residual_of_each(self._code, sets)[index.reshape(-1)]
        return found


class _Rounds:
    """The same by the code's own rounds, message by message: for any code, and as a proof."""

    def __init__(self, code: Code, judge: _Judge | None = None) -> None:
        self._code, self._judge = code, judge
        self._round = code.round(2)
        self._message = np.zeros(code.message_size(2), code.message_dtype())
        self._sender = np.repeat(np.arange(code.n), code.message_counts)
        self._shares, self._loads = code.message_shares, code.loads

    def __call__(
        self,
        delays: kernels.DelayPlan,
        first: int,
        rounds: int,
        late: NDArray[np.float64],
        receive: float,
        overhead: float,
        interrupted: bool,
    ) -> tuple[NDArray[Any], ...]:
        rows = [
            self._one(*row, late, receive, overhead, interrupted)
            for row in zip(*kernels.draw(delays, first, rounds), strict=True)
        ]
        times, *counts = zip(*rows, strict=True)
        return np.array(times), *(np.array(each, dtype=np.int64) for each in counts)

    def _last(self, order: NDArray[np.int64]) -> int:
        """The message that makes a round ready, of all in the order they come; -1: none does."""
        self._round.reset()
        for number in order.tolist():
            if self._round.receive(*self._code.sender(number)[:1], self._message):
                return int(number)
        return -1

    def _arrivals(
        self, begin: NDArray[np.float64], work: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """When each message comes, of workers that begin then and have so much to do."""
        moments: NDArray[np.float64] = begin[self._sender] + work[self._sender] * self._shares
        return moments

    def _one(
        self,
        wait: NDArray[np.float64],
        work: NDArray[np.float64],
        late: NDArray[np.float64],
        receive: float,
        overhead: float,
        interrupted: bool,
    ) -> tuple[float, int, int, int]:
        code, sender = self._code, self._sender
        begin = late + wait
        arrival = self._arrivals(begin, work)
        order = np.argsort(arrival, kind="stable")
        last = self._last(order)
        if self._judge is not None and last >= 0:
            self._judge.take(order[: int(np.flatnonzero(order == last)[0]) + 1])
        ready = float(arrival[last]) if last >= 0 else math.inf
        came = arrival <= ready
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(work > 0, (ready - begin) / work, np.where(begin <= ready, 1.0, 0.0))
        # beside a long delay the time since may have lost the digits that tell
        sent = np.zeros(code.n)
        np.maximum.at(sent, sender[came], self._shares[came])
        done = np.floor(self._loads * np.maximum(np.clip(part, 0, 1), sent) + 1e-9)
        time = ready
        if receive > 0:  # one after another: the last is through when each of the queues is
            queue = np.sort(arrival[came])
            time = float(np.max(queue + receive * np.arange(queue.size, 0, -1)))
        if not interrupted:
            end = time + overhead
            for worker in range(code.n):
                mine = arrival[code.first_messages[worker] : code.first_messages[worker + 1]]
                if late[worker] > end:
                    late[worker] -= end
                else:
                    rest = mine[mine > end]
                    late[worker] = rest[0] - end if rest.size else 0.0
        return time, int(came.sum()), np.unique(sender[came]).size, int(done.sum())


class _Waiting(_Rounds):
    """The same for codes that have a rule, without rounds: in an eighth of the time."""

    def __init__(self, code: Code, judge: _Judge | None = None) -> None:
        super().__init__(code, judge)
        self._tally = code.rule.tally()

    def _last(self, order: NDArray[np.int64]) -> int:
        self._tally.reset()
        for at, number in enumerate(order.tolist(), 1):
            if self._tally.add(number) and (
                at == order.size or not self._code.awaits_more(order[:at])
            ):
                return int(number)
        return -1


class _Awaiting(_Rounds):
    """The same for codes that wait for some workers: what came before is seldom looked at."""

    def __init__(self, code: Code, judge: _Judge | None = None) -> None:
        super().__init__(code, judge)
        rule = code.rule
        assert isinstance(rule, Waiting)
        self._rule, self._wait = rule.rule, rule.wait
        self._sent = np.array(code.message_counts)
        self._support: NDArray[np.bool_] | None = None
        if isinstance(self._rule, Span) and code.message_count * code.k <= _SUPPORT:
            rows = code.matrix().reshape(code.message_count, code.k, -1)
            self._support = np.asarray(rows.any(axis=2))

    def _exact(self, some: NDArray[np.int64]) -> bool:
        if not some.size or (self._support is not None and not self._support[some].any(0).all()):
            return False
        if isinstance(self._rule, Span):
            return self._rule.residual(some) <= SOLVED
        return not self._rule.missing(some)

    def _last(self, order: NDArray[np.int64]) -> int:
        at = np.empty(order.size, dtype=np.int64)
        at[order] = np.arange(order.size)
        whole = np.maximum.reduceat(at, self._code.first_messages[:-1])  # a worker's last message
        end = int(np.partition(whole, self._wait - 1)[self._wait - 1])
        # Sets that hold an exact one are exact: the first such prefix, if any is, by bisection.
        low, high = -1, end
        if self._exact(order[:end]):
            high = end - 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._exact(order[: middle + 1]) else (middle, high)
        return int(order[high])
