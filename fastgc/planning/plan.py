"""Choose a code and its load: rank codes and loads by the expected time of a round."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from timeit import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import kernels
from .._base.arrays import Ints, at_least, check_cost, check_integer, check_real
from .._base.extras import one_thread_of_blas
from .._base.text import duration, plural
from ..codes import Code, catalogue
from ..codes.binary import ASSIGNMENTS
from ..coding.arguments import check_stragglers, unasked
from ..coding.clusters import check_speeds
from ..coding.fingerprint import fingerprint
from ..coding.orders import random_arrivals
from ..coding.trust import UNSTABLE
from ..delays import DelayModel
from ..delays.interface import check_model, sample
from ..engines.machines import dealt
from ..errors import InstabilityWarning
from ..stability import amplification
from .simulation import Simulation, simulate
from .simulation.monte_carlo import require_mean

__all__ = ["CODES", "Choice", "Plan", "plan"]

# Codes that give the exact gradient of any model. All others must be named: "ignore" and
# "uc-mmc-pg" leave partial gradients out, and Lagrange codes need gradients quadratic in the data.
CODES = (
    "rs",
    "rs-clustered",
    "binary",
    "fractional",
    "cyclic",
    "bcc",
    "random",
    "uncoded",
    "reactive",
    "uc-mmc",
)

# Codes that take speeds, and the further options to try with them.
_BY_SPEED = {
    "binary": [f",assignment={each}" for each in ASSIGNMENTS if each != "uniform"],
    "rs-clustered": [""],
}

_GRID = 32  # loads of a code to simulate first, and then around the best
_FEW = 5  # the same for "reactive", which is simulated event by event
_SOME = 20  # all rounds over those simulated first, which are at least _LEAST
_LEAST = 100
_SURE = 5  # standard errors beyond which a load is slower
_SETS = 9  # sets of survivors for timing the decoding and judging its stability
_TOLD_APART = 1 << 16  # codes with more coefficients are not compared by their fingerprints
_TIMED = 0.05  # seconds of decoding after which no further set is timed
_TIMED_BYTES = 1 << 26  # size of the messages combined to time the combination, at most


@dataclass(frozen=True, eq=False)
class Choice:
    """A code at one load, with its expected times and errors.

    Attributes
    ----------
    name : str
        As in the argument `codes`: ``"rs"``.
    code : Code
    time : float
        Expected seconds of a round: `wait` plus `decode`.
    standard_error : float
        Standard error of `time` from simulation.
    wait, decode : float
        Seconds until the gradient can be decoded (simulated), and for decoding it (measured here).
    simulation : Simulation
        The simulated rounds.
    amplification : float
        Median, over random sets of survivors, of the amplification of rounding errors
        (`fastgc.stability.amplification`). It is computed on first use, like `error`.
    amplification_interval : pair of floats
        The second smallest and the second largest of these amplifications. The median over all sets
        lies between them with 96% confidence.
    error : float
        Median, over these sets, of the gradient's relative error that `Code.trust` predicts.
    allowed : float
        The largest allowed residual.
    """

    name: str
    code: Code
    time: float
    standard_error: float
    wait: float
    decode: float
    simulation: Simulation
    _sets: Sequence[Ints] = field(repr=False)
    allowed: float = 0.0

    @property
    def residual(self) -> float:
        """Part of the gradient that simulated rounds leave out, root mean square.

        It is NaN, not computed, for codes that decode only what is exact up to rounding.
        """
        return self.simulation.residual

    @property
    def near(self) -> bool:
        """Whether the residual is at most `allowed`, or of the order of rounding."""
        return not self.residual > max(self.allowed, UNSTABLE)

    def __repr__(self) -> str:
        return (
            f"Choice({self.name}: {self.code!r}, load {self.code.load}, {duration(self.time)} ± "
            f"{duration(self.standard_error)} a round)"
        )

    @cached_property
    def _amplifications(self) -> list[float]:
        return sorted(amplification(self.code, survivors) for survivors in self._sets)

    @property
    def amplification(self) -> float:  # noqa: D102
        return float(np.median(self._amplifications))

    @property
    def amplification_interval(self) -> tuple[float, float]:  # noqa: D102
        # The median lies between the second and the eighth of nine independent numbers unless eight
        # or all of them are on one side of it, that is with probability 1 - 20 / 2^9.
        return self._amplifications[1], self._amplifications[-2]

    @cached_property
    def error(self) -> float:  # noqa: D102
        return float(np.median([trusted_error(self.code, heard) for heard in self._sets]))

    @property
    def trustworthy(self) -> bool:
        """Whether more than half of float64's digits are right, or the residual is `allowed`."""
        return self.near if self.residual > UNSTABLE else self.error <= UNSTABLE


