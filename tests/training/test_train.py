"""Training on worker processes gives the gradients of one process, and leaves nothing behind."""

import json
import math
from dataclasses import replace
from functools import partial
from time import perf_counter, sleep

import numpy as np
import pytest
from strength import much

import fastgc
from fastgc import Grouped, data, delays, models, optimizers
from fastgc.engines import SimulatedCluster
from fastgc.stability import StabilityTracker
from fastgc.training.history import (
    History,
    Record,
    Spent,
    equal_error,
    equal_loss,
    read_json,
    round_rows,
    write_json,
)
from fastgc.training.optimizers import CADA, GCADA, SGD, AMSGrad, Nesterov
from fastgc.training.train import Training


@pytest.fixture(scope="module")
def digits():
    return data.load("digits", seed=3)


def in_one_process(dataset, rounds):
    """Return theta after full-batch descent without a code or workers."""
    model = models.SoftmaxRegression(dataset.features, dataset.classes)
    optimizer = optimizers.Nesterov(lr=1.0)
    optimizer.reset(np.zeros(model.size))
    for _ in range(rounds):
        gradient = model.gradient(optimizer.point, dataset.X_train, dataset.y_train)
        optimizer.step(gradient / len(dataset.X_train))
    return optimizer.theta


@pytest.mark.parametrize(
    "code",
    [
        fastgc.ReedSolomon(5, stragglers=2),
        fastgc.ReedSolomon(6, 9, stragglers=1, clusters="auto"),
        fastgc.ReedSolomon(4, stragglers=1, packed=False),
        fastgc.Uncoded(4),
    ],
    ids=repr,
)
def test_exact_codes_train_as_one_process_does(code, digits):
    history = fastgc.train(code, digits, rounds=8, delays=delays.Pareto(0.001, 1.1), seed=3)
    expected = in_one_process(digits, 8)
    np.testing.assert_allclose(history.theta, expected, rtol=0, atol=1e-10 * abs(expected).max())
    assert [r.round for r in history.rounds] == list(range(1, 9))
    assert all(code.decodable(r.survivors) for r in history.rounds)
    assert all(r.selected == () for r in history.rounds)  # all are to compute
    assert np.all(np.diff([r.time for r in history.rounds]) > 0)


@pytest.mark.parametrize(
    "code",
    [
        fastgc.LagrangeCode(5, load=2),
        fastgc.LagrangeCode(4, 6, load=4, messages=2, nodes="roots"),
        fastgc.Uncoded(4, load=2),
        fastgc.BinaryCode(5, stragglers=1, speeds=[2, 1, 1, 1, 1]),
    ],
    ids=repr,
)
def test_least_squares_of_coded_data_train_as_one_process_does(code, digits):
    model = models.LeastSquares(digits.features, digits.classes)
    named = None if code.scheme.data.coded else model  # codes of the data choose it themselves
    history = fastgc.train(code, digits, model=named, rounds=8, seed=3)
    X, y = digits.X_train, digits.y_train
    optimizer = optimizers.Nesterov(lr=model.learning_rate(X))
    optimizer.reset(np.zeros(model.size))
    for _ in range(8):
        optimizer.step(model.gradient(optimizer.point, X, y) / len(X))
    expected = optimizer.theta
    np.testing.assert_allclose(history.theta, expected, rtol=0, atol=1e-8 * abs(expected).max())
    assert history.rounds[-1].loss == pytest.approx(model.loss(expected, X, y), rel=1e-8)
    assert all(len(r.survivors) <= r.messages <= code.threshold for r in history.rounds)


def test_coded_data_need_a_quadratic_gradient(digits):
    model = models.SoftmaxRegression(digits.features, digits.classes)
    with pytest.raises(ValueError, match="LagrangeCode decodes only gradients that are quadratic"):
        fastgc.train(fastgc.LagrangeCode(3, load=3), digits, model=model)


def test_ignoring_stragglers_differs_but_learns(digits):
    # Every round leaves out a quarter of the gradient.
    code = fastgc.Uncoded(4, tolerance=0.25)
    history = fastgc.train(code, digits, rounds=30, delays=delays.Pareto(0.001, 1.1), seed=3)
    assert np.abs(history.theta - in_one_process(digits, 30)).max() > 1e-3
    assert all(len(r.survivors) == 3 for r in history.rounds)
    assert history.rounds[-1].test_error < 0.15


def test_reaches_the_usual_error_on_digits(digits):
    seen = []
    history = fastgc.train(
        fastgc.ReedSolomon(4, stragglers=1), digits, rounds=100, callback=seen.append
    )
    assert seen == history.rounds
    assert history.rounds[-1].test_error < 0.06
    assert history.rounds[-1].loss < history.rounds[0].loss
    reached = history.seconds_to(0.10)
    assert 0 < reached <= history.rounds[-1].time
    assert history.seconds_to(-1.0) == np.inf


def test_regularisation_is_added_once(digits):
    model = models.SoftmaxRegression(digits.features, digits.classes, l2=50.0)
    optimizer = optimizers.SGD(lr=0.5)
    history = fastgc.train(
        fastgc.ReedSolomon(4, stragglers=1), digits, model=model, optimizer=optimizer, rounds=3
    )
    theta = np.zeros(model.size)
    for _ in range(3):
        gradient = model.gradient(theta, digits.X_train, digits.y_train)
        model.add_regularisation(theta, gradient)
        theta = theta - 0.5 * gradient / len(digits.X_train)
    np.testing.assert_allclose(history.theta, theta, rtol=0, atol=1e-12)


def test_float32_data_train_in_float32():
    dataset = data.load("digits", dtype=np.float32)
    history = fastgc.train(fastgc.ReedSolomon(4, stragglers=1), dataset, rounds=5)
    assert history.theta.dtype == np.float32


