"""Whole trainings by `fastgc.torch.CodedDataParallel`, whose workers are killed at random."""

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from worker_processes import pids, runs, wait_for_ends

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    Reactive,
    ReedSolomon,
    Uncoded,
    WorkerFailedError,
)

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from torch.nn import functional  # noqa: E402

from fastgc.torch import CodedDataParallel  # noqa: E402
from fastgc.torch.batches import Batches, pickled, seed_all  # noqa: E402

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


# ------------------------------------------------------------------- datasets that lie in memory


def tensors():
    x = torch.arange(24.0).reshape(4, 6)
    z = torch.complex(x, x)
    return [
        x, x[1:3], x.t(), x[:, 0].expand(3, 4), x.bfloat16(), x > 3, z, z.conj(), z.conj().imag,
        torch.tensor(5), torch.zeros(0, 3), x.clone().requires_grad_(), x.to_sparse(),
        torch.nn.Parameter(x), x.to("meta"),
    ]  # fmt: skip


@pytest.mark.parametrize("apart", [None, "writable", "read-only"])
def test_tensors_in_pickles(apart):
    given, buffers = tensors(), []
    stored = pickled([given, given[0]], apart and buffers.append)
    raw = [bytearray(b.raw()) if apart == "writable" else bytes(b.raw()) for b in buffers]
    found, again = pickle.loads(stored, buffers=raw)
    assert again is found[0]
    for mine, theirs in zip(found, given, strict=True):
        assert (mine.dtype, mine.shape, type(mine)) == (theirs.dtype, theirs.shape, type(theirs))
        assert mine.requires_grad == theirs.requires_grad
        if mine.device.type == "cpu":
            assert torch.equal(mine.to_dense(), theirs.to_dense())
    found[0][:] = -1.0  # the array is writable, and a copy
    found[4][:] = -1.0
    assert float(given[0].min()) == 0.0
    assert float(found[1].min()) == 6.0


def test_a_dataset_is_there_once_for_all_workers():
    data = torch.utils.data.TensorDataset(torch.randn(2000, 20), torch.zeros(2000))

    def shared(module, batch):
        address = data.tensors[0].data_ptr()
        here = [
            line
            for line in Path("/proc/self/maps").read_text().splitlines()
            if int(line.split("-")[0], 16) <= address < int(line.split("-")[1].split()[0], 16)
        ]
        return module(batch[0]).sum(), len(batch[0]) * ("memfd:fastgc" in here[0])

    module = torch.nn.Linear(20, 1)
    with CodedDataParallel(module, shared, data, BinaryCode(4, stragglers=1), batch_size=40) as c:
        assert c.backward().sums == (40.0,)


def test_what_a_worker_writes_to_its_dataset_is_its_own():
    data = torch.utils.data.TensorDataset(torch.randn(2000, 20), torch.zeros(2000))

    def counting(module, batch):
        data.tensors[1][0] += 1
        return module(batch[0]).sum(), data.tensors[1][0]

    with CodedDataParallel(torch.nn.Linear(20, 1), counting, data, Uncoded(3), batch_size=30) as c:
        before = float(data.tensors[1][0])
        assert [c.backward().sums[0] for _ in range(2)] == [3 * (before + 1), 3 * (before + 2)]
    assert data.tensors[1][0] == before


# -------------------------------------------------------------------- processes that fetch samples


class Noisy(torch.utils.data.Dataset):
    """A dataset in which samples `bad` raise."""

    def __init__(self, count=70, bad=(), deadly=None, noise=True):
        self.x = torch.arange(3.0 * count).reshape(count, 3)
        self.bad, self.deadly, self.noise = bad, deadly, noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if i in self.bad:
            raise LookupError("no such picture")
        # Only in processes that fetch samples, not in the master, which tries some.
        if self.deadly is not None and multiprocessing.parent_process() is not None:
            path, often = self.deadly
            if often or not path.exists():
                path.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        x = self.x[i]
        if self.noise:
            x = x + torch.randn(3) + float(np.random.rand()) + random.random()  # noqa: NPY002
        return {"x": x, "names": [f"{i}", b"?" * 300_000]}


def squares(module, batch):
    assert len(batch["names"][1]) == len(batch["x"])
    return (module(batch["x"]) ** 2).sum(), len(batch["x"])


def gradients(data, steps=5, code=None, dropout=0.5, **options):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(dropout))
    code = BinaryCode(3, stragglers=1) if code is None else code
    found = []
    with CodedDataParallel(
        module,
        squares,
        data,
        code,
        batch_size=15,
        seed=3,
        survivors=lambda round: range(code.n),
        **options,
    ) as coded:
        for _ in range(steps):
            module.zero_grad()
            result = coded.backward()
            assert result.sums == pytest.approx((15.0,), rel=1e-4)
            found += [p.grad.clone() for p in module.parameters()] + [torch.tensor(result.loss)]
    return found


def alike(found, expected):
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("dropout", [0.5, 0.0])
def test_samples_fetched_ahead_are_the_same_to_the_bit(noise, dropout):
    data = Noisy(noise=noise)  # an epoch has four steps
    expected = gradients(data, dropout=dropout)
    for count in (1, 3):
        assert alike(gradients(data, dropout=dropout, num_workers=count), expected)


@pytest.mark.filterwarnings("ignore:.*complex coefficients")
@pytest.mark.parametrize(
    "code", [ReedSolomon(3, stragglers=1), BinaryCode(3, 4, stragglers=1)], ids=repr
)
def test_by_any_code(code):
    assert alike(gradients(Noisy(), code=code, num_workers=2), gradients(Noisy(), code=code))