# Relative accuracy, of a round's time, to which decoding is measured.
MEASURED = 0.01


def _ranked(choices: list[Choice]) -> list[Choice]:
    """Sort the fastest first; among equal waits and nearly equal times, the smaller load first."""

    def alike(other: Choice, first: Choice) -> bool:
        near = other.time <= first.time * (1 + MEASURED)
        return near and math.isclose(other.wait, first.wait, rel_tol=1e-6)

    left = sorted(choices, key=lambda choice: choice.time)
    ranked: list[Choice] = []
    while left:
        same = [choice for choice in left if alike(choice, left[0])] or left[:1]
        ranked.append(
            min(same, key=lambda choice: (choice.code.scheme.holders.stored, choice.time))
        )
        left.remove(ranked[-1])
    return ranked


class Plan(NamedTuple):
    """The result of `plan`.

    Attributes
    ----------
    choices : list of Choice
        The fastest first. If only measured decoding times differ, smaller loads come first. Choices
        that leave out more of the gradient than is allowed come last.
    refused : dict of str to str
        For each code without any choice, by name, the reason.
    """

    choices: list[Choice]
    refused: dict[str, str]

    def __repr__(self) -> str:
        best = self.by_code()
        lines = [f"Plan({plural(len(self.choices), 'choice')}; the fastest of each code:"]
        lines += [f"  {each!r}" for each in best]
        lines += [f"  {why}" for why in reasons(self.refused)]
        return "\n".join(lines) + ")"

    @property
    def best(self) -> Choice:
        """The fastest choice whose gradients can be trusted."""
        if found := next((each for each in self.choices if each.trustworthy), None):
            return found
        raise ValueError(
            "no code is both fast enough to be considered and precise: allow more codes or a "
            "larger load"
        )

    def by_code(self) -> list[Choice]:
        """The fastest choice of each code."""
        best: dict[str, Choice] = {}
        for choice in self.choices:
            best.setdefault(choice.name, choice)
        return list(best.values())


