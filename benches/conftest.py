"""Prints what benchmarks noted beside their times, in one table for each file."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

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
    """Return a function that records figures beside a benchmark's times."""

    def note(**figures):
        benchmark.extra_info.update(figures)

    return note


def cell(value):
    """Write a number with three digits, a mapping by its items, and anything else as it is."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(each)}" for name, each in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def growth(benches):
    """Return the exponent of n in median times, fitted to the larger half of the sizes."""
    times = sorted({bench.extra_info["n"]: bench.stats.median for bench in benches}.items())
    larger = times[-max(2, (len(times) + 1) // 2) :]
    if len(larger) < 2:
        return math.nan
    n, seconds = ([math.log(each) for each in column] for column in zip(*larger, strict=True))
    middle = sum(n) / len(n)
    square = sum((each - middle) ** 2 for each in n)
    return sum((a - middle) * b for a, b in zip(n, seconds, strict=True)) / square


def tables(benches):
    """Yield a title and rows, the head first, for each file and kind of notes in it."""
    kinds = {}
    for bench in benches:
        file = bench.fullname.partition("::")[0]
        kinds.setdefault((file, tuple(bench.extra_info)), []).append(bench)
    for (file, names), found in kinds.items():
        rows = [["", *(name.replace("_", " ") for name in names), "median, s"]]
        for bench in found:
            told = (cell(value) for value in bench.extra_info.values())
            rows.append([bench.name, *told, cell(bench.stats.median)])
        yield file, rows
        if "scaling" in names:
            methods = dict.fromkeys(bench.extra_info["scaling"] for bench in found)
            fits = [
                [name, f"n^{growth(b for b in found if b.extra_info['scaling'] == name):.2f}"]
                for name in methods
            ]
            yield f"{file}: growth, fitted to the larger half of the sizes", [["", "time"], *fits]


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
