"""What pictures and tables show of a code: its coefficients, their colours and their texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .assignment import Assignment

__all__ = ["colours", "evenly", "grid", "hue", "strength", "svg", "text_of"]

Array = NDArray[Any]

_PALE = 0.3  # ink of the smallest coefficients
# Blue of Okabe and Ito's palette, and orange: in grey, the one is dark and the other light.
_POSITIVE, _NEGATIVE = np.array([[0, 0x72, 0xB2], [0xE6, 0x9F, 0]]) / 255
_SIDE = 160  # of a small picture, in pixels
_MOST = 32  # rows and columns of one


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Numbers below `count`: all, or `most` of them, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def grid(code: Assignment, workers: NDArray[np.int64], columns: int) -> Array:
    """Coefficients of these workers; of partitions that share a column, the largest.

    Where a gradient is sent in pieces, those of the first one.
    """
    found = np.zeros((workers.size, columns), np.complex128 if code.is_complex else np.float64)
    for line, worker in zip(found, workers.tolist(), strict=True):
        held, values = code.partitions(worker), code.coefficients(worker)
        if values.ndim == 2:
            values = values[:, 0]
        order = np.argsort(np.abs(values), kind="stable")  # the last of equal columns stays
        line[held[order] * columns // code.shard_count] = values[order]
    return found


def colours(values: Array) -> Array:
    """Red, green and blue of coefficients, of size 1 at most; 0 is white."""
    ink = strength(np.abs(values))[..., np.newaxis]
    if np.iscomplexobj(values):
        pure = hue(np.angle(values))
    else:
        pure = np.where((values > 0)[..., np.newaxis], _POSITIVE, _NEGATIVE)
    mixed: Array = 1 - ink * (1 - pure)
    return mixed


def strength(sizes: Array) -> Array:
    """Ink for sizes of 1 at most: none for 0, and enough to be seen for all others."""
    ink: Array = np.where(sizes > 0, _PALE + (1 - _PALE) * sizes, 0.0)
    return ink


def hue(angle: Array) -> Array:
    """A colour for each angle, the same for angles that differ by a whole turn."""
    thirds = np.array([0, 2, -2]) * np.pi / 3
    colour: Array = 0.46 + 0.42 * np.cos(angle[..., np.newaxis] - thirds)
    return colour


def svg(code: Assignment) -> str:
    """The assignment as a small SVG: rows are workers, columns partitions.

    Of many workers or partitions 32 of each are shown, evenly spaced.
    """
    workers = evenly(code.n, _MOST)
    values = grid(code, workers, min(code.shard_count, _MOST))
    rows, columns = values.shape
    size = np.abs(values)
    largest = size.max(initial=0.0, where=np.isfinite(size)) or 1.0
    shades = np.round(255 * colours(np.where(np.isfinite(size), values, 0) / largest)).astype(int)
    cells: dict[str, list[str]] = {}
    for row, column in np.argwhere(size > 0).tolist():
        shade = "#{:02x}{:02x}{:02x}".format(*shades[row, column])
        cells.setdefault(shade, []).append(f"M{column} {row}h.94v.94h-.94z")
    paths = "".join(f'<path fill="{shade}" d="{"".join(d)}"/>' for shade, d in cells.items())
    scale = _SIDE / max(rows, columns)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{scale * columns:.0f}" '
        f'height="{scale * rows:.0f}" viewBox="0 0 {columns} {rows}" role="img" '
        'aria-label="who computes what: rows are workers, columns partitions">'
        f'<rect width="100%" height="100%" fill="#fff"/>{paths}</svg>'
    )


def text_of(value: complex, digits: int) -> str:
    """A coefficient to a few digits; of a complex one, no part that these digits cannot show."""
    if not np.iscomplexobj(value):
        return f"{value:.{digits}g}"
    real, imag = (
        0.0 if abs(part) < 0.5 * 10.0**-digits * abs(value) else part
        for part in (value.real, value.imag)
    )
    if not imag:
        return f"{real:.{digits}g}"
    return f"{real:.{digits}g}{imag:+.{digits}g}j" if real else f"{imag:.{digits}g}j"
