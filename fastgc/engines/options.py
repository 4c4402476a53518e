"""How rounds are run: the options that all engines take, named, explained and checked here."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from numpy.typing import ArrayLike, DTypeLike

from .._arrays import at_least, check_dtype, check_real
from ..coding.approximation import check_partial
from ..coding.verify import liars_of
from ..delays import DelayModel
from ..delays.interface import check_model

if TYPE_CHECKING:
    from ..stability import StabilityTracker

__all__ = [
    "Batch",
    "RoundKeywords",
    "RoundOptions",
    "SharedKeywords",
    "Survivors",
    "WhenShort",
]

# batch(shard, partition, round)
Batch = Callable[[Any, int, int], Any]
# survivors(round): the numbers of the messages to decode from, in this order
Survivors = Callable[[int], ArrayLike]
# of messages, when no more are waited for
WhenShort = Literal["raise", "best", "unbiased"]


@dataclass(frozen=True)
class RoundOptions:
    """How rounds are run, whatever runs them.

    Engines and `fastgc.train` take them one by one, by keyword, or as one object, ``options=``, or
    both: a keyword then stands in the place of what the object says.

    Parameters
    ----------
    delays : DelayModel, optional
        ``delays.sample(round, workers, seed)`` gives the seconds that each worker sleeps in a
        round before it computes. If ``delays.per`` is ``"computation"``, they are taken times the
        worker's load (`fastgc.delays.Delays`), and one that sends several messages sleeps an
        equal part before each. Without it nature provides the stragglers.
    seed : int, default 0
        The seed of the delays.
    timeout : float, optional
        The longest a round may wait, in seconds.
    message_dtype : numpy dtype, optional
        The type of messages, if they are to be less precise, ``float16`` or ``"bfloat16"``, say, or
        more: ``float64``, where a code loses too many of float32's digits; ``"float64x2"``, where
        a Reed-Solomon code loses too many of float64's.
    tracker : StabilityTracker, optional
        Takes down how precise each gradient is. If it is to wait for more messages when few make it
        imprecise, a round waits until it is content, no worker is left, or the time is out.
    batch : callable, optional
        ``batch(shard, partition, round)`` gives what `gradient` gets in place of a shard in a round
        (`fastgc.data.MiniBatches`). All who compute a partition must get the same.
    first_round : int
        The number of the first round, which delays and batches go by: of a run that goes on.
    survivors : callable, optional
        ``survivors(round)`` gives the numbers of the messages to decode from, and in which order:
        those of an earlier run, ``RoundReport.received``, say, whose gradients come out the same to
        the last bit. Or one boolean for each message: those, in ascending order. Default: those
        that come first.
    patience : float, default 10
        Seconds that a round waits, all in all, for the dead to come back where the living are too
        few. Workers are not restarted at all if it is 0.
    partial : "raise", "best" or "unbiased"
        What to do when the patience is at its end, or the time is out: raise, or make do with the
        best approximation of the gradient (`fastgc.Round.best`), or with the best unbiased one.
        Without any message it raises in any case. Of codes that are `approximate` the gradients of
        all rounds are the best, or "unbiased".
    verify : bool or int
        Compare messages with each other by parity checks of the code, and wait for those to spare
        that this takes (`fastgc.Round`); of at most so many workers that may be corrupt, True: 1.
        A worker whose message is corrupt, or not finite, is a
        straggler in this round, and named in its report. Where no message is left to come, and the
        gradient is not verified, the round raises `CorruptMessageError` or `UnverifiedError`. Codes
        with too few messages to spare are refused.
    ask : bool
        Ask workers whose messages contradict each other what each of their partial gradients
        contributed, and let the master compute those that tell who lies
        (`fastgc.codes.AskingRound`). With that, ``verify=s`` names s liars by s messages to spare
        in place of 2s. A suspect computes all of its partial gradients once more to answer. The
        master needs the shards and the gradient function, which it has where it made the cluster.
    answer_timeout : float, default 10
        Seconds that a suspect has to answer, if no other messages tell before that who lies. Then
        the master computes the partial gradients that its message consists of.

    Raises
    ------
    ValueError
        If a value is out of range.
    TypeError
        If one is of a wrong type.

    Examples
    --------
    >>> from fastgc.engines import LocalCluster, RoundOptions
    >>> options = RoundOptions(timeout=5.0, verify=True)
    >>> LocalCluster(code, shards, gradient, size=p, options=options)  # doctest: +SKIP
    >>> LocalCluster(code, shards, gradient, size=p, timeout=5.0, verify=True)  # doctest: +SKIP
    """

    delays: DelayModel | None = None
    seed: int = 0
    timeout: float | None = None
    message_dtype: DTypeLike | None = None
    tracker: StabilityTracker | None = None
    batch: Batch | None = None
    first_round: int = 0
    survivors: Survivors | None = None
    patience: float = 10.0
    partial: WhenShort = "raise"
    verify: bool | int = False
    ask: bool = False
    answer_timeout: float = 10.0

    def __post_init__(self) -> None:
        check_model(self.delays)
        timeout = self.timeout
        if timeout is not None and timeout != math.inf:
            timeout = check_real("timeout", timeout, positive=True)
        waits = {"patience": self.patience, "answer_timeout": self.answer_timeout}
        for name, seconds in waits.items():
            if seconds != math.inf:
                waits[name] = check_real(name, seconds)
        if self.message_dtype is not None:
            check_dtype(self.message_dtype, halves=True, pairs=True)
        tracker: Any = self.tracker
        if tracker is not None and (isinstance(tracker, type) or not hasattr(tracker, "record")):
            raise TypeError(f"tracker must be an object with a method record, not {tracker!r}")
        for name in ("batch", "survivors"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be callable, got {type(function).__name__}")
        check_partial(self.partial, "raise")
        if self.ask and not self.verify:
            raise ValueError(
                "ask=True asks workers whose messages contradict each other: say with verify= how "
                "many may be corrupt in a round, verify=1"
            )
        checked = {
            "seed": at_least("seed", self.seed, 0),
            "timeout": timeout,
            "first_round": at_least("first_round", self.first_round, 0),
            **waits,
            "ask": bool(self.ask),
            "verify": liars if (liars := liars_of(self.verify)) > 1 else bool(liars),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls, options: RoundOptions | None, keywords: Mapping[str, Any], what: str
    ) -> RoundOptions:
        """Options as an object, as keywords, or both.

        Parameters
        ----------
        options : RoundOptions or None
        keywords : mapping
            In the place of what `options` says.
        what : str
            Who takes them, for errors.

        Raises
        ------
        TypeError
            If `options` is anything else, or there is no such keyword; says which there are.
        ValueError
            As of the class.
        """
        if options is not None and not isinstance(options, RoundOptions):
            raise TypeError(f"options must be fastgc.engines.RoundOptions, not {options!r}")
        check_names(keywords, [each.name for each in fields(cls)], what)
        return replace(cls() if options is None else options, **keywords)

    def given(self) -> dict[str, Any]:
        """Those options that are not what they are by default, as keywords."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if _differ(value, default)}


def _differ(value: Any, default: Any) -> bool:
    """Whether an option is not what it is by default: None, a number, or a text."""
    return type(value) is not type(default) or value != default


def check_names(given: Mapping[str, Any], known: list[str], what: str) -> None:
    """Raise TypeError, as Python would, if there is a keyword that is not known."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}? It" if close else "it"
            raise TypeError(f"{what} has no option {name!r}; {hint} takes {', '.join(known)}")


class SharedKeywords(TypedDict, total=False):
    """Options that mean the same for `fastgc.train` and for engines: see `RoundOptions`."""

    delays: DelayModel | None
    seed: int
    timeout: float | None
    message_dtype: DTypeLike | None
    tracker: StabilityTracker | None
    patience: float
    partial: WhenShort
    verify: bool | int
    ask: bool
    answer_timeout: float


class RoundKeywords(SharedKeywords, total=False):
    """`RoundOptions` as keywords, for type checkers."""

    batch: Batch | None
    first_round: int
    survivors: Survivors | None
