"""A network that `fully_shard` cuts over the ranks of a replica; any one replica may die.

Each replica is a job of torchrun, which starts all of its ranks again if one dies:

    python coded_replicas.py store &
    REPLICA=0 torchrun --nproc-per-node 2 --master-port 29501 --max-restarts 9 coded_replicas.py &
    REPLICA=1 torchrun --nproc-per-node 2 --master-port 29502 --max-restarts 9 coded_replicas.py
"""

import contextlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import CodedAllReduce, CodedSampler

BATCH, STEPS = 240, 60
HOST, PORT = os.environ.get("STORE_HOST", "127.0.0.1"), int(os.environ.get("STORE_PORT", 29400))

if sys.argv[1:] == ["store"]:  # by which replicas find each other: it must outlive all of them
    store = dist.TCPStore(HOST, PORT, is_master=True, wait_for_workers=False)
    signal.pause()

replica = int(os.environ["REPLICA"])
store = dist.TCPStore(HOST, PORT, is_master=False)
dist.init_process_group("gloo")  # the ranks of this replica; on GPUs "cpu:gloo,cuda:nccl"
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
x, y = torch.from_numpy(digits.X_train).float(), torch.from_numpy(digits.y_train).long()
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
code = fastgc.BinaryCode(2, stragglers=1)  # a worker is a replica
sampler = CodedSampler(x, code, BATCH, rank=replica)

options = {"store": store, "rank": replica, "replica": dist.group.WORLD}
with (
    contextlib.suppress(fastgc.FinishedError),  # of a replica that starts again too late
    CodedAllReduce(model, code, sampler=sampler, state=[optimizer], **options) as all_reduce,
):
    while all_reduce.step < STEPS:
        for batch in sampler:
            own = batch[rank::ranks]  # of the replica's samples
            optimizer.zero_grad()
            loss = cross_entropy(model(x[own]), y[own], reduction="sum") / BATCH
            (ranks * loss).backward()  # fully_shard takes the mean over the replica's ranks
            all_reduce()  # every .grad: this rank's part of that of all 240 samples
            optimizer.step()
            if all_reduce.step % 20 == 0 and rank == 0:
                print(f"{all_reduce.step}: replicas {all_reduce.ranks}", flush=True)
            if all_reduce.step == STEPS:
                break
dist.destroy_process_group()
