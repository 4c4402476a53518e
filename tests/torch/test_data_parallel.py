"""`fastgc.torch.CodedDataParallel` gives the plain loop's parameters, from the first workers."""

import contextlib
import copy
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import programs
import pytest

import fastgc
from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, ReedSolomon, Uncoded

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from torch.nn import functional  # noqa: E402

from fastgc.engines import SimulatedCluster  # noqa: E402
from fastgc.torch import CodedDataParallel  # noqa: E402
from fastgc.torch.batches import seed_all  # noqa: E402
from fastgc.torch.parameters import trainable, unchanged_buffers  # noqa: E402

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


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("code", REAL + COMPLEX, ids=repr)
def test_parameters_are_those_of_the_plain_loop(code, optimizer):
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    mine, theirs = (optimizer(m.parameters(), lr=1e-2) for m in (module, plain))
    survivors = None if code is REAL[-1] else stragglers
    with coded(module, code=code, data=data, function=loss_and_hits, survivors=survivors) as made:
        for step in range(25):
            mine.zero_grad()
            result = made.backward()
            mine.step()
            hits = int((plain(data[order(step)][0]).argmax(1) == data[order(step)][1]).sum())
            theirs.zero_grad()
            assert result.loss == pytest.approx(plain_step(plain, data, step), rel=1e-5)
            theirs.step()
            assert result.sums == pytest.approx((hits,), rel=1e-5)
        assert made.step == 25
    assert far(module, plain) <= 1e-6


def test_doubles_are_exact_to_their_own_rounding():
    data, module = samples(torch.float64), net(dtype=torch.float64)
    plain = copy.deepcopy(module)
    with coded(module, data=data, survivors=stragglers) as made:
        made.backward()
    plain_step(plain, data, 0)
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        assert float((p.grad - q.grad).abs().max()) <= 1e-14 * float(q.grad.abs().max())


def test_real_workers_of_which_one_sleeps_and_one_dies(tmp_path):
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, plain))
    delays = fastgc.delays.Empirical(np.array([[0.0] * (N - 1) + [0.3]]))
    deadly, deaths = Deadly(tmp_path / "died"), 0
    with coded(module, data=data, engine="local", delays=delays, function=deadly) as made:
        for step in range(30):
            mine.zero_grad(), theirs.zero_grad()
            deaths = made.backward().report.deaths
            plain_step(plain, data, step)
            mine.step(), theirs.step()
            if deaths and step >= 6:
                break
    assert deaths == 1
    assert far(module, plain) <= 1e-6


class Deadly:
    """A loss that kills worker 1 once."""

    def __init__(self, path):
        self.path = path

    def __call__(self, module, batch):
        if Path("/proc/self/comm").read_text() == "fastgc-1\n" and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(module, batch)


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


def test_what_it_is_in_a_line():
    """Its repr, as in a notebook, names code, engine, batch and step."""
    with coded(net()) as both:
        both.backward()
        said = repr(both)
    assert said == (
        "<CodedDataParallel of a Net with BinaryCode(n=6, stragglers=2) on a SimulatedCluster: 60 "
        "samples a step, step 1>"
    )


def test_reduction():
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    with coded(module, data=data, reduction="sum") as made:
        found = made.backward().loss
    assert found == pytest.approx(plain_step(plain, data, 0, 1.0), rel=1e-5)
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_add_up_as_elsewhere(to_none):
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    with coded(module, data=data) as made:
        for step in range(6):
            made.backward(), plain_step(plain, data, step)
            for p, q in zip(module.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
            if step % 3 == 2:
                module.zero_grad(to_none), plain.zero_grad(to_none)


def test_frozen_tied_unused_and_sparse_parameters():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(30, 8, sparse=True)
            self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
            self.out = torch.nn.Linear(8, 30, bias=False)
            self.out.weight = self.table.weight if False else self.out.weight
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
        sent = made._layout.parameters
    assert sent == 30 * 8 + 30 * 8 + 12
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


def test_what_is_drawn_is_drawn_alike_by_all():
    """Dropout and augmentation (torch, NumPy, random) depend on the partition, not the worker."""
    import random

    class Noisy(torch.utils.data.Dataset):
        whole = samples()

        def __len__(self):
            return len(self.whole)

        def __getitem__(self, i):
            x, y = self.whole[i]
            return x + torch.randn(20) + float(np.random.rand()) + random.random(), y  # noqa: NPY002

    grads = []
    for code, chosen in [(Uncoded(N), None), (REAL[0], stragglers), (COMPLEX[0], stragglers)]:
        module = net(dropout=0.5)
        with coded(module, code=code, data=Noisy(), seed=4, survivors=chosen) as made:
            made.backward()
            made.backward()
        grads.append(torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    plain = net(dropout=0.5)
    for step in range(2):
        for j, part in enumerate(np.split(order(step, seed=4), N)):
            seed_all(4, step, j)
            batch = torch.utils.data.default_collate([Noisy()[i] for i in part])
            (loss(plain, batch) / BATCH).backward()
    grads.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]))
    for found in grads[:-1]:
        torch.testing.assert_close(found, grads[-1], rtol=1e-4, atol=1e-5)


