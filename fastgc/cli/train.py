"""``fastgc train``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..codes import catalogue
from ..delays.text import FORMS
from .common import Partitions, Stragglers, Workers, app, check_folder, clear_errors

if TYPE_CHECKING:
    from ..stability import StabilityTracker


@app.command()
def train(
    code: Annotated[
        str,
        typer.Option(
            help="The code, as in rs, bcc:load=5 or rs:clusters=auto,root=1. Names: "
            f"{', '.join(catalogue.NAMES)}."
        ),
    ] = "rs",
    compare: Annotated[
        str,
        typer.Option(
            help="More codes, to train with on the same delays: uncoded,ignore,bcc:load=5,lcc."
        ),
    ] = "",
    workers: Workers = 20,
    stragglers: Stragglers = None,
    partitions: Partitions = None,
    model: Annotated[
        str,
        typer.Option(
            help='"softmax", "least-squares", or "auto": softmax unless a code needs the other.'
        ),
    ] = "auto",
    data: Annotated[
        str,
        typer.Option(help='"digits", a .npz file, an idx file, or a folder with MNIST\'s files.'),
    ] = "digits",
    delays: Annotated[
        str, typer.Option(help=f"Delays added to each answer, in seconds: {FORMS}.")
    ] = "pareto:scale=0.005,shape=1.1",
    rounds: Annotated[int, typer.Option(min=1, help="Gradient steps.")] = 150,
    messages: Annotated[
        str | None,
        typer.Option(
            help="Type of messages: float16, bfloat16, float32 or float64. (default: the data's)"
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate of Nesterov's method. (default: the model's own)"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="For the data's split, the delays and random codes.")
    ] = 0,
    target: Annotated[
        float, typer.Option(help="Test error whose time the table shows.", min=0.0, max=1.0)
    ] = 0.05,
    plot: Annotated[
        Path | None, typer.Option(help="Plot test error against time to this file (png, svg, pdf).")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the history of every round to this file.")
    ] = None,
    track: Annotated[
        Path | None,
        typer.Option(
            help="Write how precise each gradient is to this file, as JSON lines; with --plot, "
            "draw it too, beside the plot."
        ),
    ] = None,
    measure_every: Annotated[
        int, typer.Option(min=0, help="Measure the error of every so many-th round, too.")
    ] = 0,
    max_error: Annotated[
        float | None, typer.Option(help="Predicted error of a gradient that is too much.")
    ] = None,
    on_error: Annotated[
        str, typer.Option(help='What to do then: "warn", "raise", or "wait" for more messages.')
    ] = "warn",
) -> None:
    """Train a model on worker processes that straggle, with coded gradients."""
    from .. import data as datasets
    from .. import delays as delay_models
    from ..models import LeastSquares, SoftmaxRegression
    from ..optimizers import Nesterov
    from ..progress import comparison_table
    from ..stability import StabilityTracker
    from ..training import train as run
    from ..training import write_json

    trackers: dict[str, StabilityTracker] = {}
    with clear_errors(), _written_at_last(trackers, track):
        for path in (plot, json_file, track):
            check_folder(path)
        if plot is not None:
            from .. import plotting

            plotting.check_path(plot)
        s = workers // 5 if stragglers is None else stragglers
        schemes = {
            name: catalogue.make(name, workers, partitions, s, seed)
            for name in [code.strip(), *catalogue.split(compare)]
        }
        files = [each.resolve() for each in (plot, json_file, track) if each is not None]
        if len(set(files)) < len(files):
            raise ValueError("--plot, --json and --track must name different files")
        if measure_every and track is None:
            raise ValueError("--measure-every needs --track, a file to write the errors to")
        if on_error != "warn" and max_error is None:
            raise ValueError("--on-error needs --max-error, the error that is too much")
        if on_error not in ("warn", "raise", "wait"):
            raise ValueError(f'--on-error must be "warn", "raise" or "wait", not {on_error!r}')
        action: Any = on_error
        if model not in ("auto", "softmax", "least-squares"):
            raise ValueError(f'--model must be "auto", "softmax" or "least-squares", not {model!r}')
        needed = any(scheme.codes_data for scheme in schemes.values())
        if needed and model == "softmax":
            raise ValueError(
                "Lagrange codes decode only gradients that are quadratic in the data: use "
                "--model least-squares"
            )
        if model == "auto":
            model = "least-squares" if needed else "softmax"
        dataset = datasets.load(data, seed=seed)
        for scheme in schemes.values():  # what one of them does not send is refused before any runs
            scheme.encoder(0, 1, dataset.X_train.dtype, message_dtype=messages)
        kind = LeastSquares if model == "least-squares" else SoftmaxRegression
        trained = kind(dataset.features, dataset.classes)
        rate = trained.learning_rate(dataset.X_train) if lr is None else lr
        delay = delay_models.parse(delays)
        typer.echo(
            f"{dataset.name}: {len(dataset.X_train)} training, {len(dataset.X_test)} test samples; "
            f"model {model}; delays {delay!r}, seed {seed}",
            err=True,
        )
        for name, scheme in schemes.items():
            typer.echo(
                f"{name}: any {scheme.threshold} of {scheme.message_count} messages, "
                f"load {scheme.load} of {scheme.k} partitions",
                err=True,
            )
        histories = []
        for name, scheme in schemes.items():
            if track is not None or measure_every or max_error is not None:
                trackers[name] = StabilityTracker(max_error, action, measure_every)
            histories.append(
                run(
                    scheme,
                    dataset,
                    model=trained,
                    optimizer=Nesterov(lr=rate),
                    rounds=rounds,
                    delays=delay,
                    seed=seed,
                    name=name,
                    progress=True,
                    tracker=trackers.get(name),
                    message_dtype=messages,
                )
            )
        Console().print(comparison_table(histories, target))
        if json_file is not None:
            write_json(histories, json_file)
            typer.echo(f"history written to {json_file}", err=True)
        if plot is not None:
            plotting.save_error_curves(histories, plot)
            typer.echo(f"plot written to {plot}", err=True)
        if plot is not None and track is not None:
            beside = plot.with_stem(f"{plot.stem}-precision")
            plotting.save_tracking_curves(trackers, beside)
            typer.echo(f"plot written to {beside}", err=True)


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
