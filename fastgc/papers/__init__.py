"""The papers' figures and tables, computed anew and compared with what the papers print."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from .._shown import listing
from . import (
    approximate,
    bytedance,
    charalambides,
    halbawi,
    krishnan,
    li,
    liars,
    ozfatura,
    ramamoorthy,
    ye_abbe,
    zhu,
)
from .figure import ROUNDS, Figure, Row

__all__ = ["FIGURES", "RECORDED", "Figure", "Row", "reproduce"]
__dir__ = listing(__all__)

FIGURES: dict[str, Callable[..., Figure]] = {
    made.name: made
    for made in (
        *(halbawi.figure_2, halbawi.figure_3, charalambides.section_5),
        *(ozfatura.figure_1, ozfatura.figure_2, li.figure_2, li.tables, li.figure_5),
        *(zhu.figure_2, zhu.section_5, ye_abbe.table, ye_abbe.link, ramamoorthy.figure_3),
        *(krishnan.loads, approximate.erasurehead, approximate.raviv, approximate.charles),
        *(approximate.kadhe, approximate.glasgow, approximate.curves, approximate.wang),
        liars.liars,
    )
}

# On times that others recorded and published, which are not part of fastgc: they need `data`.
RECORDED: dict[str, Callable[..., Figure]] = {
    made.name: made for made in (krishnan.profiles, bytedance.traces)
}


def reproduce(
    names: Iterable[str] = tuple(FIGURES),
    *,
    seed: int = 0,
    rounds: int = ROUNDS,
    data: str | None = None,
    progress: bool = False,
) -> Iterator[Figure]:
    """Compute figures, one after the other.

    Parameters
    ----------
    names : iterable of str
        Keys of `FIGURES`, all of them by default, or of `RECORDED`.
    seed : int
        Of all that is random.
    rounds : int
        Simulated rounds of each point, at least 1.
    data : str, optional
        What ``"halbawi-2"`` and ``"zhu-2"`` train on, as `fastgc.data.load` takes it. Default: what
        each of them says. Of ``"krishnan2023"`` and ``"bytedance2025"`` the folder of the recorded
        times, which they need.
    progress : bool
        Show a progress bar for each figure (needs ``gradient-coding[cli]``).

    Yields
    ------
    Figure

    Raises
    ------
    ValueError
        If there is no such figure, or a parameter is out of range; nothing is computed then.
    ImportError
        If scipy is not installed.
    """
    chosen, known = list(names), FIGURES | RECORDED
    for name in chosen:
        if name not in known:
            raise ValueError(f"unknown figure {name!r}: choose among {', '.join(known)}")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    given: dict[str, Any] = {"seed": seed, "rounds": rounds}
    if data is not None:
        given["data"] = data
    return _figures(chosen, given, progress)


def _figures(chosen: list[str], given: dict[str, Any], progress: bool) -> Iterator[Figure]:
    for name in chosen:
        compute = FIGURES.get(name) or RECORDED[name]
        takes = inspect.signature(compute).parameters
        settings = {key: value for key, value in given.items() if key in takes}
        if progress and "track" in takes:
            settings["track"] = partial(_track, name)
        yield compute(**settings)


def _track(name: str, items: Sequence[Any]) -> Iterator[Any]:
    from ..progress import task_bar

    with task_bar(name, len(items)) as advance:
        for item in items:
            yield item
            advance()
