"""Groups of ranks without a master: what they train, and how they are started and killed.

Each test forks a job from a process that has imported torch, and the job forks the ranks. None of
these processes has threads of torch when it forks, because threads do not survive a fork.
"""

import atexit
import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import programs
import pytest

import fastgc

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")

# Pickle this module by value: other processes cannot import it, as the tests are not on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N, BATCH, SAMPLES, SEED = 6, 30, 100, 7
PER_EPOCH = SAMPLES // BATCH
SECONDS = 60.0  # time for a job to end, on a machine that is busy with others
EXACT = 1e-6  # relative error of a step
SLACK = 10.0  # further seconds that a busy machine may take


def samples():
    rng = np.random.default_rng(5)
    x, y = (torch.from_numpy(rng.standard_normal((SAMPLES, m), np.float32)) for m in (20, 1))
    return torch.utils.data.TensorDataset(x, y)


def net(width=32):
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(20, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
    )


class Momentum:
    """SGD with momentum; torch's own optimizers import modules, which takes seconds."""

    def __init__(self, module):
        self.parameters = list(module.parameters())
        self.momentum = [torch.zeros_like(p) for p in self.parameters]
        # A low rate: near a minimum the gradient is a small sum of large terms, and the order of
        # summation alone changes it by more than EXACT.
        self.rate = 0.03 / len(self.parameters[0])

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.parameters, self.momentum, strict=True):
            m.mul_(0.9).add_(p.grad)
            p.sub_(self.rate * m)

    def state_dict(self):
        return {"momentum": self.momentum}

    def load_state_dict(self, state):
        self.momentum = [m.clone() for m in state["momentum"]]


def order(step):
    """Return a step's samples, by the definition in the documentation."""
    epoch, at = divmod(step, PER_EPOCH)
    whole = np.random.default_rng((SEED, epoch)).permutation(SAMPLES)
    return whole[at * BATCH : (at + 1) * BATCH]


def losses(module, x, y):
    return ((module(x) - y) ** 2).sum(1) / BATCH


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def plain(steps, make=net, of=1):
    """Return the parameters after the plain loop, of steps of `of` batches each."""
    module, data = make(), samples()
    optimizer = Momentum(module)
    for step in range(steps):
        optimizer.zero_grad()
        for each in range(of):
            losses(module, *data[order(of * step + each)]).sum().backward()
        optimizer.step()
    return flat(module.parameters())


def whole_and_error(module, step, of=1):
    """Return a step's loss of the whole batch, and the relative error of the gradients found."""
    data = samples()
    whole = sum(losses(module, *data[order(of * step + each)]).sum() for each in range(of))
    truth = flat(torch.autograd.grad(whole, list(module.parameters())))
    error = (flat(p.grad for p in module.parameters()) - truth).norm()
    return whole.item(), float(error / truth.norm())


def loading(data, sampler, ahead):
    """Yield batches for ever, like a DataLoader whose workers take `ahead` batches in advance."""
    while True:
        coming = []
        for indices in sampler:
            coming.append(indices)
            if len(coming) > ahead:
                yield data[coming.pop(0)]
        while coming:
            yield data[coming.pop(0)]


def training(
    code,
    steps,
    trouble=lambda moment, rank, step, life: None,
    width=32,
    comes_back=True,
    of=1,
    ahead=0,
    reactive=False,
    **options,
):
    """Return a rank's program, which returns its worst step's error and what became of the rank.

    `steps`, of `of` batches each, is a number or a function that returns it.
    """

    def train(rank, store, life):
        from fastgc.torch import CodedAllReduce, CodedSampler

        end = steps if callable(steps) else lambda: steps
        module, data = net(width), samples()
        optimizer = Momentum(module)
        sampler = CodedSampler(data, code, BATCH, rank, seed=SEED)
        worst, left_out, computed = 0.0, 0, []

        def compute(x, y):
            computed.append(len(x))
            loss = (losses(module, x, y) * sampler.weights).sum()
            loss.backward()
            return [loss.item()]

        settings = {"deadline": 30.0, "settle": 1.5, "sampler": sampler, "state": [optimizer]}
        if reactive:
            settings["redundancy"] = "reactive"
            settings["recompute"] = lambda indices: compute(*data[indices])
        settings |= {"accumulate": of, "store": store, "rank": rank, **options}
        with CodedAllReduce(module, code, **settings) as all_reduce:
            joined = all_reduce.joined
            store.set(f"{rank}/life/{life}", b"")
            batches = loading(data, sampler, ahead)
            while (step := all_reduce.step) < end():
                optimizer.zero_grad()
                loss = sum(compute(*next(batches))[0] for _ in range(of))
                store.set(f"{rank}/{step}", b"")
                trouble("before", rank, step, life)
                try:
                    (total,) = all_reduce(loss)
                except fastgc.LeftOutError:
                    if not comes_back:
                        raise
                    left_out += 1
                    all_reduce.join()
                    batches = loading(data, sampler, ahead)
                    continue
                trouble("after", rank, step, life)
                whole, error = whole_and_error(module, step, of)
                worst = max(worst, error)
                assert total == pytest.approx(whole, rel=1e-5)
                optimizer.step()
            trouble("end", rank, all_reduce.step, life)
        return {
            "worst": worst,
            "steps": all_reduce.step,
            "theta": flat(module.parameters()).numpy(),
            "momentum": flat(optimizer.momentum).numpy(),
            "ranks": all_reduce.ranks,
            "joined": joined,
            "left out": left_out,
            "changes": len(all_reduce.changes) - 1,
            "computed": sum(computed),
        }

    return train


