"""Streams keep decoding vectors current, and rounds follow theirs."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_table import decoding_truth

import fastgc
from fastgc import Grouped, NotDecodableError, ReedSolomon, kernels
from fastgc.codes import reed_solomon
from fastgc.kernels import fourier
from fastgc.stability import StabilityTracker

CODES = [
    ReedSolomon(1, load=1),
    ReedSolomon(2, stragglers=1),
    ReedSolomon(7, 9, stragglers=2),
    ReedSolomon(40, stragglers=9, clusters=4),
    ReedSolomon(23, stragglers=4, clusters="auto"),  # blocks of different sizes
    ReedSolomon(130, stragglers=20),
]
EVERY_CODE = pytest.mark.parametrize("code", CODES, ids=repr)


def exact(code, survivors):
    """Return the products by definition, in extended precision."""
    blocks = [(c.m, c.q, 0) for c in code.scheme._clusters]
    return decoding_truth(blocks, survivors)


def error(code, survivors, vector):
    truth = exact(code, survivors)
    return float((np.abs(vector - truth) / np.abs(truth)).max())


def move(stream, worker):
    """Let a worker join if it is away, and leave if it is there."""
    (stream.arrive if stream._state.away[worker] else stream.depart)(worker)


# ------------------------------------------------------------------------------------- streams


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "code",
    [ReedSolomon(6, stragglers=3), ReedSolomon(8, stragglers=2, clusters=2, root=1)],
    ids=repr,
)
def test_every_set(code):
    """Visit all subsets in Gray's order, each one event from the last."""
    stream, there = code.stream(), set()
    with mpmath.workdps(30):
        for step in range(1, 2**code.n):
            worker = (step & -step).bit_length() - 1
            move(stream, worker)
            there ^= {worker}
            assert stream.members.tolist() == sorted(there)
            assert stream.decodable == code.decodable(sorted(there))
            if not stream.decodable:
                missing = code.scheme.rule.missing(stream.members)
                with pytest.raises(NotDecodableError) as caught:
                    stream.vector()
                assert caught.value.missing == missing
                continue
            vector = stream.vector()
            for i, entry in zip(stream.members.tolist(), vector.tolist(), strict=True):
                c = next(
                    c for c in code.scheme._clusters if c.first_worker <= i < c.first_worker + c.m
                )
                away = set(range(c.first_worker, c.first_worker + c.m)) - there
                product = mpmath.fprod(
                    1 - mpmath.expjpi(mpmath.mpf(2 * c.q * (i - j)) / c.m) for j in away
                )
                # A factor's rounding error for each of 64 events, and for each worker away.
                assert abs(entry - product / c.m) <= 200 * 2.0**-53 * abs(product / c.m)


@pytest.mark.every_backend
@EVERY_CODE
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_sequence(code, data):
    workers = st.integers(0, code.n - 1)
    first = data.draw(st.sets(workers))
    stream = code.stream(np.array(sorted(first), dtype=np.int64))
    there = set(first)
    for worker in data.draw(st.lists(workers, max_size=100)):
        move(stream, worker)
        there ^= {worker}
    while not stream.decodable:
        worker = min(set(range(code.n)) - there)
        stream.arrive(worker)
        there.add(worker)
    assert stream.members.tolist() == sorted(there)
    survivors = np.array(data.draw(st.permutations(sorted(there))))
    vector = stream.vector(survivors)
    assert error(code, survivors, vector) < 1e-13
    direct = code.decoding_vector(survivors, "locator")
    np.testing.assert_allclose(vector, direct, rtol=1e-13, atol=0)
    np.testing.assert_array_equal(stream.vector(), vector[np.argsort(survivors)])


