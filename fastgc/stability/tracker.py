"""How precise the gradients of a run are, recorded round by round."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Array, Ints, as_array, at_least, check_real, check_word
from .._base.text import plural
from .._base.writing import write_file
from ..coding.format import Format
from ..coding.scheme import Scheme
from ..errors import InstabilityWarning, UnstableRoundError, warn_caller
from ..kernels.pairs import exact_sum
from .precision import assess, relative_error

__all__ = ["StabilityTracker", "TrackedRound", "write_jsonl"]

Action = Literal["warn", "raise", "wait"]


class TrackedRound(NamedTuple):
    """How precise one decoded gradient is.

    Attributes
    ----------
    round : int
        From 1.
    messages : int
        Messages it was decoded from.
    predicted : float
        Estimated error relative to the gradient's norm: by `Round.trust`, or by `Code.trust` if the
        messages' norms are not known. If ``||a_F B_F - 1|| / sqrt(k)`` is over ten times that, it
        is this norm.
    amplification : float
        As `fastgc.stability.amplification`.
    bound : float
        As `fastgc.stability.error_bound`, in its unit.
    residual : float
        The largest of ``|a_F B_F - 1|`` over partitions; `Code.residual` is their norm.
    measured : float
        Error relative to the gradient's norm; NaN if it was not measured.
    """

    round: int
    messages: int
    predicted: float
    amplification: float
    bound: float
    residual: float
    measured: float = math.nan


class StabilityTracker:
    """Records how precise decoded gradients are; warns, raises or waits when one is too imprecise.

    Give it to `Code.round`, `Code.decode`, `fastgc.train` or `fastgc.engines.local.LocalCluster`.
    It adds 0.03 ms to a round of 20 workers and 0.1 ms to one of 256, mostly for the residual.

    Parameters
    ----------
    limit : float, optional
        A round is bad if its predicted relative error exceeds this. Default: no round is bad.
    action : {"warn", "raise", "wait"}, default "warn"
        What to do about a bad round. "warn": an `InstabilityWarning`. "raise": an
        `UnstableRoundError`, before the gradient is written. "wait": receive more messages, which
        make decoding better conditioned, until the round is good or all messages are there; then
        warn if it is still bad.
    measure_every : int, default 0
        Measure the actual error once in so many rounds, beginning with the first, if the partial
        gradients are available (`fastgc.train` computes them again and adds them up exactly).
        0: never.

    Attributes
    ----------
    rounds : list of TrackedRound
        The records. The tracker also has each of their attributes as an array over rounds:
        ``tracker.amplification``, ``tracker.measured`` and so on.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> tracker = fastgc.stability.StabilityTracker(limit=1e-8, action="raise")
    >>> code = fastgc.BinaryCode(6, stragglers=1)
    >>> g = np.ones((6, 4))
    >>> messages = [code.encode(i, g[code.partitions(i)]) for i in range(5)]
    >>> code.decode(range(5), messages, tracker=tracker)
    array([6., 6., 6., 6.])
    >>> tracker.amplification, tracker.residual
    (array([6.]), array([0.]))
    """

    def __init__(
        self, limit: float | None = None, action: Action = "warn", measure_every: int = 0
    ) -> None:
        check_word("action", action, "warn", "raise", "wait")
        limit = math.inf if limit is None else limit
        self.limit = check_real("limit", limit, positive=True, infinite=True)
        self.action = action
        self.measure_every = at_least("measure_every", measure_every, 0)
        self.rounds: list[TrackedRound] = []

    def __getattr__(self, name: str) -> Array:
        if name not in TrackedRound._fields or "rounds" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return np.array([getattr(each, name) for each in self.rounds])

    def __repr__(self) -> str:
        limit = "" if math.isinf(self.limit) else f"limit {self.limit:.3g}, {self.action!r}; "
        worst = f", the worst predicted error {self.worst:.1e}" if self.rounds else ""
        return f"<StabilityTracker: {limit}{plural(len(self.rounds), 'round')}{worst}>"

    # ------------------------------------------------------------- what rounds and decoders call

    def enough(self, predict: Callable[[], float]) -> bool:
        """Whether to decode from messages that suffice, rather than wait for more.

        `predict` estimates the relative error of the gradient.
        """
        if self.action != "wait" or math.isinf(self.limit):
            return True
        try:
            return predict() <= self.limit
        except OverflowError:
            return False

    def record(
        self, scheme: Scheme, survivors: Ints, vector: Array, form: Format, predicted: float
    ) -> None:
        """Record a round that was decoded with this vector.

        Raises
        ------
        UnstableRoundError
            If the round is bad and the action is "raise". It is recorded all the same.
        """
        kinds = form.message_dtype, form.gradient_dtype
        found, lacking = assess(scheme, survivors, vector, *kinds, streaming=True)
        if lacking > 10 * predicted:  # `predicted` assumes the best vector that float64 allows
            predicted = lacking
        number = len(self.rounds) + 1
        self.rounds.append(TrackedRound(number, survivors.size, predicted, *found))
        if not predicted <= self.limit and math.isfinite(self.limit):
            text = (
                f"round {number}: the gradient decoded from {survivors.size} messages has a "
                f"relative error of about {predicted:.0e}, beyond the limit {self.limit:.0e}"
            )
            if self.action == "raise":
                raise UnstableRoundError(text)
            warn_caller(text, InstabilityWarning)

    # ----------------------------------------------------------------------------- measuring

    @property
    def due(self) -> bool:
        """Whether the round recorded last should be measured."""
        count = len(self.rounds)
        return bool(count and self.measure_every) and (count - 1) % self.measure_every == 0

    def measure(self, gradient: ArrayLike, partials: ArrayLike) -> float:
        """Compare the gradient decoded last with the exact sum of its partial gradients.

        Parameters
        ----------
        gradient : (p,) array
        partials : (k, p) array or sequence of k arrays

        Returns
        -------
        float
            Relative error, which is also recorded as `measured` of the last round.
        """
        if not self.rounds:
            raise ValueError("no round has been decoded yet")
        exact = exact_sum(as_array("partials", partials))
        measured = relative_error(as_array("gradient", gradient), exact)
        self.rounds[-1] = self.rounds[-1]._replace(measured=measured)
        return measured

    # ------------------------------------------------------------------------------- results

    @property
    def worst(self) -> float:
        """Largest predicted error so far; 0 before the first round."""
        return max((each.predicted for each in self.rounds), default=0.0)


def write_jsonl(trackers: Mapping[str, StabilityTracker], path: str | os.PathLike[str]) -> None:
    """Write a line of JSON for each round of runs, by their names.

    ``run`` in a line is the run's name. Numbers that are not finite become null.
    """
    lines = []
    for name, tracker in trackers.items():
        for each in tracker.rounds:
            known = {key: value for key, value in each._asdict().items() if math.isfinite(value)}
            lines.append(json.dumps({"run": name, **dict.fromkeys(each._fields), **known}) + "\n")
    write_file(path, "".join(lines).encode())
