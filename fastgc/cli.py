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
from .codes import Code, ReedSolomon, Uncoded
from .errors import NotDecodableError, WorkerFailedError

app = typer.Typer(
    help="Gradient coding: the exact gradient from whichever workers answered first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    workers: Annotated[int, typer.Option("--workers", "-n", help="Worker processes, n.")] = 20,
    stragglers: Annotated[
        int | None,
        typer.Option("--stragglers", "-s", help="Stragglers tolerated, s. [default: n/5]"),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-k", help="Partitions, k. [default: n]")
    ] = None,
    clusters: Annotated[
        str, typer.Option(help='Groups with a code of their own: a number or "auto".')
    ] = "1",
    root: Annotated[
        str, typer.Option(help='Evaluation root: "stable" or an integer (1: the paper\'s).')
    ] = "stable",
    data: Annotated[
        str,
        typer.Option(help='"digits", a .npz file, an idx file, or a folder with MNIST\'s files.'),
    ] = "digits",
    delays: Annotated[
        str, typer.Option(help='Delays added to each answer, or "none". Seconds.')
    ] = "pareto:t0=0.005,xi=1.1",
    rounds: Annotated[int, typer.Option(min=1, help="Gradient steps.")] = 150,
    lr: Annotated[float, typer.Option(help="Learning rate of Nesterov's method.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="For the data's split and the delays.")] = 0,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Also train without a code, waiting for all workers and ignoring stragglers, "
            "on the same delays.",
        ),
    ] = False,
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
    """Train softmax regression on worker processes that straggle, with coded gradients."""
    from . import data as datasets
    from . import delays as delay_models
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
        s = workers // 5 if stragglers is None else stragglers
        coded = ReedSolomon(
            workers,
            partitions,
            stragglers=s,
            root=_word_or_integer("--root", root, "stable"),
            clusters=_word_or_integer("--clusters", clusters, "auto"),
        )
        schemes: dict[str, Code] = {"coded (RS)": coded}
        if compare:
            schemes["wait for all"] = Uncoded(workers)
            schemes["ignore stragglers"] = Uncoded(workers, tolerance=coded.stragglers / workers)
        dataset = datasets.load(data, seed=seed)
        delay = delay_models.parse(delays)
        typer.echo(
            f"{dataset.name}: {len(dataset.X_train)} training, {len(dataset.X_test)} test samples; "
            f"delays {delay!r}, seed {seed}\n"
            f"code: any {coded.threshold} of {workers} workers, load {coded.load} of {coded.k} "
            "partitions",
            err=True,
        )
        histories = [
            run(
                code,
                dataset,
                optimizer=Nesterov(lr=lr),
                rounds=rounds,
                delays=delay,
                seed=seed,
                name=name,
                progress=True,
            )
            for name, code in schemes.items()
        ]
        Console().print(comparison_table(histories, target))
        if json_file is not None:
            write_json(histories, json_file)
            typer.echo(f"history written to {json_file}", err=True)
        if plot is not None:
            plotting.save_error_curves(histories, plot)
            typer.echo(f"plot written to {plot}", err=True)
    except (ValueError, TypeError, OSError, ImportError, NotDecodableError, WorkerFailedError) as e:
        typer.echo(f"fastgc: {e}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("fastgc: interrupted; the worker processes have ended", err=True)
        raise typer.Exit(130) from None


def _word_or_integer(option: str, text: str, word: str) -> Any:
    try:
        return text if text == word else int(text)
    except ValueError:
        raise ValueError(f'{option} must be "{word}" or an integer, not {text!r}') from None
