"""What every engine offers, and what it is made of.

To train on workers of another kind, write a `Transport`. It carries parameters and messages and
decides nothing; `fastgc.engines.master.Master` decides, and is the `Cluster` that training uses.
`fastgc.engines.worker.Worker` computes the messages, and `fastgc.testing.engines` checks that
everything together behaves like the engines here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from .._shown import duration, listed, plural
from ..codes import Code, Request, Share
from ..coding.format import Format
from ..coding.gathering import Gathering
from ..delays import DelayModel
from ..delays.interface import per_of, sample
from ..kernels.unchecked import Arrivals
from .options import Batch

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
    "RoundReport",
    "Task",
    "Transport",
    "can_be_told",
    "check_cluster",
    "parameters_of",
    "sample_delays",
]

Array = NDArray[Any]

# gradient(theta, shard, out), and partition=, round= if it asks for them
Gradient = Callable[..., object]


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
        When the master had each of them, in seconds from handing out the parameters.
    deaths : int
        Deaths of workers so far; a worker may die several times.
    refused : int
        Invalid messages since the last report: duplicates, messages of a future round or of a wrong
        size, or with workers or numbers that do not exist.
    residual : float
        How far the coefficients of the partial gradients in the gradient are from 1
        (`fastgc.coding.trust.Approximation`). It is 0 for codes that decode by a formula
        (`fastgc.codes.Scheme.exact`), and computed for all others and if messages do not suffice.
        NaN if nothing has been decoded yet.
    corrupt : tuple of int
        Workers whose messages were found to be corrupt, and dropped, if messages are verified.
    verified : bool
        Whether every message that the gradient is decoded from was compared with others, and agreed
        (`fastgc.Round.verified`).
    asks : int
        Questions that workers were asked: for sums of what they computed (`fastgc.PartialWork`),
        for missing shares of others (`fastgc.Reactive`), or as suspects (``ask=True``).
    computed : int
        Partial gradients that the master computed itself, to decide which suspects lie.
    stood_in : tuple of (int, int, float)
        Of codes that ask others for missing shares (`fastgc.Reactive`): each message that another
        than its owner computed, who did, and when that worker was asked, in seconds from handing
        out the parameters.
    """

    round: int
    survivors: NDArray[np.int64]
    messages: int
    wait_seconds: float
    decode_seconds: float
    stale: int
    lost: tuple[int, ...]
    received: NDArray[np.int64]
    arrivals: NDArray[np.float64]
    deaths: int = 0
    refused: int = 0
    residual: float = 0.0
    corrupt: tuple[int, ...] = ()
    verified: bool = False
    asks: int = 0
    computed: int = 0
    stood_in: tuple[tuple[int, int, float], ...] = ()

    def __repr__(self) -> str:
        said = [
            f"waited {duration(self.wait_seconds)} for {plural(len(self.survivors), 'worker')}",
            f"{plural(self.messages, 'message')}",
            f"decoded in {duration(self.decode_seconds)}",
        ]
        if self.residual:
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
        """Seconds since some fixed moment, in the time that rounds take."""
        ...

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round, and decode the gradient to `out`."""
        ...

    def collect(
        self, theta: Array, rnd: Gathering, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round of some workers, whose messages `rnd` takes and decodes."""
        ...

    def close(self) -> None:
        """End the workers; a second call does nothing."""
        ...


# Why a worker's life ends that tells what its program cannot have told.
NONSENSE = ": it sent what no worker sends"


class Kind(IntEnum):
    """What a transport can tell."""

    MESSAGE = 0
    LEFT = 1  # the worker left a round without its (further) messages: it is not the newest
    JOINED = 2  # the worker can be handed rounds, for the first time or again
    DIED = 3
    FAILED = 4  # it raised
    COMPUTED = 5  # it has computed a message, and keeps it: where sums are asked for
    ANSWER = 6  # to a question


_KINDS = frozenset(Kind)


def can_be_told(kind: int, index: int, messages: int) -> bool:
    """Whether a worker of so many messages can tell this of one: what came may be anything."""
    if kind in (Kind.MESSAGE, Kind.COMPUTED):
        return 0 <= index < messages
    return kind in _KINDS


