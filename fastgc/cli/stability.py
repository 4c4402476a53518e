"""``fastgc stability``: the precision of codes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.arrays import check_word
from ..codes import Code, catalogue
from ..errors import InstabilityWarning
from . import options
from .common import PRECISION, Options, command, echo, option
from .options import named, pairs, repeated
from .output import Column, Figures, Picture, Tables, microseconds

if TYPE_CHECKING:
    from ..stability import StabilityRow

MEASURED = (
    "rs:root=1 rs@spread rs rs-clustered cyclic binary lcc lcc:nodes=roots rs@natural rs@leja "
    "rs@solve"
)
_TRIALS = 200
EIGHTH = "0.125"  # default part of the workers that straggle


class Measured(Options):
    """The codes, sizes and patterns to measure."""

    names: list[str] | None = options.codes(
        "Codes, such as rs rs@spread binary. A method for decoding vectors stands behind @: "
        "rs@spread computes exact ones. Without it rs uses near-exact ones where they are more "
        "precise.",
        MEASURED,
    )
    workers: str = options.workers("16,64,256", several=True)
    stragglers: str | None = options.stragglers(EIGHTH, several=True)
    dtypes: str = option("float64", "Types of the messages, such as float64,float16.", "--dtype")
    patterns: str = option(
        "random,neighbouring",
        "Which workers straggle: random, late (in a random order, all after the round is ready), "
        "contiguous (in number), or neighbouring (on the circle of a code's evaluation points).",
    )
    worst: bool = option(
        False, "Also search for each code's worst stragglers, called adversarial.", "--worst"
    )
    trials: int | None = options.repeats(_TRIALS, "Sets of stragglers of each pattern.")
    seed: int = options.seed("Seed of data, sets and random codes.")
    plot: Path | None = options.picture(
        "Plot the errors for these sizes, patterns and dtypes to this file."
    )


@command(PRECISION, "fastgc stability rs rs-clustered binary -n 64/16 --patterns neighbouring")
def stability(what: Measured, output: Tables) -> None:
    """Measure what codes cost and how precise they are, for sizes and patterns of stragglers."""
    from .. import plotting

    output.check(what.plot)
    sizes = pairs(what.workers, what.stragglers, EIGHTH)
    survey = _Survey(what, repeated(what.trials, _TRIALS, max(n for n, _ in sizes)))

    def figures(rows: list[StabilityRow]) -> Figures:
        listed = [row._asdict() for row in rows]
        return listed, listed

    def end(rows: list[StabilityRow]) -> None:
        named = [row._replace(code=catalogue.describe(row.code)) for row in rows]
        picture = Picture(what.plot, lambda: plotting.stability_figure(named))
        listed, _ = figures(rows)
        output.deliver(listed, listed, lambda: _show(listed, what, survey.trials, output), picture)

    with output.growing(figures, end) as keep:
        survey.run(sizes, keep)
    for note in survey.notes:
        echo(note, err=True)


class _Survey:
    """Rows of figures of codes, and notes."""

    def __init__(self, what: Measured, trials: int) -> None:
        self.what, self.trials = what, trials
        self.codes = MEASURED.split() if what.names is None else named(what.names)
        self.dtypes = catalogue.split(what.dtypes)
        self.patterns = catalogue.split(what.patterns) + ["adversarial"] * what.worst
        if not (self.codes and self.dtypes and self.patterns):
            raise ValueError("name at least one code, dtype and pattern")
        for text in self.codes:  # names must be valid, for any size
            check_scheme(text)
        self.rows: list[StabilityRow] = []
        self.notes: list[str] = []
        self._refused: dict[str, str] = {}

    def run(self, pairs: list[tuple[int, int]], keep: Callable[[list[StabilityRow]], None]) -> None:
        """Measure all codes for all sizes, or raise ValueError if none can be measured."""
        from .._base.progress import share_bar
        from ..planning.plan import reasons

        with share_bar("measuring", len(pairs) * len(self.codes)) as show:
            for at, ((n, s), text) in enumerate(product(pairs, self.codes)):
                self._measure(text, n, s, partial(show, at))
                keep(self.rows)
        self.notes += reasons(self._refused)
        if not self.rows:
            raise ValueError("nothing to measure: " + "; ".join(self.notes))

    def _measure(self, text: str, n: int, s: int, show: Callable[[float, float], object]) -> None:
        """Measure a code for one size; `show` is called with the dtypes done and all."""
        from ..stability import compare

        what, kinds = self.what, len(self.dtypes)
        try:
            scheme = scheme_of(text, n, what.seed, s)
        except (ValueError, OverflowError) as error:
            self._refused[f"{text} at {n}/{s}"] = str(error)
            return
        said = catalogue.remark(text, scheme[0])
        self.notes += [said] if said else []

        def rows(dtypes: int, done: float, of: int) -> None:
            show(dtypes + done / of, kinds)

        for at, kind in enumerate(self.dtypes):
            try:
                self.rows += compare(
                    {text: scheme},
                    stragglers=s,
                    patterns=self.patterns,
                    dtypes=[kind],
                    sets=self.trials,
                    seed=what.seed,
                    progress=partial(rows, at),
                )
            except TypeError as error:  # the code has no messages of this dtype
                self._refused[f"{text} at {n}/{s} with {kind}"] = str(error)


def check_scheme(text: str) -> None:
    """Raise ValueError unless the text names a code, of any size, and perhaps a method."""
    name, _, method = text.partition("@")
    catalogue.check_name(name)
    if (methods := catalogue.methods(name)) is not None:
        check_word(f"method of {name}", method or "auto", *methods)


def scheme_of(text: str, n: int, seed: int, s: int) -> tuple[Code, str]:
    """Make a code, and return it with the method for its decoding vectors, as in rs@solve."""
    name, _, method = text.partition("@")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # the table shows it
        code = catalogue.make(name, n, None, s, seed)
    check_word(f"method of {name}", method or "auto", *code.scheme.methods)
    return code, method or "auto"


_SIZES = [Column("code", "code", "code"), Column("n", "n", "n"), Column("s", "s", "stragglers")]
_COSTS = [
    *_SIZES,
    Column("load", "load, largest", "load"),
    Column("mean", "load, mean", "mean_load", ".4g"),
    Column("messages", "messages needed, mean", "messages", ".1f"),
    Column("size", "message, gradients", "message_size", "g"),
]
_ERRORS = [
    *_SIZES,
    Column("µs", "decoding vector, µs", "decode_seconds", microseconds),
    Column("error", "error, median", "error", ".0e"),
    Column("max", "error, worst", "worst_error", ".0e"),
    Column("predicted", "predicted error, median", "predicted", ".0e"),
    Column("bound", "bound of the error, worst", "bound", ".0e"),
    Column("amplif.", "amplification of rounding errors, median", "amplification", ".0e"),
]


def _show(rows: list[dict[str, Any]], what: Measured, trials: int, output: Tables) -> None:
    """Print costs once for all dtypes and patterns, and a table of errors for each of these."""
    of_code = groupby(rows, key=lambda row: [row[key] for key in ("code", "n", "stragglers")])
    output.table("loads and messages", _COSTS, [next(mine) for _, mine in of_code], several=True)
    for kind, pattern in dict.fromkeys((row["dtype"], row["pattern"]) for row in rows):
        mine = [row for row in rows if (row["dtype"], row["pattern"]) == (kind, pattern)]
        title = f"{kind}, {pattern} stragglers; up to {trials} sets each, seed {what.seed}"
        output.table(title, _ERRORS, mine, several=True)
    output.explain(
        "load: partitions of the worker that has most; mean: partitions per worker; messages: "
        "needed in random order, mean; size: of a message, in gradients; µs: time of a decoding "
        "vector, median; error: relative error of the gradient, median; max: the largest; "
        "predicted: error by trust(), median; bound: proven bound of the error, where it is "
        "largest; amplif.: how many times larger rounding errors become, median",
        codes=[row["code"] for row in rows],
    )
