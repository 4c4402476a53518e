"""``fastgc train``."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial as bind
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

import numpy as np
import typer

from .._base.arrays import check_word
from ..codes import Code, Grouped, Uncoded, catalogue
from ..coding.verify import MOST_LIARS
from . import options
from .common import TRAINING, Options, command, echo, help_all, is_given, option, status_of
from .options import Recorded, Size, Source, completes, named, size_of, source_of
from .output import Output, Picture

if TYPE_CHECKING:
    from ..engines import RoundOptions
    from ..stability import StabilityTracker
    from ..training.data import Dataset
    from ..training.history import History
    from ..training.models import LeastSquares, LinearRegression, SoftmaxRegression
    from ..training.optimizers import Optimizer
    from ..training.train import Training

Trained: TypeAlias = "SoftmaxRegression | LeastSquares | LinearRegression"

# Methods, and the default code of each.
METHODS = {
    "nesterov": "rs",
    "sgd": "uncoded",
    "adam": "uncoded",
    "cada": "repetition",
    "gcada": "repetition",
}
ADAPTIVE = ("cada", "gcada")
PARTIALS = ("raise", "best", "unbiased")
MOST_DRAWN = 8  # runs in one picture of timelines, at most
MANY = 4  # with fewer samples per class on average, labels may be numbers to predict
CODE = "Code and workers"  # a panel of the help with two classes of options


def _engines() -> Iterable[str]:
    from ..engines import ENGINES

    return ENGINES


class Codes(Options, panel=CODE):
    """The codes to train with."""

    help_all: bool = help_all()
    names: list[str] | None = options.codes(
        "The code, such as rs or bcc:load=5 or rs:clusters=auto,root=1; further ones, and methods, "
        "are compared with it, on the same delays. "
        f"Names: {', '.join(catalogue.BUILT_IN)}. With --groups each group "
        "has this code; it may then also be repetition, where every member has all the data of its "
        "group. A method's name stands for it with its usual code.",
        "rs; uncoded for sgd and adam; repetition and adam for cada and gcada",
    )


class Workers(Size, panel=CODE):
    """The numbers of workers, stragglers, partitions and groups."""

    partitions: int | None = options.partitions()
    groups: int | None = option(
        None,
        "Split workers and partitions into so many groups, each with its own code; -s then counts "
        "within a group. (default for gcada: groups of 4 workers or a few more)",
        min=1,
    )


class Data(Options, panel="Data and model"):
    """The data, and the model."""

    data: str = option(
        "digits",
        '"digits", a .npz file (arrays X and y, or X_train, y_train, X_test, y_test), or a folder '
        "with MNIST's four files.",
    )
    task: str = option(
        "auto",
        'What y holds: "classification", classes; "regression", targets, one or several per '
        'sample, which may be whole numbers; "auto", targets if y has fractions or several '
        "columns, else classes. For targets, tables and plots show the root mean squared error "
        "(RMSE) on the test set.",
    )
    by_label: bool = option(
        False,
        "Sort the training samples by label before they are split into partitions, as if each "
        "device saw only some classes. Ignoring workers then ignores classes.",
        "--by-label",
    )
    batch: int | None = option(
        None, "Samples drawn from each partition in a round. (default: all)", min=1
    )
    model: str = option(
        "auto",
        '"softmax" for classes; "least-squares" for classes or real-valued targets; or "auto": '
        "softmax for classes, unless a code needs least-squares.",
    )
    bias: bool = option(True, "Whether the model adds a bias to its scores.", "--bias/--no-bias")


class Method(Options, panel="Optimizer"):
    """The optimizer."""

    method: str = option(
        "nesterov",
        f"One of {', '.join(METHODS)}. adam is AMSGrad. cada and gcada are AMSGrad that asks only "
        "those workers (cada) or groups (gcada) for a new gradient whose last one may be outdated.",
        autocompletion=completes(METHODS.keys),
    )
    rounds: int = option(150, "Gradient steps.", min=1)
    lr: float | None = option(
        None, "Learning rate. (default: the model's own; 0.01 for adam, cada and gcada)"
    )
    c: float | None = option(
        None, "For cada and gcada: the larger c is, the fewer workers are asked. (default: 0.3)"
    )
    max_age: int | None = option(
        None, "For cada and gcada: rounds that a gradient may be old, D. (default: 10)", min=1
    )
    loss: float | None = option(
        None,
        "Stop a run as soon as its training loss is this low; methods are compared at this loss. "
        "(default: all --rounds; compared at the lowest loss that all reach)",
        min=0.0,
    )


class Engine(Options, panel="Engine, delays and messages"):
    """The workers, their delays and messages."""

    engine: str = option(
        "local",
        '"local": worker processes on this machine; "mpi": ranks of an MPI job, one more than '
        "workers, whose number need not be given (mpiexec -n 21 fastgc train --engine mpi); "
        '"torch": ranks of torchrun, also one more (torchrun --nproc-per-node 21 -m fastgc train '
        '...); "ray": Ray actors, on this machine or the cluster that RAY_ADDRESS names; '
        '"simulated": workers in simulated time, which counts only delays and --cost.',
        autocompletion=completes(_engines),
    )
    delays: str = options.delays(
        "pareto:scale=0.005,shape=1.1", "Delays added to each answer, in seconds"
    )
    cost: float = options.cost(
        "Seconds that simulated workers take for one partial gradient. Others take the time that "
        "they take."
    )
    seed: int = options.seed("Seed of the data's split, delays and random codes.")
    message_dtype: str | None = option(
        None,
        "Type of messages: float16, bfloat16, float32 or float64. (default: the data's)",
    )


class Times(Recorded, panel="Recorded times"):
    """Recorded times."""


class Faults(Options, panel="Workers that die or compute wrongly"):
    """The treatment of dead, corrupt and lying workers."""

    patience: float = option(
        10.0,
        "Seconds to wait for dead workers to restart where the others are too few; 0: do not "
        "restart them.",
        min=0.0,
    )
    partial: str = option(
        "raise",
        'What to do if these do not come back: "raise" an error, take the "best" approximation of '
        'the gradient, or the best "unbiased" one. Approximate codes decode every round by the '
        'best approximation, or by the best "unbiased" one. Of several, such as best,unbiased, '
        "approximate codes train with each, others with the first.",
    )
    verify: int = option(
        0,
        "Compare messages with each other by the code's parity checks, and leave out those of "
        "corrupt workers, at most so many in a round; 0: no checks.",
        min=0,
        max=MOST_LIARS,
        metavar="WORKERS",
    )
    limit: float | None = option(
        None,
        "With --verify: the largest error, relative to the gradient, that these workers may have "
        "caused unseen. (default: the root of the messages' precision)",
        min=0.0,
    )


class Shown(Options, panel="What is shown and drawn"):
    """The results to show and draw."""

    target: float | None = option(
        None,
        "Test error or RMSE; the table shows when a run reaches it. (default: 0.05, or the lowest "
        "RMSE that all reach)",
        min=0.0,
    )
    evaluate_every: int = option(
        1, "Compute loss and test error once in so many rounds, and after the last.", min=1
    )
    plot: Path | None = options.picture(
        "Plot test error or RMSE against time to this file. Approximate codes add losses, and what "
        "they leave out, against load. With cada, gcada or several methods, plot loss, "
        "communication and computation instead."
    )
    timeline: Path | None = options.picture(
        "Draw the first three rounds of each run to this file: who computed when, who was waited "
        "for, whose messages were decoded."
    )


class Histories(Output, panel="What is written"):
    """The files to write."""

    json_file: Path | None = options.figures(
        "json", "Write the history of every round to this file"
    )
    csv_file: Path | None = options.figures(
        "csv", "Write a line for every round, of times, losses and residuals, to this file as CSV"
    )
    latex: Path | None = options.latex()
    markdown: bool = options.markdown()
    width: str = options.width()
    title: str | None = options.title()


class Repeating(Options, panel="Going on, and decoding as before"):
    """Checkpoints to resume from, or a history to repeat."""

    checkpoint: Path | None = option(
        None,
        "Save the run in this folder. If it is interrupted, the same command resumes it. Each of "
        "several runs has a subfolder with its name.",
    )
    every: int | None = option(None, "Rounds between checkpoints. (default: 10)", min=1)
    replay: Path | None = option(
        None,
        "Decode from the same messages as an earlier run, whose history --json wrote to this file: "
        "the run with the same name, or the only one.",
    )


class Tracking(Options, panel="Precision of gradients"):
    """Tracking of the precision of gradients."""

    track: Path | None = option(
        None,
        "Write how precise each gradient is to this file, as JSON lines; with --plot, also draw "
        "it, to a second picture.",
    )
    measure_every: int = option(
        0, "Also measure the error itself, once in so many rounds; 0: never.", min=0
    )
    max_error: float | None = option(
        None, "Largest predicted error of a gradient that is accepted."
    )
    on_error: str = option(
        "warn", 'What to do above --max-error: "warn", "raise", or "wait" for more messages.'
    )


class Asked(
    Codes, Workers, Data, Method, Engine, Times, Faults, Shown, Histories, Repeating, Tracking
):
    """All options of the command."""


EXAMPLE = (
    "fastgc train rs uncoded ignore --by-label --engine simulated --rounds 50 "
    '--delays "16 of exponential:mean=0.01; 4 of exponential:mean=0.2"'
)


class _Job(NamedTuple):
    asked: Asked
    n: int
    s: int | None  # stragglers of all workers, or of each group; None: not given
    source: Source


@command(TRAINING, EXAMPLE)
def train(context: typer.Context, asked: Asked) -> None:
    """Train a model on workers that straggle, with coded gradients."""
    with _ranks(context, asked) as (serve, job):
        read = [asked.recorded, asked.replay, Path(asked.data)]
        asked.check(asked.plot, asked.timeline, _precision(asked), files=[asked.track], read=read)
        runs = _runs(job)
        if all(serve() for _ in runs):  # only the master goes on
            return
        _check(asked, runs)
        dataset = _dataset(asked)
        name, model = _model(asked, dataset, runs)
        target = _target(asked.target, dataset)
        prepared = _prepared(job, runs, dataset, model)
        _introduce(job, runs, dataset, name)
        histories: list[History] = []
        trackers: dict[str, StabilityTracker] = {}
        try:
            for name, run in prepared.items():
                if run.how.tracker is not None:
                    trackers[name] = run.how.tracker
                _run_whole(run, histories)
                if len(histories) < len(prepared):
                    asked.keep(*_figures(histories))
        finally:  # after an error or Ctrl-C as well, of the rounds before it
            _deliver(job, runs, histories, trackers, model, dataset, target)


def _run_whole(run: Training, histories: list[History]) -> None:
    """Run, and add the history to `histories`, also that of a run that ends early."""
    try:
        run.run()
    except BaseException as error:
        if done := len(run.history.rounds):
            error.add_note(f"the figures of {run.called} end with round {done} of {run.rounds}")
        raise
    finally:
        if run.history.rounds:
            histories.append(run.history)


@contextmanager
def _ranks(context: typer.Context, asked: Asked) -> Iterator[tuple[Callable[[], bool], _Job]]:
    """Yield `serve`, which makes a rank a worker of one run, and the job; check the engine first.

    An error of one rank ends all ranks.
    """
    from ..engines import ENGINES, find_engine

    engine = asked.engine
    check_word("--engine", engine, *ENGINES)
    serve = getattr(find_engine(engine), "serve", lambda: False)
    if engine not in _STARTED:
        for launcher in ("OMPI_COMM_WORLD", "PMI"):  # of Open MPI, and of MPICH
            rank, ranks = (os.environ.get(f"{launcher}_{what}", "1") for what in ("RANK", "SIZE"))
            if rank == "0" and ranks != "1":
                echo(
                    f"fastgc: warning: {ranks} ranks train the same, each by itself: --engine mpi "
                    "makes them one master and its workers",
                    err=True,
                )
    if engine != "mpi":  # torchrun ends all ranks by itself
        yield serve, _job(context, asked)
        return
    from mpi4py import MPI

    from ..engines.mpi import abort

    try:
        yield serve, _job(context, asked)
    except BaseException as error:
        if MPI.COMM_WORLD.rank != 0:
            time.sleep(1.0)  # mostly the master fails with the same error: let it report first
        abort(status_of(error))
        raise


def _job(context: typer.Context, asked: Asked) -> _Job:
    """Return the job, with as many workers as recorded, as given, or as ranks besides the master.

    Raises ValueError on the master if the workers need another number of ranks.
    """
    rank, ranks = _place(asked.engine)
    if rank:  # the master says what is read
        logging.getLogger("fastgc.delays").setLevel(logging.WARNING)
    source = source_of(context, asked)
    n = source.n
    if n is None and ranks > 1 and not is_given(context, "workers"):
        n = ranks - 1
    n, s = size_of(asked, n)
    if asked.engine in _STARTED and rank == 0 and ranks != n + 1:
        found = f"this job has {ranks}" if ranks else "this is no job of ranks"
        raise ValueError(
            f"--engine {asked.engine}: {n} workers need {n + 1} ranks, one of them the master, and "
            f"{found}: {_STARTED[asked.engine].format(n + 1)}"
        )
    said = asked.stragglers is not None or "/" in asked.workers
    return _Job(asked, n, s if said else None, source)


# Commands that start jobs of so many ranks.
_STARTED = {
    "mpi": "mpiexec -n {} fastgc train --engine mpi ...",
    "torch": "torchrun --nproc-per-node {} -m fastgc train --engine torch ... on one machine",
}


def _place(engine: str) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, which is 0 outside a job."""
    if engine == "mpi":
        from mpi4py import MPI

        return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    if engine == "torch":
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 0))
    return 0, 0


