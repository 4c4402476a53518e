"""Replicas of several ranks each, among which `fully_shard` splits the module."""

import contextlib
import importlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
from groups_of_ranks import BATCH, EXACT, SECONDS, SEED, launch, losses, net, order, samples

import fastgc

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")

from fastgc.errors import FinishedError  # noqa: E402
from fastgc.torch import CodedAllReduce, CodedSampler, shards  # noqa: E402
from fastgc.torch.shards import Admission  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])

WIDTH, STEPS = 33, 40  # four ranks cannot split this width evenly


def optimizer_of(module):
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


def plain(steps, width=WIDTH):
    """Return the parameters of the plain loop after each step."""
    module, data, found = net(width), samples(), []
    optimizer = optimizer_of(module)
    for step in range(steps):
        optimizer.zero_grad()
        losses(module, *data[order(step)]).sum().backward()
        optimizer.step()
        found.append(torch.cat([p.detach().flatten() for p in module.parameters()]).numpy())
    return found


def imports():
    """Import once what would take each rank seconds."""
    for name in ("torch._dynamo", "torch.distributed.device_mesh", "torch.distributed.fsdp"):
        importlib.import_module(name)


def start_replica(store, rank, life, count):
    replica, shard = divmod(rank, count)
    own = torch.distributed.PrefixStore(f"replica{replica}/{life}", store)
    torch.distributed.init_process_group("gloo", store=own, rank=shard, world_size=count)


def cut(module, count):
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (count,))
    for layer in (module[0], module[2], module):
        torch.distributed.fsdp.fully_shard(layer, mesh=mesh)
    return module


def trained(code, count, steps=STEPS, trouble=None, **options):
    """Return a rank's program: it takes each `count`-th sample of its replica's part of a batch."""

    def train(rank, store, life):
        replica, shard = divmod(rank, count)
        start_replica(store, rank, life, count)
        module, data = cut(net(WIDTH), count), samples()
        optimizer = optimizer_of(module)
        sampler = CodedSampler(data, code, BATCH, replica, seed=SEED)
        store.set(f"comes/{rank}/{life}", "")
        all_reduce = CodedAllReduce(
            module,
            code,
            sampler=sampler,
            state=[optimizer],
            store=store,
            rank=replica,
            replica=torch.distributed.group.WORLD,
            **options,
        )
        found = {}
        with all_reduce:
            while all_reduce.step < steps:
                for batch in sampler:
                    step = all_reduce.step
                    optimizer.zero_grad()
                    mine, weights = batch[shard::count], sampler.weights[shard::count]
                    loss = (losses(module, *data[mine]) * weights).sum()
                    (count * loss).backward()  # fully_shard averages over ranks
                    if trouble is not None:
                        trouble(store, rank, step, life)
                    all_reduce()
                    optimizer.step()
                    whole = [p.detach().full_tensor().flatten() for p in module.parameters()]
                    found[step] = torch.cat(whole).numpy()
                    if all_reduce.step == steps:
                        break
        torch.distributed.destroy_process_group()
        return {"joined": all_reduce.joined, "changes": all_reduce.changes, "found": found}

    return train


def check(results, ranks, steps=STEPS):
    truth = plain(steps)
    assert sorted(results) == sorted(ranks)
    for each in results.values():
        assert isinstance(each, dict), each
        assert max(each["found"]) == steps - 1
        for step, theta in each["found"].items():
            assert abs(theta - truth[step]).max() <= EXACT * abs(truth[step]).max()


class Group:
    """A replica whose ranks are threads; to `fastgc.torch.shards` it is like torch.distributed."""

    def __init__(self, size):
        self.numbers, self.barrier = [None] * size, threading.Barrier(size)

    def of(self, rank):
        return types.SimpleNamespace(rank=rank, whole=self)

    def all_gather(self, found, own, group):
        self.numbers[group.rank] = own
        self.barrier.wait()
        for each, told in zip(found, self.numbers, strict=True):
            each.copy_(told)
        self.barrier.wait()


