"""``fastgc stability``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..codes import Code, catalogue
from ..errors import InstabilityWarning
from .common import app, check_folder, check_plot, clear_errors

STABILITY_CODES = (
    "rs:root=1,rs@spread,rs,rs-clustered,cyclic,binary,lcc,lcc:nodes=roots,rs@natural,rs@leja,"
    "rs@solve"
)
PLOTTED = (8, 16, 32, 64, 128, 256, 512)  # workers, an eighth of which straggle
PLOTTED_STRAGGLERS = (1, 2, 4, 8, 16, 32, 48)  # of 64 workers
PLOTTED_PATTERNS = ("random", "neighbouring")
PLOTTED_SETS = 50  # at most: a picture shows no more


@app.command()
def stability(
    names: Annotated[
        str,
        typer.Argument(
            help="A list such as rs@spread,rs,binary; rs@solve computes decoding vectors by the "
            "method solve, rs@spread exact ones, rs near-exact ones where they are more precise."
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
        str, typer.Option("--dtype", help="Of the messages, as in float64x2,float64,float16.")
    ] = "float64",
    equal: Annotated[
        str,
        typer.Option(
            help="What is the same for all codes: stragglers; or what a code has at most as much "
            "of as the first one, being made for as many stragglers as that allows: load (the "
            "largest), mean_load, messages (needed; for as few), message_size, decode_seconds, "
            "error."
        ),
    ] = "stragglers",
    patterns: Annotated[
        str,
        typer.Option(
            help="Which workers straggle: random, contiguous (in number), neighbouring (on the "
            "circle of a code's evaluation points), adversarial."
        ),
    ] = "random,neighbouring",
    trials: Annotated[int, typer.Option(min=1, help="Sets of survivors of each kind.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of data, sets and random codes.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot errors against workers and stragglers, random and neighbouring, to this "
            "file (png, svg, pdf)."
        ),
    ] = None,
    circle: Annotated[
        Path | None,
        typer.Option(
            help="Plot the exact and the near-exact vector of the first code, a Reed-Solomon code "
            "in one cluster, of the first size, around its circle, neighbours straggling, to this "
            "file."
        ),
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all figures here.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what codes cost and how precise they are, for sizes and patterns of stragglers.

    Codes that tolerate equally many stragglers differ in their loads and in the messages they need:
    --equal load compares those of equal load. All meet the same stragglers, but each adversarial
    ones of its own.
    """
    from ..history import json_ready
    from ..progress import task_bar
    from ..stability import HELD, circle_values, compare, matched, write_csv

    with clear_errors():
        check_folder(csv_file)
        for path in (plot, circle):
            check_plot(path)
        pairs = pairs_of(sizes, stragglers)
        if equal not in ("stragglers", *HELD):
            raise ValueError(f"--equal must be stragglers, {', '.join(HELD)}, not {equal}")
        chosen, kinds = catalogue.split(names), catalogue.split(dtypes)
        wanted = catalogue.split(patterns)
        if not (chosen and kinds and wanted):
            raise ValueError("name at least one code, one dtype and one pattern")
        if circle is not None:
            n, s = pairs[0]
            code, _ = scheme_of(chosen[0], n, seed, s)
            neighbours = code.rings()[0][(n - s) // 2 :][:s]  # in the middle of the picture
            around = circle_values(code, neighbours, kinds[0])
        lines = {
            "table": [(text, n, s) for n, s in pairs for text in chosen],
            "n": [(text, n, n // 8) for n in PLOTTED for text in chosen if plot],
            "stragglers": [(text, 64, s) for s in PLOTTED_STRAGGLERS for text in chosen if plot],
        }
        rows: dict[str, list[Any]] = {part: [] for part in lines}
        notes: list[str] = []
        with task_bar("measuring", sum(map(len, lines.values()))) as advance:
            for part, entries in lines.items():
                for text, n, s in entries:
                    scheme = {}
                    try:
                        if part == "table" and equal != "stragglers" and text != chosen[0]:
                            first = _first(rows[part], chosen[0], n, s)
                            make = partial(scheme_of, text, n, seed)
                            s = matched(make, first, equal, sets=trials, seed=seed)
                        scheme = {text: scheme_of(text, n, seed, s)}
                        said = catalogue.remark(text, scheme[text][0])
                        notes += [said] if said and part == "table" else []
                    except (ValueError, OverflowError) as error:
                        notes.append(f"{text}, n={n}, s={s}: {error}")
                    for kind in kinds if part == "table" else kinds[:1]:
                        try:
                            rows[part] += compare(
                                scheme,
                                stragglers=s,
                                patterns=wanted if part == "table" else PLOTTED_PATTERNS,
                                dtypes=[kind],
                                sets=trials if part == "table" else min(trials, PLOTTED_SETS),
                                seed=seed,
                            )
                        except TypeError as error:  # no messages of this dtype
                            notes.append(f"{text}, n={n}, s={s}, {kind}: {error}")
                    advance()
        if not rows["table"]:
            raise ValueError("nothing to measure: " + "; ".join(notes))
        if csv_file is not None:
            write_csv(rows["table"], csv_file)
            typer.echo(f"figures written to {csv_file}", err=True)
        if circle is not None:
            from .. import plotting

            plotting.save_circle_curves(around, circle)
            typer.echo(f"plot written to {circle}", err=True)
        if plot is not None:
            from .. import plotting

            titled = {
                part: [row._replace(code=_title(row.code)) for row in rows[part]] for part in rows
            }
            plotting.save_stability_curves(titled["n"], titled["stragglers"], plot)
            typer.echo(f"plot written to {plot}", err=True)
    if as_json:
        listed = [json_ready(row._asdict()) for row in rows["table"]]
        typer.echo(json.dumps(listed, allow_nan=False))
        return
    show = partial(_show, markdown=markdown)
    _costs(rows["table"], equal, show, name=_title if markdown else str)
    short = ["code", "n", "s", "µs", "error", "max", "predicted", "bound", "amplif."]
    long = [
        "code",
        "n",
        "s",
        "decoding vector, µs",
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
                f"{1e6 * row.decode_seconds:.1f}",
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
        show(title, short, long, cells)
    if not markdown:
        typer.echo(
            "load, mean: partitions of a worker, largest and mean; messages: needed in random "
            "order, mean; size: of a message, in gradients; µs: for a decoding vector; error, max: "
            "of the gradient, relative, median and largest; predicted: by trust(); bound: proven, "
            "at the largest amplification of rounding (amplif.: median)"
        )
    for note in notes:
        typer.echo(note, err=True)


def pairs_of(text: str, fractions: str) -> list[tuple[int, int]]:
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


def _first(rows: list[Any], code: str, n: int, s: int) -> Any:
    """The row of the code with which others are compared."""
    found = [row for row in rows if (row.code, row.n, row.stragglers) == (code, n, s)]
    if not found:
        raise ValueError(f"--equal compares with {code}, which could not be measured")
    return found[0]


def scheme_of(text: str, n: int, seed: int, s: int) -> tuple[Code, str]:
    """A code, and the method for its decoding vectors, by a name such as rs@solve."""
    name, _, method = text.partition("@")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # the table will tell
        code = catalogue.make(name, n, None, s, seed)
    methods = getattr(code, "methods", ("auto",))
    if (method or "auto") not in methods:
        raise ValueError(f"{name} has no method {method!r}: choose one of {', '.join(methods)}")
    return code, method or "auto"


def _show(
    title: str, short: list[str], long: list[str], cells: list[list[str]], *, markdown: bool
) -> None:
    from ..progress import markdown_table, rich_table

    if markdown:
        typer.echo(markdown_table(title, long, cells) + "\n")
    else:
        Console().print(rich_table(title, short, cells))


def _costs(
    rows: list[Any], equal: str, show: Callable[..., None], name: Callable[[str], str]
) -> None:
    """Print what each code takes, once for all dtypes and patterns."""
    short = ["code", "n", "s", "load", "mean", "messages", "size"]
    long = [
        "code",
        "n",
        "s",
        "load, largest",
        "load, mean",
        "messages needed, mean",
        "message, gradients",
    ]
    title = f"loads and messages; equal: {equal.replace('_', ' ')}"
    cells = []
    for _, mine in groupby(rows, key=lambda row: (row.code, row.n, row.stragglers)):
        row = next(mine)
        cells.append(
            [
                name(row.code),
                str(row.n),
                str(row.stragglers),
                str(row.load),
                f"{row.mean_load:.4g}",
                f"{row.messages:.1f}",
                f"{row.message_size:g}",
            ]
        )
    show(title, short, long, cells)


def _title(text: str) -> str:
    name, _, method = text.partition("@")
    if method in ("spread", "near-exact"):
        kind = "exact" if method == "spread" else method
        return f"{catalogue.describe(name)}, {kind} vectors"
    how = {
        "vandermonde": "Björck–Pereyra",
        "leja": "Björck–Pereyra, Leja order",
        "natural": "Björck–Pereyra, natural order",
        "solve": "LU",
    }.get(method, method)
    return catalogue.describe(name) + (f", by {how}" if how else "")
