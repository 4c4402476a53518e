"""Whole trainings by `fastgc.torch.CodedDataParallel`, whose workers are killed at random."""

import contextlib
import os
import signal
import sys
import threading

import numpy as np
import pytest
from worker_processes import pids

from fastgc import (
    BinaryCode,
    Reactive,
)

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from torch.nn import functional  # noqa: E402

from fastgc.torch import CodedDataParallel  # noqa: E402
from fastgc.torch.batches import seed_all  # noqa: E402

# Workers can import a test module only if the checkout happens to be on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N, BATCH, TOKENS, WORDS, CLASSES = 4, 24, 6, 12, 3
STEPS, SEED = 40, 7


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.last = torch.nn.Linear(16, CLASSES)

    def forward(self, tokens):
        return self.last(self.layer(self.words(tokens)).mean(1))


def loss(module, batch):
    tokens, classes = batch
    with torch.autocast("cpu", torch.bfloat16):
        found = module(tokens)
    return functional.cross_entropy(found.float(), classes, reduction="sum")


def sentences(count=96):
    """Return sentences whose class is their most frequent word, so that it can be learned."""
    rng = np.random.default_rng(3)
    classes = rng.integers(0, CLASSES, count)
    tokens = rng.integers(0, WORDS, (count, TOKENS))
    tokens[:, ::2] = classes[:, None]
    return torch.utils.data.TensorDataset(torch.from_numpy(tokens), torch.from_numpy(classes))


def training(steps=STEPS):
    """Return a module, its optimizer and its schedule."""
    torch.manual_seed(1)
    module = Transformer()
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    return module, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def update(module, optimizer, schedule):
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()


def plain_curve(data):
    """Return the loss of each step on one process, which draws dropout as workers do."""
    module, optimizer, schedule = training()
    for step in range(STEPS):
        epoch, at = divmod(step, len(data) // BATCH)
        order = np.random.default_rng((SEED, epoch)).permutation(len(data))
        found = 0.0
        for j, part in enumerate(np.split(order[at * BATCH : (at + 1) * BATCH], N)):
            seed_all(SEED, step, j)
            one = loss(module, data[part]) / BATCH
            one.backward()
            found += float(one.detach())
        update(module, optimizer, schedule)
        yield found


class Killer:
    """Kills a worker now and then, at random moments of a step."""

    def __init__(self, seed):
        self._rng, self._timers = np.random.default_rng(seed), []

    def maybe(self):
        if self._rng.random() < 0.3:
            self._timers.append(threading.Timer(self._rng.uniform(0.0, 0.02), self._kill))
            self._timers[-1].start()

    def _kill(self):
        if alive := pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(alive), signal.SIGKILL)

    def join(self):
        for each in self._timers:
            each.join()


def trained(code, parts, data, steps, state=None, survivors=None):
    """Train while workers are killed; return losses, messages, deaths, and the last state."""
    first = 0
    if state is not None:
        for each, of in zip(parts, state, strict=False):
            each.load_state_dict(of)
        first = state[-1]["batches"]["step"]
    with CodedDataParallel(
        parts[0],
        loss,
        data,
        code,
        batch_size=BATCH,
        seed=SEED,
        first_round=first,
        survivors=survivors,
        patience=60.0,
    ) as coded:
        if state is not None:
            coded.load_state_dict(state[-1])
        losses, received, deaths = [], [], 0
        killer = Killer(first)
        while coded.step < steps:
            killer.maybe()
            result = coded.backward()
            update(*parts)
            losses.append(result.loss)
            received.append(result.report.received)
            deaths = result.report.deaths
        killer.join()
        return losses, received, deaths, [each.state_dict() for each in (*parts, coded)]


@pytest.mark.parametrize("code", [BinaryCode(N, stragglers=1), Reactive(N, holders=2)], ids=repr)
def test_a_transformer_trains_as_on_one_process_and_goes_on_to_the_bit(tmp_path, code):
    """With dropout, AdamW, a cosine schedule, clipping and autocast, whoever dies meanwhile."""
    data = sentences()
    parts = training()
    losses, received, deaths, _ = trained(code, parts, data, STEPS)
    assert deaths > 0
    expected = list(plain_curve(data))
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
    assert np.mean(losses[-5:]) < 0.5 * losses[0]  # the module learns

    again, half = training(), STEPS // 2
    *_, state = trained(code, again, data, half, survivors=received.__getitem__)
    torch.save(state, tmp_path / "run.pt")
    resumed = training()
    state = torch.load(tmp_path / "run.pt")
    rest, _, deaths, _ = trained(code, resumed, data, STEPS, state, received.__getitem__)
    assert deaths > 0
    assert rest == losses[half:]
    for p, q in zip(resumed[0].parameters(), parts[0].parameters(), strict=True):
        assert torch.equal(p, q)
