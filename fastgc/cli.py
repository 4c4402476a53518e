"""The command ``fastgc``."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from . import __version__, kernels
from .codes import catalogue
from .errors import WorkerFailedError

app = typer.Typer(
    help="Gradient coding: the exact gradient from whichever workers answered first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


Workers = Annotated[int, typer.Option("--workers", "-n", min=1, help="Workers, n.")]
Stragglers = Annotated[
    int | None, typer.Option("--stragglers", "-s", help="Stragglers tolerated, s. (default: n/5)")
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", "-k", help="Partitions, k. (default: n)")
]


@app.command()
def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print version, backends found, SIMD level chosen and threads."""
    facts: dict[str, Any] = {
        "version": __version__,
        "backend": kernels.backend(),
        "backends": list(kernels.backends()),
        "simd": _simd(),
        "threads": kernels.threads.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "package": str(Path(__file__).parent),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        typer.echo(f"{name:<9} {shown}")


def _simd() -> str:
    try:
        from .kernels import c_backend
    except ImportError:
        return "none (the compiled extension is missing)"
    return c_backend.simd()


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
        str, typer.Option(help='Delays added to each answer, or "none". Seconds.')
    ] = "pareto:t0=0.005,xi=1.1",
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
) -> None:
    """Train a model on worker processes that straggle, with coded gradients."""
    from . import data as datasets
    from . import delays as delay_models
    from .models import LeastSquares, SoftmaxRegression
    from .optimizers import Nesterov
    from .progress import comparison_table
    from .training import train as run
    from .training import write_json

    try:
        for path in (plot, json_file):
            if path is not None and not path.resolve().parent.is_dir():
                raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
        if plot is not None:
            from . import plotting

            plotting.check_path(plot)
        if json_file is not None and json_file.is_dir():
            raise ValueError(f"{json_file} is a folder: --json names a file")
        s = workers // 5 if stragglers is None else stragglers
        schemes = {
            name: catalogue.make(name, workers, partitions, s, seed)
            for name in [code.strip(), *catalogue.split(compare)]
        }
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
        histories = [
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
                message_dtype=messages,
            )
            for name, scheme in schemes.items()
        ]
        Console().print(comparison_table(histories, target))
        if json_file is not None:
            write_json(histories, json_file)
            typer.echo(f"history written to {json_file}", err=True)
        if plot is not None:
            plotting.save_error_curves(histories, plot)
            typer.echo(f"plot written to {plot}", err=True)
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, WorkerFailedError) as e:
        typer.echo(f"fastgc: {e}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("fastgc: interrupted; the worker processes have ended", err=True)
        raise typer.Exit(130) from None


@app.command()
def codes(
    names: Annotated[
        str, typer.Argument(help="A list such as rs,bcc:load=5. Default: all codes.")
    ] = "",
    workers: Workers = 20,
    stragglers: Stragglers = None,
    partitions: Partitions = None,
    trials: Annotated[int, typer.Option(min=1, help="Rounds to average over.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of data, orders and random codes.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare codes: loads, thresholds, communication, decoding time and precision, measured."""
    from .comparison import measure
    from .progress import markdown_table, rich_table, task_bar
    from .training import json_ready

    try:
        s = workers // 5 if stragglers is None else stragglers
        chosen = catalogue.split(names) or [name for name in catalogue.NAMES if name != "linear"]
        made, impossible = {}, {}
        for name in chosen:
            try:
                made[name] = catalogue.make(name, workers, partitions, s, seed)
            except ValueError as error:
                if names:  # one asked for by name
                    raise
                impossible[name] = str(error)
        with task_bar("measuring", len(made)) as advance:
            figures = {}
            for name, code in made.items():
                figures[name] = measure(code, trials, seed)
                advance()
    except (ValueError, TypeError, ArithmeticError, OSError) as e:
        typer.echo(f"fastgc: {e}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        listed = {name: json_ready(found._asdict()) for name, found in figures.items()}
        typer.echo(json.dumps(listed, allow_nan=False))
        return
    rows = [
        [
            name,
            str(found.load),
            f"{found.threshold}/{found.messages}",
            f"{found.mean_workers:.1f}",
            f"{found.communication_load:.1f}",
            f"{found.message_size:g}",
            f"{1e6 * found.decode_seconds:.1f}",
            f"{found.error:.0e}",
            f"{found.worst_error:.0e}",
        ]
        for name, found in figures.items()
    ]
    title = (
        f"n={workers} workers, s={s} stragglers, k={partitions or workers} partitions; "
        f"{trials} rounds, messages in random order, seed {seed}"
    )
    if markdown:
        head = [
            "code",
            "load",
            "messages needed, worst case",
            "workers waited for, mean",
            "gradients received, mean",
            "message, gradients",
            "decoding vector, µs",
            "error, median",
            "error, worst",
        ]
        rows = [[f"{catalogue.describe(row[0])} (`{row[0]}`)", *row[1:]] for row in rows]
        typer.echo(markdown_table(title, head, rows))
    else:
        head = ["code", "load", "worst", "workers", "sent", "size", "µs", "error", "max"]
        Console().print(rich_table(title, head, rows))
        typer.echo(
            "worst: messages needed; workers, sent: workers waited for and gradients received, "
            "mean; size: of a message, in gradients; µs: for a decoding vector; error: of the "
            "gradient, relative, median and max"
        )
    for name, why in impossible.items():
        typer.echo(f"{name}: {why}", err=True)
