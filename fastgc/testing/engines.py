"""Checks that an engine behaves as the engines of fastgc do; also for the tests of other engines.

Each check is a function of an engine, a callable that makes a cluster from the arguments of
`fastgc.engines.master.Master`. It returns nothing, or raises AssertionError. All checks start
`WORKERS` workers, so that engines with a fixed number of workers can run them, too.

Examples
--------
>>> @pytest.mark.parametrize("check", conformance.CHECKS)  # doctest: +SKIP
... def test_engine(check):
...     check(MyCluster)

In a terminal, for an engine in an importable module::

    python -m fastgc.testing.engines my_package.my_module:MyCluster
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .. import codes
from .._base.arrays import Array, Floats, Ints
from .._base.registry import functions_of, load_object
from ..codes import Code, Grouped
from ..engines.interface import Cluster, Event, Gathering, Kind, RoundReport
from ..engines.master import Master
from ..engines.simulated import SimulatedCluster
from ..errors import NonFiniteMessageError, NotDecodableError, WorkerFailedError
from ..training.models import LeastSquares
from ..training.optimizers import Nesterov

__all__ = ["CHECKS", "WORKERS", "check", "intrude"]

Engine = Callable[..., Cluster]

WORKERS = 4
ABSENT = 600.0  # seconds, longer than any check waits
LATE = 0.6  # seconds after which all that is not late has come
LATER = 0.2  # seconds behind others, for a delay that a check only waits for


class Delays:
    """The given delays of each round; none after the last one."""

    def __init__(self, *rounds: list[float], per: str = "round") -> None:
        self._rounds, self.per = rounds, per

    def sample(self, round: int, workers: int, seed: int) -> Floats:
        """Seconds of each worker."""
        given = self._rounds[round] if round < len(self._rounds) else [0.0] * workers
        return np.array(given)


class Notes:
    """A tracker that records predictions."""

    def __init__(self) -> None:
        self.predicted: list[float] = []

    def enough(self, predict: Callable[[], float]) -> bool:
        """Return True: wait for no more messages than suffice."""
        return True

    def record(self, *what: Any) -> None:
        """Record a round's prediction, the last argument."""
        self.predicted.append(what[-1])


class Taking(Gathering):
    """A round that is ready after `need` messages, and takes more while it lingers."""

    def __init__(self, code: Code, size: int, need: int, linger: float) -> None:
        self.code, self.linger, self._need = code, linger, need
        self.form = code.scheme.format(size, np.dtype(np.float64), None)
        self.came: dict[int, Array] = {}

    @property
    def ready(self) -> bool:
        """Whether `need` messages came."""
        return len(self.came) >= self._need

    @property
    def survivors(self) -> Ints:
        """The workers whose messages came."""
        return np.array(list(self.came), dtype=np.int64)

    def receive(
        self, worker: int, message: Array, index: int | None = None, *, energy: float = 0.0
    ) -> bool:
        """Keep a copy of the message."""
        self.came[worker] = message.copy()
        return self.ready

    def require(self, messages: Ints) -> None:
        """Raise unless these are `need` messages."""
        if len(messages) < self._need:
            raise NotDecodableError(f"{self._need} messages are needed", self._need)


def curved(theta: Array, shard: Array, out: Array) -> None:
    """Compute a gradient that depends on the parameters, but not linearly."""
    np.sin(theta, out=out)
    np.multiply(out, shard, out=out)


def fragile(theta: Array, shard: float, out: Array) -> None:
    """Compute a gradient; raise for a negative shard."""
    if shard < 0:
        raise ArithmeticError(f"no gradient of {shard}")
    out[:] = shard * theta


def intruding(theta: Array, shard: float, out: Array) -> None:
    """Write to the parameters, which is forbidden."""
    theta[:] = 0.0


def spoiling(theta: Array, shard: Array, out: Array) -> None:
    """Write to the shard, which is forbidden."""
    shard -= theta


def insisting(theta: Array, shard: float, out: Array) -> None:
    """Make the parameters writable for the first partition, and write to them."""
    np.multiply(theta, shard, out=out)
    if shard == 1.0:
        theta.flags.writeable = True
        theta[:] = 0.0


def returning(theta: Array, shard: float, out: Array) -> Array:
    """Return the gradient instead of writing it."""
    return shard * theta


