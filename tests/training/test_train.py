"""Training on worker processes gives the gradients of one process, and leaves nothing behind."""

import contextlib
import math
from dataclasses import replace
from functools import partial
from time import perf_counter, sleep

import numpy as np
import pytest
from strength import much
from toys import Network, toy

import fastgc
from fastgc import Grouped, data, delays, models
from fastgc.delays import Pareto
from fastgc.engines import RoundOptions, SimulatedCluster
from fastgc.stability import StabilityTracker
from fastgc.training import tables
from fastgc.training.history import (
    Record,
    equal_loss,
    read_json,
    write_json,
)
from fastgc.training.models import SoftmaxRegression
from fastgc.training.optimizers import CADA, GCADA, SGD, AMSGrad, Nesterov


@pytest.fixture(scope="module")
def digits():
    return data.load("digits", seed=3)


def by_hand(model, optimizer, dataset, rounds, theta0=None, batches=None, k=1):
    """Return theta after training in one process; with `batches`, on those of k partitions."""
    X, y = dataset.X_train, dataset.y_train
    parts = data.partition(X, y, k)
    optimizer.reset(np.zeros(model.size, X.dtype) if theta0 is None else theta0.astype(X.dtype))
    for t in range(rounds):
        drawn = [batches(part, j, t) if batches else part for j, part in enumerate(parts)]
        gradient = sum(model.gradient(optimizer.point, *each) for each in drawn)
        gradient *= X.dtype.type(len(X) / sum(len(each[0]) for each in drawn))
        if hasattr(model, "add_regularisation"):
            model.add_regularisation(optimizer.point, gradient)
        optimizer.step(gradient / X.dtype.type(len(X)))
    return optimizer.theta


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (fastgc.ReedSolomon(5, stragglers=2), None),
        (fastgc.ReedSolomon(6, 9, stragglers=1, clusters="auto"), None),
        (fastgc.ReedSolomon(4, stragglers=1, packed=False), None),
        (fastgc.LagrangeCode(5, load=2), None),  # it codes the data
        (fastgc.LagrangeCode(4, 6, load=4, messages=2, nodes="roots"), None),
        (fastgc.Uncoded(4, load=2), models.LeastSquares),
        (fastgc.BinaryCode(5, stragglers=1, speeds=[2, 1, 1, 1, 1]), models.LeastSquares),
    ],
    ids=repr,
)
def test_train_with_exact_codes(code, kind, digits):
    """The model and its rate are chosen by the code, unless they are given."""
    chosen = models.LeastSquares if code.scheme.data.coded else models.SoftmaxRegression
    model, X = (kind or chosen)(64, 10), digits.X_train
    history = fastgc.train(
        code, digits, model=kind and model, rounds=8, delays=delays.Pareto(0.001, 1.1), seed=3
    )
    expected = by_hand(model, Nesterov(model.learning_rate(X)), digits, 8)
    np.testing.assert_allclose(history.theta, expected, rtol=0, atol=1e-8 * abs(expected).max())
    loss = model.loss(expected, X, digits.y_train)
    assert history.rounds[-1].loss == pytest.approx(loss, rel=1e-8)
    assert [r.round for r in history.rounds] == list(range(1, 9))
    assert all(len(r.survivors) <= r.messages <= code.threshold for r in history.rounds)
    assert all(r.selected == () for r in history.rounds)  # all are to compute
    assert np.all(np.diff([r.time for r in history.rounds]) > 0)


SOFTMAX = models.SoftmaxRegression(5, 3)
WAITS = delays.Exponential(0.001)


def trained(method, code, dataset=None, *, rounds=30, engine="simulated", **options):
    given = {"model": SOFTMAX, "delays": WAITS, "seed": 2, "rounds": rounds, "engine": engine}
    return fastgc.train(code, dataset or toy(), optimizer=method, **(given | options))


