"""`CodedAllReduce`: steps of the whole batch, whoever is killed, and copies that never differ.

`groups_of_ranks` starts the ranks. No test asserts a time, except that a job ends.
"""

import contextlib
import ctypes
import errno
import functools
import itertools
import logging
import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import strength

import fastgc
from fastgc import (
    BinaryCode,
    CorruptMessageError,
    CyclicRepetition,
    FractionalRepetition,
    LeftOutError,
    NotDecodableError,
    Uncoded,
)

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from groups_of_ranks import (  # noqa: E402
    BATCH,
    EXACT,
    PER_EPOCH,
    SECONDS,
    SEED,
    SLACK,
    Momentum,
    N,
    check,
    flat,
    kill,
    launch,
    launch_each,
    loading,
    losses,
    net,
    order,
    plain,
    samples,
    slowly,
    train_on_digits,
    training,
    wait_until_back,
    whole_and_error,
    without,
)

from fastgc.engines import placement  # noqa: E402
from fastgc.numerics.graphs import owners  # noqa: E402
from fastgc.torch import (  # noqa: E402
    CodedAllReduce,
    CodedSampler,
    all_reduce_gradients,
    hosts,
    membership,
)
from fastgc.torch.all_reduce import Pace, _Reactive  # noqa: E402
from fastgc.torch.membership import BrokenGroupError, View  # noqa: E402

# Processes can import a test module only if the checkout happens to be on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_a_line_tells_of_a_death_once(tmp_path):
    def train(rank, store, life):
        said, handler = [], logging.Handler()
        handler.emit = lambda record: said.append((record.levelname, record.getMessage()))
        logging.getLogger("fastgc").addHandler(handler)
        training(BinaryCode(N, stragglers=1), 5, kill(2, ("before", 3)))(rank, store, life)
        return said

    found = launch(tmp_path, train)
    assert found.pop(0) == [("WARNING", "step 3: ranks [2] are gone, and [0, 1, 3, 4, 5] go on")]
    assert found == {rank: [] for rank in (1, 3, 4, 5)}


def test_steps_are_those_of_the_whole_batch(tmp_path):
    codes = [
        BinaryCode(N, stragglers=2),
        BinaryCode(N, 9, stragglers=1),
        FractionalRepetition(N, stragglers=1),
        CyclicRepetition(N, stragglers=2),
        Uncoded(N),
    ]
    for found in launch_each(tmp_path, [training(code, 12) for code in codes]):
        check(found, 12)


def is_killed(rank, at, **options):
    # Many groups run at once, so ranks get more time to answer than in one group alone.
    return training(BinaryCode(N, stragglers=1), 8, kill(rank, at), settle=3.0, **options)


# The first and another rank, before and after a sum.
KILLS = [(0, ("before", 4)), (4, ("after", 4))]
if strength.LONG:
    KILLS += [(0, ("after", 4)), (4, ("before", 4))]


def test_a_rank_that_is_killed_costs_no_step(tmp_path):
    each_case = launch_each(tmp_path, [is_killed(*case) for case in KILLS])
    for (rank, _), found in zip(KILLS, each_case, strict=True):
        check(found, 8, without(rank))
        went_on_without(rank, found)


def went_on_without(rank, found):
    for each in found.values():
        assert each["ranks"] == without(rank)
        assert (each["changes"], each["left out"]) == (1, 0)


def test_a_node_that_dies_costs_no_step(tmp_path):
    # Ranks are numbered node by node: neighbours, which hold a binary code's copies, die together.
    def on_two_nodes(rank, store, life):
        code = BinaryCode(N, stragglers=1)
        order = placement(code, hosts(N, rank=rank, store=store, host=f"node{rank // 3}"))
        assert order == [0, 2, 4, 1, 3, 5]
        own = order[rank]
        trouble = kill(own, ("before", 4)) if rank < 3 else kill(None, None)
        return training(code, 8, trouble, settle=3.0)(own, store, life)

    found = launch(tmp_path, on_two_nodes)
    check(found, 8, [3, 4, 5])
    assert all(each["ranks"] == [1, 3, 5] for each in found.values())