def writing_and_returning(theta: Array, shard: float, out: Array) -> Array:
    """Write the gradient, and return something else."""
    np.multiply(theta, shard, out=out)
    return 2 * out


def leaving_out(theta: Array, shard: float, out: Array) -> None:
    """Write all elements except two."""
    out[:2], out[4:] = shard, shard


def adding(theta: Array, shard: float, out: Array) -> None:
    """Add to `out` instead of writing to it."""
    out += shard * theta


def telling(theta: Array, shard: float, out: Array, *, partition: int, round: int) -> None:
    """Write numbers that depend on the partition and round, as given."""
    out[:] = numbered(shard, partition, round), round


def numbered(shard: float, partition: int, round: int) -> float:
    """Return a mini-batch that depends on the partition and round, as given."""
    return shard + 100.0 * partition + 10_000.0 * round


def _codes() -> Iterator[Code]:
    n = WORKERS
    yield codes.Uncoded(n)
    yield codes.ReedSolomon(n, stragglers=1)
    yield codes.ReedSolomon(n, stragglers=2, packed=False)
    yield codes.BinaryCode(n, stragglers=1)
    yield codes.Uncoded(n, load=3)
    yield codes.CyclicRepetition(n, stragglers=1)
    yield Grouped([codes.Uncoded(1, 2), codes.BinaryCode(3, stragglers=1)])


def gradients_are_sums(engine: Engine) -> None:
    """Every code, dtype and size decodes to the sum of all partial gradients."""
    rng = np.random.default_rng(1)
    for code in _codes():
        for dtype, p in ((np.float64, 1), (np.float32, 7), (np.float64, 1000)):
            shards = list(rng.standard_normal((code.k, p)).astype(dtype))
            out = np.empty(p, dtype)
            with engine(code, shards, np.multiply, p, dtype) as cluster:
                for number in range(3):
                    theta = rng.standard_normal(p).astype(dtype)
                    report = cluster.step(theta, out)
                    _check_report(code, report, number)
                    _close(out, theta * np.sum(shards, axis=0), dtype)


def coded_data_are_decoded(engine: Engine) -> None:
    """Lagrange codes decode the gradient of least squares."""
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((24, 3)), rng.integers(0, 2, 24)
    model = LeastSquares(3, 2)
    code = codes.LagrangeCode(WORKERS, 2, load=1)
    p = model.size
    theta, out, whole = rng.standard_normal(p), np.empty(p), np.empty(p)
    prepared = model.prepare(X, y)
    model.partial_gradient(theta, prepared, whole)
    with engine(code, code.encode_data(*prepared), model.partial_gradient, p) as cluster:
        cluster.step(theta, out)
    np.testing.assert_allclose(out, whole, rtol=1e-10)


def less_precise_messages_are_decoded(engine: Engine) -> None:
    """Messages of half precision decode to gradients of the dtype asked for."""
    shards, out = list(np.arange(1.0, 5.0)), np.empty(8)
    code = codes.BinaryCode(WORKERS, stragglers=1)
    with engine(code, shards, np.multiply, 8, message_dtype=np.float16) as cluster:
        cluster.step(np.full(8, 2.0), out)
        np.testing.assert_array_equal(out, np.full(8, 20.0))


def cancellation_is_seen(engine: Engine) -> None:
    """Cancellation inside messages is part of the error that a round predicts."""
    rng = np.random.default_rng(3)
    size = rng.standard_normal((WORKERS, 1))
    shards = (size - size.mean()) * rng.standard_normal(50) + 1e-9 * rng.standard_normal((4, 50))
    code = codes.FractionalRepetition(WORKERS, stragglers=WORKERS - 1)
    theta, out = np.full(50, 1.1), np.empty(50)
    truth = (shards * theta).astype(np.longdouble).sum(axis=0)
    forced: dict[str, Any] = {"survivors": lambda round: [2]}
    for options in ({}, forced):
        notes = Notes()
        with engine(code, list(shards), np.multiply, 50, tracker=notes, **options) as cluster:
            cluster.step(theta, out)
        (predicted,) = notes.predicted
        error = float(np.linalg.norm(out - truth) / np.linalg.norm(truth))
        assert 1e-9 < predicted < 1e-5, f"a relative error of {predicted:.0e} was predicted"
        assert error < 10 * predicted