def plan(
    n: int,
    delays: DelayModel | None = None,
    cost: ArrayLike = 0.0,
    k: int | None = None,
    *,
    p: int = 1000,
    bandwidth: float = math.inf,
    memory: int | None = None,
    residual: float = 0.0,
    codes: Sequence[str | Code] | None = None,
    stragglers: int = 0,
    speeds: ArrayLike | None = None,
    overhead: float = 0.0,
    rounds: int = 2000,
    seed: int = 0,
    interrupted: bool = True,
    progress: bool = False,
    after_each: Callable[[Plan], object] = lambda plan: None,
) -> Plan:
    """Rank codes and loads by the expected time of a round.

    Every code is simulated at every load, on the same delays. If there are many loads, 32 are tried
    that are spread geometrically, and then 32 around the best. A twentieth of the rounds is
    simulated first. A load that is then slower than another load of the same code, by more than
    five standard errors of both, is left at that, and keeps a larger standard error. Two parts of
    decoding are timed on this machine: computing the decoding vector of each code, with one BLAS
    thread if threadpoolctl is installed, and combining messages.

    Parameters
    ----------
    n : int
        Workers.
    delays : DelayModel, optional
        The delays of the workers. Default: no delays. With `fastgc.delays.Outages`, the workers of
        all codes are dealt out to their domains (`fastgc.engines.placement`).
    k : int, optional
        Partitions, n by default.
    p : int
        The gradient dimension, which determines message sizes and decoding times.
    bandwidth : float
        Bytes per second that the master receives. Default: unlimited.
    memory : int, optional
        The most partitions that a worker can hold.
    residual : float
        The largest part of the gradient that a code may leave out, root mean square over rounds
        (`Simulation.residual`). Codes that leave out more come last and are never the best: a code
        that does half of the work always has short rounds. Default: the order of rounding.
    codes : sequence of str or Code, optional
        Codes, and names as `fastgc.codes.make` takes them; a name is tried at every load. Default:
        `CODES`.
    stragglers : int
        The fewest stragglers that a code must tolerate, in any set.
    speeds : (n,) array, optional
        Relative speeds of the workers. ``"binary"`` and ``"rs-clustered"`` are then also tried with
        them, the former with every assignment. They only shape the codes; `delays` and `cost` say
        how long workers take.
    overhead : float
        Seconds that the master needs between rounds, besides decoding. It matters if workers are
        not interrupted, because they continue meanwhile.
    rounds : int
        Rounds to simulate of each load that may be the fastest.
    cost, seed, interrupted
        As in `fastgc.simulation.simulate`.
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``).
    after_each : callable
        Called after each code, with the plan so far.

    Raises
    ------
    ValueError
        If a parameter is impossible, or if no code fits; the message says why.

    Examples
    --------
    >>> from fastgc import delays, planning
    >>> late = delays.Pareto(scale=0.005, shape=1.5)  # of each worker in a round, in seconds
    >>> found = planning.plan(20, late, cost=2e-4, memory=5, codes=["rs", "uncoded"], rounds=500)
    >>> found.best.code
    ReedSolomon(n=20, k=20, stragglers=4)
    """
    if codes is None:
        codes = CODES
    n, p = at_least("n", n, 1), at_least("p", p, 1)
    k = n if k is None else at_least("k", k, 1)
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    overhead, allowed = check_real("overhead", overhead), check_real("residual", residual)
    bandwidth = check_real("bandwidth", bandwidth, positive=True, infinite=True)
    memory = k if memory is None else check_integer("memory", memory)
    if memory * n < k:
        raise ValueError(
            f"memory={memory}: {n} workers must hold {k} partitions, which takes at least "
            f"{-(-k // n)} for some of them"
        )
    codes = _distinct(codes, n, k)
    least = check_stragglers(stragglers, n)
    check_cost(n, cost)
    listed = None if speeds is None else check_speeds(speeds, n).tolist()
    check_model(delays)
    if delays is not None:
        sample(delays, 0, n, seed)  # raises if the delays are for another number of workers
    how = {"cost": cost, "rounds": rounds, "seed": seed, "interrupted": interrupted}
    limits = (p, bandwidth, memory, allowed, least, overhead)
    trials = _Trials(n, k, delays, *limits, listed, how, _Meter(p))
    choices, refused = list[Choice](), dict[str, str]()

    def found() -> Plan:
        within, beyond = ([e for e in choices if e.near is near] for near in (True, False))
        return Plan(_ranked(within) + _ranked(beyond), refused)

    shown: AbstractContextManager[Callable[[], None]] = nullcontext(lambda: None)
    if progress:
        from .._base.progress import task_bar

        shown = task_bar("planning", 2 * _GRID * len(codes))
    with one_thread_of_blas(), shown as advance:
        for each in codes:
            search = _Search(each, trials, advance)
            search.run(n)
            choices += search.found
            if not search.found:
                refused[search.name] = search.refusal
            after_each(found())
    if not choices:
        raise ValueError(f"no code fits: {'; '.join(reasons(refused))}")
    return found()


