"""The history of training runs, and its files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from .._base.arrays import Array
from .._base.files import read_json as read_json_file
from .._base.files import refusing
from .._base.text import duration, listing, plural, short
from .._base.writing import write_file

__all__ = [
    "APPROXIMATE",
    "MISCLASSIFIED",
    "History",
    "Record",
    "Spent",
    "equal_error",
    "equal_loss",
    "read_json",
    "round_rows",
    "write_json",
]
__dir__ = listing(__all__)

MISCLASSIFIED = "error"  # the measure that is a fraction, shown in percent

# From this residual on a gradient is called an approximation: no code's rounding is as large.
APPROXIMATE = 1e-6


@dataclass(frozen=True)
class Record:
    """One round of training.

    Attributes
    ----------
    round : int
        Number of the round, from 1.
    time : float
        Seconds of training so far: waiting, decoding and updating, not evaluating.
    wait, decode : float
        Seconds from handing out the parameters to the last message needed, and for decoding.
    survivors : tuple of int
        Workers whose messages came before the gradient could be decoded, in order of arrival.
    messages : int
        Number of messages that they had sent by then.
    stale : int
        Late messages of earlier rounds that were dropped in this round.
    loss : float
        Mean training loss after the round; NaN if it was not evaluated.
    test_error : float
        Fraction of misclassified test samples after the round; for regression the root mean squared
        error; or the measure that `History.measure` names. NaN if it was not evaluated.
    rounding : float
        Estimated relative error of the decoded gradient; NaN without a tracker.
    received : tuple of int
        Numbers of the messages received, in order.
    arrivals : tuple of float
        Arrival of each of them, in seconds from handing out the parameters.
    downloads : int
        Workers that got the parameters: all, or those that an adaptive method selected.
    uploads : int
        Messages used.
    samples : int
        Gradients of single samples that the workers were to compute.
    deaths : int
        Deaths of workers so far; a worker may die several times.
    residual : float
        How far the coefficients of the partial gradients in the gradient are from 1: what an
        approximate code leaves out (``Uncoded(tolerance=)``), or an approximation from too few
        messages (``partial="best"``). NaN: not computed, as for codes that decode by a formula
        (`fastgc.codes.Scheme.exact`); `rounding` has their rounding errors.
    corrupt : tuple of int
        Workers whose messages were found corrupt, and dropped (``verify=True``).
    verified : bool
        Whether lies in the gradient would have been seen (``verify=True``).
    evaluated : bool
        Whether loss and test error were computed (``fastgc.train(evaluate_every=)``).
    selected : tuple of int
        The workers that an adaptive method selected. Empty if all were to compute, or, with
        `downloads` 0, if none was.
    asks : int
        Questions that workers were asked, as in
        `fastgc.engines.RoundReport`.
    stood_in : tuple of (int, int, float)
        Messages that another worker than their owner computed, as in `fastgc.engines.RoundReport`.
    resolution : float
        The largest relative error that liars can have caused unseen; NaN: unknown.
    """

    round: int
    time: float
    wait: float
    decode: float
    survivors: tuple[int, ...]
    messages: int
    stale: int
    loss: float
    test_error: float
    rounding: float = math.nan
    received: tuple[int, ...] = ()
    arrivals: tuple[float, ...] = ()
    downloads: int = 0
    uploads: int = 0
    samples: int = 0
    deaths: int = 0
    residual: float = math.nan
    corrupt: tuple[int, ...] = ()
    verified: bool = False
    evaluated: bool = True
    selected: tuple[int, ...] = ()
    asks: int = 0
    stood_in: tuple[tuple[int, int, float], ...] = ()
    resolution: float = math.nan

    def __repr__(self) -> str:
        said = [
            f"{duration(self.time)} in all",
            f"waited {duration(self.wait)} for {plural(len(self.survivors), 'worker')}",
        ]
        if self.evaluated:
            said.append(f"loss {short(self.loss)}")
            said.append(f"test error {short(self.test_error)}")
        if self.residual > APPROXIMATE:
            said.append(f"approximate, residual {short(self.residual)}")
        if self.corrupt:
            said.append(f"corrupt: workers {', '.join(map(str, self.corrupt))}")
        return f"Record(round {self.round}: {', '.join(said)})"


class Spent(NamedTuple):
    """What a training run needed to reach a given training loss.

    Attributes
    ----------
    rounds : int
    time : float
        Seconds.
    communication : int
        Number of parameter vectors sent and messages used, in all rounds (Zhu et al., eq. (5)).
    computation : int
        Gradients of single samples that workers were to compute (Zhu et al., eq. (6)).
    """

    rounds: int
    time: float
    communication: int
    computation: int


@dataclass
class History:
    """The history of a training run.

    Attributes
    ----------
    name : str
        Name of the run in tables and plots.
    code, data, delays : str
        Texts that say how each was made.
    seed : int
    rounds : list of Record
    theta : (p,) array
        The trained parameters.
    measure : str
        The meaning of `Record.test_error`: "error", the fraction misclassified; "RMSE", the root
        mean squared error in units of the targets; or the name that your own model gives.
    message_counts : tuple of int
        Number of messages that each worker sends in a round, which tells who sent a message of a
        given number. Empty if unknown.
    load : float
        The mean load of workers times n / k: all workers' computation relative to that of one
        process. 1 without a code. NaN if unknown.
    """

    name: str
    code: str
    data: str
    delays: str
    seed: int
    rounds: list[Record] = field(default_factory=list)
    theta: Array = field(default_factory=lambda: np.empty(0), repr=False)
    measure: str = MISCLASSIFIED
    message_counts: tuple[int, ...] = ()
    load: float = math.nan

    def __repr__(self) -> str:
        said = [f"rounds {len(self.rounds)}"]
        if self.rounds:
            tested = [r for r in self.rounds if r.evaluated] or self.rounds[-1:]
            first, last = tested[0], tested[-1]
            errors = f"{self._measured(first.test_error)} to {self._measured(last.test_error)}"
            said += [
                f"time {duration(self.rounds[-1].time)}",
                f"loss {short(first.loss)} to {short(last.loss)}",
                f"test {self.measure} {errors}",
            ]
            if approximate := sum(r.residual > APPROXIMATE for r in self.rounds):
                said.append(f"approximate gradients {approximate}")
            if self.rounds[-1].deaths:
                said.append(f"deaths {self.rounds[-1].deaths}")
        return f"History({self.name!r}, {self.code}, {self.data}: {', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        told = [
            {**vars(each), "theta": None, "rounds": [vars(r) for r in each.rounds]}
            for each in (self, other)
        ]
        # By repr, in which NaN equals NaN.
        alike = repr(told[0]) == repr(told[1])
        return alike and np.array_equal(self.theta, other.theta, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def _measured(self, error: float) -> str:
        return f"{100 * error:.3g}%" if self.measure == MISCLASSIFIED else short(error)

    def seconds_to(self, test_error: float) -> float:
        """Return the seconds of training until the test error was this low; inf if never."""
        return next((r.time for r in self.rounds if r.test_error <= test_error), np.inf)

    def loss_at(self, time: float) -> float:
        """Return the last training loss evaluated within so many seconds; NaN if none was."""
        known = [r.loss for r in self.rounds if r.evaluated and r.time <= time]
        return known[-1] if known else math.nan

    def residual(self) -> float:
        """Return the root mean square of `Record.residual` over all rounds; NaN if none is known.

        Rounds of which it was not computed decode by a formula, and leave out only rounding.
        """
        known = [r.residual for r in self.rounds if not math.isnan(r.residual)]
        return math.sqrt(sum(x * x for x in known) / len(self.rounds)) if known else math.nan

    def spent(self, loss: float) -> Spent | None:
        """Return what the run needed until the training loss was this low; None if never."""
        communication = computation = 0
        for r in self.rounds:
            communication += r.downloads + r.uploads
            computation += r.samples
            if r.loss <= loss:
                return Spent(r.round, r.time, communication, computation)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the parameters, in types that JSON has."""
        listed = asdict(self)
        del listed["theta"]
        return listed


