"""Ranks that die at random have the weights of one process, to the last bit, with ``shares=``."""

import itertools
import random
import signal
import time

import numpy as np
import programs
import pytest
from strength import much

torch = pytest.importorskip("torch")

from fastgc.torch import ReactiveDataParallel  # noqa: E402
from fastgc.torch.coordinator import Server  # noqa: E402

STEPS = 30
PROGRAM = """
import hashlib, os, random, signal, sys, threading, time
import torch
from fastgc.torch import ReactiveDataParallel

dies, seconds = (float(each) for each in sys.argv[1:])  # calls of compute, and seconds a step
torch.set_num_threads(1)
torch.manual_seed(0)
X, y = torch.randn(600, 16), torch.randint(5, (600,))
net = torch.nn.Sequential(
    torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.3),
    torch.nn.Linear(32, 5),
)
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
calls, losses = 0, {}


def compute(indices):
    global calls
    calls += 1
    if dies and calls > dies:  # at once, or somewhat later: in the sum, or between two steps
        wait = random.choice([0.0, 2.0 * seconds * random.random()])
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(wait, kill).start() if wait else kill()
    found = torch.nn.functional.cross_entropy(net(X[indices]), y[indices], reduction="sum")
    return found, torch.rand(()).item()  # a sum that is drawn


with ReactiveDataParallel(net, state=[optimizer], shares=12, seed=3) as rdp:
    for step in rdp.steps(30):
        batch = torch.randperm(600, generator=torch.Generator().manual_seed(step))[:125]
        for _ in range(2):
            losses[step] = rdp.backward(compute, batch)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(seconds)
weights = b"".join(t.numpy().tobytes() for t in net.state_dict().values())
print(hashlib.sha256(weights).hexdigest(), losses[step])
"""


def ends(folder, ranks, kills=0, seconds=0.0, rng=None):
    """Run ranks, of which some lives are killed; return what those print that reach the end."""
    server, path = Server("127.0.0.1").start(), folder / "bits.py"
    path.write_text(PROGRAM)

    def start(rank, dies):
        around = {"FASTGC_STORE": f"127.0.0.1:{server.port}", "RANK": rank, "WORLD_SIZE": ranks}
        around = {name: str(value) for name, value in around.items()}
        return programs.start(programs.python(path, dies, seconds), env=around)

    dying = rng.sample(range(ranks), kills) if kills else []
    running = {
        rank: start(rank, rng.randint(1, 3 * STEPS) if rank in dying else 0)
        for rank in range(ranks)
    }
    found, until = [], time.monotonic() + 90.0
    try:
        while running:
            for rank, each in list(running.items()):
                if each.poll() is None:
                    assert time.monotonic() < until, "the run does not end"
                    continue
                del running[rank]
                printed, errors = each.communicate()
                if each.returncode == -signal.SIGKILL:
                    running[rank] = start(rank, 0)
                elif "FinishedError" not in errors:  # it came too late
                    assert each.returncode == 0, errors
                    found.append(printed)
            time.sleep(0.01)
    finally:
        for each in running.values():
            each.kill()
            each.communicate()
        server.close()
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process prints."""
    (printed,) = ends(tmp_path_factory.mktemp("alone"), 1)
    return printed


@pytest.mark.parametrize(("ranks", "kills"), [(3, 0), (2, 1), (3, 2), (4, 3)])
def test_ranks_that_die_have_the_weights_of_one_process(alone, ranks, kills, tmp_path):
    for seed in range(much(6, 1)):
        rng = random.Random(f"{ranks} {seed}")
        found = ends(tmp_path, ranks, kills, 0.1, rng)
        assert len(found) >= ranks - kills
        assert set(found) == {alone}


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
