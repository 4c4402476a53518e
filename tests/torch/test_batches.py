"""Batches of indices, the samples of each, and the processes that fetch them."""

import contextlib
import copy
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from worker_processes import pids, runs, wait_for_ends

from fastgc import (
    BinaryCode,
    ReedSolomon,
    Uncoded,
    WorkerFailedError,
)

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from coded_nets import (  # noqa: E402
    BATCH,
    COMPLEX,
    REAL,
    N,
    coded,
    loss,
    net,
    order,
    samples,
    stragglers,
)

from fastgc.torch import CodedDataParallel  # noqa: E402
from fastgc.torch.batches import (  # noqa: E402
    Batches,
    Drawn,
    Feed,
    Loader,
    edges,
    pickled,
    restored,
    seed_all,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_batches_of_a_sampler():
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


def test_seed_all_workers_draw_alike():
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


@pytest.mark.parametrize(("size", "partitions"), [(6, 3), (7, 3), (3, 3), (23, 5)])
def test_edges_cut_batches_into_even_parts(size, partitions):
    found = edges(size, partitions)
    assert (found[0], found[-1], len(found)) == (0, size, partitions + 1)
    assert set(np.diff(found)) <= {size // partitions, -(-size // partitions)}


class Sampled:
    """A sampler of 8 indices, which notes the epochs that it is told of."""

    def __init__(self, sized=True):
        self.epochs = []
        if not sized:
            self.__class__ = type("Endless", (), {"__iter__": Sampled.__iter__})

    def __len__(self):
        return 8

    def __iter__(self):
        return iter(range(8))

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


def test_batches_tell_a_sampler_its_epochs():
    sampler = Sampled()
    batches = Batches(range(30), 3, 3, 0, sampler)
    assert batches.per_epoch == 2
    assert [batches.take().tolist() for _ in range(5)] == [
        [[0, 1, 2]],
        [[3, 4, 5]],
    ] * 2 + [[[0, 1, 2]]]
    assert sampler.epochs == [0, 1, 2]
    state = batches.state_dict()
    assert state == {"step": 5, "seed": 0, "size": 3, "samples": 30}
    batches.load_state_dict(state | {"step": 3})
    assert (batches.step, batches.take().tolist()) == (3, [[3, 4, 5]])
    assert sampler.epochs == [0, 1, 2, 0, 1]
    with pytest.raises(TypeError, match="Endless"):
        Batches(range(30), 3, 3, 0, Sampled(sized=False)).per_epoch  # noqa: B018


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"size": 0}, "batch_size must be at least 1, not 0"),
        ({"size": 2}, "batch_size must be at least 3.*not 2"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"dataset": iter(range(9))}, "range_iterator"),
        ({"dataset": type("Unsized", (), {"__getitem__": None})()}, "Unsized"),
        ({"dataset": range(3)}, "3 samples.*batches of 3 to 3"),
        ({"dataset": range(2)}, "2 samples, too few for 3"),
        ({"sampler": [0, 1, 2]}, "fewer than batch_size = 4"),
        ({"sampler": ["a"] * 4}, "indices, one at a time, not 'a'"),
        ({"sampler": [[0, 1]] * 4}, r"indices, one at a time, not \[0, 1\]"),
    ],
)
def test_batches_refuse(change, error):
    given = {"dataset": range(9), "size": 4, "partitions": 3, "seed": 0}
    with pytest.raises((TypeError, ValueError), match=error):
        Batches(**given | change).take()
    batches = Batches(**given)
    for wrong in ({"seed": 1}, {"size": 5}, {"samples": 8}, {"step": -1}):
        ((name, value),) = wrong.items()
        with pytest.raises(ValueError, match=f"{name}.*{value}"):
            batches.load_state_dict(batches.state_dict() | wrong)


def draw_all():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()  # noqa: NPY002


def test_seed_all_depends_on_every_number():
    found = []
    for numbers in ((1, 2, 3), (1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0)):
        seed_all(*numbers)
        found.append(draw_all())
    assert found[0] == found[1]
    for each in zip(*found[1:], strict=True):
        assert len(set(map(str, each))) == 4  # torch, NumPy and random each