def left_out(residual: float) -> str:
    """Write a residual; if it is only rounding, its order of magnitude, and a dash for NaN."""
    if math.isnan(residual):
        return "–"
    return f"{residual:.2g}" if residual > APPROXIMATE or not residual else f"{residual:.0e}"


def write_json(histories: list[History], path: str | os.PathLike[str]) -> None:
    """Write runs to a file, as a JSON list of `History.to_dict`."""
    listed = [json_ready(history.to_dict()) for history in histories]
    write_file(path, f"{json.dumps(listed, indent=1, allow_nan=False)}\n".encode())


def round_rows(histories: Iterable[History]) -> Iterator[dict[str, Any]]:
    """Yield a row for each round of runs, with the run's name and load, for tables and data frames.

    Yields
    ------
    dict
        ``run``, ``load``, the numbers of `Record`, ``workers`` (the number of survivors) and
        ``corrupt`` (their number). NaN stands for numbers that were not computed.

    Examples
    --------
    >>> import csv
    >>> rows = list(round_rows(histories))  # doctest: +SKIP
    >>> writer = csv.DictWriter(file, rows[0])  # doctest: +SKIP
    """
    for history in histories:
        for r in history.rounds:
            row = asdict(r)
            row = {name: value for name, value in row.items() if not isinstance(value, tuple)}
            yield {
                "run": history.name,
                "load": history.load,
                **row,
                "workers": len(r.survivors),
                "corrupt": len(r.corrupt),
            }


