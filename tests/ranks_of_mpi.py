"""What clusters on MPI must do, all in one job: ranks take long to start.

``mpiexec -n 5 python tests/ranks_of_mpi.py NAME ...`` runs functions of this file, each on a
communicator of as many ranks as it needs. Rank 0 prints a line for each that ends well, and its
traceback if it does not; then the job is aborted.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import fastgc
from fastgc import (
    Grouped,
    LagrangeCode,
    RandomAssignment,
    Reactive,
    ReedSolomon,
    Uncoded,
    WorkerFailedError,
)
from fastgc.engines import mpi
from fastgc.engines.mpi import MPICluster
from fastgc.errors import NonFiniteMessageError
from fastgc.testing import engines as conformance

comm = MPI.COMM_WORLD  # of the function that runs
RUN = {}


def ranks(count):
    def note(function):
        RUN[function.__name__] = function
        function.ranks = count
        return function

    return note


class Served(Exception):
    """A rank has been a worker of all clusters."""


def serve(clusters):
    """Be a worker of so many clusters, unless this is rank 0."""
    if comm.rank:
        for _ in range(clusters):
            assert MPICluster.serve(comm)
        raise Served
    assert not MPICluster.serve(comm)


def cluster(*given, **options):
    return MPICluster(*given, comm=comm, **options)


class Random:
    def sample(self, round, workers, seed):
        return np.random.default_rng([seed, round]).exponential(0.002, workers)


def fragile(theta, shard, out):
    if shard < 0:
        raise ArithmeticError(f"no gradient of {shard}")
    out[:] = shard * theta


def conform(checks):
    if comm.rank:
        while comm.bcast(None):
            MPICluster.serve(comm)
        return

    def engine(*given, **options):
        comm.bcast(True)
        return cluster(*given, **options)

    for check in checks:
        check(engine)
    comm.bcast(False)


@ranks(5)
def engines_behave_alike():
    conform(conformance.CHECKS)


@ranks(5)
def holders_answer_messages_have_energies_and_chosen_ones_the_same_bits():
    checks = [conformance.holders_are_asked_for_what_is_late, conformance.cancellation_is_seen]
    conform([*checks, conformance.chosen_survivors_give_the_same_bits])


@ranks(5)
def sequences_of_rounds_are_exact():
    sys.path.append(str(Path(__file__).parent))
    import adversary

    conform([lambda engine: adversary.draw(adversary.on(engine), time.time_ns(), 8)])


@ranks(5)
def machines_are_asked_for():
    import warnings

    own, mpi._machine = mpi._machine, lambda: f"node{comm.rank // 2}"
    part = comm.Dup()  # machines are asked for once for each communicator
    try:
        if comm.rank:
            assert MPICluster.serve(part)
            assert MPICluster.serve(part)
            return
        said = []
        for code in (ReedSolomon(4, 3, stragglers=1), Uncoded(4)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with MPICluster(code, [1.0] * code.k, np.multiply, size=1, comm=part) as made:
                    assert made.hosts == ["", "node1", "node1", "node2"]
            said.append([str(each.message) for each in caught])
    finally:
        mpi._machine = own
    [[warned], silent] = said
    assert warned.startswith("if node1 (workers 1, 2) is late, ")
    assert warned.endswith("by fastgc.engines.placement")
    assert not silent


@ranks(5)
def random_delays_leave_every_gradient_exact():
    codes = [ReedSolomon(4, stragglers=1), Uncoded(4, load=3), Uncoded(4, 6)]
    codes += [LagrangeCode(4, 2, load=1), Grouped.repetition(4, 2)]
    serve(len(codes))
    rng = np.random.default_rng(2)
    for code, p in zip(codes, [11, 1, 3000, 70_000, 4], strict=True):
        shards = list(rng.integers(-9, 9, (code.scheme.data.shards, p)).astype(float))
        rnd = code.group_round(p) if isinstance(code, Grouped) else None
        out, stale = np.empty(p), 0
        with cluster(code, shards, np.multiply, p, delays=Random(), seed=3) as made:
            for _ in range(20):
                theta = rng.integers(-9, 9, p).astype(float)
                if rnd is not None:
                    rnd.reset([0])
                    stale += made.collect(theta, rnd, rnd.workers).stale
                    parts = np.unique(np.concatenate([code.partitions(w) for w in rnd.workers]))
                    expected = theta * np.sum([shards[j] for j in parts], axis=0)
                    np.testing.assert_allclose(rnd.gradient(0), expected, atol=1e-9)
                    continue
                stale += made.step(theta, out).stale
                if not code.scheme.data.coded:  # else no linear gradient: see the conformance
                    np.testing.assert_allclose(out, theta * np.sum(shards, axis=0), atol=1e-9)
        assert stale > 0 or code.threshold == code.scheme.messages.count, code


@ranks(3)
def a_stopped_worker_is_late_and_jumps_to_the_newest_parameters():
    pids = comm.allgather(os.getpid())
    serve(2)
    for p in (3, 100_000):  # sent at once, and as the receiver takes it
        out = np.empty(p)
        with cluster(ReedSolomon(2, 2, stragglers=1), [1.0, 2.0], np.multiply, p) as made:
            os.kill(pids[2], signal.SIGSTOP)
            for number in range(4):
                report = made.step(np.full(p, 10.0 + number), out)
                assert report.survivors.tolist() == [0]
                assert report.stale == 0
                np.testing.assert_allclose(out, 30.0 + 3 * number)
            os.kill(pids[1], signal.SIGSTOP)
            os.kill(pids[2], signal.SIGCONT)
            report = made.step(np.full(p, 20.0), out)
            assert report.survivors.tolist() == [1]
            assert report.stale == 1  # of round 0: those after it were not for it
            np.testing.assert_allclose(out, 60.0)
            os.kill(pids[1], signal.SIGCONT)


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


stopped = set()  # parameters at which this rank has stopped itself


def stops(theta, pids, out):
    """Stop rank 2 at 1.0; at 2.0 rank 1, which first wakes rank 2, and then the other way round."""
    at, rank = theta[0], comm.rank
    other = pids[3 - rank]
    if at not in stopped and (at == 2.0 or (at == 1.0 and rank == 2)):
        stopped.add(at)
        if at == 2.0:
            while rank == 2 and not is_stopped(other):
                time.sleep(0.001)
            os.kill(other, signal.SIGCONT)
        os.kill(os.getpid(), signal.SIGSTOP)
    out[:] = theta


@ranks(3)
def a_worker_at_an_older_round_leaves_it_between_two_messages():
    pids = comm.allgather(os.getpid())
    serve(1)
    out = np.empty(2)
    with cluster(Uncoded(2, 4, load=4), [pids] * 4, stops, 2) as made:

        def step(value, worker, stale=0):
            report = made.step(np.full(2, value), out)
            np.testing.assert_array_equal(out, 4.0 * value)
            assert report.survivors.tolist() == [worker]
            assert report.stale == stale  # of four; and of rounds that it had not begun none

        step(1.0, 0)
        while not is_stopped(pids[2]):  # in the first gradient of a round
            step(1.0, 0)
        step(2.0, 0, stale=1)  # now in that of the next round, of which it had been told
        step(3.0, 0)
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(pids[2], signal.SIGCONT)
        step(4.0, 1, stale=1)
        os.kill(pids[1], signal.SIGCONT)


class Unloadable:
    def __reduce__(self):
        return eval, ("undefined",)


@ranks(4)
def failures_end_their_cluster_only():
    serve(6)
    out = np.empty(2)
    for _ in range(2):
        with cluster(Uncoded(3), [1.0, 2.0, 4.0], fragile, 2) as made:
            made.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 7.0)
        with (
            pytest.raises(WorkerFailedError) as caught,
            cluster(Uncoded(3), [1.0, -1.0, 1.0], fragile, 2) as made,
        ):
            made.step(np.ones(2), out)
        for part in ("worker 1", "round 0", "partition 1", "Traceback", "of -1.0"):
            assert part in str(caught.value)
    with pytest.raises(WorkerFailedError, match=r"(?s)worker 1 failed while it started.*undefined"):
        cluster(Uncoded(3), [1.0, Unloadable(), 1.0], fragile, 2)
    # The first messages are all of one partition, so that second ones are needed.
    code = RandomAssignment(3, load=2, seed=4)
    assert {code.partitions(worker)[0] for worker in range(3)} == {0}
    with cluster(code, [1.0, 2.0, 4.0], fragile, 2) as made:
        for number in range(1, 4):
            made.step(np.full(2, float(number)), out)
            np.testing.assert_array_equal(out, 7.0 * number)


def lies(theta, shard, out):
    if shard and comm.rank == 2:
        frame = sys._getframe()
        while frame.f_code.co_name != "_serve":
            frame = frame.f_back
        record = mpi.RECORD.pack(*shard[:3], out.nbytes, 0.0)
        header = record.ljust(mpi._LINE + out.nbytes, b"\0") + bytes(*shard[3:])
        frame.f_locals["comm"].Send([header, MPI.BYTE], 0, frame.f_locals["tag"])
    out[:] = 1.0


@ranks(3)
def a_rank_that_sends_what_no_worker_sends_is_named():
    serve(8)
    out, listen, too_long = np.empty(2), mpi._Ranks.listen, (0, 0, 0, 1 << 20)

    def late(ranks, seconds):  # when the honest message has come, too
        time.sleep(0.05)
        return listen(ranks, seconds)

    told = [(77, 0, 0), (-7, 0, 0), (0, 0, 5), (0, 0, -3), *[too_long] * 3]
    try:
        for number, lie in enumerate(told):
            mpi._Ranks.listen = late if number > 4 else listen  # MPI may take either first
            named = r"worker 1 failed in round 0: it sent what no worker sends"
            with (
                pytest.raises(WorkerFailedError, match=named),
                cluster(Uncoded(2), [lie] * 2, lies, 2) as made,
            ):
                made.step(np.ones(2), out)
    finally:
        mpi._Ranks.listen = listen
    with cluster(Uncoded(2), [None] * 2, lies, 2) as made:
        made.step(np.ones(2), out)
        assert (out == 2.0).all()


def refused(kind, text, *given, **options):
    with pytest.raises(kind, match=text):
        MPICluster(*given, **({"comm": comm} | options))


@ranks(3)
def what_does_not_fit_is_refused_and_leaves_the_ranks_as_they_are():
    given = ([1.0, 2.0], np.multiply, 1)
    refused(TypeError, "intracommunicator", Uncoded(2), *given, comm="world")
    if comm.rank:
        refused(RuntimeError, f"rank {comm.rank}", Uncoded(2), *given)
    serve(2)
    refused(ValueError, "mpiexec -n 5", Uncoded(4), [1.0] * 4, np.multiply, 1)
    refused(ValueError, "2 partitions", Uncoded(2), [1.0], np.multiply, 1)
    refused(Exception, "pickle", Uncoded(2), [1.0, 2.0], threading.Lock().acquire, 1)
    refused(Exception, "pickle", Uncoded(2), [1.0, threading.Lock()], np.multiply, 1)
    out = np.empty(1)
    for _ in range(2):
        with cluster(Uncoded(2), *given) as made:
            refused(RuntimeError, "another cluster", Uncoded(2), *given)
            made.step(np.ones(1), out)
            assert out[0] == 3.0


@ranks(5)
def communicators_of_some_ranks():
    part = comm.Split(comm.rank % 2)
    if not MPICluster.serve(part):
        out = np.empty(1)
        code = Uncoded(part.size - 1)
        with MPICluster(code, [1.0] * code.n, np.multiply, 1, comm=part) as made:
            made.step(np.ones(1), out)
        assert out[0] == code.n == (1 if comm.rank else 2)


@ranks(4)
def a_rank_that_hangs_is_a_straggler_of_the_next_cluster_until_it_is_back():
    pids = comm.allgather(os.getpid())
    serve(3)
    grace, mpi.GRACE = mpi.GRACE, 0.2
    code = ReedSolomon(3, stragglers=1)
    out = np.empty(100_000)
    for hung in (False, True, False):
        with cluster(code, [1.0, 2.0, 4.0], np.multiply, out.size) as made:
            for number in range(5):
                report = made.step(np.full(out.size, 1.0 + number), out)
                np.testing.assert_allclose(out, 7.0 + 7 * number)
                assert not hung or 1 not in report.survivors
                if not hung:
                    os.kill(pids[2], signal.SIGSTOP)
            if hung:
                os.kill(pids[2], signal.SIGCONT)
                while 1 not in report.survivors:  # ends when it is back
                    number += 1
                    report = made.step(np.full(out.size, 1.0 + number), out)
                    np.testing.assert_allclose(out, 7.0 + 7 * number)
    os.kill(pids[2], signal.SIGCONT)
    mpi.GRACE = grace


class Shard:
    """Data of a worker; that of worker 1 is wrong in one way."""

    def __init__(self, number, wrong):
        self.number, self.wrong = number, wrong

    def __setstate__(self, state):
        if state["number"] == 1 and state["wrong"] == "cannot be loaded":
            raise ArithmeticError("no such shard")
        self.__dict__ |= state


def of_shard(theta, shard, out):
    if shard.number == 1 and shard.wrong == "raises":
        raise ArithmeticError("no gradient")
    out[:] = np.nan if shard.number == 1 and shard.wrong == "is not finite" else theta


@ranks(4)
def what_goes_wrong_where_workers_are_asked_names_the_worker():
    kinds = ["raises", "is not finite", "cannot be loaded"]
    serve(2 * len(kinds))
    for wrong in kinds:
        shards = [Shard(number, wrong) for number in range(3)]
        # Worker 2 holds the shard, too.
        named = "worker [12]" if wrong == "cannot be loaded" else "worker 1"
        with (
            pytest.raises((WorkerFailedError, NonFiniteMessageError), match=named),
            cluster(Reactive(3, holders=2), shards, of_shard, 2) as made,
        ):
            made.step(np.ones(2), np.empty(2))
        out = np.empty(2)  # and the ranks are whole
        with cluster(Reactive(3, holders=2), [1.0, 2.0, 3.0], fragile, 2) as made:
            made.step(np.ones(2), out)
        assert out.tolist() == [6.0, 6.0]


@ranks(5)
def all_ranks_train():
    """Training takes the whole job."""
    code = ReedSolomon(4, stragglers=1)
    history = fastgc.train(code, rounds=3, engine="mpi")
    other = fastgc.train(Uncoded(4), rounds=2, engine="mpi", name="other")
    done = [len(history.rounds), len(other.rounds)]
    assert done == ([0, 0] if comm.rank else [3, 2])
    assert (history.data, history.name, other.name) == ("digits", "ReedSolomon", "other")


def main(names):
    global comm
    world = MPI.COMM_WORLD
    for name in names:
        function = RUN[name]
        part = world.Split(world.rank < function.ranks)
        try:
            if world.rank < function.ranks:
                comm = part
                with contextlib.suppress(Served):
                    function()
        except BaseException:
            print(f"{name}: rank {world.rank}: {traceback.format_exc()}", flush=True)
            world.Abort(1)
        waits = world.Ibarrier()  # ranks that take no part sleep
        while not waits.Test():
            time.sleep(0.001)
        if not world.rank:
            print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
