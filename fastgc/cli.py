"""The command ``fastgc``."""

from __future__ import annotations

import json
import platform
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from . import __version__, kernels
from .codes import Code, catalogue
from .errors import InstabilityWarning, WorkerFailedError

app = typer.Typer(
    help="Gradient coding: the exact gradient from whichever workers answered first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _begin() -> None:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"fastgc: warning: {message}", err=True)

    warnings.showwarning = show


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
    from . import data as datasets
    from . import delays as delay_models
    from .models import LeastSquares, SoftmaxRegression
    from .optimizers import Nesterov
    from .progress import comparison_table
    from .stability import StabilityTracker, write_jsonl
    from .training import train as run
    from .training import write_json

    trackers: dict[str, StabilityTracker] = {}
    try:
        for path in (plot, json_file, track):
            _check_folder(path)
        if plot is not None:
            from . import plotting

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
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, WorkerFailedError) as e:
        typer.echo(f"fastgc: {e}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("fastgc: interrupted; the worker processes have ended", err=True)
        raise typer.Exit(130) from None
    finally:  # of what was trained until an error, too
        if track is not None and any(tracker.rounds for tracker in trackers.values()):
            try:
                write_jsonl(trackers, track)
                typer.echo(f"precision written to {track}", err=True)
            except OSError as e:
                typer.echo(f"fastgc: {e}", err=True)
                raise typer.Exit(2) from None


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


STABILITY_CODES = (
    "rs:root=1,rs,rs-clustered,cyclic,binary,lcc,lcc:nodes=roots,rs@natural,rs@leja,rs@solve"
)
PLOTTED = (8, 16, 32, 64, 128, 256, 512)  # workers, an eighth of which straggle
PLOTTED_STRAGGLERS = (1, 2, 4, 8, 16, 32, 48)  # of 64 workers
PLOTTED_SETS = 50  # at most: a picture shows no more


@app.command()
def stability(
    names: Annotated[
        str,
        typer.Argument(
            help="A list such as rs:root=1,rs,binary; rs@solve computes decoding vectors by the "
            "method solve."
        ),
    ] = STABILITY_CODES,
    sizes: Annotated[
        str, typer.Option(help="Workers, as in 16,64 or, with their stragglers, 80/12,256/32.")
    ] = "16,64,256",
    stragglers: Annotated[
        str,
        typer.Option(
            "--stragglers", "-s", help="Stragglers where --sizes does not say: fractions of n."
        ),
    ] = "0.125",
    dtypes: Annotated[
        str, typer.Option("--dtype", help="Of the messages, as in float64,float32,float16.")
    ] = "float64",
    patterns: Annotated[
        str, typer.Option(help="Which workers straggle: random, contiguous, adversarial.")
    ] = "random",
    trials: Annotated[int, typer.Option(min=1, help="Sets of survivors of each kind.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of data, sets and random codes.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot errors against workers and stragglers to this file (png, svg, pdf)."
        ),
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all figures here.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how precise decoded gradients are, for codes, sizes and patterns of stragglers."""
    from .progress import markdown_table, rich_table, task_bar
    from .stability import compare, write_csv
    from .training import json_ready

    try:
        for path in (plot, csv_file):
            _check_folder(path)
        if plot is not None:
            from . import plotting

            plotting.check_path(plot)
        pairs = _sizes(sizes, stragglers)
        chosen, kinds = catalogue.split(names), catalogue.split(dtypes)
        wanted = catalogue.split(patterns)
        if not (chosen and kinds and wanted):
            raise ValueError("name at least one code, one dtype and one pattern")
        lines = {
            "table": [(text, n, s) for n, s in pairs for text in chosen],
            "n": [(text, n, n // 8) for n in PLOTTED for text in chosen if plot],
            "stragglers": [(text, 64, s) for s in PLOTTED_STRAGGLERS for text in chosen if plot],
        }
        rows: dict[str, list[Any]] = {part: [] for part in lines}
        impossible = []
        with task_bar("measuring", sum(map(len, lines.values()))) as advance:
            for part, entries in lines.items():
                for text, n, s in entries:
                    try:
                        scheme = {text: _scheme(text, n, s, seed)}
                    except (ValueError, OverflowError) as error:
                        impossible.append(f"{text}, n={n}, s={s}: {error}")
                        scheme = {}
                    for kind in kinds if part == "table" else kinds[:1]:
                        try:
                            rows[part] += compare(
                                scheme,
                                stragglers=s,
                                patterns=wanted if part == "table" else ["random"],
                                dtypes=[kind],
                                sets=trials if part == "table" else min(trials, PLOTTED_SETS),
                                seed=seed,
                            )
                        except TypeError as error:  # no messages of this dtype
                            impossible.append(f"{text}, n={n}, s={s}, {kind}: {error}")
                    advance()
        if not rows["table"]:
            raise ValueError("nothing to measure: " + "; ".join(impossible))
        if csv_file is not None:
            write_csv(rows["table"], csv_file)
            typer.echo(f"figures written to {csv_file}", err=True)
        if plot is not None:
            titled = {
                part: [row._replace(code=_title(row.code)) for row in rows[part]] for part in rows
            }
            plotting.save_stability_curves(titled["n"], titled["stragglers"], plot)
            typer.echo(f"plot written to {plot}", err=True)
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError) as e:
        typer.echo(f"fastgc: {e}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        listed = [json_ready(row._asdict()) for row in rows["table"]]
        typer.echo(json.dumps(listed, allow_nan=False))
        return
    short = ["code", "n", "s", "error", "max", "predicted", "bound", "amplif."]
    long = [
        "code",
        "n",
        "s",
        "error, median",
        "error, worst",
        "predicted, median",
        "bound, worst",
        "amplification, median",
    ]
    for kind, pattern in dict.fromkeys((row.dtype, row.pattern) for row in rows["table"]):
        mine = [row for row in rows["table"] if (row.dtype, row.pattern) == (kind, pattern)]
        title = f"{kind}, {pattern} stragglers; up to {trials} sets each, seed {seed}"
        cells = [
            [
                _title(row.code) if markdown else row.code,
                str(row.n),
                str(row.stragglers),
                *(
                    f"{value:.0e}"
                    for value in (
                        row.error,
                        row.worst_error,
                        row.predicted,
                        row.bound,
                        row.amplification,
                    )
                ),
            ]
            for row in mine
        ]
        if markdown:
            typer.echo(markdown_table(title, long, cells) + "\n")
        else:
            Console().print(rich_table(title, short, cells))
    if not markdown:
        typer.echo(
            "error, max: of the gradient, relative, median and largest; predicted: by trust(); "
            "bound: proven, at the largest amplification of rounding (amplif.: median)"
        )
    for why in impossible:
        typer.echo(why, err=True)


def _check_folder(path: Path | None) -> None:
    if path is not None and not path.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")


def _sizes(text: str, fractions: str) -> list[tuple[int, int]]:
    """Pairs of workers and stragglers."""
    pairs = []
    try:
        shares = [float(each) for each in catalogue.split(fractions)]
        for each in catalogue.split(text):
            workers, slash, given = each.partition("/")
            n = int(workers)
            pairs += [(n, s) for s in ([int(given)] if slash else [int(n * x) for x in shares])]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"--sizes and --stragglers are lists of numbers: {error}") from None
    if not pairs:
        raise ValueError("--sizes and --stragglers must name something to measure")
    if not all(0 <= share < 1 for share in shares):
        raise ValueError(f"--stragglers are fractions of n, from 0 to 1, not {fractions}")
    for n, s in pairs:
        if not 0 <= s < n:
            raise ValueError(f"{s} of {n} workers cannot straggle: 0 <= s < n is needed")
    return pairs


def _scheme(text: str, n: int, s: int, seed: int) -> tuple[Code, str]:
    name, _, method = text.partition("@")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # the table will tell
        code = catalogue.make(name, n, None, s, seed)
    methods = getattr(code, "methods", ("auto",))
    if (method or "auto") not in methods:
        raise ValueError(f"{name} has no method {method!r}: choose one of {', '.join(methods)}")
    return code, method or "auto"


def _title(text: str) -> str:
    name, _, method = text.partition("@")
    how = {
        "vandermonde": "Björck–Pereyra",
        "leja": "Björck–Pereyra, Leja order",
        "natural": "Björck–Pereyra, natural order",
        "solve": "LU",
    }.get(method, method)
    return catalogue.describe(name) + (f", by {how}" if how else "")
