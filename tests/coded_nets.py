"""A small net and its samples, trained by `CodedDataParallel` and by the plain loop."""

import contextlib
import sys

import numpy as np
import pytest

from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, ReedSolomon, Uncoded

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from torch.nn import functional  # noqa: E402

from fastgc.torch import CodedDataParallel  # noqa: E402

# Workers can import a test module only if the checkout happens to be on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N, BATCH, CLASSES = 6, 60, 5


SAMPLES = 200
REAL = [
    BinaryCode(N, stragglers=2),
    FractionalRepetition(N, stragglers=1),
    CyclicRepetition(N, stragglers=2),
    BinaryCode(N, 9, stragglers=1),
    Uncoded(N),
]
COMPLEX = [ReedSolomon(N, stragglers=2), ReedSolomon(N, 9, stragglers=1, packed=False)]


class Net(torch.nn.Module):
    def __init__(self, dropout=0.0, norm=False):
        super().__init__()
        self.first = torch.nn.Linear(20, 16)
        self.norm = torch.nn.BatchNorm1d(16) if norm else torch.nn.Identity()
        self.drop = torch.nn.Dropout(dropout)
        self.last = torch.nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def loss(module, batch):
    x, y = batch
    return functional.cross_entropy(module(x), y, reduction="sum")


def loss_and_hits(module, batch):
    x, y = batch
    found = module(x)
    return functional.cross_entropy(found, y, reduction="sum"), (found.argmax(1) == y).sum()


def samples(dtype=torch.float32, count=SAMPLES):
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.standard_normal((count, 20))).to(dtype)
    return torch.utils.data.TensorDataset(x, torch.from_numpy(rng.integers(0, CLASSES, count)))


def net(*arguments, dtype=torch.float32, **keywords):
    torch.manual_seed(3)
    return Net(*arguments, **keywords).to(dtype)


@contextlib.contextmanager
def coded(module, *arguments, code=REAL[0], data=None, function=loss, **keywords):
    keywords = {"batch_size": BATCH, "engine": "simulated", **keywords}
    data = samples() if data is None else data
    with contextlib.ExitStack() as stack:
        if code in COMPLEX:
            stack.enter_context(pytest.warns(UserWarning, match="complex coefficients"))
        made = CodedDataParallel(module, function, data, code, *arguments, **keywords)
        stack.close()
        stack.enter_context(made)
        yield made


def order(step, count=SAMPLES, seed=0, size=BATCH):
    """Return a step's samples, by the definition in the documentation."""
    epoch, at = divmod(step, count // size)
    return np.random.default_rng((seed, epoch)).permutation(count)[at * size : (at + 1) * size]


def plain_step(module, data, step, scale=1 / BATCH):
    """Return gradients and loss of one step, by one backward pass."""
    found = loss(module, data[order(step, len(data))]) * scale
    found.backward()
    return float(found.detach())


def far(module, other):
    return max(
        float(((a - b).abs().max() / b.abs().max()).detach())
        for a, b in zip(module.parameters(), other.parameters(), strict=True)
    )


def stragglers(round):
    """Return a round's survivors: some workers, in some order."""
    return np.random.default_rng(round).permutation(N)[: N - 1]