def _distinct(codes: Sequence[str | Code], n: int, k: int) -> list[str | Code]:
    """Check codes and names; return each once."""
    if isinstance(codes, str):
        raise ValueError(f"codes must be a sequence of names, not the text {codes!r}")
    if not codes:
        raise ValueError("name at least one code")
    distinct = list(dict.fromkeys(codes))
    for each in distinct:
        if not isinstance(each, Code):
            catalogue.check_name(each)
        elif (each.n, each.k) != (n, k):
            raise ValueError(f"{each!r} has n={each.n}, k={each.k}, not n={n}, k={k}")
    return distinct


@dataclass(frozen=True)
class _Trials:
    """The arguments of `plan`; `how` holds those that go to `simulate`."""

    n: int
    k: int
    delays: DelayModel | None
    p: int
    bandwidth: float
    memory: int
    allowed: float
    least: int  # stragglers to tolerate
    overhead: float
    speeds: list[float] | None
    how: dict[str, Any]
    meter: _Meter

    def make(self, name: str | Code, stragglers: int) -> Code:
        """Make the code; raise ValueError if it does not fit."""
        seed = self.how["seed"]
        code = name if isinstance(name, Code) else made(name, self.n, self.k, stragglers, seed)
        if code.scheme.holders.stored > self.memory:
            raise ValueError(
                f"a worker must hold {code.scheme.holders.stored} partitions, and memory is "
                f"{self.memory}"
            )
        if self.least and (code.stragglers is None or code.stragglers < self.least):
            known = code.stragglers is not None
            answer = "no load tolerates" if known else "it is not known whether it tolerates"
            raise ValueError(f"{answer} {self.least} stragglers")
        require_mean(code, self.delays, self.how["interrupted"])
        return code

    def ways(self, name: str | Code) -> list[str | Code]:
        """Return the code without speeds and, if it takes them, in all ways with speeds."""
        ways = [name]
        if self.speeds is not None and isinstance(name, str):
            listed = f"{name}:speeds={'/'.join(map(repr, self.speeds))}"
            ways += [listed + more for more in _BY_SPEED.get(name, [])]
        return ways

    def judge(self, name: str, code: Code) -> Choice:
        """Time the decoding of a code, and simulate some of its rounds."""
        every = self.how["rounds"]
        sets = [np.array(heard) for heard in random_arrivals(code.scheme, _SETS, seed=0)]
        decode = self.meter.decode_seconds(code, sets)
        return self.simulated(name, code, sets, decode, min(max(every // _SOME, _LEAST), every))

    def simulated(
        self, name: str, code: Code, sets: Sequence[Ints], decode: float, rounds: int
    ) -> Choice:
        """Simulate rounds of a code that takes so long to decode."""
        receive = 8 * self.p * code.scheme.message_weight / self.bandwidth
        overhead = self.overhead + (decode if decode < math.inf else 0.0)
        how = {**self.how, "receive": receive, "overhead": overhead, "rounds": rounds}
        run = simulate(code, dealt(self.delays, code), **how)
        time, error = run.mean + decode, run.standard_error
        return Choice(name, code, time, error, run.mean, decode, run, sets, self.allowed)

    def settled(self, found: list[Choice]) -> list[Choice]:
        """Simulate all rounds of the choices that may be the fastest of these, or approximate."""
        latest = (c.time + _SURE * c.standard_error for c in found if c.near)
        fastest, every = min(latest, default=math.inf), self.how["rounds"]
        return [
            self.simulated(c.name, c.code, c._sets, c.decode, every)
            if c.simulation.times.size < every
            and (c.time - _SURE * c.standard_error <= fastest or c.simulation.residuals is not None)
            else c
            for c in found
        ]


def made(name: str, n: int, k: int | None, stragglers: int, seed: int) -> Code:
    """Make a code by name, without the warning of instability, which results report."""
    with warnings.catch_warnings(), unasked():
        warnings.simplefilter("ignore", InstabilityWarning)
        return catalogue.make(name, n, k, stragglers, seed)


def trusted_error(code: Code, survivors: Ints) -> float:
    """Return the relative error that `Code.trust` predicts; Inf if no vector is in float64."""
    try:
        return code.trust(survivors).relative_error
    except OverflowError:
        return math.inf


def reasons(refused: Mapping[str, str]) -> list[str]:
    """Return the reasons why codes do not fit, each once, after the codes to which it applies."""
    codes: dict[str, list[str]] = {}
    for name, why in refused.items():
        codes.setdefault(why, []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in codes.items()]


class _Search:
    """Tries loads of one code, first over all, then around the best."""

    def __init__(self, code: str | Code, trials: _Trials, advance: Callable[[], None]) -> None:
        self.name = code if isinstance(code, str) else repr(code)
        self._ways, self._trials, self._advance = trials.ways(code), trials, advance
        self.found: list[Choice] = []
        self.refusal = ""

    def run(self, n: int) -> None:
        most = _FEW if self.name.partition(":")[0] == "reactive" else _GRID
        grid = np.unique(np.round(np.geomspace(1, n, most)).astype(int) - 1).tolist()
        times = self._times(grid)
        best = int(np.argmin(times))
        near: list[int] = []
        if times[best] < math.inf:
            low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
            near = np.unique(np.linspace(low, high, most).astype(int)).tolist()
        self._times(near)

    def _times(self, stragglers: list[int]) -> list[float]:
        """Return the least time for each number of stragglers; make half of a code's progress."""
        tried = []
        for s in stragglers:
            tried.append([at for way in self._ways if (at := self._try(way, s)) is not None])
            self._advance()
        for _ in range(_GRID - len(stragglers)):
            self._advance()
        self.found = self._trials.settled(self.found)
        times = [each.time if each.near else math.inf for each in self.found]
        return [min((times[at] for at in some), default=math.inf) for some in tried]

    def _try(self, way: str | Code, stragglers: int) -> int | None:
        """Return the number of the code's choice; None if the code does not fit."""
        try:
            code = self._trials.make(way, stragglers)
        except ValueError as error:
            self.refusal = self.refusal or str(error)
            return None
        for at, choice in enumerate(self.found):  # several s may make the same code
            if _same(code, choice.code):
                return at
        self.found.append(self._trials.judge(self.name, code))
        return len(self.found) - 1


def _same(code: Code, other: Code) -> bool:
    """Whether the workers of both codes hold and send the same, as far as this is cheap to tell."""
    sizes, others = (
        (c.load, c.scheme.messages.count, c.scheme.holders.stand_ins) for c in (code, other)
    )
    if sizes != others:
        return False
    if repr(code) == repr(other):
        return True
    if not np.array_equal(code.scheme.loads, other.scheme.loads):  # faster than fingerprints
        return False
    small = code.n * code.load <= _TOLD_APART
    return small and fingerprint(code.scheme) == fingerprint(other.scheme)


class _Meter:
    """Times decoding on this machine."""

    def __init__(self, p: int) -> None:
        count = 16
        timed = min(p, _TIMED_BYTES // (8 * count))  # beyond this, time is proportional to p
        rows = np.ones((count, timed))
        out, vector = np.empty(timed), np.ones(count)
        prepared = kernels.Rows.of(rows, timed, rows.dtype)
        task = partial(kernels.unchecked.combine, kernels.REAL, prepared, vector, out)
        seconds = float(np.median(repeat(task, number=1, repeat=5)))
        self._per_row = seconds / count * (p / timed)

    def decode_seconds(self, code: Code, sets: Sequence[Ints]) -> float:
        """Return the median seconds to compute a decoding vector and combine the messages it uses.

        Return Inf if the code has no decoding vector in float64.
        """
        decoder = code.decoder()
        seconds: list[float] = []
        try:
            decoder(sets[0])  # not timed: the first call also prepares the decoder
            for survivors in sets:
                if sum(seconds) > _TIMED:
                    break
                start = time.perf_counter()
                vector = decoder(survivors)
                elapsed = time.perf_counter() - start
                read = np.count_nonzero(vector) * code.scheme.message_weight
                seconds.append(elapsed + self._per_row * read)
        except OverflowError:
            return math.inf
        return float(np.median(seconds))
