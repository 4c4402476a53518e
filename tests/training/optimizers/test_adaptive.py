"""CADA and G-CADA agree with a second Algorithm 1, which keeps every point and gradient."""

import copy
import itertools
import json
import math
import tracemalloc
from array import array
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much
from toys import METHODS

from fastgc import kernels
from fastgc.training.optimizers import CADA, GCADA, SGD, AMSGrad, Nesterov

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


class Algorithm1:
    """Selects groups from all points and gradients so far.

    It computes both sides of eq. (9) in float64. If they differ by less than `TIE` of the larger,
    rounding decides, and `selects` accepts either answer. Points are those of the tested method:
    with its own points, it would soon be a different run.
    """

    TIE = 1e-9

    def __init__(self, groups, c, max_age, smoothness=None, relative=True):
        self.groups, self.c, self.max_age = groups, c, max_age
        self.given, self.relative = smoothness, relative
        self.points = []
        self.gradients = [[] for _ in range(groups)]  # for each group: (round, gradient)

    def square(self, later, earlier):
        return float(np.sum((self.points[later] - self.points[earlier]) ** 2))

    def ages(self):
        k = len(self.points) - 1
        return [k - sent[-1][0] if sent else self.max_age for sent in self.gradients]

    def constants(self):
        """Return L_g^2, or None."""
        if self.given is not None:
            squares = list(np.broadcast_to(self.given, self.groups) ** 2.0)
        else:
            squares = [self.estimate(sent) for sent in self.gradients]
        if self.relative and (known := [square for square in squares if square]):
            squares = [square and square / np.mean(known) for square in squares]
        return squares

    def estimate(self, sent):
        pairs = [
            (np.sum((new - old) ** 2), self.square(k, i)) for (i, old), (k, new) in pairwise(sent)
        ]
        pairs = [pair for pair in pairs if pair[1] > 0]
        weights = 0.9 ** np.arange(len(pairs))[::-1]
        return np.dot(weights, pairs)[0] / np.dot(weights, pairs)[1] if pairs else None

    def selects(self, point, selected):
        """Whether these groups are selected at the next point; record the point."""
        self.points.append(np.array(point, np.float64))
        k = len(self.points) - 1
        right = self.c * sum(
            self.square(k + 1 - d, k - d) for d in range(1, min(self.max_age, k) + 1)
        )
        # With c = 0 the rule asks only whether the point has moved.
        constants = self.constants() if self.c else [1.0] * len(self.gradients)
        for group, (age, constant) in enumerate(zip(self.ages(), constants, strict=True)):
            wanted = True
            if age < self.max_age and constant is not None:
                left = constant * self.square(k, k - age)
                wanted = left > right
                if 0 < abs(left - right) <= self.TIE * max(left, right):
                    continue
            if wanted != (group in selected):
                return False
        return True

    def receive(self, group, gradient):
        self.gradients[group].append((len(self.points) - 1, np.array(gradient, np.float64)))

    def newest(self):
        return np.array([sent[-1][1] for sent in self.gradients])


class Walk:
    """A user's optimizer, whose moves are given beforehand."""

    def __init__(self, moves, dtype=np.float64):
        self.moves = np.atleast_2d(np.array(moves, dtype).T).T

    def reset(self, theta0):
        self.point = self.theta = theta0.copy()
        self.left = iter(self.moves)

    def step(self, gradient):
        before = self.point.astype(np.float64)
        self.point += next(self.left)
        with np.errstate(over="ignore"):
            return np.sum((self.point - before) ** 2)

    def state(self):
        return {}

    def restore(self, state):
        raise NotImplementedError

    def __repr__(self):
        return "Walk()"


def drift(groups, dtype):
    """Return the error allowed for the running sum, relative to the sum of gradients' norms."""
    return 4 * groups * np.finfo(dtype).eps / 2


def run(method, theta0, gradient, rounds):
    """Return each round's iterate and number of selected groups."""
    method.reset(theta0)
    return go_on(method, gradient, rounds)


def go_on(method, gradient, rounds):
    iterates, selected = [], []
    for _ in range(rounds):
        selected.append(method.selected.tolist())
        for group in method.selected:
            method.receive(group, gradient(group, method.point))
        method.step()
        iterates.append(method.theta.copy())
    return np.array(iterates), selected