@dataclass(slots=True)
class Event:
    """What a transport tells of a worker.

    Attributes
    ----------
    kind : Kind
    worker : int
    round, index : int
        Of a message, or the round that the worker left or failed in; -1: none. Of an answer: the
        round, and the number of the question.
    message : ndarray, optional
        Of the size and dtype that the task says, and as it is until the worker is handed another
        round: it is not copied. Of an answer, what was asked for, as it is until the worker is
        asked again; None: it has that no more.
    text : str
        Of one that failed: its traceback. Of one that died: what is known of it.
    energy : float
        Of a message or a sum, as `fastgc.coding.plan.Encoder.energy`; NaN: not known.
    time : int
        When the message was there, in nanoseconds of ``time.perf_counter_ns()``; 0: when it is
        told.
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
    """A `gradient` that has more to say: what it is sent, and how whole messages are computed.

    Attributes
    ----------
    parameters : int
        The length of theta, if it is not p.
    modules : tuple of str
        To be imported by the process that workers are forked from: what takes long.
    of_main : bool
        Whether the program has to be imported to unpickle it.
    """

    parameters: int
    modules: tuple[str, ...]
    of_main: bool

    def __call__(
        self, theta: Array, shard: Any, out: Array, *, partition: int, round: int
    ) -> object:
        """Write a partial gradient, where one is asked for (`fastgc.engines.SimulatedCluster`)."""
        ...

    def finish(self, worker: int, form: Format, sums: Array, message: Array) -> None:
        """Change what was encoded, where it is (`fastgc.engines.SimulatedCluster`).

        `sums` are what the message is rounded from.
        """
        ...

    def worker(self, number: int, task: Task, out: Sequence[Array] | None) -> Messages:
        """Prepare a worker's messages, in its process; `out` is where they are to be written."""
        ...


