"""Runs to draw, and what a figure's legend says."""

from types import SimpleNamespace


def legend_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def history(name, times, errors):
    rounds = [
        SimpleNamespace(time=time, test_error=error)
        for time, error in zip(times, errors, strict=True)
    ]
    return SimpleNamespace(name=name, rounds=rounds)


FAST = history("coded", [0.1, 0.2, 0.3], [0.9, 0.5, 0.3])
SLOW = history("uncoded", [1.0, 2.0], [0.9, 0.4])
STEEP = history("steep", [0.1, 0.3], [0.9, 0.02])
