"""Times that others recorded and published, with codes and their authors' schemes on them.

Krishnan, Ebrahimi, Khisti (ICLR 2023): schemes on profiles of AWS Lambda. Lin et al. (OSDI 2025),
stragglers in large model training: codes between the ranks of traces.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from .._base.arrays import Array, Floats
from .._base.files import opened, read_parquet
from ..codes import Code, FractionalRepetition, ReedSolomon, Uncoded, catalogue
from ..coding.arguments import unasked
from ..delays import Empirical
from ..planning.simulation import simulate
from ..plotting.panels import Line, Panel, Style
from ..sequential import MSGC, SRSGC, Independent, SequentialRun, simulate_sequential
from ..sequential.scheme import SequentialScheme
from .figure import Part, Row, Track, figure, times_alone

KRISHNAN, BYTEDANCE = "krishnan2023", "bytedance2025"


_PROFILES, _TRACES = (
    "github.com/mamaj/Sequential-Gradient-Coding-2",
    "github.com/ByteDance-Seed/StragglerAnalysis",
)
_TAKES = {
    KRISHNAN: f"the folder delay_profiles, or one in it, of {_PROFILES}",
    BYTEDANCE: f"the folder data, or a trace-*.parquet in it, of {_TRACES}",
}

_CODES = ("rs", "rs-clustered", "binary", "fractional", "bcc")
_RESAMPLED = 2000
_LEVELS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded rounds."""

    name: str
    delays: Empirical  # times at one load; rounds are replayed in this order
    cost: float = 0.0  # seconds that each partition adds

    @property
    def workers(self) -> int:
        """Number of workers."""
        return int(self.delays.samples.shape[1])

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.delays.samples)

    def seconds(self, code: Code) -> Floats:
        """Return the seconds of each round until the gradient could be decoded."""
        return simulate(code, _Replayed(self.delays), cost=self.cost, rounds=self.rounds).times


class _Replayed:
    """A delay model that replays recorded rounds once, one after the other."""

    def __init__(self, delays: Empirical) -> None:
        self.per, self._times = delays.per, delays.samples

    def sample(self, round: int, workers: int, seed: int) -> Floats:
        times: Floats = self._times[round]
        return times

    def tail_indices(self, workers: int) -> Floats:
        return np.full(workers, np.inf)


def _resampled(seconds: Floats, seed: int) -> Floats:
    """Return means of rounds drawn with replacement; equal seeds draw equal rounds."""
    drawn = np.random.default_rng(seed).integers(seconds.size, size=(_RESAMPLED, seconds.size))
    means: Floats = seconds[drawn].mean(axis=1)
    return means


def _between(means: Floats) -> tuple[float, float]:
    low, high = np.quantile(means, _LEVELS).tolist()
    return low, high


