"""The protocol of a round: what happens goes in, what it waits for comes out.

A transport carries and decides nothing, a master decides which worker gets what and carries
nothing, and a round says what it waits for. A new kind of round is a subclass of `Gathering` in one
file; masters and engines need not know it.

*Events.* Whoever runs a round calls `begin`, then one method for each event, from one thread:

=============  ====================================================================
`receive`      a worker has sent a message
`report`       a worker has computed a message, and keeps it (where the round `keeps`)
`hear`         a worker has answered a question, or cannot
`straggles`    a worker has died, or was dead when the round began
`elapse`       it is `due`
=============  ====================================================================

*States.* After each event the round says where it stands:

- `ready`: it needs nothing more, and is over; a round that has `linger` goes on taking messages for
  some time.
- `questions`: what workers are to be asked. Whoever runs the round puts them to them, and a round
  is not ready while answers are `awaited`.
- `due`: when `elapse` is to be called, if nothing else has happened by then.
- Otherwise it waits for messages. Where no more can come, it is over, too: whoever runs it makes do
  with what came if the round is `decodable`, or raises what `require` raises.

*Invariants.*

1. A round that is ready is brought nothing more, unless it lingers.
2. Each message is brought once. Those of a worker that the round does not want (`wants`) are not.
3. Who was asked owes an answer to the last question alone. Who has died, or was passed over by
   `elapse`, owes none. An answer that nobody owes changes nothing.
4. `elapse` puts `due` off, or answers are awaited no more: so each round ends, whoever is silent.
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
    """What a round took beside its messages.

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
    """What runs a round, and offers it.

    Attributes
    ----------
    clock : callable
        ``clock()`` gives the seconds of the time that rounds take.
    compute : callable, optional
        ``compute(partition)`` gives a partial gradient of this round, which the master computes.
        None: the round is to settle no contradiction by itself.
    asks : bool
        Whether workers answer questions.
    answer_timeout : float
        Seconds that a suspect has to answer.
    least_wait : float
        Seconds that an answer may take at least, before others are asked in its place.
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
    `require`, and sets `code` and `form`; everything else has a default. Messages are overwritten
    in the next round: copy what you keep.

    Attributes
    ----------
    code : Code
        The code of the cluster.
    form : Format
        The format of the cluster's rounds, with its size and dtypes.
    linger : float or None
        A round that is `ready` takes more messages until (1 + linger) times as long has passed as
        until the first one came, or all have come. None: it takes no more.
    verified : bool
        As `Round.verified`.
    verifies : bool
        Whether it compares messages with each other. It then gets copies, if workers could change
        messages afterwards.
    keeps : bool
        Whether workers keep their messages, and only `report` them, until they are asked.
    replaceable : bool
        Whether other messages can replace one that is not finite, if messages are verified.
        Otherwise its error ends the round.
    due : float
        When, by the clock of the `Host`, to call `elapse`; inf: not before something happens.
    costs : Costs
        The costs of this round so far.
    stood_in : tuple of (int, int, float)
        Each message that another than its owner computed, who did, and when that worker was asked,
        in seconds since the round began.
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
        """Whether the messages so far suffice if no more come. Default: if it is ready."""
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
        """Workers that were asked, and owe an answer. Default: none."""
        return ()

    @property
    def least(self) -> int:
        """The smallest number of messages that may suffice. Default: 1."""
        return 1

    def begin(self, host: Host) -> None:
        """Begin, with what the `Host` offers. Default: this changes nothing."""

    def receive(
        self,
        worker: int,
        message: NDArray[Any],
        index: int | None = None,
        *,
        energy: float = math.nan,
    ) -> bool:
        """Take a message, as `Round.receive`; whether the round is ready."""
        raise NotImplementedError

    def report(self, worker: int, index: int) -> bool:
        """Note that a worker has computed a message, and keeps it: only where the round `keeps`."""
        raise NotImplementedError

    def questions(self) -> Sequence[tuple[int, Any]]:
        """Workers to ask, and what to ask; each is returned once. Default: none.

        What they are asked is a `fastgc.codes.Request` for a sum, a `fastgc.codes.Share` of another
        worker, or the seed of what `fastgc.codes.AskingRound.answer` answers.
        """
        return ()

    def hear(
        self, worker: int, what: Any, answer: NDArray[Any] | None, *, energy: float = math.nan
    ) -> NDArray[np.int64]:
        """Take an answer to what a worker was asked; None: it has none.

        Returns the numbers of the messages that come with it: of those that a sum consists of.
        Default: it changes nothing.
        """
        return _NO_MESSAGES

    def straggles(self, worker: int) -> None:
        """No further message of this worker is expected. Default: this changes nothing."""

    def elapse(self) -> None:
        """Wait no longer for what was `due`. Default: nothing is."""

    def require(self, messages: NDArray[np.int64]) -> None:
        """Raise NotDecodableError unless these messages alone would suffice."""
        raise NotImplementedError

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are of use. Default: all are."""
        return True

    def lapse(self, why: str) -> None:
        """The messages have been overwritten. Default: nobody reads them."""

    def intake(self, when: NDArray[np.float64]) -> Any:
        """What takes messages where they lie, as `Round.intake`. Default: nothing does.

        Asked again while it does: None ends that, and each message is received from then on.
        """
        return None

    def follow(self) -> list[int]:
        """Take note of messages that `intake` took; their numbers. Default: it took none."""
        return []
