"""The protocol of a round: events go in, what the round waits for comes out.

A transport carries and decides nothing. A master decides which worker gets what and carries
nothing. A round says what it waits for. A new kind of round is a subclass of `Gathering`, in one
file; masters and engines need not know it.

*Events.* Whoever runs a round calls `begin`, and then one method for each event, from one thread:

=============  ====================================================================
`receive`      a worker has sent a message
`report`       a worker has computed a message, and keeps it (where the round `keeps`)
`hear`         a worker has answered a question, or cannot
`straggles`    a worker has died, or was dead when the round began
`elapse`       the time `due` has come
=============  ====================================================================

*States.* After each event the round says where it stands:

- `ready`: it needs nothing more, and is over. If it has `linger`, it still takes messages for a
  while.
- `questions`: what to ask which workers. Whoever runs the round asks them. A round is not ready
  while it awaits answers (`awaited`).
- `due`: when to call `elapse`, if nothing else happens before.
- Otherwise it waits for messages. If no more can come, it is over, too. Whoever runs it uses what
  came if the round is `decodable`, and else raises what `require` raises.

*Invariants.*

1. A round that is ready gets nothing more, unless it lingers.
2. It gets each message once, and none of a worker that it does not want (`wants`).
3. A worker that was asked owes an answer to the last question only. A worker that has died, or that
   `elapse` passed over, owes none. An answer that is not owed changes nothing.
4. `elapse` moves `due` to a later time, or ends the wait for answers. So each round ends, whoever
   is silent.
5. `survivors` are among the messages that the round got (`taken`), each once.
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
    """What a round cost beside its messages.

    Attributes
    ----------
    asks : int
        Number of questions to workers.
    numbers : int
        Real numbers in the answers of suspects.
    computed : int
        Partial gradients that the master computed.
    """

    asks: int = 0
    numbers: int = 0
    computed: int = 0


class Host(NamedTuple):
    """What whoever runs a round offers it.

    Attributes
    ----------
    clock : callable
        ``clock()`` returns the seconds by which rounds are timed.
    compute : callable, optional
        ``compute(partition)`` lets the master compute a partial gradient of this round. If None,
        the round does not settle contradictions by itself.
    asks : bool
        Whether workers answer questions.
    answer_timeout : float
        Seconds that a suspect has to answer.
    least_wait : float
        Seconds that an answer may take, at least, before others are asked instead.
    deadline : float
        Time on the clock at which the round ends at the latest.
    """

    clock: Callable[[], float]
    compute: Callable[[int], NDArray[Any]] | None = None
    asks: bool = True
    answer_timeout: float = math.inf
    least_wait: float = math.inf
    deadline: float = math.inf


class Gathering:
    """A round: it takes the messages of workers, and says what it waits for.

    `Cluster.collect` runs it. Your own subclass defines `ready`, `survivors`, `receive` and
    `require`, and sets `code` and `form`; everything else has a default. Messages are overwritten
    in the next round: copy what you keep.

    Attributes
    ----------
    code : Code
        The code of the cluster.
    form : Format
        The format of the cluster's rounds, with its size and dtypes.
    linger : float or None
        A round that is `ready` takes more messages until all have come, or until (1 + linger) times
        as long has passed as until the first one came. None: it takes no more.
    verified : bool
        As `Round.verified`.
    verifies : bool
        Whether it compares messages with each other. If workers could change messages afterwards,
        it gets copies.
    keeps : bool
        Whether workers keep their messages and only `report` them until they are asked.
    replaceable : bool
        Whether other messages can replace one that is not finite, if messages are verified.
        Otherwise its error ends the round.
    due : float
        Time on the `Host`'s clock at which to call `elapse`; inf: not until something happens.
    costs : Costs
        The costs of this round so far.
    stood_in : tuple of (int, int, float)
        For each message that a worker computed for its owner: the message, that worker, and when
        it was asked, in seconds since the round began.
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
        """Whether no more messages need come."""
        raise NotImplementedError

    @property
    def decodable(self) -> bool:
        """Whether the messages so far suffice if no more come. Default: whether it is ready."""
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
        """Workers whose messages are no longer taken. Default: none."""
        return []

    @property
    def awaited(self) -> Collection[int]:
        """Workers that owe an answer. Default: none."""
        return ()

    @property
    def least(self) -> int:
        """The smallest number of messages that may suffice. Default: 1."""
        return 1

    def begin(self, host: Host) -> None:
        """Begin, with what the `Host` offers. Default: do nothing."""

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
        """Note that a worker has computed a message and keeps it, if the round `keeps`."""
        raise NotImplementedError

    def questions(self) -> Sequence[tuple[int, Any]]:
        """Return workers to ask, and what to ask them. Each question is returned once.

        A question is a `fastgc.codes.Request` for a sum, a `fastgc.codes.Share` of another worker,
        or the seed for `fastgc.codes.AskingRound.answer`. Default: none.
        """
        return ()

    def hear(
        self, worker: int, what: Any, answer: NDArray[Any] | None, *, energy: float = math.nan
    ) -> NDArray[np.int64]:
        """Take a worker's answer to a question, None if it has none.

        Return the numbers of the messages that come with it: those in the sum. Default: none.
        """
        return _NO_MESSAGES

    def straggles(self, worker: int) -> None:
        """Note that no further message of this worker will come. Default: do nothing."""

    def elapse(self) -> None:
        """Stop waiting for what was `due`. Default: nothing is."""

    def require(self, messages: NDArray[np.int64]) -> None:
        """Raise NotDecodableError unless these messages alone would suffice."""
        raise NotImplementedError

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are of use. Default: True."""
        return True

    def lapse(self, why: str) -> None:
        """Note that the messages have been overwritten. Default: nobody reads them."""

    def intake(self, when: NDArray[np.float64]) -> Any:
        """Return an object that takes messages where they lie, as `Round.intake`, or None.

        It is asked for again while it is in use; once the answer is None, each message is received.
        Default: None.
        """
        return None

    def follow(self) -> list[int]:
        """Note the messages that `intake` took, and return their numbers. Default: none."""
        return []