def test_json_holds_every_round(tmp_path, digits):
    history = fastgc.train(fastgc.ReedSolomon(3, stragglers=1), digits, rounds=2, name="coded")
    write_json([history], tmp_path / "runs.json")
    (read,) = json.loads((tmp_path / "runs.json").read_text())
    assert read["name"] == "coded"
    assert read["code"] == repr(fastgc.ReedSolomon(3, stragglers=1))
    assert [r["round"] for r in read["rounds"]] == [1, 2]
    assert read["rounds"][1]["survivors"] == list(history.rounds[1].survivors)
    assert read["rounds"][1]["received"] == list(history.rounds[1].received)
    assert read["rounds"][1]["arrivals"] == list(history.rounds[1].arrivals)
    assert len(read["rounds"][1]["arrivals"]) == history.rounds[1].messages


def test_json_of_what_diverged(tmp_path):
    history = History("x", "", "", "", 0)
    history.rounds.append(Record(1, 0.5, 0.1, 0.1, (0,), 1, 0, float("nan"), np.inf))
    write_json([history], tmp_path / "runs.json")
    (read,) = json.loads((tmp_path / "runs.json").read_text())
    assert read["rounds"][0]["loss"] is None
    assert read["rounds"][0]["test_error"] is None


def test_bad_rounds():
    with pytest.raises(ValueError, match="at least 1"):
        fastgc.train(fastgc.ReedSolomon(3, stragglers=1), rounds=0)


# ------------------------------------------------------------------------------- mini-batches


def toy(dtype=np.float64, samples=67):
    """Return data of three classes, whose number does not divide into equal partitions."""
    rng = np.random.default_rng(7)
    y = np.arange(samples) % 3
    X = (rng.standard_normal((samples, 5)) + np.eye(3, 5)[y]).astype(dtype)
    return data.Dataset("toy", X, y, X[:9], y[:9])


SOFTMAX = models.SoftmaxRegression(5, 3)
WAITS = delays.Exponential(0.001)


def with_batches(dataset, model, optimizer, k, batch, seed, rounds):
    """Return theta after descent in one process, on the mini-batches of each partition."""
    X, y = dataset.X_train, dataset.y_train
    draw = data.MiniBatches(batch, seed)
    optimizer.reset(np.zeros(model.size))
    for number in range(rounds):
        point = optimizer.point
        total = np.zeros(model.size)
        for j, shard in enumerate(data.partition(X, y, k)):
            total += model.gradient(point, *draw(shard, j, number))
        gradient = total * len(X) / (batch * k)
        model.add_regularisation(point, gradient)
        optimizer.step(gradient / len(X))
    return optimizer.theta


@pytest.mark.parametrize("engine", ["local", "simulated"])
@pytest.mark.parametrize(
    "code",
    [
        fastgc.ReedSolomon(5, 6, stragglers=2),
        fastgc.BinaryCode(5, stragglers=1),
        fastgc.Uncoded(3, load=2),
        Grouped([fastgc.ReedSolomon(3, stragglers=1), fastgc.BinaryCode(3, stragglers=1)]),
    ],
    ids=repr,
)
def test_coded_mini_batches_train_as_one_process_does(code, engine):
    """Copies of a partial gradient must use the same samples, or decoding gives nonsense."""
    dataset, model = toy(), models.SoftmaxRegression(5, 3, l2=0.7)
    tracker = StabilityTracker(measure_every=1)
    history = fastgc.train(
        code,
        dataset,
        model=model,
        optimizer=Nesterov(0.5),
        rounds=12,
        delays=WAITS,
        seed=3,
        batch=4,
        engine=engine,
        tracker=tracker,
    )
    expected = with_batches(dataset, model, Nesterov(0.5), code.k, 4, 3, 12)
    np.testing.assert_allclose(history.theta, expected, rtol=0, atol=1e-12)
    assert max(tracker.measured) < 1e-13  # compared with partials of the same mini-batches
    assert {r.samples for r in history.rounds} == {4 * int(code.scheme.loads.sum())}
    whole = fastgc.train(
        code, dataset, model=model, optimizer=Nesterov(0.5), rounds=12, engine="simulated"
    )
    assert abs(whole.theta - expected).max() > 1e-3


def test_mini_batches_of_everything_are_everything():
    dataset = toy(samples=60)
    code = fastgc.ReedSolomon(4, stragglers=1)
    whole, batches = (
        fastgc.train(code, dataset, rounds=6, batch=batch, engine="simulated").theta
        for batch in (None, 15)
    )
    np.testing.assert_allclose(batches, whole, rtol=1e-12)


# ---------------------------------------------------------------------------------- regression


def regression_data(outputs=2, dtype=np.float64, whole=False):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((67, 5))
    y = X @ rng.standard_normal((5, outputs)) + 2 + 0.1 * rng.standard_normal((67, outputs))
    y = np.rint(9 * y) if whole else y
    y = y[:, 0] if outputs == 1 else y
    X, y = X.astype(dtype), y.astype(dtype)
    return data.Dataset("reg", X[:50], y[:50], X[50:], y[50:])