def chosen_survivors_give_the_same_bits(engine: Engine) -> None:
    """Training on given survivors ends at the same parameters as on every other engine."""
    rng = np.random.default_rng(3)
    for code in (
        codes.ReedSolomon(WORKERS, stragglers=2),
        codes.Uncoded(WORKERS, load=2),
        codes.BinaryCode(WORKERS, stragglers=1),
    ):
        shards = list(rng.standard_normal((code.k, 33)))
        orders = [_enough(code, rng) for _ in range(12)]
        end = _train(engine, code, shards, orders)
        np.testing.assert_array_equal(end, _train(SimulatedCluster, code, shards, orders))


def recorded_survivors_give_the_same_bits(engine: Engine) -> None:
    """A repeated run with the recorded survivors ends at the same parameters."""
    rng = np.random.default_rng(4)
    code = codes.ReedSolomon(WORKERS, stragglers=2)
    shards = list(rng.standard_normal((code.k, 33)))
    received: list[Ints] = []
    end = _train(engine, code, shards, None, received)
    np.testing.assert_array_equal(end, _train(engine, code, shards, received))
    np.testing.assert_array_equal(end, _train(SimulatedCluster, code, shards, received))


def late_workers_jump_to_the_newest_round(engine: Engine) -> None:
    """A late message is dropped and counted, and then its worker works on the newest round."""
    code = codes.ReedSolomon(WORKERS, stragglers=2)
    late = [0.0, 0.0, LATE, LATE]
    out = np.empty(3)
    with engine(code, [1.0] * 4, np.multiply, 3, delays=Delays(late)) as cluster:
        assert set(cluster.step(np.ones(3), out).survivors.tolist()) == {0, 1}
        np.testing.assert_allclose(out, 4.0)
    delays = Delays(late, [ABSENT, ABSENT, 0.0, 0.0])
    with engine(code, [1.0] * 4, np.multiply, 3, delays=delays) as cluster:
        cluster.step(np.ones(3), out)
        time.sleep(LATE / 2)  # the late workers begin to compute meanwhile
        report = cluster.step(np.full(3, 2.0), out)
        assert set(report.survivors.tolist()) == {2, 3}
        assert report.stale == 2
        np.testing.assert_allclose(out, 8.0)


def rounds_of_ones_own_end_when_they_say(engine: Engine) -> None:
    """A `Gathering` takes messages until it is ready, and then as long as it lingers."""
    code, shards, p = codes.Uncoded(WORKERS), [1.0, 2.0, 3.0, 4.0], 3

    def gather(need: int, linger: float, *delays: float, workers: Any = None) -> Taking:
        rnd = Taking(code, p, need, linger)
        with engine(code, shards, np.multiply, p, delays=Delays(list(delays))) as cluster:
            report = cluster.collect(np.full(p, 2.0), rnd, workers)
        assert report.survivors.tolist() == list(rnd.came)
        assert (report.arrivals <= report.wait_seconds).all()
        for worker, message in rnd.came.items():
            np.testing.assert_array_equal(message, np.full(p, 2.0 * shards[worker]))
        return rnd

    assert gather(1, 0.0, 0.0, ABSENT, ABSENT, ABSENT).came.keys() == {0}
    assert gather(2, 0.0, 0.0, LATER, ABSENT, ABSENT).came.keys() == {0, 1}
    assert gather(1, 1e9, 0.01, LATER, 0.01, 0.01).came.keys() == {0, 1, 2, 3}  # all there are
    assert gather(1, 1e9, 0.01, ABSENT, LATER, 0.01, workers=[0, 2]).came.keys() == {0, 2}
    # It lingers for as long as the first message took, and no longer.
    assert gather(1, 1.0, LATE, LATE, ABSENT, ABSENT).came.keys() == {0, 1}


def messages_sent_together_wait_for_the_last(engine: Engine) -> None:
    """A worker of a code with ``send="together"`` sends nothing before all its work is done."""
    rng = np.random.default_rng(5)
    code = codes.RandomAssignment(WORKERS, load=3, send="together", seed=1)
    shards, out = list(rng.standard_normal((code.k, 33))), np.empty(33)
    delays = Delays(*[[0.06] * WORKERS] * 2, per="computation")
    with engine(code, shards, np.multiply, 33, delays=delays) as cluster:
        for number in range(3):  # the last round has no delays
            theta = rng.standard_normal(33)
            report = cluster.step(theta, out)
            np.testing.assert_allclose(out, theta * np.sum(shards, axis=0), atol=1e-12)
            assert number == 2 or report.arrivals.min() >= 0.18, "a message came too early"


