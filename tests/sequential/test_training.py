"""Several models trained in turn."""

import os
import signal

import numpy as np
import pytest
from worker_processes import pids

import fastgc
from fastgc import data, delays
from fastgc.engines import SimulatedCluster
from fastgc.sequential import MSGC, SRSGC, Independent, train_models
from fastgc.training.models import LeastSquares, SoftmaxRegression
from fastgc.training.optimizers import GCADA, SGD, AMSGrad, Nesterov

SCHEMES = {
    "m-sgc": lambda: MSGC(4, burst=1, window=3, stragglers=2, code=fastgc.ReedSolomon),
    "m-sgc, B = 2": lambda: MSGC(4, burst=2, window=3, stragglers=1),
    "sr-sgc": lambda: SRSGC(4, burst=2, window=3, stragglers=3),
    "independent": lambda: Independent(fastgc.BinaryCode(4, stragglers=1)),
}
LATE = delays.Exponential(0.1)


def small(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((130, 5)).astype(dtype)
    y = (X[:, :3] + rng.standard_normal((130, 3))).argmax(axis=1)
    return data.Dataset("small", X[:100], y[:100], X[100:], y[100:])


def several():
    return [
        SoftmaxRegression(5, 3),
        LeastSquares(5, 3),  # takes other data
        SoftmaxRegression(5, 3, l2=0.1, bias=False),  # has fewer parameters
        SoftmaxRegression(5, 3),
    ]


def rates():
    return [Nesterov(lr=0.5), SGD(lr=0.1), AMSGrad(lr=0.05), SGD(lr=1.0)]


def trained(scheme, dtype=np.float64, **options):
    given = {"steps": 9, "engine": "simulated", "delays": LATE, "mu": 0.2} | options
    return train_models(scheme, small(dtype), models=several(), optimizers=rates(), **given)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=pytest.mark.long if single and name != "m-sgc" else ())
        for name in SCHEMES
        for single, dtype in enumerate((np.float64, np.float32))
    ],
)
def test_train_models_as_if_alone(name, dtype):
    seen = []
    runs = trained(SCHEMES[name](), dtype, callback=lambda number, r: seen.append((number, r)))
    for number, (run, model, method) in enumerate(zip(runs, several(), rates(), strict=True)):
        alone = fastgc.train(
            fastgc.Uncoded(4), small(dtype), model=model, optimizer=method, rounds=9,
            engine="simulated",
        )  # fmt: skip
        assert run.theta.dtype == dtype
        assert run.theta.shape == (model.size,)
        assert run.theta == pytest.approx(alone.theta, abs=1e3 * float(np.finfo(dtype).eps))
        for mine, its in zip(run.rounds, alone.rounds, strict=True):
            assert mine.round == its.round
            assert mine.loss == pytest.approx(its.loss, rel=1e4 * float(np.finfo(dtype).eps))
        assert [r for at, r in seen if at == number] == run.rounds
        times = [r.time for r in run.rounds]
        assert times == sorted(times)
        assert run.measure == alone.measure


def test_train_models_records():
    """One job a round is known by hand: W - 1 + B = 2 rounds, 4 workers, all answer."""
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    each = Half()
    [first, second] = train_models(
        scheme, small(), models=several()[:2], steps=3, engine="simulated", delays=each, mu=0.0
    )
    assert [r.time for r in first.rounds] == pytest.approx([1.0, 2.0, 3.0])
    assert [r.time for r in second.rounds] == pytest.approx([1.5, 2.5, 3.5])
    for record in (*first.rounds, *second.rounds):
        assert record.wait == pytest.approx(1.0)
        assert (record.downloads, record.stale, record.deaths) == (8, 0, 0)
    # In the last job's first round all answer; other jobs wait for a coded part.
    parts = [len(part) for part, _ in data.partition(small().X_train, small().y_train, scheme.k)]
    uncoded, coded = sum(parts[:8]), 2 * sum(parts[8:])
    assert first.rounds[1].samples == uncoded + coded
    assert first.rounds[1].messages <= 8
    [patient, _] = train_models(
        scheme, small(), models=several()[:2], steps=3, engine="simulated", delays=each, mu=1.0
    )
    for record in patient.rounds:  # all answers of both rounds count
        assert (record.messages, record.uploads, record.survivors) == (8, 8, (0, 1, 2, 3))
        assert (record.received, record.arrivals) == ((), ())
        assert record.decode == 0  # in simulated time


