"""Networks: their gradients, initial parameters and training."""

import importlib
import json
import math
import pickle
import re
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

import fastgc
from fastgc import data, models, optimizers
from fastgc.delays import Pareto
from fastgc.stability import StabilityTracker
from fastgc.training.history import equal_loss, read_json, write_json
from fastgc.training.models import MLP, SoftmaxRegression
from fastgc.training.optimizers import (
    GCADA,
    SGD,
    AMSGrad,
    Nesterov,
)

MODEL = MLP(4, 3, hidden=(5, 6), activation="tanh")


def problem(model=MODEL, samples=11, dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=model.size).astype(dtype)
    X = rng.normal(size=(samples, model.features)).astype(dtype)
    return theta, X, rng.integers(0, model.classes, samples)


def summed_loss(model, theta, X, y):
    """Return the summed loss, for complex theta, too: it is analytic except at a ramp's bend."""
    at, h, last = 0, X, len(model.hidden)
    for layer, (a, b) in enumerate(zip([4, *model.hidden], [*model.hidden, 3], strict=True)):
        W, bias = theta[at : at + a * b].reshape(a, b), theta[at + a * b : at + (a + 1) * b]
        h, at = h @ W + bias, at + (a + 1) * b
        if layer < last:
            h = np.tanh(h) if model.activation == "tanh" else np.where(h.real > 0, h, 0)
    assert at == theta.size
    return np.sum(np.log(np.sum(np.exp(h), axis=1)) - h[np.arange(len(y)), y])


