"""Examples whose ranks die at random: their weights are those of one process."""

import importlib.util
import os
import random
import re

import numpy as np
import programs
import pytest
from examples import EXAMPLES

import fastgc

torch = pytest.importorskip("torch")

# What a rank does in each call of `compute`: it sleeps, so that ranks come back before the end.
TROUBLE = """
import os, signal, threading, time

calls = 0


def trouble():
    global calls
    calls += 1
    time.sleep(0.1)
    rank, died = os.environ["RANK"], os.path.exists("died" + os.environ["RANK"])
    if f"{rank}:{calls}" in os.environ["DEATHS"].split() and not died:
        open("died" + rank, "w").close()
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(0.1, kill).start() if calls % 2 else kill()
"""
SAVED = """
import os
torch.save([p.detach() for p in model.parameters()], f"{os.environ['RANK']}.pt")
"""


def plain(steps=60, size=240):
    """Return each 20th loss of the examples' loop in one process, and the parameters."""
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
        part = np.random.default_rng(epoch).permutation(len(x))[at * size : (at + 1) * size]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x[part]), y[part])
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            told.append(loss.item())
    return told, [p.detach() for p in module.parameters()]


@pytest.mark.long
@pytest.mark.parametrize("name", ["ranks", "accelerate", "lightning"])
def test_the_example_is_the_plain_loop_though_ranks_are_killed(name, tmp_path):
    if name != "ranks" and importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    text = (EXAMPLES / f"reactive_{name}.py").read_text(encoding="utf-8")
    head = re.search('( +)"""Return the sum of the losses of some samples."""\n', text)
    text = text.replace(head[0], f"{head[0]}{head[1]}trouble()\n")
    text = text.replace("\nimport numpy", "\nfrom trouble import trouble\nimport numpy", 1)
    told, truth = plain()
    for seed in range(2):
        rng, folder = random.Random(f"{name} {seed}"), tmp_path / str(seed)
        folder.mkdir()
        (folder / "trouble.py").write_text(TROUBLE, encoding="utf-8")
        (folder / "dies.py").write_text(text + SAVED, encoding="utf-8")
        deaths = " ".join(f"{rank}:{rng.randint(2, 50)}" for rank in rng.sample(range(3), 2))
        done = programs.run(
            programs.torchrun(3, "-m", "fastgc.guard", "dies.py"),
            folder=folder,
            env={"DEATHS": deaths},
        )
        assert done.stderr.count("was killed by SIGKILL, and is started again") == 2, done.stderr
        losses = dict(re.findall(r"^(\d+): loss ([\d.]+), ranks .*$", done.stdout, re.M))
        assert [*losses] == ["20", "40", "60"], done.stdout + done.stderr
        for loss, true in zip(losses.values(), told, strict=True):
            assert float(loss) == pytest.approx(true, abs=2e-4)
        saved = [name for name in os.listdir(folder) if name.endswith(".pt")]
        assert saved
        for each in saved:
            for mine, true in zip(torch.load(folder / each), truth, strict=True):
                assert (mine - true).norm() <= 1e-5 * true.norm()


@pytest.mark.long
def test_the_example_goes_on_from_its_checkpoint(tmp_path):
    text = (EXAMPLES / "reactive_ranks.py").read_text(encoding="utf-8")
    told, _ = plain()
    for steps, expected in ((45, ["20", "40"]), (60, ["60"])):
        path = tmp_path / "ranks.py"
        path.write_text(text.replace("STEPS = 240, 60", f"STEPS = 240, {steps}"), encoding="utf-8")
        done = programs.run(programs.python(path, tmp_path / "runs" / "7"))
        losses = dict(re.findall(r"^(\d+): loss ([\d.]+), ranks \[0\]$", done.stdout, re.M))
        assert [*losses] == expected
    assert float(losses["60"]) == pytest.approx(told[-1], abs=2e-4)