def test_a_machine_that_cannot_be_spared_is_warned_of(tmp_path):
    def on_two_nodes(rank, store, life):
        os.environ |= {
            "RANK": f"{rank}",
            "LOCAL_RANK": f"{rank % 3}",
            "LOCAL_WORLD_SIZE": "3",
            "WORLD_SIZE": f"{N}",
        }
        code, said = BinaryCode(N, stragglers=1), []
        order = placement(code, [each // 3 for each in range(N)])
        for place in ({}, {"rank": order[rank]}):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                with CodedAllReduce(net(), code, store=store, **place):
                    pass
            said.append([str(w.message) for w in caught if "this machine" in str(w.message)])
        return said

    found = launch(tmp_path, on_two_nodes)
    for rank, (plainly, placed) in found.items():
        assert placed == []
        assert len(plainly) == (rank % 3 == 0), plainly
        for each in plainly:
            ranks = ", ".join(str(rank + other) for other in range(3))
            assert f"if this machine (ranks {ranks}) is lost, the others cannot go on" in each
            assert "fastgc.engines.placement" in each


def test_what_it_is_in_a_line():
    """Its repr, as in a notebook, names module, code, rank, step and the ranks that take part."""
    module, store = torch.nn.Linear(3, 2), torch.distributed.HashStore()
    with CodedAllReduce(module, fastgc.Uncoded(1), store=store, rank=0) as coded:
        module(torch.ones(1, 3)).sum().backward()
        coded()
        said = repr(coded)
    assert said == "<CodedAllReduce of a Linear with Uncoded(n=1): rank 0, step 1, ranks 0>"


def test_a_rank_that_is_killed_within_a_sum_costs_no_step(tmp_path):
    width, steps, ranks = 40_000, 4, (0, 4)  # so wide that the all-reduce takes some time
    troubles = [kill(rank, ("before", 2), seconds=0.01) for rank in ranks]
    code = BinaryCode(N, stragglers=1)
    trains = [training(code, steps, each, width, settle=3.0) for each in troubles]
    for rank, found in zip(ranks, launch_each(tmp_path, trains), strict=True):
        check(found, steps, without(rank), functools.partial(net, width))
        went_on_without(rank, found)


def test_a_rank_that_is_killed_is_not_alive_while_forks_of_it_are(tmp_path):
    """Forks, as of a DataLoader, once held a killed rank's sockets until the others' `deadline`."""

    def trouble(moment, rank, step, life):
        if (rank, moment, step) == (4, "before", 4):
            if not os.fork():
                signal.pause()  # until the job ends
            os.kill(os.getpid(), signal.SIGKILL)

    code = BinaryCode(N, stragglers=1)
    found = launch(tmp_path, training(code, 8, trouble, deadline=10 * SECONDS))
    check(found, 8, without(4))
    went_on_without(4, found)


def test_a_fork_of_a_rank_lets_go_of_what_leads_to_the_others_alone(tmp_path):
    def train(rank, store, life):
        kept = socket.create_connection(("127.0.0.1", store.port))
        module, code = net(), BinaryCode(N, stragglers=1)
        with CodedAllReduce(module, code, store=store, rank=rank) as all_reduce:
            read, write = os.pipe()
            if not (fork := os.fork()):
                held = [
                    os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")[:-1]
                ]
                open_ones = sum(each.startswith("socket") for each in held)
                os.write(write, f"{kept.getpeername()[1] == store.port} {open_ones}".encode())
                os._exit(0)
            os.waitpid(fork, 0)
            told = os.read(read, 100).decode().split()
            mine = len(membership.sockets_open())
            losses(module, *samples()[range(BATCH)]).sum().backward()
            all_reduce()
        return told[0], int(told[1]), mine

    for same, held, mine in launch(tmp_path, train).values():
        assert same == "True"
        assert 1 <= held <= mine - 2 * (N - 1)  # each other rank: a line, and a pair of gloo's


def test_a_rank_that_is_killed_in_the_first_or_the_last_step(tmp_path):
    moments = [("before", 0), ("before", 7), ("after", 7), ("end", 8)]
    for found in launch_each(tmp_path, [is_killed(2, at) for at in moments]):
        check(found, 8, without(2))


def test_ranks_killed_at_random_instants_come_back(tmp_path):
    deaths, between = 6 if strength.LONG else 2, 20

    def director(ranks):
        rng = np.random.default_rng()
        for death in range(deaths):
            rank = int(rng.integers(N))
            ranks.until(f"{rank}/{10 + between * death}")
            time.sleep(0.1 * rng.random())
            # Before or after the others notice.
            ranks.kill_and_start(rank, after=rng.choice([0.0, 0.5]))

    steps = 20 + between * (deaths + 1)
    found = launch(tmp_path, training(BinaryCode(N, stragglers=1), steps, slowly), director)
    check(found, steps)
    assert any(each["joined"] for each in found.values())
    for each in found.values():
        assert each["ranks"] == list(range(N))


def test_two_at_once_and_one_more_later(tmp_path):
    def trouble(moment, rank, step, life):
        if (moment, step) == ("before", 3) and rank in (0, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        if (moment, step, rank) == ("after", 6, 5):
            os.kill(os.getpid(), signal.SIGKILL)

    # The code tolerates any two deaths, and these three: ranks of each half hold the same.
    found = launch(tmp_path, training(BinaryCode(N, stragglers=2), 9, trouble))
    check(found, 9, {1, 2, 4})


def test_a_rank_that_hangs_is_left_out_and_may_come_back(tmp_path):
    """Either its process is stopped, or its program sleeps while its threads answer."""

    def hangs(how):
        (folder := tmp_path / how).mkdir()
        awake, end = folder / "awake", folder / "end"

        def trouble(moment, rank, step, life):
            time.sleep(0.01)
            if (moment, rank) != ("before", 1):
                return
            if step == 5 and how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif step == 5:
                wait_for(awake)
            elif step > 5 and not end.exists():  # it is back: ten more steps with all ranks
                (folder / "new").write_text(str(step + 10))
                (folder / "new").rename(end)

        def steps():
            return int(end.read_text()) if end.exists() else 3000

        def director(ranks):
            ranks.until("0/12")
            awake.touch()
            if how == "stopped":
                ranks.signal(1, signal.SIGCONT)

        train = training(BinaryCode(N, stragglers=1), steps, trouble, deadline=3.0)
        return train, director, steps

    trains, directors, ends = zip(*map(hangs, ["stopped", "asleep"]), strict=True)
    for found, steps in zip(launch_each(tmp_path, trains, directors), ends, strict=True):
        assert steps() < 3000
        check(found, steps())
        assert [found[r]["left out"] for r in range(N)] == [0, 1, 0, 0, 0, 0]
        assert {tuple(each["ranks"]) for each in found.values()} == {tuple(range(N))}


def wait_for(path):
    while not path.exists():
        time.sleep(0.02)


def test_who_was_left_out_is_told(tmp_path):
    def trouble(moment, rank, step, life):
        if (moment, rank, step) == ("before", 1, 2):
            wait_for(tmp_path / "0")  # rank 0's result: the others have ended

    code = BinaryCode(N, stragglers=1)
    found = launch(tmp_path, training(code, 4, trouble, comes_back=False, deadline=1.0))
    assert "LeftOutError: rank 1 did not answer in time" in found.pop(1)
    check(found, 4, {0, 2, 3, 4, 5})


def test_who_has_a_result_gives_it_to_those_who_have_not(tmp_path):
    """Ranks 2 and 5 lose a result that the others have, who are then a step ahead."""

    def train(rank, store, life):
        summed = View.sum

        def lost(view, tensor, patience=None):
            summed(view, tensor, patience)
            if tensor.is_floating_point() and tensor.numel() > 1:
                calls.append(tensor[:100].clone())
                if rank in (2, 5) and len(calls) == 4:
                    tensor.fill_(math.nan)
                    view.leave()
                    raise BrokenGroupError

        calls = []
        View.sum = lost
        found = training(BinaryCode(N, stragglers=1), 6)(rank, store, life)
        return {**found, "calls": len(calls)} if isinstance(found, dict) else found

    found = launch(tmp_path, train)
    check(found, 6)
    # Seven sums for six steps: the first is a trial. The lost sum is not made a second time.
    assert [found[r]["calls"] for r in range(N)] == [7] * N


# ---------------------------------------------------------------------------------- who takes part


def test_ranks_that_start_again_at_once_join_those_who_run(tmp_path):
    """They never found a second group beside them."""

    def director(ranks):
        ranks.until("1/20")
        for rank in (0, 4):
            ranks.signal(rank)
            ranks.start(rank)
            time.sleep(0.25)
        ranks.until_back(0, 4)

    found = launch(tmp_path, training(CyclicRepetition(N, stragglers=2), 40, slowly), director)
    check(found, 40)
    assert [found[r]["joined"] for r in range(N)] == [True, False, False, False, True, False]
    assert {each["left out"] for each in found.values()} == {0}


def test_a_rank_that_starts_after_the_end_is_told_so(tmp_path):
    def director(ranks):
        ranks.until("1/5")
        ranks.signal(3)
        for rank in without(3):
            os.waitpid(ranks.pids.pop(rank), 0)
        ranks.start(3)

    found = launch(tmp_path, training(BinaryCode(N, stragglers=1), 10, slowly), director)
    assert "FinishedError: the run ended at step 10" in found.pop(3)
    check(found, 10, without(3))


def test_where_all_who_held_the_state_are_gone_nobody_begins_anew(tmp_path):
    def director(ranks):
        ranks.until("1/5")
        for rank in range(N):
            ranks.signal(rank)
        for rank in range(N):
            ranks.start(rank)

    found = launch(tmp_path, training(BinaryCode(N, stragglers=1), 500, slowly), director)
    for each in found.values():
        assert "RuntimeError: the state of the training is lost" in each


def test_a_rank_that_cannot_reach_the_others_is_shut_out(tmp_path):
    """At the start, or when it starts again: the others do not wait for it long."""

    def train(how, rank, store, life):
        if rank == 3 and life == 1 and how != "descriptors":
            code = {"unreachable": errno.EHOSTUNREACH, "refused": errno.ECONNREFUSED}[how]
            socket.socket.connect_ex = lambda made, address: code
        if rank == 3 and life == 1 and how == "descriptors":
            start = membership.Lines.__init__

            def few(lines, patience):
                start(lines, patience)
                now = max(map(int, os.listdir("/proc/self/fd")))
                resource.setrlimit(resource.RLIMIT_NOFILE, (now + 4, now + 4))

            membership.Lines.__init__ = few
        work = training(BinaryCode(N, stragglers=1), 30, slowly, deadline=6.0)
        return work(rank, store, life)

    def director(ranks):
        ranks.until("1/5")
        ranks.kill_and_start(3)

    trains = [functools.partial(train, how) for how in ("unreachable", "refused", "descriptors")]
    for found in launch_each(tmp_path, trains, [director] * 3):
        assert "LeftOutError: rank 3 and others cannot reach each other" in found.pop(3)
        check(found, 30, without(3))
        assert {each["left out"] for each in found.values()} == {0}


def test_who_holds_the_interpreter_is_not_left_out(tmp_path):
    def trouble(moment, rank, step, life):
        slowly(moment, rank, step, life)
        if (moment, step, life) == ("before", 5, 0):
            if rank == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 1:
                ctypes.PyDLL(None).usleep(1_500_000)  # a PyDLL keeps the GIL

    code = BinaryCode(N, stragglers=1)
    found = launch(tmp_path, training(code, 10, trouble, settle=0.3))
    check(found, 10, without(4))
    went_on_without(4, found)


def test_who_is_late_by_the_pace_of_steps_is_left_out(tmp_path):
    """The others leave it out long before a minute is over; it waits until they are ahead."""

    def train(rank, store, life):
        def trouble(moment, r, step, life):
            slowly(moment, r, step, life)
            if (moment, r, step) == ("before", 3, 25):
                store.wait(["1/35"])
            if step > 35 and moment == "before":
                wait_until_back(store, r == 3)

        work = training(BinaryCode(N, stragglers=1), 80, trouble, deadline="auto", settle=0.3)
        return work(rank, store, life)

    found = launch(tmp_path, train)
    check(found, 80)
    assert {rank: each["left out"] for rank, each in found.items()} == {
        rank: int(rank == 3) for rank in range(N)
    }


def test_the_pace_of_steps(monkeypatch):
    """Patience is ten times a quantile of steps, at least a second, and unknown in a new view."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = Pace()

    def steps(count, seconds, view=1):
        for _ in range(count):
            now[0] += seconds
            pace.note(view)

    steps(20, 0.5)
    assert pace.patience(1) is None  # the first step began before the view
    steps(1, 0.5)
    assert pace.patience(1) == pytest.approx(5.0)
    assert pace.patience(2) is None
    steps(1, 30.0, view=2)  # a new view: the ranks regrouped
    assert pace.patience(2) == pytest.approx(5.0)
    steps(1, 7.0, view=None)
    assert pace.patience(2) is None
    steps(1, 7.0, view=2)
    assert pace.patience(2) == pytest.approx(5.0)
    steps(100, 0.01, view=2)
    assert pace.patience(2) == 1.0
    steps(4, 2.0, view=2)
    assert pace.patience(2) == 1.0
    steps(6, 2.0, view=2)
    assert pace.patience(2) == pytest.approx(20.0)


def test_a_store_that_dies_or_hangs_ends_the_run_in_time(tmp_path):
    """Steps go on without the store until the ranks that take part change."""

    def director(how, ranks):
        ranks.until("1/20")
        os.kill(ranks.keeper, how)
        time.sleep(0.5)
        ranks.signal(4)

    def train(rank, store, life):
        code, module = BinaryCode(N, stragglers=1), net()
        step, begin = -1, math.inf
        try:
            options = {"store": store, "rank": rank, "deadline": 2.0}
            with CodedAllReduce(module, code, **options) as all_reduce:
                for step in range(1000):
                    if (rank, step) == (1, 20):
                        store.set("1/20", b"")
                    module.zero_grad()
                    losses(module, *samples()[range(BATCH)]).sum().backward()
                    begin = time.monotonic()
                    all_reduce()
                    time.sleep(0.01)
        except RuntimeError as error:
            return str(error), step, time.monotonic() - begin
        return "it ended", step, 0.0

    directors = [functools.partial(director, how) for how in (signal.SIGKILL, signal.SIGSTOP)]
    for found in launch_each(tmp_path, [train] * 2, directors):
        assert sorted(found) == without(4)
        for error, step, seconds in found.values():
            assert "the store by which ranks agree" in error
            assert step > 0
            assert seconds < 3 * 2.0 + SLACK


def test_too_many_deaths(tmp_path):
    def trouble(moment, rank, step, life):
        if (moment, step) == ("before", 3) and rank in (0, 1):  # all holders of their partitions
            os.kill(os.getpid(), signal.SIGKILL)

    code = BinaryCode(N, stragglers=1)
    found = launch(tmp_path, training(code, 6, trouble, deadline=1.0))
    assert sorted(found) == [2, 3, 4, 5]
    for each in found.values():
        assert "NotDecodableError: too many ranks are gone (0, 1) for BinaryCode" in each


def test_too_many_deaths_and_an_approximation(tmp_path):
    def train(rank, store, life):
        module, code = torch.nn.Linear(1, 1), BinaryCode(N, stragglers=1)
        with CodedAllReduce(module, code, store=store, rank=rank, partial=True) as all_reduce:
            found = []
            for step in range(3):
                for p in module.parameters():
                    p.grad = torch.full_like(p, float(len(code.partitions(rank))))
                if step == 1 and rank in (0, 1):
                    os.kill(os.getpid(), signal.SIGKILL)
                all_reduce()
                found.append((float(module.weight.grad), all_reduce.residual))
        return found

    found = launch(tmp_path, train)
    residual = BinaryCode(N, stragglers=1).best_vector([2, 3, 4, 5])[1]
    for each in found.values():
        assert each == [(6.0, 0.0), (4.0, residual), (4.0, residual)]


def test_a_code_that_waits_for_some_says_what_is_missing(tmp_path):
    code = FractionalRepetition(N, stragglers=1, wait=N - 2)

    def train(rank, store, life):
        module, found = torch.nn.Linear(1, 1), []
        with CodedAllReduce(module, code, store=store, rank=rank) as all_reduce:
            for step in range(2):
                for p in module.parameters():
                    p.grad = torch.full_like(p, float(len(code.partitions(rank))))
                if step == 1 and rank in (0, N // 2):  # both holders of a block
                    os.kill(os.getpid(), signal.SIGKILL)
                all_reduce()
                found.append((float(module.weight.grad), all_reduce.residual))
        return found

    found = launch(tmp_path, train)
    lost = np.sqrt(2 / N)
    for each in found.values():
        assert each == [(float(N), 0.0), (N - 2.0, pytest.approx(lost))]


def test_one_call(tmp_path):
    def train(rank, store, life):
        module, code = net(), BinaryCode(N, stragglers=1)
        sampler = CodedSampler(samples(), code, BATCH, rank, seed=SEED)
        optimizer, errors = Momentum(module), []
        for batch in [*sampler, *sampler]:
            if (rank, len(errors), life) == (5, 2, 0):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            losses(module, *samples()[batch]).sum().backward()
            options = {"store": store, "rank": rank, "sums": (len(batch), 1.0)}
            count, ranks = all_reduce_gradients(module, code, **options)
            assert (count, ranks) == (BATCH, 3)  # one rank of each pair with the same partitions
            truth = net()
            truth.load_state_dict(module.state_dict())
            losses(truth, *samples()[order(len(errors))]).sum().backward()
            mine, theirs = (flat(p.grad for p in m.parameters()) for m in (module, truth))
            errors.append(float((mine - theirs).norm() / theirs.norm()))
            optimizer.step()
            time.sleep(0.2)
        return errors

    def director(ranks):
        os.waitpid(ranks.pids[5], 0)
        ranks.start(5)

    found = launch(tmp_path, train, director)
    assert "LeftOutError: the other ranks are running" in found.pop(5)
    assert sorted(found) == [0, 1, 2, 3, 4]
    for errors in found.values():
        assert len(errors) == 2 * PER_EPOCH
        assert max(errors) <= EXACT


def test_parameters_that_ranks_do_not_use(tmp_path):
    """A parameter's gradient stays None if no rank used it; otherwise all ranks get the sum."""

    def train(rank, store, life):
        module, code = torch.nn.ParameterList(torch.zeros(3) for _ in range(4)), Uncoded(N)
        table = torch.nn.Embedding(5, 2, sparse=True)
        module.append(table.weight)
        module[3].requires_grad_(False)
        with CodedAllReduce(module, code, store=store, rank=rank) as all_reduce:
            module[0].sum().backward()
            if rank == 2:
                (5 * module[1].sum()).backward()
            table(torch.tensor([rank % 2])).sum().backward()
            all_reduce()
        return [None if p.grad is None else p.grad.tolist() for p in module]

    for each in launch(tmp_path, train).values():
        rows = [[3.0] * 2, [3.0] * 2, [0.0] * 2, [0.0] * 2, [0.0] * 2]
        assert each == [[6.0] * 3, [5.0] * 3, None, None, rows]


def test_a_module_that_the_loss_does_not_use_is_told_of(tmp_path):
    """Only in the first step: later ones may have a batch without any loss."""

    def train(rank, store, life):
        module, said = net(), []
        with CodedAllReduce(module, Uncoded(2), store=store, rank=rank) as all_reduce:
            for used in (False, True, False):
                module.zero_grad()
                losses(module if used else net(), *samples()[:4]).sum().backward()
                try:
                    all_reduce()
                except RuntimeError as error:
                    said.append(str(error))
        return said, all_reduce.step

    for each in launch(tmp_path, train, count=2).values():
        (said,), steps = each
        assert "no parameter of the module has a gradient on any rank" in said
        assert steps == 2


def test_parameters_that_ranks_do_not_know_are_told_of(tmp_path):
    """Their gradients would be those of each rank's own samples, and parameters drift apart."""
    changes = {
        "2.weight requires": lambda module: module[2].weight.requires_grad_(True),
        "0.weight requires": lambda module: module.__setitem__(0, torch.nn.Linear(20, 32)),
        "0.bias requires": lambda module: module[0].load_state_dict(
            {"weight": module[0].weight, "bias": torch.zeros(32)}, assign=True
        ),
        None: lambda module: module[0].requires_grad_(False),
    }

    def train(rank, store, life):
        said = []
        for change in changes.values():
            module = net()
            module[2].weight.requires_grad_(False)
            with CodedAllReduce(module, Uncoded(2), store=store, rank=rank) as all_reduce:
                for step in range(2):
                    if step:
                        change(module)
                    module.zero_grad()
                    losses(module, *samples()[:4]).sum().backward()
                    try:
                        all_reduce()
                    except RuntimeError as error:
                        said.append(str(error))
                if all_reduce.step == 2:
                    said.append(None)
        return said

    for said in launch(tmp_path, train, count=2).values():
        assert isinstance(said, list), said
        *texts, last = said
        for text, name in zip(texts, filter(None, changes), strict=True):
            assert str(text).startswith(f"parameter {name} a gradient, and did not")
        assert last is None


# ------------------------------------------------------------------------- reactive redundancy


@pytest.mark.parametrize("seed", range(40))
def test_owners_hold_what_they_own_and_none_has_more_than_must_be(seed):
    rng = np.random.default_rng(seed)
    n, k = rng.integers(1, 6, 2).tolist()
    holders = [sorted(rng.permutation(n)[: rng.integers(1, n + 1)].tolist()) for _ in range(k)]
    ranks = rng.permutation(n)[: rng.integers(1, n + 1)].tolist()
    if any(not set(ranks) & set(each) for each in holders):
        with pytest.raises(NotDecodableError, match="no rank is left that holds partitions"):
            owners(holders, ranks)
        return
    found = owners(holders, ranks)
    assert found == owners(holders, ranks[::-1])
    every = list(itertools.product(*[sorted(set(ranks) & set(each)) for each in holders]))
    assert tuple(found) in every
    counts = [np.bincount(each, minlength=n) for each in every]
    mine = np.bincount(found, minlength=n)
    assert mine.max() == min(each.max() for each in counts)
    assert np.count_nonzero(mine) == max(map(np.count_nonzero, counts))


@pytest.mark.parametrize(
    "code",
    [
        BinaryCode(6, stragglers=2),
        BinaryCode(6, 12, stragglers=1),
        FractionalRepetition(6, stragglers=2),
        CyclicRepetition(5, stragglers=2),
    ],
    ids=repr,
)
def test_whoever_dies_in_whatever_order_each_partition_is_computed_once(code):
    """In all orders of up to s deaths, those left take over lost partitions in the same step."""
    for deaths in itertools.permutations(range(code.n), code.stragglers):
        there = list(range(code.n))
        data = range(2 * code.k)
        samplers = [CodedSampler(data, code, 2 * code.k, r) for r in there]
        calls = [[] for _ in there]
        each = [
            _Reactive(code, r, [], 1, samplers[r], lambda i, mine=calls[r]: mine.extend(i))
            for r in there
        ]
        for reactive in each:
            reactive.own(there)
        batches = [next(iter(sampler)) for sampler in samplers]
        assert sorted(itertools.chain(*batches)) == sorted(set(itertools.chain(*batches)))
        for r in there:
            each[r].begin(0, [])
        for dead in deaths:  # all within one step
            there.remove(dead)
            had = [[int(j in reactive.done) for reactive in each] for j in range(code.k)]
            for r in range(code.n):
                if r not in there:
                    had = [[0 if at == r else x for at, x in enumerate(row)] for row in had]
            for r in there:
                each[r].take_over(there, had)
            done = [j for r in there for j in each[r].done]
            assert sorted(done) == list(range(code.k))
            assert sum(len(batches[r]) + len(calls[r]) for r in there) == len(data)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_ranks_have_each_partition_is_in_the_sum_once(seed):
    """Partitions that several ranks computed count once: loaders took them before a death."""
    rng = np.random.default_rng(seed)
    code, there = BinaryCode(5, 10, stragglers=2), [0, 2, 3, 4]
    had = [[0] * code.n for _ in range(code.k)]
    done = {}
    for r in there:
        held = code.partitions(r).tolist()
        given = rng.permutation(held)[: rng.integers(0, len(held) + 1)].tolist()
        sampler = CodedSampler(range(20), code, 20, r)
        p = torch.nn.Parameter(torch.zeros(1))
        sampler.give(given)
        next(iter(sampler))

        def compute(samples, p=p):
            p.grad = (0 if p.grad is None else p.grad) + torch.tensor([float(len(samples))])
            return [float(sum(samples))]

        own = _Reactive(code, r, [p], 1, sampler, compute)
        p.grad = torch.tensor([2.0 * len(given)])
        own.begin(0, [float(sum(sampler.samples(0, given)))])
        assert own.done == set(given)
        for j in given:
            had[j][r] = 1
        done[r] = own, p
    for own, _ in done.values():
        own.take_over(there, had)
    assert sorted(j for own, _ in done.values() for j in own.done) == list(range(code.k))
    assert sum(own.sums[0] for own, _ in done.values()) == sum(range(20))
    assert sum(0.0 if p.grad is None else float(p.grad) for _, p in done.values()) == 20.0


reacting = functools.partial(training, reactive=True, settle=3.0)


def test_nothing_is_computed_twice_while_nobody_dies(tmp_path):
    codes = [BinaryCode(N, stragglers=2), CyclicRepetition(N, stragglers=2), Uncoded(N)]
    for found in launch_each(tmp_path, [reacting(code, 8) for code in codes]):
        check(found, 8)
        # The first step computes two halves once more.
        assert sum(each["computed"] for each in found.values()) == (8 + 1) * BATCH


def test_what_a_rank_that_dies_owed_is_computed_in_the_same_step(tmp_path):
    code = BinaryCode(N, stragglers=1)
    trains = [reacting(code, 8, kill(*case)) for case in KILLS]
    for (rank, _), found in zip(KILLS, launch_each(tmp_path, trains), strict=True):
        check(found, 8, without(rank))
        assert found[1]["ranks"] == without(rank)


def test_batches_that_a_loader_took_of_the_owners_before(tmp_path):
    code = BinaryCode(N, stragglers=1)
    found = launch(tmp_path, reacting(code, 9, kill(4, ("before", 4)), ahead=2))
    check(found, 9, without(4))


def test_two_that_die_at_once_and_come_back(tmp_path):
    def director(ranks):
        ranks.until("1/5")
        ranks.kill_and_start(0, 3)

    trains = [
        reacting(CyclicRepetition(N, stragglers=2), 25, slowly),
        reacting(BinaryCode(N, stragglers=2), 25, slowly, of=2),
        reacting(BinaryCode(N, stragglers=2), 25, slowly, ahead=2),
    ]
    each_train = launch_each(tmp_path, trains, [director] * 3)
    for found, of in zip(each_train, (1, 2, 1), strict=True):
        check(found, 25, of=of)
        assert [found[r]["joined"] for r in range(N)] == [r in (0, 3) for r in range(N)]


def test_owners_killed_at_random_instants_come_back(tmp_path):
    deaths, between = 6 if strength.LONG else 2, 20

    def director(ranks):
        rng = np.random.default_rng()
        for death in range(deaths):
            dying = rng.permutation(N)[: rng.integers(1, 3)].tolist()
            ranks.until(f"{dying[0]}/{10 + between * death}")
            time.sleep(0.1 * rng.random())
            ranks.kill_and_start(*dying, after=rng.choice([0.0, 0.5]))

    steps = 20 + between * (deaths + 1)
    train = reacting(BinaryCode(N, stragglers=2), steps, slowly)
    check(launch(tmp_path, train, director), steps)


def test_what_reactive_redundancy_takes():
    sampler = CodedSampler(samples(), BinaryCode(4, stragglers=1), BATCH, 0)
    options = {"rank": 0, "store": object(), "redundancy": "reactive"}
    code = BinaryCode(4, stragglers=1)
    for more, error in [
        ({}, "takes sampler=, which gives"),
        ({"sampler": sampler}, "takes sampler=, which gives"),
        ({"sampler": sampler, "recompute": len, "partial": True}, "partial=True is for"),
        ({"redundancy": "lazy"}, 'redundancy must be "proactive" or "reactive", not'),
        ({"redundancy": "proactive", "recompute": len}, "recompute= is for redundancy"),
        ({"sampler": sampler, "recompute": len, "audit": 0}, "audit must be at least 1"),
    ]:
        with pytest.raises((TypeError, ValueError), match=re.escape(error)):
            CodedAllReduce(net(), code, **options | more)
    few = BinaryCode(4, 2, stragglers=1)
    with pytest.raises(ValueError, match="no other row of CyclicRepetition"):
        CodedAllReduce(net(), CyclicRepetition(4, stragglers=1), rank=0, store=object(), audit=9)
    with pytest.raises(ValueError, match="has 2 partitions, fewer than ranks"):
        CodedAllReduce(net(), few, **options | {"sampler": sampler, "recompute": len})


# -------------------------------------------------------------------------------------- audits


def audited(
    code, steps, every, erring=lambda rank, step, module, apart: None, state=(), of=1, ahead=0
):
    """Return a rank's program; `erring` corrupts its gradients or state like a faulty device."""

    def train(rank, store, life):
        module, data = net(), samples()
        module.register_buffer("computed", torch.zeros((), dtype=torch.int64))
        optimizer = Momentum(module)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        errors, left_out, computed = [], 0, 0

        def compute(x, y, apart=False):
            nonlocal computed
            computed += 1
            module.computed += 1
            torch.rand(1)
            loss = losses(module, x, y).sum()
            loss.backward()
            erring(rank, all_reduce.step, module, apart)
            return [loss.item()]

        with CodedAllReduce(
            module,
            code,
            store=store,
            rank=rank,
            sampler=sampler,
            state=[optimizer, *state],
            redundancy="reactive",
            recompute=lambda indices: compute(*data[indices], apart=True),
            audit=every,
            buffers="mean",
            accumulate=of,
            deadline=30.0,
            settle=3.0,
        ) as all_reduce:
            store.set(f"{rank}/life/{life}", b"")
            batches = loading(data, sampler, ahead)
            while (step := all_reduce.step) < steps:
                optimizer.zero_grad()
                loss = sum(compute(*next(batches))[0] for _ in range(of))
                try:
                    (total,) = all_reduce(loss)
                except LeftOutError:
                    left_out += 1
                    all_reduce.join()
                    batches = loading(data, sampler, ahead)
                    continue
                whole, error = whole_and_error(module, step, of)
                errors.append(error)
                if not errors[-1] > EXACT:
                    assert total == pytest.approx(whole, rel=1e-5)
                if math.isfinite(errors[-1]):  # as a GradScaler does
                    optimizer.step()
                erring(rank, step, module, None)
        return {
            "errors": errors,
            "faults": [tuple(each) for each in all_reduce.faults],
            "ranks": all_reduce.ranks,
            "theta": flat(module.parameters()).numpy(),
            "computed": computed,
            "buffer": module.computed.item(),
            "drawn": torch.rand(1).item(),
            "left out": left_out,
        }

    return train


def times(factor, faulty, since, until=math.inf):
    """Return an `erring` that scales an element of a faulty rank's gradient, audits included."""

    def erring(rank, step, module, apart):
        if rank == faulty and since <= step < until and apart is not None:
            module[0].weight.grad[5, 7] *= factor

    return erring


def check_audited(found, steps, ranks, wrong=()):
    """Require that all steps but `wrong` are right, and that all ranks report the same."""
    first = found[ranks[0]]
    for r in ranks:
        assert isinstance(found[r], dict), found[r]
        assert np.array_equal(found[r]["theta"], first["theta"])
        assert found[r]["faults"] == first["faults"]
        errors = found[r]["errors"]
        assert [step for step in range(steps) if errors[step] > EXACT] == list(wrong)
        assert len(errors) == steps
    if not wrong:
        truth = plain(steps).numpy()
        assert abs(first["theta"] - truth).max() <= 1e-5 * abs(truth).max()


def test_honest_ranks_are_not_accused_and_audits_leave_no_trace(tmp_path):
    code = BinaryCode(N, stragglers=1)
    codes = [code, code, CyclicRepetition(N, stragglers=2), Uncoded(3)]
    trains = [audited(code, 12, every) for code, every in zip(codes, (None, 1, 4, 2), strict=True)]
    without_audits, *others = launch_each(tmp_path, trains, counts=[N, N, N, 3])
    for found, looks in zip(others, (12, 3, 6), strict=True):
        check_audited(found, 12, sorted(found))
        for each in found.values():
            assert each["faults"] == []
            assert each["computed"] == 12 + looks + 2  # two halves in the first step
    for r in range(N):
        for what in ("theta", "buffer", "drawn"):
            assert np.array_equal(others[0][r][what], without_audits[r][what])


def test_audits_of_several_batches_and_of_those_that_a_loader_took_ahead(tmp_path):
    code = BinaryCode(N, stragglers=1)
    trains = [
        audited(code, 8, 2, times(1.5, 3, since), of=of, ahead=ahead)
        for since in (99, 4)
        for of, ahead in ((2, 0), (1, 2))
    ]
    *honest, two, ahead = launch_each(tmp_path, trains)
    for found in (two, ahead):
        assert "computes wrong gradients" in found.pop(3)
    named = [(4, 3, False), (5, 3, True)]
    for each, faults in [(each, []) for each in honest] + [(two, named), (ahead, named)]:
        for rank in each.values():
            assert isinstance(rank, dict), rank
            assert max(rank["errors"]) <= EXACT
            assert rank["faults"] == faults
            assert np.array_equal(rank["theta"], each[0]["theta"])


def test_a_rank_that_errs_always_is_named_and_the_others_go_on(tmp_path):
    cases = [
        (BinaryCode(N, stragglers=1), 4, 10),
        (FractionalRepetition(N, stragglers=2), 0, 12),
        (CyclicRepetition(3, stragglers=1), 1, 10),
    ]
    trains = [audited(code, 18, 5, times(1.5, *case)) for code, *case in cases]
    counts = [code.n for code, *_ in cases]
    each_case = launch_each(tmp_path, trains, counts=counts)
    for (code, faulty, since), found in zip(cases, each_case, strict=True):
        error = found.pop(faulty)
        assert f"CorruptMessageError: rank {faulty} computes wrong gradients" in error
        seen = -(-since // 5) * 5
        check_audited(found, 18, sorted(found), range(since, seen))
        rest = [r for r in range(code.n) if r != faulty]
        for each in found.values():
            assert each["ranks"] == rest
            assert each["faults"] == [(seen, faulty, False), (seen + 1, faulty, True)]


def test_what_would_spoil_the_parameters_is_found_in_its_step(tmp_path):
    faults = [times(math.nan, 2, 3), times(1e20, 1, 3), times(math.nan, 5, 3, 4)]
    trains = [audited(BinaryCode(N, stragglers=1), 8, 100, each) for each in faults]
    for faulty, found in zip((2, 1, 5), launch_each(tmp_path, trains), strict=True):
        if faulty != 5:
            assert "computes wrong gradients" in found.pop(faulty)
        check_audited(found, 8, sorted(found))
        named = [(4, faulty, True)] if faulty != 5 else []
        assert found[0]["faults"] == [(3, faulty, False), *named]


def test_a_rank_that_errs_once_stays(tmp_path):
    """Its share is left out of the step, even if it is not finite, except under AMP."""
    code, one = BinaryCode(N, stragglers=1), functools.partial(times, faulty=2, since=4, until=5)
    errs = [one(1.5), one(math.nan), one(math.nan)]
    states = [(), (), (torch.amp.GradScaler("cpu"),)]
    trains = [audited(code, 10, 4, each, state) for each, state in zip(errs, states, strict=True)]
    *found, scaled = launch_each(tmp_path, trains)
    for each in found:
        check_audited(each, 10, range(N))
        assert each[0]["faults"] == [(4, 2, False)]
        assert sum(rank["computed"] for rank in each.values()) > 10 * N
    for rank in scaled.values():
        assert math.isnan(rank["errors"][4])
        assert rank["faults"] == []


def test_a_rank_whose_parameters_are_wrong_gets_those_of_the_others(tmp_path):
    @torch.no_grad()
    def erring(rank, step, module, apart):
        if (rank, step, apart) == (3, 6, None):
            module[2].weight[0, 5] += 1e-6

    found = launch(tmp_path, audited(BinaryCode(N, stragglers=1), 12, 4, erring))
    for rank, each in found.items():
        assert isinstance(each, dict), each
        assert each["left out"] == (rank == 3)
        assert np.array_equal(each["theta"], found[0]["theta"])
        assert each["ranks"] == list(range(N))
        assert each["faults"] == [(8, 3, True)]


def sums_wrongly(how, many, faulty=3, since=4):
    """Return an `erring` that spoils `many` sums of one rank, before sending or for it alone."""

    def erring(rank, step, module, apart):
        if (rank, step, apart) != (faulty, since, True) or hasattr(View, "left"):
            return
        whole, View.left = View.sum, many

        def wrong(view, tensor, patience=None):
            errs = View.left > 0 and tensor.numel() > 700 and tensor.dtype == torch.float32
            View.left -= errs
            if errs and how == "sent":
                tensor[100] += 1.0
            whole(view, tensor, patience)
            if errs and how == "got":
                tensor[100] += 1.0

        View.sum = wrong

    return erring


def test_a_sum_that_is_wrong_is_made_again_and_who_alone_has_it_is_left_out(tmp_path):
    cases = [("sent", 1), ("got", 1), ("sent", 9), ("got", 9)]
    trains = [audited(BinaryCode(N, stragglers=1), 9, 4, sums_wrongly(*case)) for case in cases]
    each_case = launch_each(tmp_path, trains)
    for (how, many), found in zip(cases, each_case, strict=True):
        if (how, many) == ("sent", 9):
            for error in found.values():
                assert "the sum of gradients is not that of what ranks have sent, twice" in error
            continue
        if many == 9:  # rank 3 errs again, in the same step or in those that follow
            assert "fastgc.errors.CorruptMessageError: " in found.pop(3)
        for rank, each in found.items():
            assert isinstance(each, dict), each
            assert each["left out"] == (how == "got" and rank == 3)
            assert np.array_equal(each["theta"], found[0]["theta"])
            left_out = [step for step, r, out in each["faults"] if (r, out) == (3, True)]
            assert len(left_out) == len(each["faults"]) == (how == "got") * (1 + (many == 9))
            assert left_out[:1] in ([], [4])
            if many == 1:
                assert max(each["errors"]) <= EXACT


def test_two_ranks_that_differ_are_told_that_there_is_no_third(tmp_path):
    found = launch(tmp_path, audited(BinaryCode(2, stragglers=1), 9, 4, times(1.5, 1, 5)), count=2)
    for error in found.values():
        assert "CorruptMessageError: gradients of the same samples differ between ranks" in error


def test_gradients_that_are_drawn_at_random_are_no_ranks_fault(tmp_path):
    def erring(rank, step, module, apart):
        generator = torch.Generator().manual_seed(10 * rank + bool(apart))
        for p in module.parameters():
            if p.grad is not None:
                p.grad *= torch.randint(2, p.shape, generator=generator)

    for error in launch(tmp_path, audited(BinaryCode(N, stragglers=1), 9, 4, erring)).values():
        assert "audit= needs gradients that are the same whoever computes them" in error


def test_a_rank_that_joins_those_who_look_at_another_again(tmp_path):
    """All ranks forget what it cannot know, since they must agree on the steps to audit."""

    def director(ranks):
        ranks.until("dies")
        os.waitpid(ranks.pids.pop(4), 0)
        ranks.start(4)
        ranks.until_back(4)

    def train(rank, store, life):
        def erring(rank, step, module, apart):
            times(1.5, 2, 4, 5)(rank, step, module, apart)
            if step in (5, 6, 7) and apart is None:
                time.sleep(0.3)  # the rank most likely joins during these steps
            if step > 7 and apart is None:
                slowly("after", rank, step, life)
            if (rank, step, apart, life) == (4, 5, False, 0):
                store.set("dies", b"")
                os.kill(os.getpid(), signal.SIGKILL)

        return audited(BinaryCode(N, stragglers=1), 14, 4, erring)(rank, store, life)

    found = launch(tmp_path, train, director)
    for each in found.values():
        assert isinstance(each, dict), each
        assert max(each["errors"]) <= EXACT
        assert each["ranks"] == list(range(N))
        assert np.array_equal(each["theta"], found[0]["theta"])
    assert found[0]["faults"] == [(4, 2, False)]
    assert found[4]["faults"] == []


def test_a_rank_that_is_killed_in_an_audit_costs_no_step(tmp_path):
    def erring(rank, step, module, apart):
        if (rank, step, apart) == (4, 4, True):
            os.kill(os.getpid(), signal.SIGKILL)

    found = launch(tmp_path, audited(BinaryCode(N, stragglers=1), 9, 4, erring))
    check_audited(found, 9, without(4))
    assert found[0]["faults"] == []
    assert found[0]["ranks"] == without(4)


def comparing(code, steps, every, erring, state=()):
    """Return a rank's program with proactive redundancy; it goes on after one of two errs."""

    def train(rank, store, life):
        module, data = net(), samples()
        optimizer = Momentum(module)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        errors, left_out, suspects = [], 0, []
        with CodedAllReduce(
            module,
            code,
            store=store,
            rank=rank,
            sampler=sampler,
            state=[optimizer, *state],
            audit=every,
            deadline=30.0,
            settle=3.0,
        ) as all_reduce:
            batches = loading(data, sampler, 0)
            while (step := all_reduce.step) < steps:
                x, y = next(batches)
                while True:
                    optimizer.zero_grad()
                    loss = losses(module, x, y).sum()
                    loss.backward()
                    erring(rank, step, module, len(suspects))
                    try:
                        (total,) = all_reduce(loss.item())
                        break
                    except LeftOutError:
                        left_out += 1
                        all_reduce.join()
                        batches = loading(data, sampler, 0)
                        x, y = next(batches)
                        step = all_reduce.step
                    except CorruptMessageError as error:
                        if error.suspects == (rank,):
                            raise
                        suspects.append((step, *error.suspects))
                whole, error = whole_and_error(module, step)
                errors.append(error)
                if math.isfinite(errors[-1]):  # as a GradScaler does
                    assert total == pytest.approx(whole, rel=1e-5)
                    optimizer.step()
                erring(rank, step, module, None)
        return {
            "errors": errors,
            "faults": [tuple(each) for each in all_reduce.faults],
            "suspects": suspects,
            "ranks": all_reduce.ranks,
            "theta": flat(module.parameters()).numpy(),
            "left out": left_out,
        }

    return train


def flips(bit, faulty, since, until=math.inf):
    """Return an `erring` that flips a bit of one number in each gradient of a faulty rank."""

    def erring(rank, step, module, apart):
        if rank == faulty and since <= step < until and apart is not None:
            module[0].weight.grad.view(torch.int32)[5, 7] ^= 1 << bit

    return erring


def test_copies_that_differ_are_found_in_the_step_and_it_is_right(tmp_path):
    triple = BinaryCode(N, stragglers=2)
    cases = [
        (triple, 1, flips(22, 3, 5)),
        (FractionalRepetition(N, stragglers=2), 1, flips(30, 0, 5, 6)),
        (triple, 4, times(math.nan, 0, 7)),
        (triple, 1, lambda rank, step, module, apart: None),
    ]
    trains = [comparing(code, 12, *case) for code, *case in cases]
    named, once, every_fourth, honest = launch_each(tmp_path, trains)
    assert "CorruptMessageError: rank 3 computes wrong gradients" in named.pop(3)
    check_audited(named, 12, without(3))
    assert named[0]["faults"] == [(5, 3, False), (6, 3, True)]
    assert named[0]["ranks"] == without(3)
    check_audited(once, 12, range(N))
    assert once[0]["faults"] == [(5, 0, False)]
    assert "CorruptMessageError: rank 0 computes wrong gradients" in every_fourth.pop(0)
    for each in every_fourth.values():
        assert [step for step, error in enumerate(each["errors"]) if not error <= EXACT] == [7]
        assert each["faults"] == [(8, 0, False), (9, 0, True)]
    check_audited(honest, 12, range(N))
    assert honest[0]["faults"] == []


def test_one_of_two_copies_errs_and_the_step_is_done_once_more(tmp_path):
    def once(bit):
        def erring(rank, step, module, seen):
            if seen == 0 and step == 5:
                flips(bit, 2, 5)(rank, step, module, False)

        return erring

    @torch.no_grad()
    def remembers_wrongly(rank, step, module, seen):
        if (rank, step, seen) == (3, 6, None):
            module[2].weight[0, 5] += 1e-3

    code = BinaryCode(N, stragglers=1)
    scaler = (torch.amp.GradScaler("cpu"),)
    trains = [
        comparing(code, 10, 1, once(20)),
        comparing(code, 10, 1, remembers_wrongly),
        comparing(code, 10, 1, times(math.inf, 2, 5, 6), scaler),
    ]
    flipped, other, scaled = launch_each(tmp_path, trains)
    check_audited(flipped, 10, range(N))
    for each in flipped.values():
        assert each["faults"] == []
        assert each["suspects"] == [(5, 2, 3)]
    for rank, each in other.items():
        assert isinstance(each, dict), each
        assert each["left out"] == (rank == 3)
        assert each["faults"] == [(7, 3, True)]
        assert np.array_equal(each["theta"], other[0]["theta"])
    for each in scaled.values():
        assert each["faults"] == each["suspects"] == []
        assert not math.isfinite(each["errors"][5])


# ------------------------------------------------------------------ what ranks have in common


def starts_again(ranks):
    ranks.until("1/5")
    ranks.kill_and_start(0)


def test_a_rank_that_joins_takes_the_batches_of_the_others(tmp_path):
    """Steps may take several batches, and loaders may have taken batches in advance."""
    code = BinaryCode(N, stragglers=1)
    cases = [(1, 0), (2, 0), (1, 2), (3, 2)]
    trains = [training(code, 20, slowly, of=of, ahead=ahead) for of, ahead in cases]
    each_case = launch_each(tmp_path, trains, [starts_again] * len(trains))
    for (of, _), found in zip(cases, each_case, strict=True):
        check(found, 20, of=of)
        assert found[0]["joined"]


class Scaled(Momentum):
    """The optimizer, with the attributes that a GradScaler needs."""

    def __init__(self, module):
        super().__init__(module)
        self.param_groups = [{"params": self.parameters}]


class ScaledLoop:
    """Steps of summed losses; a GradScaler's scale is too large at first, and again later."""

    def __init__(self):
        self.module = net()
        self.optimizer = Scaled(self.module)
        self.optimizer.rate /= BATCH
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)

    def step(self, x, y, reduce=lambda: None):
        self.optimizer.zero_grad()
        self.scaler.scale(BATCH * losses(self.module, x, y).sum()).backward()
        reduce()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale()


def test_a_grad_scaler_skips_the_steps_that_it_skips_in_one_process(tmp_path):
    """All ranks skip them, since their gradients are the same. A new rank gets the scale."""
    code, steps = BinaryCode(N, stragglers=1), 30

    def train(rank, store, life):
        loop, data, scales = ScaledLoop(), samples(), {}
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        options = {"state": [loop.optimizer, loop.scaler], "deadline": 30.0, "settle": 1.5}
        with CodedAllReduce(
            loop.module, code, store=store, rank=rank, sampler=sampler, **options
        ) as all_reduce:
            batches = loading(data, sampler, 0)
            while (step := all_reduce.step) < steps:
                store.set(f"{rank}/{step}", b"")
                time.sleep(0.02)
                scales[step] = loop.step(*next(batches), all_reduce)
        theta = flat(loop.module.parameters()).numpy()
        return {"joined": all_reduce.joined, "scales": scales, "theta": theta}

    found = launch(tmp_path, train, starts_again)
    alone, data = ScaledLoop(), samples()
    truth = {step: alone.step(*data[order(step)]) for step in range(steps)}
    theta = flat(alone.module.parameters()).numpy()
    falls = sum(b < a for a, b in itertools.pairwise([2.0**127, *truth.values()]))
    assert 1 < falls < steps / 2
    assert sorted(found) == list(range(N))
    for each in found.values():
        assert isinstance(each, dict), each
        assert each["scales"] == {step: truth[step] for step in each["scales"]}
        assert np.array_equal(each["theta"], found[0]["theta"])
        assert abs(each["theta"] - theta).max() <= 1e-5 * abs(theta).max()
    assert found[0]["joined"]
    assert len(found[1]["scales"]) == steps


def test_ranks_that_take_other_batches_are_told(tmp_path):
    def train(way, rank, store, life):
        code, odd = BinaryCode(3, stragglers=1), rank == 2
        seed = SEED + (odd and way == "seed")
        sampler = CodedSampler(samples(), code, 6, rank, seed=seed)
        module = net()
        module[0].bias.grad = torch.zeros(32)
        with CodedAllReduce(module, code, store=store, rank=rank, sampler=sampler) as all_reduce:
            batches = iter(sampler)
            for step in range(3):
                next(batches)
                if way == "two" or (odd and way == "one more" and not step):
                    next(batches)
                if way == "ahead":  # like a loader with workers
                    sampler.step += 4 if not step else 1
                all_reduce()

    errors = {
        "seed": "samplers differ between ranks 0 and 2",
        "one more": "batches of the sampler, 1 and 2, differ between ranks 0 and 2",
        "two": "the sampler gave 2 batches for this step, not 1: accumulate=",
        "ahead": "the sampler gave 2 batches for this step, not 1: accumulate=",
    }
    trains = [functools.partial(train, way) for way in errors]
    each_way = launch_each(tmp_path, trains, counts=[3] * len(trains))
    for error, found in zip(errors.values(), each_way, strict=True):
        for each in found.values():
            assert error in each


def in_turns(steps, together):
    """Train two modules in turns, with one `CodedAllReduce` together or one each."""

    def train(rank, store, life):
        code, data, modules = BinaryCode(N, stragglers=1), samples(), [net(), net(8)]
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        options = {"store": store, "rank": rank, "deadline": 10.0}
        with contextlib.ExitStack() as stack:
            if together:
                made = CodedAllReduce(
                    torch.nn.ModuleList(modules), code, sampler=sampler, **options
                )
                reduces = [stack.enter_context(made)] * 2
            else:
                reduces = [stack.enter_context(CodedAllReduce(m, code, **options)) for m in modules]
            batches = (batch for _ in iter(int, 1) for batch in sampler)
            while (step := reduces[0].step) < steps:
                turn = step % 2 if together else 0
                x, y = data[next(batches)]
                for module, reduce in list(zip(modules, reduces, strict=True))[turn:]:
                    for each in modules:
                        each.zero_grad()
                    losses(module, x, y).sum().backward()
                    store.set(f"{rank}/{step}", b"")
                    time.sleep(0.02)
                    reduce()
                    with torch.no_grad():
                        for p in module.parameters():
                            p.sub_(1e-3 * p.grad)
                    if together:
                        break
            joined = reduces[0].joined
        return flat(p for module in modules for p in module.parameters()).numpy(), joined

    return train


def test_modules_that_are_trained_in_turns(tmp_path):
    """With two objects, a new rank would wait in one for ranks that wait in the other."""
    trains = [in_turns(30, True), in_turns(30, False)]
    together, apart = launch_each(tmp_path, trains, [starts_again] * 2)
    for each in together.values():
        assert isinstance(each, tuple), each
        assert np.array_equal(each[0], together[0][0])
    assert [together[rank][1] for rank in range(N)] == [True] + [False] * (N - 1)
    assert "for all modules, CodedAllReduce(torch.nn.ModuleList([a, b])" in apart.pop(0)
    assert sorted(apart) == without(0)
    for each in apart.values():
        assert isinstance(each, tuple), each
        assert np.array_equal(each[0], apart[1][0])


def test_gradients_that_were_zeroed_are_told_from_those_that_were_not(tmp_path):
    def train(way, rank, store, life):
        torch.manual_seed(0)
        module = torch.nn.ParameterList([torch.ones(3), torch.ones(2)])
        with CodedAllReduce(module, Uncoded(2), store=store, rank=rank) as all_reduce:
            for step in range(4):
                for p in module:
                    if way == "none" or (way == "one of two" and p.numel() == 3):
                        p.grad = None
                    elif way in ("in place", "clipped") and p.grad is not None:
                        p.grad.zero_()
                if way == "own" and step:
                    for p in module:
                        if p.grad is not None:
                            p.grad.copy_(torch.ones_like(p))
                else:
                    sum(p.sum() for p in list(module)[: 1 + step % 2]).backward()
                all_reduce()
                if way == "clipped":
                    torch.nn.utils.clip_grad_norm_(module, 1.0)
            return module[0].grad.tolist()

    ways = ["none", "in place", "own", "clipped", "one of two"]
    trains = [functools.partial(train, way) for way in ways]
    for way, found in zip(ways, launch_each(tmp_path, trains, counts=[2] * 5), strict=True):
        for each in found.values():
            assert isinstance(each, list), each
            assert each == pytest.approx([2.0] * 3) or way == "clipped", each


def test_a_gradient_that_was_not_zeroed_is_told_of(tmp_path):
    """For example if a call follows each of several batches."""

    def train(batches, rank, store, life):
        module = net()
        with CodedAllReduce(module, Uncoded(2), store=store, rank=rank) as all_reduce:
            for _ in range(2):
                for _ in range(batches):
                    losses(module, *samples()[:4]).sum().backward()
                all_reduce()

    trains = [functools.partial(train, batches) for batches in (1, 2)]
    for found in launch_each(tmp_path, trains, counts=[2, 2]):
        for each in found.values():
            assert "call zero_grad() after each step" in each


def test_a_first_step_in_less_precision_is_not_refused(tmp_path):
    def train(dtype, rank, store, life):
        code, module, data = BinaryCode(3, stragglers=1), net(256), samples()
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        with CodedAllReduce(module, code, store=store, rank=rank, sampler=sampler) as all_reduce:
            x, y = data[next(iter(sampler))]
            with torch.autocast("cpu", getattr(torch, dtype)):
                loss = ((module(x) - y) ** 2).sum() / BATCH
            loss.backward()
            all_reduce()
            return all_reduce.step

    trains = [functools.partial(train, dtype) for dtype in ("bfloat16", "float16")]
    for found in launch_each(tmp_path, trains, counts=[3, 3]):
        assert found == {0: 1, 1: 1, 2: 1}


def test_a_first_step_that_overflows_leaves_the_look_to_the_next(tmp_path):
    def train(rank, store, life):
        code = BinaryCode(N, stragglers=1)
        module, data = net(), samples()
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        steps = []
        with CodedAllReduce(module, code, store=store, rank=rank, sampler=sampler) as all_reduce:
            batches = iter(sampler)
            for scale in (float("inf"), 1.0):
                x, y = data[next(batches)]
                module.zero_grad()
                (scale * losses(module, x + torch.full((1,), float(rank)), y).sum()).backward()
                try:
                    all_reduce()
                except RuntimeError as error:
                    return steps, str(error)
                steps.append(all_reduce.step)

    for steps, error in launch(tmp_path, train).values():
        assert steps == [1]
        assert "gradients of the same samples differ" in error


def normed(steps, **options):
    """Return the program of ranks whose module has BatchNorm: `forward` changes its buffers."""

    def train(rank, store, life):
        torch.manual_seed(1)
        module = torch.nn.Sequential(
            torch.nn.Linear(20, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
        )
        code, data = FractionalRepetition(N, stragglers=1), samples()
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
        options.setdefault("deadline", 30.0)
        with CodedAllReduce(
            module, code, store=store, rank=rank, sampler=sampler, **options
        ) as all_reduce:
            while all_reduce.step < steps:
                for x, y in loader:
                    if all_reduce.step == steps:
                        break
                    module.zero_grad()
                    losses(module, x, y).sum().backward()
                    store.set(f"{rank}/{all_reduce.step}", b"")
                    time.sleep(0.02)
                    all_reduce()
                    with torch.no_grad():
                        for p in module.parameters():
                            p.sub_(1e-3 * p.grad)
        state = {name: value.tolist() for name, value in module.state_dict().items()}
        return state, all_reduce.joined

    return train


def test_buffers_that_drift_apart_are_told_of(tmp_path):
    for each in launch(tmp_path, normed(2)).values():
        assert "buffers of the module differ between ranks 0 and " in each
        assert "forward changes them by what a rank computes on" in each


def test_the_mean_of_buffers_is_the_same_on_all_ranks(tmp_path):
    """A rank that joins gets the buffers from before the step that it joins in."""
    found = launch(tmp_path, normed(40, buffers="mean"), starts_again)
    assert sorted(found) == list(range(N))
    for each in found.values():
        assert isinstance(each, tuple), each
        assert each[0] == found[0][0]
    assert found[0][0]["1.num_batches_tracked"] == 40
    assert all(0 < x < 10 for x in found[0][0]["1.running_var"])
    assert found[0][1]


MISTAKES = {
    "parameters": "parameters of the module differ between ranks 0 and 4 at the start",
    "module": "sizes of the module differ between ranks 0 and 4",
    "steps": "steps of the module differ between ranks 0 and 4",
    "random": "gradients of the same samples differ between ranks",
    "mean": "gradients of the same samples differ between ranks",
}


def test_ranks_that_do_not_fit_together(tmp_path):
    def train(mistake, rank, store, life):
        code = BinaryCode(N, stragglers=1)
        size = BATCH
        if mistake == "mean":  # found on ranks with more samples than others, or fewer
            code, size = CyclicRepetition(N, stragglers=2), BATCH + 1
        module, odd = net(), rank == 4
        if odd and mistake == "parameters":
            module[0].weight.data[0, 0] += 1e-3
        if odd and mistake == "module":
            module = net(16)
        sampler = CodedSampler(samples(), code, size, rank, seed=SEED)
        sampler.step = int(odd and mistake == "steps")
        with CodedAllReduce(module, code, store=store, rank=rank, sampler=sampler) as all_reduce:
            x, y = samples()[next(iter(sampler))]
            torch.manual_seed(rank)
            if mistake == "random":
                x = x + torch.randn(x.shape)
            loss = losses(module, x, y) * sampler.weights
            (loss.mean() if mistake == "mean" else loss.sum()).backward()
            all_reduce()

    trains = [functools.partial(train, mistake) for mistake in MISTAKES]
    for error, found in zip(MISTAKES.values(), launch_each(tmp_path, trains), strict=True):
        assert sorted(found) == list(range(N))
        for each in found.values():
            assert error in each


def test_reactive_redundancy_takes_no_means(tmp_path):
    """The scale of means would depend on who computes what. Dropout is no mean."""

    def train(what, of, rank, store, life):
        module, data = net(), samples()
        drop = torch.nn.Dropout(0.5 if what == "random" else 0.0)
        code = BinaryCode(3, stragglers=1)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)

        def recompute(indices):
            x, y = data[indices]
            loss = losses(module, drop(x), y)
            (loss.mean() if what == "mean" else loss.sum() / 100).backward()

        with CodedAllReduce(
            module,
            code,
            store=store,
            rank=rank,
            sampler=sampler,
            redundancy="reactive",
            recompute=recompute,
            accumulate=of,
        ) as all_reduce:
            batches = iter(sampler)
            for _ in range(of):
                recompute(next(batches))
            all_reduce()
        return "done"

    cases = list(itertools.product(["mean", "sum", "random"], [1, 2]))
    trains = [functools.partial(train, *case) for case in cases]
    for (what, _), found in zip(cases, launch_each(tmp_path, trains, counts=[3] * 6), strict=True):
        for each in found.values():
            assert ("losses are means" in each) if what == "mean" else each == "done"


def test_what_is_told_before_anything_starts(monkeypatch):
    code = BinaryCode(4, stragglers=1)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "6")
    with pytest.raises(ValueError, match=r"4 workers needs 4 ranks .*--nproc-per-node 4.*, not 6"):
        CodedAllReduce(net(), code)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match=r"no store .* torchrun, or give store="):
        CodedAllReduce(net(), code)
    for wrong, error in [
        ({"sampler": [0]}, "sampler must be a CodedSampler, not list"),
        ({"state": [3]}, "as optimizers have, not int"),
        ({"deadline": 0.0}, "deadline must be positive"),
        ({"settle": "soon"}, "settle must be a real number"),
    ]:
        with pytest.raises((TypeError, ValueError), match=error):
            CodedAllReduce(net(), code, **wrong)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        CodedAllReduce(net, code)
    monkeypatch.delenv("RANK")
    with pytest.raises(RuntimeError, match="no rank: start it by torchrun"):
        CodedAllReduce(net(), code)


def test_the_example_is_the_plain_loop_though_a_rank_is_killed(tmp_path):
    """Each rank has its own agent of torchrun; the process of the last one is killed."""
    pytest.importorskip("sklearn")
    example = Path(__file__).resolve().parents[2] / "docs" / "examples" / "coded_all_reduce.py"
    text, place = example.read_text(encoding="utf-8"), "            optimizer.zero_grad()\n"
    death = "            import os; all_reduce.step == 25 and os.kill(os.getpid(), 9)\n"
    code, ranks = "BinaryCode(6, stragglers=1)", 3  # fewer ranks, as each imports torch
    assert place in text
    assert code in text
    text = text.replace(code, f"BinaryCode({ranks}, stragglers=1)")
    (tmp_path / "lives.py").write_text(text, encoding="utf-8")
    (tmp_path / "dies.py").write_text(text.replace(place, death + place), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # One agent per rank; all are forks of a process that has imported torch.
    program = """
import os, sys
from torch.distributed import run
port, *scripts = sys.argv[1:]
for rank, script in enumerate(scripts):
    if not os.fork():
        where = f"--nnodes={len(scripts)} --node-rank={rank} --nproc-per-node=1"
        run.main([*where.split(), f"--master-port={port}", script])
        os._exit(0)
for _ in scripts:
    os.wait()
"""
    scripts = [str(tmp_path / "lives.py")] * (ranks - 1) + [str(tmp_path / "dies.py")]
    log = tmp_path / "log"
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    with log.open("w") as output:
        agents = subprocess.Popen(
            [sys.executable, "-P", "-c", program, str(port), *scripts],
            stdout=output,
            stderr=output,
            env=environment | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    # Do not wait for the agents' end: they wait minutes for the one whose process was killed.
    try:
        until = time.monotonic() + 2 * SECONDS
        while "60: loss" not in log.read_text() and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agents.pid, signal.SIGKILL)
        agents.wait()
    found = re.findall(r"^(\d+): loss ([\d.]+), ranks (.*)$", log.read_text(), re.M)
    assert [step for step, *_ in found] == ["20", "40", "60"], log.read_text()
    whole = list(range(ranks))
    assert [ranks for *_, ranks in found] == [str(whole), str(whole[:-1]), str(whole[:-1])]
    for (_, mean, _), truth in zip(found, train_on_digits()[0], strict=True):
        assert float(mean) == pytest.approx(truth, abs=2e-4)
