"""Prints what benchmarks noted beside their times, in one table for each file."""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
from pathlib import Path

import pytest

from fastgc._base.text import duration

HERE = Path(__file__).parent
SIZES = 5  # from so many sizes on, a table says how times grow with them

# The benchmarks import these modules by name: pytest's importlib mode adds no folder to the path.
TESTS = HERE.parent / "tests"
for name, path in {
    "oracles": TESTS / "oracles" / "__init__.py",
    "measure": HERE / "measure.py",
    "report": HERE / "report.py",
}.items():
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def pytest_addoption(parser):
    parser.addoption("--summary-md", help="also write the tables to this file")


@pytest.fixture
def note(benchmark):
    """Return a function that records figures beside a benchmark's times.

    Figures are of type float, times in a dict; all else names the row. `across` names the label
    whose values make the columns, `calls` is the number of calls in a time.
    """

    def note(**figures):
        benchmark.extra_info.update(figures)

    return note


def cell(value):
    """Write a time, or anything else as it is."""
    return duration(value) if isinstance(value, float) else str(value)


def told(bench):
    """Return labels as texts, and figures: without `turns`, the median time is the first."""
    info = bench.extra_info
    median = duration(bench.stats.median / info.get("calls", 1))
    labels, figures = {}, {} if "turns" in info else {"median": median}
    for name, value in info.items():
        if name in ("across", "calls"):
            continue
        if isinstance(value, dict):
            figures |= {part: duration(each) for part, each in value.items()}
        elif isinstance(value, bool):
            figures[name] = name if value else "–"
        elif isinstance(value, float):
            figures[name] = "–" if math.isnan(value) else f"{value:.3g}"
        else:
            labels[name] = str(value)
    return labels or {"": bench.name}, figures


def growth(times):
    """Return the exponent of n in times of sizes n, fitted to the larger half of them."""
    larger = sorted(times.items())[-max(2, (len(times) + 1) // 2) :]
    if len(larger) < 2:
        return "–"
    n, seconds = ([math.log(each) for each in column] for column in zip(*larger, strict=True))
    return f"n^{statistics.linear_regression(n, seconds).slope:.2f}"


def table(benches, across):
    """Return what cells have, and rows: a benchmark each, or all that differ in `across` alone."""
    found = [told(bench) for bench in benches]
    names, figures = list(found[0][0]), list(found[0][1])
    if across is None:
        return "", [[*names, *figures], *([*x.values(), *y.values()] for x, y in found)]
    names.remove(across)
    columns = list(dict.fromkeys(labels[across] for labels, _ in found))
    many = len(columns) >= SIZES and all(column.isdigit() for column in columns)
    rows = {}
    for bench, (labels, each) in zip(benches, found, strict=True):
        row = rows.setdefault(tuple(labels[name] for name in names), ({}, {}))
        row[0][labels[across]] = "; ".join(x for x in each.values() if x != "–")
        if many:
            row[1][int(labels[across])] = bench.stats.median
    head = [*names, *(f"{across} = {column}" for column in columns), *["grows"] * many]
    body = [
        [*row, *(cells.get(column, "–") for column in columns), *[growth(times)] * many]
        for row, (cells, times) in rows.items()
    ]
    return "; ".join(figures), [head, *body]


def tables(benches):
    """Yield a title and rows, the head first, for each file and kind of notes in it."""
    kinds = {}
    for bench in benches:
        if rows := bench.extra_info.get("rows"):  # of a program, which measured by itself
            body = [[cell(each) for each in row.values()] for row in rows]
            yield bench.extra_info["title"], [list(rows[0]), *body]
        else:
            names = tuple(name for name in bench.extra_info if name != "calls")
            kinds.setdefault((bench.fullname.partition("::")[0], names), []).append(bench)
    for (file, _), found in kinds.items():
        cells, rows = table(found, found[0].extra_info.get("across"))
        yield f"{file}: {cells}" if cells else file, rows


@pytest.hookimpl(trylast=True)  # below the plugin's own tables
def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    done = [b for b in getattr(session, "benchmarks", ()) if not b.has_error and b.stats.data]
    found = list(tables([bench for bench in done if bench.extra_info]))
    if not found:
        return
    report = sys.modules["report"]
    text = report.markdown(found)
    terminalreporter.section("what benchmarks noted")
    terminalreporter.write_line(f"{report.machine()}\n\n{text}")
    if target := config.getoption("--summary-md"):
        Path(target).write_text(text, encoding="utf-8")