def test_train_models_defaults():
    """Each model has the optimizer and the first parameters that `train` gives it."""
    models = [LeastSquares(5, 3), models_with_start()]
    scheme = Independent(fastgc.Uncoded(4))
    runs = train_models(scheme, small(), models=models, steps=4, evaluate_every=3, seed=2,
                        engine="simulated", delays=LATE)  # fmt: skip
    assert [run.name for run in runs] == ["LeastSquares 0", "Begun 1"]
    for run, model in zip(runs, models, strict=True):
        alone = fastgc.train(
            fastgc.Uncoded(4), small(), model=model, rounds=4, seed=2, engine="simulated"
        )
        assert run.theta == pytest.approx(alone.theta, abs=1e-12)
        assert [r.evaluated for r in run.rounds] == [False, False, True, True]
        assert np.isnan([r.loss for r in run.rounds]).tolist() == [True, True, False, False]
        assert (run.code, run.data, run.seed) == (repr(scheme), "small", 2)
        assert run.delays == repr(LATE)


def test_train_models_on_processes_that_serve():
    """They get histories without rounds, and read no data."""

    class Serving(SimulatedCluster):
        serve = staticmethod(lambda: True)

    scheme = Independent(fastgc.Uncoded(3))
    runs = train_models(scheme, "nowhere", models=several()[:2], engine=Serving, seed=4)
    assert [(run.name, run.data, run.seed, run.rounds) for run in runs] == [
        ("SoftmaxRegression 0", "nowhere", 4, []),
        ("LeastSquares 1", "nowhere", 4, []),
    ]


def models_with_start():
    class Begun(SoftmaxRegression):
        def initial(self, rng):
            return rng.standard_normal(self.size)

    return Begun(5, 3)


class Half:
    per = "round"

    def sample(self, round, workers, seed):
        return np.full(workers, 0.5)


def test_train_models_mini_batches():
    """They are drawn by the job's number, and their mean is the whole gradient."""
    scheme, dataset = SCHEMES["m-sgc"](), small()
    models = several()[:1] * 3
    runs = train_models(
        scheme, dataset, models=models, optimizers=[SGD(lr=0.5) for _ in models], steps=2,
        batch=3, engine="simulated", seed=5,
    )  # fmt: skip
    shards = data.partition(dataset.X_train, dataset.y_train, scheme.k)
    draw = data.MiniBatches(3, 5)
    for number, run in enumerate(runs):
        theta = np.zeros(models[0].size)
        for job in (number, number + 3):
            total, part = np.zeros_like(theta), np.empty_like(theta)
            for j, shard in enumerate(shards):
                models[0].partial_gradient(theta, draw(shard, j, job), part)
                total += part
            theta -= 0.5 * total / (3 * scheme.k)
        assert run.theta == pytest.approx(theta, abs=1e-12)
        assert {record.samples % 3 for record in run.rounds} == {0}


def test_train_models_with_deaths():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    killed = []

    def kill(number, record):
        if len(killed) < 2 and record.round in (3, 6) and number == 0:
            [victim] = pids(len(killed) + 1)
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    runs = train_models(
        scheme, small(), models=several()[:2], optimizers=rates()[:2], steps=12, callback=kill,
        patience=100.0, timeout=100.0,
    )  # fmt: skip
    assert len(killed) == 2
    assert runs[0].rounds[-1].deaths == 2
    for run, model, method in zip(runs, several()[:2], rates()[:2], strict=True):
        alone = fastgc.train(
            fastgc.Uncoded(4), small(), model=model, optimizer=method, rounds=12,
            engine="simulated",
        )  # fmt: skip
        assert run.theta == pytest.approx(alone.theta, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheme": fastgc.Uncoded(4)}, "one of fastgc.sequential"),
        ({"models": several()[:1]}, "needs 2 models in turn at least"),
        ({"models": several()[0]}, "models must be"),
        ({"models": [None, None]}, "a model must be an object|NoneType"),
        ({"optimizers": [SGD(lr=1.0)]}, "one for each of 2 models, not 1"),
        ({"optimizers": [SGD(lr=1.0)] * 2}, "one is there twice"),
        ({"optimizers": [GCADA(4), SGD(lr=1.0)]}, "here the scheme does"),
        ({"steps": 0}, "steps must be"),
        ({"batch": 50}, "the smallest of the 12 partitions has 8"),
        ({"callback": 3}, "callback must be"),
        ({"verify": True}, "no option 'verify'"),
    ],
)
def test_train_models_refused(change, says):
    given = {
        "scheme": MSGC(4, burst=1, window=2, stragglers=1),
        "data": small(),
        "models": several()[:2],
        "engine": "simulated",
    } | change
    with pytest.raises((TypeError, ValueError), match=says):
        train_models(given.pop("scheme"), given.pop("data"), **given)