# ---------------------------------------------------------------------------------------- checks


def _check(asked: Asked, runs: Mapping[str, _Run]) -> None:
    """Raise ValueError for options of the command that do not go together."""
    kept = asked.checkpoint and asked.checkpoint.resolve()
    if kept and asked.track and kept in asked.track.resolve().parents:
        raise ValueError("--track must not write to the folder of --checkpoint")
    if asked.timeline is not None and len(runs) > MOST_DRAWN:
        raise ValueError(
            f"--timeline draws at most {MOST_DRAWN} runs in one picture, not {len(runs)}"
        )
    if asked.measure_every and asked.track is None:
        raise ValueError("--measure-every needs --track, a file to write the errors to")
    if asked.on_error != "warn" and asked.max_error is None:
        raise ValueError("--on-error needs --max-error, the error that is too much")
    check_word("--on-error", asked.on_error, "warn", "raise", "wait")
    if asked.every is not None and asked.checkpoint is None:
        raise ValueError("--every needs --checkpoint, a folder to keep the run in")
    adaptive = [name for name, each in runs.items() if each.method in ADAPTIVE]
    check_word("--model", asked.model, "auto", "softmax", "least-squares")
    if _needs_quadratic(runs) and asked.model not in ("auto", "least-squares"):
        raise ValueError(
            "Lagrange codes decode only gradients that are quadratic in the data: use "
            "--model least-squares"
        )
    if _is_tracked(asked) and adaptive:
        raise ValueError(f"the precision of {adaptive[0]} cannot be tracked: leave it out")
    for name in adaptive:
        from ..training.train import check_partial

        check_partial(name, runs[name].partial)
    for text, value in (("--c", asked.c), ("--max-age", asked.max_age)):
        if value is not None and not adaptive:
            raise ValueError(f"{text} is for the methods cada and gcada")