@pytest.mark.parametrize(
    ("code", "engine"),
    [
        (fastgc.ReedSolomon(5, 6, stragglers=2), "local"),
        (fastgc.ReedSolomon(5, 6, stragglers=2), "simulated"),
        (fastgc.BinaryCode(5, stragglers=1), "simulated"),
        (fastgc.Uncoded(3, load=2), "simulated"),
        (
            Grouped([fastgc.ReedSolomon(3, stragglers=1), fastgc.BinaryCode(3, stragglers=1)]),
            "simulated",
        ),
    ],
    ids=repr,
)
def test_train_batch(code, engine):
    """Copies of a partial gradient must use the same samples, or decoding gives nonsense."""
    model, tracker = models.SoftmaxRegression(5, 3, l2=0.7), StabilityTracker(measure_every=1)
    options = {"model": model, "rounds": 12}
    history = trained(Nesterov(0.5), code, batch=4, engine=engine, tracker=tracker, **options)
    draw = data.MiniBatches(4, 2)
    expected = by_hand(model, Nesterov(0.5), toy(), 12, batches=draw, k=code.k)
    np.testing.assert_allclose(history.theta, expected, rtol=0, atol=1e-12)
    assert max(tracker.measured) < 1e-13  # compared with partials of the same mini-batches
    assert {r.samples for r in history.rounds} == {4 * int(code.scheme.loads.sum())}
    assert abs(trained(Nesterov(0.5), code, **options).theta - expected).max() > 1e-3


def regression_data(outputs=2, dtype=np.float64):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((67, 5))
    y = X @ rng.standard_normal((5, outputs)) + 2 + 0.1 * rng.standard_normal((67, outputs))
    y = y[:, 0] if outputs == 1 else y
    X, y = X.astype(dtype), y.astype(dtype)
    return data.Dataset("reg", X[:50], y[:50], X[50:], y[50:])


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "code",
    [
        fastgc.LagrangeCode(4, 6, load=4, messages=2, nodes="roots"),
        fastgc.ReedSolomon(5, stragglers=2),
        fastgc.Uncoded(4, load=2),
    ],
    ids=repr,
)
def test_train_regression(code, bias, outputs):
    dataset = regression_data(outputs)
    model = None if bias else models.LinearRegression(5, outputs, bias=False)
    history = fastgc.train(
        code, dataset, model=model, optimizer=Nesterov(0.1), rounds=9, engine="simulated", seed=3
    )
    model = models.LinearRegression(5, outputs, bias=bias)
    theta = by_hand(model, Nesterov(0.1), dataset, 9)
    np.testing.assert_allclose(history.theta, theta, rtol=0, atol=1e-9)
    assert history.measure == "RMSE"
    loss = model.loss(theta, dataset.X_train, dataset.y_train)
    assert history.rounds[-1].loss == pytest.approx(loss, rel=1e-8)
    rmse = model.error(theta, dataset.X_test, dataset.y_test)
    assert history.rounds[-1].test_error == pytest.approx(rmse, rel=1e-8)


def test_train_regression_of_a_file(tmp_path):
    path, whole = tmp_path / "reg.npz", regression_data()
    names = ("X_train", "y_train", "X_test", "y_test")
    np.savez(path, **{name: getattr(whole, name) for name in names})
    history = fastgc.train(fastgc.LagrangeCode(3, load=3), path, rounds=4, engine="simulated")
    expected = fastgc.train(fastgc.Uncoded(2), whole, rounds=4, engine="simulated")
    np.testing.assert_allclose(history.theta, expected.theta, atol=1e-9)
    single = regression_data(dtype=np.float32)
    assert fastgc.train(fastgc.Uncoded(2), single, rounds=1, engine="simulated").theta.dtype == "f4"


def test_measure_of_tells_classes_from_targets():
    reg, digits_like = regression_data(), toy()
    code = fastgc.Uncoded(2)
    for kind in (models.SoftmaxRegression, models.LeastSquares):
        with pytest.raises(ValueError, match="reg has real-valued targets"):
            fastgc.train(code, reg, model=kind(5, 3), engine="simulated")
    with pytest.raises(ValueError, match="toy has classes"):
        fastgc.train(code, digits_like, model=models.LinearRegression(5), engine="simulated")


