"""Pictures of a code and of its rounds: which worker computes what, and when messages arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._base.arrays import Array, Ints
from .._base.text import duration, plural
from .panels import (
    COLOURS,
    PLAIN,
    SMALL,
    em,
    inches,
    legend_below,
    new_figure,
    plain_frame,
    settings,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..coding.scheme import Coded, Scheme


__all__ = ["assignment", "timeline", "timeline_figure"]

_MOST = 600  # rows or columns of a picture, at most: more would be narrower than a pixel
_WRITTEN = 12  # up to this many workers and partitions, coefficients are written out
_RULED = 40  # up to this many, lines separate cells
_PIXELS = 32  # pixels of such a cell each way, because viewers blur what they enlarge
_TICKS = 12, 24  # ticks that fit across and down
_DECODED = COLOURS[1]
_BAR = 0.38  # half the height of a worker's bar, in rows
_ALIKE = 3  # runs share an axis if none is longer than this many times another
_PAD = 1.6  # ems from a title down to the axes, with the numbers of rounds between
_LABELLED = 0.09, 0.02  # parts of the axis that a round's name takes, and its number
# Meanings of workers' bars, and their colours.
_USED, _UNUSED = "at work, its message is used", "at work, not waited for"
_STANDS_IN = "at work on another's share"
_CORRUPT = "its message was corrupt"
_USES = {_USED: COLOURS[0], _STANDS_IN: COLOURS[4], _UNUSED: "0.82", _CORRUPT: COLOURS[3]}
_EVENTS = "message arrives", "messages suffice: decoded"
_PALE = 0.3  # ink of the smallest coefficients
# Blue and orange of Okabe and Ito's palette: without colour, one is dark and the other light.
_POSITIVE, _NEGATIVE = np.array([[0, 0x72, 0xB2], [0xE6, 0x9F, 0]]) / 255


def assignment(code: Coded, ax: Axes | None = None) -> Axes:
    """Draw the encoding matrix: which worker computes which partitions, with which coefficients.

    Rows are workers and columns are partitions. Colours show the coefficients: the sign and size of
    real ones, and the angle of complex ones, paler for smaller sizes. For up to 12 workers and
    partitions the numbers are written out if they fit, complex ones as size and angle.

    Parameters
    ----------
    code : Code
        A code. Of many workers or partitions, about 600 are shown, evenly spaced.
    ax
        As in `fastgc.plotting`.

    Examples
    --------
    >>> import fastgc
    >>> ax = fastgc.plotting.assignment(fastgc.ReedSolomon(8, stragglers=2))
    >>> fastgc.plotting.save(ax, "assignment.svg")  # doctest: +SKIP
    """
    scheme = code.scheme
    workers, columns = scheme.n, scheme.data.shards
    if ax is None:
        high = 40 if max(workers, columns) <= _WRITTEN else 30
        wide = min(36 * em(), settings()["figure.figsize"][0])
        ax = new_figure(wide, high * em()).add_subplot()
    values = _grid(scheme, _evenly(workers, _MOST), min(columns, _MOST))
    ink = np.abs(values)
    largest = ink.max(initial=0.0) or 1.0
    pixels = np.ones((_PIXELS, _PIXELS, 1)) if max(workers, columns) <= _RULED else 1
    ax.imshow(
        np.kron(colours(values / largest), pixels),
        extent=(-0.5, columns - 0.5, workers - 0.5, -0.5),
        aspect="equal" if 0.5 <= workers / columns <= 2 else "auto",
        interpolation="none",
    )
    room = 1.8 * inches(ax)[0] / em()  # letters that fit into a row
    written = max(workers, columns) <= _WRITTEN and _longest(values[ink > 0]) * columns <= room
    if written:
        for row, column in zip(*np.nonzero(ink), strict=True):
            value = values[row, column]
            dark = colours(np.array(value / largest)) @ [0.21, 0.72, 0.07] < 0.55
            look: Any = {"ha": "center", "va": "center", "fontsize": SMALL}
            ax.text(column, row, _number(value), color="white" if dark else "black", **look)
    if max(workers, columns) <= _RULED:
        ax.grid(False, which="major")
        ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(workers + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.5)
        ax.tick_params(which="minor", length=0)
    for axis, count, most in zip((ax.xaxis, ax.yaxis), (columns, workers), _TICKS, strict=True):
        _whole_ticks(axis, count, most)
    ax.set_xlabel("coded block of data" if scheme.data.coded else "partition")
    ax.set_ylabel("worker")
    title = f"{type(code).__name__}: n = {workers} workers, load w = {scheme.load}"
    sent = values[ink > 0]
    if sent.size and (sent == sent[0]).all():
        ax.set_xlabel(f"{ax.get_xlabel()}; all coefficients are {_number(sent[0])}")
    elif np.iscomplexobj(values):
        _key(ax, largest, "complex", written)
    else:
        _key(ax, largest, "signed" if (sent < 0).any() else "positive", written)
    ax.set_title(title, fontsize="medium")
    return ax


def _evenly(count: int, most: int) -> Ints:
    """Return all numbers below `count`, or `most` of them, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _grid(scheme: Scheme, workers: Ints, columns: int) -> Array:
    """Return coefficients of these workers; partitions that share a column show the largest."""
    found = np.zeros((workers.size, columns), np.complex128 if scheme.is_complex else np.float64)
    for line, worker in zip(found, workers.tolist(), strict=True):
        held, values = scheme.partitions(worker), scheme.coefficients(worker)
        order = np.argsort(np.abs(values), kind="stable")  # the last value in a column stays
        line[held[order] * columns // scheme.data.shards] = values[order]
    return found


def colours(values: Array) -> Array:
    """Return red, green and blue for coefficients of size 1 at most; 0 is white."""
    size = np.abs(values)
    # All that is not 0 can be seen.
    ink = np.where(size > 0, _PALE + (1 - _PALE) * size, 0.0)[..., np.newaxis]
    if np.iscomplexobj(values):
        pure = _hue(np.angle(values))
    else:
        pure = np.where((values > 0)[..., np.newaxis], _POSITIVE, _NEGATIVE)
    mixed: Array = 1 - ink * (1 - pure)
    return mixed


def _hue(angle: Array) -> Array:
    """Return a colour for each angle; 0 is the blue of positive numbers, 180° the orange."""
    thirds = np.array([-5, 3, -1]) * np.pi / 6
    colour: Array = 0.46 + 0.42 * np.cos(angle[..., np.newaxis] - thirds)
    return colour


def _longest(values: Array) -> int:
    """Return the letters of the longest line in the texts of these numbers."""
    return max((len(line) for value in values for line in _number(value).split("\n")), default=0)


def _number(value: Any) -> str:
    """Write a coefficient in a few characters; a complex one as size and angle."""
    size = abs(value)
    text = f"{size:.0f}" if 100 <= size < 10_000 else f"{size:.2g}"
    if np.iscomplexobj(value):
        text += f"\n{round(float(np.degrees(np.angle(value))))}°"
    elif value < 0:
        text = f"-{text}"
    return text.replace("-", "\N{MINUS SIGN}")


def _whole_ticks(axis: Any, count: int, most: int) -> None:
    """Set ticks at whole numbers below `count`: at all, at every second, or at round numbers."""
    from matplotlib.ticker import MaxNLocator

    if count <= 2 * most:
        axis.set_ticks(np.arange(0, count, 1 if count <= most else 2))
    else:
        axis.set_major_locator(MaxNLocator(8, integer=True))


def _key(ax: Axes, largest: float, kind: str, below: bool) -> None:
    """Draw the key of colours, for complex, signed or positive numbers, beside or below."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    if kind == "complex":
        low, high, label = -180.0, 180.0, "angle of the coefficient (°)"
        shades = _hue(np.linspace(-np.pi, np.pi, 256))
    else:
        low, high, label = -largest if kind == "signed" else 0.0, largest, "coefficient"
        shades = colours(np.linspace(low / high, 1, 256))
    colourmap = ListedColormap([tuple(each) for each in shades])
    shown = ScalarMappable(Normalize(low, high), colourmap)
    figure: Any = ax.figure
    place: Any = (
        {"orientation": "horizontal", "shrink": 0.8, "aspect": 30} if below else {"shrink": 0.7}
    )
    bar = figure.colorbar(shown, ax=ax, label=label, **place)
    bar.solids.set_rasterized(True)  # vectors of 256 rectangles would make files long
    if kind == "complex":
        bar.set_ticks([-180, -90, 0, 90, 180])


class _Shown(NamedTuple):
    """A round on the axis of time, in seconds."""

    number: int
    begin: float
    ready: float
    end: float
    received: Array
    arrivals: Array
    corrupt: tuple[int, ...]
    stood_in: dict[int, tuple[int, float]]
    asked: frozenset[int] | None


def timeline(rounds: Any, code: Coded | None = None, ax: Axes | None = None) -> Axes:
    """Draw who worked when, whose messages were used, and when the gradient was decoded.

    Rows are workers. A dark bar leads from handing out the parameters to a dot, where the master
    has the message. A pale bar is a worker that the master did not wait for. A line across all rows
    marks the time at which the messages suffice and the gradient is decoded. In simulated rounds of
    `Reactive`, a bar of another colour is a worker that computes another worker's missing share.

    Parameters
    ----------
    rounds : History, Record, RoundReport, or several of the latter two
        The result of `fastgc.train` with any engine, or some of its ``rounds``; or the result of
        a cluster's ``step``.
    code : Code, optional
        The code of these rounds. A History needs none, because it holds how many
        messages each worker sends.
    ax
        As in `fastgc.plotting`; axes of your own get no legend (``ax.legend()`` adds one).

    Raises
    ------
    ValueError
        If a round does not say when its messages arrived or has messages that the code does not
        have, or if it is unknown who sent them.
    TypeError
        If `rounds` are something else, such as a code.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.BinaryCode(12, stragglers=3)
    >>> late = fastgc.delays.Exponential(0.01)
    >>> run = fastgc.train(code, rounds=3, engine="simulated", delays=late)
    >>> ax = fastgc.plotting.timeline(run)
    >>> ax = fastgc.plotting.timeline(run.rounds[0], code)
    """
    shown, counts = _laid_out(rounds), _message_counts(rounds, code)
    _check_messages(shown, counts, code)
    own = ax is None
    if ax is None:
        ax = new_figure(height=_height(len(counts))).add_subplot()
    _draw_rounds(ax, shown, counts, _length(shown))
    if own:
        _legend(ax)
    return ax


def timeline_figure(runs: Mapping[str, Any], rounds: int = 3) -> Figure:
    """Draw the `timeline` of several runs below each other.

    All runs have the same axis of time, unless one takes over three times as long as another: then
    each has its own axis. Titles say how long rounds took.

    Parameters
    ----------
    runs : mapping of names to History
        Runs; their names go into the titles.
    rounds : int
        Draw this many of the first rounds of each run.

    Raises
    ------
    ValueError
        As in `timeline`.

    Examples
    --------
    >>> import fastgc
    >>> late = fastgc.delays.Exponential(0.01)
    >>> codes = {"coded": fastgc.BinaryCode(12, stragglers=3), "uncoded": fastgc.Uncoded(12)}
    >>> how = {"engine": "simulated", "delays": late, "rounds": 3}
    >>> runs = {name: fastgc.train(code, **how) for name, code in codes.items()}
    >>> figure = fastgc.plotting.timeline_figure(runs)
    """
    if not runs:
        raise ValueError("nothing to draw: there is no run")
    laid = [_laid_out(run.rounds[:rounds]) for run in runs.values()]
    counts = [_message_counts(run, None) for run in runs.values()]
    for shown, each in zip(laid, counts, strict=True):
        _check_messages(shown, each, None)
    lengths = [_length(shown) for shown in laid]
    longest = max(lengths)
    shared = longest <= _ALIKE * min(lengths)
    heights = [_height(len(each)) - 4 * em() * shared for each in counts]
    figure = new_figure(height=sum(heights) + 6 * em())
    grid: Any = figure.subplots(
        len(runs), 1, sharex=shared, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    axes = grid[:, 0]
    for ax, name, shown, each, length in zip(axes, runs, laid, counts, lengths, strict=True):
        _draw_rounds(ax, shown, each, longest if shared else length)
        title = f"{name}: {plural(len(shown), 'round')} in {duration(length)}"
        pad = _PAD * 72 * em() * (len(shown) > 1)
        ax.set_title(title, loc="left", fontsize="medium", pad=pad, **PLAIN)
        if shared and ax is not axes[-1]:
            ax.set_xlabel("")
    _legend(*axes)
    return figure


def _height(n: int) -> float:
    return max(19, 10 + 1.15 * min(n, 40)) * em()


def _legend(*axes: Axes) -> None:
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True)) | entries
    entries = {label: entries[label] for label in (*_USES, *_EVENTS) if label in entries}
    legend_below(axes[0].figure, handles=entries.values(), labels=entries.keys(), ncols=2)


def _length(shown: list[_Shown]) -> float:
    return (shown[-1].end - shown[0].begin) or 1e-6  # rounds without delays take no simulated time


def _check_messages(shown: list[_Shown], counts: Sequence[int], code: Coded | None) -> None:
    """Raise ValueError if a round has messages that nobody sends."""
    total = sum(counts)
    for each in shown:
        if each.received.size and not 0 <= each.received.min() <= each.received.max() < total:
            raise ValueError(
                f"round {each.number} has message {each.received.max()}, but "
                f"{'its run' if code is None else repr(code)} has {total} messages, numbered from "
                "0: give the code of these rounds"
            )


def _draw_rounds(ax: Axes, shown: list[_Shown], counts: Sequence[int], long: float) -> None:
    """Draw rounds on an axis of time of `long` seconds."""
    unit, per_second = time_unit(long)
    bars, dots = _spans(shown, counts, per_second)
    for use, colour in _USES.items():
        _bars(ax, bars[use], colour, use)
    ax.plot(
        [at for at, _ in dots],
        [worker for _, worker in dots],
        ".",
        color="black",
        markersize=0.4 * 72 * em(),
        zorder=3,
        label=_EVENTS[0],
    )
    _mark_ends(ax, shown, long, per_second)
    ax.set_xlim(0, 1.02 * per_second * long)
    ax.set_ylim(len(counts) - 0.4, -0.6)
    _whole_ticks(ax.yaxis, len(counts), _TICKS[1])
    ax.set_xlabel(f"time ({unit})")
    ax.set_ylabel("worker")
    plain_frame(ax)
    ax.grid(False, axis="y")


def _spans(
    shown: list[_Shown], counts: Sequence[int], per_second: float
) -> tuple[dict[str, list[tuple[int, float, float]]], list[tuple[float, int]]]:
    """Return bars and dots, with times in units of ``1 / per_second`` seconds.

    Bars, for each meaning: worker, begin and end. Dots: time of a message's arrival, and worker.
    """
    sender = np.repeat(np.arange(len(counts)), counts)
    bars: dict[str, list[tuple[int, float, float]]] = {use: [] for use in _USES}
    dots: list[tuple[float, int]] = []
    for each in shown:
        start, ready = (per_second * (t - shown[0].begin) for t in (each.begin, each.ready))
        arrived = start + per_second * each.arrivals
        by = each.stood_in
        workers = sender[each.received]
        owners = np.where([m in by for m in each.received.tolist()], -1, workers)
        received = each.received.tolist(), workers.tolist(), arrived.tolist()
        for message, worker, end in zip(*received, strict=True):
            sent_by, began = by.get(message, (worker, 0.0))
            dots.append((end, sent_by))
            if message in by:
                bars[_STANDS_IN].append((sent_by, start + per_second * began, end))
        for worker, count in enumerate(counts):
            if each.asked is not None and worker not in each.asked:
                continue
            mine = arrived[owners == worker]
            last = float(mine.max()) if mine.size else start
            if worker in each.corrupt:
                bars[_CORRUPT].append((worker, start, max(ready, last)))
                continue
            if mine.size:
                bars[_USED].append((worker, start, last))
            if mine.size < count:
                bars[_UNUSED].append((worker, last, max(ready, last)))
    return bars, dots


def _mark_ends(ax: Axes, shown: list[_Shown], long: float, per_second: float) -> None:
    """Draw a line where each round was decoded, and its number if it fits."""
    begin = shown[0].begin
    rooms = [(each.end - each.begin) / long if len(shown) > 1 else 0.0 for each in shown]
    words = "round " if min(rooms) > max(_LABELLED) else ""
    for at, (each, room) in enumerate(zip(shown, rooms, strict=True)):
        label = _EVENTS[1] if at == 0 else "_decoded"
        ready = per_second * (each.ready - begin)
        ax.axvline(ready, color=_DECODED, linestyle="-", label=label)
        if room > min(_LABELLED):
            ax.text(
                per_second * ((each.begin + each.ready) / 2 - begin),
                1.01,
                f"{words}{each.number}",
                transform=ax.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=SMALL,
            )


def _message_counts(rounds: Any, code: Coded | None) -> Sequence[int]:
    """Return the messages of each worker in a round, from the code or else from the run itself."""
    if code is not None:
        return code.scheme.messages.counts
    counts: Sequence[int] = getattr(rounds, "message_counts", ())
    if not len(counts):
        raise ValueError("who sent the messages of these rounds is not known: give their code, too")
    return counts


def _laid_out(rounds: Any) -> list[_Shown]:
    """Lay out rounds one after another on the axis of time."""
    if hasattr(rounds, "rounds"):
        rounds = rounds.rounds
    alone = hasattr(rounds, "received") or not isinstance(rounds, Iterable)
    given: list[Any] = [rounds] if alone else list(rounds)
    if not given:
        raise ValueError("nothing to draw: there is no round")
    if wrong := [each for each in given if not hasattr(each, "received")]:
        raise TypeError(
            f"a timeline is of rounds, such as fastgc.train returns, not of {wrong[0]!r}"
        )
    shown: list[_Shown] = []
    previous = None
    for each in given:
        idle = _selected(each) == frozenset()  # an adaptive method may select no worker
        if not (len(each.received) or idle) or len(each.received) != len(each.arrivals):
            raise ValueError(f"round {each.round} does not say when its messages arrived")
        record = hasattr(each, "wait")  # a Record, not a RoundReport
        wait = each.wait if record else each.wait_seconds
        if not np.isfinite(wait):
            raise ValueError(f"round {each.round} was never over: its messages do not suffice")
        length = wait + (each.decode if record else each.decode_seconds)
        if record and previous is not None and each.round == previous.round + 1:
            length = max(length, each.time - previous.time)  # include the update
        begin = shown[-1].end if shown else 0.0
        shown.append(
            _Shown(
                each.round,
                begin,
                begin + wait,
                begin + length,
                np.asarray(each.received, dtype=np.int64),
                np.asarray(each.arrivals, dtype=np.float64),
                tuple(getattr(each, "corrupt", ())),
                {share: (by, at) for share, by, at in getattr(each, "stood_in", ())},
                _selected(each),
            )
        )
        previous = each
    return shown


def _selected(record: Any) -> frozenset[int] | None:
    """Return the workers that an adaptive method selected; None if all were asked."""
    selected = frozenset(getattr(record, "selected", ()))
    idle = not getattr(record, "downloads", 1) and not record.survivors
    return selected if selected or idle else None


def _bars(ax: Axes, bars: list[tuple[int, float, float]], colour: str, label: str) -> None:
    """Draw workers' bars as one object, because there may be thousands."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if bars:
        rows, left, right = np.array(bars).T
        low, high = rows - _BAR, rows + _BAR
        corners = np.array([(left, low), (right, low), (right, high), (left, high)])
        outline = Path.make_compound_path_from_polys(corners.transpose(2, 0, 1))
        ax.add_patch(PathPatch(outline, facecolor=colour, linewidth=0, label=label))
