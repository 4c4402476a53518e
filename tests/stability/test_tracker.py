"""Precision tracked round by round: in rounds, decoders, training and on the local engine."""

import json
import math

import numpy as np
import pytest

import fastgc
from fastgc import (
    BinaryCode,
    InstabilityWarning,
    LagrangeCode,
    ReedSolomon,
    UnstableRoundError,
    stability,
)
from fastgc.delays import Pareto
from fastgc.stability import StabilityTracker
from fastgc.training.models import LeastSquares

unstable = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")


def messages_of(code, p=5, seed=0):
    partials = np.random.default_rng(seed).standard_normal((code.k, p))
    return partials, [code.encode(i, partials[code.partitions(i)]) for i in range(code.n)]


def papers_code(n=64, s=16):
    with pytest.warns(InstabilityWarning):
        return ReedSolomon(n, stragglers=s, root=1)


def test_rounds_are_taken_down():
    code = ReedSolomon(11, stragglers=2)
    partials, messages = messages_of(code)
    tracker = StabilityTracker(measure_every=2)
    received = code.round(5, tracker=tracker)
    rng = np.random.default_rng(1)
    sets = []
    for _ in range(5):
        received.reset()
        for worker in rng.permutation(11).tolist():
            if received.receive(worker, messages[worker]):
                break
        gradient = received.gradient()
        np.testing.assert_allclose(gradient, partials.sum(axis=0), rtol=1e-12)
        trusted = received.trust().relative_error
        assert tracker.predicted[-1] == pytest.approx(trusted)
        sets.append(received.survivors)
        assert tracker.due == (len(sets) % 2 == 1)
        if tracker.due:
            found = tracker.measure(gradient, partials)
            assert found == tracker.measured[-1] < 1e-14
    assert len(tracker.rounds) == 5
    np.testing.assert_array_equal(tracker.round, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(tracker.messages, 9)
    np.testing.assert_array_equal(np.isnan(tracker.measured), [False, True, False, True, False])
    for t, F in enumerate(sets):
        assert tracker.amplification[t] == pytest.approx(stability.amplification(code, F))
        assert tracker.bound[t] == stability.error_bound(code, F, streaming=True)
        deviation = code.scheme.precision.deviation(F, code.decoding_vector(F))
        assert tracker.residual[t] == float(np.abs(deviation).max())
    assert tracker.worst == tracker.predicted.max()


def test_decode_is_taken_down():
    code = BinaryCode(9, stragglers=2)
    partials, messages = messages_of(code)
    tracker = StabilityTracker()
    out = np.empty(5)
    code.decode(range(2, 9), messages[2:], out, tracker=tracker)
    np.testing.assert_allclose(out, partials.sum(axis=0), rtol=1e-13)
    assert tracker.amplification.tolist() == [9.0]
    assert tracker.predicted[0] == code.trust(range(2, 9)).relative_error
    code.decode([0, 3], [messages[0], messages[3]], partial="best", tracker=tracker)
    assert tracker.predicted[1] == code.best_vector([0, 3])[1] > 0.1


@pytest.mark.parametrize("through", ["round", "decode"])
def test_bad_rounds_warn_or_raise_before_anything_is_written(through):
    code = papers_code()
    _, messages = messages_of(code)
    F = np.random.default_rng(0).permutation(64)[16:].tolist()
    out = np.full(5, 7.0)

    heard = [messages[i] for i in F]

    def decode(tracker):
        if through == "decode":
            return code.decode(F, heard, out, tracker=tracker)
        received = code.round(5, tracker=tracker)
        for i, message in zip(F, heard, strict=True):
            received.receive(i, message)
        return received.gradient(out)

    stern = StabilityTracker(limit=1e-10, action="raise")
    with pytest.raises(UnstableRoundError, match=r"round 1: the gradient decoded from 48 messages"):
        decode(stern)
    assert (out == 7).all()
    assert len(stern.rounds) == 1
    mild = StabilityTracker(limit=1e-10)
    with pytest.warns(InstabilityWarning, match="beyond the limit 1e-10"):
        assert decode(mild) is out
    assert (out != 7).all()
    decode(StabilityTracker(limit=1.0, action="raise"))
    decode(StabilityTracker())


def test_bad_methods_are_noticed():
    """A prediction is for a right vector; the tracker also knows what a bad one leaves out."""
    code = ReedSolomon(128, stragglers=16)
    _, messages = messages_of(code)
    F = list(range(8, 120))
    tracker = StabilityTracker(limit=1e-8, action="raise")
    received = code.round(5, tracker=tracker)
    for i in F:
        received.receive(i, messages[i])
    with pytest.raises(UnstableRoundError):
        received.gradient(method="natural")
    heard = [messages[i] for i in F]
    with pytest.raises(UnstableRoundError):
        code.decode(F, heard, method="natural", tracker=tracker)
    assert (tracker.predicted > 1).all()


def test_approximations_of_sets_that_span_by_chance():
    code = ReedSolomon(6, k=2, stragglers=2)  # decodes without a promise, as supports tile
    _, messages = messages_of(code)
    tracker = StabilityTracker()
    both = [messages[0], messages[3]]
    found = code.decode([0, 3], both, partial="best", tracker=tracker)
    np.testing.assert_array_equal(found[0], code.decode([0, 3], both, partial="best")[0])
    assert tracker.predicted[0] < 1e-14


def test_waiting_for_more_messages():
    """Each further message improves precision; with all, every coefficient is 1/n."""
    code = ReedSolomon(128, stragglers=64)
    _, messages = messages_of(code)
    order = np.random.default_rng(5).permutation(128).tolist()
    counts = []
    for limit in (1.0, 1e-14, 2e-15, 1e-18):
        tracker = StabilityTracker(limit=limit, action="wait")
        received = code.round(5, tracker=tracker)
        for heard, worker in enumerate(order, 1):
            ready = received.receive(worker, messages[worker])
            assert received.decodable == (heard >= 64)
            assert received.ready == ready
            if ready:
                break
            if received.decodable:
                assert received.trust().relative_error > limit
        counts.append(heard)
        if heard < 128:
            assert received.trust().relative_error <= limit
            received.gradient()
        else:
            with pytest.warns(InstabilityWarning):
                received.gradient()
        received.reset()
        assert not received.decodable
    assert counts[0] == 64
    assert counts == sorted(counts)
    assert 64 < counts[1] < counts[2] < counts[3] == 128


@unstable
def test_waiting_past_vectors_beyond_float64():
    code = ReedSolomon(1000, stragglers=800, root=1)
    tracker = StabilityTracker(limit=1e-3, action="wait")
    assert not tracker.enough(lambda: code.trust(np.arange(200)).relative_error)


def test_arguments_are_checked():
    for name, value in [("limit", 0), ("limit", -1), ("limit", np.nan), ("measure_every", -1)]:
        with pytest.raises(ValueError, match=f"{name} must be .*{value}"):
            StabilityTracker(**{name: value})
    with pytest.raises(ValueError, match='action must be "warn", "raise" or "wait", not'):
        StabilityTracker(action="ignore")
    tracker = StabilityTracker()
    with pytest.raises(ValueError, match="no round has been decoded yet"):
        tracker.measure(np.ones(3), np.ones((1, 3)))
    with pytest.raises(AttributeError, match="no attribute 'bonds'"):
        _ = tracker.bonds
    assert tracker.worst == 0
    assert tracker.bound.size == 0
    assert not tracker.due


@unstable
def test_json_lines(tmp_path):
    code = ReedSolomon(600, stragglers=400, root=1)
    tracker = StabilityTracker()
    form = code.scheme.format(1, float)
    tracker.record(code.scheme, np.arange(200), code.decoding_vector(np.arange(200)), form, 1e200)
    tracker.record(code.scheme, np.arange(600), np.full(600, 1 / 600), form, math.inf)
    tracker.measure(np.ones(2), np.ones((1, 2)))
    path = tmp_path / "rounds.jsonl"
    stability.write_jsonl({"a": tracker, "b": tracker}, path)
    first, second, *others = map(json.loads, path.read_text().splitlines())
    assert list(first) == ["run", *stability.TrackedRound._fields]
    assert first["predicted"] == 1e200
    assert first["measured"] is None
    assert second["predicted"] is None
    assert second["measured"] == 0
    assert first["run"] == second["run"] == "a"
    assert others == [{**first, "run": "b"}, {**second, "run": "b"}]


def test_training_is_tracked():
    tracker = StabilityTracker(measure_every=3)
    history = fastgc.train(
        ReedSolomon(6, 8, stragglers=2), rounds=7, delays=Pareto(0.001, 1.1), tracker=tracker
    )
    assert [record.rounding for record in history.rounds] == tracker.predicted.tolist()
    np.testing.assert_array_equal(np.flatnonzero(tracker.measured >= 0), [0, 3, 6])
    assert np.nanmax(tracker.measured) < 1e-13
    assert (tracker.amplification >= 8 - 1e-12).all()
    untracked = fastgc.train(BinaryCode(3, stragglers=1), rounds=1)
    assert math.isnan(untracked.rounds[0].rounding)


def test_training_measures_codes_of_the_data():
    tracker = StabilityTracker(measure_every=1)
    fastgc.train(LagrangeCode(5, load=2), rounds=2, tracker=tracker, model=LeastSquares(64, 10))
    assert 0 < tracker.measured.max() < 1e-10


def test_a_vector_that_lacks_much_is_not_trusted():
    """The prediction does not matter, as it assumes the best vector."""
    code, tracker = fastgc.BinaryCode(4, stragglers=1), StabilityTracker(limit=1e-3)
    survivors = np.array([0, 2])
    vector = 0.5 * code.decoding_vector(survivors)
    with pytest.warns(fastgc.InstabilityWarning, match="error of about 5e-01, beyond the limit"):
        tracker.record(code.scheme, survivors, vector, code.scheme.format(1, float), 1e-9)
    assert tracker.predicted.tolist() == [0.5]
    tracker, form = StabilityTracker(), code.scheme.format(1, float)
    for predicted in 0.05, 0.0499:  # up to ten times the prediction, it is believed
        tracker.record(code.scheme, survivors, vector, form, predicted)
    assert tracker.predicted.tolist() == [0.05, 0.5]


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (math.nan, ValueError), ("1e-6", TypeError)]
)
def test_a_limit_is_a_positive_number(limit, error):
    with pytest.raises(error, match="limit must be"):
        StabilityTracker(limit)


def test_the_limit_itself_is_not_beyond_it():
    code, limit = fastgc.BinaryCode(4, stragglers=1), 1e-6
    tracker = StabilityTracker(limit=limit, action="raise")
    survivors, form = np.array([0, 2]), code.scheme.format(1, float)
    tracker.record(code.scheme, survivors, code.decoding_vector(survivors), form, limit)
    with pytest.raises(UnstableRoundError):
        tracker.record(code.scheme, survivors, code.decoding_vector(survivors), form, 2 * limit)
    waiting = StabilityTracker(limit=limit, action="wait")
    assert waiting.enough(lambda: limit)
    assert not waiting.enough(lambda: 2 * limit)