def test_train_in_simulated_time():
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


def test_train_records_what_a_round_spends():
    dataset = toy()
    code = fastgc.BinaryCode(5, stragglers=2)
    for engine in ("local", "simulated"):
        history = fastgc.train(code, dataset, rounds=3, delays=WAITS, engine=engine)
        sizes = [len(X) for X, _ in data.partition(dataset.X_train, dataset.y_train, 5)]
        samples = sum(sizes[j] for i in range(5) for j in code.partitions(i))
        for r in history.rounds:
            assert (r.downloads, r.samples) == (5, samples)
            assert r.uploads == len(r.received) == len(r.arrivals)


@pytest.mark.parametrize("batch", [None, 5])
def test_train_cada_that_asks_all_is_distributed_adam(batch):
    """With c = 0 steps agree, to the last bit if messages come in the order of workers."""
    adam = trained(AMSGrad(), fastgc.Uncoded(6), delays=None, batch=batch)
    cada = trained(CADA(6, c=0), Grouped.repetition(6, 6), delays=None, batch=batch)
    np.testing.assert_array_equal(cada.theta, adam.theta)
    for ours, theirs in zip(cada.rounds, adam.rounds, strict=True):
        assert (ours.loss, ours.samples) == (theirs.loss, theirs.samples)
        assert ours.downloads == ours.uploads == theirs.downloads == theirs.uploads == 6


def test_train_gcada_on_processes_as_simulated():
    """Selection depends on the gradients, not on the worker of a group that sent them."""
    histories = [
        trained(GCADA(3, c=2.0), Grouped.repetition(6, 3), engine=engine, batch=7)
        for engine in ("local", "simulated")
    ]
    np.testing.assert_allclose(histories[0].theta, histories[1].theta, rtol=1e-9, atol=1e-12)
    asked = [[r.downloads for r in history.rounds] for history in histories]
    assert asked[0] == asked[1]
    assert len(set(asked[0])) > 1
    for history in histories:
        assert all(r.uploads == r.downloads / 2 for r in history.rounds)
        assert all(len(r.survivors) == r.uploads for r in history.rounds)


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
@pytest.mark.few(4)
def test_train_gcada_with_coded_groups(code, engine):
    """With the same partitions, the same groups are selected, and steps agree."""
    options = {"batch": 3, "rounds": 20}
    repeated = trained(GCADA(3, c=1.0), Grouped.repetition(12, 3, 12), **options)
    coded = trained(GCADA(3, c=1.0), code, engine=engine, **options)
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


def test_train_gcada_by_its_equations():
    """Eq. (3): gradients are stale, of the point they were computed at; the penalty is current."""
    dataset, model = toy(), models.SoftmaxRegression(5, 3, l2=2.0)
    X, y = dataset.X_train, dataset.y_train
    code, batch, seed = Grouped.repetition(4, 2), 6, 2
    method = GCADA(2, SGD(0.3), c=0.9, smoothness=[1.0, 0.5], max_age=4)
    history = trained(method, code, dataset, model=model, batch=batch, rounds=25)
    draw, shards = data.MiniBatches(batch, seed), data.partition(X, y, 2)
    theta, stale = np.zeros(model.size), [None, None]
    for number, record in enumerate(history.rounds):
        for g in {code.group_of(i) for i in record.survivors}:
            stale[g] = model.gradient(theta, *draw(shards[g], g, number))
        gradient = (stale[0] + stale[1]) * len(X) / (batch * 2)
        gradient[:15] += 2.0 * theta[:15]  # no penalty on the bias
        theta = theta - 0.3 * gradient / len(X)
        assert record.loss == pytest.approx(model.loss(theta, X, y), rel=1e-10)
        assert record.decode == 0  # in simulated time
    np.testing.assert_allclose(history.theta, theta, rtol=1e-9, atol=1e-12)
    assert {r.downloads for r in history.rounds} >= {0, 4}