def read_json(path: str | os.PathLike[str]) -> list[History]:
    """Read the runs that `write_json` wrote; they have no parameters.

    Raises
    ------
    ValueError
        If the file holds anything else.
    """
    what = "history of runs of training"
    held = read_json_file(path, what)
    with refusing(path, what):
        histories = []
        for each in held:
            rounds = [record_of(row) for row in each["rounds"]]
            counts, load = tuple(each["message_counts"]), each["load"]
            load = math.nan if load is None else load
            if not _is_of("float", load):
                raise TypeError(f"the load of a run must be a number, not {load!r}")
            if not isinstance(each["measure"], str) or not all(type(c) is int for c in counts):
                raise TypeError("its measure must be a text, and its message counts integers")
            read = {"rounds": rounds, "message_counts": counts, "load": float(load)}
            histories.append(History(**(each | read)))
        return histories


def equal_loss(histories: Sequence[History]) -> float:
    """Return the lowest training loss that all of these runs reached; inf if one has only NaN."""
    return _lowest_of_all(histories, "loss")


def equal_error(histories: Sequence[History]) -> float:
    """Return the lowest test error that all of these runs reached; inf if one has only NaN."""
    return _lowest_of_all(histories, "test_error")


def _lowest_of_all(histories: Sequence[History], name: str) -> float:
    values = [[getattr(r, name) for r in history.rounds] for history in histories]
    return max(min((v for v in each if not math.isnan(v)), default=math.inf) for each in values)


def json_ready(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON lacks them."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def record_of(row: dict[str, Any]) -> Record:
    """Return the record of a JSON object; raise TypeError or ValueError if it is none."""
    if not isinstance(row, dict):
        raise TypeError(f"a record must be an object, not {row!r}")
    given: dict[str, Any] = {key: _tuples(value) for key, value in row.items()}
    for each in fields(Record):
        if each.type == "float" and given.get(each.name, 0.0) is None:
            given[each.name] = math.nan
        value = given.get(each.name, each.default)
        if value is MISSING:
            raise TypeError(f"a record must have {each.name!r}")
        if not _is_of(str(each.type), value):
            raise TypeError(f"{each.name} of a record must be {each.type}, not {value!r}")
    return Record(**given)


_KINDS: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _is_of(kind: str, value: Any) -> bool:
    """Whether a value has a record's type, named by the text of its annotation."""
    if not kind.startswith("tuple["):
        return isinstance(value, _KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))
    if not isinstance(value, tuple):
        return False
    inner = kind[len("tuple[") : -1]
    if inner.endswith(", ..."):
        return all(_is_of(inner.removesuffix(", ..."), each) for each in value)
    kinds = inner.split(", ")
    return len(kinds) == len(value) and all(map(_is_of, kinds, value))
