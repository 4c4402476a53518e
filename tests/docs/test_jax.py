"""The example of a JAX network: copies draw the same dropout, and each worker compiles it."""

import re
import sys

import numpy as np
import pytest
from examples import EXAMPLES, example, printed

import fastgc
from fastgc import data, optimizers

pytest.importorskip("jax")


@pytest.fixture(scope="module")
def coded_jax():
    yield example("coded_jax")
    sys.modules.pop("coded_jax")


def test_coded_jax_trains_as_one_process_does(coded_jax):
    """This holds with dropout and mini-batches, whoever answers first."""
    dataset = data.load("digits", dtype=np.float32)
    model, batches = coded_jax.Network(), data.MiniBatches(20, 0)
    history = fastgc.train(
        fastgc.BinaryCode(4, stragglers=1),
        dataset,
        model=model,
        optimizer=optimizers.SGD(0.1),
        delays=fastgc.delays.Exponential(1.0),
        rounds=8,
        batch=20,
        engine="simulated",
        evaluate_every=8,
    )
    assert history.theta.dtype == np.float32
    theta = np.array(model.initial(np.random.default_rng(0)))
    shards = data.partition(dataset.X_train, dataset.y_train, 4)
    for number in range(8):
        total = np.zeros(model.size)
        for j, shard in enumerate(shards):
            total += coded_jax.gradient(theta, *batches(shard, j, number), j, number)
        theta -= np.float32(0.1) * (total / 80).astype(np.float32)
    np.testing.assert_allclose(history.theta, theta, rtol=0, atol=1e-5)
    undropped = model.loss(theta, dataset.X_train, dataset.y_train)
    assert history.rounds[-1].loss == pytest.approx(undropped, rel=1e-4)


def test_jax_in_processes(coded_jax, monkeypatch):
    """Processes import the module, and compile for themselves."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    options = {"optimizer": optimizers.SGD(0.1), "rounds": 3, "batch": 20, "evaluate_every": 3}
    dataset = data.load("digits", dtype=np.float32)
    thetas = [
        fastgc.train(
            fastgc.Uncoded(2), dataset, model=coded_jax.Network(), engine=engine, **options
        ).theta
        for engine in ("local", "simulated")
    ]
    np.testing.assert_allclose(*thetas, rtol=0, atol=1e-6)


def test_the_jax_script():
    lines = printed("coded_jax", "simulated").splitlines()
    found = [re.fullmatch(r"(\d+): loss (\S+), test error (\S+)", line) for line in lines]
    assert [int(each[1]) for each in found] == [20, 40, 60]
    losses = [float(each[2]) for each in found]
    assert losses == sorted(losses, reverse=True)
    assert float(found[-1][3]) < 0.05
