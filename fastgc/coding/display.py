"""What people see of codes and rounds: pictures, tables, and output in notebooks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._base.arrays import Array, Ints, at_least, check_index
from .._base.text import facts, short
from .scheme import Scheme

_LISTED = 20  # most workers that a table lists by default
_COLUMNS = 16  # most partitions that have a column each
_STRIP = 256  # most workers that have a cell each in a round's picture
_CAME, _AWAITED, _CORRUPT = "#0072B2", "#ddd", "#D55E00"


_PALE = 0.3  # ink of the smallest coefficients
# Blue and orange of Okabe and Ito's palette: without colour, one is dark and the other light.
_POSITIVE, _NEGATIVE = np.array([[0, 0x72, 0xB2], [0xE6, 0x9F, 0]]) / 255
_SIDE = 160  # longer side of a small picture, in pixels
_MOST = 32  # most rows and columns of a small picture


def evenly(count: int, most: int) -> Ints:
    """Return all numbers below `count`, or `most` of them, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def grid(scheme: Scheme, workers: Ints, columns: int) -> Array:
    """Return coefficients of these workers; partitions that share a column show the largest."""
    found = np.zeros((workers.size, columns), np.complex128 if scheme.is_complex else np.float64)
    for line, worker in zip(found, workers.tolist(), strict=True):
        held, values = scheme.partitions(worker), scheme.coefficients(worker)
        order = np.argsort(np.abs(values), kind="stable")  # the last value in a column stays
        line[held[order] * columns // scheme.data.shards] = values[order]
    return found


def colours(values: Array) -> Array:
    """Return red, green and blue for coefficients of size 1 at most; 0 is white."""
    ink = strength(np.abs(values))[..., np.newaxis]
    if np.iscomplexobj(values):
        pure = hue(np.angle(values))
    else:
        pure = np.where((values > 0)[..., np.newaxis], _POSITIVE, _NEGATIVE)
    mixed: Array = 1 - ink * (1 - pure)
    return mixed


def strength(sizes: Array) -> Array:
    """Return the ink for sizes of 1 at most: none for 0, enough to be seen for all others."""
    ink: Array = np.where(sizes > 0, _PALE + (1 - _PALE) * sizes, 0.0)
    return ink


def hue(angle: Array) -> Array:
    """Return a colour for each angle; 0 is the blue of positive numbers, 180° the orange."""
    thirds = np.array([-5, 3, -1]) * np.pi / 6
    colour: Array = 0.46 + 0.42 * np.cos(angle[..., np.newaxis] - thirds)
    return colour


def svg(scheme: Scheme) -> str:
    """Return the assignment as a small SVG: rows are workers, columns partitions.

    It shows at most 32 workers and 32 partitions, evenly spaced.
    """
    workers = evenly(scheme.n, _MOST)
    values = grid(scheme, workers, min(scheme.data.shards, _MOST))
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
    """Return a coefficient to a few digits, without a part too small for these digits."""
    if not np.iscomplexobj(value):
        return f"{value:.{digits}g}"
    real, imag = (
        0.0 if abs(part) < 0.5 * 10.0**-digits * abs(value) else part
        for part in (value.real, value.imag)
    )
    if not imag:
        return f"{real:.{digits}g}"
    return f"{real:.{digits}g}{imag:+.{digits}g}j" if real else f"{imag:.{digits}g}j"


def table(scheme: Scheme, workers: Iterable[int] | None, digits: int) -> str:
    """Return `fastgc.Code.table`."""
    digits = at_least("digits", digits, 1)
    chosen = range(min(scheme.n, _LISTED)) if workers is None else workers
    chosen = [check_index("worker", worker, scheme.n) for worker in chosen]
    what = "coded blocks of data" if scheme.data.coded else "partitions"
    lines = [f"{scheme!r}: coefficients of {what} in messages"]
    labels, rows = [], []
    for worker in chosen:
        count = scheme.message_counts[worker]
        for index in range(count):
            labels.append(str(worker) if count == 1 else f"{worker}, message {index}")
            held = scheme.partitions(worker, index).tolist()
            values = scheme.coefficients(worker, index)
            texts = [
                ";".join(text_of(each, digits) for each in np.atleast_1d(value)) for value in values
            ]
            rows.append(dict(zip(held, texts, strict=True)))
    width = max((len(label) for label in [*labels, "worker"]), default=0)
    if scheme.data.shards <= _COLUMNS:
        columns = range(scheme.data.shards)
        wide = [max(len(str(j)), *(len(row.get(j, "·")) for row in rows), 1) for j in columns]
        head = "".join(f"  {j:>{wide[j]}}" for j in columns)
        lines.append(f"{'worker':>{width}}{head}")
        for label, row in zip(labels, rows, strict=True):
            cells = "".join(f"  {row.get(j, '·'):>{wide[j]}}" for j in columns)
            lines.append(f"{label:>{width}}{cells}")
    else:
        lines.append(f"{'worker':>{width}}  partition: coefficient")
        for label, row in zip(labels, rows, strict=True):
            cells = "  ".join(f"{j}: {text}" for j, text in row.items())
            lines.append(f"{label:>{width}}  {cells}")
    if workers is None and scheme.n > _LISTED:
        lines.append(f"… {scheme.n} workers in all")
    return "\n".join(lines)


def html_of(scheme: Scheme) -> str:
    """Return a code's HTML for notebooks: its parameters, and who computes what."""
    tolerated = "not known" if scheme.stragglers is None else scheme.stragglers
    least, load = int(scheme.loads.min()), scheme.load
    told: list[tuple[str, object]] = [
        ("workers n", scheme.n),
        ("partitions k", scheme.k),
        ("load w", load if least == load else f"{least} to {load}"),
        ("stragglers s tolerated", tolerated),
    ]
    if scheme.messages.count != scheme.n:
        told.append(("messages of a round", scheme.messages.count))
    kind = "complex" if scheme.is_complex else "integers" if scheme.integral else "real"
    told += [("message, in gradients", short(scheme.message_weight)), ("coefficients", kind)]
    return (
        '<div style="display:flex;gap:1.5em;align-items:center">'
        f"{facts(repr(scheme), told)}{svg(scheme)}</div>"
    )


def strip(n: int, came: list[int], corrupt: list[int]) -> str:
    """Return an SVG with a cell for each worker: dark if a message came, pale if not.

    Return no picture of very many workers.
    """
    if n > _STRIP:
        return ""
    across = min(n, 32)
    fills = [_AWAITED] * n
    for worker in came:
        fills[worker] = _CAME
    for worker in corrupt:
        fills[worker] = _CORRUPT
    cells = "".join(
        f'<rect x="{worker % across}" y="{worker // across}" width=".9" height=".9" '
        f'fill="{fill}"><title>worker {worker}</title></rect>'
        for worker, fill in enumerate(fills)
    )
    down = -(-n // across)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{12 * across}" height="{12 * down}" '
        f'viewBox="0 0 {across} {down}" role="img" aria-label="workers, dark if a message came">'
        f"{cells}</svg>"
    )
