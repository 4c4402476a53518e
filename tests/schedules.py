"""Random schedules of faults for `fastgc.torch.ReactiveDataParallel`.

    python tests/schedules.py 20 --seed 0        # 20 schedules; prints what failed

Four ranks train a small network, while random ranks are killed (one, several, all but one; rank 0;
while they join, warm up, regroup or save) or stopped, processes that fetch samples are killed, and
the coordinator is stopped or started again. In each step each rank compares its gradient with that
of the whole batch; at the end all have the same bits, and those of one process up to rounding.

Ranks are forks of this process, which has imported torch and has no threads.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

import fastgc
from fastgc.torch import ReactiveDataParallel
from fastgc.torch.coordinator import Server

N, SAMPLES, BATCH = 4, 400, 60
EXACT = 1e-6  # relative error of a step
SECONDS = 60.0  # for a schedule
KINDS = ("plain", "accumulate", "gan", "norm", "save", "compile", "loader", "shares")
TROUBLES = ("one", "zero", "two", "regroup", "most", "join", "warm", "save", "fetch", "stop")
TROUBLES += ("server", "silent")

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(SAMPLES, 20), torch.randn(SAMPLES, 1)


def batch(number):
    """Return the indices of a batch."""
    drawn = torch.Generator().manual_seed(number)
    return torch.randperm(SAMPLES, generator=drawn)[:BATCH]


class Training:
    """A training of some kind: `turns` are the calls of backward in a step."""

    def __init__(self, kind):
        torch.manual_seed(1)
        self.kind = kind
        norm = [torch.nn.BatchNorm1d(32)] if kind == "norm" else []
        self.net = torch.nn.Sequential(
            torch.nn.Linear(20, 32), *norm, torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )
        self.forward = (
            torch.compile(self.net, backend="aot_eager") if kind == "compile" else self.net
        )
        self.load = lambda indices: (X[indices], Y[indices])
        self.other, self.factor = torch.nn.Linear(1, 1), 1.0
        self.models = [self.net, self.other] if kind == "gan" else [self.net]
        # A low rate: near a minimum the gradient is a small sum of large terms, which the order of
        # summation changes by more than EXACT.
        self.optimizers = [torch.optim.AdamW(m.parameters(), 1e-3) for m in self.models]
        self.schedulers = [torch.optim.lr_scheduler.StepLR(o, 5, 0.9) for o in self.optimizers]

    @property
    def state(self):
        return [*self.optimizers, *self.schedulers]

    def parameters(self):
        return [p for m in self.models for p in m.parameters()]

    def loss(self, turn, indices):
        """Return the sum of losses; a GAN's turns train one of two modules each."""
        x, y = self.load(indices)
        found = self.forward(x)
        if self.kind == "gan":
            found = self.other(found.detach() if turn == 0 else found)
        return self.factor * ((found - y) ** 2).sum()

    def step(self, step, backward):
        """Do a step; ``backward(turn, indices)`` makes gradients."""
        if self.kind == "shares":  # when the factor jumps, sums begin in a wrong unit
            self.factor = 1e4 if step % 6 < 3 else 1.0
        for turn in range({"accumulate": 3, "gan": 2}.get(self.kind, 1)):
            if turn == 0 or self.kind == "gan":
                for each in self.optimizers:
                    each.zero_grad()
            backward(turn, batch(3 * step + turn))
            if self.kind == "gan":
                self.optimizers[1 - turn].step()
        if self.kind != "gan":
            self.optimizers[0].step()
        for each in self.schedulers:
            each.step()

    def true(self, turn, indices):
        """Return the gradient of the whole batch."""
        found = torch.autograd.grad(
            self.loss(turn, indices) / BATCH, self.parameters(), allow_unused=True
        )
        return torch.cat(
            [
                torch.zeros(p.numel()) if g is None else g.ravel()
                for p, g in zip(self.parameters(), found, strict=True)
            ]
        )

    def gradient(self):
        return torch.cat(
            [
                torch.zeros(p.numel()) if p.grad is None else p.grad.ravel()
                for p in self.parameters()
            ]
        )


