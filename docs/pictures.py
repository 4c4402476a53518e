"""The pictures of the README, drawn anew: ``python docs/pictures.py``.

All time in them is simulated, so that they are the same wherever they are drawn. The last workers
are always slow. Needs the extras train and plot.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from PIL import Image

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


def save(drawn: Any, path: Path) -> None:
    """Write a picture of at most 1200 points across and 256 colours, as it is kept in git."""
    plotting.save(drawn, path)
    whole = Image.open(path).convert("RGB")
    whole.thumbnail((1200, 1200))
    whole.quantize(256).save(path, optimize=True)


def assignment(path: Path) -> None:
    """Draw who computes what."""
    save(plotting.assignment(SMALL), path)


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
    save(plotting.timeline_figure(histories), path)


def accuracy(path: Path) -> None:
    """Draw the time to a test error, with a code, waiting for all, and ignoring stragglers."""
    runs = [train(code, name, 150, DELAYS, 0.001) for name, code in SCHEMES.items()]
    about = "digits sorted by label; 4 of 20 workers are always slow"
    figure = plotting.error_curves(runs, caption=about, level=0.05)
    figure.axes[0].set_xlabel("simulated time (s)")
    save(figure, path)


def main() -> None:
    """Draw them to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="default: docs")
    folder = parser.parse_args().out
    settings: Any = plotting.style()
    with rc_context(settings):
        for draw in (assignment, timeline, accuracy):
            draw(folder / f"{draw.__name__}.png")


if __name__ == "__main__":
    main()