# ----------------------------------------------------------------------------------- the model


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (1,), (7,), (5, 6), (2, 3, 4)], ids=str)
def test_gradient_is_that_of_the_summed_loss(hidden, activation):
    """Complex steps give the derivative without losing digits to differences."""
    model = MLP(4, 3, hidden, activation)
    theta, X, y = problem(model)
    h = 1e-100
    expected = [summed_loss(model, theta + 1j * h * e, X, y).imag / h for e in np.eye(model.size)]
    gradient = model.gradient(theta, X, y)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)
    assert len(y) * model.loss(theta, X, y) == pytest.approx(
        summed_loss(model, theta, X, y), rel=1e-13
    )
    single = model.gradient(theta.astype(np.float32), X, y)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("model", [MODEL, SoftmaxRegression(4, 3)], ids=["network", "linear"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_probabilities_are_those_of_the_loss(model, scale):
    theta, X, y = problem(model)
    theta *= scale
    shares = model.probabilities(theta, X)
    assert shares.shape == (11, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares.argmax(axis=1), model.predict(theta, X))
    if scale == 1:
        expected = -np.mean(np.log(shares[np.arange(11), y]))
        assert model.loss(theta, X, y) == pytest.approx(expected, rel=1e-12)
    assert model.probabilities(theta.astype(np.float32), X).dtype == np.float32


def test_without_hidden_layers_it_is_softmax_regression():
    model, linear = MLP(4, 3, hidden=()), SoftmaxRegression(4, 3)
    theta, X, y = problem(model)
    assert model.size == linear.size
    np.testing.assert_array_equal(model.gradient(theta, X, y), linear.gradient(theta, X, y))
    assert model.loss(theta, X, y) == linear.loss(theta, X, y)
    np.testing.assert_array_equal(model.predict(theta, X), linear.predict(theta, X))


@settings(deadline=None, max_examples=much(50, 15))
@given(samples=st.integers(1, 30), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_partial_gradients_sum_to_the_gradient(samples, k, seed):
    theta, X, y = problem(samples=samples, seed=seed)
    partials = np.full((min(k, samples), MODEL.size), np.nan)
    for shard, out in zip(data.partition(X, y, len(partials)), partials, strict=True):
        assert MODEL.partial_gradient(theta, shard, out) is None
    np.testing.assert_allclose(partials.sum(axis=0), MODEL.gradient(theta, X, y), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_inputs_are_left_alone_whatever_their_strides(activation, dtype):
    model = MLP(4, 3, (5,), activation)
    theta, X, y = problem(model, dtype=dtype)
    spaced = np.repeat(theta, 2)[::2], np.asfortranarray(X), np.repeat(y, 2)[::2]
    for array in spaced:
        array.flags.writeable = False
    out = np.full(model.size, np.nan, dtype)
    assert model.gradient(*spaced, out=out) is out
    np.testing.assert_allclose(out, model.gradient(theta, X, y), rtol=20 * np.finfo(dtype).eps)
    none = model.gradient(theta, X[:0], y[:0])
    np.testing.assert_array_equal(none, np.zeros(model.size))


def test_layers_are_views_that_fill_theta():
    theta = np.arange(float(MODEL.size))
    shapes = [(W.shape, b.shape) for W, b in MODEL.layers(theta)]
    assert shapes == [((4, 5), (5,)), ((5, 6), (6,)), ((6, 3), (3,))]
    np.testing.assert_array_equal(
        np.concatenate([part.ravel() for pair in MODEL.layers(theta) for part in pair]), theta
    )
    MODEL.layers(theta)[1][0][:] = -1
    assert np.count_nonzero(theta == -1) == 30


@pytest.mark.parametrize(
    ("activation", "squared"), [("relu", [6 / 4, 6 / 50]), ("tanh", [6 / 54, 6 / 53])]
)
def test_start_keeps_signals_their_size(activation, squared):
    model = MLP(4, 3, 50, activation)
    theta = model.initial(np.random.default_rng(7))
    assert theta.dtype == np.float64
    np.testing.assert_array_equal(model.initial(7), theta)
    assert (model.initial(8) != theta).any()
    for (W, b), bound in zip(model.layers(theta), squared, strict=True):
        np.testing.assert_array_equal(b, 0)
        assert 0.9 * math.sqrt(bound) < np.abs(W).max() <= math.sqrt(bound)
        assert abs(W.mean()) < 0.2 * math.sqrt(bound)


def test_penalty_is_the_masters_and_spares_the_biases():
    model = MLP(4, 3, (5, 6), l2=0.7)
    theta, X, y = problem(model)
    np.testing.assert_array_equal(
        model.gradient(theta, X, y), MLP(4, 3, (5, 6)).gradient(theta, X, y)
    )
    gradient = np.ones(model.size)
    model.add_regularisation(theta, gradient)
    for (W, _), (total_W, total_b) in zip(model.layers(theta), model.layers(gradient), strict=True):
        np.testing.assert_allclose(total_W, 1 + 0.7 * W)
        np.testing.assert_array_equal(total_b, 1)


def test_it_is_a_value():
    same = MLP(4, 3, [5, np.int64(6)], "tanh")
    assert same == MODEL
    assert hash(same) == hash(MODEL)
    assert repr(same) == repr(MODEL)
    assert "hidden=(5, 6), activation='tanh'" in repr(same)
    theta, X, y = problem()
    sent = pickle.loads(pickle.dumps(MODEL.partial_gradient))
    out = np.empty(MODEL.size)
    sent(theta, (X, y), out)
    np.testing.assert_array_equal(out, MODEL.gradient(theta, X, y))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"hidden": 0}, ValueError, "units of a hidden layer must be at least 1, not 0"),
        ({"hidden": [5, -1]}, ValueError, "units of a hidden layer must be at least 1, not -1"),
        ({"hidden": 2.5}, TypeError, "units of a hidden layer must be an integer, not 2.5"),
        ({"hidden": "64"}, TypeError, "units of a hidden layer must be an integer, not '6'"),
        ({"activation": "gelu"}, ValueError, 'activation must be "relu" or "tanh", not \'gelu\''),
        ({"classes": 1}, ValueError, "classes must be at least 2, not 1"),
        ({"features": 0}, ValueError, "features must be at least 1"),
        ({"l2": -1.0}, ValueError, "l2 must be finite and not negative"),
    ],
)
def test_what_is_no_network(given, error, says):
    with pytest.raises(error, match=says):
        MLP(**({"features": 4, "classes": 3} | given))


