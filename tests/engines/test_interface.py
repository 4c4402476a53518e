"""Options of rounds: one object, checked once, for every engine, training and commands."""

import inspect
import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

import fastgc
from fastgc.delays import Exponential, Pareto
from fastgc.engines import LocalCluster, RoundOptions, SimulatedCluster, interface
from fastgc.engines.master import Master
from fastgc.stability import StabilityTracker
from fastgc.testing.engines import Delays
from fastgc.training.train import TrainingKeywords

NAMES = [each.name for each in fields(RoundOptions)]
# A value of each option that is not the default.
OTHER = {
    "delays": Pareto(1e-4, 2.5),
    "seed": 3,
    "timeout": 5.0,
    "start_timeout": 6.0,
    "message_dtype": "float32",
    "tracker": StabilityTracker(),
    "batch": max,
    "first_round": 2,
    "survivors": list,
    "patience": 0.5,
    "partial": "best",
    "verify": True,
    "limit": 1e-3,
}


def cluster(kind=SimulatedCluster, **given):
    return kind(fastgc.Uncoded(3), [1.0, 2.0, 3.0], np.multiply, 2, **given)


def toy():
    X = np.random.default_rng(0).standard_normal((24, 3))
    return fastgc.data.Dataset("toy", X, np.arange(24) % 2, X[:8], np.arange(8) % 2)


def test_every_option_is_named_checked_and_explained_once():
    assert list(OTHER) == NAMES
    assert set(interface.RoundKeywords.__annotations__) == set(NAMES)
    shared = set(interface.SharedKeywords.__annotations__) | {"survivors"}
    assert set(TrainingKeywords.__annotations__) == shared
    text = inspect.getdoc(RoundOptions)
    for name in NAMES:
        assert text.count(f"\n{name} : ") == 1
    for kind in (Master, SimulatedCluster, fastgc.train):
        assert not set(inspect.signature(kind).parameters) & (set(NAMES) - {"batch"})


def test_options_are_frozen_and_compared():
    assert RoundOptions() == RoundOptions()
    assert RoundOptions(**OTHER) == RoundOptions(**OTHER) != RoundOptions()
    with pytest.raises(FrozenInstanceError):
        RoundOptions().timeout = 3.0
    assert eval(repr(RoundOptions(timeout=3)), {"RoundOptions": RoundOptions}) == RoundOptions(
        timeout=3.0
    )
    assert pickle.loads(pickle.dumps(RoundOptions(timeout=3))) == RoundOptions(timeout=3)


def test_numbers_are_made_plain():
    made = RoundOptions(
        seed=np.int64(3), timeout=np.float32(2), patience=1, first_round=np.int8(1), verify=np.True_
    )
    assert made == RoundOptions(seed=3, timeout=2.0, patience=1.0, first_round=1, verify=True)
    kinds = {"seed": int, "timeout": float, "patience": float, "first_round": int, "verify": bool}
    assert {name: type(getattr(made, name)) for name in kinds} == kinds
    endless = RoundOptions(timeout=math.inf, patience=math.inf)
    assert endless.patience == math.inf


@pytest.mark.parametrize("name", NAMES)
def test_what_is_given_is_what_is_not_as_by_default(name):
    assert RoundOptions().given() == {}
    value = OTHER[name]
    given = {name: value}
    assert RoundOptions(**given).given() == given
    default = getattr(RoundOptions(), name)
    assert RoundOptions(**{name: default}).given() == {}
    assert RoundOptions(**OTHER).given() == OTHER


def test_objects_that_compare_in_their_own_way_may_be_given():
    class Odd:
        """Raise like an array of several elements."""

        def __eq__(self, other):
            return np.array([True, False])

        __hash__ = None

        def __call__(self, *_):
            return [0]

        def sample(self, round, workers, seed):
            return np.zeros(workers)

    odd = Odd()
    given = RoundOptions(survivors=odd, batch=odd, delays=odd).given()
    assert all(value is odd for value in given.values())
    assert list(given) == ["delays", "batch", "survivors"]