# -------------------------------------------------------------------------------- jobs of processes


def keep_a_store():
    """Start a process that keeps a store, whose threads would not survive later forks.

    Returns its process id and port.
    """
    read, write = os.pipe()
    if not (keeper := os.fork()):
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        while True:
            signal.pause()  # until the session is killed
    return keeper, int(os.read(read, 10))


AWAITED = "ranks that come back are awaited"
here: list = []  # a rank's store


class Ranks:
    """Processes that each run ``train(rank, store, life)``."""

    def __init__(self, train, folder, count=N):
        self.train, self.folder, self.lives, self.pids = train, Path(folder), {}, {}
        self.keeper, self.port = keep_a_store()
        self.store = torch.distributed.TCPStore("127.0.0.1", self.port, is_master=False)
        for rank in range(count):
            self.start(rank)

    def start(self, rank):
        life = self.lives[rank] = self.lives.get(rank, -1) + 1
        self.pids[rank] = os.fork()
        if self.pids[rank]:
            return
        try:
            torch.set_num_threads(1)
            store = torch.distributed.TCPStore("127.0.0.1", self.port, is_master=False)
            here.append(store)
            try:
                found = self.train(rank, store, life)
            except Exception:
                found = traceback.format_exc()
            (self.folder / f"{rank}").write_bytes(pickle.dumps(found))
        finally:
            os._exit(0)

    def signal(self, rank, number=signal.SIGKILL):
        os.kill(self.pids[rank], number)
        if number == signal.SIGKILL:
            os.waitpid(self.pids.pop(rank), 0)

    def until(self, key):
        while not self.store.check([key]):
            time.sleep(0.005)

    def until_back(self, *ranks):
        """Wait until `ranks` have joined or ended; meanwhile `slowly` keeps the run from ending."""
        self.store.set(AWAITED, b"")
        for rank in ranks:
            joined = f"{rank}/life/{self.lives[rank]}"
            while not (self.store.check([joined]) or self.ended(rank)):
                time.sleep(0.005)
        self.store.delete_key(AWAITED)

    def kill_and_start(self, *ranks, after=0.0):
        """Kill ranks, start them again `after` so many seconds, and wait until they are back."""
        self.store.set(AWAITED, b"")
        for rank in ranks:
            self.signal(rank)
        time.sleep(after)
        for rank in ranks:
            self.start(rank)
        self.until_back(*ranks)

    def ended(self, rank):
        return os.waitid(os.P_PID, self.pids[rank], os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def results(self):
        for pid in self.pids.values():
            os.waitpid(pid, 0)
        return {int(p.name): pickle.loads(p.read_bytes()) for p in self.folder.glob("[0-9]*")}


JOBS = """
import gc, os, pickle, sys, traceback
from pathlib import Path
import torch, fastgc.torch
torch.manual_seed(0), torch.nn.Linear(1, 1)  # imports what each rank would import again
gc.collect()
gc.freeze()  # otherwise each rank's collections go through all of torch, and copy its pages
for line in iter(sys.stdin.readline, ""):
    folder = Path(line.rstrip("\\n"))
    if job := os.fork():
        print(job, flush=True)
        print(os.waitpid(job, 0)[1], flush=True)
        continue
    try:
        os.setsid()
        with (folder / "log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        pickle.loads((folder / "run").read_bytes())()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
"""


@functools.cache
def jobs(program):
    """Start a process that forks one job after another, so that torch is imported only once.

    It serves the tests of all files, and ends with the Python that runs them.
    """
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    atexit.register(server.communicate, timeout=SECONDS)  # its input ends, and so does it
    return server


def launch(folder, train, director=None, count=N, imports=lambda: None):
    """Return the results of the ranks that end by themselves, while `director` makes trouble.

    `imports` is called once, before the ranks exist.
    """

    def run():
        imports()
        ranks = Ranks(train, folder, count)
        if director is not None:
            director(ranks)
        (Path(folder) / "results").write_bytes(pickle.dumps(ranks.results()))

    in_a_job(folder, run)
    return pickle.loads((folder / "results").read_bytes())


def launch_each(folder, trains, directors=None, counts=None):
    """Run several groups of ranks at once, as they mostly wait; return all results."""
    directors = directors or [None] * len(trains)
    counts = counts or [N] * len(trains)

    def run():
        groups = []
        for number, (train, director, count) in enumerate(
            zip(trains, directors, counts, strict=True)
        ):
            if group := os.fork():
                groups.append(group)
                continue
            try:
                (own := Path(folder) / f"group{number}").mkdir()
                ranks = Ranks(train, own, count)
                if director is not None:
                    director(ranks)
                (own / "results").write_bytes(pickle.dumps(ranks.results()))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        assert [os.waitpid(group, 0)[1] for group in groups] == [0] * len(groups)

    in_a_job(folder, run)
    return [
        pickle.loads((folder / f"group{number}" / "results").read_bytes())
        for number in range(len(trains))
    ]


def in_a_job(folder, run):
    (folder / "run").write_bytes(cloudpickle.dumps(run))
    server = jobs(JOBS)
    print(folder, file=server.stdin, flush=True)
    job = int(server.stdout.readline())
    late = threading.Timer(SECONDS, os.killpg, (job, signal.SIGKILL))
    late.start()
    try:
        assert int(server.stdout.readline()) == 0, (folder / "log").read_text()
    finally:
        late.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job, signal.SIGKILL)


