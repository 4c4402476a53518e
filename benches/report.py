"""Benchmarks of speed against n and against memory, as one page with pictures.

Run as ``python benches/report.py DIR``: writes ``DIR/report.md``, ``scaling.png`` and
``roofline.png``. ``pytest benches --benchmark-only --report DIR`` does so with all benchmarks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from fastgc import plotting
from fastgc.panels import Line, Panel

HERE = Path(__file__).parent
BENCHES = (
    "test_scaling.py",
    "test_roofline.py",
    "test_decoding_vector.py",
    "test_combine.py",
    "test_overhead.py",
    "test_streaming.py",
    "test_auto.py",
    "test_batch.py",
    "test_numba.py",
)

Table = tuple[str, Sequence[Sequence[str]]]  # a title, and rows of which the first is the head


def prepare(directory: str) -> None:
    """Make the folder, and raise before benchmarks run what `write` would after them."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    plotting.check_path(Path(directory) / "scaling.png")


def markdown(machine: str, tables: Sequence[Table]) -> str:
    """Return the tables as text."""
    lines = [f"Measured on: {machine}.\n"]
    for title, (head, *body) in tables:
        lines += [f"{title}\n", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in body] + [""]
    return "\n".join(lines)


def write(directory: Path, machine: str, tables: Sequence[Table], done: Mapping[str, Any]) -> None:
    """Write the report of the benchmarks that ran.

    Parameters
    ----------
    directory : Path
    machine : str
        What they ran on.
    tables : sequence of (title, rows)
    done : mapping
        pytest-benchmark's results by name.
    """
    from tables import roofline, scaling

    pictures = []
    if found := scaling(done):
        _draw_scaling(found, directory / "scaling.png")
        pictures.append("![Time against n](scaling.png)")
    if shares := roofline(done):
        named = {
            f"{bench.extra_info['roofline']}, {bench.extra_info['threads']} thread"
            f"{'s' * (bench.extra_info['threads'] > 1)}": share
            for bench, share in shares.items()
        }
        _draw_roofline(dict(sorted(named.items())), directory / "roofline.png")
        pictures.append("![Per cent of the measured read bandwidth](roofline.png)")
    page = "\n\n".join(["# Benchmarks", *pictures, markdown(machine, tables)])
    (directory / "report.md").write_text(page, encoding="utf-8")


def _draw_scaling(found: Mapping[str, tuple[Any, Any, float]], path: Path) -> None:
    lines = [
        Line(f"{method}: n^{exponent:.2f}", sizes, times)
        for method, (sizes, times, exponent) in found.items()
    ]
    title = "Decoding vector, s = n/8"
    panel = Panel(title, "n", "time (s)", lines, log_x=True, log_y=True)
    figure = plotting.panel_figure([panel])
    figure.axes[0].legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    plotting._save(figure, path)


def _draw_roofline(shares: Mapping[str, float], path: Path) -> None:
    figure = plotting._new_figure(7, 1 + 0.25 * len(shares))
    ax = figure.add_subplot()
    kinds = list(dict.fromkeys(name.rsplit(", ", 1)[1] for name in shares))
    colour = dict(zip(kinds, cycle(plotting._COLOURS), strict=False))
    bars = ax.barh(
        list(shares),
        list(shares.values()),
        color=[colour[name.rsplit(", ", 1)[1]] for name in shares],
    )
    ax.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3, fontsize="small")
    ax.axvline(1, color="black", linewidth=0.8)
    ax.margins(y=0.01)
    ax.invert_yaxis()
    ax.set_xlim(right=1.1 * max(1, *shares.values()))
    ax.set_xlabel("of the measured read bandwidth")
    plotting._percent(ax.xaxis)
    plotting._plain_frame(ax)
    plotting._save(figure, path)


def main() -> int:
    """Run pytest on the benchmarks of the report."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    files = [str(HERE / name) for name in BENCHES if (HERE / name).exists()]
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-only", "--report", sys.argv[1]]
    return subprocess.run([*command, *files], cwd=HERE.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