def least_squares_by_hand(dataset, bias, rounds, lr):
    """Run Nesterov's method in NumPy; return its last point's record."""
    X, y = dataset.X_train, dataset.y_train.reshape(len(dataset.y_train), -1)
    A = np.hstack([X, np.ones((len(X), int(bias)))])
    model = models.LinearRegression(5, y.shape[1], bias=bias)
    optimizer = Nesterov(lr)
    optimizer.reset(np.zeros(model.size))
    for _ in range(rounds):
        table = optimizer.point.reshape(A.shape[1], -1)
        optimizer.step((A.T @ (A @ table - y) / len(X)).ravel())
    table = optimizer.theta.reshape(A.shape[1], -1)
    T = np.hstack([dataset.X_test, np.ones((len(dataset.X_test), int(bias)))])
    missed = T @ table - dataset.y_test.reshape(len(T), -1)
    loss = np.sum((A @ table - y) ** 2) / (2 * len(X))
    return optimizer.theta, loss, np.sqrt(np.mean(missed**2))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "code",
    [
        fastgc.LagrangeCode(5, load=2),
        fastgc.LagrangeCode(4, 6, load=4, messages=2, nodes="roots"),
        fastgc.ReedSolomon(5, stragglers=2),
        fastgc.BinaryCode(5, stragglers=1),
        fastgc.Uncoded(4, load=2),
    ],
    ids=repr,
)
def test_regression_trains_as_one_process_does(code, bias, outputs):
    dataset = regression_data(outputs)
    model = None if bias else models.LinearRegression(5, outputs, bias=False)
    history = fastgc.train(
        code, dataset, model=model, optimizer=Nesterov(0.1), rounds=9, engine="simulated", seed=3
    )
    theta, loss, rmse = least_squares_by_hand(dataset, bias, 9, 0.1)
    np.testing.assert_allclose(history.theta, theta, rtol=0, atol=1e-9)
    assert history.measure == "RMSE"
    assert history.rounds[-1].loss == pytest.approx(loss, rel=1e-8)
    assert history.rounds[-1].test_error == pytest.approx(rmse, rel=1e-8)


def test_regression_of_a_file_on_processes(tmp_path):
    path = tmp_path / "reg.npz"
    whole = regression_data()
    np.savez(path, X_train=whole.X_train, y_train=whole.y_train, X_test=whole.X_test,
             y_test=whole.y_test)  # fmt: skip
    history = fastgc.train(fastgc.LagrangeCode(3, load=3), path, rounds=4)
    expected = fastgc.train(fastgc.Uncoded(2), whole, rounds=4, engine="simulated")
    np.testing.assert_allclose(history.theta, expected.theta, atol=1e-9)
    single = regression_data(dtype=np.float32)
    assert fastgc.train(fastgc.Uncoded(2), single, rounds=1, engine="simulated").theta.dtype == "f4"


def test_regression_with_groups_and_mini_batches():
    dataset, code = regression_data(1), Grouped.repetition(6, 3)
    method = GCADA(3, SGD(0.1), c=1e-9, max_age=4)
    history = fastgc.train(
        code, dataset, optimizer=method, rounds=12, batch=5, engine="simulated", seed=2
    )
    model, draw, theta = models.LinearRegression(5), data.MiniBatches(5, 2), np.zeros(6)
    parts = data.partition(*model.prepare(dataset.X_train, dataset.y_train), 3)
    for number in range(12):  # c is so small that all are selected
        drawn = [draw(part, j, number) for j, part in enumerate(parts)]
        theta = theta - 0.1 / 15 * sum(A.T @ (A @ theta - Y[:, 0]) for A, Y in drawn)
    np.testing.assert_allclose(history.theta, theta, atol=1e-12)
    assert [r.uploads for r in history.rounds] == [3] * 12


def test_classes_and_targets_are_told_apart():
    reg, digits_like = regression_data(), toy()
    code = fastgc.Uncoded(2)
    for kind in (models.SoftmaxRegression, models.LeastSquares):
        with pytest.raises(ValueError, match=r"reg has real-valued targets and .* needs classes"):
            fastgc.train(code, reg, model=kind(5, 3), engine="simulated")
    with pytest.raises(ValueError, match=r'toy has classes and .* targets: load\(…, task="regress'):
        fastgc.train(code, digits_like, model=models.LinearRegression(5), engine="simulated")
    with pytest.raises(ValueError, match=r"y must be .* of shape \(50, 3\), got float64 of shape"):
        fastgc.train(code, reg, model=models.LinearRegression(5, 3), engine="simulated")


def test_runs_of_regression_are_kept(tmp_path):
    dataset, code = regression_data(), fastgc.ReedSolomon(4, stragglers=1)
    whole = fastgc.train(code, dataset, rounds=6, engine="simulated")
    kept = {"engine": "simulated", "checkpoint": tmp_path / "run", "every": 2}
    fastgc.train(code, dataset, rounds=4, **kept)
    again = fastgc.train(code, dataset, rounds=6, **kept)
    np.testing.assert_array_equal(again.theta, whole.theta)
    write_json([again], tmp_path / "runs.json")
    [read] = read_json(tmp_path / "runs.json")
    assert read.measure == "RMSE"
    assert [r.test_error for r in read.rounds] == [r.test_error for r in again.rounds]
    other = data.Dataset(
        "reg", dataset.X_train, dataset.y_train + 1, dataset.X_test, dataset.y_test
    )
    with pytest.raises(fastgc.CheckpointError, match="data"):
        fastgc.train(code, other, rounds=6, **kept)
    text = (tmp_path / "runs.json").read_text()
    (tmp_path / "bad.json").write_text(text.replace('"RMSE"', "7"))
    with pytest.raises(ValueError, match="is no history"):
        read_json(tmp_path / "bad.json")


class LeastDeviations(models.LinearRegression):
    """A user's model with its own measure of error."""

    measure = "MAE"

    def error(self, theta, X, y):
        return float(np.mean(np.abs(self.predict(theta, X)[:, 0] - y)))


def test_a_model_of_ones_own_says_what_its_error_is(monkeypatch):
    dataset = regression_data(1)
    model = LeastDeviations(5)
    history = fastgc.train(fastgc.Uncoded(2), dataset, model=model, rounds=2, engine="simulated")
    assert history.measure == "MAE"
    expected = model.error(history.theta, dataset.X_test, dataset.y_test)
    assert history.rounds[-1].test_error == expected
    monkeypatch.setattr(LeastDeviations, "measure", 7)
    with pytest.raises(TypeError, match="measure of LeastDeviations must be a name, not 7"):
        fastgc.train(fastgc.Uncoded(2), dataset, model=model, engine="simulated")


def test_lowest_error_that_all_reach():
    runs = [History(str(i), "", "", "", 0) for i in range(2)]
    for run, errors in zip(runs, ([3.0, 1.0, 2.0], [math.nan, 1.5]), strict=True):
        for number, error in enumerate(errors):
            run.rounds.append(Record(number + 1, 0.0, 0.0, 0.0, (), 0, 0, 1.0, error))
    assert equal_error(runs) == 1.5
    runs[1].rounds = runs[1].rounds[:1]
    assert equal_error(runs) == math.inf


