"""Tables of coefficients, for people."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._base.arrays import at_least, check_index
from .scheme import Scheme

_LISTED = 20  # most workers that a table lists by default
_COLUMNS = 16  # most partitions that have a column each


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
        count = scheme.messages.counts[worker]
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