class Messages(Protocol):
    """Computes a worker's messages."""

    @property
    def partition(self) -> int:
        """The one that is being computed; -1: none."""
        ...

    def __call__(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        """A message of a round, and its energy (`Event.energy`)."""
        ...


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
        Whether the master would ask workers, where the transport can (`Answering`).
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
        """What a worker has to be brought once: (partition, shard) of each of its messages.

        After those of its own, the messages that it may be asked for in the place of others
        (`fastgc.codes.Share`), in the order of ``code.scheme.held_for[worker]``.
        """
        scheme = self.code.scheme
        own = [(worker, index) for index in range(scheme.message_counts[worker])]
        others = [(other, None) for other in scheme.held_for[worker]] if self.asks else []
        return [
            [(int(j), self.shards[j]) for j in self.code.partitions(*each)]
            for each in [*own, *others]
        ]

    def without_data(self) -> Task:
        """The same for all workers: to be brought to each once, with its own `data`."""
        return replace(self, shards=())

    def answer_form(self, worker: int, question: Question) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of what a worker answers."""
        if isinstance(question.what, Request | Share):
            return (self.message_size,), self.message_dtype
        kind = np.complex128 if self.code.scheme.is_complex else np.float64
        return (self.code.partitions(worker).size, self.code.scheme.pieces + 1), np.dtype(kind)

    def answer_in(self, memory: Any, worker: int, question: Question, offset: int = 0) -> Array:
        """What a worker answers, as an array in some memory."""
        return np.ndarray(*self.answer_form(worker, question), memory, offset)

    @property
    def answer_bytes(self) -> int:
        """Of the largest answer there may be; 0 where nobody is asked."""
        if not self.asks:
            return 0
        claims = 16 * self.code.load * (self.code.scheme.pieces + 1)
        return max(self.message_size * self.message_dtype.itemsize, claims)


class Question(NamedTuple):
    """What the master asks a worker for, beside its messages.

    `fastgc.engines.worker.Worker.answer` answers it.

    Attributes
    ----------
    number : int
        How many the cluster had asked before.
    round : int
        The round that it is about.
    what : Request, Share or int
        A sum of messages that the worker has computed in this round; the message of another
        worker, which it computes for that. Or a seed, and what it answers is
        `fastgc.codes.AskingRound.answer` on its partial gradients of this round, which it computes
        once more.
    """

    number: int
    round: int
    what: Request | Share | int


class Transport(Protocol):
    """What carries parameters and messages between a master and its workers, and decides nothing.

    Its workers are numbered from 0 to n - 1. When it is made they are started, and each tells that
    it has joined. One that raises tells so and is at its end, like one that died.

    Attributes
    ----------
    ahead : int
        Rounds that a worker may have in hand at a time: 1, or 2 if one that is handed a newer round
        leaves the older one between two of its messages.
    exposed : bool, optional
        Whether workers can write to a message that they have sent: a round that verifies is then
        brought copies. Default: False.
    hosts : list of str, optional
        The machine of each worker that has joined, "" for the master's own.
    wanted : int
        The master sets it: how many more messages of the newest round it takes at least before it
        can do anything with them. Fewer need not be told before some time has passed.
    intake : Arrivals, optional
        The master sets it while a round takes messages where they lie: a transport that has them
        in its memory may let it take those of the newest round, in place of telling of them.
    """

    ahead: int
    wanted: int
    intake: Arrivals | None

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        """Take the parameters of a round: copy or send them, for they may change after the call.

        `in_use` are earlier rounds that workers may still be at.
        """
        ...

    def hand(self, workers: Sequence[int], first: int, delays: Sequence[float]) -> None:
        """Hand the round published last to workers that have fewer than `ahead` rounds in hand.

        Each is to sleep for its delay, to compute its messages from number `first` on, and to send
        each as soon as `fastgc.engines.worker.Worker.message` returns it.
        One that has died since is no error.
        """
        ...

    def listen(self, seconds: float) -> Iterable[Event]:
        """What has happened, oldest first; if nothing, wait this long for it (inf: any time).

        May return earlier, with nothing. What a worker sent stands before its death.
        """
        ...

    def restart(self, worker: int) -> None:
        """Begin to start a worker that died once more; it tells when it has joined, or died."""
        ...

    def close(self) -> None:
        """End the workers, and release everything."""
        ...


class Buffers(dict[int, int]):
    """Which buffer the parameters of a round are in, of rounds that workers may still be at."""

    def take(self, number: int, in_use: set[int]) -> int:
        """The first buffer that none of the rounds in use is in, for the parameters of a round."""
        for over in self.keys() - in_use:
            del self[over]
        taken = set(self.values())
        self[number] = next(b for b in range(len(taken) + 1) if b not in taken)
        return self[number]


class Answering(Transport, Protocol):
    """A transport whose workers answer questions.

    It has one method more than others, and is to be used if the task `asks`.

    Attributes
    ----------
    asks : bool
        Whether workers can be asked.
    keeping : bool
        The master sets it before it publishes a round: whether workers keep their messages in it,
        for sums. They then need not send them, and tell of each that it is computed
        (`Kind.COMPUTED`). Those that are sent all the same are taken to say so.
    """

    asks: bool
    keeping: bool

    def ask(self, worker: int, question: Question) -> None:
        """Ask a worker something about the round published last.

        It answers while it computes, with what `Worker.answer` returns, in the order in which it
        was asked. One that has died since is no error.
        """
        ...


def check_cluster(code: Code, shards: Sequence[Any], gradient: Gradient, size: int) -> int:
    """Check what all engines take beside `RoundOptions`; returns `size` as a number."""
    if not isinstance(code, Code):
        raise TypeError(f"code must be a code of fastgc, not {code!r}")
    if not isinstance(shards, Sized):
        raise TypeError(f"shards must be a sequence, got {type(shards).__name__}")
    if len(shards) != code.scheme.shard_count:
        raise ValueError(f"code has {code.scheme.shard_count} partitions, got {len(shards)} shards")
    if not callable(gradient):
        raise TypeError(f"gradient must be callable, got {type(gradient).__name__}")
    return at_least("size", size, 1)


def sample_delays(
    model: DelayModel | None, loads: NDArray[np.int64], number: int, seed: int
) -> list[float]:
    """Seconds that each worker sleeps in a round."""
    n = loads.size
    if model is None:
        return [0.0] * n
    delays = sample(model, number, n, seed)
    if per_of(model) == "computation":
        delays = delays * loads
    return list(delays.tolist())
