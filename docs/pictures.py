"""The README's picture, drawn anew: ``python docs/pictures.py``.

It has the runs of ``make demo``, and one that does not wait for stragglers. Times are
simulated, so that they are the same wherever they are drawn. Needs the extras train and plot.
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

N, SLOW = 20, 4
SCHEMES = {
    "Reed-Solomon code": fastgc.ReedSolomon(N, stragglers=SLOW),
    "waiting for all": fastgc.Uncoded(N),
    "gradients that ignore stragglers": fastgc.Uncoded(N, tolerance=SLOW / N),
}


def train(code: fastgc.Code, name: str) -> fastgc.History:
    """Train as ``make demo`` does."""
    return fastgc.train(
        code,
        fastgc.data.load("digits").by_label(),
        name=name,
        engine=partial(SimulatedCluster, cost=0.002),
        delays=fastgc.delays.parse(
            f"{N - SLOW} of exponential:mean=0.01; {SLOW} of exponential:mean=0.2"
        ),
    )


def save(drawn: Any, path: Path) -> None:
    """Write a picture of at most 1200 points across and 256 colours, as it is kept in git."""
    plotting.save(drawn, path)
    whole = Image.open(path).convert("RGB")
    whole.thumbnail((1200, 1200))
    whole.quantize(256).save(path, optimize=True)


def main() -> None:
    """Draw it into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="default: docs")
    folder = parser.parse_args().out
    settings: Any = plotting.style()
    with rc_context(settings):
        runs = [train(code, name) for name, code in SCHEMES.items()]
        about = "digits sorted by label; 4 of 20 workers are always slow"
        figure = plotting.error_curves(runs, caption=about, level=0.05)
        figure.axes[0].set_xlabel("simulated time (s)")
        save(figure, folder / "accuracy.png")


if __name__ == "__main__":
    main()
