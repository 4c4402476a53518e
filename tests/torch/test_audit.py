"""Sketches of gradients, who is outvoted, and ranks that compute wrongly without an error."""

import logging
import time

import numpy as np
import programs
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from ranks import STEPS, Ranks, batch, flat, loss, net, plain  # noqa: E402

from fastgc.errors import LeftOutError  # noqa: E402
from fastgc.torch import ReactiveDataParallel, audit  # noqa: E402


@pytest.mark.parametrize("sizes", [(1,), (3, 5), (4096,), (4097, 7), (20_000, 3)])
def test_distance_estimates_how_far_gradients_are_apart(sizes):
    generator = torch.Generator().manual_seed(0)
    a = [torch.randn(n, generator=generator) for n in sizes]
    norm = flat(a).norm()
    assert audit.distance(audit.sketch(a, (0,)), audit.sketch(a, (0,))) == 0
    estimates = []
    for seed in range(60):
        b = [each + 0.1 * norm / flat(a).numel() ** 0.5 * torch.randn(each.shape) for each in a]
        true = float((flat(a) - flat(b)).norm() / max(norm, flat(b).norm()))
        estimates.append(audit.distance(audit.sketch(a, (seed,)), audit.sketch(b, (seed,))) / true)
    assert 0.8 < np.sqrt(np.mean(np.square(estimates))) < 1.25
    assert min(estimates) > 0.1


@pytest.mark.parametrize("at", [0, 4095, 4096, 9000, -1])
def test_distance_sees_one_wrong_number_wherever_it_is(at):
    a = torch.ones(10_000)
    b = a.clone()
    b[at] = 3.0
    pair = [audit.sketch([each, None, each[:5].double()], (1, 2)) for each in (a, b)]
    assert audit.distance(*pair) == pytest.approx(2 / float(a.norm()), rel=0.8)


def test_distance_of_what_is_not_finite_or_zero():
    bad, good, zero = (audit.sketch([torch.tensor([x])], (0,)) for x in (float("nan"), 1.0, 0.0))
    assert audit.distance(bad, bad) == audit.distance(zero, zero) == 0
    assert audit.distance(bad, good) == audit.distance(good, bad) == np.inf
    assert audit.distance(zero, good) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("error", [0.01, 1.0, np.nan])
def test_outvoted_is_who_is_apart_from_two_that_agree(wrong, error):
    x = torch.randn(50, generator=torch.Generator().manual_seed(0))
    versions = [
        (slot, audit.sketch([x * (1 + (error if i == wrong else 1e-6 * i))], (0,)))
        for i, slot in enumerate([4, 0, 2])
    ]
    assert audit.differ(versions)
    assert audit.outvoted(versions) == [4, 0, 2][wrong]


def test_nobody_is_outvoted_if_all_differ_or_all_agree():
    generator = torch.Generator().manual_seed(0)
    all_differ = [(i, audit.sketch([torch.randn(50, generator=generator)], (0,))) for i in range(3)]
    assert audit.differ(all_differ)
    assert audit.outvoted(all_differ) is None
    agree = [(i, audit.sketch([torch.ones(50) * (1 + 1e-5 * i)], (0,))) for i in range(3)]
    assert not audit.differ(agree)
    assert audit.outvoted(agree) is None


def trained(wrong, factor=lambda rank: 1.01, **options):
    """Return a rank's program; a rank may compute a wrong gradient."""

    def run(rank, life, more):
        if life:
            return None
        module, before = net(), []
        optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n))

        def spoiled(grad):
            return factor(rank) * grad if wrong(rank, life, before[-1]) else grad

        module[0].weight.register_hook(spoiled)
        with ReactiveDataParallel(module, [optimizer, schedule], **more, **options) as rdp:
            for step in rdp.steps(STEPS):
                before.append(step)
                optimizer.zero_grad()
                rdp.backward(lambda i: loss(module, i), batch(step))
                optimizer.step()
                schedule.step()
                time.sleep(0.02)
        return flat(module.parameters())

    return run


@pytest.mark.parametrize("shares", [None, 6])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_rank_that_computes_wrongly_is_left_out(bad, shares, caplog):
    """Before anybody uses its gradient, if the step is checked."""
    caplog.set_level(logging.WARNING, "fastgc")
    run = trained(lambda rank, life, step: rank == bad and step >= 5, check=3, shares=shares)
    results = Ranks(3, run).end()
    told = results.pop((bad, 0))
    assert isinstance(told, LeftOutError)
    assert f"rank {bad} has left: it computed a wrong gradient in step 5" in str(told)
    assert f"rank {bad} has left at step 5, and the others go on: it computed" in caplog.text
    first, second = results.values()
    assert torch.equal(first, second)
    torch.testing.assert_close(first, plain(STEPS), rtol=1e-4, atol=1e-6)


def test_two_ranks_that_differ_end_the_run():
    run = trained(lambda rank, life, step: rank == 1 and step == 2, check=1)
    for each in Ranks(2, run).end().values():
        assert isinstance(each, RuntimeError)
        assert "ranks [0, 1] computed the same part of a batch differently in step 2" in str(each)


def test_what_cannot_be_repeated_accuses_nobody(caplog):
    caplog.set_level(logging.WARNING, "fastgc")
    run = trained(lambda *_: True, factor=lambda rank: 1.0 + rank, check=4)
    results = list(Ranks(3, run).end().values())
    assert all(torch.equal(results[0], each) for each in results)
    assert "not reproducible" in caplog.text


DROPOUT = """
import logging, os, sys
import torch
from fastgc.torch import ReactiveDataParallel
from fastgc.torch.coordinator import Server

port = Server("127.0.0.1").start().port
os.environ |= {"FASTGC_STORE": f"127.0.0.1:{port}", "WORLD_SIZE": "3"}
logging.basicConfig(stream=sys.stdout, format="%(message)s", force=True)
shares = int(sys.argv[1]) or None
ranks = []
for rank in range(3):
    ranks.append(os.fork())
    if not ranks[-1]:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = torch.nn.Linear(5, 9), torch.nn.Dropout(0.5), torch.nn.Linear(9, 1)
        net = torch.nn.Sequential(*layers)
        x = torch.randn(30, 5)
        torch.manual_seed(rank)
        with ReactiveDataParallel(net, rank=rank, check=1, shares=shares) as rdp:
            for step in rdp.steps(4):
                rdp.backward(lambda i: net(x[i]).square().sum(), range(30))
                torch.rand(rank)
        line = f"weights {net[0].weight.grad.sum()}\\n"
        os.write(1, line.encode())  # at once, as ranks share the pipe
        os._exit(0)
assert [os.waitpid(each, 0)[1] for each in ranks] == [0, 0, 0]
"""


@pytest.mark.parametrize("shares", [0, 6])
def test_what_dropout_draws_is_the_same_on_both(shares, tmp_path):
    path = tmp_path / "dropout.py"
    path.write_text(DROPOUT)
    printed = programs.run(programs.python(path, shares)).stdout.split("\n")
    assert len(printed) == 4, "ranks have warned"
    assert len(set(printed)) == 2


def test_check_alone_and_bad_values():
    module = net()
    with ReactiveDataParallel(module, check=1) as rdp:
        for step in rdp.steps(2):
            rdp.backward(lambda i: loss(module, i), batch(step))
    with pytest.raises(ValueError, match="check"):
        ReactiveDataParallel(module, check=0)
