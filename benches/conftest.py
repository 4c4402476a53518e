"""The comparison tables printed at the end of a run."""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from fastgc import __version__, kernels
from fastgc.kernels import threads

HERE = Path(__file__).parent

# Modules that the benchmarks import by name: pytest's importlib mode adds no folder to the path.
for path in (HERE.parent / "tests" / "kernel_table.py", HERE / "measure.py"):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def pytest_addoption(parser):
    parser.addoption("--summary-md", help="also write the comparison tables to this file")


@pytest.fixture
def note(benchmark):
    """Record figures beside a benchmark's times."""

    def note(**figures):
        benchmark.extra_info.update(figures)

    return note


@pytest.hookimpl(trylast=True)  # below the plugin's own tables
def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    done = {b.name: b for b in session.benchmarks if not b.has_error and b.stats.data}
    tables = [
        table
        for make in (_vectors, _stability, _combinations, _compilation)
        if (table := make(done))
    ]
    if not tables:
        return
    simd = "no extension"
    if "c" in kernels.backends():
        from fastgc.kernels import c_backend

        simd = c_backend.simd()
    machine = (
        f"fastgc {__version__}, {_processor()}, {threads.get_num_threads()} threads, SIMD {simd}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}"
    )
    terminalreporter.section("comparison: medians of one run")
    terminalreporter.write_line(machine)
    for title, rows in tables:
        terminalreporter.write_line(f"\n{title}")
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            terminalreporter.write_line(
                "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True))
            )
    if target := config.getoption("--summary-md"):
        lines = [f"Measured on: {machine}.\n"]
        for title, (head, *body) in tables:
            lines += [
                f"{title}\n",
                f"| {' | '.join(head)} |",
                "|---" + "|---:" * (len(head) - 1) + "|",
            ]
            lines += [f"| {' | '.join(row)} |" for row in body] + [""]
        Path(target).write_text("\n".join(lines), encoding="utf-8")


def _processor():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _time(value):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _vectors(done):
    """Decoding vectors: a row for each n, a column for each method."""
    methods = ("solve", "lookup", "locator", "fft", "prepared")
    cells = {}
    for bench in done.values():
        if (bench.group or "").startswith("decoding vector, "):
            info = bench.extra_info
            cells.setdefault((info["n"], info["s"]), {})[info["method"]] = bench
    if not cells:
        return None
    rows = [
        [
            "n, s",
            "solve O(f³)",
            "lookup O(f²)",
            "locator O(f·s)",
            "fft O(n log n)",
            "locator, prepared",
            "solve/lookup",
            "solve/locator",
            "error: solve",
            "lookup",
            "locator",
            "fft",
        ]
    ]
    for (n, s), found in sorted(cells.items()):
        median = {m: found[m].stats.median for m in methods if m in found}
        ratio = [
            f"{median['solve'] / median[m]:.0f}×" if "solve" in median and m in median else "–"
            for m in ("lookup", "locator")
        ]
        error = [
            f"{found[m].extra_info['error']:.0e}" if m in found else "–"
            for m in ("solve", "lookup", "locator", "fft")
        ]
        times = [_time(median[m]) if m in median else "–" for m in methods]
        rows.append([f"{n}, {s}", *times, *ratio, *error])
    return "Decoding vectors (errors: largest relative error of an entry)", rows


def _stability(done):
    found = [b.extra_info for b in done.values() if "worst_error" in b.extra_info]
    if not found:
        return None
    rows = [["code", "median error", "worst error", "trust() said (median)"]]
    rows += [
        [
            info["code"],
            f"{info['median_error']:.0e}",
            f"{info['worst_error']:.0e}",
            f"{info['median_trust']:.0e}",
        ]
        for info in found
    ]
    return "Relative error of the decoded gradient, 200 random survivor sets, float64", rows


def _combinations(done):
    found = [b for b in done.values() if "against" in b.extra_info]
    if not found:
        return None
    rows = [["what", "time", "GB/s", "of read bandwidth", "against", "ratio", "error"]]
    for bench in found:
        info = bench.extra_info
        rows.append(
            [
                info["what"],
                _time(bench.stats.median),
                f"{info['bytes'] / bench.stats.median / 1e9:.1f}",
                f"{info['read_seconds'] / bench.stats.median:.0%}",
                info["against"],
                f"{info['against_seconds'] / bench.stats.median:.2f}×",
                f"{info['error']:.0e}",
            ]
        )
    return "Encoding and decoding (ratio: how many times the other form's time)", rows


def _compilation(done):
    found = [b for b in done.values() if b.group == "start"]
    if not found:
        return None
    rows = [["start", "time"]]
    rows += [[b.extra_info["what"], _time(b.stats.median)] for b in found]
    return "Start-up and compilation (whole processes)", rows