# --------------------------------------------------------------------------------- the engines


def test_simulated_training_takes_simulated_time():
    dataset = toy()
    engine = partial(SimulatedCluster, cost=0.25, receive=0.5, overhead=100.0)
    code = fastgc.ReedSolomon(4, stragglers=1)
    history = fastgc.train(code, dataset, rounds=5, engine=engine)
    # Workers compute `load` partial gradients; three messages pass one after another.
    assert [r.wait for r in history.rounds] == pytest.approx([0.25 * code.load + 1.5] * 5)
    ends = np.cumsum([r.wait + 100.0 for r in history.rounds])
    np.testing.assert_allclose([r.time for r in history.rounds], ends)
    assert all(r.decode == 0 for r in history.rounds)
    local = fastgc.train(code, dataset, rounds=5)
    np.testing.assert_allclose(history.theta, local.theta, atol=1e-13)


def test_tracking_takes_no_simulated_time():
    runs = [
        fastgc.train(
            fastgc.ReedSolomon(4, stragglers=1),
            toy(),
            rounds=4,
            delays=WAITS,
            engine="simulated",
            tracker=tracker,
        )
        for tracker in (None, StabilityTracker(measure_every=2))
    ]
    assert [r.time for r in runs[0].rounds] == [r.time for r in runs[1].rounds]
    assert not math.isnan(runs[1].rounds[0].rounding)


def test_what_a_round_of_all_workers_spends():
    dataset = toy()
    code = fastgc.BinaryCode(5, stragglers=2)
    for engine in ("local", "simulated"):
        history = fastgc.train(code, dataset, rounds=3, delays=WAITS, engine=engine)
        sizes = [len(X) for X, _ in data.partition(dataset.X_train, dataset.y_train, 5)]
        samples = sum(sizes[j] for i in range(5) for j in code.partitions(i))
        for r in history.rounds:
            assert (r.downloads, r.samples) == (5, samples)
            assert r.uploads == len(r.received) == len(r.arrivals)


# -------------------------------------------------------------------------- adaptive selection


def adaptive(method, code, dataset=None, *, rounds=30, engine="simulated", **options):
    given = {"model": SOFTMAX, "delays": WAITS, "seed": 2, "rounds": rounds, "engine": engine}
    return fastgc.train(code, dataset or toy(), optimizer=method, **(given | options))


@pytest.mark.parametrize("batch", [None, 5])
def test_cada_that_asks_all_is_distributed_adam(batch):
    """With c = 0 steps agree, to the last bit if messages come in the order of workers."""
    thetas = []

    class Kept(AMSGrad):
        def step(self, gradient):
            moved = super().step(gradient)
            thetas.append(self.theta.copy())
            return moved

    options = {"delays": None, "batch": batch}
    adam = adaptive(Kept(), fastgc.Uncoded(6), **options)
    by_adam = thetas.copy()
    thetas.clear()
    cada = adaptive(CADA(6, Kept(), c=0), Grouped.repetition(6, 6), **options)
    assert len(thetas) == len(by_adam) == 30
    np.testing.assert_array_equal(thetas, by_adam)
    np.testing.assert_array_equal(cada.theta, adam.theta)
    assert [r.loss for r in cada.rounds] == [r.loss for r in adam.rounds]
    assert [(r.downloads, r.uploads, r.samples) for r in cada.rounds] == [
        (r.downloads, r.uploads, r.samples) for r in adam.rounds
    ]
    if batch is None:  # compare with one process, too
        expected = in_one(toy(), AMSGrad(), 30)
        np.testing.assert_allclose(cada.theta, expected, atol=1e-12)


def in_one(dataset, optimizer, rounds, model=SOFTMAX):
    X, y = dataset.X_train, dataset.y_train
    optimizer.reset(np.zeros(model.size))
    for _ in range(rounds):
        gradient = model.gradient(optimizer.point, X, y)
        model.add_regularisation(optimizer.point, gradient)
        optimizer.step(gradient / len(X))
    return optimizer.theta


def test_cada_that_asks_all_on_processes():
    cada = adaptive(CADA(4, c=0), Grouped.repetition(4, 4), engine="local")
    adam = adaptive(AMSGrad(), fastgc.Uncoded(4), engine="local")
    np.testing.assert_allclose(cada.theta, adam.theta, rtol=1e-9, atol=1e-12)
    assert all(r.downloads == r.uploads == 4 for r in cada.rounds)


def test_processes_and_simulation_select_the_same():
    """Selection depends on the gradients, not on the worker of a group that sent them."""
    histories = [
        adaptive(GCADA(3, c=2.0), Grouped.repetition(6, 3), engine=engine, batch=7)
        for engine in ("local", "simulated")
    ]
    np.testing.assert_allclose(histories[0].theta, histories[1].theta, rtol=1e-9, atol=1e-12)
    asked = [[r.downloads for r in history.rounds] for history in histories]
    assert asked[0] == asked[1]
    assert len(set(asked[0])) > 1
    for history in histories:
        assert all(r.uploads == r.downloads / 2 for r in history.rounds)
        assert all(len(r.survivors) == r.uploads for r in history.rounds)


@pytest.mark.parametrize("c", [0.0, 0.3, 2.0])
def test_gcada_of_groups_of_one_is_cada(c):
    """They agree bit for bit, with any code that sends partial gradients as they are."""
    cada = adaptive(CADA(5, c=c), Grouped.repetition(5, 5), batch=6)
    for code in (Grouped.repetition(5, 5), Grouped([fastgc.Uncoded(1)] * 5)):
        gcada = adaptive(GCADA(5, c=c), code, batch=6)
        np.testing.assert_array_equal(gcada.theta, cada.theta)
        for one, other in zip(gcada.rounds, cada.rounds, strict=True):
            assert one == other
    if c:
        assert sum(r.downloads for r in cada.rounds) < 5 * 30