def test_many_events_do_not_add_up():
    code, rng = ReedSolomon(200, stragglers=25), np.random.default_rng(0)
    stream = code.stream(range(200))
    away = np.zeros(200, bool)
    for event in range(1, 100_001):
        worker = int(rng.integers(200))
        if event % 2 == 0:  # one worker moves all the time: its factors' errors do not cancel
            worker = 7
        if not away[worker] and np.count_nonzero(away) == 25:
            worker = int(np.flatnonzero(away)[event % 25])
        move(stream, worker)
        away[worker] ^= True
        if event % 5_000 == 0:
            assert error(code, np.flatnonzero(~away), stream.vector()) < 1e-12
    direct = code.decoding_vector(np.flatnonzero(~away), "locator")
    np.testing.assert_allclose(stream.vector(), direct, rtol=1e-12, atol=0)


@pytest.mark.every_backend
def test_products_out_of_range_on_the_way():
    """Half of the circle leaves, and every other worker of it comes back."""
    with pytest.warns(fastgc.InstabilityWarning):
        code = ReedSolomon(3000, stragglers=900, root=1)
    stream = code.stream(range(3000))
    for worker in range(1500):
        stream.depart(worker)
    sizes = stream._state.exponent[:3000] + np.log2(np.abs(stream._state.product[:3000]))
    assert sizes.max() > 1024  # exceeds doubles
    assert sizes.min() < -1074
    for worker in range(0, 1500, 2):
        stream.arrive(worker)
    vector = np.empty(2250, dtype=np.complex128)  # `stream.vector` is shorter than this
    assert stream._calls.vector(stream.members, vector) == kernels.Status.OK
    assert error(code, stream.members, vector) < 1e-12


@pytest.mark.every_backend
def test_an_entry_beyond_float64():
    with pytest.warns(fastgc.InstabilityWarning):
        code = ReedSolomon(3000, stragglers=1400, root=1)
    stream = code.stream(range(1400, 3000))
    vector = np.empty(1600, dtype=np.complex128)
    assert stream._calls.vector(stream.members, vector) == kernels.Status.OVERFLOW
    with pytest.raises(OverflowError, match=r"the coefficient of worker \d+ is beyond float64"):
        code.decoding_vector(stream.members, "locator")


@EVERY_CODE
@pytest.mark.any_backend
def test_the_transform_computes_the_same_products(code):
    rng, tables = np.random.default_rng(2), code.scheme._plan.tables
    for share in (0.0, 0.3, 0.7, 1.0):
        away = rng.random(code.n) < share
        streams = [kernels.unchecked.cyclic_stream(tables) for _ in range(2)]
        for stream in streams:
            stream.away[:] = away
        kernels.unchecked.bind_stream(code.scheme._plan, streams[0]).rebuild()
        kernels.unchecked.fourier_rebuild(code.scheme._plan, streams[1])
        product, other = (np.ldexp(s.product[: code.n], s.exponent[: code.n]) for s in streams)
        np.testing.assert_allclose(other, product, rtol=1e-13)
        np.testing.assert_array_equal(streams[0].lost, streams[1].lost)
        np.testing.assert_array_equal(streams[0].lost_sum, streams[1].lost_sum)


def test_many_factors_are_rebuilt_by_the_transform(monkeypatch):
    done, by_transform = [], kernels.unchecked.fourier_rebuild

    def rebuild(plan, state):
        done.append(int(np.count_nonzero(state.away)))
        by_transform(plan, state)

    monkeypatch.setattr(kernels.unchecked, "fourier_rebuild", rebuild)
    monkeypatch.setattr(fourier, "crossover", lambda m: 11)
    code = CODES[-1]
    stream = code.stream(range(10, 130))
    for away in (11, 119, 120):
        stream.reset(range(away, 130))
    assert done == [11, 119]
    stream.reset(range(11, 130))
    for worker in (3, 80, 5):
        move(stream, worker)
    assert error(code, stream.members, stream.vector()) < 1e-12


def test_reset_and_out():
    code = ReedSolomon(8, stragglers=3)
    stream = code.stream()
    assert stream.members.size == 0
    with pytest.raises(NotDecodableError, match="at least 5 more"):
        stream.vector()
    stream.reset([7, 1, 2, 3, 4])
    assert stream.members.tolist() == [1, 2, 3, 4, 7]
    out = np.zeros(5, complex)
    assert stream.vector(out=out) is out
    np.testing.assert_allclose(out, code.decoding_vector([1, 2, 3, 4, 7]), rtol=1e-14)
    stream.reset()
    assert stream.members.size == 0