@pytest.mark.parametrize(
    ("dtype", "messages", "tolerance"),
    [
        (np.float32, None, 1e-4),
        (np.float64, "float32", 1e-4),
        (np.float32, "float16", 0.05),
        (np.float64, "bfloat16", 0.2),
    ],
)
def test_train_gcada_in_less_precision(dtype, messages, tolerance):
    code = Grouped([fastgc.ReedSolomon(3, stragglers=1), fastgc.BinaryCode(3, stragglers=1)])

    def run(dtype, messages):
        return trained(GCADA(2, c=0), code, toy(dtype), message_dtype=messages, rounds=10)

    exact, coarse = run(np.float64, None).theta, run(dtype, messages).theta
    assert coarse.dtype == dtype
    error = np.linalg.norm(coarse - exact) / np.linalg.norm(exact)
    assert 0 < error < tolerance


def no_worker(*_, **__):
    raise AssertionError("no worker is to be started")


GROUPS, LOST = Grouped.repetition(6, 2), Record(1, 0, 0, 0, (), 0, 0, 0, 0)
OF_GROUPS = {"code": GROUPS, "optimizer": GCADA(2)}
APPROXIMATE = Grouped([fastgc.Uncoded(3, tolerance=0.5)] * 2)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"code": "rs"}, TypeError, "code must .*not 'rs'"),
        ({"batch": 0}, ValueError, "batch must .*not 0"),
        ({"batch": 23}, ValueError, "batch is 23, .* of the 3 partitions has 22"),
        ({"code": fastgc.LagrangeCode(3, load=2), "batch": 2}, ValueError, "leave out batch"),
        ({"optimizer": CADA(3)}, ValueError, r"CADA .*repetition\(n, 3\); Uncoded is none"),
        ({"code": GROUPS, "optimizer": GCADA(3)}, ValueError, "GCADA .* 3 groups .* has 2"),
        (OF_GROUPS | {"tracker": StabilityTracker()}, ValueError, "GCADA .* tracker"),
        (OF_GROUPS | {"partial": "best"}, ValueError, 'GCADA .* partial="raise"'),
        (OF_GROUPS | {"code": APPROXIMATE}, ValueError, "GCADA .* need not be"),
        ({"rounds": 0}, ValueError, "rounds must .*not 0"),
        ({"seed": -1}, ValueError, "seed must .*not -1"),  # as of all options of rounds
        ({"until": "x"}, TypeError, "until must .*not 'x'"),
        ({"until": math.nan}, ValueError, "until is NaN"),
        ({"callback": 3}, TypeError, "callback must .*not 3"),
        ({"model": "softmax"}, TypeError, "model must .* partial_gradient, not 'softmax'"),
        ({"optimizer": "adam"}, TypeError, "a method step, not 'adam'"),
        ({"optimizer": CADA}, TypeError, "a method step, not <class"),
        ({"survivors": 3}, TypeError, "survivors must be a History"),
        ({"survivors": [[0, 1]]}, TypeError, "survivors must be a History"),
        ({"survivors": [LOST], "rounds": 2}, ValueError, "survivors has no round 2: it has 1"),
        (
            {"survivors": [replace(LOST, received=(0, 3))], "rounds": 1},
            ValueError,
            r"round 1 of the run in survivors: survivors\[1\] is 3",
        ),
    ],
)
def test_train_refused(options, error, match):
    given = {"code": fastgc.Uncoded(3), "data": toy(), "engine": no_worker} | options
    with pytest.raises(error, match=match):
        fastgc.train(**given)


def test_train_refuses_engines():
    for engine, error in (("pvm", ValueError), (3, TypeError)):
        with pytest.raises(error, match=f"engine.*{engine}|engine.*int"):
            fastgc.train(fastgc.Uncoded(3), toy(), engine=engine)


