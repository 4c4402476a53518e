"""Rounds on workers that are only simulated: computed here, in a time of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import check_cost, check_dtype, check_index, check_real, check_vector
from .._shown import duration, plural
from ..codes import AskingRound, Code, Encoder, SumRound
from ..delays.interface import per_of
from ..errors import NonFiniteMessageError
from .interface import (
    Collected,
    Gathering,
    Gradient,
    Lent,
    RoundReport,
    check_cluster,
    check_round,
    parameters_of,
    sample_delays,
)
from .master import Chosen, decode_round
from .options import RoundKeywords, RoundOptions
from .requests import own_round, sum_round
from .worker import partial_gradient

__all__ = ["SimulatedCluster"]

Array = NDArray[Any]


class SimulatedCluster:
    """Workers that take the time a model says, and no time here but that of their arithmetic.

    Messages are those that workers would send, in the order in which they would arrive; only those
    that a round uses are computed, and each partial gradient once. Rounds are as
    `fastgc.simulation.simulate` has them: worker i, of load w, begins after D seconds and computes
    for ``cost * w``, or for ``(D + cost) * w`` where delays are per computation, and sends its
    messages after equal parts of that. For the same seed and round, D is what it is on a
    `LocalCluster`.

    Parameters
    ----------
    code, shards, gradient, size, dtype, options
        As of `fastgc.engines.master.Master`; nothing is pickled, and nobody dies. Without delays,
        D is 0.
    cost : float or (n,) array
        Seconds to compute one partial gradient, of each worker if they differ.
    request : float
        Seconds of a round trip, which it takes to ask workers: for sums (`PartialWork`), or as
        suspects (``ask=True``), who then take the time of their computation once more. What the
        master computes itself takes none, as decoding does.
    receive : float
        Seconds that the master's link is busy with a message that arrived, one after another.
    overhead : float
        Seconds between the end of a round and the beginning of the next one.
    interrupted : bool
        Whether workers drop what they are at when a round is over, as the papers have it.
        Otherwise they first finish the message they are at, as those of `LocalCluster` do.
    **keywords
        Those of `fastgc.engines.RoundOptions`.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit.

    Examples
    --------
    >>> from functools import partial
    >>> engine = partial(SimulatedCluster, cost=1e-4, interrupted=False)
    >>> fastgc.train(code, engine=engine, delays=delays)  # doctest: +SKIP
    """

    def __init__(
        self,
        code: Code,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        *,
        cost: ArrayLike = 0.0,
        request: float = 0.0,
        receive: float = 0.0,
        overhead: float = 0.0,
        interrupted: bool = True,
        options: RoundOptions | None = None,
        **keywords: Unpack[RoundKeywords],
    ) -> None:
        self._options = run = RoundOptions.of(options, keywords, type(self).__name__)
        self._size = check_cluster(code, shards, gradient, size)
        self._timeout = math.inf if run.timeout is None else run.timeout
        self._code, self._shards, self._gradient = code, shards, gradient
        self._parameters = parameters_of(gradient, self._size)
        self._dtype = check_dtype(dtype)
        self._loads = code.scheme.loads
        self._work = check_cost(code.n, cost) * self._loads
        self._request = check_real("request", request)
        self._receive = check_real("receive", receive)
        self._overhead = check_real("overhead", overhead)
        self._interrupted = bool(interrupted)
        self._form = code.scheme.format(self._size, self._dtype, run.message_dtype)
        self._round = own_round(code, self._size, self._form, run, gradient)
        self._sums = sum_round(code, self._form, run)
        self._encoders: dict[int, Encoder] = {}  # of messages, by number
        self._sender = np.repeat(np.arange(code.n), code.scheme.message_counts)
        self._together = code.scheme.sends_together
        self._late = np.zeros(code.n)  # seconds until each worker is free
        self._number, self._now = run.first_round - 1, 0.0
        self._lent = Lent()
        self._closed = False

    def __repr__(self) -> str:
        rounds = self._number + 1 - self._options.first_round
        return (
            f"<{type(self).__name__} of {self._code!r}: {plural(rounds, 'round')} in "
            f"{duration(self._now)} of simulated time{', closed' * self._closed}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no further rounds; a second call does nothing."""
        self._closed = True

    def clock(self) -> float:
        """Simulated seconds since the beginning."""
        return self._now

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round; parameters, result and errors as of `LocalCluster.step`.

        Decoding takes no simulated time.
        """
        gradient = check_vector("out", out, self._dtype, self._size, output=True)
        if self._sums is not None:
            report = self._ask(theta, self._sums)
            gradient[:] = self._sums.gradient()
            return report._replace(residual=self._sums.left_out())
        self._round.reset()
        report = self.collect(theta, self._round)
        decoded = np.empty(self._size, self._round.form.gradient_dtype)
        residual = decode_round(self._round, decoded, self._options)
        gradient[:] = decoded
        return report._replace(residual=residual)

    def collect(
        self, theta: Array, rnd: Collected, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round without decoding; as `LocalCluster.collect`.

        After an error the cluster is as if the round had not been, but for its number.
        """
        theta = self._opened(theta)
        check_round(rnd, self._round)
        code, sender = self._code, self._sender
        asked = np.zeros(code.n, dtype=bool)
        chosen = range(code.n) if workers is None else workers
        workers = {check_index("worker", worker, code.n) for worker in chosen}
        asked[list(workers)] = True
        self._lent.to(rnd)
        arrival = np.where(asked[sender], self._arrivals(), np.inf)
        given: Collected | Chosen = rnd
        if self._options.survivors is not None:
            given = Chosen(
                rnd,
                self._options.survivors(self._number),
                frozenset(workers),
                self._options.partial,
            )
        elif not asked.all():
            rnd.require(np.flatnonzero(asked[sender]))
        partials = _Partials(self, theta)
        arrivals: dict[int, float] = {}
        bad: list[int] = []  # workers whose messages are not finite
        messages, end, last = 0, 0.0, -1
        linger, until = given.linger if isinstance(given, Gathering) else None, -math.inf
        due = np.flatnonzero(asked[sender])
        for number in due[np.argsort(arrival[due], kind="stable")].tolist():
            after = max(end, float(arrival[number])) + self._receive
            worker, index = code.scheme.sender(number)
            # what a worker sends together is received to its end, as in simulations
            over = given.ready and not (worker == last and self._together[worker])
            if over and after > until:
                end = max(end, min(until, self._timeout))
                break
            if after > self._timeout or after == math.inf:
                break
            messages, end, last = messages + 1, after, worker
            if linger is not None and until == -math.inf:
                until = (1 + linger) * end
            if worker not in bad and given.wants(worker):
                arrivals[number] = end
                try:
                    message, energy = partials.message(worker, index)
                    given.receive(worker, message, index, energy=energy)
                except NonFiniteMessageError:
                    if not self._options.verify or isinstance(given, Chosen):
                        raise
                    bad.append(worker)
                if (
                    self._options.ask
                    and isinstance(given, AskingRound)
                    and given.decodable
                    and given.contradicted
                ):
                    end += self._settle(given, partials)
        if not given.ready:
            end = self._give_up(given, due, messages, end)
        self._pass(due, arrival, end)
        received = rnd.survivors
        return RoundReport(
            self._number,
            np.array(list(dict.fromkeys(sender[received].tolist())), dtype=np.int64),
            messages,
            end,
            0.0,
            0,
            (),
            received,
            np.array([arrivals[m] for m in received.tolist()]),
            residual=0.0 if rnd.decodable and code.scheme.exact else math.nan,
            corrupt=tuple(dict.fromkeys(bad + rnd.corrupt)),
            verified=rnd.verified,
            asks=rnd.costs.asks if isinstance(rnd, AskingRound) else 0,
            computed=rnd.costs.computed if isinstance(rnd, AskingRound) else 0,
        )

    def _settle(self, rnd: AskingRound, partials: _Partials) -> float:
        """Ask suspects, who all answer; the seconds that takes, without the master's computing."""
        seconds = 0.0

        def ask(workers: list[int], seed: int) -> dict[int, Array]:
            nonlocal seconds
            again = max(float(self._work[worker]) for worker in workers)
            seconds += self._request + again + self._receive * len(workers)
            return {worker: partials.claims(worker, seed) for worker in workers}

        rnd.settle(ask, partials.of)
        return seconds

    def _opened(self, theta: Array) -> Array:
        """The parameters, checked, of a cluster that is not closed."""
        if self._closed:
            raise RuntimeError("the cluster is closed")
        return check_vector("theta", theta, self._dtype, self._parameters)

    def _arrivals(self) -> NDArray[np.float64]:
        """When each message of the next round is computed, which now begins."""
        self._number += 1
        delays = np.array(
            sample_delays(self._options.delays, self._loads, self._number, self._options.seed)
        )
        begin, work = self._late, self._work
        if per_of(self._options.delays) == "computation":
            work = work + delays
        else:
            begin = begin + delays
        sender = self._sender
        found: NDArray[np.float64] = begin[sender] + work[sender] * self._code.scheme.message_shares
        return found

    def _ask(self, theta: Array, rnd: SumRound) -> RoundReport:
        """Run one round of sums; errors as of `collect`."""
        theta = self._opened(theta)
        rnd.reset()
        arrival = self._arrivals()
        code, due = self._code, np.argsort(arrival, kind="stable")
        ready = math.inf
        for number in due.tolist():
            if rnd.report(*code.scheme.sender(number)):
                ready = float(arrival[number])
                break
        asked = rnd.requests
        end = ready + self._request + self._receive * len(asked)
        if not asked or end > self._timeout or end == math.inf:
            raise TimeoutError(
                f"round {self._number} was not decodable after {self._timeout} simulated s"
            )
        partials = _Partials(self, theta)
        answered = dict.fromkeys(asked, 0.0)
        for place, (worker, request) in enumerate(asked.items(), 1):
            kept = [partials.message(worker, at) for at in request.indices.tolist()]
            message, energy = request.sum_of(kept)
            rnd.receive(worker, message, energy=energy)
            answered[worker] = ready + self._request + self._receive * place
        self._pass(due, arrival, end)
        received = rnd.survivors
        senders = self._sender[received].tolist()
        return RoundReport(
            self._number,
            np.array(list(asked), dtype=np.int64),
            len(asked),
            end,
            0.0,
            0,
            (),
            received,
            np.array([answered[worker] for worker in senders]),
            asks=len(asked),
        )

    def _encoder(self, worker: int, index: int) -> Encoder:
        """What a worker would encode a message with: one partial gradient after another."""
        number = self._code.scheme.message_number(worker, index)
        if number not in self._encoders:
            self._encoders[number] = self._code.encoder(
                worker,
                self._size,
                self._dtype,
                index=index,
                message_dtype=self._form.message_dtype,
            )
        return self._encoders[number]

    def _give_up(
        self, rnd: Collected | Chosen, due: NDArray[np.int64], messages: int, end: float
    ) -> float:
        """When the master stops to wait for what these many of the messages due do not make ready.

        Raises as `LocalCluster.collect`; and NotDecodableError where it would wait for ever.
        """
        enough = rnd.decodable or (self._options.partial != "raise" and rnd.survivors.size > 0)
        if self._timeout == math.inf or messages == due.size:
            if not enough:
                rnd.require(rnd.survivors)
            return end  # a tracker wants more messages than there will be
        if not enough:
            rnd.require(due)
            raise TimeoutError(
                f"round {self._number} was not decodable after {self._timeout} simulated s"
            )
        return self._timeout

    def _pass(self, due: NDArray[np.int64], arrival: NDArray[np.float64], end: float) -> None:
        """Let the time of a round pass, in which these messages were due."""
        end += self._overhead
        self._now += end
        if self._interrupted:
            return
        late = np.maximum(self._late - end, 0.0)
        for number in due[::-1]:  # each worker's first after the end is last
            worker = self._sender[number]
            if self._late[worker] <= end < arrival[number]:
                late[worker] = arrival[number] - end
        self._late = late


