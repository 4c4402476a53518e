"""`coded_ddp`: the backward pass of a DistributedDataParallel, whoever is killed in it.

Ranks are those of `groups_of_ranks`.
"""

import contextlib
import functools
import itertools
import os
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
import strength

from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, LeftOutError, ReedSolomon

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
import groups_of_ranks as ranks  # noqa: E402
from groups_of_ranks import (  # noqa: E402
    BATCH,
    EXACT,
    SEED,
    Momentum,
    N,
    flat,
    here,
    losses,
    samples,
    slowly,
    wait_until_back,
    whole_and_error,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from fastgc.torch import CodedSampler, coded_ddp  # noqa: E402
from fastgc.torch.ddp import ranges as ranges_of  # noqa: E402
from fastgc.torch.membership import BrokenGroupError, View  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
CAP, PARTS = 4096, 4  # bytes of a part (one layer), and number of parts


@pytest.fixture(scope="module", autouse=True)
def imports_of_jobs():
    """Import once what DDP imports in seconds, and not in each rank."""
    before = ranks.JOBS
    ranks.JOBS = before.replace("import torch,", "import torch, torch._dynamo,")
    yield
    ranks.JOBS = before


def net():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(m, 32) for m in (20, 32, 32, 32)]
    return torch.nn.Sequential(
        *itertools.chain.from_iterable((each, torch.nn.Tanh()) for each in layers),
        torch.nn.Linear(32, 1),
    )


def group_of_one():
    """Make the process group that DDP needs."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )


def training(
    code,
    steps,
    trouble=lambda moment, rank, step, life: None,
    of=1,
    settings=None,
    until=lambda coded: coded,
    **options,
):
    """Return a rank's program, which returns its worst step's error and what became of the rank.

    `until` makes the context in which it trains.
    """

    def train(rank, store, life):
        module, data = net(), samples()
        group_of_one()
        ddp = DistributedDataParallel(module, bucket_cap_mb=CAP / 2**20, **(settings or {}))
        optimizer = Momentum(module)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        worst, left_out, at, recomputed = 0.0, 0, {}, Counter()
        given = {"deadline": 30.0, "settle": 3.0, "store": store, "rank": rank, **options}
        if options.get("redundancy") == "reactive":

            def recompute(lost):
                recomputed[at["step"]] += len(lost)
                trouble("recompute", rank, at["step"], life)
                losses(ddp, *data[lost]).sum().backward()

            given["recompute"] = recompute

        def within(gradient):
            trouble("within", rank, at.get("step"), life)

        module[4].weight.register_hook(within)

        with until(
            coded_ddp(ddp, code, sampler=sampler, accumulate=of, state=[optimizer], **given)
        ) as coded:
            joined = coded.joined
            store.set(f"{rank}/life/{life}", b"")
            while (step := coded.step) < steps:
                optimizer.zero_grad()
                at["step"] = step
                store.set(f"{rank}/{step}", b"")
                trouble("before", rank, step, life)
                try:
                    for each in range(of):
                        with ddp.no_sync() if each < of - 1 else contextlib.nullcontext():
                            x, y = next(batches)
                            (losses(ddp, x, y) * sampler.weights).sum().backward()
                except LeftOutError:
                    left_out += 1
                    coded.join()
                    batches = itertools.chain.from_iterable(itertools.repeat(loader))
                    continue
                at.clear()
                trouble("after", rank, step, life)
                worst = max(worst, whole_and_error(module, step, of)[1])
                optimizer.step()
        return {
            "worst": worst,
            "steps": coded.step,
            "theta": flat(module.parameters()).numpy(),
            "momentum": flat(optimizer.momentum).numpy(),
            "ranks": coded.ranks,
            "joined": joined,
            "left out": left_out,
            "recomputed": dict(recomputed),
        }

    return train


check = functools.partial(ranks.check, make=net)


def test_ranges_are_all_parameters_the_last_first():
    parameters = [torch.zeros(size) for size in (5, 1, 3, 2, 2)]
    assert ranges_of(parameters, 1) == [
        (11, slice(4, 5)),
        (9, slice(3, 4)),
        (6, slice(2, 3)),
        (5, slice(1, 2)),
        (0, slice(0, 1)),
    ]
    assert ranges_of(parameters, 4 * 4) == [(9, slice(3, 5)), (5, slice(1, 3)), (0, slice(0, 1))]
    assert ranges_of(parameters, 10**6) == [(0, slice(0, 5))]


def test_steps_are_those_of_the_whole_batch(tmp_path):
    binary = BinaryCode(N, stragglers=2)
    trains = [
        training(binary, 8),
        training(CyclicRepetition(N, stragglers=2), 8),
        training(FractionalRepetition(N, stragglers=1), 8, of=2),
        training(binary, 8, settings={"gradient_as_bucket_view": True}),
        training(binary, 8, of=2, redundancy="reactive"),
    ]
    for found, of in zip(ranks.launch_each(tmp_path, trains), (1, 1, 2, 1, 2), strict=True):
        check(found, 8, of=of)
    assert all(each["recomputed"] == {0: 2 * BATCH // N} for each in found.values())  # in halves


@pytest.mark.parametrize("redundancy", ["proactive", "reactive"])
def test_a_rank_that_is_killed_costs_no_step(redundancy, tmp_path):
    """In the first step, which is a trial, in the second, and later."""
    code = BinaryCode(N, stragglers=1)
    cases = [("within", 0), ("within", 1), ("within", 5), ("before", 0), ("after", 1)]
    if strength.LONG:
        cases = list(itertools.product(["before", "within", "after"], [0, 1, 5]))
    trains = [training(code, 8, ranks.kill(2, case), redundancy=redundancy) for case in cases]
    for (moment, step), found in zip(cases, ranks.launch_each(tmp_path, trains), strict=True):
        check(found, 8, ranks=ranks.without(2))
        assert all(each["ranks"] == ranks.without(2) for each in found.values())
        recomputed = sum((Counter(each["recomputed"]) for each in found.values()), Counter())
        if redundancy == "proactive":
            assert not recomputed
            continue
        # The first step computes once more what the ranks that are there have, in halves.
        died = step + (moment == "after")
        assert recomputed[0] == (BATCH * (N - 1) // N if died else BATCH + BATCH // N)
        assert recomputed.total() - recomputed[0] == (BATCH // N if died else 0)


def test_ranks_that_die_while_others_are_recomputed_and_come_back(tmp_path):
    """With gradients in DDP's buckets, and of two batches a step."""

    def trouble(moment, rank, step, life):
        slowly(moment, rank, step, life)
        third = (moment, step) == ("recompute", 6) and here[0].add("recompute", 1) == 1
        if third:
            here[0].set("third", f"{rank}")
        if third or (rank in (0, 1) and not life and (moment, step) == ("within", 6)):
            os.kill(os.getpid(), signal.SIGKILL)

    def director(ranks):
        ranks.until("third")
        dead = [0, 1, int(ranks.store.get("third"))]
        for rank in dead:
            os.waitpid(ranks.pids[rank], 0)
            ranks.start(rank)
        ranks.until_back(*dead)

    code = CyclicRepetition(N, stragglers=3)
    settings = {"gradient_as_bucket_view": True}
    train = training(code, 30, trouble, of=2, settings=settings, redundancy="reactive")
    found = ranks.launch(tmp_path, train, director)
    check(found, 30, of=2)
    assert found[0]["joined"]
    assert found[1]["joined"]
    assert sum(each["joined"] for each in found.values()) == 3
    assert any(step for each in found.values() for step in each["recomputed"])