def holders_are_asked_for_what_is_late(engine: Engine) -> None:
    """If workers can be asked, rounds end without the late ones, exactly; so does the next one."""
    code = codes.Reactive(WORKERS, 6, holders=3, deadline=0.1)
    shards, p, out = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 5, np.empty(5)
    delays = Delays([ABSENT, 0.0, 0.0, 0.0], [0.0] * WORKERS, [ABSENT, ABSENT, 0.0, 0.0])
    with engine(code, shards, np.multiply, p, delays=delays) as cluster:
        if isinstance(cluster, Master) and not getattr(cluster.transport, "asks", False):
            return
        for number in range(4):
            report = cluster.step(np.full(p, number + 1.0), out)
            np.testing.assert_array_equal(out, 63.0 * (number + 1))
            assert sorted(report.received.tolist()) == [0, 1, 2, 3]
            assert report.refused == 0
            assert not report.residual > 1e-12
            assert number % 2 or report.asks
            if number == 0:  # in later rounds the late workers may have finished
                helpers = {share: helper for share, helper, _ in report.stood_in}
                assert helpers[0] in code.scheme.holders.of(0)
            assert report.wait_seconds < ABSENT / 2, "it waited for who is late"


def rounds_are_numbered(engine: Engine) -> None:
    """Delays and mini-batches depend on the number of the round, which begins at `first_round`."""
    code, out = codes.Uncoded(WORKERS), np.empty(1)
    with engine(code, [1.0] * 4, np.multiply, 1, batch=numbered, first_round=7) as cluster:
        for number in (7, 8):
            assert cluster.step(np.ones(1), out).round == number
            assert out[0] == 4.0 + 600.0 + 40_000.0 * number


def gradients_are_told_partition_and_round(engine: Engine) -> None:
    """Gradients with these keywords get them, so that all workers can draw the same numbers."""
    out = np.empty(2)
    for code in (codes.Uncoded(WORKERS), codes.BinaryCode(WORKERS, stragglers=1)):
        with engine(code, [1.0] * 4, telling, 2, first_round=7) as cluster:
            for number in (7, 8):
                cluster.step(np.ones(2), out)
                np.testing.assert_allclose(out, [4.0 + 600.0 + 40_000.0 * number, 4.0 * number])


def only_those_asked_take_part(engine: Engine) -> None:
    """A round of groups is ready with the messages of its workers."""
    code = Grouped([codes.Uncoded(2), codes.ReedSolomon(2, stragglers=1)])
    rnd = code.group_round(5)
    with engine(code, [1.0, 2.0, 3.0, 4.0], np.multiply, 5) as cluster:
        for groups, sums in (([1], {1: 7.0}), ([0], {0: 3.0}), ([0, 1], {0: 3.0, 1: 7.0})):
            rnd.reset(groups)
            report = cluster.collect(np.ones(5), rnd, rnd.workers)
            assert set(report.survivors.tolist()) <= set(rnd.workers)
            for group, value in sums.items():
                np.testing.assert_allclose(rnd.gradient(group), value)


def those_asked_must_suffice(engine: Engine) -> None:
    """Asking workers that cannot suffice raises at once."""
    code = codes.ReedSolomon(WORKERS, stragglers=1)
    cluster = engine(code, [1.0] * 4, np.multiply, 1)
    with _raises(NotDecodableError, "messages"):
        cluster.collect(np.ones(1), code.round(1), [0, 1])
    _is_closed(cluster, 1)


def failures_name_worker_and_partition(engine: Engine) -> None:
    """A gradient that raises ends the cluster; the error has the traceback."""
    shards = [1.0, 1.0, -1.0, 1.0]
    cluster = engine(codes.Uncoded(WORKERS), shards, fragile, 3)
    with _raises(WorkerFailedError, "worker 2", "round 0", "partition 2", "Traceback", "-1.0"):
        cluster.step(np.ones(3), np.empty(3))
    _is_closed(cluster)