def children(pid):
    """Return the processes that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in found.read_text().split()]


def plain(kind, steps):
    """Return the weights after training in one process."""
    training = Training(kind)

    def backward(turn, indices):
        (training.loss(turn, indices) / BATCH).backward()

    for step in range(steps):
        training.step(step, backward)
    return torch.cat([p.detach().ravel() for p in training.parameters()])


def train(kind, steps, pause, folder, rank, hang):
    """Train on one rank, and write down what became of it."""
    training, worst = Training(kind), 0.0
    own = {"hang": hang, "rank": rank, "shares": 9 if kind == "shares" else None}
    with ReactiveDataParallel(training.models, training.state, **own) as rdp:
        if kind == "loader":
            dataset = torch.utils.data.TensorDataset(X, Y)
            training.load = rdp.loader(dataset, num_workers=1, batch=lambda step: batch(3 * step))
        here = {False: folder / f"in{rank}", True: folder / f"alone{rank}"}

        def backward(turn, indices):
            nonlocal worst
            before = training.gradient()
            true = training.true(turn, indices) if kind != "norm" else None
            rdp.backward(lambda own: training.loss(turn, own), indices)
            if true is not None:
                worst = max(
                    worst, float((training.gradient() - before - true).norm() / true.norm())
                )
            time.sleep(pause * random.random())

        for step in rdp.steps(steps):
            here[rdp.alone].touch()
            here[not rdp.alone].unlink(missing_ok=True)
            training.step(step, backward)
            if kind == "save" and step % 5 == 0 and rdp.first:
                with rdp.busy():
                    (folder / f"saves{rank}").touch()
                    time.sleep(0.3)
                    (folder / f"saves{rank}").unlink()
    weights = torch.cat([p.detach().ravel() for p in training.parameters()])
    return {
        "step": rdp.step,
        "worst": worst,
        "hash": hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12],
        "weights": weights.tolist() if rdp.first else None,
    }


class Run:
    """A run of ranks, which `trouble` disturbs."""

    def __init__(self, seed, folder, kind=None, steps=60, hang=2.0, trace=False):
        self.random = random.Random(seed)
        self.kind = self.random.choice(KINDS) if kind is None else kind
        self.folder, self.steps, self.hang, self.trace = Path(folder), steps, hang, trace
        self.pids, self.log, self.begun = {}, [], time.monotonic()
        self.port, self.server = 0, None
        self.start_server()
        for rank in range(N):
            self.start(rank)

    def note(self, *words):
        self.log.append(f"{time.monotonic() - self.begun:.2f} " + " ".join(map(str, words)))

    def start_server(self):
        read, write = os.pipe()
        self.server = os.fork()
        if not self.server:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                server = Server("127.0.0.1", self.port)
                os.write(write, str(server.port).encode())
                server.run()
            finally:
                os._exit(1)
        self.port = int(os.read(read, 10))
        os.close(read), os.close(write)

    def start(self, rank):
        self.forget(rank)
        self.pids[rank] = os.fork()
        if self.pids[rank]:
            return
        status = 1
        try:
            out = os.open(self.folder / f"log{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1), os.dup2(out, 2)
            faulthandler.register(signal.SIGUSR1, all_threads=True)
            os.environ["FASTGC_STORE"] = f"127.0.0.1:{self.port}"
            os.environ["WORLD_SIZE"] = str(N)
            found = train(self.kind, self.steps, 0.05, self.folder, rank, self.hang)
            (self.folder / f"{rank}.json").write_text(json.dumps(found))
            status = 0
        except fastgc.FinishedError:
            status = 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def there(self, where):
        """Return the ranks that are somewhere: in the run, alone, or saving, as far as is known."""
        return [r for r in self.pids if (self.folder / f"{where}{r}").exists()]

    def forget(self, rank):
        for where in ("in", "alone", "saves"):
            (self.folder / f"{where}{rank}").unlink(missing_ok=True)

    def soon(self, where):
        """Wait until a rank is somewhere; return those that are."""
        end = time.monotonic() + 1.5
        while not self.there(where) and time.monotonic() < end and self.pids:
            self.tend(0.0)
        return self.there(where)

    def kill(self, *ranks):
        self.note("kill", *ranks)
        for rank in set(ranks) & set(self.pids):
            self.forget(rank)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], signal.SIGKILL)

    def tend(self, seconds):
        """Start ranks again that have died, for so many seconds; return whether all have ended."""
        end = time.monotonic() + seconds
        while True:
            for rank, pid in list(self.pids.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if not done:
                    continue
                code = os.waitstatus_to_exitcode(status)
                log = (self.folder / f"log{rank}").read_text().strip().splitlines()
                self.note("ended", rank, code, log[-1] if code == 1 and log else "")
                if code in (0, 3) or len(self.log) > 100:
                    del self.pids[rank]
                else:
                    self.start(rank)
            if not self.pids or time.monotonic() >= end:
                return not self.pids
            time.sleep(0.005)

    def trouble(self):
        """Do something bad."""
        what = self.random.choice(TROUBLES)
        inside = self.there("in")
        if len(inside) < 2:
            return
        some = self.random.sample(inside, len(inside))
        if what == "one":
            self.kill(some[0])
        elif what == "zero" and 0 in inside:
            self.kill(0)
        elif what == "two" and len(some) > 2:
            self.kill(*some[:2])
        elif what == "most":
            self.kill(*some[1:])
        elif what == "regroup" and len(some) > 2:
            self.kill(some[0])
            time.sleep(0.03 * self.random.random())
            self.kill(some[1])
        elif what == "join":
            self.kill(some[0])
            self.tend(0.3 * self.random.random())
            if some[0] in self.pids:
                self.kill(some[0])
        elif what == "warm":
            self.kill(some[0])
            self.kill(*self.soon("alone"))
        elif what == "save" and self.kind == "save":
            self.kill(*self.soon("saves"))
        elif what == "fetch" and self.kind == "loader":
            self.note("kill processes of", some[0])
            for each in children(self.pids[some[0]]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        elif what == "stop":
            seconds = self.random.choice([0.5, 1.5, 2 * self.hang + 3])
            self.note("stop", some[0], seconds)
            pid = self.pids[some[0]]
            os.kill(pid, signal.SIGSTOP)
            self.tend(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        elif what == "server":
            self.note("server again")
            os.kill(self.server, signal.SIGKILL)
            os.waitpid(self.server, 0)
            self.tend(self.random.random())
            self.start_server()
        elif what == "silent":
            self.note("server silent")
            os.kill(self.server, signal.SIGSTOP)
            self.tend(0.2)
            self.kill(some[0])
            self.tend(self.random.choice([1.5, 5.0]))
            os.kill(self.server, signal.SIGCONT)

    def run(self):
        """Run to the end; return what is wrong, an empty string if nothing is."""
        try:
            while not self.tend(0.3 + 1.2 * self.random.random()):
                if time.monotonic() - self.begun > SECONDS:
                    return self.hung()
                if len(self.log) < 40 and time.monotonic() - self.begun < SECONDS / 3:
                    self.trouble()
            return self.compare()
        finally:
            for pid in [self.server, *self.pids.values()]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def hung(self):
        for pid in self.pids.values():
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        logs = "\n".join(p.read_text()[-4000:] for p in sorted(self.folder.glob("log*")))
        return f"hung: ranks {sorted(self.pids)}\n{logs}"

    def compare(self):
        found = [json.loads(p.read_text()) for p in self.folder.glob("*.json")]
        wrong = []
        if not found:
            wrong.append("no rank has ended its training")
        if any(each["step"] != self.steps for each in found):
            wrong.append(f"steps {[each['step'] for each in found]}")
        if any(not each["worst"] <= EXACT for each in found):
            wrong.append(f"errors {[each['worst'] for each in found]}")
        if len({each["hash"] for each in found}) > 1:
            wrong.append("copies differ")
        told = [each["weights"] for each in found if each["weights"]]
        if self.kind != "norm":  # which normalises each share by itself
            truth = plain(self.kind, self.steps)
            for each in told:
                error = float((torch.tensor(each) - truth).abs().max() / truth.abs().max())
                if not error <= 1e-4:
                    wrong.append(f"weights differ from those of one process: {error:.1e}")
        logs = "\n".join(p.read_text()[-3000:] for p in sorted(self.folder.glob("log*")))
        return "; ".join(wrong) + (f"\n{logs}" if wrong else "")


def schedule(seed, folder, **options):
    """Run a schedule; return it and what is wrong."""
    run = Run(seed, folder, **options)
    return run, run.run()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS)
    given = parser.parse_args()
    torch.nn.Linear(1, 1)(torch.zeros(1, 1)).sum().backward(), Training("plain")
    bad, kills = 0, 0
    for seed in range(given.seed, given.seed + given.count):
        with tempfile.TemporaryDirectory() as folder:
            run, wrong = schedule(seed, folder, kind=given.kind)
            kills += sum(" kill " in each for each in run.log)
            seconds = time.monotonic() - run.begun
            print(f"{seed} {run.kind} {seconds:.1f} s: {'; '.join(run.log)}", flush=True)
            if wrong:
                bad += 1
                print(f"WRONG: {wrong}", flush=True)
    print(f"{given.count} schedules, {kills} kills, {bad} wrong")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