def test_ranks_that_know_each_other_sum_up_while_the_backward_pass_runs(tmp_path):
    """With reactive redundancy, the first step ends after the backward pass, and no other does."""

    def train(rank, store, life):
        summed, names = View.sum, []

        def named(view, tensor, patience=None):
            if tensor.is_floating_point() and tensor.numel() > 1:
                names.append(threading.current_thread().name)
            summed(view, tensor, patience)

        View.sum = named
        train = training(BinaryCode(N, stragglers=1), 4, redundancy="reactive")
        return {**train(rank, store, life), "names": names}

    found = ranks.launch(tmp_path, train)
    check(found, 4)
    for each in found.values():
        assert each["names"] == ["MainThread"] + ["fastgc-ddp"] * (3 * PARTS)


def test_an_error_of_recompute_is_told_by_backward(tmp_path):
    def trouble(moment, rank, step, life):
        if (moment, rank, step) == ("within", 2, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        if (moment, step) == ("recompute", 3):
            raise ArithmeticError("of the script")

    code = BinaryCode(N, stragglers=2)
    train = training(code, 8, trouble, redundancy="reactive", deadline=2.0, settle=0.3)
    found = ranks.launch(tmp_path, train)
    assert sorted(found) == ranks.without(2)
    assert sum("ArithmeticError: of the script" in str(each) for each in found.values()) >= 1


def test_who_has_a_result_gives_it_to_those_who_have_not(tmp_path):
    """Ranks 2 and 5 lose the last part of a step that the others have, who are a step ahead."""

    def train(rank, store, life):
        summed, calls = View.sum, []

        def lost(view, tensor, patience=None):
            summed(view, tensor, patience)
            if tensor.is_floating_point() and tensor.numel() > 1:
                calls.append(tensor.numel())
                if rank in (2, 5) and len(calls) == PARTS * 4 + 1:
                    view.leave()
                    raise BrokenGroupError

        View.sum = lost
        found = training(BinaryCode(N, stragglers=1), 6)(rank, store, life)
        return {**found, "calls": calls} if isinstance(found, dict) else found

    found = ranks.launch(tmp_path, train)
    check(found, 6)
    for each in found.values():
        own = each["calls"]
        assert own[PARTS] == sum(own[:PARTS])  # the first step is tested as a whole
        del own[PARTS]
        ended = own[: 4 * PARTS] + own[-2 * PARTS :]  # parts between may have been broken off
        assert ended == own[:PARTS] * 6


def test_ranks_killed_at_random_instants_come_back(tmp_path, monkeypatch):
    deaths, between = 30 if strength.LONG else 2, 20
    monkeypatch.setattr(ranks, "SECONDS", 60.0 + 10.0 * deaths)

    def director(ranks):
        rng = np.random.default_rng(1)
        for death in range(deaths):
            rank = int(rng.integers(N))
            ranks.until(f"{rank}/{10 + between * death}")
            time.sleep(0.1 * rng.random())
            # Before or after the others notice.
            ranks.kill_and_start(rank, after=rng.choice([0.0, 0.5]))

    steps = 20 + between * (deaths + 1)
    trains = [
        training(BinaryCode(N, stragglers=1), steps, slowly, redundancy=redundancy)
        for redundancy in ("proactive", "reactive")
    ]
    for found in ranks.launch_each(tmp_path, trains, [director] * 2):
        check(found, steps)
        assert any(each["joined"] for each in found.values())
        assert all(each["ranks"] == list(range(N)) for each in found.values())


@pytest.mark.parametrize("redundancy", ["proactive", "reactive"])
def test_a_rank_that_is_left_out_is_told_by_backward_and_joins(redundancy, tmp_path):
    def late(moment, rank, step, life):
        if (moment, rank, step) == ("within", 3, 5):
            time.sleep(2.0)
        elif moment == "before" and step > 5:
            wait_until_back(here[0], rank == 3)

    options = {"deadline": 0.7, "settle": 0.3, "redundancy": redundancy}
    train = training(BinaryCode(N, stragglers=1), 40, late, **options)
    found = ranks.launch(tmp_path, train)
    check(found, 40)
    assert [found[rank]["left out"] for rank in range(N)] == [0, 0, 0, 1, 0, 0]


def test_too_many_deaths_are_told_by_backward(tmp_path):
    def trouble(moment, rank, step, life):
        if (moment, step) == ("within", 3) and rank in (0, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    train = training(BinaryCode(N, stragglers=1), 8, trouble, deadline=1.0)
    found = ranks.launch(tmp_path, train)
    assert sorted(found) == [2, 3, 4, 5]
    for each in found.values():
        assert "NotDecodableError: too many ranks are gone (0, 1)" in each


def test_a_backward_pass_that_raises_midway_leaves_nothing_running(tmp_path):
    """The rank leaves, by the error or by `close`, and the others go on without it."""

    def trouble(moment, rank, step, life):
        if (moment, rank, step) == ("within", 2, 3):
            raise ArithmeticError("of the script")

    def train(closes, rank, store, life):
        until = contextlib.closing if closes else (lambda coded: coded)
        try:
            return training(BinaryCode(N, stragglers=1), 8, trouble, until=until)(rank, store, life)
        except ArithmeticError as error:
            there = [each for each in threading.enumerate() if each.name == "fastgc-ddp"]
            for each in there:
                each.join(10.0)
            return str(error), len(there), sum(each.is_alive() for each in there)

    trains = [functools.partial(train, closes) for closes in (False, True)]
    for found in ranks.launch_each(tmp_path, trains):
        said = found.pop(2)
        assert said[0] == "of the script"
        assert said[2] == 0
        check(found, 8, ranks=ranks.without(2))


def test_a_gradient_that_was_not_zeroed_is_told_of(tmp_path):
    def train(rank, store, life):
        group_of_one()
        module, data = net(), samples()
        ddp = DistributedDataParallel(module, bucket_cap_mb=CAP / 2**20)
        code = BinaryCode(N, stragglers=1)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        said = []
        with coded_ddp(ddp, code, sampler=sampler, store=store, rank=rank) as coded:
            for step, indices in enumerate(sampler):
                if step != 1:
                    module.zero_grad(set_to_none=step != 2)
                try:
                    losses(ddp, *data[indices]).sum().backward()
                except RuntimeError as error:
                    said.append((step, str(error)))
        return said, coded.step

    for said, steps in ranks.launch(tmp_path, train).values():
        assert [(step, text[:39]) for step, text in said] == [
            (1, ".grad still holds the gradient of the l")
        ]
        assert steps == ranks.PER_EPOCH - 1


def test_parameters_that_ddp_leaves_out_are_told_of(tmp_path):
    def train(rank, store, life):
        group_of_one()
        module, data = net(), samples()
        # Scripts use this private name, as there is no public one.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["2.bias"])
        ddp = DistributedDataParallel(module, bucket_cap_mb=CAP / 2**20)
        with coded_ddp(ddp, BinaryCode(N, stragglers=1), store=store, rank=rank):
            losses(ddp, *data[range(BATCH)]).sum().backward()

    for said in ranks.launch(tmp_path, train).values():
        assert "RuntimeError: DistributedDataParallel leaves out parameters" in said


class Layouts(torch.nn.Module):
    """Parameters that are not row by row in memory, have gaps there, or one element or none."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.convolved = torch.nn.Conv2d(4, 3, 2).to(memory_format=torch.channels_last)
        self.turned = torch.nn.Parameter(torch.randn(4, 12).T)
        self.gaps = torch.nn.Parameter(torch.randn(4, 6)[:, ::2])
        self.scale, self.none = (torch.nn.Parameter(torch.ones(s)) for s in ((), (0, 2)))

    def forward(self, x):
        x = self.convolved(x.reshape(-1, 4, 1, 5).expand(-1, 4, 3, 5)).flatten(1)[:, :12]
        return (x @ self.turned @ self.gaps * self.scale)[:, :1] + self.none.sum()


def test_gradients_are_right_whatever_parameters_are_in_memory(tmp_path):
    def train(settings, rank, store, life):
        group_of_one()
        module, data, errors = Layouts(), samples(), []
        ddp = DistributedDataParallel(module, **settings)
        code = BinaryCode(3, stragglers=1)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        with coded_ddp(ddp, code, sampler=sampler, store=store, rank=rank) as coded:
            for own in sampler:
                module.zero_grad()
                losses(ddp, *data[own]).sum().backward()
                errors.append(whole_and_error(module, coded.step - 1)[1])
        return errors

    trains = [functools.partial(train, each) for each in ({}, {"gradient_as_bucket_view": True})]
    for found in ranks.launch_each(tmp_path, trains, counts=[3, 3]):
        for errors in found.values():
            assert len(errors) == ranks.PER_EPOCH
            assert max(errors) <= EXACT


REFUSED = ["find_unused_parameters", "static_graph"]


def test_what_does_not_fit_is_told_before_anything_starts(tmp_path):
    def train(rank, store, life):
        code, said = BinaryCode(N, stragglers=1), {}

        def told(what, call):
            try:
                call()
            except (TypeError, ValueError, RuntimeError) as error:
                said[what] = f"{type(error).__name__}: {error}"

        os.environ |= {"RANK": "2", "WORLD_SIZE": f"{N}"}
        group_of_one()
        told("plain", lambda: coded_ddp(net(), code))
        for option in REFUSED:
            ddp = DistributedDataParallel(net(), **{option: True})
            told(option, lambda ddp=ddp: coded_ddp(ddp, code))
        sparse = torch.nn.ModuleDict({"words": torch.nn.Embedding(4, 2, sparse=True)})
        told("sparse", lambda: coded_ddp(DistributedDataParallel(sparse), code))
        ddp = DistributedDataParallel(net())
        told("store", lambda: coded_ddp(ddp, code))
        told("complex", lambda: coded_ddp(ddp, ReedSolomon(N, stragglers=2)))
        told("ranks", lambda: coded_ddp(ddp, BinaryCode(4, stragglers=1)))
        # torchrun's rank, not the rank in DDP's group.
        said["samples"] = next(iter(CodedSampler(range(N), code, N, order=range(N))))
        for rank in (0, 2):
            sampler = CodedSampler(range(N), code, N, rank, order=range(N))
            said[f"samples of {rank}"] = next(iter(sampler))
        return said

    (said,) = ranks.launch(tmp_path, train, count=1).values()
    assert isinstance(said, dict), said
    assert said["plain"] == "TypeError: ddp must be a DistributedDataParallel, not Sequential"
    for option in REFUSED:
        assert f"ValueError: DistributedDataParallel({option}=...)" in said[option]
        assert "leave it out, or call a CodedAllReduce" in said[option]
    assert said["sparse"].startswith("ValueError: module words has sparse gradients")
    assert said["store"].startswith("RuntimeError: there is no store")
    assert "ReedSolomon has complex coefficients" in said["complex"]
    assert "a code of 4 workers needs 4 ranks" in said["ranks"]
    assert said["samples"] == said["samples of 2"] != said["samples of 0"]


def test_a_group_of_several_is_refused(tmp_path):
    def train(rank, store, life):
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.PrefixStore("ddp", store), rank=rank, world_size=2
        )
        ddp = DistributedDataParallel(net())
        try:
            coded_ddp(ddp, BinaryCode(2, stragglers=1), store=store, rank=rank)
        except ValueError as error:
            return str(error)

    for said in ranks.launch(tmp_path, train, count=2).values():
        assert said.startswith("the process group of ddp has 2 members, of which none may die")