def test_the_programs_own_random_numbers_are_left_alone():
    torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    module = Net()
    torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    with coded(module):
        pass
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


@pytest.mark.parametrize("engine", ["simulated", "local"])
def test_buffers_that_forward_changes(engine):
    module = net(norm=True)
    before = {name: b.clone() for name, b in module.named_buffers()}
    with pytest.raises(RuntimeError, match=r"BatchNorm.*GroupNorm"), coded(module):
        pass
    for name, b in module.named_buffers():
        assert torch.equal(b, before[name])
    data, plain = samples(), copy.deepcopy(module)
    with coded(module, data=data, buffers="mean", survivors=stragglers, engine=engine) as made:
        for _ in range(3):
            made.backward()
    for step in range(3):
        state = {name: b.clone() for name, b in plain.named_buffers()}
        made_of = {name: [] for name in state}
        for part in np.split(order(step), N):
            with torch.no_grad():
                for name, b in plain.named_buffers():
                    b.copy_(state[name])
            (loss(plain, data[part]) / BATCH).backward()
            for name, b in plain.named_buffers():
                made_of[name].append(b.clone().double())
        with torch.no_grad():
            for name, b in plain.named_buffers():
                b.copy_(torch.stack(made_of[name]).mean(0))
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    for b, c in zip(module.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(b, c, rtol=1e-5, atol=1e-6)
    assert int(module.norm.num_batches_tracked) == 3


def test_a_run_stops_and_goes_on_to_the_bit(tmp_path):
    data = samples()

    def steps(made, optimizer, schedule, count):
        for _ in range(count):
            optimizer.zero_grad()
            made.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step(), schedule.step()

    def parts(module):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    module = net(dropout=0.3)
    with coded(module, data=data) as made:
        steps(made, *parts(module), 7)
    whole = [p.clone() for p in module.parameters()]

    module = net(dropout=0.3)
    optimizer, schedule = parts(module)
    with coded(module, data=data) as made:
        steps(made, optimizer, schedule, 4)
        kept = module, optimizer, schedule, made
        torch.save([each.state_dict() for each in kept], tmp_path / "run.pt")
    states = torch.load(tmp_path / "run.pt")
    module = net(dropout=0.3)
    optimizer, schedule = parts(module)
    with coded(module, data=data) as made:
        for each, state in zip((module, optimizer, schedule, made), states, strict=True):
            each.load_state_dict(state)
        steps(made, optimizer, schedule, 3)
        assert made.step == 7
    for p, q in zip(module.parameters(), whole, strict=True):
        assert torch.equal(p, q)
    with (
        coded(net(), data=data, seed=1) as made,
        pytest.raises(ValueError, match="seed = 0, not 1"),
    ):
        made.load_state_dict(states[3])


def test_samplers():
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    taken = list(range(150))
    with coded(module, data=data, sampler=taken) as made:
        assert made.steps_per_epoch == 2
        for _ in range(3):  # the third step begins the second epoch
            made.backward()
        state = made.state_dict()
        made.backward()
    with coded(net(), data=data, sampler=taken) as made:
        made.load_state_dict(state)
        made.backward()
    for part in (slice(0, 60), slice(60, 120), slice(0, 60), slice(60, 120)):
        (loss(plain, data[part]) / BATCH).backward()
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
    for wrong, error in [
        ([0] * 59, "fewer than"),
        ([SAMPLES] * 60, "200 of 200"),
        (["a"] * 60, "indices"),
    ]:
        with (
            coded(net(), data=data, sampler=wrong) as made,
            pytest.raises((ValueError, TypeError), match=error),
        ):
            made.backward()


@pytest.mark.parametrize("engine", ["simulated", "local"])
@pytest.mark.parametrize(("dtype", "precision"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_halves_as_messages(dtype, precision, engine):
    pytest.importorskip("ml_dtypes")
    module = net()
    plain, data = copy.deepcopy(module), samples()
    with coded(module, data=data, message_dtype=dtype, engine=engine) as made:
        result = made.backward()
    assert result.loss == pytest.approx(plain_step(plain, data, 0), rel=precision)
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        assert float((p.grad - q.grad).abs().max()) <= precision * float(q.grad.abs().max())


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


SCRIPT = """
import torch, fastgc
from fastgc.torch import CodedDataParallel

class Net(torch.nn.Sequential):
    pass

torch.manual_seed(0)
model = Net(torch.nn.Linear(4, 1))
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loss = lambda module, batch: ((module(batch[0]) - batch[1]) ** 2).sum()
code = fastgc.BinaryCode(3, stragglers=1)
for run in range(2):
    with CodedDataParallel(model, loss, data, code, batch_size=12, engine="local") as coded:
        coded.backward()
        print(f"{coded.backward().loss:.4f}", flush=True)
"""


def command_of(engine, ranks, *script):
    """Return the command that runs a script with this engine, by `ranks` ranks if it has any."""
    if engine == "torch":
        return programs.torchrun(ranks, *script)
    if engine == "mpi":
        if programs.MPIEXEC is None:
            pytest.skip("there is no mpiexec")
        return programs.mpiexec(ranks, *script)
    if engine == "ray":
        pytest.importorskip("ray")
    return programs.python(*script)


@pytest.mark.parametrize("engine", ["local", "simulated", "mpi", "ray"])
def test_a_script_of_lambdas_and_classes_without_a_guard_by_any_engine(engine, tmp_path):
    command = command_of(engine, 4, "script.py")
    script, runs = SCRIPT.replace('"local"', f'"{engine}"'), 2
    if engine == "ray":  # its workers import torch anew for each cluster
        script, runs = script.replace("range(2)", "range(1)"), 1
    (tmp_path / "script.py").write_text(script)
    done = programs.run(command, folder=tmp_path, seconds=180)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    x, y = torch.randn(40, 4), torch.randn(40, 1)
    second = order(1, count=40, size=12)
    found = float(((model(x[second]) - y[second]) ** 2).mean().detach())
    assert done.stdout == f"{found:.4f}\n" * runs, done.stderr


# ------------------------------------------------------------------------------------- mistakes


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"function": lambda m, b: loss(m, b) / len(b[1])}, "returns the mean.*sum"),
        ({"function": lambda m, b: loss(m, b) ** 2}, "must return the sum over"),
        ({"function": lambda m, b: m(b[0]).sum(1)}, "one number"),
        ({"function": lambda m, b: loss(m, b).item()}, "as a tensor"),
        ({"function": lambda m, b: loss(m, b).detach()}, "does not depend"),
        ({"function": None}, "loss must be callable"),
        ({"data": Stream()}, "map-style"),
        ({"data": samples(count=40)}, "40 samples, fewer than batch_size = 60"),
        ({"data": samples(count=4)}, "too few for 6 partitions"),
        ({"batch_size": 5}, "at least 6"),
        ({"code": fastgc.LagrangeCode(N, load=2)}, "codes the data"),
        ({"code": "binary"}, "must be a code"),
        ({"reduction": "none"}, '"mean" or "sum"'),
        ({"buffers": "drop"}, '"error" or "mean"'),
        ({"engine": "cloud"}, "unknown engine"),
        ({"verfy": True}, "verify"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_sentence(change, error):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=error), coded(net(), **change):
        pass


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("net", "torch.nn.Module"),
        (torch.nn.Identity(), "no parameter that requires"),
        (torch.nn.Linear(20, 5).half(), "float32 or all float64.*autocast"),
        (torch.nn.Linear(20, 5, device="meta"), "on the CPU"),
        (torch.nn.LazyLinear(5), "call the module once"),
    ],
)
def test_modules_that_cannot_be(module, error):
    with pytest.raises((TypeError, ValueError), match=error), coded(module):
        pass


