"""Reactive redundancy: many workers hold a share of the work, one computes it (Gupta, Vaidya 2019).

Each worker's message is its share of the gradient. Other workers hold the data of this share, too.
If the worker is late or dead, the master asks one that has sent its own share to compute this one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import Array, Ints, check_index, check_real
from ..errors import NotDecodableError
from ..numerics.graphs import owners
from .round import NOBODY, Host, Round, Share
from .scheme import Coded
from .trust import Watch

Deadline = float | Literal["auto"]

# deadline="auto": _FACTOR times the median of the last _RECENT rounds.
_FACTOR, _RECENT = 2.0, 32


def check_deadline(deadline: Deadline) -> Deadline:
    """Return seconds as a float, or "auto"; raise ValueError or TypeError for anything else."""
    if isinstance(deadline, str):
        if deadline != "auto":
            raise ValueError(f'deadline must be seconds or "auto", not {deadline!r}')
        return "auto"
    if deadline == math.inf:  # only shares of the dead are asked for
        return math.inf
    return check_real("deadline", deadline, positive=True)


class Dues:
    """Which shares of a round are missing, and which holders to ask for them. It sees no messages.

    `holders` are, for each worker's share, the workers that hold it, the worker itself included;
    `deadline` is as in `fastgc.Reactive`. `missing` are the shares that have not come yet, and
    `asked` is the number of questions in this round.

    A share is asked for once its owner is dead or the deadline has passed. If its owner had not
    sent it when the last round ended, it is asked for at once. A holder can be asked if it is
    alive, its own share has come, and it owes no other. Shares that are asked for at the same time
    go to holders by the least makespan (`owners`).

    A holder has as long to answer as the round had taken when it was asked, but at least as long as
    the deadline. Then another holder is asked as well, and the first answer counts. No holder is
    asked for a share twice in a round. So a round calls `elapse` at most as often as workers hold
    shares of others.
    """

    def __init__(self, holders: Sequence[Sequence[int]], deadline: Deadline) -> None:
        self._holders, self._deadline = [list(each) for each in holders], deadline
        self._others: list[set[int]] = [set() for _ in holders]  # others' shares that each holds
        for share, each in enumerate(self._holders):
            for worker in each:
                if worker != share:
                    self._others[worker].add(share)
        # The number of shares that set the pace: all but as many as workers may fail, which is one
        # less than the least number of holders.
        self._usual = max(1, len(holders) + 1 - min(map(len, holders)))
        self._recent: deque[float] = deque(maxlen=_RECENT)  # paces of the last rounds
        self._pace = math.nan  # seconds until this round's `_usual` shares had come
        self._own: set[int] = set()  # workers that have sent their own shares in this round
        self._absent: set[int] = set()  # workers that had not when the last round ended
        self._span = self._shortest = math.inf  # seconds to this round's deadline; its least value
        self.missing: set[int] = set()
        self.begin(0.0, asks=False)

    @property
    def seconds(self) -> float:
        """Seconds from a round's beginning to its deadline; inf if none is known yet."""
        if self._deadline != "auto":
            return self._deadline
        return self._after(median(self._recent)) if self._recent else math.inf

    def _after(self, pace: float) -> float:
        return max(_FACTOR * pace, self._shortest)

    def in_time(self, times: Sequence[float]) -> bool:
        """Return whether a round that has just begun asks nobody; if so, record it as over.

        `times` are those at which all shares come, ascending.
        """
        pace = times[self._usual - 1] - self._begun
        span = self._after(pace) if self._span == math.inf == self.seconds else self._span
        if self._absent or times[-1] > self._begun + span:
            return False
        self._pace, self._own, self.missing = pace, set(range(len(times))), set()
        return True

    def begin(self, now: float, *, asks: bool, least: float = 0.0) -> None:
        """Begin a round and end the last one. An automatic deadline is `least` seconds or more."""
        self._shortest = least
        workers = range(len(self._holders))
        if self._own:
            self._absent = set(workers) - self._own
        if self._pace == self._pace:
            self._recent.append(self._pace)
        self._asks, self._begun, self._pace = asks, now, math.nan
        self.missing, self._own = set(workers), set()
        self._dead: set[int] = set()
        self._late = False  # whether the deadline has passed
        self.owing: dict[int, Share] = {}  # by worker: the share whose answer it owes
        self._until: dict[int, float] = {}  # by worker: when its time to answer is up
        self._askers: dict[int, list[int]] = {}  # by missing share: all that were asked for it
        self._at: set[int] = set()  # shares asked of a worker whose time is not up
        self._new: list[tuple[int, Share]] = []  # questions that `questions` has not returned
        # Missing shares that are late or lost, and not in `_at`.
        self._wanted = set(self._absent) if asks else set()
        self.asked = 0
        self._span = self.seconds

    @property
    def due(self) -> float:
        """Time at which to call `elapse`; inf if only an event can change something."""
        if not (self._asks and self.missing):
            return math.inf
        first = next(iter(self._until.values()), math.inf)  # later questions have later times
        return first if self._late else min(first, self._begun + self._span)

    def came(self, worker: int, now: float) -> bool:
        """Note that a worker has sent its own share, in time or late: from now on it can be asked.

        Return whether there are `questions`, or `due` is earlier than before.
        """
        self._own.add(worker)
        self._dead.discard(worker)
        self._have(worker)
        earlier = False
        if len(self._own) <= self._usual:
            self._pace = now - self._begun
            first = self._deadline == "auto" and not self._recent
            if first and len(self._own) == self._usual:
                self._span = self._after(self._pace)
                earlier = True
        if self._wanted:
            self._ask_one(worker, now)
        return earlier or bool(self._new)

    def _have(self, share: int) -> None:
        self.missing.discard(share)
        self._wanted.discard(share)
        for worker in self._askers.pop(share, ()):
            if worker in self.owing and self.owing[worker].worker == share:
                self._close(worker)

    def _close(self, worker: int) -> None:
        what = self.owing.pop(worker, None)
        if self._until.pop(worker, None) is not None and what is not None:
            self._leave(what.worker)

    def _leave(self, share: int) -> None:
        """Note that no worker computes this share in time any more."""
        self._at.discard(share)
        self._want(share)

    def _want(self, share: int) -> None:
        """Want a missing share if it is late or lost, and not in `_at`."""
        gone = self._late or share in self._dead or share in self._absent
        if self._asks and gone and share in self.missing and share not in self._at:
            self._wanted.add(share)

    def dies(self, worker: int, now: float) -> None:
        """Note that a worker is dead, and ask others for the shares that it owes."""
        self._dead.add(worker)
        self._close(worker)
        self._want(worker)
        self._ask(now)

    def elapse(self, now: float) -> None:
        """Ask for late shares, and ask others beside workers that have not answered in time."""
        if not self._late and now >= self._begun + self._span:
            self._late = True
            self._wanted = self.missing - self._at if self._asks else set()
        for worker in [i for i, until in self._until.items() if until <= now]:
            del self._until[worker]
            self._leave(self.owing[worker].worker)
        self._ask(now)

    def answers(self, worker: int, what: object, now: float, *, has: bool) -> int | None:
        """Return the share that comes with an answer, or None if none is owed or of use.

        `has` says whether the answer holds the share.
        """
        asked = self.owing.get(worker)
        if asked is None or what is not asked:
            return None
        self._close(worker)
        if has:
            self._have(asked.worker)
            self._ask_one(worker, now)
        else:
            self._ask(now)
        return asked.worker if has else None

    def questions(self) -> list[tuple[int, Share]]:
        """Return the workers to ask, and for what. Each question is returned once."""
        if not self._new:
            return []
        new = [(worker, what) for worker, what in self._new if self.owing.get(worker) is what]
        self._new = []
        self.asked += len(new)
        return new

    def _ask_one(self, worker: int, now: float) -> None:
        """Ask a worker that has just become free for one share; no other has become free."""
        if worker in self.owing:
            return
        able = self._wanted & self._others[worker]
        new = [share for share in able if worker not in self._askers.get(share, ())]
        if new:
            self._put(worker, min(new), now)

    def _put(self, worker: int, share: int, now: float) -> None:
        self.owing[worker] = what = Share(share)
        self._until[worker] = now + self._patience(now)
        self._askers.setdefault(share, []).append(worker)
        self._at.add(share)
        self._wanted.discard(share)
        self._new.append((worker, what))

    def _ask(self, now: float) -> None:
        """Ask free workers for the shares in `_wanted`."""
        if not self._wanted:
            return
        idle = self._own - self._dead - self.owing.keys()
        left = sorted(self._wanted)
        while left and idle:  # at a time, no more shares than workers
            some, left = left[: len(idle)], left[len(idle) :]
            able = {}
            for share in some:
                asked = self._askers.get(share, ())
                if free := idle.intersection(self._holders[share]).difference(asked):
                    able[share] = free
            for share, worker in zip(able, owners(list(able.values()), idle), strict=True):
                if worker not in self.owing:  # one at a time: others may be done before
                    self._put(worker, share, now)
            idle -= self.owing.keys()

    def _patience(self, now: float) -> float:
        """Seconds that a worker asked now has: the round's time so far, or `_span` if longer."""
        span = self._span if self._span < math.inf else self._shortest
        return max(now - self._begun, span)

    def lost(self, messages: Collection[int]) -> list[int]:
        """Return shares that nobody can send if only `messages` have come or can still come."""
        alive = {m for m in messages if m in self.missing or m not in self._dead}
        return [
            share
            for share in sorted(self.missing)
            if alive.isdisjoint(self._holders[share] if self._asks else [share])
        ]


