"""One call of backward: gradients of parts of a batch, sums and buffers, and fixed shares."""

import itertools
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from ranks import BATCH, Ranks, X, batch, flat, loss, net  # noqa: E402

from fastgc.torch import ReactiveDataParallel  # noqa: E402


def test_backward_takes_parameters_into_use_in_turn():
    """What is not used in a step has no gradient, though the sum has room for it."""

    def run(rank, life, options):
        modules = torch.nn.ModuleList([net(), net()])
        with ReactiveDataParallel(modules, **options) as rdp:
            for step in rdp.steps(6):
                modules.zero_grad()
                use = modules if step in (2, 5) else modules[:1]
                rdp.backward(lambda i, use=use: sum(loss(each, i) for each in use), batch(step))
                true = (loss(modules[0], batch(step)) / BATCH).backward
                found = [flat(p.grad for p in each.parameters()) for each in use]
                assert all(torch.equal(found[0], each) for each in found)
                assert (modules[1][0].weight.grad is None) == (len(use) == 1)
                modules[0].zero_grad()
                true()
                again = flat(p.grad for p in modules[0].parameters())
                torch.testing.assert_close(found[0], again, rtol=1e-4, atol=1e-6)
        return rdp.step

    assert list(Ranks(2, run).end().values()) == [6, 6]


def test_several_modules_are_trained_in_turn():
    """A GAN: each call moves the gradients of one of two modules."""

    def run(rank, life, options):
        one, other = net(), torch.nn.Linear(1, 1)
        with torch.no_grad():
            other.weight.fill_(0.5), other.bias.fill_(0.1)
        with ReactiveDataParallel([one, other], **options) as rdp:
            for step in rdp.steps(3):
                rdp.backward(lambda i: (other(one(X[i]).detach()) ** 2).sum(), batch(step))
                assert all(p.grad is None for p in one.parameters())
                true = torch.autograd.grad(
                    (other(one(X[batch(step)]).detach()) ** 2).mean(), other.parameters()
                )
                torch.testing.assert_close([p.grad for p in other.parameters()], list(true))
                other.zero_grad()
                rdp.backward(lambda i: loss(one, i), batch(step))
                assert all(p.grad is None for p in other.parameters())
                one.zero_grad()
        return rdp.step

    assert list(Ranks(3, run).end().values()) == [3, 3, 3]


def test_buffers_become_the_mean_over_ranks():
    def run(rank, life, options):
        module = net(norm=True)
        with ReactiveDataParallel(module, **options) as rdp:
            for step in rdp.steps(4):
                rdp.backward(lambda i: loss(module, i), batch(step))
        return module.state_dict()

    found = list(Ranks(3, run).end().values())
    for name, value in found[0].items():
        assert all(torch.equal(value, each[name]) for each in found), name
    assert found[0]["1.num_batches_tracked"] == 4
    assert found[0]["1.running_mean"].abs().min() > 0


def one_step(module, compute, batch, **options):
    """Return the loss of a step in this process; gradients are left in the module."""
    found = []
    with ReactiveDataParallel(module, **options) as rdp:
        for _ in rdp.steps(1):
            found.append(rdp.backward(compute, batch))
    return found[0]


@pytest.mark.parametrize("batch", [range(20), range(5), torch.arange(3)])
def test_shares_have_the_gradient_of_the_whole_batch(batch):
    """Also if there are more shares than samples, and parameters that nobody uses."""
    torch.manual_seed(0)
    module = torch.nn.ModuleList([torch.nn.Linear(4, 3), torch.nn.Linear(2, 2)])
    x, calls = torch.randn(20, 4), []

    def compute(indices):
        calls.append(len(indices))
        return module[0](x[indices]).square().sum(), torch.tensor(float(len(indices)))

    loss, count = one_step(module, compute, batch, shares=7)
    ends = [j * len(batch) // 7 for j in range(8)]
    assert calls[3:] == [b - a for a, b in itertools.pairwise(ends) if b > a]  # 3: losses are tried
    truth = module[0](x[: len(batch)]).square().sum() / len(batch)
    assert (loss, count) == (pytest.approx(truth.item()), len(batch))
    parameters = list(module[0].parameters())
    for p, true in zip(parameters, torch.autograd.grad(truth, parameters), strict=True):
        torch.testing.assert_close(p.grad, true)
    assert all(p.grad is None for p in module[1].parameters())


@pytest.mark.parametrize("before", [0.0, 1e-9, 1e-3, 1.0, 1e6, 1e30, float("inf")])
def test_shares_are_summed_in_the_unit_of_their_own_step(before):
    """Whatever the moduli of the step before were, in whose unit what rides is summed."""
    module, x = torch.nn.Linear(4, 3), torch.randn(20, 4)
    module.register_buffer("mean", torch.zeros(3))
    found = []

    def compute(indices):
        factor = before if rdp.step == 0 else 1.0
        y = factor * module(x[indices])
        module.mean += y.detach().mean(0)
        return y.square().sum(), y.detach().sum()

    with ReactiveDataParallel(module, shares=5) as rdp:
        for step in rdp.steps(2):
            module.mean.zero_()
            found.append(rdp.backward(compute, range(20)))
            if step == 0:
                module.zero_grad()
    y = module(x)
    assert found[1] == pytest.approx((y.square().sum().item() / 20, y.sum().item()))
    torch.testing.assert_close(module.mean, y.detach().mean(0))
    true = torch.autograd.grad(y.square().sum() / 20, list(module.parameters()))
    torch.testing.assert_close([p.grad for p in module.parameters()], list(true))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_nan(bad):
    module, x = torch.nn.Linear(4, 3, bias=False), torch.ones(20, 4)
    x[13, 2] = bad
    loss = one_step(module, lambda indices: module(x[indices]).square().sum(), range(20), shares=4)
    assert loss != loss
    assert module.weight.grad.isnan().all()


def test_random_numbers_follow_from_seed_step_call_and_share():
    """Those of the program are left as they were."""
    module, drawn = torch.nn.Linear(1, 1), []

    def compute(indices):
        if torch.is_grad_enabled():  # not while losses are tried
            drawn.append((torch.rand(()).item(), random.random(), np.random.rand()))  # noqa: NPY002
        return module(torch.ones(len(indices), 1)).sum()

    def draw(seed):
        drawn.clear()
        torch.manual_seed(5)
        with ReactiveDataParallel(module, shares=3, seed=seed) as rdp:
            for _ in rdp.steps(2):
                for _ in range(2):
                    rdp.backward(compute, range(6))
        return list(drawn), torch.rand(()).item()

    first, after = draw(0)
    assert len(set(first)) == len(first) == 12
    assert draw(0) == (first, after)
    other, _ = draw(1)
    assert not set(first) & set(other)
    torch.manual_seed(5)
    assert after == torch.rand(()).item()