def test_changes_that_workers_do_not_know_of():
    module = net()
    with coded(module) as made:
        module.eval()
        with pytest.raises(RuntimeError, match="mode"):
            made.backward()
        module.train()
        module.first.bias.requires_grad_(False)
        with pytest.raises(RuntimeError, match="requires_grad"):
            made.backward()
        module.first.bias.requires_grad_(True)
        state = {name: 2 * value for name, value in module.state_dict().items()}
        module.load_state_dict(state)
        made.backward()
        module.load_state_dict(state, assign=True)  # replaces the parameters' tensors
        with pytest.raises(RuntimeError, match=r"first.weight was put in the place of one"):
            made.backward()


OUTSIDE = {
    "a frozen parameter": lambda m: m.first.bias.add_(1),
    "a buffer": lambda m: m.table.mul_(2),
    "another buffer": lambda m: setattr(m, "table", m.table + 1),
    "a state": lambda m: m.load_state_dict({**m.state_dict(), "table": torch.zeros(3)}),
    "another parameter": lambda m: setattr(m.last, "bias", torch.nn.Parameter(m.last.bias * 2)),
    "another layer": lambda m: setattr(m, "drop", torch.nn.BatchNorm1d(16, affine=False)),
    "no buffer": lambda m: delattr(m, "table"),
}


