"""What training shows of approximate gradients: loss against time, and against load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..history import MISCLASSIFIED
from .panels import Line, Panel

if TYPE_CHECKING:
    from ..history import History, Record

__all__ = ["approximation_panels"]

_WIDE = 4.0  # a span from which on a logarithmic axis shows more


def approximation_panels(histories: Sequence[History], optimum: float | None = None) -> list[Panel]:
    """Loss and test error of runs against time, their residuals and last losses against load.

    The residual is the root mean square of `Record.residual` over all rounds of a run, the load
    that of `History.load`, the last loss that of the last evaluated round.

    Parameters
    ----------
    histories : sequence of History
    optimum : float, optional
        The least training loss that there is, if it is known, as of least squares from
        ``model.loss(model.optimum(X, y), X, y)``. Losses are then drawn as what they are above it.
        Rounds that are not above it are left out.

    Returns
    -------
    list of fastgc.plotting.Panel
        Four, which `fastgc.plotting.save_panels` draws.

    Raises
    ------
    ValueError
        If there is no run, or one without a round that was evaluated; if runs differ in their
        measure.
    """
    if not histories or not all(any(r.evaluated for r in each.rounds) for each in histories):
        raise ValueError("nothing to draw: there must be runs, of an evaluated round at least")
    measures = {history.measure for history in histories}
    if len(measures) > 1:
        raise ValueError(
            f"runs that differ in their measure, {', '.join(sorted(measures))}, "
            "do not go in one picture"
        )
    least = 0.0 if optimum is None else float(optimum)
    loss_label = "training loss" if optimum is None else "training loss above the optimum"
    measure = measures.pop()
    percent = measure == MISCLASSIFIED
    times = [history.rounds[-1].time for history in histories]
    unit, per_second = ("s", 1.0) if max(times) >= 1 else ("ms", 1e3)
    time_label = f"time of training ({unit})"

    def loss(record: Record) -> float:
        above = record.loss - least
        return above if above > 0 or optimum is None else math.nan

    def error(record: Record) -> float:
        return record.test_error * (100 if percent else 1)

    def against_time(y_label: str, of: Callable[[Record], float]) -> Panel:
        lines = []
        for history in histories:
            shown = [r for r in history.rounds if r.evaluated]
            x = [per_second * r.time for r in shown]
            lines.append(Line(history.name, x, [of(r) for r in shown]))
        starts = [line.x[0] for line in lines]  # 0 of simulated workers that are never late
        wide = max(line.x[-1] for line in lines) > _WIDE * max(starts) and min(starts) > 0
        return Panel("", time_label, y_label, lines, log_x=wide, log_y=_spread(lines))

    def against_load(y_label: str, of: Callable[[History], float], log: bool) -> Panel:
        lines = [Line(each.name, [each.load], [of(each)], "points") for each in histories]
        return Panel("", "mean load × n / k", y_label, lines, log_y=log and _spread(lines))

    return [
        against_time(loss_label, loss),
        against_time(f"test {measure} (%)" if percent else f"test {measure}", error),
        against_load("residual, root mean square", lambda each: each.left_out(), False),
        against_load(
            f"{loss_label}, in the end",
            lambda each: loss([r for r in each.rounds if r.evaluated][-1]),
            True,
        ),
    ]


def _spread(lines: Sequence[Line]) -> bool:
    """Whether a logarithmic axis shows more of them."""
    values = np.concatenate([line.y for line in lines])
    values = values[np.isfinite(values)]
    return bool(values.size) and bool(values.min() > 0 and values.max() > _WIDE * values.min())