def test_streams_refuse():
    code = ReedSolomon(6, stragglers=2)
    stream = code.stream([0, 1, 2, 3])
    out = np.full(4, 7j)
    for call, says in [
        (lambda: stream.arrive(2), "worker 2 is there already"),
        (lambda: stream.depart(5), "worker 5 is not there"),
        (lambda: stream.arrive(6), "worker 6 does not exist: they are numbered 0 to 5"),
        (lambda: stream.depart(-1), "worker -1 does not exist"),
        (lambda: stream.reset([0, 6]), r"members\[1\] is 6, but workers are numbered 0 to 5"),
        (lambda: stream.reset([0, 1, 0]), r"members\[2\] names worker 0 a second time"),
        (lambda: code.stream([[0]]), "members must be one-dimensional"),
        (lambda: stream.vector([0, 1, 2], out[:3]), "must name all members: worker 3 is missing"),
        (lambda: stream.vector([0, 1, 2, 4], out), "survivors name worker 4, who is not there"),
        (lambda: stream.vector([0, 1, 1, 2], out), r"survivors\[2\] names worker 1 a second time"),
        (lambda: stream.vector(out=out[:3]), r"out must have shape \(4,\)"),
    ]:
        with pytest.raises(ValueError, match=says):
            call()
        assert stream.members.tolist() == [0, 1, 2, 3]
        assert (out == 7j).all()
    for call, says in [
        (lambda: stream.arrive("x"), "worker must be an integer"),
        (lambda: stream.reset([0.5]), "members must be integers"),
        (lambda: stream.vector(out=np.zeros(4)), "out must have dtype complex128"),
    ]:
        with pytest.raises(TypeError, match=says):
            call()
    np.testing.assert_allclose(stream.vector(), code.decoding_vector([0, 1, 2, 3]), rtol=1e-14)


@pytest.mark.every_backend
def test_a_stream_keeps_its_backend(backend):
    code = CODES[-1]
    stream = code.stream(range(125))
    with fastgc.use_backend("numpy"):
        stream.depart(3)
        vector = stream.vector()
    assert error(code, stream.members, vector) < 1e-13


# -------------------------------------------------------------------------------------- rounds


@pytest.fixture
def every_size(monkeypatch):
    """Have rounds of small codes follow their vector, too."""
    monkeypatch.setattr(reed_solomon, "worth_following", lambda scheme: scheme.clusters == 1)


def messages_of(code, p=3):
    return np.random.default_rng(code.n).standard_normal((code.n, p + p % 2))


def steps_taken(rnd):
    """Count what a round's follower does from now on."""
    done = {"rebuild": 0, "join": 0, "leave": 0}

    def counting(name, call):
        def counted(*arguments):
            done[name] += 1
            return call(*arguments)

        return counted

    follower = rnd._follower
    follower._calls = follower._calls._replace(
        **{name: counting(name, getattr(follower._calls, name)) for name in done}
    )
    return done


def check(rnd, messages):
    survivors = rnd.survivors
    direct = rnd.code.decode(survivors, messages[survivors], p=4)
    spread = np.abs(rnd.code.decoding_vector(survivors)) @ np.abs(messages[survivors])
    assert np.abs(rnd.gradient() - direct).max() <= 1e-13 * spread.max()
    return direct


FOLLOWED = [ReedSolomon(40, stragglers=16), ReedSolomon(40, 30, stragglers=3), CODES[1], CODES[0]]