@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE)
def test_what_workers_are_not_sent_must_not_change(change):
    """Otherwise gradients would be those of a module that no longer exists."""
    module = net()
    module.first.bias.requires_grad_(False)
    module.register_buffer("table", torch.arange(3.0))
    with coded(module) as made:
        made.backward()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict(before)  # writes everything, but changes nothing
        made.backward()
        change(module)
        with pytest.raises(RuntimeError, match=r"[mM]ake a new CodedDataParallel"):
            made.backward()


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused(hook):
    module = net()
    with coded(module) as made:
        getattr(module.last.weight, hook)(lambda found: None)
        with pytest.raises(RuntimeError, match=r"hook.*is never called"):
            made.backward()


def test_the_state_of_a_run_may_be_loaded_while_it_goes_on():
    module, other, data = net(), net(), samples()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.1)
    with coded(module, data=data) as made:
        made.backward()
        module.load_state_dict(other.state_dict())
        module.zero_grad()
        made.backward()
        plain_step(other, data, 1)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_same_batch_once_more(workers):
    """LBFGS needs gradients at several points, of one batch with the same dropout."""
    engine = "local" if workers else "simulated"
    module, data = net(0.5), samples()
    with coded(module, data=data, engine=engine, num_workers=workers) as made:
        with pytest.raises(ValueError, match="no batch was taken before"):
            made.backward(same_batch=True)
        for step in range(3):
            found = []
            for again in (False, True, True):
                module.zero_grad()
                result = made.backward(same_batch=again)
                found.append((result.loss, *(p.grad.clone() for p in module.parameters())))
            assert made.step == step + 1
            for first, *others in zip(*found, strict=True):
                assert all(torch.allclose(torch.as_tensor(first), torch.as_tensor(other))
                           for other in others)  # fmt: skip


def test_lbfgs():
    data, module = samples(), net(dtype=torch.float64)
    data = samples(torch.float64)
    plain = copy.deepcopy(module)
    mine, theirs = (
        torch.optim.LBFGS(m.parameters(), max_iter=4, line_search_fn="strong_wolfe")
        for m in (module, plain)
    )
    with coded(module, data=data) as made:
        for step in range(4):
            calls = iter(range(100))

            def closure(calls=calls):
                mine.zero_grad()
                return made.backward(same_batch=next(calls) > 0).loss

            def plain_closure(step=step):
                theirs.zero_grad()
                return plain_step(plain, data, step)

            mine.step(closure)
            theirs.step(plain_closure)
    assert far(module, plain) <= 1e-6


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


def test_modules_that_are_shared_out_are_refused():
    """`fully_shard` makes their parameters DTensors."""

    class Part(torch.nn.Parameter):
        placements = ()

    module = net()
    module.last.bias = Part(module.last.bias.detach())
    with pytest.raises(TypeError, match=r"last.bias is a part of one that several processes"):
        trainable(module)


