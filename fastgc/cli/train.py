"""``fastgc train``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial as bind
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias
from urllib.parse import quote

import numpy as np
import typer
from rich.console import Console

from .._registry import read_arguments
from ..codes import Code, Grouped, Uncoded, catalogue
from ..coding.verify import MOST_LIARS
from ..delays.text import FORMS
from .common import (
    PRINTED,
    TRAINING,
    ListingCommand,
    app,
    check_drawn,
    check_figures,
    check_folder,
    check_plot,
    clear_errors,
    complete_codes,
    draw_timelines,
    partitions_option,
    status_of,
    stragglers_option,
    tolerated,
    workers_option,
    write_figures,
)

if TYPE_CHECKING:
    from ..data import Dataset
    from ..history import History
    from ..models import MLP, LeastSquares, LinearRegression, SoftmaxRegression
    from ..optimizers import Optimizer
    from ..stability import StabilityTracker

Trained: TypeAlias = "SoftmaxRegression | LeastSquares | LinearRegression | MLP"

# Methods, and the code that each is used with unless another is named.
METHODS = {
    "nesterov": "rs",
    "sgd": "uncoded",
    "adam": "uncoded",
    "cada": "repetition",
    "gcada": "repetition",
}
ADAPTIVE = ("cada", "gcada")
# Panels of the help.
CODE, DATA, OPTIMIZER = "Code and workers", "Data and model", "Optimizer"
WORKERS, RESULTS = "Engine, delays and messages", "What is shown and written"
FAULTS = "Workers that die or compute wrongly"
REPEATING, TRACKING = "Going on, and decoding as before", "Precision of gradients"
PARTIALS = ("raise", "best", "unbiased")
MANY = 4  # samples of a class, on average, below which its labels may be meant as numbers


def _complete_methods(incomplete: str) -> list[str]:
    return [name for name in METHODS if name.startswith(incomplete)]


def _complete_engines(incomplete: str) -> list[str]:
    from ..engines import ENGINES

    return [name for name in ENGINES if name.startswith(incomplete)]


EXAMPLE = (
    "Four machines are always slow, and each machine sees few classes: fastgc train "
    '--compare uncoded,ignore --by-label --delays "16 of exponential:mean=0.01; 4 of '
    'exponential:mean=0.2" --plot comparison.png'
)


@app.command(cls=ListingCommand, rich_help_panel=TRAINING, epilog=EXAMPLE)
def train(
    code: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_codes,
            help="The code, as in rs, bcc:load=5 or rs:clusters=auto,root=1. Names: "
            f"{', '.join(catalogue.BUILT_IN)}{{other codes}}. In groups it is the code of "
            "each, and may be repetition, too: every member has all the data of the group. "
            "(default: rs; with sgd and adam uncoded; with cada and gcada repetition)",
            rich_help_panel=CODE,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_codes,
            help="What else to train with, on the same delays: codes and methods, such as "
            "uncoded,ignore,bcc:load=5,adam. (default: nothing; with cada and gcada adam)",
            rich_help_panel=CODE,
        ),
    ] = None,
    workers: Annotated[int, workers_option(CODE)] = 20,
    stragglers: Annotated[int | None, stragglers_option(CODE)] = None,
    partitions: Annotated[int | None, partitions_option(CODE)] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Split workers and partitions into groups with a code each; -s is of each group "
            "then. (default with gcada: such that each has 4 workers or a few more)",
            rich_help_panel=CODE,
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help='"digits", a .npz file (arrays X and y, or X_train, y_train, X_test, y_test), an '
            "idx file, or a folder with MNIST's files.",
            rich_help_panel=DATA,
        ),
    ] = "digits",
    task: Annotated[
        str,
        typer.Option(
            help='What y is: "classification", classes; "regression", real-valued targets, one or '
            'several a sample, also where they are whole numbers; "auto": targets if they are '
            "floats with fractions or in several columns, else classes. Of targets, tables and "
            "plots show the root mean squared error (RMSE) on the test set.",
            rich_help_panel=DATA,
        ),
    ] = "auto",
    by_label: Annotated[
        bool,
        typer.Option(
            "--by-label",
            help="Sort the training samples by label before they are cut into partitions, as on "
            "devices that each see their own. Whoever ignores workers then ignores classes.",
            rich_help_panel=DATA,
        ),
    ] = False,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Samples drawn of each partition in a round. (default: all)",
            rich_help_panel=DATA,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help='"softmax", for classes; "least-squares", for classes or real-valued targets; '
            '"mlp", a network for classes, as in mlp:hidden=64/32,activation=tanh; or "auto": '
            "softmax for classes unless a code needs the other.",
            rich_help_panel=DATA,
        ),
    ] = "auto",
    bias: Annotated[
        bool,
        typer.Option(
            "--bias/--no-bias",
            help="Whether the model adds a bias to its scores.",
            rich_help_panel=DATA,
        ),
    ] = True,
    method: Annotated[
        str,
        typer.Option(
            autocompletion=_complete_methods,
            help=f"One of {', '.join(METHODS)}. adam is AMSGrad; cada and gcada are AMSGrad with "
            "new gradients from those workers, or groups, only whose last one may be too old.",
            rich_help_panel=OPTIMIZER,
        ),
    ] = "nesterov",
    rounds: Annotated[
        int, typer.Option(min=1, help="Gradient steps.", rich_help_panel=OPTIMIZER)
    ] = 150,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Learning rate. (default: the model's own; with adam, cada and gcada 0.01)",
            rich_help_panel=OPTIMIZER,
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help='How the learning rate changes: "cosine", down to 0 in --rounds, or '
            '"step:every=50,factor=0.1"; each with a rise before it, as in '
            "cosine:warmup=10,floor=0.01. (default: it does not)",
            rich_help_panel=OPTIMIZER,
        ),
    ] = None,
    c: Annotated[
        float | None,
        typer.Option(
            help="With cada and gcada: the larger, the fewer workers are asked. (default: 0.3)",
            rich_help_panel=OPTIMIZER,
        ),
    ] = None,
    max_age: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With cada and gcada: how old a gradient may become, D. (default: 10)",
            rich_help_panel=OPTIMIZER,
        ),
    ] = None,
    loss: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Training loss at which runs end before --rounds, and at which methods are "
            "compared. (default: none; the lowest that all reach)",
            rich_help_panel=OPTIMIZER,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            autocompletion=_complete_engines,
            help='"local": worker processes of this machine; "mpi": the ranks of an MPI job, one '
            "more than workers (mpiexec -n 21 fastgc train --engine mpi -n 20); "
            '"torch": those of torchrun (torchrun --nproc-per-node 21 -m fastgc train ...); '
            '"ray": actors of Ray, on this machine or the cluster that RAY_ADDRESS names; '
            '"simulated": workers whose time is simulated, their delays and nothing else.',
            rich_help_panel=WORKERS,
        ),
    ] = "local",
    delays: Annotated[
        str,
        typer.Option(
            help=f"Delays added to each answer, in seconds: {FORMS}{{other delays}}.",
            rich_help_panel=WORKERS,
        ),
    ] = "pareto:scale=0.005,shape=1.1",
    cost: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds that simulated workers take for one partial gradient. (default: 0, only "
            "delays)",
            rich_help_panel=WORKERS,
        ),
    ] = 0.0,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of the data's split, the delays, random codes and networks.",
            rich_help_panel=WORKERS,
        ),
    ] = 0,
    message_dtype: Annotated[
        str | None,
        typer.Option(
            "--message-dtype",
            "--messages",
            help="Type of messages: float16, bfloat16, float32, float64 or float64x2. (default: "
            "the data's)",
            rich_help_panel=WORKERS,
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds to wait for workers that have died and are restarted, where the others "
            "are too few; 0: do not restart them.",
            rich_help_panel=FAULTS,
        ),
    ] = 10.0,
    partial: Annotated[
        str,
        typer.Option(
            help='What to do when they are not back: "raise" an error, or take the "best" '
            'approximation of the gradient, or the best "unbiased" one; the latter also in rounds '
            "of codes that are approximate anyway. Of several, as in best,unbiased, approximate "
            "codes train with each, others with the first.",
            rich_help_panel=FAULTS,
        ),
    ] = "raise",
    verify: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_LIARS,
            metavar="WORKERS",
            help="Compare messages with each other, by parity checks of the code, and leave out "
            "those of workers that are corrupt: at most so many in a round; 0: do not look.",
            rich_help_panel=FAULTS,
        ),
    ] = 0,
    ask: Annotated[
        bool,
        typer.Option(
            help="With --verify: ask workers whose messages contradict each other, and let the "
            "master compute what tells who lies. S copies to spare then do, in place of 2 S.",
            rich_help_panel=FAULTS,
        ),
    ] = False,
    target: Annotated[
        float | None,
        typer.Option(
            help="Test error, or RMSE, whose time the table shows. (default: 0.05; the lowest RMSE "
            "that all reach)",
            min=0.0,
            rich_help_panel=RESULTS,
        ),
    ] = None,
    evaluate_every: Annotated[
        int,
        typer.Option(
            min=1,
            help="Rounds from one to the next whose loss and test error are computed; the last is "
            "one of them.",
            rich_help_panel=RESULTS,
        ),
    ] = 1,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot test error or RMSE against time to this file (png, svg, pdf); with codes "
            "that wait for some workers only: also losses, and what is left out, against load; "
            "with cada, gcada or methods compared: loss, communication and computation.",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Draw the first three rounds of each run to this file: who computed when, who was "
            "waited for, what was decoded from (png, svg, pdf).",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            allow_dash=True,
            help="Write the history of every round to this file; - or no name: print that, and no "
            "table.",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            allow_dash=True,
            help="Write a line for every round, of times, losses and residuals, to this file as "
            "CSV; - or no name: print that, and no table.",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Keep the run in this folder, and go on from what is kept there: the same command "
            "again resumes a run that was ended, by whatever. Each of several runs has a folder in "
            "it, by its name.",
            rich_help_panel=REPEATING,
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rounds from one checkpoint to the next. (default: 10)",
            rich_help_panel=REPEATING,
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="Decode from the messages that a run used whose history --json has written to "
            "this file: the one with the same name, or the only one.",
            rich_help_panel=REPEATING,
        ),
    ] = None,
    track: Annotated[
        Path | None,
        typer.Option(
            help="Write how precise each gradient is to this file, as JSON lines; with --plot, "
            "draw it too, beside the plot.",
            rich_help_panel=TRACKING,
        ),
    ] = None,
    measure_every: Annotated[
        int,
        typer.Option(
            min=0,
            help="Measure the error of every so many-th round, too.",
            rich_help_panel=TRACKING,
        ),
    ] = 0,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Largest predicted error of a gradient that is accepted.", rich_help_panel=TRACKING
        ),
    ] = None,
    on_error: Annotated[
        str,
        typer.Option(
            help='What to do then: "warn", "raise", or "wait" for more messages.',
            rich_help_panel=TRACKING,
        ),
    ] = "warn",
) -> None:
    """Train a model on workers that straggle, with coded gradients."""
    from .. import data as datasets
    from .. import delays as delay_models
    from ..engines import RoundOptions
    from ..history import equal_error, equal_loss, json_ready, round_rows, write_json
    from ..progress import comparison_table, loss_table, spending_table
    from ..stability import StabilityTracker
    from ..training import check_batch, check_partial
    from ..training import train as run

    trackers: dict[str, StabilityTracker] = {}
    with clear_errors(), _written_at_last(trackers, track), _ranks(engine) as serve:
        for path in (json_file, track):
            if path != PRINTED:
                check_folder(path)
        check_figures(json_file if json_file == PRINTED else None, csv_file)
        for path in (plot, timeline):
            check_plot(path)
        if plot is not None:
            from .. import plotting
        runs = _runs(method, code, compare, workers, partitions, stragglers, groups, seed, partial)
        if all(serve() for _ in runs):  # what follows is for the master
            return
        named = (plot, timeline, json_file, csv_file, track)
        files = [each.resolve() for each in named if each is not None]
        if len(set(files)) < len(files):
            raise ValueError(
                "--plot, --timeline, --json, --csv and --track must name different files"
            )
        if timeline is not None:
            check_drawn(list(runs), "compare fewer")
        if measure_every and track is None:
            raise ValueError("--measure-every needs --track, a file to write the errors to")
        if on_error != "warn" and max_error is None:
            raise ValueError("--on-error needs --max-error, the error that is too much")
        if on_error not in ("warn", "raise", "wait"):
            raise ValueError(f'--on-error must be "warn", "raise" or "wait", not {on_error!r}')
        action: Any = on_error
        if every is not None and checkpoint is None:
            raise ValueError("--every needs --checkpoint, a folder to keep the run in")
        options = RoundOptions(
            delays=delay_models.parse(delays),
            seed=seed,
            message_dtype=message_dtype,
            patience=patience,
            verify=verify,
            ask=ask,
        )
        earlier = _earlier(replay, runs)
        tracked = track is not None or max_error is not None
        adaptive = [name for name, each in runs.items() if each.method in ADAPTIVE]
        if tracked and adaptive:
            raise ValueError(f"the precision of {adaptive[0]} cannot be tracked: leave it out")
        for name in adaptive:
            check_partial(name, runs[name].partial)
        for option, value in (("--c", c), ("--max-age", max_age)):
            if value is not None and not adaptive:
                raise ValueError(f"{option} is for the methods cada and gcada")
        methods = len({each.method for each in runs.values()}) > 1 or bool(adaptive)
        if model.partition(":")[0] not in ("auto", "softmax", "least-squares", "mlp"):
            raise ValueError(
                f'--model must be "auto", "softmax", "least-squares" or "mlp", not {model!r}'
            )
        needed = any(each.code.scheme.codes_data for each in runs.values())
        if needed and model not in ("auto", "least-squares"):
            raise ValueError(
                "Lagrange codes decode only gradients that are quadratic in the data: use "
                "--model least-squares"
            )
        if task not in datasets.TASKS:
            raise ValueError(f"--task must be one of {', '.join(datasets.TASKS)}, not {task!r}")
        meant: Any = task
        dataset = datasets.load(data, seed=seed, task=meant)
        if by_label:
            dataset = dataset.by_label()
        if model == "auto":
            model = "least-squares" if needed or dataset.task == "regression" else "softmax"
        trained = _model(model, dataset, bias)
        if target is None and dataset.task == "classification":
            target = 0.05
        elif target is not None and dataset.task == "classification" and target > 1:
            raise ValueError(f"--target is a fraction of the test set here, not {target:g}")
        for each in runs.values():  # what does not suit one of them is refused before any runs
            each.code.encoder(0, 1, dataset.X_train.dtype, message_dtype=message_dtype)
            datasets.partition(dataset.X_train, dataset.y_train, each.code.k)
            if batch is not None:
                check_batch(each.code, batch, len(dataset.X_train))
        optimizers = {
            name: _optimizer(each, trained, dataset, lr, c, max_age) for name, each in runs.items()
        }
        typer.echo(
            f"{dataset.name}: {len(dataset.X_train)} training, {len(dataset.X_test)} test samples, "
            f"{_labels(dataset)}; model {model}{'' if bias else ' without a bias'}; "
            f"delays {delays.strip()}, seed {seed}",
            err=True,
        )
        few = dataset.task == "classification" and dataset.classes * MANY > len(dataset.X_train)
        if few and task == "auto":
            typer.echo("if y are numbers to predict, say --task regression", err=True)
        for name, (_, made, _) in runs.items():
            typer.echo(
                f"{_shown(name)}: any {made.threshold} of {made.scheme.message_count} messages"
                f"{' for an approximation' if made.scheme.wait is not None else ''}, "
                f"load {made.load} of {made.k} partitions"
                + (f"; {made.groups} groups" if isinstance(made, Grouped) else ""),
                err=True,
            )
        workers_of = _engine(engine, cost)
        folders = _folders(checkpoint, runs)
        histories = []
        for name, each in runs.items():
            if tracked:
                trackers[name] = StabilityTracker(max_error, action, measure_every)
            histories.append(
                run(
                    each.code,
                    dataset,
                    model=trained,
                    optimizer=optimizers[name],
                    rounds=rounds,
                    schedule=schedule,
                    evaluate_every=evaluate_every,
                    name=name,
                    progress=True,
                    batch=batch,
                    until=loss,
                    engine=workers_of,
                    checkpoint=folders.get(name),
                    every=10 if every is None else every,
                    options=replace(options, partial=each.partial),
                    tracker=trackers.get(name),
                    survivors=earlier.get(name),
                )
            )
        waiting = any(each.code.scheme.wait is not None for each in runs.values())
        if PRINTED not in (json_file, csv_file):
            reached = equal_error(histories) if target is None else target
            Console().print(comparison_table(histories, reached))
            if methods:
                level = equal_loss(histories) if loss is None else loss
                Console().print(spending_table(histories, level))
            elif waiting and len(runs) > 1:
                Console().print(loss_table(histories))
        if json_file == PRINTED:
            listed = [json_ready(each.to_dict()) for each in histories]
            typer.echo(json.dumps(listed, allow_nan=False))
        elif json_file is not None:
            write_json(histories, json_file)
            typer.echo(f"history written to {json_file}", err=True)
        if csv_file is not None:
            write_figures(None, list(round_rows(histories)), None, csv_file)
        if plot is not None:
            shown = [replace(each, name=_shown(each.name)) for each in histories]
            title = f"{dataset.name}; delays {delays.strip()}"
            if methods:
                panels = plotting.spending_panels(histories, True)
                plotting.save_panels(panels, plot, title)
            elif waiting:
                panels = plotting.approximation_panels(shown, _optimum(trained, dataset))
                plotting.save_panels(panels, plot, title)
            else:
                plotting.save_error_curves(shown, plot)
            typer.echo(f"plot written to {plot}", err=True)
        if timeline is not None:
            draw_timelines({_shown(each.name): each for each in histories}, timeline)
        if plot is not None and track is not None:
            beside = plot.with_stem(f"{plot.stem}-precision")
            plotting.save_tracking_curves(trackers, beside)
            typer.echo(f"plot written to {beside}", err=True)


@contextmanager
def _ranks(engine: str) -> Iterator[Callable[[], bool]]:
    """Let an error of one rank end all; yields what makes a rank a worker of one run, if it is.

    What the engine needs is looked for here, before anything else is done.
    """
    from ..engines import ENGINES, find_engine

    if engine not in ENGINES:
        raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    find_engine(engine)
    if engine == "torch":
        from ..engines.torch import TorchCluster

        yield TorchCluster.serve  # torchrun itself ends all
        return
    if engine != "mpi":
        yield lambda: False
        return
    from mpi4py import MPI
    from mpi4py.run import set_abort_status

    from ..engines.mpi import MPICluster

    try:
        yield MPICluster.serve
    except BaseException as error:
        if MPI.COMM_WORLD.rank != 0:
            time.sleep(1.0)  # mostly the master fails of the same: once is enough to say so
        set_abort_status(status_of(error))
        raise


def _engine(engine: str, cost: float) -> Any:
    """What makes the workers."""
    if not cost:
        return engine
    if engine != "simulated":
        raise ValueError(
            f"--cost is for --engine simulated: workers of {engine!r} take the time that they take"
        )
    from ..engines import SimulatedCluster

    return bind(SimulatedCluster, cost=cost)


class _Run(NamedTuple):
    method: str
    code: Code
    partial: Any


def _runs(
    method: str,
    code: str | None,
    compare: str | None,
    n: int,
    k: int | None,
    s: int | None,
    groups: int | None,
    seed: int,
    partial: str,
) -> dict[str, _Run]:
    """What to train with, by name: the main run, then what it is compared with."""
    partials = [each.strip() for each in partial.split(",")]
    for each in partials:
        if each not in PARTIALS:
            raise ValueError(
                f'--partial must be "raise", "best" or "unbiased", or several of them, not {each!r}'
            )
    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, not {method!r}")
    if compare is None:
        compare = "adam" if method in ADAPTIVE else ""
    others = catalogue.split(compare)
    if groups is not None and code is None and "gcada" not in (method, *others):
        raise ValueError("--groups needs the method gcada, or a --code to use in each group")
    main = METHODS[method] if code is None else code.strip()
    chosen = [(method, main)]
    chosen += [(item, METHODS[item]) if item in METHODS else (method, item) for item in others]
    single = len({how for how, _ in chosen}) == 1 and (code is not None or method == "nesterov")
    runs: dict[str, _Run] = {}
    for how, text in chosen:
        name = text if single else how if text == METHODS[how] else f"{how} {text}"
        if how == "cada":
            if text != "repetition":
                raise ValueError("cada asks single workers, without a code: use gcada")
            made: Code = Grouped.repetition(n, n, k)
        elif how == "gcada" or (groups is not None and code is not None):
            fours = max((g for g in range(1, n) if n % g == 0 and n >= 4 * g), default=1)
            made = _grouped(text, n, k, s, groups or fours, seed)
        else:
            made = catalogue.make(text, n, k, tolerated(n, s), seed)
        unscaled = not (isinstance(made, Uncoded) and made.rescale)  # else unbiased as it is
        if made.scheme.approximate and unscaled and len(partials) > 1:
            runs |= {f"{name} {each}": _Run(how, made, each) for each in partials}
        else:
            runs[name] = _Run(how, made, partials[0])
    return runs


def _grouped(text: str, n: int, k: int | None, s: int | None, groups: int, seed: int) -> Grouped:
    """The same code for every group."""
    if text == "repetition":
        return Grouped.repetition(n, groups, k)
    for what, number in (("workers", n), ("partitions", n if k is None else k)):
        if number % groups:
            raise ValueError(f"{groups} groups need a multiple of {groups} {what}, not {number}")
    size = n // groups
    tolerates = min(1, size - 1) if s is None else s
    part = None if k is None else k // groups
    return Grouped([catalogue.make(text, size, part, tolerates, seed)] * groups)


def _shown(name: str) -> str:
    """What people read of a run: of one that is called by its code, what that stands for, too."""
    text, _, last = name.rpartition(" ")
    if last in PARTIALS:
        return f"{_shown(text)}, {last}"
    return name if " " in name or name in METHODS else catalogue.describe(name)


def _model(text: str, dataset: Dataset, bias: bool) -> Trained:
    from ..models import MLP, LeastSquares, LinearRegression, SoftmaxRegression

    name, _, listed = text.partition(":")
    if listed and name != "mlp":
        raise ValueError(f"--model {name} takes no arguments; got {listed!r}")
    if dataset.task == "regression":
        if name != "least-squares":
            raise ValueError(
                f"{dataset.name} has real-valued targets, and {name} is for classes: use --model "
                "least-squares, or --task classification if they are classes"
            )
        return LinearRegression(dataset.features, dataset.outputs, bias=bias)
    if name == "mlp":
        if not bias:
            raise ValueError("--no-bias is for linear models: an mlp has biases")
        given = read_arguments(MLP, listed, "--model mlp", ("features", "classes"))
        return MLP(dataset.features, dataset.classes, **given)
    kind = LeastSquares if name == "least-squares" else SoftmaxRegression
    return kind(dataset.features, dataset.classes, bias=bias)


def _optimum(model: Trained, dataset: Dataset) -> float | None:
    """The least training loss, of models that have it by a formula."""
    X, y = dataset.X_train, dataset.y_train
    theta = getattr(model, "optimum", None)
    return None if theta is None else model.loss(theta(X, y), X, y)


def _labels(dataset: Dataset) -> str:
    """What the samples' labels are, in words; of targets with what an RMSE is to be compared to."""
    if dataset.task == "classification":
        return f"{dataset.classes} classes"
    many = dataset.outputs
    spread = float(np.sqrt(np.mean(np.var(dataset.y_test, axis=0))))
    return f"{many} target{'s' * (many > 1)} (standard deviation {spread:.4g} in the test set)"


