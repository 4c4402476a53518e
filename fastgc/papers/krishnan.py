"""Krishnan, Ebrahimi, Khisti (ICLR 2023): schemes on their published profiles of AWS Lambda."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._files import opened
from ..codes import FractionalRepetition, ReedSolomon, Uncoded
from ..delays import Empirical
from ..plotting.panels import Line, Panel
from ..sequential import (
    MSGC,
    SRSGC,
    Independent,
    SequentialRun,
    simulate_sequential,
)
from ..sequential.scheme import SequentialScheme
from .figure import (
    Part,
    Recorded,
    Row,
    Timed,
    Track,
    coded,
    figure,
    needs_data,
    overall,
    panel,
    ratio_interval,
    rows_of,
    verdict,
)

__all__ = ["NAME", "loads", "profiles", "read_profile"]

Array = NDArray[np.float64]

NAME = "krishnan2023"
_WHERE = "github.com/mamaj/Sequential-Gradient-Coding-2"
_WHAT = "the folder delay_profiles, or one in it,"

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


def read_profile(path: Path) -> Array:
    """Read the seconds of each worker in each round, (rounds, workers), from a ``.pkl`` file.

    They are the raw times from a request to its answer, ``finished - started``. Nothing else in the
    file is used, and nothing in it is run.

    Raises
    ------
    ValueError
        If the file is not such a profile; the message says why.
    """
    what = f"delay profile of {_WHERE}"
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


class _Experiment(NamedTuple):
    """Profiles that differ only in the load."""

    name: str
    files: dict[float, Path]  # by load, as a part of all data


def _experiments(data: str | Path | None) -> list[_Experiment]:
    if data is None:
        raise needs_data(NAME, _WHAT, _WHERE)
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
    usable = [
        _Experiment(name, files) for name, files in found.items() if 0.0 in files and len(files) > 1
    ]
    if not usable:
        raise ValueError(
            f"{folder} has no profiles of an empty round and of another load, such as "
            f"w256-n30-l0_000-b2048-cno_forloop-Canada.pkl: {NAME} takes {_WHAT} of {_WHERE}"
        )
    return usable


def _recorded(experiment: _Experiment) -> tuple[Recorded, str]:
    """Return times of workers without load, with the time a partition adds, and a note on both."""
    times = {load: read_profile(path) for load, path in sorted(experiment.files.items())}
    if len({each.shape[1] for each in times.values()}) > 1:
        raise ValueError(f"{experiment.name}: its profiles are of different numbers of workers")
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
    name = re.sub("sam-gc-|_profile|_est|, batch.*", "", experiment.name)
    delays = Empirical(np.maximum(times[least] - least * slope, 0.0))
    return Recorded(name, delays, slope / delays.samples.shape[1]), note


def _line(loads: list[float], medians: dict[float, float]) -> tuple[float, float]:
    """Return slope and start of the line nearest to the medians, by least squares."""
    slope, start = np.polyfit(loads, [medians[load] for load in loads], 1).tolist()
    return slope, start


@figure(NAME, "Krishnan et al. 2023: AWS Lambda, recorded rounds")
def profiles(*, data: str | None = None, seed: int = 0, track: Track = iter) -> Iterator[Part]:
    """Seconds per gradient on the published profiles: our codes, and the authors' schemes.

    `data` is the folder ``delay_profiles`` of the authors' repository, or a folder in it. `seed` is
    the seed of random codes and of the bootstrap.
    """
    found = []
    for experiment in track(_experiments(data)):
        recorded, note = _recorded(experiment)
        timed = [
            Timed(name, code.load, recorded.seconds(code), note=f"{note} {_OURS}")
            for name, code in coded(recorded.workers, seed)
        ]
        theirs = list(_authors(recorded, note))
        yield from rows_of(NAME, recorded.name, [*timed, *theirs], seed)
        yield verdict(NAME, recorded.name, timed, seed)
        if recorded.workers == _WORKERS and _LIKE_TABLE.match(recorded.name):
            yield from _published(recorded, timed[0], seed)
        drawn = [each for each in theirs if each.name.endswith(_PUBLISHED)]
        yield panel(recorded.name, [*timed, *drawn])
        found.append([*timed, *theirs])
    if len(found) > 1:
        yield from overall(NAME, found, seed)


def _run(
    recorded: Recorded,
    scheme: SequentialScheme,
    mu: float,
    wait: Literal["jobs", "model"] = "jobs",
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
                f"{NAME} {recorded.name}",
                f"{name}{_PUBLISHED}{rule}: over uncoded",
                each.mean / uncoded.mean,
                said,
                note=note,
                interval=ratio_interval(each, uncoded, seed),
            )


@figure("krishnan-loads", "Krishnan et al. 2023: loads of 256 workers")
def loads() -> Iterator[Part]:
    """Loads of the schemes in the authors' table of 256 workers, beside the printed loads."""
    claim = partial(Row, f"{NAME} table", note="as the authors' notebook results.ipynb prints it")
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
    kinds = {"GC": _gc, "SR-SGC": _srsgc, "M-SGC": _msgc}
    for mu, rule in _RULES.items():
        for name, schemes in kinds.items():
            runs = ((s, _run(recorded, s, mu)) for s in schemes(recorded.workers))
            tried = [(run.seconds_per_job, scheme.load, run) for scheme, run in runs if run]
            if not tried:
                continue
            _, load, run = min(tried, key=lambda each: each[0])
            said = f"{note} {_THEIRS.format(count=len(tried), rule=rule)}"
            scale = run.rounds.size / run.done.size
            yield Timed(f"{name}{_MU.format(mu)}", load, run.rounds, scale, said, True)


def _gc(n: int) -> Iterator[SequentialScheme]:
    for s in (s for s in (*_STRAGGLERS, 15) if s < n):
        code = FractionalRepetition if n % (s + 1) == 0 else ReedSolomon
        yield Independent(code(n, stragglers=s))


def _srsgc(n: int) -> Iterator[SequentialScheme]:
    for burst, window in _PATTERNS:
        for s in (s for s in _STRAGGLERS if s <= n):
            yield SRSGC(n, burst=burst, window=window, stragglers=s)


def _msgc(n: int) -> Iterator[SequentialScheme]:
    for burst, window in _PATTERNS:
        for s in (s for s in _STRAGGLERS if s < n):
            yield MSGC(n, burst=burst, window=window, stragglers=s)