@pytest.mark.every_backend
@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("code", FOLLOWED, ids=repr)
def test_rounds_follow(code):
    """A round computes products once, makes a step for each late arrival, and has the vector."""
    messages, rng = messages_of(code), np.random.default_rng(3)
    rnd = code.round(4)
    done = steps_taken(rnd)
    few = rnd._follower._steps
    for _ in range(3):
        done.update(dict.fromkeys(done, 0))
        for worker in rng.permutation(code.n)[: code.threshold].tolist():
            assert not rnd.decodable
            rnd.receive(worker, messages[worker])
        built_at = max(code.threshold - few, 1)
        assert done == {"rebuild": 1, "join": code.threshold - built_at, "leave": 0}
        assert rnd._follower.vector(code.threshold) is not None
        check(rnd, messages)
        for method in ("locator", "lookup"):
            np.testing.assert_allclose(
                rnd.gradient(method=method), rnd.gradient(), rtol=1e-9, atol=1e-9
            )
        rnd.reset()


@pytest.mark.usefixtures("every_size")
def test_declared_stragglers_leave_nothing_to_do():
    code = FOLLOWED[0]
    messages, rng = messages_of(code), np.random.default_rng(4)
    rnd = code.round(4)
    done = steps_taken(rnd)
    order = rng.permutation(code.n).tolist()
    stragglers, others = order[: code.stragglers], order[code.stragglers :]
    for worker in stragglers[:-1]:
        rnd.straggles(worker)
        rnd.straggles(worker)  # a repetition changes nothing
    for worker in others[:5]:
        rnd.receive(worker, messages[worker])
    rnd.straggles(others[0])  # its message has come
    assert done["rebuild"] == 0
    rnd.straggles(stragglers[-1])
    assert done["rebuild"] == 1
    for worker in others[5:]:
        rnd.receive(worker, messages[worker])
    assert done == {"rebuild": 1, "join": 0, "leave": 0}
    assert rnd.ready
    assert rnd._follower.vector(code.threshold) is not None
    check(rnd, messages)


@pytest.mark.usefixtures("every_size")
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_round(data):
    """Stragglers are declared in any order, rightly or not; more messages come; rounds reset."""
    code = data.draw(st.sampled_from(FOLLOWED))
    messages = messages_of(code)
    workers = st.integers(0, code.n - 1)
    rnd = code.round(4)
    for _ in range(2):
        order = data.draw(st.permutations(range(code.n)))
        length = data.draw(st.integers(0, code.n))
        declared = data.draw(st.lists(st.tuples(st.integers(0, code.n), workers), max_size=25))
        for at, worker in enumerate(order[:length]):
            for when, straggler in declared:
                if when == at:
                    rnd.straggles(straggler)
            ready = rnd.receive(worker, messages[worker])
            assert ready == (at + 1 >= code.threshold)
            if ready:
                check(rnd, messages)
        if length < code.threshold:
            with pytest.raises(NotDecodableError):
                rnd.gradient()
        rnd.reset()


