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
# what to do if messages are too few and no more are waited for
WhenShort = Literal["raise", "best", "unbiased"]


@dataclass(frozen=True)
class RoundOptions:
    """How rounds are run, on any engine.

    Engines and `fastgc.train` take these options as keywords, as one object, ``options=``, or both:
    a keyword then overrides the object.

    Parameters
    ----------
    delays : DelayModel, optional
        ``delays.sample(round, workers, seed)`` gives the seconds that each worker sleeps in a round
        before it computes. If ``delays.per`` is ``"computation"``, they are multiplied by the
        worker's load (`fastgc.delays.Delays`), and a worker that sends several messages sleeps an
        equal part before each. Default: no artificial delays.
    seed : int, default 0
        The seed of the delays.
    timeout : float, optional
        The longest a round may wait, in seconds.
    message_dtype : numpy dtype, optional
        Dtype of the messages. Less precise ones are shorter: ``float16`` or ``"bfloat16"``. More
        precise ones help if a code loses too many digits: ``float64`` for float32 gradients, and
        ``"float64x2"`` for float64 gradients of a Reed-Solomon code. Default: the gradients' dtype.
    tracker : StabilityTracker, optional
        Records how precise each gradient is. With the action "wait", a round waits for more
        messages until the gradient is precise enough, no worker is left, or the timeout is over.
    batch : callable, optional
        ``batch(shard, partition, round)`` returns what `gradient` gets in place of a shard in a
        round (`fastgc.data.MiniBatches`). All workers with this partition must get the same.
    first_round : int
        The number of the first round, for delays and batches, if a run is resumed.
    survivors : callable, optional
        ``survivors(round)`` returns the numbers of the messages to decode from, in this order. With
        ``RoundReport.received`` of an earlier run, gradients are the same to the last bit. It may
        also return one boolean for each message; the chosen messages are then used in ascending
        order. Default: the messages that come first.
    patience : float, default 10
        Seconds, in all, that a round waits for dead workers to restart, if the others are too few.
        0: workers are not restarted.
    partial : "raise", "best" or "unbiased"
        What to do when the patience or the timeout is over: raise, or use the best approximation of
        the gradient (`fastgc.Round.best`), or the best unbiased one. Without any message it raises;
        if the patience is over, once no worker is left that may send one. With codes that are
        `approximate`, all rounds use the best approximation, or with "unbiased" the best unbiased
        one.
    verify : bool or int
        Compare messages with each other by the code's parity checks, and wait for the spare
        messages that this takes (`fastgc.Round`). The number is the most workers that may be
        corrupt; True means 1. A worker whose message is corrupt or not finite counts as a straggler
        of the round, and the report names it. If no more messages can come and the gradient is not
        verified, the round raises `CorruptMessageError` or `UnverifiedError`. Codes with too few
        spare messages are refused.
    ask : bool
        Ask workers whose messages contradict each other what each of their partial gradients
        contributed; the master computes those that decide who lies (`fastgc.codes.AskingRound`).
        ``verify=s`` then names s liars with s spare messages instead of 2s. To answer, a suspect
        computes all of its partial gradients once more. The master needs the shards and the
        gradient function, which it has if it made the cluster.
    answer_timeout : float, default 10
        Seconds that a suspect has to answer, unless other messages show before then who lies. After
        that the master computes the partial gradients of its message.

    Raises
    ------
    ValueError
        If a value is out of range.
    TypeError
        If one has a wrong type.

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
                "ask=True asks workers whose messages contradict each other: also say how many may "
                "be corrupt in a round, as in verify=1"
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
        """Options from an object, from keywords, or both.

        Parameters
        ----------
        options : RoundOptions or None
        keywords : mapping
            These override `options`.
        what : str
            The name of the caller, for errors.

        Raises
        ------
        TypeError
            If `options` is something else, or there is no such keyword; the error lists all
            keywords.
        ValueError
            As the class does.
        """
        if options is not None and not isinstance(options, RoundOptions):
            raise TypeError(f"options must be fastgc.engines.RoundOptions, not {options!r}")
        check_names(keywords, [each.name for each in fields(cls)], what)
        return replace(cls() if options is None else options, **keywords)

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, as keywords."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if _differ(value, default)}


def _differ(value: Any, default: Any) -> bool:
    """Whether an option differs from its default, which is None, a number, or a text."""
    return type(value) is not type(default) or value != default


def check_names(given: Mapping[str, Any], known: list[str], what: str) -> None:
    """Raise TypeError, as Python would, if a keyword is not known."""
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
