"""Monte Carlo simulation of rounds: times, messages, workers waited for, and computations.

Kernels draw the delays of the distributions that they know; a model draws all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..._base.arrays import (
    Array,
    Floats,
    Ints,
    as_array,
    at_least,
    check_cost,
    check_flag,
    check_real,
    check_reals,
    check_word,
)
from ..._base.text import duration, plural, short
from ...codes import Code
from ...coding.code import check_code
from ...coding.rules import Blocks, Cells, Parts, Span, Tiling, Waiting
from ...coding.scheme import Scheme
from ...coding.trust import residual_of_each
from ...delays import (
    DelayModel,
    Distribution,
    Exponential,
    Heterogeneous,
    Pareto,
    ShiftedExponential,
)
from ...delays.interface import check_model, per_of, sample, tail_bounds, tails
from ...kernels.rounds import BLOCKS, CELLS, EDGES, SPAN, TILING, CompletionPlan, DelayPlan
from ...numerics.solve import SOLVED
from .rounds import (
    ByRule,
    Conditions,
    Kernel,
    MessageByMessage,
    Reacting,
    Simulator,
)

__all__ = ["Simulation", "simulate"]

_DRAWN = 1 << 20  # delays that a model draws at a time: 8 MB

_JUDGED = 1000  # residuals are computed for this many rounds at most
# Where a residual takes least squares, n k^2 products each, all residuals take this many at most.
_JUDGED_PRODUCTS = 1e9


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated rounds.

    Attributes
    ----------
    times : (rounds,) float64 array
        Seconds from handing out the parameters until the gradient could be decoded.
    messages, workers : (rounds,) int64 array
        Messages that had come by that time, and workers that had sent them.
    computations : (rounds,) int64 array
        Partial gradients that all workers together had computed by that time.
    message_weight : float
        Size of a message, in gradients.
    mean_exists : bool, optional
        True: the mean time exists, so the mean of the simulated rounds estimates it. None: unknown,
        because the delays do not say how heavy their tails are, or the code does not say how many
        stragglers it tolerates.
    residuals : (judged,) float64 array, optional
        `fastgc.codes.Approximation.residual` of the first rounds, at most 1000. None if the code
        decodes only what is exact up to rounding; residuals are then not computed.
    """

    times: Floats
    messages: Ints
    workers: Ints
    computations: Ints
    message_weight: float = 1.0
    mean_exists: bool | None = None
    residuals: Floats | None = None

    @property
    def residual(self) -> float:
        """Root mean square of `residuals`; NaN if they were not computed."""
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
        """Standard error of `mean` for independent rounds; NaN for a single round."""
        rounds = self.times.size
        with np.errstate(over="ignore"):  # squares of large times
            return float(self.times.std(ddof=1)) / math.sqrt(rounds) if rounds > 1 else math.nan

    @property
    def mean_messages(self) -> float:
        """Mean number of messages received."""
        return float(self.messages.mean())

    @property
    def mean_workers(self) -> float:
        """Mean number of workers waited for: recovery threshold K of Li et al., definition 2."""
        return float(self.workers.mean())

    @property
    def mean_computations(self) -> float:
        """Mean number of partial gradients computed."""
        return float(self.computations.mean())

    @property
    def communication_load(self) -> float:
        """Mean size of the messages received, in gradients (Li et al., definition 3)."""
        return self.mean_messages * self.message_weight

    def quantile(self, q: ArrayLike) -> Floats:
        """Time in seconds within which the fraction `q` of the rounds ended, elementwise."""
        return np.asarray(np.quantile(self.times, check_reals("q", q)))

    def cdf(self, t: ArrayLike) -> Floats:
        """Fraction of the rounds that ended within t seconds, elementwise."""
        over = np.searchsorted(np.sort(self.times), check_reals("t", t), side="right")
        part: Floats = over / self.times.size
        return part


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
    method: Literal["auto", "kernel", "round"] = "auto",
    request: float = 0.0,
    progress: bool | Callable[[int, int], object] = False,
) -> Simulation:
    """Simulate rounds of a code.

    A worker with load w begins after D seconds and computes for ``cost * w`` seconds. If delays are
    per computation, it begins at once and computes for ``(D + cost) * w`` seconds. If it sends m
    messages, each takes an m-th of this time. If its code sends them together, all of them come at
    the end; the round then receives every message that comes with the last one needed.

    Workers of `Reactive` are asked for missing shares, as in `fastgc.codes.ReactiveRound`: a worker
    begins a share when it has been asked and has finished the shares it was asked for before.

    Parameters
    ----------
    code : Code
    delays : DelayModel, optional
        The model from which D is drawn for each worker and round. Default: no delays.
    cost : float or (n,) array
        Seconds to compute one partial gradient, for all workers or for each.
    receive : float
        Seconds that the master's link takes for each message, one after the other.
    overhead : float
        Seconds between a gradient and the next round, for decoding and updating.
    rounds : int
    seed : int
        Codes with the same n have the same delays for the same seed.
    interrupted : bool
        True: workers drop what they are computing when a round ends, as in the papers, so rounds
        are independent. False: workers first finish their current message, as those of
        `fastgc.engines` do, so very late workers miss rounds.
    method : {"auto", "kernel", "round"}
        "kernel" computes, in compiled code, when the code's rule is met. "round" hands message
        after message to ``code.round`` until it is ready, which works for any code. They agree
        round by round, unless rounds wait for better or more messages than suffice (`LagrangeCode`,
        if workers send several). "auto" gives the result of "round", and uses the kernel if it
        knows the code's rule and rounds do not wait. Workers are asked only with "auto"; otherwise
        they send every message, as with engines that cannot ask.
    request : float
        Seconds of a round trip, between asking for sums and their coming. Where the master asks for
        missing shares, the worker's computation comes on top.
    progress : bool or callable
        True shows a progress bar (needs ``gradient-coding[cli]``). A callable is called after every
        few rounds with the number of rounds simulated and the number of all rounds.

    Raises
    ------
    ValueError, TypeError
        If an argument is negative, does not fit the code or has a wrong type, or if the mean time
        does not exist.

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
    check_word("method", method, "auto", "kernel", "round")
    rounds, seed, work, how, mean_exists = _checked(
        code, delays, cost, receive, overhead, rounds, seed, interrupted, asks=method == "auto"
    )
    judge = _Judge(code, rounds) if code.scheme.approximate else None
    run = _simulator(code, method, check_real("request", request), judge)
    late = np.zeros(code.n)
    parts: list[tuple[Array, ...]] = []
    told: Callable[[int, int], object] = progress if callable(progress) else lambda *_: None
    shown: AbstractContextManager[Callable[[], None]] = nullcontext(lambda: None)
    step = max(1, _DRAWN // code.n)
    if progress and not callable(progress):
        from ..._base.progress import task_bar

        shown = task_bar("simulating", -(-rounds // step))
    with shown as advance:
        for first, count, drawn in draw(code, delays, work, how.receive, rounds, seed, step):
            parts.append(run(drawn, first, count, late, how))
            advance()
            told(first + count, rounds)
    times, messages, workers, computations = (
        each[0] if len(each) == 1 else np.concatenate(each) for each in zip(*parts, strict=True)
    )
    left = None if judge is None else judge.residuals()
    weight = code.scheme.message_weight
    return Simulation(times, messages, workers, computations, weight, mean_exists, left)


def _checked(
    code: Code,
    delays: DelayModel | None,
    cost: ArrayLike,
    receive: float,
    overhead: float,
    rounds: int,
    seed: int,
    interrupted: bool,
    asks: bool,
) -> tuple[int, int, Floats, Conditions, bool | None]:
    """Check arguments; return rounds, seed, work of each worker, conditions, `require_mean`."""
    check_code(code)
    check_model(delays)
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    how = Conditions(
        check_real("receive", receive),
        check_real("overhead", overhead),
        check_flag("interrupted", interrupted),
    )
    with np.errstate(over="ignore"):
        work = check_cost(code.n, cost) * code.scheme.loads
        bounded = np.isfinite(work * rounds).all()
    if not bounded:
        raise ValueError(
            f"cost is too large for loads up to {code.scheme.loads.max()} and {rounds} rounds: "
            f"{cost!r}"
        )
    return rounds, seed, work, how, require_mean(code, delays, how.interrupted, asks)


def _simulator(code: Code, method: str, request: float, judge: _Judge | None) -> Simulator:
    """Choose the simulator of this code's rounds."""
    rule = kernel_rule(code)
    if rule is None and method == "kernel":
        raise ValueError(f'{type(code).__name__} has no kernel to simulate it: use method="round"')
    take = None if judge is None else judge.take
    if method == "round" or rule is None:
        return MessageByMessage(code, take)
    if method == "auto" and code.scheme.holders.stand_ins:
        return Reacting(code, request)
    if method == "auto" and code.scheme.gate.waits:
        return ByRule(code, take)
    return Kernel(rule) if judge is None else Kernel(rule, judge.take, judge.most)


