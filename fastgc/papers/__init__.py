"""Figures and tables of papers, computed anew and compared with the numbers that papers print."""

from __future__ import annotations

import inspect
import signal
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from .. import kernels
from .._base.arrays import at_least
from .._base.text import listing
from . import (
    approximate,
    charalambides,
    halbawi,
    li,
    liars,
    ozfatura,
    ramamoorthy,
    recorded,
    zhu,
)
from .figure import ROUNDS, Experiment, Figure, Row

__all__ = ["FIGURES", "RECORDED", "Figure", "Row", "reproduce"]
__dir__ = listing(__all__)

FIGURES: dict[str, Experiment[...]] = {
    made.name: made
    for made in (
        *(halbawi.figure_2, halbawi.figure_3, charalambides.section_5),
        *(ozfatura.figure_1, ozfatura.figure_2, li.figure_2, li.tables, li.figure_5),
        *(zhu.figure_2, zhu.section_5, ramamoorthy.figure_3),
        *(recorded.loads, approximate.erasurehead, approximate.raviv, approximate.charles),
        *(approximate.kadhe, approximate.glasgow, approximate.curves, approximate.wang),
        liars.liars,
    )
}

# Figures on times that others recorded and published. The times are not part of fastgc: `data`
# must name their folder.
RECORDED: dict[str, Experiment[...]] = {
    made.name: made for made in (recorded.profiles, recorded.traces)
}
_ALL = ChainMap(RECORDED, FIGURES)


def reproduce(
    names: Iterable[str] = tuple(FIGURES),
    *,
    seed: int = 0,
    rounds: int = ROUNDS,
    data: str | None = None,
    progress: bool = False,
    processes: int = 1,
) -> Iterator[Figure]:
    """Compute figures.

    Parameters
    ----------
    names : iterable of str
        Keys of `FIGURES`, all of them by default, or of `RECORDED`.
    seed : int
        Seed of everything random.
    rounds : int
        Simulated rounds of each point, at least 1.
    data : str, optional
        Data on which ``"halbawi-2"`` and ``"zhu-2"`` train, as `fastgc.data.load` takes it; each of
        them has its own default. For ``"krishnan2023"`` and ``"bytedance2025"``, which need it: the
        folder of the recorded times.
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``): one for each figure if figures are
        computed one after the other.
    processes : int
        Compute this many figures at a time, each in its own process with one thread. Figures that
        measure times are computed alone, before all others.

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
    chosen = list(names)
    for name in chosen:
        if name not in _ALL:
            raise ValueError(f"unknown figure {name!r}: choose among {', '.join(_ALL)}")
    processes = at_least("processes", processes, 1)
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    given: dict[str, Any] = {"seed": seed, "rounds": at_least("rounds", rounds, 1)}
    if data is not None:
        given["data"] = data
    if min(processes, len(chosen)) == 1:
        return (_figure(name, given, progress) for name in chosen)
    return _at_a_time(chosen, given, progress, min(processes, len(chosen)))


def _figure(name: str, given: dict[str, Any], progress: bool = False) -> Figure:
    compute = _ALL[name]
    takes = inspect.signature(compute).parameters
    settings = {key: value for key, value in given.items() if key in takes}
    if progress and "track" in takes:
        settings["track"] = partial(_track, name)
    return compute(**settings)


def _at_a_time(
    chosen: list[str], given: dict[str, Any], progress: bool, processes: int
) -> Iterator[Figure]:
    """Compute figures in several processes; yield them in the order chosen."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    with ExitStack() as stack:
        advance: Callable[[], None] = lambda: None  # noqa: E731
        if progress:
            from .._base.progress import task_bar

            advance = stack.enter_context(task_bar("figures", len(chosen)))
        alone = {name: _ALL[name].timed for name in chosen}
        found: dict[str, Figure] = {}
        for name in filter(alone.get, alone):
            found[name] = _figure(name, given)
            advance()
        others = set(active_children())
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _one_thread)
        try:
            shared = [name for name in alone if not alone[name]]
            futures = {name: pool.submit(_figure, name, given) for name in shared}
            for name in chosen:
                if name not in found:
                    found[name] = futures[name].result()
                    advance()
                yield found[name]
        finally:
            for each in set(active_children()) - others:
                each.terminate()  # its result is no longer wanted
            # Wait for the pool's own thread, which collects the ended processes: before it is done,
            # `active_children` may still list one of them.
            pool.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> None:
    """Initialise a process of the pool: one thread, and a silent end on an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    kernels.threads.set_num_threads(1)


def _track(name: str, items: Sequence[Any]) -> Iterator[Any]:
    from .._base.progress import task_bar

    with task_bar(name, len(items)) as advance:
        for item in items:
            yield item
            advance()
