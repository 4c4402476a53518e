"""``fastgc stability``."""

from __future__ import annotations

import re
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
from .common import (
    PRECISION,
    FiguresCommand,
    Json,
    app,
    check_figures,
    check_folder,
    check_plot,
    clear_errors,
    complete_codes,
    write_figures,
)

STABILITY_CODES = (
    "rs:root=1,rs@spread,rs,rs-clustered,cyclic,binary,lcc,lcc:nodes=roots,rs@natural,rs@leja,"
    "rs@solve"
)


@app.command(cls=FiguresCommand, rich_help_panel=PRECISION)
def stability(
    names: Annotated[
        str,
        typer.Argument(
            help="A list such as rs@spread,rs,binary; rs@solve computes decoding vectors by the "
            "method solve, rs@spread exact ones, rs near-exact ones where they are more precise.",
            autocompletion=complete_codes,
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
        str, typer.Option("--dtype", help="Types of the messages, as in float64x2,float64,float16.")
    ] = "float64",
    equal: Annotated[
        str,
        typer.Option(
            help="What codes have in common. stragglers: they tolerate equally many. Or each "
            "tolerates as many as it can without more of something than the first code: load (the "
            "largest), mean_load, messages (that it needs), message_size, decode_seconds, error."
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, sets and random codes.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot the errors for these sizes, patterns and dtypes to this file (png, svg, "
            "pdf)."
        ),
    ] = None,
    circle: Annotated[
        Path | None,
        typer.Option(
            help="Plot decoding vectors around the circle of evaluation points to this file: "
            "exact and near-exact ones of the first code, a Reed-Solomon code in one cluster, for "
            "the first size, where neighbours straggle."
        ),
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all figures here.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    json_file: Json = None,
) -> None:
    """Measure what codes cost and how precise they are, for sizes and patterns of stragglers.

    Codes that tolerate equally many stragglers differ in their loads and in the messages they need:
    --equal load compares those of equal load. All codes meet the same stragglers. Adversarial ones
    are searched for each code.
    """
    from ..planning.plan import reasons
    from ..progress import task_bar
    from ..stability import HELD, circle_values, compare, matched, write_csv

    with clear_errors():
        check_figures(json_file, None)
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
        for text in chosen:  # for any size
            check_scheme(text)
        if circle is not None:
            n, s = pairs[0]
            code, _ = scheme_of(chosen[0], n, seed, s)
            neighbours = code.scheme.rings()[0][(n - s) // 2 :][:s]  # in the middle of the picture
            around = circle_values(code, neighbours, kinds[0])
        rows: list[Any] = []
        asked: list[tuple[int, int]] = []  # the size that each row is of
        refused: dict[str, str] = {}
        notes: list[str] = []
        with task_bar("measuring", len(pairs) * len(chosen)) as advance:
            for n, wanted_s in pairs:
                for text in chosen:
                    s = wanted_s
                    scheme = {}
                    try:
                        if equal != "stragglers" and text != chosen[0]:
                            first = _first(rows, chosen[0], n, s)
                            make = partial(scheme_of, text, n, seed)
                            s = matched(make, first, equal, sets=trials, seed=seed)
                        scheme = {text: scheme_of(text, n, seed, s)}
                        said = catalogue.remark(text, scheme[text][0])
                        notes += [said] if said else []
                    except (ValueError, OverflowError) as error:
                        refused[f"{text} at {n}/{s}"] = str(error)
                    for kind in kinds:
                        try:
                            rows += compare(
                                scheme,
                                stragglers=s,
                                patterns=wanted,
                                dtypes=[kind],
                                sets=trials,
                                seed=seed,
                            )
                        except TypeError as error:  # no messages of this dtype
                            refused[f"{text} at {n}/{s} with {kind}"] = str(error)
                    asked += [(n, wanted_s)] * (len(rows) - len(asked))
                    advance()
        notes += reasons(refused)
        if not rows:
            raise ValueError("nothing to measure: " + "; ".join(notes))
        if csv_file is not None:
            write_csv(rows, csv_file)
            typer.echo(f"figures written to {csv_file}", err=True)
        if circle is not None:
            from .. import plotting

            plotting.save_circle_curves(around, circle)
            typer.echo(f"plot written to {circle}", err=True)
        if plot is not None:
            from .. import plotting

            plotting.save_stability_curves(
                [row._replace(code=catalogue.describe(row.code)) for row in rows], plot, asked
            )
            typer.echo(f"plot written to {plot}", err=True)
    if write_figures([row._asdict() for row in rows], [], json_file, None):
        return
    show = partial(_show, markdown=markdown)
    _costs(rows, equal, show, name=catalogue.describe if markdown else str)
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
    for kind, pattern in dict.fromkeys((row.dtype, row.pattern) for row in rows):
        mine = [row for row in rows if (row.dtype, row.pattern) == (kind, pattern)]
        title = f"{kind}, {pattern} stragglers; up to {trials} sets each, seed {seed}"
        cells = [
            [
                catalogue.describe(row.code) if markdown else row.code,
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
        shown = dict.fromkeys(row.code for row in rows)
        typer.echo(f"Codes: {', '.join(map(catalogue.describe, shown))}.")
    for note in notes:
        typer.echo(note, err=True)


def pairs_of(text: str, fractions: str) -> list[tuple[int, int]]:
    """Pairs of workers and stragglers."""
    shares = []
    for each in catalogue.split(fractions):
        try:
            shares.append(share := float(each))
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            raise ValueError(
                f"--stragglers: {each!r} is no fraction of the workers, from 0 to below 1, as in "
                "0.125"
            )
    pairs = []
    for each in catalogue.split(text):
        found = re.fullmatch(r"(\d{1,9})(?:/(\d{1,9}))?", each)
        if found is None:
            raise ValueError(
                f"--sizes: {each!r} is no size: a size is a number of workers, as in 16, or "
                "workers/stragglers, as in 16/2"
            )
        n = int(found[1])
        pairs += [(n, int(found[2]))] if found[2] else [(n, int(n * share)) for share in shares]
    if not pairs:
        raise ValueError("--sizes and --stragglers must name something to measure")
    for n, s in pairs:
        if not 0 <= s < n:
            raise ValueError(f"{s} of {n} workers cannot straggle: 0 <= s < n is needed")
    return pairs


def check_scheme(text: str) -> None:
    """Raise ValueError unless the text names a code, whatever its size, and perhaps a method."""
    name, _, method = text.partition("@")
    catalogue.check_name(name)
    methods = catalogue.methods(name)
    if methods is not None:
        _check_method(name, method, methods)


def _check_method(name: str, method: str, methods: tuple[str, ...]) -> None:
    if (method or "auto") not in methods:
        raise ValueError(f"{name} has no method {method!r}: choose one of {', '.join(methods)}")


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
    _check_method(name, method, code.scheme.methods)
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