WRONG = [
    ({"delays": 0.1}, TypeError, "delays must"),
    ({"seed": -1}, ValueError, "seed must be"),
    ({"seed": 0.5}, TypeError, "seed must be"),
    ({"timeout": 0}, ValueError, "timeout must be positive"),
    ({"timeout": math.nan}, ValueError, "timeout must be positive"),
    ({"timeout": "5"}, TypeError, "timeout must"),
    ({"start_timeout": 0.0}, ValueError, "start_timeout must be positive"),
    ({"start_timeout": None}, TypeError, "start_timeout must"),
    ({"message_dtype": "int8"}, TypeError, "bfloat16, not int8"),
    ({"tracker": StabilityTracker}, TypeError, "tracker must"),
    ({"tracker": 3}, TypeError, "tracker must"),
    ({"batch": 3}, TypeError, "batch must.*int"),
    ({"first_round": -1}, ValueError, "first_round must be"),
    ({"survivors": [1, 2]}, TypeError, "survivors must.*list"),
    ({"patience": -1}, ValueError, "patience must.*negative"),
    ({"patience": None}, TypeError, "patience must"),
    (
        {"partial": "most"},
        ValueError,
        'partial must be "raise", "best" or "unbiased", not \'most\'',
    ),
    ({"verify": "yes"}, TypeError, "verify must.*'yes'"),
    ({"verify": 17}, ValueError, "verify must.*17"),
    ({"verify": -1}, ValueError, "verify must"),
    ({"limit": -1.0}, ValueError, "limit must"),
    ({"limit": "small"}, TypeError, "limit must"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_wrong_options_are_refused_wherever_they_are_given(given, error, message, monkeypatch):
    monkeypatch.setattr(LocalCluster, "_open", None)  # it would start processes
    with pytest.raises(error, match=message):
        RoundOptions(**given)
    for kind in (LocalCluster, SimulatedCluster):
        with pytest.raises(error, match=message):
            cluster(kind, **given)
    [name] = given
    if name not in ("batch", "first_round", "survivors"):
        with pytest.raises(error, match=message):
            fastgc.train(fastgc.Uncoded(3), toy(), **given)


def test_keywords_stand_in_the_place_of_options():
    given = RoundOptions(timeout=5.0, verify=False, patience=3.0)
    assert RoundOptions.of(given, {"patience": 1.0}, "x") == replace(given, patience=1.0)
    assert RoundOptions.of(given, {}, "x") == given
    assert RoundOptions.of(None, {}, "x") == RoundOptions()
    assert given.patience == 3.0


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda **given: cluster(**given), "SimulatedCluster"),
        (lambda **given: cluster(LocalCluster, **given), "LocalCluster"),
        (lambda **given: fastgc.train(fastgc.Uncoded(3), toy(), **given), "train"),
    ],
)
def test_wrong_names_are_told_the_right_ones(use, what):
    with pytest.raises(TypeError, match=f"^{what} has no option 'timout'; did you mean 'timeout'"):
        use(timout=3.0)
    with pytest.raises(TypeError, match=rf"^{what} has no option 'zzz'; it takes .*seed.*verify"):
        use(zzz=3.0)
    for wrong in ({"timeout": 3.0}, "timeout", 3, RoundOptions):
        with pytest.raises(TypeError, match=r"options must be fastgc\.engines\.RoundOptions, not"):
            use(options=wrong)


def test_training_names_its_own_arguments_too():
    with pytest.raises(TypeError, match="no option 'round'; did you mean 'rounds'"):
        fastgc.train(fastgc.Uncoded(3), toy(), round=3)