def test_drawn_tells_whether_anything_was_drawn_and_restores_it():
    before = Drawn.now()
    assert Drawn.now() == before
    first = draw_all()
    for draw in (lambda: torch.rand(1), lambda: np.random.rand(), random.random):  # noqa: NPY002
        before.restore()
        assert Drawn.now() == before
        draw()
        assert Drawn.now() != before
    with restored(torch.device("cpu")):
        before.restore()
        assert draw_all() == first
    assert Drawn.now() != before
    before.restore()
    with contextlib.suppress(ArithmeticError), restored(torch.device("cpu")):
        draw_all()
        raise ArithmeticError
    assert draw_all() == first


def test_feed_takes_samples_one_by_one_or_together():
    class Together(list):
        def __getitems__(self, indices):
            return [10 * self[i] for i in indices]

    assert Feed([5, 6, 7], tuple)([2, 0]) == (7, 5)
    assert Feed(Together([5, 6, 7]), tuple)(np.array([2, 0])) == (70, 50)
    with pytest.raises(IndexError) as raised:
        Feed([5, 6, 7], tuple)([0, 3])
    assert raised.value.__notes__ == ["of dataset[3]"]


def test_loader_gives_what_was_asked_and_forgets_what_is_late():
    def noisy(indices):
        seed_all(3, *at)
        return (indices.tolist(), *draw_all())

    def fetch(samples):
        return (list(samples), *draw_all())

    loader = Loader(Feed(range(100), fetch), 3, 2)
    at = (0, 0)
    loader.ask(0, 0, np.array([4, 5]))
    loader.ask(0, 1, np.array([6]))
    loader.ask(1, 0, np.array([7]))
    assert loader.ask(1, 0, np.array([7])) == loader.ask(1, 0, np.array([7]))
    assert loader.take(0, 0, np.array([4, 5])) == noisy(np.array([4, 5]))
    after = draw_all()
    noisy(np.array([]))
    assert draw_all() == after  # the generators' states are those after the batch
    loader.begin(1)
    at = (1, 0)
    assert loader.take(1, 0, np.array([7])) == noisy(np.array([7]))
    at = (2, 1)
    assert loader.take(2, 1, np.array([8])) == noisy(np.array([8]))  # nobody asked before


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


# ---------------------------------------------------------------------- datasets that lie in memory


def tensors():
    x = torch.arange(24.0).reshape(4, 6)
    z = torch.complex(x, x)
    return [
        x, x[1:3], x.t(), x[:, 0].expand(3, 4), x.bfloat16(), x > 3, z, z.conj(), z.conj().imag,
        torch.tensor(5), torch.zeros(0, 3), x.clone().requires_grad_(), x.to_sparse(),
        torch.nn.Parameter(x), x.to("meta"),
    ]  # fmt: skip


@pytest.mark.parametrize("apart", [None, "writable", "read-only"])
def test_pickled_tensors(apart):
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


# --------------------------------------------------------------------- processes that fetch samples


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
def test_loader_fetches_the_same_to_the_bit(noise, dropout):
    data = Noisy(noise=noise)  # an epoch has four steps
    expected = gradients(data, dropout=dropout)
    for count in (1, 3) if noise and dropout else (2,):
        assert alike(gradients(data, dropout=dropout, num_workers=count), expected)


@pytest.mark.filterwarnings("ignore:.*complex coefficients")
@pytest.mark.parametrize(
    "code", [ReedSolomon(3, stragglers=1), BinaryCode(3, 4, stragglers=1)], ids=repr
)
def test_loader_by_any_code(code):
    assert alike(gradients(Noisy(), code=code, num_workers=2), gradients(Noisy(), code=code))


def test_loader_by_a_sampler():
    taken = [*range(60)]
    expected = gradients(Noisy(), sampler=taken)
    assert alike(gradients(Noisy(), sampler=taken, num_workers=2), expected)


