"""Messages that are tensors: of the CPU like arrays, of another device combined there by PyTorch.

Without such a device, two properties are tested separately. Nothing is read on the host from
tensors without memory (PyTorch's "meta"). Tensors of the CPU decode to the same as arrays.
"""

import numpy as np
import pytest

import fastgc
from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, LinearCode, ReedSolomon, data
from fastgc.training.optimizers import SGD

torch = pytest.importorskip("torch")
cross_entropy = pytest.importorskip("torch.nn.functional").cross_entropy
from fastgc.torch import decode  # noqa: E402

CODES = [
    fastgc.BinaryCode(6, stragglers=2),
    fastgc.ReedSolomon(6, stragglers=2),
    fastgc.ReedSolomon(6, stragglers=1, packed=False),
    fastgc.CyclicRepetition(6, stragglers=2),
    fastgc.LagrangeCode(8, load=2),
    fastgc.Uncoded(4),
]
MESSAGES = {
    "float32": (np.float32, None),
    "float64": (np.float64, None),
    "float16": (np.float32, "float16"),
    "bfloat16": (np.float32, "bfloat16"),
    "wider": (np.float32, np.float64),
}


def tensor(array):
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def messages_of(code, p, dtype=np.float64, message_dtype=None):
    rng = np.random.default_rng(3)
    kind = code.scheme.format(1, dtype).partial_dtype
    partials = rng.standard_normal((code.scheme.data.shards, p)).astype(kind)
    return [
        code.encode(i, partials[code.partitions(i, at)], index=at, message_dtype=message_dtype)
        for i in range(code.n)
        for at in range(code.scheme.messages.counts[i])
    ]


def survivors_of(code):
    order = np.random.default_rng(1).permutation(len(messages_of(code, 2)))
    count = next(f for f in range(1, order.size + 1) if code.decodable(order[:f]))
    return order[:count]


@pytest.mark.parametrize("p", [1, 7, 8])
@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_tensors_decode_to_what_arrays_give(code, kind, p):
    dtype, message_dtype = MESSAGES[kind]
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    try:
        given = messages_of(code, p, dtype, message_dtype)
    except TypeError:
        pytest.skip("no messages of this dtype")
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    expected = code.decode(survivors, chosen, p=p)
    lent = [tensor(m) for m in chosen]
    tolerance = 1e-12 if expected.dtype == np.float64 else 3e-5
    out = torch.full((p,), 7.0, dtype=torch.from_numpy(expected).dtype)
    for found in (
        decode(code, survivors, lent, p=p),
        decode(code, survivors, torch.stack(lent), p=p, check_finite=False),
        decode(code, survivors, lent, out),
    ):
        assert isinstance(found, torch.Tensor)
        assert found.numpy().dtype == expected.dtype
        assert found.shape == (p,)
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
    assert found is out


@pytest.mark.parametrize("code", [CODES[0], CODES[1], CODES[2]], ids=repr)
def test_nothing_is_read_on_the_host(code):
    """Reading a tensor without memory raises."""
    given = [torch.from_numpy(m).to("meta") for m in messages_of(code, 8, np.float32)]
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    for messages in (chosen, torch.stack(chosen)):
        found = decode(code, survivors, messages, p=8, check_finite=False)
        assert (found.device.type, found.dtype) == ("meta", torch.float32)
    out = torch.empty(8, device="meta")
    assert decode(code, survivors, chosen, out, check_finite=False) is out
    with pytest.raises(Exception, match=r"meta"):  # this reads the whole gradient
        decode(code, survivors, chosen, p=8)


def test_complex_gradients():
    code = fastgc.ReedSolomon(4, stragglers=1)
    partials = np.random.default_rng(0).standard_normal((4, 5, 2)).view(np.complex128)[..., 0]
    given = [tensor(code.encode(i, partials[code.partitions(i)])) for i in range(4)]
    found = decode(code, [3, 1, 0], [given[i] for i in (3, 1, 0)])
    np.testing.assert_allclose(found.numpy(), partials.sum(0), rtol=1e-12)