@pytest.mark.parametrize("method", ["gradient", "loss", "error"])
def test_methods_reject(method):
    theta, X, y = problem()
    for bad, says in (
        ((theta[1:], X, y), r"theta must be .* shape \(82,\), got float64 of shape \(81,\)"),
        ((theta.astype(int), X, y), "theta must be a float32 or float64 array"),
        ((theta, X[:, 1:], y), r"X must have shape \(m, 4\), got \(11, 3\)"),
        ((theta, X, y + 1), "labels must lie in 0 .. 2"),
        ((theta, X, y.astype(float)), "y must be an integer array"),
    ):
        with pytest.raises(ValueError, match=says):
            getattr(MODEL, method)(*bad)


# ------------------------------------------------------------------------------ where it starts


def toy(dtype=np.float64):
    rng = np.random.default_rng(7)
    y = np.arange(67) % 3
    X = (rng.standard_normal((67, 4)) + np.eye(3, 4)[y]).astype(dtype)
    return data.Dataset("toy", X, y, X[:9], y[:9])


CODE = fastgc.ReedSolomon(6, stragglers=2)
train = partial(fastgc.train, CODE, model=MODEL, engine="simulated", delays=Pareto(0.01, 1.5))


def by_hand(theta, optimizer, rounds, dataset=None, factor=lambda t: 1.0):
    """Train in one process from theta, at the optimizer's rate times a factor."""
    dataset = dataset or toy()
    X, y = dataset.X_train, dataset.y_train
    optimizer.reset(theta.astype(X.dtype))
    lr = optimizer.lr
    for t in range(rounds):
        optimizer.lr = lr * factor(t)
        optimizer.step(MODEL.gradient(optimizer.point, X, y) / X.dtype.type(len(X)))
    return optimizer.theta


@pytest.mark.parametrize("engine", ["local", "simulated"])
def test_a_network_starts_where_it_says(engine):
    history = train(toy(), optimizer=Nesterov(0.2), rounds=9, seed=5, engine=engine)
    expected = by_hand(MODEL.initial(5), Nesterov(0.2), 9)
    np.testing.assert_allclose(history.theta, expected, rtol=1e-10, atol=1e-12)
    other = train(toy(), optimizer=Nesterov(0.2), rounds=9, seed=6)
    assert np.abs(other.theta - history.theta).max() > 0.1


