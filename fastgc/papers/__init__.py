"""The papers' figures and tables, computed anew and compared with what the papers print."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from .. import kernels
from .._arrays import at_least
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
from .figure import ROUNDS, Experiment, Figure, Row

__all__ = ["FIGURES", "RECORDED", "Figure", "Row", "reproduce"]
__dir__ = listing(__all__)

FIGURES: dict[str, Experiment[...]] = {
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
RECORDED: dict[str, Experiment[...]] = {
    made.name: made for made in (krishnan.profiles, bytedance.traces)
}


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
        Of all that is random.
    rounds : int
        Simulated rounds of each point, at least 1.
    data : str, optional
        What ``"halbawi-2"`` and ``"zhu-2"`` train on, as `fastgc.data.load` takes it. Default: what
        each of them says. Of ``"krishnan2023"`` and ``"bytedance2025"`` the folder of the recorded
        times, which they need.
    progress : bool
        Show a progress bar, for each figure if they are computed one after the other (needs
        ``gradient-coding[cli]``).
    processes : int
        Compute so many figures at a time, each in a process of its own with one thread. Figures
        that measure times are computed alone, before all others.

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
    processes = at_least("processes", processes, 1)
    given: dict[str, Any] = {"seed": seed, "rounds": rounds}
    if data is not None:
        given["data"] = data
    if min(processes, len(chosen)) == 1:
        return (_figure(name, given, progress) for name in chosen)
    return _at_a_time(chosen, given, progress, min(processes, len(chosen)))


def _figure(name: str, given: dict[str, Any], progress: bool = False) -> Figure:
    compute = FIGURES.get(name) or RECORDED[name]
    takes = inspect.signature(compute).parameters
    settings = {key: value for key, value in given.items() if key in takes}
    if progress and "track" in takes:
        settings["track"] = partial(_track, name)
    return compute(**settings)


def _at_a_time(
    chosen: list[str], given: dict[str, Any], progress: bool, processes: int
) -> Iterator[Figure]:
    """Figures in the order in which they are chosen, of several processes."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    with ExitStack() as stack:
        advance: Callable[[], None] = lambda: None  # noqa: E731
        if progress:
            from ..progress import task_bar

            advance = stack.enter_context(task_bar("figures", len(chosen)))
        alone = {name for name in chosen if (FIGURES.get(name) or RECORDED[name]).timed}
        found: dict[str, Figure] = {}
        for name in dict.fromkeys(chosen):
            if name in alone:
                found[name] = _figure(name, given)
                advance()
        others = set(active_children())
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _one_thread)
        try:
            futures = {
                name: pool.submit(_figure, name, given)
                for name in dict.fromkeys(chosen)
                if name not in alone
            }
            for name in chosen:
                if name not in found:
                    found[name] = futures[name].result()
                    advance()
                yield found[name]
        finally:
            for each in set(active_children()) - others:
                each.terminate()  # nobody wants what it computes
            # The pool's own thread collects the ended processes. Whoever asks before it is done
            # may be told that one of them still runs.
            pool.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> None:
    """Of several processes each computes with one, and an interrupt ends it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    kernels.threads.set_num_threads(1)


def _track(name: str, items: Sequence[Any]) -> Iterator[Any]:
    from ..progress import task_bar

    with task_bar(name, len(items)) as advance:
        for item in items:
            yield item
            advance()