def test_rows_that_are_cut_from_others():
    code = CODES[1]
    given, survivors = messages_of(code, 8, np.float32), survivors_of(code)
    expected = code.decode(survivors, [given[m] for m in survivors])
    room = torch.full((6, 2, 11), torch.nan)
    odd, gaps = room[:, 0, 1:9], torch.full((6, 16), torch.nan)[:, ::2]
    for rows in (odd, gaps):
        rows[:] = torch.from_numpy(np.array(given))
        found = decode(code, survivors, [rows[m] for m in survivors])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    found = decode(code, survivors, odd[survivors], torch.empty(9)[1:])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(bad):
    code = CODES[0]
    given = [tensor(m) for m in messages_of(code, 5)]
    survivors = [0, 1, 2, 4, 5]
    vector = code.decoding_vector(survivors)
    used, unused = (
        int(np.array(survivors)[(vector != 0) == is_used][0]) for is_used in (True, False)
    )
    given[unused][2] = bad  # it is not read
    chosen = [given[m] for m in survivors]
    assert bool(decode(code, survivors, chosen).isfinite().all())
    given[used][3] = bad
    says = f"message of worker {used} is not finite: element 3 is {bad}"
    with pytest.raises(fastgc.NonFiniteMessageError, match=says):
        decode(code, survivors, chosen)
    assert not bool(decode(code, survivors, chosen, check_finite=False).isfinite().all())


def test_what_does_not_fit():
    code = CODES[0]
    given = [torch.from_numpy(m).to("meta") for m in messages_of(code, 5)]
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    host = [*chosen[:-1], torch.zeros(5, dtype=torch.float64)]
    single, grad = chosen[0].float(), chosen[0].clone().requires_grad_()
    gaps = torch.empty(10, device="meta").double()[::2]
    for messages, out, error, says in [
        (host, None, TypeError, "must be on meta.*not on cpu"),
        ([*chosen[:-1], np.zeros(5)], None, TypeError, "not ndarray"),
        (chosen, np.zeros(5), TypeError, "out must be tensors, not ndarray"),
        (chosen, single, TypeError, "out must have dtype float64"),
        (chosen, gaps, ValueError, "out must be contiguous"),
        ([*chosen[:-1], chosen[0][:4]], None, ValueError, "have shape"),
        ([*chosen[:-1], single], None, TypeError, "float64, not"),
        ([grad] * len(chosen), None, TypeError, "detach"),
        (chosen[:-1], None, ValueError, "survivors, but"),
    ]:
        with pytest.raises(error, match=f"(?s){says}"):
            decode(code, survivors, messages, out)
    with pytest.raises(fastgc.NotDecodableError, match="more"):
        decode(code, survivors[:1], chosen[:1])
    with pytest.raises(fastgc.NotDecodableError):
        decode(code, [], [])
    with pytest.raises(TypeError, match=r"of worker 0 cannot.*meta"):
        code.round(5).receive(0, given[0])


# ----------------------------------------------------- tensors of the CPU, by all verbs of a code

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


@pytest.mark.parametrize("code", [REAL[0], REAL[2], COMPLEX[0]], ids=repr)
def test_training_reaches_the_loss_of_plain_training(code):
    losses = []
    for coded in (False, True):
        job = Job()
        optimizer = torch.optim.SGD(job.model.parameters(), lr=2.0 / len(job.X), momentum=0.9)
        shards, messages = code.encode_data(job.X, job.y), job.room(code)
        decode = code.bind(messages, job.gradient)
        for _ in range(25):
            if coded:
                survivors = torch.randperm(code.n)[: code.threshold]
                for i in survivors.tolist():
                    job.send(code, shards, i, messages[i])
                decode(survivors)
            else:
                job.gradient[:] = job.whole()
            optimizer.step()
        losses.append(job.loss(job.X, job.y).item() / len(job.X))
    assert losses[0] < 0.8  # it began at 2.3
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


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
