"""What workers compute of a module, for any parameters, buffers and modes."""

import contextlib
import copy
import sys

import numpy as np
import pytest

from fastgc import BinaryCode, CyclicRepetition, ReedSolomon, WorkerFailedError

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from coded_nets import (  # noqa: E402
    BATCH,
    CLASSES,
    COMPLEX,
    REAL,
    coded,
    loss,
    loss_and_hits,
    net,
    order,
    plain_step,
    samples,
    stragglers,
)
from torch.nn import functional  # noqa: E402

from fastgc.torch import CodedDataParallel  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("code", [REAL[2], REAL[1], COMPLEX[0]], ids=repr)
def test_workers_weight_losses_and_sums(code, dropout):
    """Local workers compute messages by weighted losses; simulated ones, partition by partition."""
    found = []
    for engine in ("local", "simulated"):
        module = net(dropout=dropout)
        with coded(
            module, code=code, function=loss_and_hits, engine=engine, survivors=stragglers
        ) as made:
            results = [made.backward() for _ in range(3)]
        grads = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        found.append((grads, [result.loss for result in results], [r.sums[0] for r in results]))
    (mine, losses, hits), (theirs, others, counted) = found
    assert float((mine - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max())
    assert losses == pytest.approx(others, rel=1e-5)
    assert hits == pytest.approx(counted, rel=1e-5)


def test_frozen_tied_unused_and_sparse_parameters():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(30, 8, sparse=True)
            self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
            self.out = torch.nn.Linear(8, 30, bias=False)
            self.again = self.out
            self.unused = torch.nn.Linear(3, 3)

        def forward(self, i):
            return self.again(self.frozen(self.table(i)))

    def entropy(module, batch):
        return functional.cross_entropy(module(batch[0]), batch[1], reduction="sum")

    rng = np.random.default_rng(0)
    data = torch.utils.data.TensorDataset(*torch.from_numpy(rng.integers(0, 30, (2, 70))))
    torch.manual_seed(0)
    module = Tied()
    plain = copy.deepcopy(module)
    with coded(module, data=data, function=entropy) as made:
        made.backward()
    (entropy(plain, data[order(0, 70)]) / BATCH).backward()
    assert module.unused.weight.grad is None
    assert module.frozen.weight.grad is None
    torch.testing.assert_close(module.table.weight.grad, plain.table.weight.grad.to_dense())
    torch.testing.assert_close(module.out.weight.grad, plain.out.weight.grad)


@pytest.mark.parametrize("code", [REAL[0], REAL[2], COMPLEX[0]], ids=repr)
def test_parameters_that_some_samples_do_not_use(code):
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = torch.nn.ModuleList(torch.nn.Linear(20, CLASSES) for _ in range(4))

        def forward(self, x, y):
            found = 0.0
            for e, expert in enumerate(self.experts[:3]):
                if (y == e).any():
                    found = found + functional.cross_entropy(
                        expert(x[y == e]), y[y == e], reduction="sum"
                    )
            return found + 0.0 * self.experts[0].weight.sum()

    data = samples()
    module = Experts()
    plain = copy.deepcopy(module)
    with coded(module, code=code, data=data, function=lambda m, b: m(*b)) as made:
        made.backward()
    (plain(*data[order(0)]) / BATCH).backward()
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ["simulated", "local"])
def test_buffers_that_forward_changes(engine):
    module = net(norm=True)
    before = {name: b.clone() for name, b in module.named_buffers()}
    with pytest.raises(RuntimeError, match=r"BatchNorm.*GroupNorm"), coded(module):
        pass
    for name, b in module.named_buffers():
        assert torch.equal(b, before[name])
    module.norm.eval()
    with coded(module, engine=engine) as made:
        made.backward()
    for name, b in module.named_buffers():
        assert torch.equal(b, before[name])