def parameters_are_read_only(engine: Engine) -> None:
    """A gradient that writes to the parameters raises: others may be reading them."""
    cluster = engine(codes.Uncoded(WORKERS), [1.0] * 4, intruding, 3)
    with _raises(WorkerFailedError, "read-only"):
        cluster.step(np.ones(3), np.empty(3))


def shards_are_read_only(engine: Engine) -> None:
    """A gradient that writes to its shard raises: other workers' copies would not change."""
    cluster = engine(codes.Uncoded(WORKERS), [np.ones(3) for _ in range(4)], spoiling, 3)
    with _raises(WorkerFailedError, "worker ", "read-only"):
        cluster.step(np.ones(3), np.empty(3))


def parameters_stay_read_only(engine: Engine) -> None:
    """A gradient that makes them writable fails, or has a copy of its own."""
    shards, out = [1.0, 2.0, 4.0, 8.0], np.empty(3)
    delays = Delays([0.0, LATER, LATER, LATER])
    cluster = engine(codes.Uncoded(WORKERS), shards, insisting, 3, delays=delays)
    try:
        cluster.step(np.ones(3), out)
        np.testing.assert_array_equal(out, 15.0)
    except WorkerFailedError as error:
        _says(error, "worker 0", "partition 0", "WRITEABLE")
    finally:
        cluster.close()


def gradients_must_be_written(engine: Engine) -> None:
    """A gradient that returns its result, or writes only a part of it, raises an error about it."""
    for gradient, size, texts in (
        (returning, 3, ("returned ndarray", "out[:] = ")),
        (writing_and_returning, 3, ("returned ndarray", "out[:] = ")),
        (leaving_out, 5, ("did not write 2 of the 5", "out[2]")),
        (adding, 3, ("did not write 3 of the 3", "out[0]")),
    ):
        for code, dtype in (
            (codes.Uncoded(WORKERS), np.float64),
            (codes.Uncoded(WORKERS), np.float32),
            (codes.Uncoded(WORKERS), np.complex128),
            (codes.FractionalRepetition(WORKERS, stragglers=1), np.float64),  # several partitions
        ):
            cluster = engine(code, [1.0] * 4, gradient, size, dtype)
            with _raises((WorkerFailedError, TypeError, ValueError), *texts):
                cluster.step(np.ones(size, dtype), np.empty(size, dtype))
            cluster.close()


def rounds_outlive_their_cluster(engine: Engine) -> None:
    """A round keeps its messages after its cluster has ended, even by an error."""
    p = 100_000  # larger than any message that engines send without their shared memory
    code, shards, theta = codes.Uncoded(WORKERS), [1.0, 2.0, 4.0, 8.0], np.ones(p)
    rnd, late, out = code.round(p), code.round(p), np.empty(p)
    with engine(code, shards, np.multiply, p) as cluster:
        cluster.collect(theta, rnd)
    away = Delays([0.0, ABSENT, 0.0, 0.0])
    cluster = engine(code, shards, np.multiply, p, delays=away, timeout=LATE)
    with _raises(TimeoutError):
        cluster.collect(theta, late)
    with engine(code, [16.0] * 4, np.multiply, p) as cluster:  # may reuse the memory of the first
        cluster.step(theta, out)
        np.testing.assert_array_equal(rnd.gradient(), 15.0)
        np.testing.assert_array_equal(late.best().gradient, 13.0)
    np.testing.assert_array_equal(rnd.gradient(out), 15.0)


def rounds_lapse_with_the_next(engine: Engine) -> None:
    """Reading a round raises an error when the next round has taken its messages' place."""
    code = codes.ReedSolomon(WORKERS, stragglers=1)
    first, second = code.round(3), code.round(3)
    with engine(code, [1.0] * 4, np.multiply, 3) as cluster:
        cluster.collect(np.ones(3), first)
        np.testing.assert_allclose(first.gradient(), 4.0)
        cluster.collect(np.full(3, 2.0), second)
        for read in (first.gradient, first.best, first.trust):
            with _raises(RuntimeError, "gone", "next round"):
                read()
        np.testing.assert_allclose(second.gradient(), 8.0)
        first.reset()
        cluster.collect(np.full(3, 3.0), first)
    np.testing.assert_allclose(first.gradient(), 12.0)