def test_by_a_sampler_that_ends_with_the_last_step():
    taken = [*range(60)]
    expected = gradients(Noisy(), steps=4, sampler=taken)
    assert alike(gradients(Noisy(), steps=4, sampler=iter(taken), num_workers=2), expected)
    with pytest.raises(ValueError, match="fewer than batch_size"):
        gradients(Noisy(), steps=5, sampler=iter(taken), num_workers=2)


def test_batches_ahead():
    sampled = Batches(Noisy(), 15, 3, 0, range(50), ahead=2)
    whole = np.arange(45).reshape(3, 15)
    for step in range(7):
        assert np.array_equal(sampled.take(), whole[[(step + i) % 3 for i in range(3)]])
    again = Batches(Noisy(), 15, 3, 0, range(50), ahead=1)
    again.take()
    again.load_state_dict(sampled.state_dict())
    assert again.step == 7
    assert np.array_equal(again.take(), whole[[1, 2]])
    plain, ahead = Batches(Noisy(), 15, 3, 0), Batches(Noisy(), 15, 3, 0, ahead=3)
    expected = [plain.take()[0] for _ in range(13)]
    for step in range(10):
        assert np.array_equal(ahead.take(), expected[step : step + 4])
    ahead.load_state_dict({**ahead.state_dict(), "step": 2})
    assert np.array_equal(ahead.take(), expected[2:6])
    ends = Batches(Noisy(), 15, 3, 0, iter(range(20)), ahead=1)
    assert np.array_equal(ends.take(), [range(15), [-1] * 15])


@pytest.mark.parametrize("count", [0, 2])
def test_a_sample_that_cannot_be_had_is_named(count):
    with pytest.raises(WorkerFailedError, match=r"(?s)LookupError: no such picture.*dataset\[33\]"):
        gradients(Noisy(bad=[33]), num_workers=count)


def test_a_batch_that_cannot_be_sent():
    with pytest.raises(WorkerFailedError, match=r"(?s)process that fetches samples.*pickle"):
        gradients(Noisy(), num_workers=1, collate_fn=lambda samples: Unpicklable(samples))


class Unpicklable(dict):
    """A batch that does not pickle."""

    def __init__(self, samples):
        super().__init__(torch.utils.data.default_collate(samples))

    def __reduce__(self):
        raise TypeError("cannot pickle it")


def test_a_process_that_ends_is_replaced(tmp_path):
    expected = gradients(Noisy())
    data = Noisy(deadly=(tmp_path / "died", False))
    assert alike(gradients(data, num_workers=2), expected)
    assert (tmp_path / "died").exists()
    with pytest.raises(WorkerFailedError, match=r"(?s)3 processes that were to fetch.*signal 9"):
        gradients(Noisy(deadly=(tmp_path / "dead", True)), num_workers=1)


def children(*parents):
    """Return the processes that these have started."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = each.read_text().rpartition(")")[2].split()[:2]
            if int(parent) in parents and state != "Z":
                found.append(int(each.parent.name))
    return found


@pytest.mark.parametrize("how", ["close", "worker"])
def test_nothing_is_left_running(how):
    data = Noisy()
    with CodedDataParallel(
        torch.nn.Linear(3, 1), squares, data, BinaryCode(3, stragglers=1), batch_size=9,
        num_workers=2, patience=0.0,
    ) as coded:  # fmt: skip
        coded.backward()
        workers = sorted(pids())
        fetching = children(*workers)
        assert len(fetching) == 6
        if how == "worker":
            mine = children(workers[0])
            os.kill(workers[0], signal.SIGKILL)
            wait_for_ends(workers[0], *mine)
            coded.backward()
            assert all(map(runs, set(fetching) - set(mine)))
    wait_for_ends(*workers, *fetching)


SCRIPT = """
import os, sys, torch, fastgc
from fastgc.torch import CodedDataParallel
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loss = lambda module, batch: ((module(batch[0]) - batch[1]) ** 2).sum()
code = fastgc.BinaryCode(3, stragglers=1)
coded = CodedDataParallel(
    torch.nn.Linear(4, 1), loss, data, code, batch_size=12, num_workers=2, engine=sys.argv[1]
)
print(f"{coded.backward().loss:.3f}", flush=True)
print(*coded._cluster.transport.pids().values() if sys.argv[1] == "local" else "", flush=True)
if sys.argv[1] == "local":
    sys.stdin.read()
"""


def test_a_master_that_is_killed_leaves_nothing(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, "script.py", "local"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        program.stdout.readline()
        workers = [int(pid) for pid in program.stdout.readline().split()]
        fetching = children(*workers)
        assert len(fetching) == 6
        program.kill()
    wait_for_ends(*workers, *fetching)


# --------------------------------------------------------------------- what halves tell of losses


@pytest.mark.filterwarnings("ignore:.*complex coefficients")
@pytest.mark.parametrize("engine", ["simulated", "local"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "code",
    [BinaryCode(4, stragglers=1), CyclicRepetition(4, stragglers=1), ReedSolomon(4, stragglers=1)],
    ids=repr,
)
def test_losses_and_sums_are_not_rounded_to_halves(code, dtype, engine):
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
        # An odd number of parameters, and buffers, which are also sent.
        module = torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1))
        with CodedDataParallel(
            module, distances, data, code, batch_size=180, engine=engine, reduction="sum",
            buffers="mean", message_dtype=message_dtype, survivors=lambda round: range(4),
        ) as coded:  # fmt: skip
            result = coded.backward()
        grads = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        numbers = [result.loss, *result.sums, *module[0].running_mean, *module[0].running_var]
        found.append((grads, np.array([float(each) for each in numbers])))
    (grads, exact), (rounded, numbers) = found
    np.testing.assert_allclose(numbers, exact, rtol=1e-5, atol=1e-6)
    assert 0 < float((rounded - grads).abs().max()) < 0.05 * float(grads.abs().max())
