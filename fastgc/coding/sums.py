"""Rounds whose workers keep their messages and are asked for one sum of them each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import kernels
from .._base.arrays import Array, Ints, Output, check_index, check_vector
from ..errors import NonFiniteMessageError, NotDecodableError
from .cells import CellScheme
from .code import Code
from .round import NOBODY, Costs, Gathering, Host, Round
from .trust import Trust


class Request(NamedTuple):
    """A request to a worker for the sum of its messages, each times its coefficient.

    Attributes
    ----------
    indices : (r,) int64 array
        Which of the worker's messages, ascending.
    coefficients : (r,) float64 or complex128 array
        Their coefficients, none of them 0.
    """

    indices: Ints
    coefficients: Array

    def sum_of(
        self, kept: Sequence[tuple[Array, float]], out: Array | None = None
    ) -> tuple[Array, float]:
        """Return the worker's answer and its energy.

        Parameters
        ----------
        kept : sequence of (message, energy)
            The requested messages, in the order of `indices`.
        out : (p,) array, optional
            Where to write the answer.
        """
        messages, energies = zip(*kept, strict=True)
        answer = np.empty_like(messages[0]) if out is None else out
        rows = [message.view(message.real.dtype) for message in messages]
        kernels.unchecked.combine(
            kernels.REAL,
            kernels.Rows.of(rows, rows[0].size, rows[0].dtype),
            self.coefficients,
            answer.view(answer.real.dtype),
        )
        return answer, float(np.square(np.abs(self.coefficients)) @ np.array(energies))


class SumRound(Gathering):
    """A round whose master hears what workers have computed, and asks them for sums of it.

    Workers report each message that they have computed, and keep it (`report`). As soon as the
    reported messages suffice, `requests` says which workers to ask, and for what. The gradient is
    the sum of their answers (`receive`). So each worker sends only one message, however much it has
    computed. If a worker dies before it answers, others are asked (`lose`).

    A worker may take as long to answer as the round had taken when it was asked. Then others are
    asked instead, if they have computed enough (`elapse`).

    Parameters
    ----------
    code : Code
        Any code whose workers send several messages. Its decoding vector decides whom to ask;
        `PartialWork` chooses few workers.
    p : int
        The gradient dimension.
    dtype : numpy dtype
        Dtype of the gradient and of the sums.

    Raises
    ------
    TypeError
        If the code's messages are not gradients of this dtype, because they are shorter, complex
        for real gradients, or scaled (float16).

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.PartialWork(3, load=2)
    >>> rnd = fastgc.codes.SumRound(code, p=2)
    >>> rnd.report(0, 0), rnd.report(2, 0), rnd.report(0, 1)  # worker 0 has computed both of its
    (False, False, True)
    >>> {worker: asked.indices.tolist() for worker, asked in rnd.requests.items()}
    {0: [0, 1], 2: [0]}
    >>> rnd.receive(0, np.array([1.0, 2.0])), rnd.receive(2, np.array([0.5, 0.0]))
    (False, True)
    >>> rnd.gradient()
    array([1.5, 2. ])
    """

    code: Code
    keeps = True

    def __init__(self, code: Code, p: int, dtype: DTypeLike = np.float64) -> None:
        if not isinstance(code, Code):
            raise TypeError(f"code must be a code of fastgc, not {code!r}")
        self.code, self.scheme = code, code.scheme
        self.form = form = self.scheme.format(p, dtype)
        if form.message_dtype != form.gradient_dtype or form.message_size != form.gradient_size:
            raise TypeError(
                f"messages of {code!r} for {form.gradient_size} elements of {np.dtype(dtype)} are "
                f"{form.message_size} of {form.message_dtype}: sums are taken of messages that are "
                "gradients"
            )
        self._tally = self.scheme.rule.tally()
        self.reset()

    def reset(self) -> None:
        """Forget all reports and sums."""
        self._reported: list[int] = []
        self._heard: set[int] = set()
        self._forget_requests()
        self._owed: dict[int, Request] = {}  # by workers that have not answered
        self._new: list[tuple[int, Request]] = []  # not yet told by `questions`
        self._aside: list[int] = []  # messages of workers that were passed over
        self._overdue = False
        self.due, self.costs = math.inf, Costs()
        self.begin(NOBODY)

    def begin(self, host: Host) -> None:
        """Begin a round for this host."""
        self._host, self._begun = host, host.clock()

    @property
    def requests(self) -> dict[int, Request]:
        """What to ask of which worker; empty until enough was computed."""
        return dict(self._requests)

    @property
    def answered(self) -> set[int]:
        """Workers whose sums have come."""
        return set(self._answers)

    @property
    def awaited(self) -> set[int]:
        """Workers that owe an answer."""
        return set(self._owed)

    @property
    def survivors(self) -> Ints:
        """Numbers of the messages in the gradient, in the order of their reports."""
        return self._used.copy()

    @property
    def taken(self) -> Ints:
        """Numbers of the messages that are asked for; before that, of those reported."""
        return self.survivors if self._requests else self.reported

    @property
    def reported(self) -> Ints:
        """Numbers of the messages that were reported and not lost, in the order of the reports."""
        return np.array(self._reported, dtype=np.int64)

    @property
    def ready(self) -> bool:
        """Whether all sums that were asked for have come."""
        return self._sums is not None and self._sums.ready

    def report(self, worker: int, index: int) -> bool:
        """Note that a worker has computed a message; return whether there are `requests`.

        Once there are, reports change nothing, unless a worker is lost.

        Raises
        ------
        ValueError, TypeError
            If there is no such message, or it was reported before.
        """
        self._note(worker, index)
        if self._overdue:
            self.elapse()
        self._ask()
        return bool(self._requests)

    def _note(self, worker: int, index: int) -> None:
        number = self.scheme.message_number(worker, index)
        if number in self._heard:
            raise ValueError(f"message {index} of worker {worker} was reported already")
        self._heard.add(number)
        self._reported.append(number)
        if not self._requests and self._tally.add(number):
            self._choose()

    def _ask(self) -> None:
        """Queue the questions of `requests` that are not asked yet, and drop all others."""
        requests = self._requests
        if not (requests or self._owed):
            return
        self._owed = {i: what for i, what in self._owed.items() if requests.get(i) is what}
        for worker, what in requests.items():
            if worker not in self._owed and worker not in self._answers:
                self._owed[worker] = what
                self._new.append((worker, what))
                now = self._host.clock()
                self.due = now + max(now - self._begun, self._host.least_wait)
                self._overdue = False

    def questions(self) -> list[tuple[int, Request]]:
        """Return the workers to be asked, and for what. Each question is returned once."""
        if not self._new:
            return []
        new = [(i, what) for i, what in self._new if self._owed.get(i) is what]
        self._new = []
        self.costs = Costs(self.costs.asks + len(new))
        return new

    def hear(
        self, worker: int, what: Any, answer: Array | None, *, energy: float = math.nan
    ) -> Ints:
        """Take the answer to the last question to a worker; None: it no longer has the messages.

        Returns the numbers of the messages in the sum, none if the answer is late or does not fit.
        """
        asked = self._owed.get(worker)
        if asked is None or asked is not what:
            return self._used[:0]
        form = self.form
        if (
            answer is None
            or answer.shape != (form.message_size,)
            or answer.dtype != form.message_dtype
        ):
            self._pass_over(worker)
            return self._used[:0]
        self.receive(worker, answer, energy=energy)
        numbers: Ints = self.scheme.first_messages[worker] + asked.indices
        return numbers

    def elapse(self) -> None:
        """Ask others instead of workers that do not answer, if they have computed enough."""
        self.due, self._overdue = math.inf, True
        for worker in list(self._owed):
            if self.suffices_without(worker):
                self._pass_over(worker)

    def _pass_over(self, worker: int) -> None:
        """Ask others in place of a worker; it may be asked again if they become too few."""
        mine = self.scheme.messages_of([worker])
        self._aside += np.intersect1d(mine, self.reported).tolist()
        self.lose(worker)

    def straggles(self, worker: int) -> None:
        """Note that a worker has died, and that its messages are gone."""
        worker = check_index("worker", worker, self.scheme.n)
        self._aside = [m for m in self._aside if self.scheme.sender(m)[0] != worker]
        if not self.lose(worker):  # too few are left, so those passed over are needed again
            aside, self._aside = self._aside, []
            for number in aside:
                self._note(*self.scheme.sender(number))
            self._ask()

    def require(self, messages: Ints) -> None:
        """Raise NotDecodableError unless these messages would suffice if all were computed."""
        if self.scheme.rule.missing(messages):
            self.scheme.raise_too_few(messages)

    def suffices_without(self, worker: int) -> bool:
        """Whether the others have reported enough."""
        others = np.setdiff1d(self.reported, self.scheme.messages_of([worker]))
        return not self.scheme.rule.missing(others)

    def lose(self, worker: int) -> bool:
        """Take back what a worker has reported, because it can no longer be asked.

        A sum that it has sent still counts. If it owes one, `requests` are chosen anew from what
        the others have reported, once that is enough. A worker that is to send the same sum as
        before is not asked again, and if its sum has come, it counts.

        Returns
        -------
        bool
            Whether there are `requests`.
        """
        worker = check_index("worker", worker, self.scheme.n)
        mine = set(self.scheme.messages_of([worker]).tolist())
        self._heard -= mine
        self._reported = [number for number in self._reported if number not in mine]
        if (worker in self._requests and worker not in self._answers) or not self._requests:
            before, answers = self._requests, self._answers
            self._forget_requests()
            for number in self._reported:
                if self._tally.add(number):
                    self._choose()
                    break
            self._take_over(before, answers)
        self._owed.pop(worker, None)
        self._ask()
        return bool(self._requests)

    def _forget_requests(self) -> None:
        self._tally.reset()
        self._used = np.empty(0, dtype=np.int64)
        self._vector: Array = np.empty(0)
        self._requests: dict[int, Request] = {}
        self._answers: dict[int, tuple[Array, float]] = {}
        self._sums: Round | None = None

    def _take_over(
        self, before: dict[int, Request], answers: dict[int, tuple[Array, float]]
    ) -> None:
        """Keep requests that have not changed, and the answers to them."""
        for worker, request in self._requests.items():
            old = before.get(worker)
            if old is not None and all(map(np.array_equal, old, request)):
                self._requests[worker] = old
                if worker in answers:
                    self.receive(worker, answers[worker][0], energy=answers[worker][1])

    def _choose(self) -> None:
        """Choose from all reported messages whom to ask for what."""
        reported = self.reported
        vector = self.code.decoding_vector(reported)
        read = np.flatnonzero(vector)
        self._used, self._vector = reported[read], vector[read]
        sender = self.scheme._sender_of[self._used]
        for worker in np.unique(sender).tolist():
            mine = np.flatnonzero(sender == worker)
            mine = mine[np.argsort(self._used[mine])]
            indices = self._used[mine] - self.scheme.first_messages[worker]
            self._requests[worker] = Request(indices, self._vector[mine])
        sizes = [
            sum(self.code.partitions(worker, at).size for at in asked.indices.tolist())
            for worker, asked in self._requests.items()
        ]
        # The sums are the messages of another code, in which each has a share of its own.
        count = len(sizes)
        shares = CellScheme(
            np.cumsum([0, *sizes]), np.ones(count, np.int64), np.arange(count), stragglers=0
        )
        self._sums = Code(shares).round(self.form.gradient_size, self.form.gradient_dtype)

    def receive(
        self, worker: int, message: ArrayLike, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take the sum that a worker was asked for; return whether the round is `ready`.

        Parameters
        ----------
        worker : int
        message : (p,) array
            It is not copied: do not change it until `gradient` has returned.
        index : None
            Must be None: a worker sends one sum.
        energy : float, optional
            Sum of the energies (`Encoder.energy`) of its messages, each times the squared modulus
            of its coefficient.

        Raises
        ------
        NonFiniteMessageError
            If the message holds NaN or Inf.
        ValueError, TypeError
            If the worker was not asked or has answered, or if the sum does not fit. The round is
            unchanged.
        """
        worker = check_index("worker", worker, self.scheme.n)
        if self._sums is None or worker not in self._requests:
            raise ValueError(f"worker {worker} was not asked for anything in this round")
        if worker in self._answers:
            raise ValueError(f"worker {worker} has answered already in this round")
        form = self.form
        answer = check_vector(
            "sum of worker", message, form.message_dtype, form.message_size, number=worker
        )
        try:
            ready = self._sums.receive(list(self._requests).index(worker), answer, energy=energy)
        except NonFiniteMessageError:
            form.require_finite(worker, answer)  # this error names the worker
            raise
        self._answers[worker] = answer, energy
        self._owed.pop(worker, None)
        return ready

    def _answered(self) -> Round:
        if self._sums is None:
            missing = self.scheme.rule.missing(self.reported)
            raise NotDecodableError(
                f"what was computed does not suffice: at least {missing} more messages are needed",
                missing,
            )
        return self._sums

    def gradient(self, out: Output | None = None) -> Array:
        """Return the gradient: the sum of all answers.

        Raises
        ------
        NotDecodableError
            If too little was computed, or sums are missing.
        """
        return self._answered().gradient(out)

    def residual(self) -> float:
        """What `gradient` leaves out beyond rounding, as `Approximation.residual`."""
        return self.scheme.left_out(self._used, self._vector)

    def trust(self) -> Trust:
        """How far to trust the gradient, as `Round.trust`."""
        return self._answered().trust()