@pytest.mark.usefixtures("every_size")
def test_a_declared_straggler_that_comes_is_taken():
    code = FOLLOWED[0]
    messages = messages_of(code)
    for late in (0, code.threshold // 2, code.threshold - 1):
        rnd = code.round(4)
        for worker in range(code.stragglers):
            rnd.straggles(worker)
        order = [*range(code.stragglers, code.n)]
        order.insert(late, 3)
        for worker in order[: code.threshold]:
            rnd.receive(worker, messages[worker])
        assert rnd.survivors.tolist() == order[: code.threshold]
        check(rnd, messages)


@pytest.mark.usefixtures("every_size")
def test_spare_messages_are_chosen_from_as_ever():
    """ "auto" leaves out messages if using all would amplify errors: some entries are 0."""
    code = ReedSolomon(60, stragglers=24)
    messages = messages_of(code)
    rnd = code.round(4, tracker=StabilityTracker())
    for worker in range(code.threshold + 3):
        rnd.receive(worker, messages[worker])
    vector = code.decoding_vector(rnd.survivors)
    assert (vector == 0).sum() == 3
    np.testing.assert_allclose(rnd._vector(), vector, rtol=1e-12, atol=0)
    assert np.isfinite(rnd.trust().relative_error)


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_sizes_that_pay():
    def follows(code, **how):
        return code.round(4, **how)._follower is not None

    assert not follows(ReedSolomon(80, stragglers=12))
    large = ReedSolomon(1024, stragglers=256)
    assert follows(large)
    assert not follows(ReedSolomon(1024, stragglers=254))
    assert not follows(ReedSolomon(1024, stragglers=770, root=1))  # survivors are fewer
    assert not follows(ReedSolomon(16384, stragglers=31))
    assert follows(ReedSolomon(16384, stragglers=32))
    assert not follows(large, verify=True)
    assert not follows(ReedSolomon(1024, stragglers=256, clusters="auto"))
    messages = messages_of(large)
    rnd = large.round(4)
    for worker in np.random.default_rng(5).permutation(large.threshold).tolist():  # a short vector
        rnd.receive(worker, messages[worker])
    assert rnd._follower.vector(large.threshold) is not None
    check(rnd, messages)


@pytest.mark.usefixtures("every_size")
def test_groups_pass_it_on():
    code = Grouped([ReedSolomon(3, stragglers=1), ReedSolomon(5, stragglers=2)])
    messages = messages_of(code)
    rnd = code.group_round(4)
    rnd.reset([1])
    for worker in (7, 4):
        rnd.straggles(worker)
    assert rnd.of(1)._follower.vector(0) is None
    assert rnd.of(1)._follower._there == 3
    for worker in (3, 5, 6):
        rnd.receive(worker, messages[worker])
    direct = code.codes[1].decode([0, 2, 3], messages[[3, 5, 6]], p=4)
    np.testing.assert_allclose(rnd.gradient(1), direct, rtol=1e-12, atol=1e-12)


def test_straggles_refuses():
    for code in (CODES[2], fastgc.BinaryCode(7, stragglers=2)):
        rnd = code.round(4)
        with pytest.raises(ValueError, match="worker 7 does not exist"):
            rnd.straggles(7)
        with pytest.raises(TypeError, match="worker must be an integer"):
            rnd.straggles(0.5)
        rnd.straggles(3)


def test_products_are_computed_anew_now_and_then():
    """After enough events products are recomputed, with the bits of a new stream."""
    code = ReedSolomon(40, stragglers=30)
    rng = np.random.default_rng(8)
    stream = code.stream(range(20))
    for _ in range(reed_solomon.REBUILD_AFTER):
        worker = int(rng.integers(40))
        (stream.depart if worker in stream.members else stream.arrive)(worker)
    fresh = code.stream(stream.members)
    np.testing.assert_array_equal(stream._state.product[:40], fresh._state.product[:40])
    np.testing.assert_array_equal(stream._state.exponent[:40], fresh._state.exponent[:40])


def test_a_declared_straggler_that_came_counts_no_more():
    code = ReedSolomon(12, stragglers=3)
    survivors, vector = np.empty(12, dtype=np.int64), np.empty(12, dtype=np.complex128)
    follower = reed_solomon.Follower(code.scheme, survivors, vector, 2.0**-53)
    heard = [0, 3, 4, 5, 6, 7, 8, 9, 10]
    survivors[:9] = heard
    follower.straggles(0)
    follower.receive(0)
    follower.straggles(1)
    follower.straggles(2)
    for worker in heard[1:]:
        follower.receive(worker)
    np.testing.assert_allclose(follower.vector(9), code.decoding_vector(heard), rtol=1e-13)


def test_one_cluster_that_could_be_better_is_enough():
    """Three neighbours of one cluster and none of the other are away; or none of either."""
    code = ReedSolomon(24, stragglers=5, clusters=2)
    for away, could in (([0, 5, 10], True), ([], False)):
        survivors = np.setdiff1d(np.arange(24), away)
        plain, spread = (code.decoding_vector(survivors, by) for by in ("locator", "spread"))
        assert code.scheme._could_be_better(survivors, plain) == could
        assert (np.linalg.norm(spread) < 0.9 * np.linalg.norm(plain)) == could