def require_mean(
    code: Code, delays: DelayModel | None, interrupted: bool, asks: bool = True
) -> bool | None:
    """Return True if a round's mean time exists in the worst case; raise ValueError if it does not.

    Return None if this is unknown, because the delays do not say how heavy their tails are, or the
    code does not say how many stragglers it tolerates. `asks` says whether the master asks holders
    for missing shares.

    A round is late beyond all bounds only if s + 1 workers are (s = n - f for a code that waits for
    f workers). With power tails, the round's exponent is the sum of these workers' exponents, and
    must exceed 1. Without interruption, a worker whose own mean does not exist falls behind for
    ever: at most s workers may have exponents of 1 or less.
    """
    least, index = tail_bounds(tails(delays, code.n))
    if code.scheme.awaited is None:
        # If every worker's delay has a mean, so has the round, whatever the code tolerates.
        return True if least[0] > 1 else None
    spared = code.n - code.scheme.awaited
    if asks and code.scheme.holders.deadline != math.inf:  # holders are asked for what others owe
        spared += code.scheme.holders.stand_ins
    needed = spared + 1
    if not interrupted and index[needed - 1] <= 1:
        raise ValueError(
            f"the mean time of a round does not exist if workers finish what they are working on: "
            f"more than the {spared} that {type(code).__name__} can do without have delays without "
            f"a mean, {delays!r}, and fall behind for ever"
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


def kernel_rule(code: Code) -> CompletionPlan | None:
    """Return the code's rule in the form that kernels take; None if no kernel knows the rule."""
    rule, wait = code.scheme.rule, 0
    if isinstance(rule, Waiting):
        if min(code.scheme.messages.counts) < 1:
            return None
        wait, rule = rule.wait, rule.rule
    spare: Floats | None = np.empty((0, 0))
    forwards = False
    if isinstance(rule, Span) and wait:
        # A step takes as long as rows are, or as many as can be spared.
        forwards = 2 * rule.equations(np.arange(0)).target.size <= rule.messages
        if (spare := rule.turned() if forwards else rule.spare()) is None:
            return None
        if (
            not forwards and spare.shape[1] == 1 and np.abs(spare).min() > SOLVED
        ):  # every message is needed
            rule = Blocks.one(rule.messages, rule.messages)
    group = other = need = np.empty(0, dtype=np.int64)
    total = 0
    if isinstance(rule, Blocks):
        kind, group, need = BLOCKS, rule.block, rule.need
    elif isinstance(rule, Cells):
        kind, group, need, total = CELLS, rule.cell, rule.weight, rule.need
    elif isinstance(rule, Tiling):
        kind, group, other, total = TILING, rule.start, rule.stop, rule.k
    elif isinstance(rule, Parts):
        group, other = np.ascontiguousarray(rule.ends.T)
        kind, total = EDGES, rule.vertices
    elif isinstance(rule, Span) and wait:
        kind = SPAN
    else:
        return None
    if kind == BLOCKS and code.scheme.messages.count == code.n and need.size == 1 and wait:
        need, wait = np.minimum(need, wait), 0
    return CompletionPlan(
        kind,
        np.array(code.scheme.messages.first, dtype=np.int64),
        code.scheme.messages.shares,
        code.scheme.loads,
        group,
        other,
        need,
        int(total),
        wait,
        np.ascontiguousarray(spare),
        forwards,
    )


class _Judge:
    """Collects the messages of the first rounds, and computes the residuals of their gradients."""

    def __init__(self, code: Code, rounds: int) -> None:
        self._code = code
        self.most = min(rounds, _JUDGED)
        if type(code.scheme).vector is Scheme.vector:  # by least squares
            self.most = min(self.most, max(int(_JUDGED_PRODUCTS / (code.n * code.k**2)), 20))
        self._taken: list[Ints] = []

    def take(self, survivors: Ints) -> None:
        if len(self._taken) < self.most:
            self._taken.append(survivors)

    def residuals(self) -> Floats:
        """Return the residual of each round; solve equal sets of messages only once."""
        masks = np.zeros((len(self._taken), self._code.scheme.messages.count), dtype=np.bool_)
        for mask, survivors in zip(masks, self._taken, strict=True):
            mask[survivors] = True
        # NumPy's unique rows are records with a field for each column, which take it seconds.
        packed = np.array([row.tobytes() for row in np.packbits(masks, axis=1)], dtype=object)
        _, first, index = np.unique(packed, return_index=True, return_inverse=True)
        found: Floats = residual_of_each(self._code.scheme, masks[first])
        return found[index]


# ----------------------------------------------------------------------------- how late workers are

# A worker computes for at least this part of a usual time, less than any clock could tell. The
# messages of a worker then come one by one even if computing them takes no time.
_LEAST = 2.0**-40

_LARGEST = 37.0  # above 53 log(2), the largest draw from the exponential distribution of mean 1
_EXPONENT = 700.0  # the largest exponent of e that kernels take


class Law(NamedTuple):
    """The delay of each worker as a function of h, a draw from the exponential of mean 1.

    The delay is ``shift + scale * h``, or ``shift + scale * exp(power * h)`` where `power` is
    positive. All are float64 arrays of shape (n,).
    """

    shift: Floats
    scale: Floats
    power: Floats


def law_of(delays: DelayModel | None, workers: int) -> Law | None:
    """Return the law of the model's delays; None if it is unknown or may overflow float64."""
    models = delays.models if type(delays) is Heterogeneous else [delays]
    numbers = [_numbers(model) for model in models]
    if None in numbers or len(models) not in (1, workers):
        return None
    each = np.array(numbers, dtype=np.float64).T
    law = Law(*np.repeat(each, workers // len(models), axis=1))
    with np.errstate(over="ignore"):
        most = np.where(law.power > 0, np.exp(law.power * _LARGEST), _LARGEST)
        bounded = np.isfinite(law.shift + law.scale * most).all()
    return law if bounded and law.power.max() * _LARGEST < _EXPONENT else None


def _numbers(model: DelayModel | Distribution | None) -> tuple[float, float, float] | None:
    """Return shift, scale and power of a model of exactly these types: subclasses may differ."""
    if model is None:
        return 0.0, 0.0, 0.0
    if type(model) is Exponential:
        return 0.0, model.scale, 0.0
    if type(model) is ShiftedExponential:
        return model.shift, 1 / model.rate, 0.0
    if type(model) is Pareto:
        return 0.0, model.scale, 1 / model.shape
    return None


def draw(
    code: Code,
    delays: DelayModel | None,
    work: Floats,
    receive: float,
    rounds: int,
    seed: int,
    step: int,
) -> Iterator[tuple[int, int, DelayPlan]]:
    """Yield, for every `step` rounds, the first, how many they are, and the plan of their delays.

    Kernels draw the delays if their law is known. Otherwise the model draws them, and kernels draw
    only who comes first among workers that answer at the same moment.
    """
    n = code.n
    law = law_of(delays, n)
    onset, load = 1.0, np.zeros(n)
    if per_of(delays) == "computation":
        onset, load = 0.0, code.scheme.loads.astype(np.float64)
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    some = [(first, min(step, rounds - first)) for first in range(0, rounds, step)]
    if law is not None:
        usual = float(np.where(law.power > 0, np.exp(law.power), 1.0) @ law.scale + law.shift.sum())
        least = _LEAST * (receive + usual / n or 1.0)
        plan = DelayPlan.of(key, onset, *law, load, work + least)
        yield from ((first, count, plan) for first, count in some)
        return
    zeros, rng, many = np.zeros(n), np.random.default_rng(seed), getattr(delays, "draw", None)
    assert delays is not None
    for first, count in some:
        if many is not None:
            drawn = as_array("delays", many(rng, count, n))
        else:
            drawn = np.array([sample(delays, first + r, n, seed) for r in range(count)])
        if drawn.shape != (count, n):
            raise ValueError(f"delays must be an array of shape {(count, n)}, not {drawn.shape}")
        if not ((drawn >= 0) & (drawn < np.inf)).all():
            raise ValueError("delays must be finite and not negative")
        drawn = np.ascontiguousarray(drawn, dtype=np.float64)
        least = _LEAST * (receive + float(drawn.mean()) or 1.0)
        plan = DelayPlan.of(key, onset, zeros, zeros, zeros, load, work + least)
        yield first, count, plan._replace(given=drawn, start=first)