def test_autocast_in_the_loss():
    def cast(module, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(module, batch)

    module = net()
    plain, data = copy.deepcopy(module), samples()
    with coded(module, data=data, function=cast) as made:
        made.backward()
    plain_step(plain, data, 0)
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        assert float((p.grad - q.grad).abs().max()) <= 3e-2 * float(q.grad.abs().max())


@contextlib.contextmanager
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def with_a_constant(module, batch):
    assert torch.get_default_dtype() == torch.float32
    x, y = batch
    return functional.cross_entropy(module(x) + torch.full((1,), 1 / 3), y, reduction="sum")


MODES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": double,
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("engine", ["simulated", "local"])
def test_whatever_mode_is_on_gradients_are_the_same(engine, mode):
    module, data = net(), samples()
    plain = copy.deepcopy(module)
    with coded(module, data=data, function=with_a_constant, engine=engine) as made:
        with mode():
            result = made.backward()
        found = with_a_constant(plain, data[order(0)]) / BATCH
        found.backward()
    assert result.loss == pytest.approx(float(found.detach()), rel=1e-6)
    for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_whatever_mode_it_is_made_in(mode):
    module, data = net(), samples()
    with mode(), coded(module, data=data) as made:
        made.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in module.parameters())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_of_activations(reentrant):
    module, data = net(), samples()
    plain = copy.deepcopy(module)

    def checkpointed(module, batch):
        x, y = batch
        middle = torch.utils.checkpoint.checkpoint(
            lambda x: torch.relu(module.first(x)), x.requires_grad_(), use_reentrant=reentrant
        )
        return functional.cross_entropy(module.last(middle), y, reduction="sum")

    module.last.weight.grad = torch.ones_like(module.last.weight)
    with coded(module, data=data, function=checkpointed) as made:
        assert bool((module.last.weight.grad == 1).all())
        module.zero_grad()
        made.backward()
    plain_step(plain, data, 0)
    for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_modules_in_other_formats_of_memory():
    """For example, convolutions in channels-last format, and a parameter without elements."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(4, 4, 2), torch.nn.Flatten(), torch.nn.Linear(4, 5)
    )
    module = module.to(memory_format=torch.channels_last)
    module.none = torch.nn.Parameter(torch.ones(0, 2))
    plain = copy.deepcopy(module)

    def of_images(module, batch):
        x, y = batch
        outputs = module(x[:, :16].reshape(-1, 4, 2, 2)) + module.none.sum()
        return functional.cross_entropy(outputs, y, reduction="sum")

    with coded(module, function=of_images) as made:
        made.backward()
    (of_images(plain, samples()[order(0)]) / BATCH).backward()
    for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_a_worker_that_fails_says_where():
    def fails(module, batch):
        if torch.is_grad_enabled() and len(batch[1]) > 8:
            raise ArithmeticError("by zero")
        return loss(module, batch)

    failing = pytest.raises(WorkerFailedError, match=r"(?s)partition.*by zero")
    with coded(net(), engine="local", function=fails) as made, failing:
        made.backward()


@pytest.mark.filterwarnings("ignore:.*complex coefficients")
@pytest.mark.parametrize(
    ("engine", "dtype"),
    [("simulated", "float16"), ("simulated", "bfloat16"), ("local", "float16")],
)
@pytest.mark.parametrize(
    "code",
    [BinaryCode(4, stragglers=1), CyclicRepetition(4, stragglers=1), ReedSolomon(4, stragglers=1)],
    ids=repr,
)
def test_losses_and_sums_are_rounded_to_halves_as_gradients_are(code, dtype, engine):
    pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 5)), rng.standard_normal((200, 1)) + 5.0
    data = torch.utils.data.TensorDataset(*(torch.from_numpy(a).float() for a in (x, y)))

    def distances(module, batch):
        off = (module(batch[0]) - batch[1]) ** 2
        return off.sum(), len(off), -off.sum() / 3, 1e-3 * off.sum()

    found = []
    for message_dtype in (None, dtype):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.LayerNorm(5), torch.nn.Linear(5, 1))
        with CodedDataParallel(
            module, distances, data, code, batch_size=180, engine=engine, reduction="sum",
            message_dtype=message_dtype, survivors=lambda round: range(4),
        ) as coded:  # fmt: skip
            result = coded.backward()
        grads = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        numbers = [result.loss, *result.sums]
        found.append((grads, np.array([float(each) for each in numbers])))
    (grads, exact), (rounded, numbers) = found
    # Complex codes combine two numbers at a time, so that errors are those of the larger one.
    atol = 1e-3 if np.isrealobj(code.coefficients(0)) else 0.01 * np.abs(exact).max()
    np.testing.assert_allclose(numbers, exact, rtol=0.02, atol=atol)
    assert 0 < float((rounded - grads).abs().max()) < 0.05 * float(grads.abs().max())


@pytest.mark.parametrize("shares", [None, 3])
def test_losses_that_are_no_sums_are_refused_by_ranks(shares):
    """A loss that couples samples, as with in-batch negatives, depends on who computes it."""
    from fastgc.torch import ReactiveDataParallel

    torch.manual_seed(0)
    module, x = torch.nn.Linear(4, 3), torch.randn(20, 4)

    def coupled(indices):
        found = module(x[indices])
        return torch.nn.functional.cross_entropy(
            found @ found.T, torch.arange(len(indices)), reduction="sum"
        )

    for compute, match in (
        (coupled, "for 8 samples it is .*, but for the first 4 plus for the others it is"),
        (lambda indices: module(x[indices]).square().mean(), "loss returns the mean"),
    ):
        with ReactiveDataParallel(module, shares=shares) as rdp:
            steps = rdp.steps(1)
            next(steps)
            with pytest.raises(RuntimeError, match=match):
                rdp.backward(compute, range(20))