def _optimizer(
    run: _Run,
    model: Trained,
    dataset: Dataset,
    lr: float | None,
    c: float | None,
    max_age: int | None,
) -> Optimizer:
    from ..data import partition
    from ..models import MLP
    from ..optimizers import CADA, GCADA, SGD, AMSGrad, Nesterov

    X = dataset.X_train
    if run.method in ("nesterov", "sgd"):
        rate = model.learning_rate(X) if lr is None else lr
        return Nesterov(rate) if run.method == "nesterov" else SGD(rate)
    adam = AMSGrad() if lr is None else AMSGrad(lr)
    if run.method == "adam":
        return adam
    assert isinstance(run.code, Grouped)
    kind = CADA if run.method == "cada" else GCADA
    given = {"c": c, "max_age": max_age}
    chosen: Any = {name: value for name, value in given.items() if value is not None}
    if not isinstance(model, MLP):  # of which there is no bound
        shards = partition(X, dataset.y_train, run.code.k)
        chosen["smoothness"] = [
            model.smoothness(np.concatenate([shards[j][0] for j in run.code.partitions_of(group)]))
            for group in range(run.code.groups)
        ]
    return kind(run.code.groups, adam, **chosen)


def _earlier(path: Path | None, runs: Iterable[str]) -> dict[str, History]:
    """The run to decode as, of each of these."""
    from ..history import read_json

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
    """Where to keep each run: one alone in the folder itself."""
    names = list(runs)
    if checkpoint is None:
        return {}
    if len(names) == 1:
        return {names[0]: checkpoint}
    if not checkpoint.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {checkpoint.parent} to make {checkpoint.name} in")
    if checkpoint.exists() and not checkpoint.is_dir():
        raise ValueError(f"{checkpoint} is a file: name a folder for checkpoints")
    checkpoint.mkdir(exist_ok=True)
    return {name: checkpoint / quote(name, safe=":=, ") for name in names}


@contextmanager
def _written_at_last(trackers: Mapping[str, StabilityTracker], path: Path | None) -> Iterator[None]:
    """Write what was tracked in the end, and until an error too."""
    from ..stability import write_jsonl

    try:
        yield
    finally:
        if path is not None and any(tracker.rounds for tracker in trackers.values()):
            write_jsonl(trackers, path)
            typer.echo(f"precision written to {path}", err=True)
