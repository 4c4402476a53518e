"""Training on worker processes: same gradients as one process, and nothing left behind."""

import json

import numpy as np
import pytest

import fastgc
from fastgc import data, delays, models, optimizers, training

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def digits():
    return data.load("digits", seed=3)


def in_one_process(dataset, rounds):
    """Theta after full-batch descent without any code or worker."""
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
    named = None if code.codes_data else model  # of itself where it must be
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
    # a quarter of the gradient is missing in every round
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
    training.write_json([history], tmp_path / "runs.json")
    (read,) = json.loads((tmp_path / "runs.json").read_text())
    assert read["name"] == "coded"
    assert read["code"] == repr(fastgc.ReedSolomon(3, stragglers=1))
    assert [r["round"] for r in read["rounds"]] == [1, 2]
    assert read["rounds"][1]["survivors"] == list(history.rounds[1].survivors)
    assert read["rounds"][1]["received"] == list(history.rounds[1].received)
    assert read["rounds"][1]["arrivals"] == list(history.rounds[1].arrivals)
    assert len(read["rounds"][1]["arrivals"]) == history.rounds[1].messages


def test_json_of_what_diverged(tmp_path):
    history = training.History("x", "", "", "", 0)
    history.rounds.append(training.Record(1, 0.5, 0.1, 0.1, (0,), 1, 0, float("nan"), np.inf))
    training.write_json([history], tmp_path / "runs.json")
    (read,) = json.loads((tmp_path / "runs.json").read_text())
    assert read["rounds"][0]["loss"] is None
    assert read["rounds"][0]["test_error"] is None


def test_bad_rounds():
    with pytest.raises(ValueError, match="at least 1"):
        fastgc.train(fastgc.ReedSolomon(3, stragglers=1), rounds=0)