@pytest.mark.parametrize("start", ["a list", np.float32, np.float64, np.int64, "strided"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training_starts_at_theta0(start, dtype):
    theta0 = np.random.default_rng(3).integers(-2, 3, MODEL.size) / 2
    if start == "a list":
        given = theta0.tolist()
    elif start == "strided":
        given = np.repeat(theta0, 3)[::3]
    else:
        theta0 = theta0.astype(start).astype(float)
        given = theta0.astype(start)
    before = np.array(given)
    history = train(toy(dtype), theta0=given, optimizer=SGD(0.3), rounds=4)
    assert history.theta.dtype == dtype
    np.testing.assert_array_equal(given, before)
    expected = by_hand(theta0, SGD(0.3), 4, toy(dtype))
    np.testing.assert_allclose(history.theta, expected, atol=2e-5 if dtype == np.float32 else 1e-12)


def test_linear_models_start_at_zero_or_at_theta0():
    model = SoftmaxRegression(4, 3)
    first = train(toy(), model=model, optimizer=SGD(0.5), rounds=3)
    again = train(toy(), model=model, optimizer=SGD(0.5), rounds=4, theta0=first.theta)
    whole = train(toy(), model=model, optimizer=SGD(0.5), rounds=7)
    np.testing.assert_allclose(again.theta, whole.theta, rtol=1e-12)
    zero = train(toy(), model=model, optimizer=SGD(0.5), rounds=3, theta0=np.zeros(15))
    assert zero.theta.tobytes() == first.theta.tobytes()


@pytest.mark.parametrize(
    ("theta0", "error", "says"),
    [
        (np.zeros(81), ValueError, r"theta0 must have shape \(82,\), as the parameters of MLP\(.*"),
        (np.zeros((2, 41)), ValueError, r"theta0 must have shape \(82,\), .* not \(2, 41\)"),
        (0.0, ValueError, r"theta0 must have shape \(82,\), .* not \(\)"),
        (np.zeros(82, complex), TypeError, "theta0 must be real numbers, not complex128"),
        (np.zeros(82, bool), TypeError, "theta0 must be real numbers, not bool"),
        ("zero", TypeError, "theta0 must be real numbers, not"),
        (np.r_[np.zeros(81), np.nan], ValueError, r"theta0\[81\] is nan: theta0 must be finite"),
        (np.full(82, 1e39), ValueError, r"theta0\[0\] is inf: theta0 must be finite"),
    ],
)
def test_what_is_no_start(theta0, error, says):
    def engine(*_, **__):
        raise AssertionError("no worker is to be started")

    with pytest.raises(error, match=says):
        train(toy(np.float32), theta0=theta0, engine=engine)


class Odd(MLP):
    """A network that starts at given parameters."""

    def initial(self, rng):
        assert isinstance(rng, np.random.Generator)
        return STARTS.pop()


STARTS = []


def test_a_models_start_is_checked_too():
    for start, error in ((np.zeros(3), ValueError), (np.zeros(82, complex), TypeError)):
        STARTS.append(start)
        with pytest.raises(error, match="what initial of Odd gives must"):
            train(toy(), model=Odd(4, 3, (5, 6), "tanh"))
    STARTS.append(None)
    assert np.isfinite(train(toy(), model=Odd(4, 3, (5, 6)), theta0=np.ones(82), rounds=1).theta[0])
    assert STARTS == [None]  # not called if theta0 is given
    STARTS.clear()


class Startless:
    """A model that does not say where to start."""

    def __init__(self, model):
        self._model, self.size = model, model.size
        self.loss, self.error = model.loss, model.error

    def partial_gradient(self, theta, shard, out):
        self._model.gradient(theta, *shard, out=out)


def test_networks_that_start_at_zero_are_hinted_at():
    options = {"optimizer": SGD(0.1), "rounds": 2}
    network = Startless(MODEL)
    with pytest.warns(
        UserWarning, match=r"7[89] of 82 elements of the gradient are zero.* theta0=, o"
    ):
        train(toy(), model=network, **options)
    train(toy(), model=network, theta0=MODEL.initial(1), **options)
    sparse = toy()
    sparse.X_train[:, 1:] = 0  # most of the gradient is zero for any theta
    train(sparse, model=Startless(SoftmaxRegression(4, 3)), **options)


# --------------------------------------------------------------------------- models of one's own


class Least:
    """A model with only the required names: the mean of the samples, by least squares."""

    size = 4

    def partial_gradient(self, theta, shard, out):
        X, _ = shard
        out[:] = len(X) * theta - X.sum(axis=0)

    def loss(self, theta, X, y):
        return float(np.mean(np.sum((X - theta) ** 2, axis=1)) / 2)

    def error(self, theta, X, y):
        return 0.25


def test_a_model_needs_four_things():
    history = train(toy(), model=Least(), optimizer=SGD(1.0), rounds=2)
    mean = toy().X_train.mean(axis=0)
    np.testing.assert_allclose(history.theta, mean)
    assert history.rounds[-1].loss == pytest.approx(Least().loss(mean, toy().X_train, None))
    assert history.rounds[-1].test_error == 0.25
    with pytest.raises(ValueError, match=r"Least does not say its learning rate: give optimizer="):
        train(toy(), model=Least())
    with pytest.raises(ValueError, match="decodes only gradients that are quadratic in the data"):
        fastgc.train(fastgc.LagrangeCode(5, load=2), toy(), model=Least(), optimizer=SGD(1.0))
    for missing in ("partial_gradient", "loss", "error"):
        broken = type("Broken", (), {k: v for k, v in vars(Least).items() if k != missing})()
        with pytest.raises(TypeError, match=f"model must be an object with a method {missing}, n"):
            train(toy(), model=broken, optimizer=SGD(1.0))
    Sizeless = type("Sizeless", (), {k: v for k, v in vars(Least).items() if k != "size"})
    with pytest.raises(TypeError, match="size of Sizeless must be an integer, not None"):
        train(toy(), model=Sizeless(), optimizer=SGD(1.0))
    with pytest.raises(TypeError, match="model must be an object with a method partial_gradient"):
        train(toy(), model=Least, optimizer=SGD(1.0))
    with pytest.raises(TypeError, match="optimizer must be an object with a method reset, not"):
        train(toy(), model=Least(), optimizer=type("Adam", (), {"step": 0})())
    with pytest.raises(
        TypeError, match=r"data must be a fastgc.data.Dataset\(name, X_train, .*tuple"
    ):
        train((np.zeros((6, 2)), np.zeros(6)), model=Least())


TOLD = """
class Told:  # asks for the partition and the round, and sends them: to each element its own
    size = 4

    def partial_gradient(self, theta, shard, out, *, partition, round):
        out[:] = round, partition, partition**2, 1

    def loss(self, theta, X, y):
        return 0.0

    error = loss
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A module that workers can import, unlike a test module."""
    (tmp_path / "told.py").write_text(TOLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("told").Told()
    sys.modules.pop("told")


@pytest.mark.parametrize("engine", ["local", "simulated"])
@pytest.mark.parametrize(
    "code",
    [CODE, fastgc.BinaryCode(5, stragglers=1), fastgc.Uncoded(3, load=2)],
    ids=["packed", "binary", "several messages"],
)
def test_gradients_are_told_partition_and_round(code, engine, told):
    thetas = [np.zeros(4)]

    def kept(record):
        thetas.append(optimizer.theta.copy())

    optimizer, tracker = SGD(1.0), StabilityTracker(measure_every=1)
    fastgc.train(
        code,
        toy(),
        model=told,
        optimizer=optimizer,
        rounds=4,
        engine=engine,
        tracker=tracker,
        callback=kept,
    )
    sums = -67 * np.diff(thetas, axis=0)
    j = np.arange(code.k)
    expected = [[code.k * number, j.sum(), (j**2).sum(), code.k] for number in range(4)]
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-10)
    assert max(tracker.measured) < 1e-13  # the master knows the rate, too


# ------------------------------------------------------------------------------------ schedules


def half_a_cosine(round):
    return 0.25 + 0.375 * (1 + math.cos(math.pi * round / 12))


RATES = {
    "cosine": half_a_cosine,
    "steps": lambda t: 0.5 ** (t // 3),
    "one's own": lambda t: 1 / (1 + t),
    "none at all": lambda t: 0,
}


@pytest.mark.parametrize("optimizer", [lambda: SGD(0.4, 0.5), lambda: Nesterov(0.2), AMSGrad])
@pytest.mark.parametrize("rate", RATES)
def test_the_learning_rate_follows_the_schedule(rate, optimizer):
    factor = RATES[rate]
    used = optimizer()
    lr = used.lr
    history = train(toy(), optimizer=used, rounds=8, seed=5, schedule=factor)
    expected = by_hand(MODEL.initial(5), optimizer(), 8, factor=factor)
    np.testing.assert_allclose(history.theta, expected, rtol=1e-9, atol=1e-11)
    assert used.lr == lr  # restored for another run


def test_groups_follow_a_schedule():
    code, rates = fastgc.Grouped.repetition(6, 3), []

    class Rated(AMSGrad):
        def step(self, gradient):
            rates.append(self.lr)
            return super().step(gradient)

    train = partial(fastgc.train, code, toy(), model=MODEL, engine="simulated", rounds=5)
    train(optimizer=GCADA(3, Rated(0.1)), schedule=lambda t: 0.5 ** (t // 2))
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.05, 0.05, 0.025])


class Rateless:
    """A user's optimizer, without a rate to schedule."""

    def __init__(self):
        self._own = SGD(0.1)
        self.reset, self.step = self._own.reset, self._own.step

    theta = point = property(lambda self: self._own.theta)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"schedule": 0.5}, TypeError, "schedule must be a function of the round, not 0.5"),
        ({"schedule": "cosine"}, TypeError, "schedule must be a function of the round"),
        ({"schedule": float}, TypeError, "schedule must be a function of the round"),
        ({"schedule": lambda t: -1}, ValueError, r"schedule\(0\) must be finite and not negative"),
        ({"schedule": lambda t: "0.1"}, TypeError, r"schedule\(0\) must be a real number"),
        ({"schedule": lambda t: None}, TypeError, r"schedule\(0\) must be a real number, not None"),
        (
            {"schedule": half_a_cosine, "optimizer": Rateless()},
            TypeError,
            "schedule needs an optimizer with an attribute lr, .* has none",
        ),
        ({"evaluate_every": 0}, ValueError, "evaluate_every must be at least 1, not 0"),
        ({"evaluate_every": 1.5}, TypeError, "evaluate_every must be an integer, not 1.5"),
    ],
)
def test_arguments_that_cannot_be(options, error, says):
    def engine(*_, **__):
        raise AssertionError("no worker is to be started")

    with pytest.raises(error, match=says):
        train(toy(), engine=engine, **options)


