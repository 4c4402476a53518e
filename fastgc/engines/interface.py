"""What every engine offers and takes, and what it is made of.

To train on workers of another kind, write a `Transport`. It carries parameters and messages and
decides nothing; `fastgc.engines.master.Master` decides, and is the `Cluster` that training uses.
`fastgc.engines.worker.Worker` computes the messages, and `fastgc.testing.engines` checks that
everything together behaves like the engines here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import Array, Floats, Ints, at_least, check_dtype, check_real
from .._base.text import duration, listed, plural, takes
from ..codes import Code, Share
from ..coding.code import check_code
from ..coding.round import Gathering
from ..coding.trust import check_partial
from ..coding.verify import liars_of
from ..delays import DelayModel
from ..delays.interface import check_model, per_of, sample

if TYPE_CHECKING:
    from ..stability import StabilityTracker

__all__ = [
    "Answering",
    "Buffers",
    "Cluster",
    "Computation",
    "Event",
    "Gathering",
    "Gradient",
    "Kind",
    "Messages",
    "Question",
    "RoundOptions",
    "RoundReport",
    "Task",
    "Transport",
    "check_cluster",
    "parameters_of",
    "sample_delays",
]


# gradient(theta, shard, out), with keywords partition= and round= if it has them
Gradient = Callable[..., object]


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
        The longest a round may wait, in seconds. Default: as long as workers live, however long
        they compute.
    start_timeout : float, default 300
        Seconds in which all workers must have started; otherwise the cluster raises TimeoutError.
    message_dtype : numpy dtype, optional
        Dtype of the messages. Less precise ones are shorter: ``"bfloat16"``, or ``float16``, which
        ends at 65504: a larger number is an error of the worker. More precise ones help if a code
        loses too many digits: ``float64`` for float32 gradients. Default: the gradients' dtype.
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
    limit : float, optional
        With `verify`: the largest `Round.resolution` of a verified gradient.

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
    start_timeout: float = 300.0
    message_dtype: DTypeLike | None = None
    tracker: StabilityTracker | None = None
    batch: Batch | None = None
    first_round: int = 0
    survivors: Survivors | None = None
    patience: float = 10.0
    partial: WhenShort = "raise"
    verify: bool | int = False
    limit: float | None = None

    def __post_init__(self) -> None:
        check_model(self.delays)
        timeout = self.timeout
        if timeout is not None:
            timeout = check_real("timeout", timeout, positive=True, infinite=True)
        start_timeout = check_real("start_timeout", self.start_timeout, True, infinite=True)
        patience = check_real("patience", self.patience, infinite=True)
        limit = self.limit
        if limit is not None:
            limit = check_real("limit", limit, infinite=True)
        if self.message_dtype is not None:
            check_dtype(self.message_dtype, halves=True)
        tracker: Any = self.tracker
        if tracker is not None and (isinstance(tracker, type) or not hasattr(tracker, "record")):
            raise TypeError(f"tracker must be an object with a method record, not {tracker!r}")
        for name in ("batch", "survivors"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be callable, got {type(function).__name__}")
        check_partial(self.partial, "raise")
        vars(self).update(
            seed=at_least("seed", self.seed, 0),
            timeout=timeout,
            start_timeout=start_timeout,
            first_round=at_least("first_round", self.first_round, 0),
            patience=patience,
            verify=liars if (liars := liars_of(self.verify)) > 1 else bool(liars),
            limit=limit,
        )

    @classmethod
    def of(
        cls, options: RoundOptions | None, keywords: Mapping[str, Any], what: str
    ) -> RoundOptions:
        """Options from an object, from keywords, which override it, or both.

        Errors are those of the class, and a TypeError if `options` is something else, or if
        `what`, the caller, has no such keyword.
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
            raise TypeError(f"{what} has no option {name!r}; {takes(name, known)}")


class SharedKeywords(TypedDict, total=False):
    """Options that mean the same for `fastgc.train` and for engines: see `RoundOptions`."""

    delays: DelayModel | None
    seed: int
    timeout: float | None
    start_timeout: float
    message_dtype: DTypeLike | None
    tracker: StabilityTracker | None
    patience: float
    partial: WhenShort
    verify: bool | int
    limit: float | None