def test_train_tracker_measures_in_no_time():
    class Slow(StabilityTracker):
        def measure(self, *arguments):
            sleep(0.3)
            super().measure(*arguments)

    class Cluster(SimulatedCluster):
        clock = staticmethod(perf_counter)

    tracker = Slow(measure_every=1)
    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=2, tracker=tracker, engine=Cluster)
    assert all(not math.isnan(row.measured) for row in tracker.rounds)
    assert 0 < history.rounds[-1].time < 0.3


def test_train_least_and_largest_numbers(tmp_path):
    options = {"rounds": 1, "batch": 1, "evaluate_every": 1, "every": 1, "seed": 0}
    kept = {"engine": "simulated", "checkpoint": tmp_path / "run"}
    [record] = fastgc.train(fastgc.Uncoded(1), toy(), **options, **kept).rounds
    assert (record.samples, record.evaluated) == (1, True)
    smallest = 67 // 4
    history = fastgc.train(fastgc.Uncoded(4), toy(), batch=smallest, rounds=2, engine="simulated")
    assert len(history.rounds) == 2


def test_train_until():
    train = partial(fastgc.train, fastgc.Uncoded(3), toy(), rounds=12, engine="simulated")
    losses = [r.loss for r in train().rounds]
    assert losses[4] < min(losses[:4])
    assert [r.loss for r in train(until=losses[4]).rounds] == losses[:5]
    ended = train(until=losses[4], evaluate_every=3)
    assert [r.evaluated for r in ended.rounds] == [False, False, True] * 2
    assert len(train(until=0).rounds) == 12


@pytest.mark.parametrize("optimizer", [None, "gcada"])
def test_train_verify(optimizer):
    """Rounds report that they were verified, also in groups; parameters stay the same."""
    code = Grouped.repetition(6, 2, 2) if optimizer else fastgc.ReedSolomon(6, stragglers=2)
    thetas = []
    for verify in (True, False):
        method = GCADA(2, SGD(1e-3), smoothness=1.0) if optimizer else None
        history = trained(method, code, rounds=3, verify=verify)
        assert [record.verified for record in history.rounds] == [verify] * 3
        assert all(record.corrupt == () for record in history.rounds)
        thetas.append(history.theta)
    np.testing.assert_allclose(*thetas, rtol=1e-9, atol=1e-12)


@pytest.mark.few(4)
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
def test_train_survivors_replay_a_run(code, optimizer, engine, tmp_path):
    """The workers' speeds at the time of the replay do not matter."""
    options = {"rounds": 8, "batch": 5, "delays": WAITS if engine == "local" else None}
    first = trained(optimizer(), code, engine=engine, **options)
    if engine == "simulated":
        engine = partial(SimulatedCluster, cost=np.arange(code.n) / 100)
    write_json([first], tmp_path / "run.json")
    (read,) = read_json(tmp_path / "run.json")
    ways = first, read, first.rounds, lambda number: first.rounds[number].received
    for survivors in ways[: much(4, 2)] if engine == "local" else ways:
        again = trained(
            optimizer(), code, engine=engine, survivors=survivors, **options | {"delays": None}
        )
        assert again.theta.tobytes() == first.theta.tobytes()
        assert [r.received for r in again.rounds] == [r.received for r in first.rounds]
        assert [r.survivors for r in again.rounds] == [r.survivors for r in first.rounds]


def test_train_survivors_of_a_run_that_ended_early():
    code = fastgc.Uncoded(3)
    options = {"engine": "simulated", "until": 0.8, "rounds": 200}
    first = fastgc.train(code, toy(), **options)
    assert len(first.rounds) < 200
    again = fastgc.train(code, toy(), survivors=first, **options)
    assert again.theta.tobytes() == first.theta.tobytes()
    with pytest.raises(ValueError, match=rf"has no round {len(first.rounds) + 1}"):
        fastgc.train(code, toy(), survivors=first, **options | {"until": 0.0})