def _is_tracked(asked: Asked) -> bool:
    return asked.track is not None or asked.max_error is not None


def _differ_in_method(runs: Mapping[str, _Run]) -> bool:
    """Whether to compare what runs spend, because methods differ or are adaptive."""
    return len({each.method for each in runs.values()}) > 1 or any(
        each.method in ADAPTIVE for each in runs.values()
    )


def _wait_for_some(runs: Mapping[str, _Run]) -> bool:
    return any(each.code.scheme.wait is not None for each in runs.values())


# ------------------------------------------------------------------------------------------- runs


class _Run(NamedTuple):
    method: str
    code: Code
    partial: Any


def _runs(job: _Job) -> dict[str, _Run]:
    """Return runs by name: the main run, then those to compare it with."""
    asked, n, s, _ = job
    k, groups, method, seed = asked.partitions, asked.groups, asked.method, asked.seed
    partials = [each.strip() for each in asked.partial.split(",")]
    for each in partials:
        if each not in PARTIALS:
            raise ValueError(
                f'--partial must be "raise", "best" or "unbiased", or several of them, not {each!r}'
            )
    check_word("--method", method, *METHODS)
    items = named(asked.names) or [method, *(["adam"] if method in ADAPTIVE else [])]
    if groups is not None and "gcada" not in items and METHODS.keys() >= set(items):
        raise ValueError("--groups needs the method gcada, or a code to use in each group")
    hows = {item if item in METHODS else method for item in items}
    single = len(hows) == 1 and ("nesterov" in hows or not METHODS.keys() >= set(items))
    runs: dict[str, _Run] = {}
    for item in items:
        how, text = (item, METHODS[item]) if item in METHODS else (method, item)
        name = text if single else how if text == METHODS[how] else f"{how} {text}"
        if how == "cada":
            if text != "repetition":
                raise ValueError("cada asks single workers, without a code: use gcada")
            made: Code = Grouped.repetition(n, n, k)
        elif how == "gcada" or (groups is not None and item not in METHODS):
            fours = max((g for g in range(1, n) if n % g == 0 and n >= 4 * g), default=1)
            made = _grouped(text, n, k, s, groups or fours, seed)
        else:
            made = catalogue.make(text, n, k, n // 5 if s is None else s, seed)
        unscaled = not (isinstance(made, Uncoded) and made.rescale)  # a rescaled sum is unbiased
        if made.scheme.approximate and unscaled and len(partials) > 1:
            runs |= {f"{name} {each}": _Run(how, made, each) for each in partials}
        else:
            runs[name] = _Run(how, made, partials[0])
    return runs


def _grouped(text: str, n: int, k: int | None, s: int | None, groups: int, seed: int) -> Grouped:
    """Make a code with the same code in every group."""
    if text == "repetition":
        return Grouped.repetition(n, groups, k)
    for what, number in (("workers", n), ("partitions", n if k is None else k)):
        if number % groups:
            raise ValueError(f"{groups} groups need a multiple of {groups} {what}, not {number}")
    size = n // groups
    tolerates = min(1, size - 1) if s is None else s
    part = None if k is None else k // groups
    return Grouped([catalogue.make(text, size, part, tolerates, seed)] * groups)


def _needs_quadratic(runs: Mapping[str, _Run]) -> bool:
    return any(each.code.scheme.data.coded for each in runs.values())


def _dataset(asked: Asked) -> Dataset:
    from ..training import data

    check_word("--task", asked.task, *data.TASKS)
    task: Any = asked.task
    dataset = data.load(asked.data, seed=asked.seed, task=task)
    return dataset.by_label() if asked.by_label else dataset


def _model(asked: Asked, dataset: Dataset, runs: Mapping[str, _Run]) -> tuple[str, Trained]:
    from ..training.models import LeastSquares, LinearRegression, SoftmaxRegression

    text, bias = asked.model, asked.bias
    if text == "auto":
        squares = _needs_quadratic(runs) or dataset.task == "regression"
        text = "least-squares" if squares else "softmax"
    if dataset.task == "regression":
        if text != "least-squares":
            raise ValueError(
                f"{dataset.name} has real-valued targets, and {text} is for classes: use --model "
                "least-squares, or --task classification if they are classes"
            )
        return text, LinearRegression(dataset.features, dataset.outputs, bias=bias)
    kind = LeastSquares if text == "least-squares" else SoftmaxRegression
    return text, kind(dataset.features, dataset.classes, bias=bias)


def _target(target: float | None, dataset: Dataset) -> float | None:
    """Return the test error for which times are shown; None: the lowest that all runs reach."""
    if dataset.task == "regression":
        return target
    if target is not None and target > 1:
        raise ValueError(f"--target is a fraction of the test set here, not {target:g}")
    return 0.05 if target is None else target


def _prepared(
    job: _Job, runs: Mapping[str, _Run], dataset: Dataset, model: Trained
) -> dict[str, Training]:
    """Return runs that are ready to start; refuse unsuitable options before any run starts."""
    from ..stability import StabilityTracker
    from ..training.checkpoint import make_folder
    from ..training.train import Training

    asked = job.asked
    how = _round_options(job)
    engine = _engine(job)
    earlier = _earlier(asked.replay, runs)
    folders = _folders(asked.checkpoint, runs)
    action: Any = asked.on_error
    made = {}
    for name, each in runs.items():
        tracker = None
        if _is_tracked(asked):
            tracker = StabilityTracker(asked.max_error, action, asked.measure_every)
        made[name] = Training(
            each.code,
            dataset,
            model=model,
            optimizer=_optimizer(each, model, dataset, asked),
            rounds=asked.rounds,
            evaluate_every=asked.evaluate_every,
            name=name,
            progress=True,
            batch=asked.batch,
            until=asked.loss,
            engine=engine,
            checkpoint=folders.get(name),
            every=10 if asked.every is None else asked.every,
            options=replace(how, partial=each.partial, tracker=tracker),
            keywords={"survivors": earlier.get(name)},
        )
        made[name].prepare()
    if asked.checkpoint is not None:
        make_folder(asked.checkpoint)
    return made


def _round_options(job: _Job) -> RoundOptions:
    from ..engines import RoundOptions

    asked = job.asked
    same = "seed", "message_dtype", "patience", "verify", "limit"
    how: Any = {name: getattr(asked, name) for name in same}
    return RoundOptions(delays=job.source.model, **how)


def _engine(job: _Job) -> Any:
    """Return the engine: its name, or a function that makes simulated workers."""
    asked, n, _, source = job
    cost = source.cost(asked.cost, asked.partitions or n)
    if asked.engine != "simulated":
        if asked.cost and source.recording is None:
            raise ValueError(
                f"--cost is for --engine simulated: workers of {asked.engine!r} take the time that "
                "they take"
            )
        return asked.engine
    if not np.any(cost):
        return asked.engine
    from ..engines import SimulatedCluster

    return bind(SimulatedCluster, cost=cost, interrupted=source.interrupted(False))


def _optimizer(run: _Run, model: Trained, dataset: Dataset, asked: Asked) -> Optimizer:
    from ..training.data import partition
    from ..training.optimizers import CADA, GCADA, SGD, AMSGrad, Nesterov

    X, lr = dataset.X_train, asked.lr
    if run.method in ("nesterov", "sgd"):
        rate = model.learning_rate(X) if lr is None else lr
        return Nesterov(rate) if run.method == "nesterov" else SGD(rate)
    adam = AMSGrad() if lr is None else AMSGrad(lr)
    if run.method == "adam":
        return adam
    assert isinstance(run.code, Grouped)
    kind = CADA if run.method == "cada" else GCADA
    given = {"c": asked.c, "max_age": asked.max_age}
    chosen: Any = {name: value for name, value in given.items() if value is not None}
    shards = partition(X, dataset.y_train, run.code.k)
    chosen["smoothness"] = [
        model.smoothness(np.concatenate([shards[j][0] for j in run.code.partitions_of(group)]))
        for group in range(run.code.groups)
    ]
    return kind(run.code.groups, adam, **chosen)


def _earlier(path: Path | None, runs: Iterable[str]) -> dict[str, History]:
    """Return, for each run, the earlier run whose messages it decodes from."""
    from ..training.history import read_json

    if path is None:
        return {}
    names, histories = list(runs), read_json(path)
    found = {history.name: history for history in histories}
    if len(names) == len(histories) == 1:
        return {names[0]: histories[0]}
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} has no run {missing[0]!r}, but {', '.join(map(repr, found))}")
    return {name: found[name] for name in names}