def test_a_schedule_that_fails_in_a_later_round():
    optimizer = SGD(0.1)
    with pytest.raises(ValueError, match=r"schedule\(3\) must be finite and not negative, not -1"):
        train(toy(), optimizer=optimizer, rounds=6, schedule=lambda t: 2 - t)
    assert optimizer.lr == 0.1


# ---------------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize("every", [1, 2, 3, 7, 8, 100])
def test_rounds_are_evaluated_now_and_then(every, tmp_path):
    whole, seen = train(toy(), rounds=8), []
    history = train(toy(), rounds=8, evaluate_every=every, callback=seen.append)
    assert history.theta.tobytes() == whole.theta.tobytes()
    assert repr(seen) == repr(history.rounds)  # by repr, since NaN != NaN
    for record, full in zip(history.rounds, whole.rounds, strict=True):
        assert record.evaluated == (record.round % every == 0 or record.round == 8)
        assert math.isnan(record.loss) == math.isnan(record.test_error) == (not record.evaluated)
        if record.evaluated:
            assert (record.loss, record.test_error) == (full.loss, full.test_error)
    write_json([history], tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())[0]["rounds"][0]["evaluated"] == (
        every == 1
    )
    [read] = read_json(tmp_path / "run.json")
    assert repr(read.rounds) == repr(history.rounds)
    assert equal_loss([history]) == min(r.loss for r in history.rounds if r.evaluated)
    assert history.spent(math.inf).rounds == min(every, 8)


