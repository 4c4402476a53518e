"""What a diagram shows, whoever draws it: `fastgc.plotting` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Line", "Panel", "Style"]

Style = Literal["line", "joined", "points", "step"]


@dataclass(frozen=True, eq=False, init=False)
class Line:
    """Points of a panel, joined or not.

    Lines of a panel with the same label have one colour and one entry in the legend.

    Parameters
    ----------
    label : str
    x, y : (points,) array_like
        Kept as float64 arrays.
    style : {"line", "joined", "points", "step"}
        "joined": points, and lines between them.
    interval : pair of (points,) array_like, optional
        The least and the largest that y may be, for a bar through each point.

    Raises
    ------
    ValueError
        If x and y, and the ends of the interval, are not vectors of one length, or there is no
        such style.
    """

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    style: Style
    interval: tuple[NDArray[np.float64], NDArray[np.float64]] | None

    def __init__(
        self,
        label: str,
        x: ArrayLike,
        y: ArrayLike,
        style: Style = "line",
        interval: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if x.ndim != 1 or x.shape != y.shape:
            raise ValueError(
                f"line {label!r}: x and y must be vectors of one length, not of shapes {x.shape} "
                f"and {y.shape}"
            )
        if style not in ("line", "joined", "points", "step"):
            raise ValueError(
                f'line {label!r}: style must be "line", "joined", "points" or "step", not {style!r}'
            )
        ends = None
        if interval is not None:
            low, high = (np.asarray(end, dtype=np.float64) for end in interval)
            if low.shape != x.shape or high.shape != x.shape:
                raise ValueError(
                    f"line {label!r}: the ends of the interval must be vectors as long as x, of "
                    f"shape {x.shape}, not {low.shape} and {high.shape}"
                )
            ends = low, high
        given = {"label": label, "x": x, "y": y, "style": style, "interval": ends}
        for name, value in given.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Panel:
    """One diagram: titles, lines, and which axes are logarithmic."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False