def _folders(checkpoint: Path | None, runs: Iterable[str]) -> dict[str, Path]:
    """Return the folder of each run's checkpoints; a single run has the given folder itself."""
    names = list(runs)
    if checkpoint is None:
        return {}
    if len(names) == 1:
        return {names[0]: checkpoint}
    return {name: checkpoint / quote(name, safe=":=, ") for name in names}


# ----------------------------------------------------------------------------------------- output


def _introduce(job: _Job, runs: Mapping[str, _Run], dataset: Dataset, model: str) -> None:
    """Print the data, the model and the codes before training begins."""
    asked = job.asked
    echo(
        f"{dataset.name}: {len(dataset.X_train)} training, {len(dataset.X_test)} test samples, "
        f"{_labels(dataset)}; model {model}{'' if asked.bias else ' without a bias'}; "
        f"{job.source.said}, seed {asked.seed}",
        err=True,
    )
    few = dataset.task == "classification" and dataset.classes * MANY > len(dataset.X_train)
    if few and asked.task == "auto":
        echo("if y are numbers to predict, say --task regression", err=True)
    for name, (_, made, _) in runs.items():
        echo(
            f"{_shown(name)}: any {made.threshold} of {made.scheme.messages.count} messages"
            f"{' for an approximation' if made.scheme.wait is not None else ''}, "
            f"load {made.load} of {made.k} partitions"
            + (f"; {made.groups} groups" if isinstance(made, Grouped) else ""),
            err=True,
        )