class RoundKeywords(SharedKeywords, total=False):
    """`RoundOptions` as keywords, for type checkers."""

    batch: Batch | None
    first_round: int
    survivors: Survivors | None


class RoundReport(NamedTuple):
    """A report of one round.

    Attributes
    ----------
    round : int
        The number of the round, from 0.
    survivors : ndarray of int
        The workers whose messages came before the gradient could be decoded, in order of their
        first messages; in a round of groups, those whose messages were of use.
    messages : int
        Number of messages received by then.
    wait_seconds : float
        Time from handing out the parameters to the message that made the round ready.
    decode_seconds : float
        Time of decoding after that.
    stale : int
        Messages of earlier rounds that came since the last report and were dropped.
    lost : tuple of int
        The workers that have died and are not back, in order of their deaths.
    received : ndarray of int
        The numbers of the messages used, in order of arrival.
    arrivals : ndarray of float
        When the master had each of these messages, in seconds from handing out the parameters.
    deaths : int
        Deaths of workers so far; a worker may die several times.
    refused : int
        Invalid messages since the last report: duplicates, of a future round, of a wrong size, or
        naming a worker or message that does not exist.
    residual : float
        How far the coefficients of the partial gradients in the gradient are from 1
        (`fastgc.coding.trust.Approximation`). It is computed if messages do not suffice, and for
        all codes but those that decode by a formula (`fastgc.codes.Scheme.exact`). NaN: not
        computed, or nothing has been decoded yet.
    corrupt : tuple of int
        With `verify`: workers whose messages were found to be corrupt, and dropped.
    verified : bool
        Whether lies in the gradient would have been seen (`fastgc.Round.verified`).
    asks : int
        Questions put to workers, for missing shares of others (`fastgc.Reactive`).
    stood_in : tuple of (int, int, float)
        Messages that another worker than their owner computed (`fastgc.Reactive`): each message,
        that worker, and when it was asked, in seconds from handing out the parameters.
    resolution : float
        The largest relative error that liars can have caused unseen (`fastgc.Round.resolution`);
        NaN: unknown.
    """

    round: int
    survivors: Ints
    messages: int
    wait_seconds: float
    decode_seconds: float
    stale: int
    lost: tuple[int, ...]
    received: Ints
    arrivals: Floats
    deaths: int = 0
    refused: int = 0
    residual: float = math.nan
    corrupt: tuple[int, ...] = ()
    verified: bool = False
    asks: int = 0
    stood_in: tuple[tuple[int, int, float], ...] = ()
    resolution: float = math.nan

    def __repr__(self) -> str:
        said = [
            f"waited {duration(self.wait_seconds)} for {plural(len(self.survivors), 'worker')}",
            f"{plural(self.messages, 'message')}",
            f"decoded in {duration(self.decode_seconds)}",
        ]
        if self.residual > 0:
            said.append(f"residual {self.residual:.3g}")
        for what, workers in (("lost", self.lost), ("corrupt", self.corrupt)):
            if workers:
                said.append(f"{what}: workers {listed(workers)}")
        return f"RoundReport(round {self.round}: {', '.join(said)})"