def messages_that_are_not_finite_are_refused(engine: Engine) -> None:
    """A message with NaN or Inf raises an error that names the worker."""
    cluster = engine(codes.Uncoded(WORKERS), [1.0, 1.0, 1.0, np.inf], np.multiply, 3)
    with _raises(NonFiniteMessageError, "worker 3"):
        cluster.step(np.ones(3), np.empty(3))
    _is_closed(cluster)


def rounds_time_out(engine: Engine) -> None:
    """A timeout raises an error; with ``partial="best"`` the round makes do with what came."""
    away = Delays([0.0, ABSENT, 0.0, 0.0])
    code = codes.Uncoded(WORKERS)
    cluster = engine(code, [1.0] * 4, np.multiply, 3, delays=away, timeout=LATER)
    with _raises(TimeoutError):
        cluster.step(np.ones(3), np.empty(3))
    _is_closed(cluster)
    out = np.empty(3)
    with engine(
        code, [1.0, 2.0, 4.0, 8.0], np.multiply, 3, delays=away, timeout=2 * LATE, partial="best"
    ) as cluster:
        report = cluster.step(np.ones(3), out)
        np.testing.assert_array_equal(out, 13.0)
        assert report.residual == 0.5
        rnd = Taking(code, 3, 3, 0.0)  # ready by the same three workers
        assert cluster.collect(np.ones(3), rnd).round == 1
        assert rnd.came.keys() == {0, 2, 3}


def unsuitable_arguments_leave_it_open(engine: Engine) -> None:
    """Arguments that do not fit raise before anything happens."""
    code, out = codes.Uncoded(WORKERS), np.empty(3)
    with engine(code, [1.0] * 4, np.multiply, 3) as cluster:
        for theta, target in ((np.ones(2), out), (np.ones(3), np.empty(3, np.float32))):
            with _raises((TypeError, ValueError), ""):
                cluster.step(theta, target)
        with _raises((TypeError, ValueError), "rnd"):
            cluster.collect(np.ones(3), code.round(2))
        with _raises((TypeError, ValueError), "worker"):
            cluster.collect(np.ones(3), code.round(3), [9])
        cluster.step(np.ones(3), out)
        np.testing.assert_array_equal(out, 4.0)
    _is_closed(cluster)


def strangers_are_refused(engine: Engine) -> None:
    """Messages of no round, no worker, or heard before are counted, and change nothing."""
    code = codes.ReedSolomon(WORKERS, stragglers=1)
    out, false = np.empty(3), np.full(code.round(3).message_size, 1e6)
    with engine(code, [1.0] * 4, np.multiply, 3) as cluster:
        if not isinstance(cluster, Master):
            return  # it decides on its own, and does not show what came
        first = cluster.step(np.ones(3), out)
        heard = int(first.survivors[0])
        wrong = [
            Event(Kind.MESSAGE, heard, 0, 0, false),  # of an earlier round
            Event(Kind.MESSAGE, WORKERS, 1, 0, false),
            Event(Kind.MESSAGE, -1, 1, 0, false),
            Event(Kind.MESSAGE, 0, 9, 0, false),
            Event(Kind.MESSAGE, 0, 1, 1, false),
            Event(Kind.MESSAGE, 0, 1, -1, false),
            Event(Kind.MESSAGE, 0, 1, 0, None),
            Event(Kind.MESSAGE, 0, 1, 0, false[1:]),
            Event(Kind.MESSAGE, 0, 1, 0, false.astype(np.float32)),
            Event(Kind.LEFT, 0, 9),
            Event(Kind.JOINED, 0),
        ]
        intrude(cluster, wrong)
        report = cluster.step(np.full(3, 2.0), out)
        np.testing.assert_allclose(out, 8.0)
        assert report.refused == len(wrong)
        assert report.lost == ()
        # Now all messages come twice.
        intrude(cluster, [], twice=True)
        report = cluster.step(np.full(3, 3.0), out)
        np.testing.assert_allclose(out, 12.0)
        assert report.messages == np.unique(report.survivors).size < WORKERS
        report = cluster.step(np.full(3, 4.0), out)
        np.testing.assert_allclose(out, 16.0)
        assert report.refused > 0


def one_after_another(engine: Engine) -> None:
    """After a cluster is closed, also by an error, the next one runs."""
    for value in (1.0, -1.0, 2.0):
        cluster = engine(codes.Uncoded(WORKERS), [value] * 4, fragile, 1)
        out = np.empty(1)
        if value < 0:
            with _raises(WorkerFailedError, ""):
                cluster.step(np.ones(1), out)
        else:
            cluster.step(np.ones(1), out)
            assert out[0] == 4 * value
        cluster.close()
        cluster.close()
        _is_closed(cluster, 1)