def test_train_gives_engines_what_differs_from_the_default():
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
def test_train_partial_best(tracked):
    """If too few come in time, the step follows the least-squares optimum, with its residual."""
    code = fastgc.ReedSolomon(6, stragglers=1)
    tracker = StabilityTracker(measure_every=1) if tracked else None
    options = {"delays": Slow(), "timeout": 1.0, "rounds": 7}
    history = trained(SGD(0.5), code, partial="best", tracker=tracker, **options)
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
    with pytest.raises(TimeoutError):
        trained(SGD(0.5), code, **options)


NETWORK = Network()
CODE = fastgc.ReedSolomon(6, stragglers=2)
narrow = partial(toy, features=4)
train_network = partial(
    fastgc.train, CODE, model=NETWORK, engine="simulated", delays=Pareto(0.01, 1.5)
)


def test_start_of_networks():
    history = train_network(narrow(), optimizer=Nesterov(0.2), rounds=9, seed=5)
    expected = by_hand(NETWORK, Nesterov(0.2), narrow(), 9, NETWORK.initial(5))
    np.testing.assert_allclose(history.theta, expected, rtol=1e-10, atol=1e-12)
    other = train_network(narrow(), optimizer=Nesterov(0.2), rounds=9, seed=6)
    assert np.abs(other.theta - history.theta).max() > 0.1


