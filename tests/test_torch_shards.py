"""Replicas of several ranks each, over which `fully_shard` has cut the module."""

import os
import signal
import sys
import time

import pytest
from groups_of_ranks import BATCH, EXACT, SEED, launch, losses, net, order, samples

import fastgc

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")

from fastgc.torch import CodedAllReduce, CodedSampler  # noqa: E402

pytestmark = pytest.mark.any_backend
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WIDTH, STEPS = 33, 40  # a width that four ranks cannot share out evenly


def optimizer_of(module):
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


def plain(steps, width=WIDTH):
    """Parameters of the plain loop, after each step."""
    module, data, found = net(width), samples(), []
    optimizer = optimizer_of(module)
    for step in range(steps):
        optimizer.zero_grad()
        losses(module, *data[order(step)]).sum().backward()
        optimizer.step()
        found.append(torch.cat([p.detach().flatten() for p in module.parameters()]).numpy())
    return found


def imports():
    """What takes each rank seconds to import."""
    import torch.distributed.device_mesh
    import torch.distributed.fsdp


def trained(code, shards, steps=STEPS, trouble=None, **options):
    """What a rank does: its replica's part of each batch, of which it takes every so many sample."""

    def train(rank, store, life):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        replica, shard = divmod(rank, shards)
        own = torch.distributed.PrefixStore(f"replica{replica}/{life}", store)
        torch.distributed.init_process_group("gloo", store=own, rank=shard, world_size=shards)
        mesh = init_device_mesh("cpu", (shards,))
        module, data = net(WIDTH), samples()
        for layer in (module[0], module[2], module):
            fully_shard(layer, mesh=mesh)
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
                    mine, weights = batch[shard::shards], sampler.weights[shard::shards]
                    loss = (losses(module, *data[mine]) * weights).sum()
                    (shards * loss).backward()  # fully_shard takes the mean over ranks
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


@pytest.mark.parametrize(
    "code, shards",
    [
        (fastgc.BinaryCode(2, stragglers=1), 4),
        (fastgc.CyclicRepetition(3, stragglers=1, seed=0), 2),
    ],
)
def test_a_replica_that_dies_and_one_that_joins(code, shards, tmp_path):
    def trouble(store, rank, step, life):
        if life == 0 and step == 5 and rank == 1:  # a part of the first replica
            os.kill(os.getpid(), signal.SIGKILL)
        if life == 0 and step >= 8:
            store.wait([f"comes/{r}/1" for r in range(shards)])
            time.sleep(0.05)

    def director(ranks):
        for rank in range(shards):  # the others of its replica end by themselves
            os.waitpid(ranks.pids[rank], 0)
            (ranks.folder / f"{rank}").unlink(missing_ok=True)
        for rank in range(shards):
            ranks.start(rank)

    count = shards * code.n
    results = launch(tmp_path, trained(code, shards, trouble=trouble), director, count, imports)
    check(results, range(count))
    assert all(results[rank]["joined"] for rank in range(shards))
    assert len({tuple(results[rank]["found"]) for rank in range(shards)}) == 1