def test_histories_of_before_were_all_evaluated(tmp_path):
    write_json([train(toy(), rounds=2)], tmp_path / "run.json")
    text = re.sub(r',\s*"evaluated": true', "", (tmp_path / "run.json").read_text())
    assert "evaluated" not in text
    (tmp_path / "run.json").write_text(text)
    assert all(record.evaluated for record in read_json(tmp_path / "run.json")[0].rounds)


def test_the_model_is_evaluated_no_more_often(monkeypatch):
    asked = []
    loss = MLP.loss
    monkeypatch.setattr(MLP, "loss", lambda *given: asked.append(1) or loss(*given))
    train(toy(), rounds=9, evaluate_every=4)
    assert len(asked) == 3


def test_a_loss_is_seen_where_it_is_evaluated():
    losses = [r.loss for r in train(toy(), rounds=20).rounds]
    level = losses[6]
    assert all(loss > level for loss in losses[:6])
    history = train(toy(), rounds=20, until=level, evaluate_every=5)
    assert len(history.rounds) == 10
    assert history.rounds[-1].evaluated


def test_the_bar_keeps_what_was_last_evaluated(capsys):
    from fastgc.training.tables import training_bar

    history = train(toy(), rounds=5, evaluate_every=3)
    with training_bar("x", 5, 6) as show:
        show(history.rounds[0])
        show(history.rounds[1])
    assert "loss" not in capsys.readouterr().err
    with training_bar("x", 5, 6) as show:
        for record in history.rounds[:4]:
            show(record)
    shown = capsys.readouterr().err
    assert f"loss {history.rounds[2].loss:.3f}" in shown
    assert "nan" not in shown


