"""The pictures of the README and of the index, drawn anew: ``python docs/pictures.py``.

All time in them is simulated, so that they are the same wherever they are drawn. The last workers
are always slow. Needs the extras train and plot.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context

import fastgc
from fastgc import plotting
from fastgc.engines import SimulatedCluster

SMALL = fastgc.ReedSolomon(8, stragglers=2)
SMALL_DELAYS = "6 of exponential:mean=0.02; 2 of exponential:mean=0.15"

N, STRAGGLERS = 20, 4
DELAYS = f"{N - STRAGGLERS} of exponential:mean=0.01; {STRAGGLERS} of exponential:mean=0.2"
SCHEMES = {
    "Reed-Solomon code": fastgc.ReedSolomon(N, stragglers=STRAGGLERS),
    "binary code": fastgc.BinaryCode(N, stragglers=STRAGGLERS),
    "waiting for all": fastgc.Uncoded(N),
    "ignoring stragglers": fastgc.Uncoded(N, tolerance=STRAGGLERS / N),
}


def assignment(path: Path) -> None:
    """Draw who computes what."""
    plotting.save(plotting.assignment(SMALL), path)


def train(code: fastgc.Code, name: str, rounds: int, delays: str, cost: float) -> fastgc.History:
    """Train in simulated time: `cost` seconds for a partial gradient, beside the delays."""
    return fastgc.train(
        code,
        fastgc.data.load("digits").by_label(),
        name=name,
        rounds=rounds,
        engine=partial(SimulatedCluster, cost=cost, interrupted=False),
        delays=fastgc.delays.parse(delays),
    )


def timeline(path: Path) -> None:
    """Draw the same round twice, with the code and without one."""
    runs = {
        "coded, any 6 of 8 messages suffice": SMALL,
        "uncoded, all are waited for": fastgc.Uncoded(SMALL.n),
    }
    histories = {name: train(code, name, 1, SMALL_DELAYS, 0.005) for name, code in runs.items()}
    plotting.save(plotting.timeline_figure(histories), path)


def accuracy(path: Path) -> None:
    """Draw the time to a test error, with a code, waiting for all, and ignoring stragglers."""
    runs = [train(code, name, 150, DELAYS, 0.001) for name, code in SCHEMES.items()]
    about = "digits sorted by label; 4 of 20 workers are always slow"
    ax = plotting.error_curves(runs, caption=about, level=0.05)
    ax.set_xlabel("simulated time (s)")
    plotting.save(ax, path)


def trace(path: Path) -> None:
    """Draw what codes buy on a trace: when 100 rounds with the same delays are over."""
    late = fastgc.delays.Pareto(scale=0.005, shape=1.5)
    codes = {
        "waiting for all": fastgc.Uncoded(N),
        "Reed-Solomon code, any 17 of 20 messages": fastgc.ReedSolomon(N, stragglers=3),
        "binary code, fewer on average": fastgc.BinaryCode(N, stragglers=3),
    }
    lines, ends = [], []
    for name, code in codes.items():
        rounds = fastgc.simulation.follow(code, late, cost=0.002, rounds=100, seed=7).rounds
        times = [0.0, *(each.time for each in rounds)]
        lines.append(plotting.Line(name, times, range(101), "step"))
        ends.append(times[-1])
    found = f"100 gradients take {min(ends):.1f} s with a code, and {ends[0]:.1f} s without"
    panel = plotting.Panel(found, "time (s)", "gradients that are done", lines)
    about = "the same 100 rounds of 20 workers, late by Pareto's law; 2 ms for a partition"
    plotting.save(plotting.panel_figure([panel], caption=about), path)


def main() -> None:
    """Draw them to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="default: docs")
    folder = parser.parse_args().out
    settings: Any = plotting.style()
    with rc_context(settings):
        for draw in (assignment, timeline, accuracy, trace):
            draw(folder / f"{draw.__name__}.svg")


if __name__ == "__main__":
    main()
