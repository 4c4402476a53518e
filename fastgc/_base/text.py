"""Texts and ``dir()`` lists that show objects and modules to people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def short(value: float, digits: int = 3) -> str:
    """Return a number to `digits` digits; integers below a million in full."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}"


def duration(seconds: float) -> str:
    """Return a time to three digits, in the largest unit that keeps it at 1 or above."""
    if not math.isfinite(seconds) or seconds == 0:
        return f"{seconds:g} s"
    # 0.9995: a value that would round up to 1000 takes the larger unit.
    scale, unit = next((each for each in _UNITS if abs(seconds) >= 0.9995 * each[0]), _UNITS[-1])
    value = seconds / scale
    return f"{value:.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"


def plural(count: int, what: str) -> str:
    """Return a count and its noun: ``1 round``, ``2 rounds``."""
    return f"{count} {what}{'s' * (count != 1)}"


def listed(values: Iterable[object], most: int = 8) -> str:
    """Return the values separated by commas; of more than `most`, the first and their number."""
    values = list(values)
    shown = ", ".join(map(str, values[:most]))
    return f"{shown}, … ({len(values)})" if len(values) > most else shown


def takes(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: which is near, and all that there are."""
    known = list(known)
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}? It" if close else "it"
    return f"{hint} takes {', '.join(known) or 'no arguments'}"


def listing(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return a module's ``__dir__`` function, which lists `names`."""
    shown = sorted(names)
    return lambda: list(shown)