# All checks above.
CHECKS: list[Callable[[Engine], None]] = functions_of("engine", globals())


def check(engine: Engine) -> None:
    """Run all checks; raise AssertionError, or the engine's own error, at the first that fails."""
    for each in CHECKS:
        each(engine)


def intrude(cluster: Master, events: Iterable[Event], twice: bool = False) -> None:
    """Let a cluster's transport also tell these events, as soon as a round waits for messages.

    With `twice`, it tells every event twice from then on.
    """
    transport = cluster.transport
    listen, publish = transport.listen, transport.publish
    waiting = list(events)
    published = False

    def publish_first(number: int, theta: Array, in_use: set[int]) -> None:
        nonlocal published
        published = True
        publish(number, theta, in_use)

    def listen_too(seconds: float) -> Iterable[Event]:
        told = list(waiting) if published else []
        if told:
            waiting.clear()
        for event in listen(0.0 if told else seconds):
            told += [event] * (2 if twice else 1)
        return told

    transport.publish = publish_first  # type: ignore[method-assign]
    transport.listen = listen_too  # type: ignore[method-assign]


def _enough(code: Code, rng: np.random.Generator) -> Ints:
    """Return messages that suffice, in a random order in which workers could send them."""
    left = dict(enumerate(code.scheme.messages.counts))
    chosen: list[int] = []
    while not code.decodable(chosen):
        worker = int(rng.choice([w for w, count in left.items() if count]))
        chosen.append(
            code.scheme.messages.number(worker, code.scheme.messages.counts[worker] - left[worker])
        )
        left[worker] -= 1
    return np.array(chosen)


def _train(
    engine: Engine,
    code: Code,
    shards: list[Array],
    orders: list[Ints] | None,
    received: list[Ints] | None = None,
) -> Array:
    """Return the parameters after twelve rounds."""
    optimizer, gradient = Nesterov(lr=0.1), np.empty(33)
    optimizer.reset(np.linspace(-1.0, 1.0, 33))
    options: dict[str, Any] = {} if orders is None else {"survivors": orders.__getitem__}
    with engine(code, shards, curved, 33, **options) as cluster:
        for _ in range(12):
            report = cluster.step(optimizer.point, gradient)
            if received is not None:
                received.append(report.received)
            optimizer.step(gradient)
    return optimizer.theta.copy()


def _check_report(code: Code, report: RoundReport, number: int) -> None:
    assert report.round == number
    assert report.lost == ()
    assert report.deaths == report.refused == 0
    assert not report.residual > 1e-12
    assert code.decodable(report.received)
    assert report.messages >= report.received.size == report.arrivals.size
    assert (np.diff(report.arrivals) >= 0).all()
    senders = [code.scheme.messages.sender(m)[0] for m in report.received.tolist()]
    assert list(dict.fromkeys(senders)) == report.survivors.tolist()
    assert report.wait_seconds >= 0.0
    assert report.decode_seconds >= 0.0


def _close(found: Array, expected: Array, dtype: DTypeLike) -> None:
    precision = np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e3 * precision)


@contextmanager
def _raises(kind: type[Exception] | tuple[type[Exception], ...], *texts: str) -> Iterator[None]:
    raised = None
    try:
        yield
    except kind as error:
        raised = error
    assert raised is not None, f"no {kind} was raised"
    _says(raised, *texts)


def _says(error: Exception, *texts: str) -> None:
    for text in texts:
        assert text in str(error), f"{text!r} is not in {error}"


def _is_closed(cluster: Cluster, size: int = 3) -> None:
    with _raises(RuntimeError, "closed"):
        cluster.step(np.ones(size), np.empty(size))


def main(words: Sequence[str] | None = None) -> None:
    """Check the engine that the command line names."""
    said = str(__doc__).partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m fastgc.testing.engines", description=said)
    parser.add_argument("engine", help="module:Class")
    try:
        engine = load_object(parser.parse_args(words).engine)
    except (ValueError, ImportError) as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None
    for each in CHECKS:
        each(engine)
        print(f"{each.__name__}: passed", flush=True)


if __name__ == "__main__":
    main()