@pytest.mark.parametrize("seed", range(4))
def test_newcomers_are_let_in_at_one_step_by_one_replica(seed, monkeypatch):
    parts, steps, store = 3, 40, torch.distributed.HashStore()
    running, coming = (0, 1), (2, 3)
    monkeypatch.setattr(
        shards,
        "dist",
        types.SimpleNamespace(
            PrefixStore=torch.distributed.PrefixStore,
            get_rank=lambda group: group.rank,
            get_world_size=lambda group: parts,
            all_gather=lambda found, own, group: group.whole.all_gather(found, own, group),
        ),
    )
    groups = {number: Group(parts) for number in (*running, *coming)}
    sums = [threading.Barrier(len(running)) for _ in range(parts)]
    let_in, answers, lock = [], [], threading.Lock()

    def admission(number, part):
        return Admission(groups[number].of(part), number, store, torch.device("cpu"), 30.0)

    def run(number, part):
        own, rng = admission(number, part), np.random.default_rng((seed, number, part))
        if number in coming:
            time.sleep(0.02 * rng.random())
            answer = own.ask()
            with lock:
                answers.append((number, answer))
            own.require_one_step(answer, answer)
            with pytest.raises(RuntimeError, match="joined at different steps"):
                own.require_one_step(answer + 1, answer)
            return
        for step in range(steps):
            time.sleep(0.002 * rng.random())
            found = own.newcomers(step)
            with lock:
                let_in.extend((each, step, number, part) for each in found)
            sums[part].wait()
            own.note()

    ended = []

    def too_late(own, part):
        with pytest.raises(FinishedError, match="the run has ended"):
            own.ask()
        ended.append(part)

    first = admission(0, 0)
    first.note()  # newcomers then see that others run
    threads = [
        threading.Thread(target=run, args=(number, part))
        for number, part in itertools.product(groups, range(parts))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.end()
    late = [
        threading.Thread(target=too_late, args=(admission(2, part), part)) for part in range(parts)
    ]
    for thread in late:
        thread.start()
    for thread in late:
        thread.join()
    assert sorted(ended) == [0, 1, 2]
    for newcomer in coming:
        by = {(step, number) for each, step, number, _ in let_in if each == newcomer}
        ((step, number),) = by
        assert sorted(let_in)[coming.index(newcomer) * parts :][:parts] == [
            (newcomer, step, number, part) for part in range(parts)
        ]
        assert [at for each, at in answers if each == newcomer] == [step] * parts


def test_a_sum_waits_until_a_newcomer_is_there_with_its_new_life():
    """Others may not have noticed its last death; a newcomer that dies is not awaited."""
    views = iter([(3, [0, 1]), (3, [0, 1]), (4, [1]), (5, [0, 1]), (6, [0, 1])])
    seen = []

    def view():
        seen.append(next(views))
        return types.SimpleNamespace(number=seen[-1][0], ranks=seen[-1][1])

    coded = CodedAllReduce.__new__(CodedAllReduce)
    coded.step = 7
    coded._members = types.SimpleNamespace(view=view, deadline=400.0)
    coded._let_in(types.SimpleNamespace(newcomers={7: [0]}.get))
    assert seen[-1] == (5, [0, 1])
    coded._members = types.SimpleNamespace(
        view=lambda: types.SimpleNamespace(number=3, ranks=[1]), deadline=0.2
    )
    coded._let_in(types.SimpleNamespace(newcomers={7: [0]}.get))


def test_a_rank_whose_part_is_empty(tmp_path):
    """For example if a matrix has fewer rows than the replica has ranks."""
    code = fastgc.BinaryCode(2, stragglers=1)

    def train(rank, store, life):
        start_replica(store, rank, life, 2)
        module = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.ones_(module.weight)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        torch.distributed.fsdp.fully_shard(module, mesh=mesh)
        replica = {"store": store, "rank": rank // 2, "replica": torch.distributed.group.WORLD}
        with CodedAllReduce(module, code, audit=1, **replica) as all_reduce:
            for _ in range(2):
                module.zero_grad()
                (2 * module(torch.ones(1, 3)).sum()).backward()
                all_reduce()
            found = module.weight.grad.full_tensor().tolist()
        here = module.weight.grad.to_local().numel()
        torch.distributed.destroy_process_group()
        return here, found

    results = launch(tmp_path, train, count=4, imports=imports)
    assert results == {r: (0 if r % 2 else 3, [[2.0] * 3]) for r in range(4)}


@pytest.mark.parametrize(
    ("code", "each", "options"),
    [
        (fastgc.BinaryCode(2, stragglers=1), 4, {"audit": 1}),
        (fastgc.CyclicRepetition(3, stragglers=1, seed=0), 2, {}),
    ],
    ids=["two of four", "three of two"],
)
def test_a_replica_that_dies_and_joins_again(code, each, options, tmp_path):
    """Its ranks notice each other's death, and join in the same step."""

    def trouble(store, rank, step, life):
        if life == 0 and step == 5 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if life == 0 and step >= 8:
            store.wait([f"comes/{r}/1" for r in range(each)])
            time.sleep(0.05)

    def director(ranks):
        for rank in range(each):  # the replica's other ranks end by themselves
            os.waitpid(ranks.pids[rank], 0)
            (ranks.folder / f"{rank}").unlink(missing_ok=True)
        for rank in range(each):
            ranks.start(rank)

    train, count = trained(code, each, trouble=trouble, **options), each * code.n
    results = launch(tmp_path, train, director, count, imports)
    check(results, range(count))
    assert all(results[rank]["joined"] for rank in range(each))
    assert len({tuple(results[rank]["found"]) for rank in range(each)}) == 1


def test_what_is_no_replica_is_refused(tmp_path):
    code = fastgc.BinaryCode(1, stragglers=0)

    def train(rank, store, life):
        start_replica(store, rank, life, 2)
        world, found = torch.distributed.group.WORLD, []
        group = torch.distributed.new_group([rank], use_local_synchronization=True)
        given = {"store": store, "rank": 0, "replica": world}
        whole, parts = net(WIDTH), cut(net(WIDTH), 2)
        for module, changed in (
            (whole, {}),
            (parts, {"replica": None}),
            (parts, {"replica": group}),
            (parts, {"rank": None}),
            (parts, {"store": None}),
            (parts, {"redundancy": "reactive"}),
            (parts, {"deadline": "auto"}),
        ):
            try:
                CodedAllReduce(module, code, **given | changed)
            except (TypeError, ValueError) as error:
                found.append(f"{type(error).__name__}: {error}")
        with CodedAllReduce(parts, code, **given) as all_reduce:
            try:
                all_reduce.join()
            except RuntimeError as error:
                found.append(str(error))
        torch.distributed.destroy_process_group()
        return found

    results = launch(tmp_path, train, count=2, imports=imports)
    for found in results.values():
        assert [bool(each) for each in found] == [True] * 8, found
        for message, expected in zip(
            found,
            (
                "ValueError: replica= is for a module that fully_shard has cut, and a parameter of",
                "TypeError: parameter 0.weight is a part of one that several processes share",
                "ValueError: a parameter of shape (33, 20) is cut over ranks [0, 1], and the",
                "TypeError: replica= takes rank=, the number of this replica, and store=",
                "TypeError: replica= takes rank=, the number of this replica, and store=",
                'ValueError: replica= takes redundancy="proactive"',
                "ValueError: replica= takes a deadline in seconds",
                "a rank of a replica cannot join again by itself",
            ),
            strict=True,
        ):
            assert message.startswith(expected)


def test_the_example_goes_on_when_a_rank_of_a_replica_is_killed(tmp_path):
    pytest.importorskip("sklearn")
    example = Path(__file__).resolve().parents[2] / "docs" / "examples" / "coded_replicas.py"
    text, place = example.read_text(encoding="utf-8"), "            optimizer.zero_grad()\n"
    death = (
        "            (rank, all_reduce.step) == (1, 25) and os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert place in text
    (tmp_path / "dies.py").write_text(text.replace(place, death + place), encoding="utf-8")
    with contextlib.ExitStack() as free:
        ports = []
        for _ in range(3):
            found = free.enter_context(socket.socket())
            found.bind(("127.0.0.1", 0))
            ports.append(found.getsockname()[1])
    drop = ("RANK", "WORLD_SIZE")
    environment = {k: v for k, v in os.environ.items() if k not in drop}
    environment |= {"OMP_NUM_THREADS": "1", "STORE_PORT": str(ports[0])}
    run = [sys.executable, "-P", "-m", "torch.distributed.run", "--nproc-per-node=2"]
    logs = [tmp_path / f"log{number}" for number in range(3)]
    commands = [[sys.executable, "-P", str(example), "store"]] + [
        [*run, f"--master-port={ports[1 + replica]}", str(script)]
        for replica, script in enumerate((tmp_path / "dies.py", example))
    ]
    started = []
    try:
        for number, (log, command) in enumerate(zip(logs, commands, strict=True)):
            with log.open("w") as output:
                started.append(
                    subprocess.Popen(
                        command,
                        stdout=output,
                        stderr=output,
                        env=environment | {"REPLICA": str(number - 1)},
                        start_new_session=True,
                    )
                )
        assert started[2].wait(2 * SECONDS) == 0, logs[2].read_text()
        assert started[1].wait(SECONDS) != 0
    finally:
        for each in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
    told = re.findall(r"^(\d+): replicas (.*)$", logs[2].read_text(), re.M)
    assert told == [("20", "[0, 1]"), ("40", "[1]"), ("60", "[1]")]
