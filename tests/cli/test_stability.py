"""``fastgc stability``."""

import csv

import commands
import pytest

from fastgc import stability
from fastgc.codes import catalogue


def test_stability_prints_what_compare_returns(tmp_path):
    """For all sizes, codes with their methods, dtypes and patterns, in this order."""
    path = tmp_path / "figures.csv"
    asked = "stability", "rs@leja", "binary", "-n", "16,12/3", "-s", "0.25"
    how = "--dtype", "float64,float32", "--patterns", "random", "--worst", "--trials", "5"
    rows = commands.figures(*asked, *how, "--seed", "4", "--csv", path)
    expected = []
    for n, s in (16, 4), (12, 3):
        for name in "rs@leja", "binary":
            code = catalogue.make(name.partition("@")[0], n, None, s, 4)
            method = "leja" if "@" in name else "auto"
            for dtype in "float64", "float32":
                settings = {"stragglers": s, "patterns": ["random", "adversarial"], "sets": 5}
                found = stability.compare(
                    {name: (code, method)}, dtypes=[dtype], seed=4, **settings
                )
                expected += [row._asdict() for row in found]
    for row, other in zip(rows, expected, strict=True):
        del row["decode_seconds"], other["decode_seconds"]
        assert row == other
    with path.open() as file:
        listed = list(csv.DictReader(file))
    assert [float(row["error"]) for row in listed] == [row["error"] for row in rows]


def test_stability_tables():
    """Costs are told once; errors have a table for each dtype and pattern."""
    asked = "stability", "rs:root=1,binary", "-n", "16,12/3", "-s", "0.25", "--seed", "4"
    asked += "--dtype", "float64,float32", "--patterns", "random", "--worst", "--trials", "5"
    rows = commands.figures(*asked)
    costs, *errors = commands.done(*asked, "--markdown").stdout.split("; up to 5 sets each")
    _, *cells = commands.table(costs)
    assert [row[:4] for row in cells] == [
        [catalogue.describe(row["code"]), *(str(row[key]) for key in ("n", "stragglers", "load"))]
        for row in rows
        if (row["dtype"], row["pattern"]) == ("float64", "random")
    ]
    pairs = [(d, p) for d in ("float64", "float32") for p in ("random", "adversarial")]
    for (dtype, pattern), before, text in zip(pairs, [costs, *errors], errors, strict=False):
        assert before.endswith(f"\n{dtype}, {pattern} stragglers")
        _, *cells = commands.table(text)
        mine = [row for row in rows if (row["dtype"], row["pattern"]) == (dtype, pattern)]
        keys = "error", "worst_error", "predicted", "bound", "amplification"
        assert [row[4:] for row in cells] == [[f"{row[key]:.0e}" for key in keys] for row in mine]
    terminal = commands.done(*asked).stdout
    assert max(map(len, terminal.splitlines()[:40])) <= 80
    assert terminal.count(" µs ") == 4  # next to errors: it depends on the stragglers


def test_stability_says_what_cannot_be_measured():
    asked = "stability", "rs,rs-clustered,binary,fractional", "-n", "16/8", "--trials", "3"
    result = commands.done(*asked, "--patterns", "random")
    assert "loads and messages" in result.stdout
    assert result.stderr.count("one cluster, the same code as without clusters") == 1
    assert "fractional at 16/8: " in result.stderr  # none tolerates 8 stragglers
    line = commands.refused("stability", "fractional", "-n", "16/4")
    assert line.startswith("fastgc: nothing to measure: fractional at 16/4: fractional")


def test_stability_plots_what_was_asked_for(drawn):
    asked = "stability", "rs", "binary", "-n", "16/8", "--trials", "2"
    commands.done(*asked, "--patterns", "random", "--dtype", "float32", "--plot", "errors.svg")
    [axes] = drawn["errors.svg"].axes
    assert axes.get_title() == "random stragglers, float32"
    assert [each.get_text() for each in axes.get_xticklabels()] == ["16/8"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rs@lu"], 'method of rs must be "auto", "locator", "spread"'),
        (["binary@leja"], "method of binary must be \"auto\", not 'leja'"),
        (["rs", "-n", "8/8"], "stragglers must be in 0 .. n-1 = 7, not 8"),
        (["", "-n", "16"], "name at least one code"),
        (["rs", "--patterns", ""], "at least one code, dtype and pattern"),
        (["rs", "--dtype", ""], "at least one code, dtype and pattern"),
        (["rs", "--plot", "out.bmp"], "must end in .png"),
    ],
)
def test_stability_refuses_its_options(arguments, says):
    assert says in commands.refused("stability", *arguments, "--trials", "2")


@pytest.mark.filterwarnings("default::fastgc.errors.InstabilityWarning")
def test_stability_shows_unstable_codes_without_a_warning():
    result = commands.done("stability", "rs:root=1", "-n", "128/16", "--trials", "1")
    assert result.stderr == ""


def test_stability_leaves_out_dtypes_that_a_code_has_no_messages_of():
    asked = "stability", "lcc:nodes=roots,binary", "-n", "8/2", "--trials", "2"
    result = commands.done(*asked, "--dtype", "float16", "--patterns", "random")
    assert "lcc:nodes=roots at 8/2 with float16: " in result.stderr
    assert {row["code"] for row in commands.figures(*asked, "--patterns", "random")} == {
        "lcc:nodes=roots",
        "binary",
    }