class Replaces(torch.nn.Module):
    """Forward puts other tensors in the place of its buffers, one of them of another shape."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("mask", torch.zeros(1))

    def forward(self, x):
        self.mean, self.mask = self.mean + x, torch.ones(3)
        return x


def test_buffers_that_forward_replaces_are_restored():
    module = Replaces()
    with unchanged_buffers(module):
        module(torch.ones(2))
        assert module.mean.tolist() == [1.0, 1.0]
    assert module.mean.tolist() == [0.0, 0.0]
    assert module.mask.tolist() == [1.0, 1.0, 1.0]


def test_a_tensor_that_is_saved_is_saved_alone(tmp_path):
    module = net()
    with coded(module) as made:
        made.backward()
        for what in (module.last.bias, module.last.bias.grad):
            torch.save(what, tmp_path / "file")
            assert (tmp_path / "file").stat().st_size < 2000
        torch.save(module.state_dict(), tmp_path / "state")
    again = net()
    again.load_state_dict(torch.load(tmp_path / "state"))
    assert far(module, again) == 0.0


def test_a_loss_that_differs_each_time():
    calls = iter(range(1, 1000))
    with (
        pytest.raises(RuntimeError, match="two computations of the same gradient differ"),
        coded(net(), function=lambda m, b: loss(m, b) * next(calls)),
    ):
        pass


def test_a_worker_that_fails_says_where():
    def fails(module, batch):
        if torch.is_grad_enabled() and len(batch[1]) > 8:
            raise ArithmeticError("by zero")
        return loss(module, batch)

    failing = pytest.raises(fastgc.WorkerFailedError, match=r"(?s)partition.*by zero")
    with coded(net(), engine="local", function=fails) as made, failing:
        made.backward()


def test_callable_engines_get_what_others_get():
    seen = {}

    def engine(*arguments, **keywords):
        seen.update(keywords)
        return SimulatedCluster(*arguments, cost=1.0, **keywords)

    with coded(net(), engine=engine, timeout=50.0) as made:
        assert made.backward().report.wait_seconds > 0
    assert seen["timeout"] == 50.0


def test_import_is_light():
    source = "import sys, fastgc, fastgc.engines; print('torch' in sys.modules)"
    assert programs.printed(source) == "False"


# ------------------------------------------------------------------------- the page's example

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "coded_torch.py"


def lines_of_the_plain_loop(steps=60, size=256, parts=8):
    """Return the example's output, by one process that draws dropout as workers do."""
    torch.manual_seed(0)
    digits = fastgc.data.load("digits")
    x = torch.from_numpy(digits.X_train).float()
    y = torch.from_numpy(digits.y_train).long()
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(128, 10)
    )
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    for step in range(steps):
        optimizer.zero_grad()
        whole, hits = 0.0, 0
        for j, part in enumerate(np.split(order(step, len(x), size=size), parts)):
            seed_all(0, step, j)
            found = module(x[part])
            one = functional.cross_entropy(found, y[part], reduction="sum") / size
            one.backward()
            whole, hits = (
                whole + float(one.detach()),
                hits + int((found.argmax(1) == y[part]).sum()),
            )
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 19:
            yield whole, hits


# The others run the script above, which is short.
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("simulated", "mpi", "ray")]


@pytest.mark.parametrize("engine", ["local", "torch", *LONG])
def test_the_example_is_the_plain_loop_by_any_engine(engine, tmp_path):
    pytest.importorskip("sklearn")
    path, workers = EXAMPLE, 8
    if engine == "torch":  # fewer workers, as each imports torch
        code, workers = "BinaryCode(8, stragglers=2)", 4
        text = EXAMPLE.read_text(encoding="utf-8")
        assert code in text
        path = tmp_path / "example.py"
        path.write_text(text.replace(code, "BinaryCode(4, stragglers=1)"))
    command = command_of(engine, workers + 1, str(path), engine)
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 40
    done = programs.run(command, seconds=300)
    shown = re.findall(r"\d+: loss ([\d.]+), (\d+) of 256", done.stdout)
    plain = lines_of_the_plain_loop(parts=workers)
    for (loss_, hits), expected in zip(shown, plain, strict=True):
        assert float(loss_) == pytest.approx(expected[0], rel=1e-3)
        assert int(hits) == pytest.approx(expected[1], abs=1)