def interval(seconds: Floats, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean, by a bootstrap over rounds."""
    return _between(_resampled(seconds, seed))


def ratio_interval(one: Timed, other: Timed, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of times on the same rounds, by a bootstrap."""
    first, second = (each.scale * _resampled(each.seconds, seed) for each in (one, other))
    return _between(first / second)


def coded(n: int, seed: int) -> Iterator[tuple[str, Code]]:
    """Yield the codes to compare, at loads that double; the first waits for all workers."""
    yield "uncoded", catalogue.make("uncoded", n, None, 0, seed)
    loads = range(2, n + 1) if n <= 8 else [2**i for i in range(1, 8) if 2**i < n]
    for name in _CODES:
        made = set()
        for load in loads:
            try:
                with times_alone(), unasked():
                    code = catalogue.make(name, n, None, load - 1, seed)
            except ValueError:  # fractional repetition needs s + 1 to divide n
                continue
            if code.load not in made:
                made.add(code.load)
                yield name, code


@dataclass(frozen=True, eq=False)
class Timed:
    """The times of a scheme. A gradient takes the mean of `seconds`, times `scale`."""

    name: str
    load: float  # in partitions
    seconds: Floats  # of each round
    scale: float = 1.0  # rounds per gradient
    note: str = ""
    picked: bool = False  # whether the load was picked for these rounds

    @property
    def mean(self) -> float:
        """Seconds per gradient."""
        return self.scale * float(self.seconds.mean())


def rows_of(figure: str, recorded: str, timed: Iterable[Timed], seed: int) -> Iterator[Row]:
    """Yield a row for each scheme, with seconds per gradient and their interval."""
    for each in timed:
        what = f"{each.name}, load {each.load:.3g}: s per gradient"
        between = interval(each.scale * each.seconds, seed)
        yield Row(f"{figure} {recorded}", what, each.mean, note=each.note, interval=between)


def overall(figure: str, found: list[list[Timed]], seed: int) -> Iterator[Row]:
    """Yield, for each scheme, the ratio of its time to that of waiting for all workers.

    It is the geometric mean over recordings. Its interval is by a bootstrap over recordings, and
    over the rounds of each.
    """
    rng = np.random.default_rng(seed)
    logs: dict[str, list[Floats]] = {}
    for timed in found:
        plain = timed[0]
        drawn = rng.integers(plain.seconds.size, size=(_RESAMPLED, plain.seconds.size))
        for each in timed[1:]:
            label = each.name if each.picked else f"{each.name}, load {each.load:.3g}"
            both = [
                np.append(t.mean, t.scale * t.seconds[drawn].mean(axis=1)) for t in (each, plain)
            ]
            logs.setdefault(label, []).append(np.log(both[0] / both[1]))
    for label, each_log in logs.items():
        if len(each_log) < len(found):
            continue
        table = np.array(each_log)
        picked = rng.integers(len(found), size=(len(found), _RESAMPLED))
        means = np.take_along_axis(table[:, 1:], picked, axis=0).mean(axis=0)
        low, high = np.exp(np.quantile(means, _LEVELS)).tolist()
        ratio = float(np.exp(table[:, 0].mean()))
        what = f"{label}: over uncoded, geometric mean"
        yield Row(f"{figure} all {len(found)}", what, ratio, interval=(low, high))


def verdict(figure: str, recorded: str, timed: list[Timed], seed: int) -> Row:
    """Return a row that compares the fastest code with waiting for all, on the same rounds."""
    uncoded = next(each for each in timed if each.name == "uncoded")
    others = [each for each in timed if each.load > uncoded.load]
    best = min(others, key=lambda each: each.mean)
    ratio = best.mean / uncoded.mean
    slower = sum(each.mean > uncoded.mean for each in others)
    if ratio >= 1:
        note = "Coding loses here: no code is as fast as waiting for all."
    elif slower:
        note = f"Of {len(others)} codes and loads, {slower} are slower than waiting for all."
    else:
        note = ""
    return Row(
        f"{figure} {recorded}",
        f"fastest code ({best.name}, load {best.load:.3g}) over uncoded",
        ratio,
        note=note,
        interval=ratio_interval(best, uncoded, seed),
    )


def panel(recorded: str, timed: list[Timed]) -> Panel:
    """Return a panel of seconds per gradient against load."""
    lines = []
    for name in dict.fromkeys(each.name for each in timed):
        mine = [each for each in timed if each.name == name]
        style: Style = "points" if len(mine) == 1 else "joined"
        loads, seconds = (np.array([getattr(e, key) for e in mine]) for key in ("load", "mean"))
        # A code gets its name in tables; anything else keeps its own.
        shown = catalogue.describe(name) if name in catalogue.names() else name
        lines.append(Line(shown, loads, seconds, style))
    x_label = "load (partitions per worker)"
    return Panel(recorded, x_label, "seconds per gradient", lines, log_x=True)


# ---------------------------------------------------------------------- Krishnan et al. 2023

_FILE = re.compile(r"w(\d+)-n(\d+)-l(\d+)_(\d+)-b(\d+)-c(\w+)-([A-Za-z]+)")
_STRAGGLERS = (2, 4, 8, 12, 16, 23, 27, 39, 52)  # lambda, including the paper's choices
_PATTERNS = ((1, 2), (1, 3), (2, 3))  # B and W

_NOTE = (
    "Workers' recorded times of {}, and the time that their load adds, by least squares of the "
    "medians at all loads. Without decoding."
)
_ALIKE = 0.5  # relative difference allowed between an empty round and the line by other loads
_OURS = "A round ends when its gradient can be decoded."
_THEIRS = (
    "The parameters that are best on these very rounds, of {count} tried. {rule} The rounds at the "
    "end in which no job begins are counted."
)
_MU = ", mu = {:g}"
_PUBLISHED = _MU.format(1)
_RULES = {
    1.0: "A round lasts twice the fastest worker's time at least, mu = 1, as the authors had it.",
    0.0: "mu = 0: a round ends as soon as it may.",
}

# The authors' table for 256 workers, as their notebook results.ipynb prints it: the load as a part
# of all data, and the seconds of all rounds of 496 jobs, mean of ten runs.
_WORKERS = 256
_TABLE: dict[str, tuple[Callable[[], SequentialScheme], float, float]] = {
    "M-SGC, B = 1, W = 2, λ = 27": (
        lambda: MSGC(_WORKERS, burst=1, window=2, stragglers=27),
        0.007543,
        916.37,
    ),
    "SR-SGC, B = 2, W = 3, λ = 23": (
        lambda: SRSGC(_WORKERS, burst=2, window=3, stragglers=23),
        0.050781,
        1019.46,
    ),
    "gradient code, s = 15": (
        lambda: Independent(FractionalRepetition(_WORKERS, stragglers=15)),
        0.0625,
        1095.14,
    ),
    "uncoded": (lambda: Independent(Uncoded(_WORKERS)), 0.003906, 1321.18),
}
_LIKE_TABLE = re.compile(r"cnn\S* Canada")
_OTHER_ROUNDS = (
    "Both by the authors' rule: where a pattern is not of the model, all workers are waited for. "
    "Their number is of 500 other rounds, each at the scheme's own load; of ten such runs one is "
    "in their repository."
)
_SOONER = "Rounds of the row above, until all jobs can still be done, and no longer."


class _Plain(pickle.Unpickler):
    """An unpickler of numbers, texts, lists and dicts that runs nothing that a file names."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy.core.multiarray", "scalar"): _number,
            ("numpy._core.multiarray", "scalar"): _number,
            ("numpy", "dtype"): _Kind,
            ("builtins", "list"): list,
        }
        try:
            return known[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


class _Kind:
    """Stands in for a NumPy dtype; stores its text."""

    def __init__(self, text: str, *_: object) -> None:
        self.text = text

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.text = f"{state[1]}{self.text}"


def _number(kind: _Kind, held: bytes) -> float:
    return float(np.frombuffer(held, np.dtype(kind.text.replace("|", "")))[0])


def read_profile(path: Path) -> Floats:
    """Read the seconds of each worker in each round, (rounds, workers), from a ``.pkl`` file.

    They are the raw times from a request to its answer, ``finished - started``. Nothing else in the
    file is used, and nothing in it is run. Raises ValueError if the file is not such a profile.
    """
    what = f"delay profile of {_PROFILES}"
    with opened(path, what) as file:
        held = _Plain(file).load()
        rows = []
        for number, one in enumerate(held):
            results = sorted(one["results"], key=lambda result: result["worker_id"])
            rows.append([float(each["finished"]) - float(each["started"]) for each in results])
            if len(rows[-1]) != len(rows[0]):
                raise ValueError(f"round {number} has {len(rows[-1])} workers, not {len(rows[0])}")
        times = np.array(rows)
        if times.ndim != 2 or not times.size or not ((times > 0) & np.isfinite(times)).all():
            raise ValueError("it must hold positive times")
    return times


def _experiments(data: str | Path | None) -> dict[str, dict[float, Path]]:
    """Return the profiles of each experiment, by load as a part of all data."""
    if data is None:
        raise ValueError(f"{KRISHNAN} needs data=PATH (--data PATH), {_TAKES[KRISHNAN]}")
    folder = Path(data)
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {folder}")
    found: dict[str, dict[float, Path]] = {}
    for path in sorted(folder.rglob("*.pkl") if folder.is_dir() else []):
        named = _FILE.fullmatch(path.stem)
        if named is None:  # another experiment, or one with a code
            continue
        workers, rounds, whole, part, batch, _, region = named.groups()
        folder_name = path.parent.name
        key = f"{folder_name} {region}, {workers} workers, {rounds} rounds, batch {batch}"
        found.setdefault(key, {})[float(f"{whole}.{part}")] = path
    usable = {name: files for name, files in found.items() if 0.0 in files and len(files) > 1}
    if not usable:
        raise ValueError(
            f"{folder} has no profiles of an empty round and of another load, such as "
            f"w256-n30-l0_000-b2048-cno_forloop-Canada.pkl: {KRISHNAN} takes {_TAKES[KRISHNAN]}"
        )
    return usable


def _recorded(experiment: str, files: dict[float, Path]) -> tuple[Recorded, str]:
    """Return times of workers without load, with the time a partition adds, and a note on both."""
    times = {load: read_profile(path) for load, path in sorted(files.items())}
    if len({each.shape[1] for each in times.values()}) > 1:
        raise ValueError(f"{experiment}: its profiles are of different numbers of workers")
    medians = {load: float(np.median(each)) for load, each in times.items()}
    note = _NOTE.format("an empty round")
    loaded = [load for load in times if load > 0]
    if len(loaded) > 1:
        start = _line(loaded, medians)[1]
        if not abs(medians[0.0] - start) <= _ALIKE * start:
            # Empty rounds are not comparable; they may not even load the model.
            del times[0.0]
            note = _NOTE.format(
                f"rounds of load {loaded[0]:g} of all data, less what that took (an empty round, "
                "of which the median is far from all others, is not used)"
            )
    least = min(times)
    slope = max(_line(list(times), medians)[0], 0.0)
    name = re.sub("sam-gc-|_profile|_est|, batch.*", "", experiment)
    delays = Empirical(np.maximum(times[least] - least * slope, 0.0))
    return Recorded(name, delays, slope / delays.samples.shape[1]), note


def _line(loads: list[float], medians: dict[float, float]) -> tuple[float, float]:
    """Return slope and start of the line nearest to the medians, by least squares."""
    slope, start = np.polyfit(loads, [medians[load] for load in loads], 1).tolist()
    return slope, start


@figure(KRISHNAN, "Krishnan et al. 2023: AWS Lambda, recorded rounds")
def profiles(*, data: str | None = None, seed: int = 0, track: Track = iter) -> Iterator[Part]:
    """Seconds per gradient on the published profiles: our codes, and the authors' schemes.

    `data` is the folder ``delay_profiles`` of the authors' repository, or a folder in it. `seed` is
    the seed of random codes and of the bootstrap.
    """
    found = []
    for experiment in track(list(_experiments(data).items())):
        recorded, note = _recorded(*experiment)
        timed = [
            Timed(name, code.load, recorded.seconds(code), note=f"{note} {_OURS}")
            for name, code in coded(recorded.workers, seed)
        ]
        theirs = list(_authors(recorded, note))
        yield from rows_of(KRISHNAN, recorded.name, [*timed, *theirs], seed)
        yield verdict(KRISHNAN, recorded.name, timed, seed)
        if recorded.workers == _WORKERS and _LIKE_TABLE.match(recorded.name):
            yield from _published(recorded, timed[0], seed)
        drawn = [each for each in theirs if each.name.endswith(_PUBLISHED)]
        yield panel(recorded.name, [*timed, *drawn])
        found.append([*timed, *theirs])
    if len(found) > 1:
        yield from overall(KRISHNAN, found, seed)


def _run(
    recorded: Recorded, scheme: SequentialScheme, mu: float, wait: Literal["jobs", "model"] = "jobs"
) -> SequentialRun | None:
    """Run a scheme on the recorded rounds; return None if they are too few for one of its jobs."""
    if scheme.delay >= recorded.rounds:
        return None
    times = recorded.delays.samples
    return simulate_sequential(times, scheme, mu=mu, load_slope=recorded.cost, at_load=0, wait=wait)


def _published(recorded: Recorded, uncoded: Timed, seed: int) -> Iterator[Row]:
    """Yield ratios of times of the schemes in the authors' table to that of waiting for all."""
    *schemes, (_, _, alone) = _TABLE.values()
    for name, (make, _, seconds) in zip(_TABLE, schemes, strict=False):
        scheme = make()
        rules: tuple[tuple[Literal["jobs", "model"], str, float | None, str], ...] = (
            ("model", "", seconds / alone, _OTHER_ROUNDS),
            ("jobs", ", ended sooner", None, _SOONER),
        )
        for wait, rule, said, note in rules:
            run = _run(recorded, scheme, 1, wait)
            if run is None:
                break
            each = Timed(name, scheme.load, run.rounds, run.rounds.size / run.done.size)
            yield Row(
                f"{KRISHNAN} {recorded.name}",
                f"{name}{_PUBLISHED}{rule}: over uncoded",
                each.mean / uncoded.mean,
                said,
                note=note,
                interval=ratio_interval(each, uncoded, seed),
            )


@figure("krishnan-loads", "Krishnan et al. 2023: loads of 256 workers")
def loads() -> Iterator[Part]:
    """Loads of the schemes in the authors' table of 256 workers, beside the printed loads."""
    claim = partial(
        Row, f"{KRISHNAN} table", note="as the authors' notebook results.ipynb prints it"
    )
    for name, (make, said, _) in _TABLE.items():
        yield claim(f"{name}: load, as a part of all data", make().load / _WORKERS, said)
    some = np.arange(3, 53, 4)
    kinds: dict[str, Callable[[int], SequentialScheme]] = {
        "M-SGC, B = 1, W = 2": lambda s: MSGC(_WORKERS, burst=1, window=2, stragglers=s),
        "SR-SGC, B = 2, W = 3": lambda s: SRSGC(_WORKERS, burst=2, window=3, stragglers=s),
        "gradient code": lambda s: Independent(ReedSolomon(_WORKERS, stragglers=s)),
    }
    lines = [
        Line(name, some, [make(s).load / _WORKERS for s in some.tolist()], "points")
        for name, make in kinds.items()
    ]
    title, y = (
        "256 workers, any λ of which straggle in a window",
        "load of a worker, part of all data",
    )
    yield Panel(title, "λ, of a gradient code s", y, lines, log_y=True)


def _authors(recorded: Recorded, note: str) -> Iterator[Timed]:
    """Yield the authors' schemes with the best parameters for each, with and without their rule."""
    n, codes = recorded.workers, []
    for s in (s for s in (*_STRAGGLERS, 15) if s < n):
        codes.append((FractionalRepetition if n % (s + 1) == 0 else ReedSolomon)(n, stragglers=s))
    some: list[dict[str, Any]] = [
        {"burst": burst, "window": window, "stragglers": s}
        for burst, window in _PATTERNS
        for s in _STRAGGLERS
        if s <= n
    ]
    kinds: dict[str, list[SequentialScheme]] = {
        "GC": [Independent(code) for code in codes],
        "SR-SGC": [SRSGC(n, **each) for each in some],
        "M-SGC": [MSGC(n, **each) for each in some if each["stragglers"] < n],
    }
    for mu, rule in _RULES.items():
        for name, schemes in kinds.items():
            runs = ((scheme, _run(recorded, scheme, mu)) for scheme in schemes)
            tried = [(run.seconds_per_job, scheme.load, run) for scheme, run in runs if run]
            if not tried:
                continue
            _, load, run = min(tried, key=lambda each: each[0])
            said = f"{note} {_THEIRS.format(count=len(tried), rule=rule)}"
            scale = run.rounds.size / run.done.size
            yield Timed(f"{name}{_MU.format(mu)}", load, run.rounds, scale, said, True)


# --------------------------------------------------------------------------- Lin et al. 2025

_COLUMNS = ("dp_rank", "stage", "step", "optype", "mb_id", "start_ts", "duration")
_FORWARD, _BACKWARD = _COMPUTE = ("forward-compute", "backward-compute")

_RANK = (
    "A worker is a data-parallel rank, a pipeline of {p} stages; its time is from the step's begin "
    "to the end of its last forward or backward computation. w partitions are w times its {m} "
    "microbatches, each taking what it took: the rank is slow, and not its data. The step gets "
    "longer by what the one-forward-one-backward schedule does. Without decoding and the exchange "
    "of gradients."
)


class Trace(NamedTuple):
    """The steps of a recorded job."""

    times: Floats  # seconds of each rank in each step, (steps, ranks)
    forward: Floats  # seconds of each computation, (steps, ranks, stages, microbatches)
    backward: Floats

    def seconds(self, loads: Sequence[int]) -> Floats:
        """Return the seconds of each rank in each step at these loads; the recorded load is 1."""
        longer = {w: makespan(self.forward, self.backward, w) for w in {1, *loads}}
        times = self.times.copy()
        for rank, w in enumerate(loads):
            times[:, rank] += (longer[w] - longer[1])[:, rank]
        return times


def one_forward_one_backward(
    stage: int, stages: int, microbatches: int
) -> Iterator[tuple[str, int]]:
    """Yield what a stage of a pipeline computes, in order: forward or backward, and the microbatch.

    A stage first does one forward computation for each stage after it, and then alternates. This is
    PipeDream-Flush (Narayanan et al. 2021, arXiv:2104.04473, figure 4), the order in all traces.
    """
    ahead = min(stages - 1 - stage, microbatches)
    for at in range(microbatches + ahead):
        if at < microbatches:
            yield _FORWARD, at
        if at >= ahead:
            yield _BACKWARD, at - ahead


def makespan(forward: Floats, backward: Floats, copies: int = 1) -> Floats:
    """Return the seconds of pipelines that compute all their microbatches `copies` times over.

    Durations have shape (..., stages, microbatches). Messages between stages take no time.
    """
    stages, recorded = forward.shape[-2:]
    orders = [
        list(one_forward_one_backward(stage, stages, copies * recorded)) for stage in range(stages)
    ]
    done: dict[tuple[str, int, int], Floats] = {}  # when a kind, stage and microbatch is done
    free = np.zeros((stages, *forward.shape[:-2]))  # when each stage is free
    following = [0] * stages  # next place in each stage's order
    while any(next_ < len(order) for next_, order in zip(following, orders, strict=True)):
        for at, order in enumerate(orders):
            while following[at] < len(order):
                kind, microbatch = order[following[at]]
                if kind == _FORWARD:
                    needed, took = (kind, at - 1, microbatch), forward
                elif at < stages - 1:
                    needed, took = (kind, at + 1, microbatch), backward
                else:
                    needed, took = (_FORWARD, at, microbatch), backward
                if needed[1] >= 0:
                    if needed not in done:
                        break  # another stage must compute it first
                    free[at] = np.maximum(free[at], done[needed])
                free[at] += took[..., at, microbatch % recorded]
                done[kind, at, microbatch] = free[at].copy()
                following[at] += 1
    ends: Floats = free.max(axis=0)
    return ends


def read_trace(path: Path) -> Trace:
    """Read steps of data-parallel ranks, and durations of their computations, from a parquet file.

    The time of a rank is from the first operation of the step to the end of its last computation.
    Raises ValueError if the file is not such a trace, or a rank does not compute each microbatch
    once in a step, and ImportError if PyArrow is not installed.
    """
    wrong = f"{path} is no trace of {_TRACES}"
    held = read_parquet(path, f"trace of {_TRACES}")
    lacking = [name for name in _COLUMNS if name not in held.column_names]
    if lacking:
        raise ValueError(
            f"{wrong}: it has no column {' and '.join(lacking)}, but {', '.join(held.column_names)}"
        )
    rank, stage, step, kind, microbatch, start, duration = (
        np.asarray(held[name].to_numpy()) for name in _COLUMNS
    )
    numbers = (rank, stage, step, microbatch, start, duration)
    if any(each.dtype.kind not in "iuf" or not np.isfinite(each).all() for each in numbers):
        raise ValueError(f"{wrong}: ranks, steps and times must be numbers, none missing")
    steps, at = np.unique(step, return_inverse=True)
    ranks, of = np.unique(rank, return_inverse=True)
    if not steps.size:
        raise ValueError(f"{wrong}: it has no operations")
    begin = np.full(steps.size, np.inf)
    np.minimum.at(begin, at, start.astype(np.float64))
    kind = kind.astype(str)
    computed = np.isin(kind, _COMPUTE)
    end = np.full((steps.size, ranks.size), -np.inf)
    ends: Array = start.astype(np.float64) + duration
    np.maximum.at(end, (at[computed], of[computed]), ends[computed])
    times: Floats = end - begin[:, None]
    if not (times > 0).all():
        i, j = np.argwhere(~(times > 0))[0].tolist()
        raise ValueError(f"{wrong}: rank {ranks[j]} computes nothing in step {steps[i]}")
    stages, stage = np.unique(stage[computed], return_inverse=True)
    microbatches, microbatch = np.unique(microbatch[computed], return_inverse=True)
    shape = (len(_COMPUTE), steps.size, ranks.size, stages.size, microbatches.size)
    backward = (kind[computed] == _BACKWARD).astype(int)
    each_one = (backward, at[computed], of[computed], stage, microbatch)
    counts = np.zeros(shape, dtype=int)
    np.add.at(counts, each_one, 1)
    if (counts != 1).any():
        b, i, j, s, m = np.argwhere(counts != 1)[0].tolist()
        raise ValueError(
            f"{wrong}: stage {stages[s]} of rank {ranks[j]} has {counts[b, i, j, s, m]} times "
            f"{_COMPUTE[b]} of microbatch {microbatches[m]} in step {steps[i]}; each stage of a "
            "pipeline must compute each microbatch once"
        )
    took = np.zeros(shape)
    took[each_one] = duration[computed]
    return Trace(times, *took)


def _files(data: str | None) -> list[Path]:
    if data is None:
        raise ValueError(f"{BYTEDANCE} needs data=PATH (--data PATH), {_TAKES[BYTEDANCE]}")
    path = Path(data)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    found = sorted(path.glob("trace-*.parquet")) if path.is_dir() else [path]
    if not found:
        raise ValueError(f"{path} has no trace-*.parquet: {BYTEDANCE} takes {_TAKES[BYTEDANCE]}")
    if path.is_file() and path.suffix != ".parquet":
        raise ValueError(f"{path} is no parquet file: {BYTEDANCE} takes {_TAKES[BYTEDANCE]}")
    return found


@figure(BYTEDANCE, "Lin et al. 2025: ByteDance's traces, recorded steps")
def traces(*, data: str | None = None, seed: int = 0, track: Track = iter) -> Iterator[Part]:
    """Seconds per gradient on the published traces, with codes between data-parallel ranks.

    `data` is the folder ``data`` of the authors' repository, or one trace in it. `seed` is the seed
    of random codes and of the bootstrap. Raises ImportError also if PyArrow is not installed.
    """
    for path in track(_files(data)):
        trace = read_trace(path)
        steps, ranks, stages, microbatches = trace.forward.shape
        name = f"{path.stem.removeprefix('trace-')}, {ranks} ranks, {steps} steps"
        if ranks < 2:
            raise ValueError(f"{path}: a single data-parallel rank has nobody to wait for")
        note = _RANK.format(p=stages, m=microbatches)
        timed = []
        for each, code in coded(ranks, seed):
            loads = [len(code.partitions(worker)) for worker in range(ranks)]
            recorded = Recorded(name, Empirical(trace.seconds(loads)))
            timed.append(Timed(each, code.load, recorded.seconds(code), note=note))
        yield from rows_of(BYTEDANCE, name, timed, seed)
        yield verdict(BYTEDANCE, name, timed, seed)
        yield panel(name, timed)