class Cluster(Protocol):
    """The workers of a code, on any engine.

    It is made with the arguments of `fastgc.engines.master.Master`: the code, the shards, the
    gradient, its size, ``dtype=``, and those `RoundOptions` that differ from their defaults as
    keywords. Leaving its ``with`` block ends the workers.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def clock(self) -> float:
        """Seconds since some fixed moment, on the clock that times rounds."""

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round, and decode the gradient to `out`."""

    def collect(
        self, theta: Array, rnd: Gathering, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round of some workers, whose messages `rnd` takes and decodes."""

    def close(self) -> None:
        """End the workers; a second call does nothing."""


# The cause of death of a worker that sent something no worker's program can send.
NONSENSE = ": it sent what no worker sends"


class Kind(IntEnum):
    """The kinds of events that a transport reports."""

    MESSAGE = 0  # the worker sent a message
    LEFT = 1  # the worker left an older round without its (further) messages
    JOINED = 2  # the worker can be handed rounds, for the first time or again
    DIED = 3
    FAILED = 4  # the worker raised
    ANSWER = 5  # the worker answered a question


@dataclass(slots=True)
class Event:
    """What a transport reports of a worker.

    Attributes
    ----------
    kind : Kind
    worker : int
    round, index : int
        Of a message; or the round that the worker left or failed in. For an answer, `index` is the
        number of the question. -1: none.
    message : ndarray, optional
        A message has the task's size and dtype. It is not copied: it is valid until the worker is
        handed another round. An answer is one, too, valid until the worker is asked again; None:
        the worker cannot compute it.
    text : str
        If the worker failed, its traceback; if it died, what is known of the cause.
    energy : float
        Of a message, as `fastgc.coding.plan.Encoder.energy`; NaN: not known.
    time : int
        When the message was complete, by ``time.perf_counter_ns()``; 0: when it is reported.
    """

    kind: Kind
    worker: int
    round: int = -1
    index: int = -1
    message: Array | None = None
    text: str = ""
    energy: float = math.nan
    time: int = 0


class Computation(Protocol):
    """A `gradient` that also defines its parameters, and how whole messages are computed.

    Attributes
    ----------
    parameters : int
        The length of theta, if it is not p.
    modules : tuple of str
        Modules to import in the process that workers are forked from: those that take long.
    of_main : bool
        Whether unpickling it needs the program's main module.
    """

    parameters: int
    modules: tuple[str, ...]
    of_main: bool

    def __call__(
        self, theta: Array, shard: Any, out: Array, *, partition: int, round: int
    ) -> object:
        """Write one partial gradient, for engines that ask for it (`SimulatedCluster`)."""

    def worker(self, number: int, task: Task, out: Sequence[Array] | None) -> Messages:
        """Prepare a worker's messages, in its process; they are written to `out`."""


class Messages(Protocol):
    """A worker's messages, computed one by one."""

    @property
    def partition(self) -> int:
        """The partition that is being computed; -1: none."""

    def __call__(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        """Compute message `index` of a round; return it, and its energy (`Event.energy`)."""


def parameters_of(gradient: Gradient | Computation, size: int) -> int:
    """The length of theta."""
    return int(getattr(gradient, "parameters", size))


@dataclass(frozen=True)
class Task:
    """What the workers of a cluster compute.

    Attributes
    ----------
    code : Code
    shards : sequence
        The data of each partition.
    gradient : callable
        As in `Master`.
    batch : callable, optional
        As in `RoundOptions`.
    size : int
        The gradient dimension p.
    dtype : numpy dtype
        Of parameters and gradient.
    message_size : int
    message_dtype : numpy dtype
    spread : bool
        Whether a delay belongs to the computations, and is slept in equal parts before each
        message; else it is slept once, before the first.
    parameters : int
        The length of what the master sends: p, unless `gradient` says otherwise.
    asks : bool
        Whether the master asks workers, if the transport can (`Answering`).
    """

    code: Code
    shards: Sequence[Any]
    gradient: Gradient
    batch: Batch | None
    size: int
    dtype: np.dtype[Any]
    message_size: int
    message_dtype: np.dtype[Any]
    spread: bool
    parameters: int
    asks: bool = False

    def data(self, worker: int) -> list[list[tuple[int, Any]]]:
        """The data that a worker receives once: for each message, a list of (partition, shard).

        Its own messages come first, then those that it may be asked for in the place of others
        (`fastgc.codes.Share`), in the order of ``code.scheme.holders.held_for[worker]``.
        """
        scheme = self.code.scheme
        own = [(worker, index) for index in range(scheme.messages.counts[worker])]
        others = [(other, None) for other in scheme.holders.held_for[worker]] if self.asks else []
        return [
            [(int(j), self.shards[j]) for j in self.code.partitions(*each)]
            for each in [*own, *others]
        ]

    def part(self, partition: int, shard: Any, round: int) -> Any:
        """What the gradient function gets of a partition's shard in a round."""
        return shard if self.batch is None else self.batch(shard, partition, round)

    def without_data(self) -> Task:
        """The task without shards, which is the same for all workers; each gets its own `data`."""
        return replace(self, shards=())


class Question(NamedTuple):
    """What the master asks a worker for, besides its messages.

    `fastgc.engines.worker.Worker.answer` answers it.

    Attributes
    ----------
    number : int
        How many questions the cluster asked before it.
    round : int
        The round that it is about.
    what : Share
        Another worker's message, which the worker computes.
    """

    number: int
    round: int
    what: Share


class Transport(Protocol):
    """Carries parameters and messages between a master and its workers, and decides nothing.

    Workers are numbered from 0 to n - 1. Making the transport starts them. Each reports when it has
    joined (`Kind.JOINED`). A worker that raises reports it (`Kind.FAILED`) and ends.

    Attributes
    ----------
    exposed : bool, optional
        Whether workers can still write to a message after they sent it. A round that verifies then
        gets copies. Default: False.
    hosts : list of str, optional
        The machine of each worker that has joined, "" for the master's own.
    """

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        """Copy or send the parameters of a round; `theta` may change after the call.

        Workers may still be at the earlier rounds `in_use`.
        """

    def hand(self, worker: int, first: int, delay: float) -> None:
        """Hand the round published last to a worker that has none in hand.

        The worker sleeps for the delay, computes its messages from number `first` on, and sends
        each as soon as `fastgc.engines.worker.Worker.message` returns it. It is no error if
        the worker has died in the meantime.
        """

    def listen(self, seconds: float) -> Iterable[Event]:
        """Return the events so far, oldest first; if there are none, wait up to `seconds` for some.

        `seconds` is at most a million. It may return earlier, with nothing. A worker's messages
        come before its death.
        """

    def restart(self, worker: int) -> None:
        """Begin to start a dead worker again; an event reports that it joined, or died."""

    def close(self) -> None:
        """End the workers, and release all resources."""


class Buffers(dict[int, int]):
    """For each round that workers may still be at: the number of the buffer with its parameters."""

    def take(self, number: int, in_use: set[int]) -> int:
        """Take the first buffer that no round of `in_use` needs, for round `number`."""
        for over in self.keys() - in_use:
            del self[over]
        taken = set(self.values())
        self[number] = next(b for b in range(len(taken) + 1) if b not in taken)
        return self[number]


class Answering(Transport, Protocol):
    """A transport whose workers answer questions.

    It adds one method, which is used if the task `asks`.

    Attributes
    ----------
    asks : bool
        Whether workers can be asked.
    """

    asks: bool = False

    def ask(self, worker: int, question: Question) -> None:
        """Ask a worker something about the round published last.

        The worker answers while it computes, in the order in which it was asked, with what
        `Worker.answer` returns. It is no error if the worker has died in the meantime.
        """


def check_cluster(code: Code, shards: Sequence[Any], gradient: Gradient, size: int) -> int:
    """Check the arguments that all engines take besides `RoundOptions`; return `size` as an int."""
    check_code(code)
    if not isinstance(shards, Sized):
        raise TypeError(f"shards must be a sequence, got {type(shards).__name__}")
    if len(shards) != code.scheme.data.shards:
        raise ValueError(f"code has {code.scheme.data.shards} partitions, got {len(shards)} shards")
    if not callable(gradient):
        raise TypeError(f"gradient must be callable, got {type(gradient).__name__}")
    return at_least("size", size, 1)


def sample_delays(model: DelayModel | None, loads: Ints, number: int, seed: int) -> list[float]:
    """Seconds that each worker sleeps in a round."""
    n = loads.size
    if model is None:
        return [0.0] * n
    delays = sample(model, number, n, seed)
    if per_of(model) == "computation":
        delays = delays * loads
    return list(delays.tolist())
