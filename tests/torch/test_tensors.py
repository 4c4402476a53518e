"""Tensors of the CPU, which all verbs of a code take like arrays."""

import numpy as np
import pytest

from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, LinearCode, ReedSolomon, data
from fastgc.training.optimizers import SGD

torch = pytest.importorskip("torch")
cross_entropy = pytest.importorskip("torch.nn.functional").cross_entropy

N, HIDDEN = 12, 4
REAL = [
    BinaryCode(N, stragglers=3),
    FractionalRepetition(N, stragglers=2),
    CyclicRepetition(N, stragglers=3),
    LinearCode(CyclicRepetition(N, 15, stragglers=2).matrix()),
]
COMPLEX = [
    ReedSolomon(N, stragglers=3),
    ReedSolomon(N, 17, stragglers=2),
    ReedSolomon(N, stragglers=3, clusters="auto"),
    ReedSolomon(N, stragglers=2, packed=False),
]


class Job:
    """Two linear layers and some of the digits; parameters and `.grad` are views of vectors."""

    def __init__(self, dtype=torch.float64, classes=10):
        digits = data.load("digits")
        self.X = torch.from_numpy(digits.X_train[:200]).to(dtype)
        self.y = torch.from_numpy(digits.y_train[:200])
        torch.manual_seed(1)
        layers = torch.nn.Linear(64, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, classes)
        self.model = torch.nn.Sequential(*layers).to(dtype)
        self.parameters = list(self.model.parameters())
        self.p = sum(w.numel() for w in self.parameters)
        self.gradient = torch.full((self.p,), 7, dtype=dtype)
        parts = self.gradient.split([w.numel() for w in self.parameters])
        for w, grad in zip(self.parameters, parts, strict=True):
            w.grad = grad.view_as(w)

    def loss(self, X, y):
        return cross_entropy(self.model(X), y, reduction="sum")

    def flat(self, loss):
        return torch.cat([g.ravel() for g in torch.autograd.grad(loss, self.parameters)])

    def whole(self):
        """Return the gradient of the full batch."""
        return self.flat(self.loss(self.X, self.y))

    def send(self, code, shards, i, out):
        """Write worker i's message: one backward pass, or one per partition for complex codes."""
        coefficients = code.coefficients(i)
        if coefficients.dtype == float:
            held = zip(code.partitions(i), coefficients.tolist(), strict=True)
            out[:] = self.flat(sum(b * self.loss(*shards[j]) for j, b in held))
        else:
            encoder = code.encoder(i, self.p, self.gradient.numpy().dtype, out)
            for j in code.partitions(i):
                encoder.add(j, self.flat(self.loss(*shards[j])))
            assert encoder.message() is out

    def room(self, code):
        kind = torch.from_numpy(
            np.empty(0, code.scheme.format(1, self.gradient.numpy().dtype).message_dtype)
        ).dtype
        return torch.empty(code.n, code.message_size(self.p), dtype=kind)


@pytest.mark.parametrize("classes", [10, 11])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("code", REAL + COMPLEX, ids=repr)
def test_decoded_gradient_is_the_full_batch(code, dtype, classes):
    job = Job(dtype, classes)
    shards = code.encode_data(job.X, job.y)
    messages = job.room(code)
    for i in range(code.n):
        job.send(code, shards, i, messages[i])
    exact = job.whole().double()
    decode, rnd = code.bind(messages, job.gradient), code.round(job.p, job.gradient.numpy().dtype)
    generator = np.random.default_rng(0)
    for _ in range(10):
        lost = generator.integers(0, code.stragglers + 1)
        survivors = torch.from_numpy(generator.permutation(code.n)[lost:])
        error = code.trust(survivors, job.gradient.numpy().dtype).relative_error
        rnd.reset()
        for i in survivors.tolist():
            rnd.receive(i, messages[i])
        for decoded in (
            lambda: decode(survivors),  # noqa: B023
            lambda: code.decode(survivors, messages[survivors], job.gradient),  # noqa: B023
            lambda: rnd.gradient(job.gradient),
        ):
            job.gradient[:] = 7
            assert decoded() is job.gradient
            distance = (job.gradient.double() - exact).norm() / exact.norm()
            assert distance < 30 * error
            assert all((w.grad != 7).any() for w in job.parameters)


@pytest.mark.parametrize("code", [REAL[0], COMPLEX[0]], ids=repr)
def test_parameters_may_be_views_of_the_optimizer_of_fastgc(code):
    """A step in place, with a decoded tensor, moves the module."""
    job = Job()
    optimizer = SGD(lr=1 / len(job.X), momentum=0.9)
    optimizer.reset(torch.nn.utils.parameters_to_vector(job.parameters).detach())
    theta = torch.from_numpy(optimizer.theta)
    for w, values in zip(
        job.parameters, theta.split([w.numel() for w in job.parameters]), strict=True
    ):
        w.data = values.view_as(w)
    shards, messages = code.encode_data(job.X, job.y), job.room(code)
    decode = code.bind(messages, job.gradient)
    before = job.loss(job.X, job.y).item() / len(job.X)
    for _ in range(25):
        survivors = torch.randperm(code.n)[: code.threshold]
        for i in survivors.tolist():
            job.send(code, shards, i, messages[i])
        optimizer.step(decode(survivors))
    assert job.loss(job.X, job.y).item() / len(job.X) < before - 1


def test_bfloat16_messages_of_tensors():
    pytest.importorskip("ml_dtypes")
    code, job = REAL[0], Job(torch.float32)
    shards = code.encode_data(job.X, job.y)
    messages = torch.empty(code.n, job.p, dtype=torch.bfloat16)
    for i in range(code.n):
        job.send(code, shards, i, messages[i])
    exact = job.whole()
    code.bind(messages, job.gradient)(range(3, code.n))
    assert (job.gradient - exact).norm() < 2.0**-7 * exact.norm()