class ReactiveRound(Round):
    """A round whose master asks other holders for the shares of late or dead workers.

    It is ready when every worker's share has come, from the worker itself or from another holder.
    The first copy of a share is used, and a later one is dropped. Both give the same gradient to
    the last bit, because holders encode a share as its owner does.

    Parameters
    ----------
    code : Code
        A code such as `fastgc.Reactive`.
    p, dtype, message_dtype, tracker, partial_dtype
        As in `Round`.

    Raises
    ------
    TypeError
        If the code's workers do not hold what others compute.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.Reactive(3, holders=2)
    >>> rnd = fastgc.codes.ReactiveRound(code, p=1)
    >>> from fastgc.coding.round import Host
    >>> rnd.begin(Host(clock=lambda: 0.0))
    >>> rnd.straggles(1)  # it has died
    >>> rnd.receive(0, np.array([1.0])), rnd.receive(2, np.array([4.0]))
    (False, False)
    >>> [(worker, what)] = rnd.questions()  # who holds its share, and is done
    >>> worker, what
    (2, Share(worker=1))
    >>> rnd.hear(worker, what, np.array([2.0])).tolist(), rnd.gradient().tolist()
    ([1], [7.0])
    """

    def __init__(
        self,
        code: Coded,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        tracker: Watch | None = None,
        *,
        partial_dtype: DTypeLike | None = None,
    ) -> None:
        scheme = code.scheme
        if not scheme.holders.stand_ins:
            raise TypeError(f"workers of {code!r} hold nothing of what others compute")
        self._dues = Dues([scheme.holders.of(i) for i in range(scheme.n)], scheme.holders.deadline)
        super().__init__(code, p, dtype, message_dtype, tracker, partial_dtype=partial_dtype)

    def reset(self) -> None:
        """Forget all messages, but keep the times that past rounds took."""
        self.begin(NOBODY)
        super().reset()

    def begin(self, host: Host) -> None:
        """Begin a round, which asks holders if the host can ask."""
        self._clock, self._begun = host.clock, host.clock()
        least = host.least_wait if host.least_wait < math.inf else 0.0
        self._dues.begin(self._begun, asks=host.asks, least=least)
        self._told: dict[tuple[int, int], float] = {}  # when each worker was asked for each share
        self._came_from: dict[int, int] = {}  # by share: the other worker that sent it

    @property
    def due(self) -> float:  # type: ignore[override]
        """Time of the deadline, or of asking another holder as well."""
        return self._dues.due

    @property
    def owing(self) -> Collection[int]:
        """Workers that owe an answer."""
        return self._dues.owing

    @property
    def asks(self) -> int:  # type: ignore[override]
        """Number of questions asked."""
        return self._dues.asked

    @property
    def stood_in(self) -> tuple[tuple[int, int, float], ...]:  # type: ignore[override]
        """As in `Gathering`: shares that others sent, their senders, and when these were asked."""
        return tuple(
            (share, worker, self._told[worker, share]) for share, worker in self._came_from.items()
        )

    def receive(
        self, worker: int, message: ArrayLike, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take a worker's message, as in `Round`; drop it if another worker has sent the share."""
        if worker not in self._came_from:
            super().receive(worker, message, index, energy=energy)
        self._dues.came(int(worker), self._clock())
        return self.ready

    def straggles(self, worker: int) -> None:
        """Note that a worker has died, and ask others for its share."""
        super().straggles(worker)
        self._dues.dies(check_index("worker", worker, self.scheme.n), self._clock())

    def elapse(self) -> None:
        """Ask others for late shares."""
        self._dues.elapse(self._clock())

    def questions(self) -> list[tuple[int, Share]]:
        """Return holders to ask, and for whose share. Each question is returned once."""
        new = self._dues.questions()
        if new:
            now = self._clock() - self._begun
            self._told |= {(worker, what.worker): now for worker, what in new}
        return new

    def hear(
        self, worker: int, what: Share, answer: Array | None, *, energy: float = math.nan
    ) -> Ints:
        """Take a worker's `answer` to the question `what`; None if it cannot compute the share.

        Return the share's number in an array, which is empty if the answer comes too late or does
        not fit.
        """
        form = self.form
        fits = (
            answer is not None
            and answer.shape == (form.message_size,)
            and answer.dtype == form.message_dtype
        )
        share = self._dues.answers(worker, what, self._clock(), has=fits)
        if share is None or answer is None:
            return self.survivors[:0]
        # The worker's next answer will overwrite this one.
        message = answer.copy()
        form.require_finite(worker, message)
        super().receive(share, message, energy=energy)
        self._came_from[share] = int(worker)
        return np.array([share])

    def require(self, messages: Ints) -> None:
        """Raise NotDecodableError unless workers of these messages hold all missing shares."""
        checked = self.scheme.check_survivors(messages)
        if lost := self._dues.lost(set(checked.tolist())):
            raise NotDecodableError(
                f"no worker is left that holds the partitions of workers {lost}", len(lost)
            )