def quadratics(groups, p, seed=0):
    """Return the gradient of x'A_g x / 2 - b_g'x as a function of g and x, and A and b."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((groups, p, p)) * rng.exponential(size=(groups, 1, 1)) + 0.3 * np.eye(p)
    A = A @ A.transpose(0, 2, 1) / p
    b = rng.standard_normal((groups, p))
    return (lambda group, x: (A[group] @ x - b[group]).astype(x.dtype)), A, b


OPTIMIZERS = {
    "sgd": lambda lr: SGD(lr),
    "momentum": lambda lr: SGD(lr / 2, 0.5),
    "nesterov": lambda lr: Nesterov(lr / 2, 0.5),
    "sequence": lambda lr: Nesterov(lr / 10),
    "amsgrad": lambda lr: AMSGrad(0.02, epsilon=1e-4),
}


@settings(max_examples=much(60, 10), deadline=None)
@given(
    method=st.sampled_from([CADA, GCADA]),
    groups=st.integers(1, 7),
    p=st.sampled_from([1, 2, 5, 33]),
    c=st.sampled_from([0.0, 1e-3, 0.1, 0.3, 1.0, 2.0, 30.0]),
    max_age=st.sampled_from([1, 2, 3, 5, 10, 25]),
    constants=st.sampled_from(["none", "one", "each"]),
    relative=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    kind=st.sampled_from(list(OPTIMIZERS)),
    curved=st.booleans(),
    noise=st.sampled_from([0.0, 0.01, 1.0]),
    pauses=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_selected_by_algorithm_1(
    method, groups, p, c, max_age, constants, relative, dtype, kind, curved, noise, pauses, seed
):
    rng = np.random.default_rng(seed)
    _, A, b = quadratics(groups, p, seed)
    L = np.linalg.norm(A, 2, axis=(1, 2))
    smoothness = {"none": None, "one": 1.3, "each": L}[constants]
    optimizer = OPTIMIZERS[kind](0.3 / (max_age * L.sum()))
    tested = method(
        groups, optimizer, c=c, max_age=max_age, smoothness=smoothness, relative=relative
    )
    oracle = Algorithm1(groups, c, max_age, smoothness, relative)
    theta0 = rng.standard_normal(p).astype(dtype)
    tested.reset(theta0)
    follower = copy.copy(optimizer)  # the same in doubles, along sums that nobody kept
    follower.reset(theta0.astype(np.float64))
    lr, rounds, largest = optimizer.lr, 150, 1.0
    for k in range(rounds):
        optimizer.lr = follower.lr = lr / (1 + k // 50)
        assert oracle.selects(tested.point, tested.selected)
        np.testing.assert_array_equal(tested.ages, oracle.ages())
        still = pauses and k % 40 > 25  # gradients vanish, so steps end
        for group in rng.permutation(tested.selected):
            x = A[group] @ tested.point.astype(np.float64)
            gradient = (np.tanh(x) if curved else x) - b[group]
            gradient += noise * rng.standard_normal(p)
            gradient = (gradient * (not still)).astype(dtype)
            strided = np.repeat(gradient, 3)[::3]
            tested.receive(group, strided if k % 2 else gradient)
            oracle.receive(group, gradient)
        newest = oracle.newest()
        total = newest.sum(axis=0)
        size = np.linalg.norm(newest, axis=1).sum()
        assert np.linalg.norm(tested.gradient() - total) <= drift(groups, dtype) * size
        tested.step()
        follower.step(total)
        largest = max(largest, np.abs(follower.theta).max(), np.abs(total).max())
        for ours, theirs in ((tested.theta, follower.theta), (tested.point, follower.point)):
            assert np.abs(ours - theirs).max() <= 20 * (k + 1) * np.finfo(dtype).eps * largest


@pytest.mark.parametrize("seed", range(much(4, 1)))
@pytest.mark.parametrize("smoothness", [None, np.array([0.1, 0.3, 0.5, 1, 2, 3])][: much(2, 1)])
@DTYPES
def test_selected_after_steps_of_any_length(dtype, smoothness, seed):
    """Long moves out and back, then steps so short that rounding of the long ones hides them."""
    rng = np.random.default_rng(seed)
    far = 2.0 ** rng.integers(20, 30, 12)
    moves = [*far, *-far[::-1]]
    for _ in range(20):
        step = rng.choice([0.0, 1e-12, 1e-9, 1e-3], p=[0.1, 0.5, 0.3, 0.1])
        moves += list(step * rng.standard_normal(20))
    moves = np.array(moves)[:, None] * rng.standard_normal(3).astype(np.float32)
    tested = GCADA(6, Walk(moves, dtype), c=0.4, max_age=12, smoothness=smoothness)
    oracle = Algorithm1(6, 0.4, 12, smoothness)
    tested.reset(np.zeros(3, dtype))
    for _ in moves:
        assert oracle.selects(tested.point, tested.selected)
        for group in tested.selected:
            gradient = rng.standard_normal(3).astype(dtype)
            tested.receive(group, gradient)
            oracle.receive(group, gradient)
        tested.step()


def test_selected_without_ties():
    """Both sides are exactly 2; comparing squares of rounded roots would find a violation."""
    for c, selected in ((1, []), (np.nextafter(1, 0), [0, 1])):
        method = GCADA(2, Walk(np.ones((1, 2))), c=c, smoothness=1)
        run(method, np.zeros(2), lambda group, x: x, 1)
        assert method.selected.tolist() == selected


def test_selected_without_ties_by_rounding():
    """Back along a line, the distance equals its lower bound; no root here is exact."""
    ties = 0
    for a, b in itertools.product(range(30, 60), range(1, 30)):
        distance, recent = 2 * (a - b) ** 2, [2, 2 * a**2, 2 * b**2]
        c = distance / sum(recent)
        if c * sum(recent) != distance:
            continue
        moves = np.repeat([[1000], [0], [100], [1], [a], [-b]], 2, axis=1)
        method = GCADA(1, Walk(moves), c=c, max_age=3, smoothness=1)
        _, selected = run(method, np.zeros(2), lambda group, x: np.ones(2), 6)
        if selected[4:] == [[0], []]:
            ties += 1
            assert method.selected.size == 0, (a, b)
    assert ties > 100


@pytest.mark.parametrize("smoothness", [None, 1e-160])
def test_selected_without_c_where_no_gradient_changes(smoothness):
    method = GCADA(2, SGD(0.01), c=0, smoothness=smoothness, relative=False)
    _, selected = run(method, np.ones(2), lambda group, x: np.array([1.0, group]), 20)
    assert selected == [[0, 1]] * 20
    method = GCADA(2, SGD(0.01), c=0)  # a point that does not move selects nobody
    _, selected = run(method, np.ones(2), lambda group, x: np.zeros(2), 11)
    assert selected == [[0, 1], *[[]] * 9, [0, 1]]


@pytest.fixture
def counted(monkeypatch):
    """Counts calls of kernels by name."""
    calls = Counter()

    def counting(name, kernel):
        def call(*arguments):
            calls[name] += 1
            return kernel(*arguments)

        return call

    for name in ("replace", "square_distance", "square_sum", "combine", "sgd"):
        kernel = getattr(kernels.unchecked, name)
        monkeypatch.setattr(kernels.unchecked, name, counting(name, kernel))
    return calls


@pytest.mark.parametrize("smoothness", [None, np.geomspace(0.1, 3, 8)])
def test_step_computes_a_distance_for_each_age_at_most(counted, smoothness):
    gradient, _, _ = quadratics(8, 5)
    method = GCADA(8, SGD(0.01), c=0.5, max_age=30, smoothness=smoothness)
    method.reset(np.ones(5))
    most = 0
    for _ in range(400):
        before, ages = counted["square_distance"], set(method.ages.tolist())
        go_on(method, gradient, 1)
        ages |= set(method.ages.tolist())
        assert counted["square_distance"] - before <= len(ages)
        most += len(set(method.ages.tolist()))
    assert counted["square_distance"] < most / 3


def test_step_computes_no_distance_where_all_or_none_are_selected(counted):
    method = GCADA(4, SGD(0.01), c=0)
    run(method, np.ones(3), lambda group, x: x, 99)
    for group in method.selected:
        method.receive(group, method.point)
    method.gradient()  # the step uses it again
    method.step()
    assert counted["square_distance"] == 0
    assert counted["combine"] == counted["sgd"] == 100
    method = GCADA(4, SGD(1e-4), c=100, smoothness=1)
    run(method, np.ones(3), lambda group, x: x, 1)
    counted.clear()
    _, selected = go_on(method, None, 9)
    assert selected == [[]] * 9
    assert counted == {"sgd": 9}


@DTYPES
def test_step_allocates_no_vectors(dtype):
    p, rng = 100_000, np.random.default_rng(0)
    curvature = (rng.exponential(size=(6, p)) * np.geomspace(0.1, 3, 6)[:, None]).astype(dtype)
    out = np.empty(p, dtype)

    def gradient(group, x):
        return np.multiply(curvature[group], x, out=out)

    method = GCADA(6, SGD(0.01, 0.5), c=0.5, max_age=4)
    _, selected = run(method, np.ones(p, dtype), gradient, 60)
    tracemalloc.start()
    start, _ = tracemalloc.get_traced_memory()
    for _ in range(30):
        selected.append(method.selected.tolist())
        for group in method.selected:
            method.receive(group, gradient(group, method.point))
        method.step()
    end, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len({tuple(chosen) for chosen in selected}) > 2
    assert end - start < out.nbytes / 2
    assert peak - start < out.nbytes / 2


@pytest.mark.parametrize(("groups", "max_age"), [(3, 10), (8, 2), (4, 4), (1, 5), (5, 1)])
def test_state_keeps_a_point_for_each_age_or_group(groups, max_age):
    walk = np.random.default_rng(0).standard_normal((200, 2))
    constants = np.geomspace(0.1, 3, groups)
    method = GCADA(groups, Walk(walk), c=0.2, max_age=max_age, smoothness=constants)
    method.reset(np.zeros(2))
    for _ in range(200):
        go_on(method, lambda group, x: x, 1)
        assert len(method.state()["points"]) <= min(groups, max_age)


@DTYPES
def test_gradient_does_not_drift(dtype):
    """It stays right for thousands of rounds of gradients from 1e9 down to 1e-9."""
    groups, rounds, rng = 9, much(10_000, 3000), np.random.default_rng(0)
    walk, constants = rng.standard_normal((rounds, 1)), np.geomspace(0.2, 2, groups)
    method = GCADA(groups, Walk(walk, dtype), c=1.0, max_age=40, smoothness=constants)
    method.reset(np.zeros(3, dtype))
    stored, received = np.zeros((groups, 3), dtype), 0
    for k in range(rounds):
        received += method.selected.size
        for group in method.selected:
            size = 10.0 ** rng.uniform(-3, 3) * 10.0 ** (6 * math.sin(k / 100))
            stored[group] = size * rng.standard_normal(3)
            method.receive(group, stored[group])
        exact = [math.fsum(column) for column in stored.T.tolist()]
        size = np.linalg.norm(stored.astype(np.float64), axis=1).sum()
        assert np.linalg.norm(method.gradient() - exact) <= drift(groups, dtype) * size
        method.step()
    assert received < groups * rounds / 3  # most of the sum is kept, not received


def test_gradient_adds_up_small_changes():
    """Each is less than half a unit in the last place of the sum, which alone would lose it."""
    method = GCADA(3, Walk([[1.0]] * 1000, np.float32), c=1, max_age=1000, smoothness=[1, 1e-6, 9])
    method.reset(np.zeros(1, np.float32))
    stored = np.array([[0.0], [1.0], [0.0]], np.float32)
    for k in range(1000):
        if k:
            assert set(method.selected.tolist()) <= {0, 2}
        for group in method.selected:
            if group != 1:
                stored[group] += np.float32(2**-26)
            method.receive(group, stored[group])
        size = stored.sum(dtype=np.float64)
        assert abs(method.gradient()[0] - size) <= drift(3, np.float32) * size
        method.step()


def test_gradient_is_formed_anew_when_its_bound_is_reached():
    """Each update may round both vectors and the sum: the bound of all G gradients is 4 times G."""
    # The first group is selected in each round, and the others once.
    method = GCADA(4, Walk(np.ones((90, 1))), c=0.01, max_age=99, smoothness=[9, 1e-6, 1e-6, 1e-6])
    run(method, np.zeros(1), lambda group, x: np.ones(1), 2)
    anew = 0
    for size in np.random.default_rng(0).exponential(size=80):
        before = method.state()
        method.receive(0, np.array([size]))
        rounded = before["rounded"] + before["norms"][0] + 2 * size + 3
        assert method.state()["rounded"] == pytest.approx(rounded)
        method.step()
        anew += rounded > 4 * 4 * (size + 3)
        after = 4 * (size + 3) if rounded > 4 * 4 * (size + 3) else rounded
        assert method.state()["rounded"] == pytest.approx(after)
        assert method.selected.tolist() == [0]
    assert 3 < anew < 40


def test_selected_of_a_linear_function():
    slopes = np.array([[1.0, 2.0], [0.0, 0.0]])
    method = GCADA(2, SGD(0.01), c=0.1, max_age=5)
    _, selected = run(method, np.ones(2), lambda g, x: slopes[g] + (1 - g) * x, 40)
    asked = [k for k, chosen in enumerate(selected) if 1 in chosen]
    assert asked[:2] == [0, 1]  # all groups, until there is an estimate
    assert set(np.diff(asked[1:])) == {5}


def test_step_along_another_vector():
    gradient, _, _ = quadratics(3, 4)
    plain, doubled = GCADA(3, SGD(0.02)), GCADA(3, SGD(0.01))
    for method in (plain, doubled):
        method.reset(np.ones(4))
    for _ in range(50):
        for method in (plain, doubled):
            for group in method.selected:
                method.receive(group, gradient(group, method.point))
        before = doubled.point.copy()
        moved = doubled.step(2 * doubled.gradient())
        assert moved == pytest.approx(np.sum((doubled.point - before) ** 2), rel=1e-12)
        plain.step()
        np.testing.assert_array_equal(plain.theta, doubled.theta)
        assert plain.selected.tolist() == doubled.selected.tolist()


def test_receive_copies():
    method = GCADA(2, SGD(0.1))
    method.reset(np.ones(3))
    buffer = np.ones(3)
    method.receive(0, buffer)
    buffer[:] = 5
    method.receive(1, buffer)
    buffer[:] = 7
    total = method.gradient()
    np.testing.assert_array_equal(total, 6)
    total[:] = 0
    np.testing.assert_array_equal(method.gradient(), 6)
    lent = array("d", [0, 0, 0])
    assert method.gradient(out=lent) is lent
    assert lent.tolist() == [6, 6, 6]
    method.selected[:] = 9
    method.ages[:] = 9
    assert method.selected.tolist() == [0, 1]
    assert method.ages.tolist() == [10, 10]


def test_reset_forgets_the_steps():
    method = GCADA(1, SGD(1.0), c=0.5, smoothness=1)
    run(method, np.zeros(1), lambda group, x: np.full(1, 1e6), 5)
    _, selected = run(method, np.zeros(1), lambda group, x: np.ones(1), 2)
    assert selected == [[0], [0]]


def test_receive_squares_that_overflow_once():
    factors = {(0, 1.5): 1e200}  # by group and point
    method = GCADA(2, Walk([[0.5]] * 40), c=2, max_age=10)
    _, selected = run(method, np.ones(1), lambda g, x: x * factors.get((g, x[0]), 1.0), 40)
    assert all(0 in chosen for chosen in selected[:4])  # no constant is known yet
    asked = np.sum([[group in chosen for group in (0, 1)] for chosen in selected[20:]], axis=0)
    assert asked[0] <= asked[1] + 1 < 10


def test_step_that_overflows():
    moves = [1e200, 1e200, -2e200, *[1.0] * 30]
    method = GCADA(2, Walk(moves), c=0.5, max_age=4, smoothness=1)
    _, selected = run(method, np.zeros(1), lambda group, x: np.ones(1), 33)
    assert selected[0] == [0, 1]
    # Eight rounds later these points have left both sides of (9), and the rule decides again.
    oracle = Algorithm1(2, 0.5, 4, 1.0)
    for point in np.arange(9.0):
        chosen = selected[-9 + int(point)]
        if point > 3:
            assert oracle.selects([point], chosen)
        else:
            oracle.points.append(np.array([point]))
        for group in chosen:
            oracle.receive(group, np.ones(1))


def test_receive_squares_that_overflow():
    method, alone = (GCADA(n, Walk(np.full((40, 1), 0.5)), c=2, max_age=10) for n in (3, 2))
    _, selected = run(method, np.ones(1), lambda g, x: x * [1e200, 1, 1][g], 40)
    _, wanted = run(alone, np.ones(1), lambda group, x: x, 40)
    assert [[g - 1 for g in chosen if g] for chosen in selected] == wanted
    assert all(0 in chosen for chosen in selected)  # no constant is known for group 0


def test_selected_after_a_step_along_nan():
    method = GCADA(3, SGD(0.1), c=100, smoothness=1)
    run(method, np.ones(2), lambda group, x: x, 3)
    assert method.selected.tolist() == []
    assert math.isnan(method.step(np.array([0.0, np.nan])))
    assert method.selected.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"gradient of group 1\[1\] is nan"):
        method.receive(1, method.point)


@pytest.mark.parametrize("method", [CADA, GCADA])
def test_repr_round_trips(method):
    for made in (
        method(3),
        method(4, SGD(0.1, 0.5), c=0, max_age=1),
        method(2, Nesterov(0.1), smoothness=[0.1, 1 / 3], relative=False),
        method(2, smoothness=2),
    ):
        again = eval(repr(made))
        assert type(again) is method
        assert repr(again) == repr(made)
        assert vars(again.optimizer) == vars(made.optimizer)
        np.testing.assert_array_equal(again.smoothness, made.smoothness)
        for name in ("groups", "c", "max_age", "relative"):
            assert getattr(again, name) == getattr(made, name)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GCADA(0), ValueError, "groups .*not 0"),
        (lambda: CADA(0), ValueError, "groups .*not 0"),
        (lambda: GCADA(2, 0.1), TypeError, "optimizer .*, not 0.1"),
        (lambda: GCADA(2, SGD), TypeError, "optimizer .*, not <class"),
        (lambda: GCADA(2, CADA(2)), TypeError, r"optimizer .*, not CADA\(2"),
        (lambda: GCADA(2, c=-1), ValueError, "c .*not -1"),
        (lambda: GCADA(2, max_age=0), ValueError, "max_age .*not 0"),
        (lambda: GCADA(2, smoothness=[1, 2, 3]), ValueError, r"smoothness .*\(3,\)"),
        (lambda: GCADA(2, smoothness=[1, 0]), ValueError, "smoothness .*0"),
        (lambda: GCADA(2, smoothness=[1, math.nan]), ValueError, "smoothness .*nan"),
        (lambda: GCADA(2, smoothness=1e-200), ValueError, "smoothness .*not 1e-200"),
        (lambda: GCADA(2, smoothness=1e200), ValueError, r"smoothness .*not 1e\+200"),
    ],
)
def test_gcada_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_gcada_without_a_run():
    for name, arguments in (
        ("selected", None),
        ("ages", None),
        ("receive", (0, np.ones(2))),
        ("gradient", ()),
        ("step", ()),
        ("state", ()),
    ):
        with pytest.raises(RuntimeError, match=r"CADA: reset\(theta0\) begins a run"):
            getattr(CADA(2), name)(*arguments)


def test_reset_refused_changes_nothing():
    method = GCADA(2, Walk(np.ones((5, 2))))
    run(method, np.ones(2), lambda group, x: x, 2)
    with pytest.raises(ValueError, match="theta0"):
        method.reset(np.full(3, np.nan))
    np.testing.assert_array_equal(method.theta, 3)


@pytest.mark.parametrize(
    ("group", "gradient", "error", "message"),
    [
        (3, np.ones(2), ValueError, "group 3 "),
        (0, np.ones(2), ValueError, r"group 0 has sent .* due are \[1\]"),
        (2, np.ones(2), ValueError, r"group 2 was not selected .* due are \[1\]"),
        (1, np.ones(3), ValueError, r"gradient of group 1 .*not \(3,\)"),
        (1, np.ones(2, np.float32), TypeError, "gradient of group 1 .*not float32"),
        (1, np.array([-np.inf, 1]), ValueError, r"gradient of group 1\[0\] is -inf"),
    ],
)
def test_receive_refused_changes_nothing(group, gradient, error, message):
    method = GCADA(3, SGD(0.1), c=0.1, smoothness=[1, 1, 1e-9])
    run(method, np.ones(2), lambda group, x: x, 3)
    assert method.selected.tolist() == [0, 1]
    method.receive(0, method.point)
    wanted = copy.deepcopy(method)
    with pytest.raises(error, match=message):
        method.receive(group, gradient)
    for each in (method, wanted):
        each.receive(1, [2.0, 3.0])  # anything that converts to a vector of its dtype
        each.step()
    np.testing.assert_array_equal(method.theta, wanted.theta)
    assert method.selected.tolist() == wanted.selected.tolist()


def test_step_while_gradients_are_due():
    method = GCADA(3)
    method.reset(np.ones(2))
    method.receive(1, np.ones(2))
    for use in (method.step, method.gradient, lambda: method.step(np.ones(2))):
        with pytest.raises(RuntimeError, match=r"groups \[0, 2\] "):
            use()
    np.testing.assert_array_equal(method.theta, 1)


def test_step_refused_changes_nothing():
    gradient, _, _ = quadratics(4, 3)
    method, wanted = GCADA(4, SGD(0.01)), GCADA(4, SGD(0.01))
    for each in (method, wanted):
        each.reset(np.ones(3))
    for k in range(40):
        for each in (method, wanted):
            for group in each.selected:
                each.receive(group, gradient(group, each.point))
        bad = np.ones(2) if k % 2 else np.ones(3, np.float32)
        with pytest.raises((TypeError, ValueError), match="gradient must"):
            method.step(bad)
        for out in (bad, np.ones(6)[::2]):
            with pytest.raises((TypeError, ValueError), match="out must"):
                method.gradient(out=out)
        for each in (method, wanted):
            each.step()
        np.testing.assert_array_equal(method.theta, wanted.theta)
        np.testing.assert_array_equal(method.selected, wanted.selected)
        assert repr(method.state()) == repr(wanted.state())


@pytest.mark.parametrize("returned", [None, -1.0, np.ones(1)])
def test_step_of_optimizers_without_a_distance(returned):
    class Silent(Walk):
        def step(self, gradient):
            return returned

    method = GCADA(1, Silent([1.0]))
    method.reset(np.ones(1))
    method.receive(0, np.ones(1))
    with pytest.raises(TypeError, match="step must return "):
        method.step()


def test_step_of_optimizers_with_numbers_that_json_lacks():
    class Other(Walk):
        def step(self, gradient):
            return np.float32(super().step(gradient))

    method = GCADA(2, Other(np.ones((12, 1))), c=0.7, smoothness=1)
    run(method, np.zeros(1), lambda group, x: x, 12)
    assert {type(moved) for moved in method.state()["steps"]} == {float}


def test_reset_of_optimizers_of_another_dtype():
    class Wide(Walk):
        def reset(self, theta0):
            super().reset(theta0.astype(np.float64))

    with pytest.raises(TypeError, match="optimizer's point must have dtype float32, not float64"):
        GCADA(1, Wide([1.0])).reset(np.zeros(1, np.float32))


def test_selected_of_optimizers_with_strided_points():
    class Strided(Walk):
        def reset(self, theta0):
            super().reset(theta0)
            self.point = np.repeat(theta0, 2)[::2]

    moves = np.random.default_rng(0).standard_normal((40, 3))
    chosen = [
        run(GCADA(4, kind(moves), smoothness=[0.1, 0.3, 1, 3]), np.zeros(3), lambda g, x: x, 40)[1]
        for kind in (Walk, Strided)
    ]
    assert chosen[0] == chosen[1]


def drive(method, steps, rng):
    """Make steps with gradients of a noisy quadratic."""
    for _ in range(steps):
        if isinstance(method, GCADA):
            for g in method.selected:
                noise = rng.standard_normal(method.point.size)
                gradient = (g + 1) * method.point + 0.1 * noise - g
                method.receive(int(g), gradient.astype(method.theta.dtype))
            method.step()
        else:
            gradient = method.point + 0.1 * rng.standard_normal(method.point.size)
            method.step(gradient.astype(method.theta.dtype))


@pytest.mark.parametrize("name", METHODS)
@settings(deadline=None, max_examples=much(25, 10))
@given(
    before=st.integers(0, 12),
    dtype=st.sampled_from([np.float32, np.float64]),
    size=st.integers(1, 9),
    used=st.booleans(),
)
def test_restore_goes_on_to_the_last_bit(name, before, dtype, size, used):
    one, other = METHODS[name](), METHODS[name]()
    one.reset(np.linspace(-1, 1, size).astype(dtype))
    drive(one, before, np.random.default_rng(1))
    if not isinstance(one, GCADA):
        one.lr = 0.07  # as a schedule may set it
    if used:
        other.reset(np.ones(size + 1))
        drive(other, 3, np.random.default_rng(2))
    state = one.state()
    other.restore(json_and_back(state))
    assert getattr(other, "lr", None) == getattr(one, "lr", None)
    for value in state.values():  # the state belongs to the caller alone
        if isinstance(value, np.ndarray):
            value[:] = 99
    drive(one, 9, np.random.default_rng(3))
    drive(other, 9, np.random.default_rng(3))
    assert other.theta.dtype == dtype
    assert one.theta.tobytes() == other.theta.tobytes()
    assert one.point.tobytes() == other.point.tobytes()
    assert repr(one.state()) == repr(other.state())


def json_and_back(state):
    """Pass a state through JSON: except arrays, it must survive to the last bit."""
    return {
        name: value if isinstance(value, np.ndarray) else json.loads(json.dumps(value))
        for name, value in state.items()
    }


def test_state_between_messages():
    one, other = GCADA(4, c=1.0), GCADA(4, c=1.0)
    one.reset(np.zeros(3))
    drive(one, 3, np.random.default_rng(0))
    while one.selected.size < 2:
        drive(one, 1, np.random.default_rng(0))
    first, *rest = one.selected.tolist()
    one.receive(first, np.ones(3))
    other.restore(one.state())
    with pytest.raises(ValueError, match=f"group {first} has sent its gradient"):
        other.receive(first, np.ones(3))
    for method in (one, other):
        for g in rest:
            method.receive(g, np.full(3, g + 0.5))
        method.step()
        drive(method, 6, np.random.default_rng(5))
    assert one.theta.tobytes() == other.theta.tobytes()


@pytest.mark.parametrize("name", METHODS)
def test_restore_refused_changes_nothing(name):
    method = METHODS[name]()
    with pytest.raises(RuntimeError, match="begins a run"):
        method.state()
    method.reset(np.zeros(3))
    drive(method, 4, np.random.default_rng(0))
    good, before = method.state(), repr(method.state())
    array = "total" if "ada" in name else "theta"
    rate = "optimizer.lr" if "ada" in name else "lr"
    bad = [
        (3, TypeError, "state must be what state"),
        ({}, ValueError, f"{type(method).__name__} consists of .*{array}"),
        (good | {"more": 1}, ValueError, "more"),
        (good | {rate: "x"}, TypeError, "lr .*not 'x'"),
    ]
    if name != "plain sgd":  # plain SGD keeps no state of any size
        bad += [(good | {array: np.zeros(4)}, ValueError, "shape")]
    if "ada" in name:
        bad += [(good | {"ages": [1]}, ValueError, "ages of the state")]
    else:
        bad += [(good | {"theta": np.zeros(3, int)}, TypeError, "float32 or float64|dtype int64")]
    for state, error, match in bad:
        with pytest.raises(error, match=match):
            method.restore(state)
        assert repr(method.state()) == before