def test_pictures_and_tables_show_what_was_evaluated(tmp_path):
    from rich.console import Console

    from fastgc.training.tables import comparison_table, spending_table

    plotting = pytest.importorskip("fastgc.plotting")
    pytest.importorskip("matplotlib")
    history = train(toy(), rounds=7, evaluate_every=3)
    losses, by_time, _, by_messages = (
        panel.lines[0] for panel in plotting.spending_panels([history], True)
    )
    shown = [history.rounds[at] for at in (2, 5, 6)]
    scale = 1.0 if history.rounds[-1].time >= 1 else 1e3
    np.testing.assert_allclose(losses.x, [scale * r.time for r in shown])
    np.testing.assert_array_equal(losses.y, [r.loss for r in shown])
    assert by_time.x.size == 7
    spent = np.cumsum([r.downloads + r.uploads for r in history.rounds])
    np.testing.assert_array_equal(by_messages.x, spent[[2, 5, 6]])
    [ax] = plotting.error_curves([history]).axes
    times = [r.time for r in shown]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), times)
    console = Console(width=120)
    with console.capture() as printed:
        console.print(comparison_table([history], 0.5), spending_table([history], math.inf))
    text = printed.get()
    assert f"{history.rounds[-1].loss:.4f}" in text
    assert "nan" not in text


# --------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("method", [lambda: SGD(0.4, 0.5), lambda: Nesterov(0.3), AMSGrad])
def test_scheduled_runs_go_on_to_the_last_bit(method, tmp_path):
    given = {"rounds": 10, "batch": 5, "seed": 4, "schedule": half_a_cosine}
    given["theta0"] = np.random.default_rng(1).normal(size=MODEL.size)
    whole = train(toy(), optimizer=method(), **given)
    kept = {"checkpoint": tmp_path / "run", "every": 2}

    class Stopped(Exception):
        pass

    def stop(record):
        if record.round == 7:  # the checkpoint keeps 6 rounds
            raise Stopped

    with pytest.raises(Stopped):
        train(toy(), optimizer=method(), callback=stop, evaluate_every=5, **given, **kept)
    short = train(toy(), optimizer=method(), **given | {"rounds": 6}, **kept)
    assert len(short.rounds) == 6
    assert short.rounds[-1].evaluated  # it was not, while more rounds were to follow
    assert short.rounds[-1].loss == whole.rounds[5].loss
    assert not short.rounds[3].evaluated
    used = method()
    lr = used.lr
    again = train(toy(), optimizer=used, **given, **kept)
    assert used.lr == lr
    assert again.theta.tobytes() == whole.theta.tobytes()
    assert [r.loss for r in again.rounds[6:]] == [r.loss for r in whole.rounds[6:]]


def test_runs_that_start_or_are_scheduled_otherwise_are_others(tmp_path):
    given = {"rounds": 4, "optimizer": SGD(0.3), "checkpoint": tmp_path / "run"}
    start = MODEL.initial(3)
    train(toy(), theta0=start, schedule=half_a_cosine, **given)
    for other, says in (
        ({"theta0": start + 1, "schedule": half_a_cosine}, "start: digest .* -> digest"),
        ({"schedule": half_a_cosine}, "start: digest .* -> None"),
        ({"theta0": start}, "schedule: <function half_a_cosine> -> None"),
    ):
        with pytest.raises(fastgc.CheckpointError, match=says):
            train(toy(), **given | other)
    longer = {"theta0": start, "schedule": half_a_cosine, "rounds": 6}
    history = train(toy(), **given | longer)
    assert len(history.rounds) == 6
    np.testing.assert_array_equal(history.theta, train(toy(), **given | longer).theta)


def test_networks_reach_the_usual_error_on_digits():
    dataset = data.load("digits", seed=3, dtype=np.float32)
    history = fastgc.train(
        fastgc.BinaryCode(6, stragglers=1),
        dataset,
        model=models.MLP(64, 10, hidden=32),
        optimizer=optimizers.AMSGrad(0.02),
        schedule=lambda t: (1 + math.cos(math.pi * t / 120)) / 2,
        rounds=120,
        batch=60,
        evaluate_every=40,
        engine="simulated",
    )
    assert [r.round for r in history.rounds if r.evaluated] == [40, 80, 120]
    assert history.rounds[-1].test_error < 0.04