@pytest.mark.parametrize(
    "start",
    [
        np.ndarray.tolist,
        lambda theta: theta.astype(np.float32),
        lambda theta: (2 * theta).astype(np.int64),
        lambda theta: np.repeat(theta, 3)[::3],
    ],
    ids=["list", "float32", "int64", "strided"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_start_of_theta0(start, dtype):
    given = start(np.random.default_rng(3).integers(-2, 3, NETWORK.size) / 2)
    before = np.array(given)
    history = train_network(narrow(dtype), theta0=given, optimizer=SGD(0.3), rounds=4)
    assert history.theta.dtype == dtype
    np.testing.assert_array_equal(given, before)
    expected = by_hand(NETWORK, SGD(0.3), narrow(dtype), 4, before)
    np.testing.assert_allclose(history.theta, expected, atol=2e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    ("theta0", "error", "says"),
    [
        (np.zeros((2, 40)), ValueError, r"theta0 .* not \(2, 40\)"),
        (np.zeros(80, complex), TypeError, "theta0 .*not complex128"),
        (np.zeros(80, bool), TypeError, "theta0 .*not bool"),
        (np.r_[np.zeros(79), np.nan], ValueError, r"theta0\[79\] is nan"),
        (np.full(80, 1e39), ValueError, r"theta0\[0\] is inf"),
    ],
)
def test_start_of_refused(theta0, error, says):
    with pytest.raises(error, match=says):
        train_network(narrow(np.float32), theta0=theta0, engine=no_worker)


def test_start_of_own_models(monkeypatch):
    starts = [np.zeros(3), np.zeros(80, complex)]

    def initial(self, rng):
        assert isinstance(rng, np.random.Generator)
        return starts.pop()

    monkeypatch.setattr(Network, "initial", initial)
    for error in (TypeError, ValueError):
        with pytest.raises(error, match="what initial of Network gives must"):
            train_network(narrow())
    train_network(narrow(), theta0=np.ones(80), rounds=1)  # another start is not asked for


class Startless:
    """A model that does not say where to start."""

    def __init__(self, model):
        self._model, self.size = model, model.size
        self.loss, self.error = model.loss, model.error

    def partial_gradient(self, theta, shard, out):
        self._model.partial_gradient(theta, shard, out)


def test_train_warns_of_saddle():
    options = {"optimizer": SGD(0.1), "rounds": 2}
    network = Startless(NETWORK)
    with pytest.warns(UserWarning, match=r"80 of 80 elements .* theta0="):
        train_network(narrow(), model=network, **options)
    train_network(narrow(), model=network, theta0=NETWORK.initial(1), **options)
    sparse = narrow()
    sparse.X_train[:, 1:] = 0  # most of the gradient is zero for any theta
    train_network(sparse, model=Startless(SoftmaxRegression(4, 3)), **options)


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


def test_train_own_model_needs_four_things():
    history = train_network(narrow(), model=Least(), optimizer=SGD(1.0), rounds=2)
    mean = narrow().X_train.mean(axis=0)
    np.testing.assert_allclose(history.theta, mean)
    assert history.rounds[-1].loss == pytest.approx(Least().loss(mean, narrow().X_train, None))
    assert history.rounds[-1].test_error == 0.25
    with pytest.raises(ValueError, match=r"Least does not say its learning rate: give optimizer="):
        train_network(narrow(), model=Least())
    with pytest.raises(ValueError, match=r"LagrangeCode decodes only gradients .* not Least"):
        fastgc.train(fastgc.LagrangeCode(5, load=2), narrow(), model=Least(), optimizer=SGD(1.0))
    for missing in ("partial_gradient", "loss", "error", "size"):
        broken = type("Broken", (), {k: v for k, v in vars(Least).items() if k != missing})()
        with pytest.raises(TypeError, match=f"model must .* {missing}, not|size of Broken .*None"):
            train_network(narrow(), model=broken, optimizer=SGD(1.0))
    One = type("One", (), {**vars(Least), "size": 1})
    assert train_network(narrow(features=1, samples=9), model=One(), optimizer=SGD(1.0), rounds=1)
    with pytest.raises(TypeError, match=r"model must .* partial_gradient, not <class"):
        train_network(narrow(), model=Least, optimizer=SGD(1.0))
    with pytest.raises(TypeError, match=r"optimizer must .* reset, not"):
        train_network(narrow(), model=Least(), optimizer=type("Adam", (), {"step": 0})())
    with pytest.raises(TypeError, match=r"data must be .*, not tuple"):
        train_network((np.zeros((6, 2)), np.zeros(6)), model=Least())


def test_measure_of_own_models():
    train = partial(train_network, narrow(), optimizer=SGD(1.0), rounds=1)
    assert train(model=type("Own", (Least,), {"measure": "MAE"})()).measure == "MAE"
    with pytest.raises(TypeError, match=r"measure of Own must .*not 7"):
        train(model=type("Own", (Least,), {"measure": 7})())


class Told(Least):
    """It asks for the partition and the round, and sends them: to each element its own."""

    def partial_gradient(self, theta, shard, out, *, partition, round):
        out[:] = round, partition, partition**2, 1


@pytest.mark.parametrize("code", [CODE, fastgc.Uncoded(3, load=2)], ids=repr)
def test_partial_gradient_is_told_partition_and_round(code):
    thetas, optimizer, tracker = [np.zeros(4)], SGD(1.0), StabilityTracker(measure_every=1)
    options = {"optimizer": optimizer, "tracker": tracker, "rounds": 4, "engine": "simulated"}
    kept = {"callback": lambda record: thetas.append(optimizer.theta.copy())}
    fastgc.train(code, narrow(), model=Told(), **options, **kept)
    sums = -67 * np.diff(thetas, axis=0)
    j = np.arange(code.k)
    expected = [[code.k * number, j.sum(), (j**2).sum(), code.k] for number in range(4)]
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-10)
    assert max(tracker.measured) < 1e-13  # the master knows the round, too


def test_train_callback_sets_the_rate():
    """For the rounds that follow; here as a checkpoint keeps it."""
    optimizer, rates = SGD(0.4), []

    def halve(record):
        rates.append(optimizer.lr)
        optimizer.lr /= 2

    history = train_network(narrow(), optimizer=optimizer, rounds=3, seed=5, callback=halve)
    assert rates == [0.4, 0.2, 0.1]
    expected = NETWORK.initial(5)
    for lr in rates:
        expected = by_hand(NETWORK, SGD(lr), narrow(), 1, expected)
    np.testing.assert_allclose(history.theta, expected, rtol=1e-9, atol=1e-11)


def test_train_evaluate_every_refused():
    with pytest.raises(ValueError, match=r"evaluate_every .*not 0"):
        train_network(narrow(), engine=no_worker, evaluate_every=0)


@pytest.mark.parametrize("every", [1, 3, 8, 100])
def test_train_evaluate_every(every):
    whole, seen = train_network(narrow(), rounds=8), []
    history = train_network(narrow(), rounds=8, evaluate_every=every, callback=seen.append)
    assert history.theta.tobytes() == whole.theta.tobytes()
    assert repr(seen) == repr(history.rounds)  # by repr, since NaN != NaN
    for record, full in zip(history.rounds, whole.rounds, strict=True):
        assert record.evaluated == (record.round % every == 0 or record.round == 8)
        assert math.isnan(record.loss) == math.isnan(record.test_error) == (not record.evaluated)
        if record.evaluated:
            assert (record.loss, record.test_error) == (full.loss, full.test_error)
    assert equal_loss([history]) == min(r.loss for r in history.rounds if r.evaluated)
    assert history.spent(math.inf).rounds == min(every, 8)


def test_train_evaluate_every_calls_the_model_no_more_often(monkeypatch):
    asked = []
    loss = Network.loss
    monkeypatch.setattr(Network, "loss", lambda *given: asked.append(1) or loss(*given))
    train_network(narrow(), rounds=9, evaluate_every=4)
    assert len(asked) == 3


@pytest.mark.parametrize("done", [0, 3, 5])
def test_train_progress(done, tmp_path, monkeypatch):
    """The bar begins where a checkpoint does, and is none if no round is left."""
    begun, shown = [], []

    @contextlib.contextmanager
    def bar(*given):
        begun.append(given)
        yield shown.append

    monkeypatch.setattr(tables, "training_bar", bar)
    given = {"engine": "simulated", "checkpoint": tmp_path / "run", "name": "mine"}
    if done:
        fastgc.train(fastgc.Uncoded(3), toy(), rounds=done, **given)
    assert begun == []
    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=5, progress=True, **given)
    assert begun == [("mine", 5, 3, done, "error")] * (done < 5)
    assert shown == history.rounds[done:]


