"""The experiment of Li et al. on MPI: a small run, and its data."""

import json
from pathlib import Path

import numpy as np
import programs
import pytest

BENCHES = Path(__file__).parents[2] / "benches"

pytestmark = programs.needs_mpi

DATA = """
import sys
import numpy as np
import li_experiment as li

shard = (3, 1, 40_000, 50)
X, y = li.samples(shard)
weights = np.random.default_rng(3).choice([-1.0, 1.0], 50)
z = X @ weights
print(X.shape, y.shape, set(y.tolist()) == {-1.0, 1.0})
print(abs(z.mean()) < 0.1, abs((z**2).mean() / (50 + 1.5**2) - 1) < 0.03)
positive = 1 / (np.exp(z) + 1)  # the probability of a label of 1
for low, high in ((0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1)):
    some = (low < positive) & (positive < high)
    print(abs((y[some] == 1).mean() - positive[some].mean()) < 0.02)
theta, out, step = np.linspace(-0.2, 0.3, 50), np.empty(50), np.eye(50)[7] * 1e-5
loss = lambda theta: np.log1p(np.exp(-y * (X @ theta))).sum()
li.logistic(theta, shard, out)
print(abs((loss(theta + step) - loss(theta - step)) / 2e-5 / out[7] - 1) < 1e-5)
print((li.samples((3, 2, 9, 50))[0] != li.samples((3, 1, 9, 50))[0]).all())
"""


def run(ranks, *command):
    path = {"PYTHONPATH": str(BENCHES)}
    command = programs.mpiexec(ranks, *command)
    found = programs.run(command, status=None, folder=BENCHES, env=path)
    return found.returncode, found.stdout, found.stderr


def test_samples_and_gradients_are_those_of_the_paper():
    status, out, err = run(1, "-c", DATA)
    assert status == 0, err
    first, *others = out.splitlines()
    assert first == "(40000, 50) (40000,) True"
    assert "False" not in " ".join(others)
    assert len(others) == 7


@pytest.mark.long
def test_schemes_train_alike_and_wait_for_fewer():
    """Ten workers, a hundred features: exact gradients from all, from all but two, and by BCC."""
    options = {"rounds": 8, "features": 100, "points": 5, "load": 3, "delay": 0.01, "seed": 1}
    listed = [f"--{name}={value}" for name, value in options.items()]
    status, out, err = run(11, "li_experiment.py", *listed, "--message=0.001", "--json")
    assert status == 0, err
    uncoded, cyclic, bcc = json.loads(out)
    assert [row["scheme"] for row in (uncoded, cyclic, bcc)] == [
        "uncoded",
        "cyclic repetition",
        "BCC",
    ]
    assert uncoded["workers"] == 10
    assert cyclic["workers"] == 8
    assert 4 <= bcc["workers"] < 10
    for row in (uncoded, cyclic, bcc):
        assert row["difference"] < 1e-12
        assert row["seconds"] >= 8 * row["workers"] * 0.001
        assert np.isfinite(row["simulated"])
        assert row["ratio"] == row["seconds"] / uncoded["seconds"]
        assert "paper" not in row


def test_too_few_ranks_are_refused():
    status, _, err = run(2, "li_experiment.py")
    assert status != 0
    assert "needs more workers than a load of 10: mpiexec -n 51" in err