def test_training_takes_options_and_keywords():
    given = []

    def engine(*arguments, **keywords):
        given.append(keywords)
        return SimulatedCluster(*arguments, **keywords)

    late = Pareto(1e-4, 2.5)
    plain = RoundOptions(delays=late, seed=3, timeout=5.0)
    code = fastgc.ReedSolomon(3, stragglers=1)
    one = fastgc.train(code, toy(), rounds=2, engine=engine, options=plain, timeout=6.0)
    two = fastgc.train(code, toy(), rounds=2, engine=engine, delays=late, seed=3, timeout=6.0)
    assert one.rounds == two.rounds
    assert (one.delays, one.seed) == (repr(late), 3)
    first, second = given
    assert first == second
    assert first == {"dtype": np.float64, "delays": late, "seed": 3, "timeout": 6.0}


@pytest.mark.parametrize("name", ["batch", "first_round"])
def test_training_draws_batches_and_counts_rounds_itself(name):
    with pytest.raises(ValueError, match="must not set batch and first_round"):
        fastgc.train(
            fastgc.Uncoded(3), toy(), options=RoundOptions(**{name: OTHER[name]}), rounds=2
        )


def test_sample_delays_counts_computations():
    code = fastgc.BinaryCode(4, 9, stragglers=1)
    assert len(set(code.scheme.loads.tolist())) > 1
    once = Exponential(0.001).sample(5, 4, seed=7)
    assert interface.sample_delays(Exponential(0.001), code.scheme.loads, 5, 7) == once.tolist()
    each = Exponential(0.001, per="computation")
    np.testing.assert_allclose(
        interface.sample_delays(each, code.scheme.loads, 5, 7), once * code.scheme.loads
    )
    # An object that only has `sample` is still a delay model.
    assert interface.sample_delays(Delays([1.0] * 4), code.scheme.loads, 0, 7) == [1.0] * 4
    assert interface.sample_delays(None, code.scheme.loads, 0, 7) == [0.0] * 4


# ------------------------------------------------------------------------------ tasks and events


def task(code, shards, **options):
    float64 = np.dtype(np.float64)
    given = {"batch": None, "size": 3, "dtype": float64, "message_size": 3}
    given |= {"message_dtype": float64, "spread": False, "parameters": 3}
    return interface.Task(code, shards, np.multiply, **(given | options))


def test_task_data_are_a_workers_own_and_what_it_may_be_asked_for():
    code, shards = fastgc.Reactive(3, 4, holders=2), ["a", "b", "c", "d"]
    own = [[[(0, "a"), (1, "b")]], [[(2, "c")]], [[(3, "d")]]]
    plain, asks = task(code, shards), task(code, shards, asks=True)
    assert [plain.data(worker) for worker in range(3)] == own
    assert [asks.data(worker) for worker in range(3)] == [
        own[worker] + own[worker - 1] for worker in range(3)
    ]
    each = task(fastgc.Uncoded(2, 4, load=2), shards)
    assert each.data(1) == [[(2, "c")], [(3, "d")]]
    assert each.without_data() == replace(each, shards=())


def test_task_part_is_drawn_by_batch():
    assert task(fastgc.Uncoded(2), "ab").part(1, "b", 7) == "b"
    drawn = task(fastgc.Uncoded(2), "ab", batch=lambda *given: given)
    assert drawn.part(1, "b", 7) == ("b", 1, 7)


def test_buffers_are_taken_again_once_no_worker_is_at_their_round():
    buffers = interface.Buffers()
    assert [buffers.take(number, set()) for number in range(3)] == [0, 0, 0]
    assert buffers.take(3, {2}) == 1
    assert buffers.take(4, {2, 3}) == 2
    assert buffers.take(5, {3, 4}) == 0
    assert buffers == {3: 1, 4: 2, 5: 0}


def test_parameters_of_a_gradient_are_as_many_as_it_says():
    class Gradient:
        parameters = 7

    assert interface.parameters_of(np.multiply, 3) == 3
    assert interface.parameters_of(Gradient(), 3) == 7
