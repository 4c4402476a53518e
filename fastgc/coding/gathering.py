"""The protocol of a round: what happens goes in, what it waits for comes out.

A transport carries messages and decides nothing. A master decides which worker gets what, and
carries nothing. A round says what it waits for. A new kind of round is a subclass of `Gathering` in
one file; masters and engines need not know it.

*Events.* Whoever runs a round calls `begin`, then one method for each event, from one thread:

=============  ====================================================================
`receive`      a worker has sent a message
`report`       a worker has computed a message, and keeps it (where the round `keeps`)
`hear`         a worker has answered a question, or cannot
`straggles`    a worker has died, or was dead when the round began
`elapse`       the time that the round gave as `due` has come
=============  ====================================================================

*States.* After each event the round says where it stands:

- `ready`: it needs nothing more, and is over. A round with `linger` goes on taking messages for
  some time.
- `questions`: what to ask which workers. Whoever runs the round asks them. The round is not ready
  while answers are `awaited`.
- `due`: when to call `elapse`, if nothing else has happened by then.
- Otherwise it waits for messages. If no more can come, it is over, too: whoever runs it takes what
  came, if the round is `decodable`, or raises what `require` raises.

*Invariants.*

1. A round that is ready gets nothing more, unless it lingers.
2. Each message is brought once; messages of a worker that the round does not want (`wants`), never.
3. A worker that was asked owes an answer to its last question only. A worker owes none if it has
   died or `elapse` passed it over. An answer that nobody owes changes nothing.
4. After `elapse`, `due` is later or no answers are awaited: each round ends, whoever is silent.
5. `survivors` are among the messages that were brought (`taken`), each once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .format import Format
from .scheme import Coded

__all__ = ["Costs", "Gathering", "Host"]

_NO_MESSAGES = np.empty(0, dtype=np.int64)


class Costs(NamedTuple):
    """What a round cost besides its messages.

    Attributes
    ----------
    asks : int
        Questions that workers were asked.
    numbers : int
        Real numbers in the answers of suspects.
    computed : int
        Partial gradients that the master computed.
    """

    asks: int = 0
    numbers: int = 0
    computed: int = 0


class Host(NamedTuple):
    """What runs a round, as the round sees it.

    Attributes
    ----------
    clock : callable
        ``clock()`` gives the time in seconds, on the clock that times rounds.
    compute : callable, optional
        ``compute(partition)`` gives a partial gradient of this round, which the master computes.
        None: the round cannot settle contradictions by itself.
    asks : bool
        Whether workers answer questions.
    answer_timeout : float
        Seconds that a suspect has to answer.
    least_wait : float
        Seconds to wait for an answer, at the least, before others are asked in its place.
    deadline : float
        When, by the clock, the round ends at the latest.
    """

    clock: Callable[[], float]
    compute: Callable[[int], NDArray[Any]] | None = None
    asks: bool = True
    answer_timeout: float = math.inf
    least_wait: float = math.inf
    deadline: float = math.inf


class Gathering:
    """A round: it takes the messages of workers, and says for how long.

    `Cluster.collect` runs it. Your own subclass defines `ready`, `survivors`, `receive` and
    `require`, and sets `code` and `form`; everything else has a default. The next round overwrites
    the messages: copy what you keep.

    Attributes
    ----------
    code : Code
        The code of the cluster.
    form : Format
        The format of the cluster's rounds, with its size and dtypes.
    linger : float or None
        A round that is `ready` takes more messages until all have come, or until (1 + linger) times
        the time of the first message has passed. None: it takes no more.
    verified : bool
        As `Round.verified`.
    verifies : bool
        Whether it compares messages with each other. If workers could change messages after they
        sent them, it then gets copies.
    keeps : bool
        Whether workers keep their messages until they are asked, and only `report` them.
    replaceable : bool
        Whether, if messages are verified, other messages can replace one that is not finite.
        Otherwise its error ends the round.
    due : float
        When, by the clock of the `Host`, to call `elapse`; inf: never.
    costs : Costs
        The costs of this round so far.
    stood_in : tuple of (int, int, float)
        Each message that another worker than its owner computed, the number of that worker, and
        when it was asked, in seconds since the round began.
    """

    code: Coded
    form: Format
    linger: float | None = 0.0
    verified: bool = False
    verifies: bool = False
    keeps: bool = False
    replaceable: bool = True
    due: float = math.inf
    costs: Costs = Costs()
    stood_in: tuple[tuple[int, int, float], ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the round needs no more messages."""
        raise NotImplementedError

    @property
    def decodable(self) -> bool:
        """Whether the messages so far suffice if no more come. Default: as `ready`."""
        return self.ready

    @property
    def survivors(self) -> NDArray[np.int64]:
        """Numbers of the messages used, in order of arrival."""
        raise NotImplementedError

    @property
    def taken(self) -> NDArray[np.int64]:
        """Numbers of the messages that came, used or not. Default: the survivors."""
        return self.survivors

    @property
    def corrupt(self) -> list[int]:
        """Workers whose messages are not taken any more. Default: none."""
        return []

    @property
    def awaited(self) -> Collection[int]:
        """Workers that were asked and owe an answer. Default: none."""
        return ()

    @property
    def least(self) -> int:
        """The smallest number of messages that may suffice. Default: 1."""
        return 1

    def begin(self, host: Host) -> None:
        """Begin, with what the `Host` offers. Default: does nothing."""

    def receive(
        self,
        worker: int,
        message: NDArray[Any],
        index: int | None = None,
        *,
        energy: float = math.nan,
    ) -> bool:
        """Take a message, as `Round.receive`; return whether the round is ready."""
        raise NotImplementedError

    def report(self, worker: int, index: int) -> bool:
        """Note that a worker has computed a message and keeps it; only if the round `keeps`."""
        raise NotImplementedError

    def questions(self) -> Sequence[tuple[int, Any]]:
        """Return workers to ask, and what to ask them; each question once. Default: none.

        A question is a `fastgc.codes.Request` for a sum, a `fastgc.codes.Share` of another worker,
        or the seed that `fastgc.codes.AskingRound.answer` takes.
        """
        return ()

    def hear(
        self, worker: int, what: Any, answer: NDArray[Any] | None, *, energy: float = math.nan
    ) -> NDArray[np.int64]:
        """Take a worker's answer to the question `what`; None: it has none.

        Return the numbers of the messages that a sum consists of. Default: does nothing.
        """
        return _NO_MESSAGES

    def straggles(self, worker: int) -> None:
        """Expect no further message of this worker. Default: does nothing."""

    def elapse(self) -> None:
        """Stop waiting for what was `due`. Default: does nothing."""

    def require(self, messages: NDArray[np.int64]) -> None:
        """Raise NotDecodableError unless these messages alone would suffice."""
        raise NotImplementedError

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are of use. Default: all are."""
        return True

    def lapse(self, why: str) -> None:
        """Note that the messages have been overwritten. Default: does nothing."""

    def intake(self, when: NDArray[np.float64]) -> Any:
        """The object that takes messages where they lie, as `Round.intake`. Default: none.

        It is asked for again while it takes them. None then ends that: messages are received again.
        """
        return None

    def follow(self) -> list[int]:
        """Note messages that `intake` took; return their numbers. Default: none."""
        return []