# ------------------------------------------------------------------------- troubles, and results


def torchrun(folder, count, *program, seconds=120):
    """Run a program on `count` ranks of torchrun; return it when it has ended."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = programs.torchrun(count, *program)
    return programs.run(command, status=None, folder=folder, seconds=seconds, env=path)


def kill(rank, at, seconds=None):
    """Trouble: kill a rank in its first life, at a moment of a step or `seconds` later."""

    def trouble(moment, r, step, life):
        if (r, (moment, step), life) == (rank, at, 0):
            if seconds is None:
                os.kill(os.getpid(), signal.SIGKILL)
            timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()

    return trouble


def slowly(moment, rank, step, life):
    """Trouble: a step takes 0.02 s more, or 0.2 s while the director waits for ranks."""
    time.sleep(0.1 if here[0].check([AWAITED]) else 0.01)


def wait_until_back(store, was_late):
    """Go on slowly until a rank that was late says that it is back."""
    if was_late:
        store.set("back", b"")
    elif not store.check(["back"]):
        time.sleep(0.1)


def without(rank):
    return [r for r in range(N) if r != rank]


def check(results, steps, ranks=range(N), make=net, of=1):
    """Require of all ranks: they did all steps with the whole batch, and hold the same bits."""
    assert sorted(results) == sorted(ranks)
    for each in results.values():
        assert isinstance(each, dict), each
        assert each["steps"] == steps
        assert each["worst"] <= EXACT
    first = next(iter(results.values()))
    for each in results.values():
        assert np.array_equal(each["theta"], first["theta"])
        assert np.array_equal(each["momentum"], first["momentum"])
    truth = plain(steps, make, of).numpy()
    assert abs(first["theta"] - truth).max() <= 1e-5 * abs(truth).max()


def train_on_digits(steps=60, size=240):
    """Run the documentation's loop without ranks; return every 20th loss, and the parameters."""
    torch.manual_seed(0)
    digits = fastgc.data.load("digits")
    x = torch.from_numpy(digits.X_train).float()
    y = torch.from_numpy(digits.y_train).long()
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )
    optimizer, told = torch.optim.AdamW(module.parameters(), lr=3e-3), []
    for step in range(steps):
        epoch, at = divmod(step, len(x) // size)
        part = np.random.default_rng((0, epoch)).permutation(len(x))[at * size : (at + 1) * size]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x[part]), y[part])
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            told.append(loss.item())
    return told, [p.detach() for p in module.parameters()]