def _shown(name: str) -> str:
    """Return a run's name as shown; a code's name gets its description."""
    text, _, last = name.rpartition(" ")
    if last in PARTIALS:
        return f"{_shown(text)}, {last}"
    return name if " " in name or name in METHODS else catalogue.describe(name)


def _labels(dataset: Dataset) -> str:
    """Describe the labels; for targets, with the standard deviation to compare an RMSE with."""
    if dataset.task == "classification":
        return f"{dataset.classes} classes"
    many = dataset.outputs
    spread = float(np.sqrt(np.mean(np.var(dataset.y_test, axis=0))))
    return f"{many} target{'s' * (many > 1)} (standard deviation {spread:.4g} in the test set)"


def _optimum(model: Trained, dataset: Dataset) -> float | None:
    """Return the least training loss, for models with a formula for it."""
    X, y = dataset.X_train, dataset.y_train
    theta = getattr(model, "optimum", None)
    return None if theta is None else model.loss(theta(X, y), X, y)


def _figures(histories: list[History]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what JSON and CSV hold of runs."""
    from ..training.history import round_rows

    return [each.to_dict() for each in histories], list(round_rows(histories))


def _precision(asked: Asked) -> Path | None:
    """Return the file of the second picture, of the precision; None without one."""
    if asked.plot is None or asked.track is None:
        return None
    return asked.plot.with_stem(f"{asked.plot.stem}-precision")


def _deliver(
    job: _Job,
    runs: Mapping[str, _Run],
    histories: list[History],
    trackers: Mapping[str, StabilityTracker],
    model: Trained,
    dataset: Dataset,
    target: float | None,
) -> None:
    """Write, show and draw runs, and the precision of their gradients."""
    from .. import plotting
    from ..stability import write_jsonl

    asked = job.asked
    if any(tracker.rounds for tracker in trackers.values()):
        asked.save(asked.track, bind(write_jsonl, trackers), "precision")
    if not histories:
        return
    shown = {_shown(each.name): each for each in histories}
    asked.deliver(
        *_figures(histories),
        lambda: _show(asked, runs, histories, target),
        Picture(asked.plot, lambda: _curves(job, runs, histories, model, dataset, target)),
        Picture(asked.timeline, lambda: plotting.timeline_figure(shown), "timeline"),
        Picture(_precision(asked), lambda: plotting.tracking_curves(trackers)),
    )


def _show(
    asked: Asked, runs: Mapping[str, _Run], histories: list[History], target: float | None
) -> None:
    """Print tables of the runs."""
    from ..training.history import equal_error, equal_loss
    from ..training.tables import comparison_table, loss_table, spending_table

    reached = equal_error(histories) if target is None else target
    tables = [comparison_table(histories, reached)]
    if _differ_in_method(runs):
        loss = equal_loss(histories) if asked.loss is None else asked.loss
        tables.append(spending_table(histories, loss))
    elif _wait_for_some(runs) and len(histories) > 1:
        tables.append(loss_table(histories))
    for table in tables:
        asked.show(*table, _shown, several=len(tables) > 1)


def _curves(
    job: _Job,
    runs: Mapping[str, _Run],
    histories: list[History],
    model: Trained,
    dataset: Dataset,
    level: float | None,
) -> Any:
    """Draw what suits the runs."""
    from .. import plotting
    from ..plotting.curves import reached

    named = [replace(each, name=_shown(each.name)) for each in histories]
    about = f"{dataset.name}; {job.source.said}"
    if _differ_in_method(runs):
        panels = plotting.spending_panels(histories, True)
    elif _wait_for_some(runs):
        panels = plotting.approximation_panels(named, _optimum(model, dataset))
    else:
        return plotting.error_curves(named, caption=about, level=level)
    return plotting.panel_figure(panels, reached(histories, level), caption=about)
