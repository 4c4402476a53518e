"""Coding across rounds on real workers: a scheme, on any engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from .._base.arrays import Array, Ints, at_least, check_dtype, check_real, check_vector
from ..codes import Code, Encoder, Round, Uncoded
from ..engines import Cluster, RoundReport, find_engine
from ..engines.interface import Gathering, Gradient, RoundOptions
from ..engines.worker import partial_gradient
from ..errors import NotDecodableError
from .scheme import Schedule, SequentialScheme, Tasks, check_scheme

# The options of `RoundOptions` that make sense when a job's messages come in several rounds.
_OPTIONS = ("delays", "seed", "timeout", "patience")
_ELSEWHERE = {each.name for each in fields(RoundOptions)}.difference(_OPTIONS) | {"options"}


class Done(NamedTuple):
    """A job that is done.

    Attributes
    ----------
    job : int
        The number of the round in which it began.
    gradient : (size,) array
        The sum of its partial gradients.
    residual : float
        What the gradient leaves out beyond rounding, as
        `fastgc.coding.trust.Approximation.residual`. It is 0 for codes that decode by a formula
        (`fastgc.codes.Scheme.exact`), and computed for all others.
    """

    job: int
    gradient: Array
    residual: float


class SequentialCluster:
    """Workers that compute the gradients of many jobs, by a scheme that codes across rounds.

    This wraps an engine, which runs the rounds and knows no scheme. In each round, every worker
    gets its tasks and the parameters of the current jobs, and sends all its messages together. A
    round lasts at least (1 + mu) times as long as the fastest worker takes, unless all workers
    answer earlier. It then ends by the scheme's rule (`SequentialScheme.tolerable`). Later messages
    are dropped, and their workers are stragglers.

    Parameters
    ----------
    scheme : SequentialScheme
        The scheme; its ``n`` workers are started.
    shards : sequence of length ``scheme.k``
        The data of each partition, the same for all jobs.
    gradient : callable
        ``gradient(theta, shard, out)`` writes a partial gradient, as in
        `fastgc.engines.master.Master`. If it has keywords ``partition`` and ``round``, it gets
        them; ``round`` is the number of the job, and tells models apart, and mini-batches.
    size : int
        The gradient dimension p.
    dtype : numpy dtype, default ``float64``
        Dtype of parameters and gradients.
    engine : str or callable
        As in `fastgc.engines.find_engine`. In MPI and torchrun jobs only rank 0 makes a cluster;
        the others call the engine's ``serve``, as for every cluster.
    mu : float
        A round waits at least (1 + mu) times as long as the fastest worker takes.
    **keywords
        Options of `fastgc.engines.RoundOptions` (``delays``, ``seed``, ``timeout``, ``patience``)
        and of the engine. The engine's time of one computation (``cost=``) is the time of
        everything that a worker computes in a round.

    Attributes
    ----------
    schedule : Schedule
        The current jobs.
    report : RoundReport or None
        Report of the last round in which workers had tasks: who answered, and when.
    tasks : Tasks or None
        Tasks of the last round.

    Raises
    ------
    TypeError, ValueError
        As `fastgc.engines.master.Master` does.

    Notes
    -----
    Every round sends the parameters of ``len(scheme.ages)`` jobs. An `MSGC` run ends if one worker
    is gone for good; an `SRSGC` run can lose s workers.

    Examples
    --------
    >>> scheme = MSGC(8, burst=1, window=2, stragglers=1)  # doctest: +SKIP
    >>> with SequentialCluster(scheme, shards, gradient, size=p) as cluster:  # doctest: +SKIP
    ...     for job in range(100):
    ...         for done in cluster.step(models[job % 2]):
    ...             models[done.job % 2] -= 0.1 * done.gradient
    ...     rest = cluster.finish()
    """

    def __init__(
        self,
        scheme: SequentialScheme,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        *,
        engine: str | Callable[..., Cluster] = "local",
        mu: float = 1.0,
        **keywords: Any,
    ) -> None:
        check_scheme(scheme)
        if not isinstance(shards, Sized):
            raise TypeError(f"shards must be a sequence, got {type(shards).__name__}")
        if len(shards) != scheme.k:
            raise ValueError(
                f"shards must be one for each of the {scheme.k} partitions of {scheme!r}, not "
                f"{len(shards)}"
            )
        if not callable(gradient):
            raise TypeError(f"gradient must be callable, got {type(gradient).__name__}")
        for name in keywords:
            if name in _ELSEWHERE:
                raise TypeError(
                    f"SequentialCluster has no option {name!r}: of RoundOptions it takes "
                    f"{', '.join(_OPTIONS)}"
                )
        self._size, self._dtype = at_least("size", size, 1), check_dtype(dtype)
        if self._dtype.kind != "f":
            raise TypeError(f"dtype must be float32 or float64, not {self._dtype}")
        self._mu = check_real("mu", mu)
        self.scheme = scheme
        self.schedule = scheme.schedule()
        self.report: RoundReport | None = None
        self.tasks: Tasks | None = None
        self._work = _Work(scheme, gradient, self._size, self._dtype)
        self._models: dict[int, Array] = {}  # parameters of each current job
        self._rounds: dict[int, list[Round]] = {}  # for each current job, a round for each part
        self._skipped = 0  # rounds without tasks, which the engine does not run
        self._theta = np.zeros(self._work.parameters, dtype=self._dtype)
        self._carrier = Uncoded(scheme.n)
        self._closed = False
        self._engine = find_engine(engine)(
            self._carrier,
            [_held(scheme, shards, worker) for worker in range(scheme.n)],
            self._work,
            self._work.size,
            self._dtype,
            **keywords,
        )

    def __enter__(self) -> Self:
        self._engine.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._closed = True
        self._engine.__exit__(*error)

    def close(self) -> None:
        """End the workers; a second call does nothing."""
        self._closed = True
        self._engine.close()

    def clock(self) -> float:
        """Return seconds since a fixed moment, on the engine's clock."""
        return self._engine.clock()

    def step(self, theta: Array | None) -> list[Done]:
        """Begin a job and run one round.

        Every error closes the cluster, except the error for a `theta` that does not fit, which is
        raised before anything happens.

        Parameters
        ----------
        theta : (size,) array or None
            The parameters of the job that begins; they are copied. None: no job begins, and the
            current jobs continue.

        Returns
        -------
        list of Done
            The jobs that are done after this round, oldest first.

        Raises
        ------
        WorkerFailedError
            If `gradient` raised in a worker.
        NotDecodableError
            If workers have died and a job cannot be done in time without them.
        NonFiniteMessageError
            If a message that a gradient is decoded from holds NaN or Inf.
        TimeoutError
            If the round could not end within ``timeout`` seconds.
        """
        if self._closed:
            raise RuntimeError("the cluster is closed")
        if theta is not None:
            theta = check_vector("theta", theta, self._dtype, self._size).copy()
        try:
            return self._step(theta)
        except BaseException:
            self.close()
            raise

    def finish(self) -> list[Done]:
        """Run rounds until all jobs are done, without beginning new ones; raises as `step`."""
        done = []
        while not self.schedule.idle:
            done += self.step(None)
        return done

    def _step(self, theta: Array | None) -> list[Done]:
        schedule, work = self.schedule, self._work
        tasks = schedule.begin(job=theta is not None)
        number = schedule.round
        self.tasks = tasks
        if theta is not None:
            self._models[number] = theta
            self._rounds[number] = [
                code.round(self._size, form.gradient_dtype, form.message_dtype)
                for code, form in zip(self.scheme.parts, work.forms, strict=True)
            ]
        busy = np.flatnonzero(tasks.age.max(axis=1) >= 0)
        gathering = _Gathering(schedule, self._carrier, work, self._dtype, busy, self._mu)
        if busy.size:
            work.write(self._theta, tasks, number, self._skipped, self._models)
            self.report = self._engine.collect(self._theta, gathering, busy.tolist())
        else:
            self._skipped += 1
        for worker, sent in gathering.came.items():
            for slot, (age, part) in enumerate(
                zip(tasks.age[worker].tolist(), tasks.part[worker].tolist(), strict=True)
            ):
                if age >= 0:
                    message = work.message_of(sent, slot, part)
                    self._rounds[number - age][part].receive(worker, message)
        return [self._decode(job) for job in schedule.end(gathering.answered)]

    def _decode(self, job: int) -> Done:
        """Decode the gradient of a job: the sum of the gradients of its parts."""
        del self._models[job]
        total = np.zeros(self._size, dtype=self._dtype)
        squared = 0.0
        for part in self._rounds.pop(job):
            total += part.gradient()
            squared += part.scheme.k * part.residual() ** 2
        return Done(job, total, math.sqrt(squared / self.scheme.k))


