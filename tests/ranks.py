"""Ranks of `fastgc.torch.ReactiveDataParallel` that are threads of this process, for tests."""

import threading
import time

import torch

from fastgc.torch.coordinator import Server

SAMPLES, BATCH, STEPS = 90, 24, 8
SECONDS = 60.0
generator = torch.Generator().manual_seed(0)
X = torch.randn(SAMPLES, 5, generator=generator)
Y = torch.randn(SAMPLES, 1, generator=generator)


class DeadError(Exception):
    """A rank dies: its sockets close."""


def batch(step):
    return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))[:BATCH]


def net(norm=False):
    made = [torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
    if norm:
        made.insert(1, torch.nn.BatchNorm1d(8))
    drawn = torch.Generator().manual_seed(1)
    module = torch.nn.Sequential(*made)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=drawn))
    return module


def loss(module, indices):
    return ((module(X[indices]) - Y[indices]) ** 2).sum()


def flat(tensors):
    return torch.cat([each.detach().ravel() for each in tensors])


def plain(steps=STEPS, calls=1):
    """Return the weights after the same training in one process."""
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n))
    for step in range(steps):
        optimizer.zero_grad()
        for call in range(calls):
            (loss(module, batch(calls * step + call)) / BATCH).backward()
        optimizer.step()
        schedule.step()
    return flat(module.parameters())


class Ranks:
    """Threads that call ``run(rank, life, options)``; `results`: what they return or raise."""

    def __init__(self, count, run, **options):
        self.server = Server("127.0.0.1").start()
        self.options = {"store": f"127.0.0.1:{self.server.port}", "ranks": count, "hang": 20.0}
        self.options |= options
        self.run, self.results, self.threads = run, {}, []
        for rank in range(count):
            self.start(rank)

    def start(self, rank, life=0):
        def call():
            try:
                self.results[rank, life] = self.run(rank, life, self.options | {"rank": rank})
            except Exception as error:
                self.results[rank, life] = error
                if isinstance(error, DeadError):
                    self.start(rank, life + 1)

        thread = threading.Thread(target=call, daemon=True)
        self.threads.append(thread)
        thread.start()

    def end(self):
        end = time.monotonic() + SECONDS
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
            assert not thread.is_alive(), "a rank hangs"
        self.server.close()
        return self.results