@pytest.mark.parametrize("count", [0, 2])
def test_feed_names_a_sample_that_cannot_be_had(count):
    with pytest.raises(WorkerFailedError, match=r"(?s)LookupError: no such picture.*dataset\[33\]"):
        gradients(Noisy(bad=[33]), num_workers=count)


def test_loader_of_a_batch_that_cannot_be_sent():
    with pytest.raises(WorkerFailedError, match=r"(?s)process that fetches samples.*pickle"):
        gradients(Noisy(), num_workers=1, collate_fn=lambda samples: Unpicklable(samples))


class Unpicklable(dict):
    """A batch that does not pickle."""

    def __init__(self, samples):
        super().__init__(torch.utils.data.default_collate(samples))

    def __reduce__(self):
        raise TypeError("cannot pickle it")


def test_loader_replaces_a_process_that_ends(tmp_path):
    expected = gradients(Noisy())
    data = Noisy(deadly=(tmp_path / "died", False))
    assert alike(gradients(data, num_workers=2), expected)
    assert (tmp_path / "died").exists()
    with pytest.raises(WorkerFailedError, match=r"(?s)3 processes that were to fetch.*have ended"):
        gradients(Noisy(deadly=(tmp_path / "dead", True)), num_workers=1)


def test_loader_waits_for_a_process_that_is_stopped():
    before = children(os.getpid())
    loader, indices = Loader(Feed(range(100), list), 3, 1), np.array([4, 5])
    [process] = set(children(os.getpid())) - set(before)
    os.kill(process, signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        taken = threads.submit(loader.take, 0, 0, indices)
        assert not wait([taken], 0.2).done
        os.kill(process, signal.SIGCONT)
        assert taken.result(60.0) == [4, 5]


def children(*parents):
    """Return the processes that these have started."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = each.read_text().rpartition(")")[2].split()[:2]
            if int(parent) in parents and state != "Z":
                found.append(int(each.parent.name))
    return found


@pytest.mark.parametrize("how", ["close", "worker", "stopped"])
def test_loader_leaves_nothing_running(how):
    data = Noisy()
    with CodedDataParallel(
        torch.nn.Linear(3, 1), squares, data, BinaryCode(3, stragglers=1), batch_size=9,
        num_workers=2, patience=0.0,
    ) as coded:  # fmt: skip
        coded.backward()
        workers = sorted(pids())
        fetching = children(*workers)
        assert len(fetching) == 6
        for each in fetching if how == "stopped" else ():
            os.kill(each, signal.SIGSTOP)
        if how == "worker":
            mine = children(workers[0])
            os.kill(workers[0], signal.SIGKILL)
            wait_for_ends(workers[0], *mine)
            coded.backward()
            assert all(map(runs, set(fetching) - set(mine)))
    wait_for_ends(*workers, *fetching)


def test_loader_of_a_program_that_ends_leaves_nothing_stopped():
    source = """if True:
        import os, signal
        import numpy as np
        from fastgc.torch.batches import Feed, Loader
        loader = Loader(Feed(range(9), list), 3, 1)
        loader.take(0, 0, np.arange(2))
        [process] = loader._pool._processes
        os.kill(process, signal.SIGSTOP)
        print(process)
    """
    call = [sys.executable, "-P", "-c", source]  # not the sources of the folder it runs in
    ended = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    wait_for_ends(int(ended.stdout))


SCRIPT = """
import sys, torch, fastgc
from fastgc.torch import CodedDataParallel
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loss = lambda module, batch: ((module(batch[0]) - batch[1]) ** 2).sum()
code = fastgc.BinaryCode(3, stragglers=1)
coded = CodedDataParallel(torch.nn.Linear(4, 1), loss, data, code, batch_size=12, num_workers=2)
coded.backward()
print(*coded._cluster.transport.pids().values(), flush=True)
sys.stdin.read()
"""


def test_loader_of_a_master_that_is_killed_leaves_nothing(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        workers = [int(pid) for pid in program.stdout.readline().split()]
        fetching = children(*workers)
        assert len(fetching) == 6
        program.kill()
    wait_for_ends(*workers, *fetching)