def _held(scheme: SequentialScheme, shards: Sequence[Any], worker: int) -> dict[int, Any]:
    """Return the shards that a worker needs, by partition."""
    held = {}
    for part, code in enumerate(scheme.parts):
        first = scheme.partitions(part).start
        for j in code.partitions(worker).tolist():
            held[first + j] = shards[first + j]
    return held


class _Work:
    """A worker's computation in a round; the engine sees it as the gradient of one partition.

    The engine's parameters hold: a task number for each worker and slot (-1: none), the number of
    skipped rounds, by which the round's number exceeds the engine's, and the parameters of the
    current jobs, by age. The engine's "gradient" holds the worker's messages, slot after slot.
    """

    def __init__(
        self,
        scheme: SequentialScheme,
        gradient: Gradient,
        size: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._scheme, self._gradient = scheme, gradient
        self._p, self._dtype = size, dtype
        self.modules = getattr(gradient, "modules", ())
        self.of_main = getattr(gradient, "of_main", True)
        self.forms = [code.scheme.format(size, dtype, None) for code in scheme.parts]
        self._slot = max(
            form.message_size * form.message_dtype.itemsize // dtype.itemsize for form in self.forms
        )
        self.size = scheme.slots * self._slot
        self._header = scheme.n * scheme.slots + 1
        self.parameters = self._header + len(scheme.ages) * size
        self._partial: Array | None = None
        self._encoders: dict[tuple[int, int], Encoder] = {}  # by worker and part

    def write(
        self, theta: Array, tasks: Tasks, number: int, skipped: int, models: dict[int, Array]
    ) -> None:
        """Write the parameters that the engine sends to workers in a round."""
        ages = np.array(self._scheme.ages)
        task = np.searchsorted(ages, tasks.age) * len(self._scheme.parts) + tasks.part
        theta[: self._header - 1] = np.where(tasks.age >= 0, task, -1).ravel()
        theta[self._header - 1] = skipped
        rows = theta[self._header :].reshape(ages.size, self._p)
        for row, a in zip(rows, ages.tolist(), strict=True):
            if number - a in models:
                row[:] = models[number - a]

    def message_of(self, sent: Array, slot: int, part: int) -> Array:
        """Return a view of the message for a part in one slot of what a worker sent."""
        form = self.forms[part]
        reals = sent[slot * self._slot : (slot + 1) * self._slot]
        whole: Array = reals.view(form.message_dtype)[: form.message_size]
        return whole

    def __call__(
        self, theta: Array, shard: dict[int, Any], out: Array, *, partition: int, round: int
    ) -> None:
        """Write the messages of worker number `partition`."""
        scheme, worker = self._scheme, partition
        slots, parts = scheme.slots, len(scheme.parts)
        tasks = theta[worker * slots : (worker + 1) * slots].astype(np.int64)
        models = theta[self._header :].reshape(len(scheme.ages), self._p)
        number = round + int(theta[self._header - 1])
        out[:] = 0
        for slot, task in enumerate(tasks.tolist()):
            if task >= 0:
                at, part = divmod(task, parts)
                encoder = self._encoded(worker, part, models[at], shard, number - scheme.ages[at])
                self.message_of(out, slot, part)[:] = encoder.message()

    def _encoded(
        self, worker: int, part: int, model: Array, shard: dict[int, Any], job: int
    ) -> Encoder:
        """Return an encoder that holds a worker's message for a part of a job."""
        code: Code = self._scheme.parts[part]
        if self._partial is None:
            self._partial = np.empty(self._p, dtype=self._dtype)
        if (worker, part) not in self._encoders:
            self._encoders[worker, part] = code.encoder(worker, self._p, self._dtype)
        encoder = self._encoders[worker, part]
        encoder.reset()
        first = self._scheme.partitions(part).start
        for j in code.partitions(worker).tolist():
            partial_gradient(
                self._gradient,
                model,
                shard[first + j],
                self._partial,
                partition=first + j,
                round=job,
            )
            encoder.add(j, self._partial)
        return encoder


class _Gathering(Gathering):
    """A round that ends when its scheme says so."""

    def __init__(
        self,
        schedule: Schedule,
        code: Code,
        work: _Work,
        dtype: np.dtype[Any],
        busy: Ints,
        mu: float,
    ) -> None:
        self.code, self.linger = code, mu
        self.form = code.scheme.format(work.size, dtype, None)
        self.came: dict[int, Array] = {}
        self.answered = np.ones(code.n, dtype=bool)  # workers without tasks need not answer
        self.answered[busy] = False
        self._schedule = schedule
        self._ready = not busy.size

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def survivors(self) -> Ints:
        return np.array(list(self.came), dtype=np.int64)

    def receive(
        self, worker: int, message: Array, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        self.came[worker] = message.copy()
        self.answered[worker] = True
        if not self._ready:  # a ready round stays ready when more messages come
            self._ready = self._schedule.enough(self.answered)
        return self._ready

    def require(self, messages: Ints) -> None:
        answered = self.answered.copy()
        answered[messages] = True
        if not self._schedule.enough(answered):
            raise NotDecodableError(
                f"without workers {np.flatnonzero(~answered).tolist()}, one of the jobs "
                f"{self._schedule.jobs} cannot be done in time",
                1,
            )
