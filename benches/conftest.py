"""Prints the comparison tables at the end of a run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# The benchmarks import these modules by name: pytest's importlib mode adds no folder to the path.
for path in (
    HERE.parent / "tests" / "kernel_table.py",
    HERE / "measure.py",
    HERE / "tables.py",
    HERE / "report.py",
):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

TABLES = sys.modules["tables"].TABLES


def pytest_configure(config):
    """Stop if a checkout without the extension hides an installed package that has it."""
    import fastgc

    folder = Path(fastgc.__file__).resolve().parent
    if "c" not in fastgc.backends() and folder == HERE.parent / "fastgc":
        raise pytest.UsageError(
            f"{folder} has no compiled kernels, so that C would not be measured: install the "
            "checkout (pip install -e .); or, beside an installed package, call pytest and not "
            "python -m pytest, which takes the current folder first"
        )


def pytest_addoption(parser):
    parser.addoption("--summary-md", help="also write the comparison tables to this file")
    parser.addoption("--pictures", help="also draw pictures of some of them in this folder")


@pytest.fixture
def note(benchmark):
    """Return a function that records figures beside a benchmark's times."""

    def note(**figures):
        benchmark.extra_info.update(figures)

    return note


@pytest.hookimpl(trylast=True)  # below the plugin's own tables
def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    done = {b.name: b for b in session.benchmarks if not b.has_error and b.stats.data}
    found = [table for make in TABLES if (table := make(done))]
    if not found:
        return
    terminalreporter.section("comparison: medians of one run")
    report = sys.modules["report"]
    terminalreporter.write_line(report.machine())
    for title, rows in found:
        terminalreporter.write_line(f"\n{title}")
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            terminalreporter.write_line(
                "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True))
            )
    if target := config.getoption("--summary-md"):
        Path(target).write_text(report.markdown(found), encoding="utf-8")
    if directory := config.getoption("--pictures"):
        report.draw(Path(directory), done)