@pytest.mark.parametrize(
    "code",
    [
        Grouped([fastgc.ReedSolomon(4, stragglers=1)] * 3),
        Grouped([fastgc.BinaryCode(4, stragglers=2)] * 3),
        Grouped(
            [
                fastgc.ReedSolomon(4, stragglers=2),
                fastgc.Uncoded(4, load=2),
                fastgc.BinaryCode(4, stragglers=1),
            ]
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("engine", ["local", "simulated"])
def test_coded_groups_train_as_repeated_ones(code, engine):
    """With the same partitions, the same groups are selected, and steps agree."""
    options = {"batch": 3, "rounds": 20}
    repeated = adaptive(GCADA(3, c=1.0), Grouped.repetition(12, 3, 12), **options)
    coded = adaptive(GCADA(3, c=1.0), code, engine=engine, **options)
    assert [r.downloads for r in coded.rounds] == [r.downloads for r in repeated.rounds]
    assert len({r.downloads for r in coded.rounds}) > 1
    np.testing.assert_allclose(coded.theta, repeated.theta, rtol=1e-8, atol=1e-11)
    for r in coded.rounds:
        # Each worker of a selected group computes a mini-batch of each partition it holds.
        asked = {code.group_of(i) for i in r.survivors}
        loads = [int(code.scheme.loads[i]) for g in asked for i in code.members(g)]
        assert (r.downloads, r.samples) == (4 * len(asked), 3 * sum(loads))
        chosen = [i for g in range(3) for i in code.members(g) if g in asked]
        assert sorted(r.selected) == (chosen if len(asked) < 3 else [])


def test_adaptive_steps_are_its_equations():
    """Eq. (3): gradients are stale, of the point they were computed at; the penalty is current."""
    dataset, model = toy(), models.SoftmaxRegression(5, 3, l2=2.0)
    X, y = dataset.X_train, dataset.y_train
    code, batch, seed = Grouped.repetition(4, 2), 6, 2
    method = GCADA(2, SGD(0.3), c=0.9, smoothness=[1.0, 0.5], max_age=4)
    history = adaptive(method, code, dataset, model=model, batch=batch, rounds=25)
    draw, shards = data.MiniBatches(batch, seed), data.partition(X, y, 2)
    theta, stale = np.zeros(model.size), [None, None]
    for number, record in enumerate(history.rounds):
        for g in {code.group_of(i) for i in record.survivors}:
            stale[g] = model.gradient(theta, *draw(shards[g], g, number))
        gradient = (stale[0] + stale[1]) * len(X) / (batch * 2)
        gradient[:15] += 2.0 * theta[:15]  # no penalty on the bias
        theta = theta - 0.3 * gradient / len(X)
        assert record.loss == pytest.approx(model.loss(theta, X, y), rel=1e-10)
    np.testing.assert_allclose(history.theta, theta, rtol=1e-9, atol=1e-12)
    assert {r.downloads for r in history.rounds} >= {0, 4}


@pytest.mark.parametrize(
    ("dtype", "messages", "tolerance"),
    [
        (np.float32, None, 1e-4),
        (np.float64, "float32", 1e-4),
        (np.float32, "float16", 0.05),
        (np.float64, "float16", 0.05),
        (np.float64, "bfloat16", 0.2),
    ],
)
def test_adaptive_methods_in_less_precision(dtype, messages, tolerance):
    code = Grouped([fastgc.ReedSolomon(3, stragglers=1), fastgc.BinaryCode(3, stragglers=1)])

    def run(dtype, messages):
        return adaptive(GCADA(2, c=0), code, toy(dtype), message_dtype=messages, rounds=10)

    exact, coarse = run(np.float64, None).theta, run(dtype, messages).theta
    assert coarse.dtype == dtype
    error = np.linalg.norm(coarse - exact) / np.linalg.norm(exact)
    assert 0 < error < tolerance


@pytest.mark.parametrize(
    ("code", "options", "error", "match"),
    [
        ("rs", {}, TypeError, "code must be a code of fastgc, not 'rs'"),
        (fastgc.Uncoded(3), {"engine": "pvm"}, ValueError, "unknown engine 'pvm': choose among lo"),
        (fastgc.Uncoded(3), {"engine": 3}, TypeError, "engine must be a name or callable, not int"),
        (fastgc.Uncoded(3), {"batch": 0}, ValueError, "batch must be at least 1, not 0"),
        (fastgc.Uncoded(3), {"batch": 2.5}, TypeError, "batch must be an integer"),
        (
            fastgc.Uncoded(4),
            {"batch": 17},
            ValueError,
            "batch is 17, but the smallest of the 4 partitions has 16 samples",
        ),
        (fastgc.LagrangeCode(3, load=2), {"batch": 2}, ValueError, "LagrangeCode codes the data"),
        (
            fastgc.Uncoded(3),
            {"optimizer": CADA(3)},
            ValueError,
            r"CADA selects among 3 groups .*fastgc.Grouped.repetition\(n, 3\); Uncoded is none",
        ),
        (
            Grouped.repetition(6, 2),
            {"optimizer": GCADA(3)},
            ValueError,
            "GCADA selects among 3 groups .* Grouped has 2",
        ),
        (
            Grouped.repetition(6, 3),
            {"optimizer": GCADA(3), "tracker": StabilityTracker()},
            ValueError,
            "GCADA decodes groups, which a tracker cannot follow",
        ),
        (fastgc.Uncoded(3), {"delays": 0.1}, TypeError, "delays must be a model"),
        (fastgc.Uncoded(3), {"rounds": 0}, ValueError, "rounds must be at least 1, not 0"),
        (fastgc.Uncoded(3), {"rounds": 1.5}, TypeError, "rounds must be an integer, not 1.5"),
        (fastgc.Uncoded(3), {"seed": -1}, ValueError, "seed must be at least 0, not -1"),
        (fastgc.Uncoded(3), {"seed": "x"}, TypeError, "seed must be an integer, not 'x'"),
        (fastgc.Uncoded(3), {"until": "x"}, TypeError, "until must be a training loss, not 'x'"),
        (fastgc.Uncoded(3), {"until": math.nan}, ValueError, "until is NaN"),
        (fastgc.Uncoded(3), {"callback": 3}, TypeError, "callback must be callable, not 3"),
        (fastgc.Uncoded(3), {"model": "softmax"}, TypeError, "model must be an object with a meth"),
        (fastgc.Uncoded(3), {"optimizer": "adam"}, TypeError, "a method step, not 'adam'"),
        (fastgc.Uncoded(3), {"optimizer": CADA}, TypeError, "a method step, not <class"),
        (fastgc.Uncoded(3), {"tracker": 1.0}, TypeError, "a method record, not 1.0"),
        (fastgc.Uncoded(3), {"partial": "all"}, ValueError, 'partial must be "raise", "best" or'),
        (fastgc.Uncoded(3), {"patience": -1}, ValueError, "patience must be finite and not negat"),
        (fastgc.Uncoded(3), {"patience": "x"}, TypeError, "patience must be a real number"),
        (fastgc.Uncoded(3), {"verify": "x"}, TypeError, "verify must be True, False or a number"),
        (
            Grouped.repetition(6, 2),
            {"optimizer": GCADA(2), "partial": "best"},
            ValueError,
            'GCADA keeps gradients for later rounds and needs them exact: use partial="raise"',
        ),
        (fastgc.Uncoded(3), {"survivors": 3}, TypeError, "survivors must be a History, its recor"),
        (fastgc.Uncoded(3), {"survivors": [[0, 1]]}, TypeError, "survivors must be a History"),
        (
            fastgc.Uncoded(3),
            {"survivors": [Record(1, 0, 0, 0, (), 0, 0, 0, 0)], "rounds": 2},
            ValueError,
            "the run in survivors has no round 2: it has 1",
        ),
        (
            fastgc.Uncoded(3),
            {
                "survivors": [Record(1, 0, 0, 0, (), 0, 0, 0, 0, received=(0, 3))],
                "rounds": 1,
            },
            ValueError,
            r"round 1 of the run in survivors: survivors\[1\] is 3, but workers are numbered",
        ),
    ],
)
def test_what_does_not_go_together(code, options, error, match):
    started = []

    def engine(*arguments, **given):
        started.append(arguments)
        return SimulatedCluster(*arguments, **given)

    with pytest.raises(error, match=match):
        fastgc.train(code, toy(), **({"engine": engine} | options))
    assert not started or "delays" in options


def test_measuring_takes_no_time_of_training(monkeypatch):
    measure = Training._measure

    def slow(*arguments):
        sleep(0.3)
        measure(*arguments)

    class Cluster(SimulatedCluster):
        clock = staticmethod(perf_counter)

    monkeypatch.setattr(Training, "_measure", slow)
    tracker = StabilityTracker(measure_every=1)
    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=2, tracker=tracker, engine=Cluster)
    assert all(not math.isnan(row.measured) for row in tracker.rounds)
    assert 0 < history.rounds[-1].time < 0.3


def test_mini_batches_as_large_as_the_smallest_partition():
    history = fastgc.train(fastgc.Uncoded(4), toy(), batch=16, rounds=2, engine="simulated")
    assert len(history.rounds) == 2


# ------------------------------------------------------------------------------ what was spent


def made_up(*rounds, name="x"):
    """Make a history of rounds (time, loss, downloads, uploads, samples)."""
    history = History(name, "", "", "", 0)
    for number, (time, loss, *spent) in enumerate(rounds, start=1):
        history.rounds.append(
            Record(number, time, 0, 0, (), 0, 0, loss, 0.5, math.nan, (), (), *spent)
        )
    return history


def test_spent_by_hand():
    """Eqs. (5), (6) of Zhu et al., for G-CADA with 3 groups of M_G = 4 and mini-batches of 10."""
    history = made_up(
        (0.5, 2.0, 12, 3, 120),
        (0.75, 1.5, 4, 1, 40),
        (0.75, 1.8, 0, 0, 0),
        (1.5, math.nan, 8, 2, 80),
        (2.0, 1.0, 4, 1, 40),
    )
    assert history.spent(3.0) == (1, 0.5, 15, 120)
    assert history.spent(2.0) == (1, 0.5, 15, 120)
    assert history.spent(1.9) == (2, 0.75, 20, 160)
    assert history.spent(1.4) == Spent(5, 2.0, 35, 280)
    assert history.spent(0.9) is None
    assert made_up().spent(1.0) is None


def test_equal_loss_is_what_all_reached():
    low = made_up((1.0, 0.5, 0, 0, 0), (2.0, 0.7, 0, 0, 0))
    high = made_up((1.0, math.nan, 0, 0, 0), (2.0, 0.9, 0, 0, 0), (3.0, math.nan, 0, 0, 0))
    assert equal_loss([low]) == 0.5
    assert equal_loss([low, high]) == equal_loss([high, low]) == 0.9
    diverged = made_up((1.0, math.nan, 0, 0, 0))
    assert equal_loss([low, diverged]) == math.inf


def test_spending_table_says_how_many_times_the_first():
    from rich.console import Console

    from fastgc.training.tables import spending_table

    runs = [
        made_up((0.5, 2.0, 12, 3, 120), (1.0, 1.0, 4, 1, 40), name="gcada"),
        made_up((2.0, 1.5, 12, 12, 120), (4.0, 0.5, 12, 12, 120), name="adam"),
        made_up((1.0, 3.0, 12, 12, 120), name="sgd"),
    ]
    console = Console(width=120)
    with console.capture() as shown:
        console.print(spending_table(runs, 1.0))
    lines = [line.split() for line in shown.get().splitlines() if line.strip()]
    assert shown.get().strip().startswith("to a training loss of 1")
    assert ["gcada", "2", "1", "20", "160"] in lines
    assert ["adam", "2", "4", "(4.00x)", "48", "(2.40x)", "240", "(1.50x)"] in lines
    assert ["sgd", "never"] in lines
    # A run that takes no time has no ratio.
    timeless = [made_up((0.0, 1.0, 4, 4, 4)), made_up((0.0, 1.0, 2, 4, 4))]
    with console.capture() as shown:
        console.print(spending_table(timeless, 1.0))
    assert "6 (0.75x)" in shown.get()
    assert "never" not in shown.get()


def test_training_ends_at_a_loss(digits):
    code = fastgc.Uncoded(3)
    whole = fastgc.train(code, digits, rounds=12, engine="simulated")
    losses = [r.loss for r in whole.rounds]
    assert losses[4] < min(losses[:4])
    ended = fastgc.train(code, digits, rounds=12, engine="simulated", until=losses[4])
    assert [r.loss for r in ended.rounds] == losses[:5]
    assert len(fastgc.train(code, digits, rounds=12, engine="simulated", until=0).rounds) == 12


@pytest.mark.parametrize("optimizer", [None, "gcada"])
def test_verified_training(optimizer):
    """Rounds report that they were verified, also in groups; parameters stay the same."""
    code = Grouped.repetition(6, 2, 2) if optimizer else fastgc.ReedSolomon(6, stragglers=2)
    thetas = []
    for verify in (True, False):
        method = GCADA(2, SGD(1e-3), smoothness=1.0) if optimizer else None
        history = fastgc.train(
            code, optimizer=method, rounds=3, engine="simulated", verify=verify, seed=1
        )
        assert [record.verified for record in history.rounds] == [verify] * 3
        assert all(record.corrupt == () for record in history.rounds)
        thetas.append(history.theta)
    np.testing.assert_allclose(*thetas, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------- survivors chosen, deaths, approximations


@pytest.mark.parametrize("engine", ["local", "simulated"])
@pytest.mark.parametrize(
    ("code", "optimizer"),
    [
        (fastgc.ReedSolomon(5, stragglers=2), lambda: Nesterov(0.5)),
        (fastgc.Uncoded(4, load=2), lambda: SGD(0.3)),
        (
            Grouped([fastgc.ReedSolomon(3, stragglers=1), fastgc.BinaryCode(3, stragglers=1)]),
            lambda: GCADA(2, c=1.0),
        ),
    ],
    ids=["coded", "several messages", "groups"],
)
def test_runs_are_replayed_to_the_last_bit(code, optimizer, engine, tmp_path):
    """The workers' speeds at the time of the replay do not matter."""
    options = {"model": SOFTMAX, "rounds": 8, "batch": 5}
    if engine == "local":
        options["delays"] = delays.Exponential(0.002)
    first = fastgc.train(code, toy(), optimizer=optimizer(), engine=engine, seed=1, **options)
    if engine == "simulated":
        engine = partial(SimulatedCluster, cost=np.arange(code.n) / 100)
    write_json([first], tmp_path / "run.json")
    (read,) = read_json(tmp_path / "run.json")
    ways = first, read, first.rounds, lambda number: first.rounds[number].received
    for survivors in ways[: much(4, 2)] if engine == "local" else ways:
        again = fastgc.train(
            code,
            toy(),
            optimizer=optimizer(),
            engine=engine,
            seed=1,
            survivors=survivors,
            **options | {"delays": None},
        )
        assert again.theta.tobytes() == first.theta.tobytes()
        assert [r.received for r in again.rounds] == [r.received for r in first.rounds]
        assert [r.survivors for r in again.rounds] == [r.survivors for r in first.rounds]


def test_a_run_that_ended_early_is_replayed_to_its_loss():
    code = fastgc.Uncoded(3)
    options = {"engine": "simulated", "until": 0.8, "rounds": 200}
    first = fastgc.train(code, toy(), **options)
    assert len(first.rounds) < 200
    again = fastgc.train(code, toy(), survivors=first, **options)
    assert again.theta.tobytes() == first.theta.tobytes()
    with pytest.raises(ValueError, match=rf"has no round {len(first.rounds) + 1}"):
        fastgc.train(code, toy(), survivors=first, **options | {"until": 0.0})


def test_histories_are_read_as_they_were_written(tmp_path):
    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=3, engine="simulated", name="a b")
    path = tmp_path / "runs.json"
    write_json([history, made_up((1.0, math.inf, 1, 2, 3))], path)
    read, diverged = read_json(path)
    assert repr(read.rounds) == repr(history.rounds)
    assert {**read.to_dict(), "rounds": 0} == {**history.to_dict(), "rounds": 0}
    assert math.isnan(diverged.rounds[0].loss)
    for text in ("", "{}", "[]x", "[1]", '[{"name": "x"}]', '[{"rounds": [{}], "name": "x"}]'):
        path.write_text(text)
        if text == "{}":  # a file without a run
            assert read_json(path) == []
            continue
        with pytest.raises(ValueError, match=r"runs.json is no history of runs of training"):
            read_json(path)


def test_engines_are_given_what_differs_from_the_default_only():
    given = []

    class Known(SimulatedCluster):
        def __init__(self, *arguments, verify=False, **options):
            given.append(options | {"verify": verify})
            super().__init__(*arguments, **options)

    train = partial(fastgc.train, fastgc.Uncoded(3), toy(), rounds=2, engine=Known)
    chosen = {"survivors", "patience", "partial", "first_round"}
    train()
    assert not chosen & set(given[-1])
    train(patience=10, partial="raise", verify=False, survivors=None)
    assert not chosen & set(given[-1])
    train(patience=0.5, partial="best", verify=True, survivors=lambda number: [2, 0, 1])
    assert (given[-1]["patience"], given[-1]["partial"]) == (0.5, "best")
    assert given[-1]["verify"]
    assert given[-1]["survivors"](0) == [2, 0, 1]


class Slow:
    """A delay model: the last two of six workers take too long in every third round."""

    def sample(self, round, workers, seed):
        return np.where((np.arange(workers) >= 4) & (round % 3 == 2), 100.0, 0.0)


@pytest.mark.parametrize("tracked", [False, True])
def test_approximations_are_rounds_that_show(tracked):
    """If too few come in time, the step follows the least-squares optimum, with its residual."""
    from rich.console import Console

    from fastgc.training.tables import comparison_table

    code = fastgc.ReedSolomon(6, stragglers=1)
    tracker = StabilityTracker(measure_every=1) if tracked else None
    options = {"delays": Slow(), "timeout": 1.0, "engine": "simulated", "rounds": 7}
    history = fastgc.train(
        code, toy(), model=SOFTMAX, optimizer=SGD(0.5), partial="best", tracker=tracker, **options
    )
    X, y = toy().X_train, toy().y_train
    theta, B = np.zeros(SOFTMAX.size), code.matrix()[:4]
    weights = np.linalg.lstsq(B.T, np.ones(6, B.dtype), rcond=None)[0] @ B
    for r in history.rounds:
        partials = [SOFTMAX.gradient(theta, *shard) for shard in data.partition(X, y, 6)]
        full = np.sum(partials, axis=0)
        pairs = np.array(partials).view(complex)  # packed
        rough = (weights @ pairs).view(float)
        late = r.round % 3 == 0
        theta = theta - 0.5 * (rough if late else full) / len(X)
        assert r.loss == pytest.approx(SOFTMAX.loss(theta, X, y), rel=1e-9)
        assert len(r.received) == (4 if late else 5)
        assert (r.residual > 0.1) == late
        assert math.isnan(r.rounding) == (late or not tracked)
    if tracked:
        assert len(tracker.rounds) == 5
        assert max(tracker.measured) < 1e-12
    console = Console(width=120)
    with console.capture() as shown:
        console.print(comparison_table([history], 0.05))
    head, _, row = (
        line.split()
        for line in shown.get().splitlines()
        if "ReedS" in line or "sch" in line or "──" in line
    )
    assert head[-1] == "out"
    rms = np.sqrt(np.mean([r.residual**2 for r in history.rounds]))
    assert float(row[-1]) == pytest.approx(rms, rel=0.06)
    assert "deaths" not in head
    with pytest.raises(TimeoutError):
        fastgc.train(code, toy(), **options)


def test_deaths_show():
    from rich.console import Console

    from fastgc.training.tables import comparison_table

    class Mortal(SimulatedCluster):
        def step(self, theta, out):
            report = super().step(theta, out)
            return report._replace(deaths=report.round)

    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=4, engine=Mortal)
    assert [r.deaths for r in history.rounds] == [0, 1, 2, 3]
    console = Console(width=120)
    with console.capture() as shown:
        console.print(comparison_table([history], 0.05))
    assert "deaths" in shown.get()
    assert "left" not in shown.get()
    assert "Uncoded" in shown.get()


# ------------------------------------------------------------------- what approximations show


def test_a_run_knows_its_load():
    for code, load in (
        (fastgc.Uncoded(4), 1.0),
        (fastgc.ReedSolomon(4, stragglers=1), 2.0),
        (fastgc.BinaryCode(5, stragglers=1), 2.0),
        (fastgc.ReedSolomon(4, 8, stragglers=1), 2.0),
        (fastgc.GraphCode(6, degree=3, wait=4), 3.0),
    ):
        history = fastgc.train(code, toy(), rounds=1, engine="simulated")
        held = sum(len(code.partitions(i)) for i in range(code.n)) / code.k
        assert history.load == pytest.approx(held)
        if not isinstance(code, fastgc.GraphCode):  # its blocks differ in size
            assert held == load


def test_loss_at_a_time_is_the_last_evaluated(tmp_path):
    history = made_up((0.5, 2.0), (1.0, 1.5), (2.0, 1.0))
    history.rounds[1] = replace(history.rounds[1], evaluated=False, loss=math.nan)
    assert math.isnan(history.loss_at(0.4))
    assert history.loss_at(0.5) == history.loss_at(1.9) == 2.0
    assert history.loss_at(math.inf) == 1.0


def test_what_a_run_left_out_is_a_root_mean_square():
    history = made_up((0.5, 2.0), (1.0, 1.5))
    history.rounds[:] = [
        replace(r, residual=x) for r, x in zip(history.rounds, (3, 4), strict=True)
    ]
    assert history.residual() == pytest.approx(math.sqrt(12.5))
    assert math.isnan(made_up().residual())


def test_rows_are_the_rounds(tmp_path):
    code = fastgc.FractionalRepetition(4, load=2, wait=2)
    run = fastgc.train(code, toy(), rounds=3, engine="simulated", delays=WAITS, evaluate_every=2)
    other = made_up((0.5, 2.0), name="y")
    rows = list(round_rows([run, other]))
    assert [row["run"] for row in rows] == [run.name] * 3 + ["y"]
    assert [row["round"] for row in rows] == [1, 2, 3, 1]
    assert [row["load"] for row in rows[:3]] == [2.0] * 3
    assert [row["workers"] for row in rows[:3]] == [2] * 3
    assert [row["evaluated"] for row in rows[:3]] == [False, True, True]
    for row, record in zip(rows, run.rounds, strict=False):
        assert (row["time"], row["residual"]) == (record.time, record.residual)
    write_json([run, other], tmp_path / "runs.json")
    again = read_json(tmp_path / "runs.json")
    assert again[0].load == 2.0
    assert math.isnan(again[1].load)
    text = (tmp_path / "runs.json").read_text()
    for load in ('"2"', "true", "[2.0]"):
        (tmp_path / "damaged.json").write_text(text.replace('"load": 2.0', f'"load": {load}'))
        with pytest.raises(ValueError, match="is no history"):
            read_json(tmp_path / "damaged.json")