def test_train_says_what_was_trained():
    code = fastgc.Uncoded(4, load=2)
    history = fastgc.train(code, toy(), rounds=1, engine="simulated", delays=WAITS, seed=6)
    assert (history.name, history.code, history.data) == ("Uncoded", repr(code), "toy")
    assert (history.delays, history.seed, history.measure) == (repr(WAITS), 6, "error")
    assert history.message_counts == (2, 2, 2, 2)
    [record] = history.rounds
    assert (record.round, record.evaluated, record.corrupt, record.asks) == (1, True, (), 0)
    assert fastgc.train(code, toy(), rounds=1, engine="simulated").delays == "None"


def test_train_options():
    """Keywords override options; the batch and the first round are arguments of their own."""
    code = fastgc.Uncoded(3)
    given = {"engine": "simulated", "rounds": 2}
    options = RoundOptions(delays=WAITS, seed=3)
    mine = fastgc.train(code, toy(), options=options, **given)
    assert (mine.delays, mine.seed) == (repr(WAITS), 3)
    assert [r.wait for r in mine.rounds] == [WAITS.sample(r, 3, 3).max() for r in range(2)]
    assert fastgc.train(code, toy(), options=options, seed=4, **given).seed == 4
    for wrong in (RoundOptions(first_round=1), RoundOptions(batch=lambda *given: given)):
        with pytest.raises(ValueError, match="must not set batch and first_round"):
            fastgc.train(code, toy(), options=wrong, **given)


def test_train_records_who_stood_in():
    code = fastgc.Reactive(6, holders=2)
    engine = partial(SimulatedCluster, cost=1e-3)
    late = delays.Pareto(1e-3, 0.9)
    history = fastgc.train(code, toy(), rounds=9, delays=late, engine=engine)
    assert [r.asks for r in history.rounds] == [1, 2, 0, 0, 0, 0, 0, 0, 1]
    assert [len(r.stood_in) for r in history.rounds] == [1, 1, 0, 0, 0, 0, 0, 0, 1]