class _Partials:
    """Partial gradients of one round, each computed when first asked for."""

    def __init__(self, cluster: SimulatedCluster, theta: Array) -> None:
        self._cluster, self._theta = cluster, theta.view()
        self._theta.flags.writeable = False
        self._known: dict[int, Array] = {}

    def message(self, worker: int, index: int) -> tuple[Array, float]:
        """What a worker sends, and its energy."""
        encoder = self._cluster._encoder(worker, index)
        encoder.reset()
        for j in self._cluster._code.partitions(worker, index).tolist():
            encoder.add(j, self.of(j))
        message = encoder.message()
        finish = getattr(self._cluster._gradient, "finish", None)
        if finish is not None:
            finish(worker, self._cluster._form, encoder.sums, message)
        return message, encoder.energy

    def claims(self, worker: int, seed: int) -> Array:
        """What a worker answers to a question."""
        cluster = self._cluster
        return AskingRound.answer(
            cluster._code,
            worker,
            (self.of(j) for j in cluster._code.partitions(worker).tolist()),
            seed,
            dtype=cluster._dtype,
            message_dtype=cluster._form.message_dtype,
        )

    def of(self, partition: int) -> Array:
        """A partial gradient."""
        partial = self._known.get(partition)
        if partial is None:
            cluster = self._cluster
            shard = cluster._shards[partition]
            if cluster._options.batch is not None:
                shard = cluster._options.batch(shard, partition, cluster._number)
            partial = np.empty(cluster._size, cluster._form.partial_dtype)
            partial_gradient(
                cluster._gradient,
                self._theta,
                shard,
                partial,
                partition=partition,
                round=cluster._number,
            )
            self._known[partition] = partial
        return partial
