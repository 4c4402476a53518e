"""Approximate codes that wait for f workers: when rounds end, and what they leave out."""

from functools import partial
from itertools import combinations
from math import comb

import numpy as np
import pytest
from examples import example
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much
from tables import SMALL, WAITING, awaited, encoded

import fastgc
from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    GraphCode,
    Grouped,
    LinearCode,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes import Scheme
from fastgc.coding.messages import Messages
from fastgc.coding.rules import (
    Blocks,
    Cells,
    Parts,
    Sooner,
    Span,
    Tiling,
    Waiting,
    spare_tally,
    withstands,
)
from fastgc.coding.trust import residual_of_each
from fastgc.delays import Exponential
from fastgc.kernels import unchecked
from fastgc.numerics.graphs import Network, parallel
from fastgc.planning.simulation import simulate


class ShiftsScheme(Scheme):
    """A user's scheme, defined by its rows and `wait`."""

    def __init__(self, n, *, load, wait):
        self.n = self.k = n
        self.wait = wait
        self._load = load

    def row(self, worker):
        return (worker + np.arange(self._load)) % self.n, np.ones(self._load)


class ChunksScheme(ShiftsScheme):
    """The same, but each message holds one partition."""

    messages = property(lambda self: Messages([self._load] * self.n))


def Shifts(n, **options):
    return fastgc.Code(ShiftsScheme(n, **options))


def Chunks(n, **options):
    return fastgc.Code(ChunksScheme(n, **options))


CODES = [
    *WAITING[:5],
    Shifts(7, load=2, wait=4),
    Chunks(4, load=2, wait=2),
]


def optimum(code, F):
    """Return the residual of least squares, by linear algebra on B."""
    B = code.matrix()[F].reshape(len(F), -1)
    a = np.linalg.lstsq(B.T, np.ones(B.shape[1]))[0]
    return float(np.linalg.norm(a @ B - 1) / np.sqrt(code.k))


@pytest.mark.parametrize("code", CODES, ids=repr)
def test_ready_when_exact_or_when_f_workers_are_complete(code):
    """Every set of messages agrees with the definition."""
    count = code.scheme.messages.count
    for f in range(1, count + 1):
        for F in map(list, combinations(range(count), f)):
            senders = [code.scheme.messages.sender(m)[0] for m in F]
            whole = sum(senders.count(w) == code.scheme.messages.counts[w] for w in range(code.n))
            left = optimum(code, F)
            meant = left < 1e-9 or whole >= code.scheme.wait
            assert code.decodable(F) == meant, F
            assert code.residual(F) == pytest.approx(left, abs=1e-9)
            vector, told = code.best_vector(F)
            assert told == pytest.approx(left, abs=1e-9)
            if meant:
                np.testing.assert_array_equal(code.decoding_vector(F), vector)
                assert code.trust(F).relative_error == pytest.approx(left, abs=1e-9)
            else:
                with pytest.raises(NotDecodableError):
                    code.decoding_vector(F)


@pytest.mark.parametrize("code", CODES, ids=repr)
def test_missing_is_the_least_number_to_come(code):
    """The rule alone: fewer messages than `missing` never make a set ready."""
    rule, count = code.scheme.rule, code.scheme.messages.count
    assert isinstance(rule, Waiting)
    ready = {
        F: not rule.missing(np.array(F, dtype=np.int64))
        for f in range(count + 1)
        for F in combinations(range(count), f)
    }
    for F in ready:
        missing = rule.missing(np.array(F, dtype=np.int64))
        least = min(len(G) - len(F) for G, good in ready.items() if good and set(F) <= set(G))
        assert missing <= least
        assert (missing == 0) == (least == 0)


@pytest.mark.parametrize("code", CODES, ids=repr)
def test_a_round_ends_with_the_same_message(code):
    rng = np.random.default_rng(2)
    g = rng.standard_normal((code.k, 4))
    messages, rnd = encoded(code, g), code.round(4)
    for _ in range(40):
        rnd.reset()
        heard, due = [], [0] * code.n
        for worker in rng.permutation(code.scheme.messages.workers).tolist():
            heard.append(code.scheme.messages.number(worker, due[worker]))
            due[worker] += 1
            ready = rnd.receive(worker, messages[heard[-1]])
            assert ready == code.decodable(heard) == rnd.decodable
            if ready:
                break
        assert rnd.residual() == pytest.approx(optimum(code, heard), abs=1e-9)
        error = np.linalg.norm(rnd.gradient() - g.sum(axis=0)) / np.linalg.norm(g.sum(axis=0))
        assert (error < 1e-9) == (rnd.residual() < 1e-9)
        assert rnd.best().residual == pytest.approx(rnd.residual(), abs=1e-12)
        given = code.decoding_vector(heard), heard, [messages[m] for m in heard]
        np.testing.assert_allclose(rnd.gradient(), code.combine(*given), atol=1e-9)


def test_erasure_head_leaves_out_what_the_hypergeometric_law_says():
    """The mean square residual over all sets of f workers has a closed form."""
    for n, s in ((6, 1), (8, 3), (9, 2)):
        for f in range(1, n + 1):
            code = FractionalRepetition(n, stragglers=s, wait=f)
            squares = [code.residual(F) ** 2 for F in combinations(range(n), f)]
            assert np.mean(squares) == pytest.approx(comb(n - s - 1, f) / comb(n, f), abs=1e-12)


def test_what_is_said_of_stragglers_and_waiting():
    code = FractionalRepetition(12, stragglers=2, wait=5)
    assert (code.stragglers, code.threshold, code.load) == (2, 5, 3)
    assert (code.scheme.wait, code.scheme.awaited, code.scheme.exact) == (5, 5, False)
    assert FractionalRepetition(12, load=3, wait=5).stragglers == 2
    patient = FractionalRepetition(12, stragglers=2, wait=11)  # tolerates two stragglers exactly
    assert patient.threshold == 10
    exact = FractionalRepetition(12, stragglers=2)
    assert exact.threshold == 10
    assert (exact.scheme.wait, exact.scheme.awaited, exact.scheme.exact) == (None, 10, True)
    assert Shifts(7, load=2, wait=4).stragglers == 0
    assert Shifts(40, load=9, wait=4).threshold == 4
    assert Chunks(4, load=2, wait=2).threshold == 6
    assert Shifts(9, load=2, wait=5).scheme.known_stragglers() == 4


def test_a_matrix_that_never_determines_the_gradient():
    B = [[1, 0, 1], [0, 1, 1]]
    with pytest.raises(ValueError, match=r"give wait=, how many workers to wait for"):
        LinearCode(B)
    code = LinearCode(B, wait=1)
    assert code.stragglers is None  # None, not 0
    assert code.residual([0, 1]) == pytest.approx(np.sqrt(1 / 9))
    assert code.decode([0, 1], [[1.0], [1.0]]).tolist() == pytest.approx([4 / 3])


def test_groups_of_codes_that_wait():
    code = Grouped([FractionalRepetition(4, stragglers=1, wait=2), LinearCode(np.eye(3), wait=2)])
    assert code.decodable([0, 2, 4, 5])
    assert not code.decodable([0, 4, 5, 6])
    assert code.residual([0, 2, 4, 5]) == pytest.approx(np.sqrt(3 / 7))  # two share a block
    assert code.trust([0, 2, 4, 5]).relative_error == pytest.approx(np.sqrt(3 / 7))
    assert code.threshold == 6


@pytest.mark.parametrize("wait", [0, 7, -1])
def test_nobody_waits_for_no_one_or_for_more_than_there_are(wait):
    with pytest.raises(ValueError, match=rf"wait must be in 1 \.\. n = 6, not {wait}"):
        FractionalRepetition(6, stragglers=1, wait=wait)
    with pytest.raises(ValueError, match=r"wait must be in 1 \.\. n = 6"):
        Shifts(6, load=2, wait=wait).decodable([1])
    with pytest.raises(TypeError, match="wait"):
        FractionalRepetition(6, stragglers=1, wait=wait + 0.5)


ExpanderCode = example("codes/expander").ExpanderCode
BernoulliCode = example("codes/bernoulli").BernoulliCode
BIBDCode = example("codes/bibd").BIBDCode

SIMULATED = [
    FractionalRepetition(12, load=2, wait=7),
    LinearCode(np.eye(8) + np.roll(np.eye(8), 1, 1), wait=5),
    Chunks(6, load=2, wait=3),
    Shifts(5, load=5, wait=4),  # exact from the first message on
    GraphCode(12, degree=4, wait=8, seed=1),
    GraphCode(12, degree=3, wait=12),
    ExpanderCode(12, load=3, wait=8),
    BernoulliCode(15, load=4, wait=12),
    BernoulliCode(30, load=2, wait=4),  # never exact
    example("codes/raptor").RaptorCode(16, wait=10),
    BIBDCode(3, wait=10),
    BIBDCode(2, wait=7),
    LinearCode(np.exp(1j * np.arange(24).reshape(8, 3)), wait=5, packed=False),  # Python decodes
    LinearCode(np.ones((4, 1)) * [1.0, 1 + 1e-9], wait=3),  # nearly of rank 2
]


@pytest.mark.parametrize("code", SIMULATED, ids=repr)
@pytest.mark.parametrize("interrupted", [True, False])
def test_simulation_is_that_of_rounds(code, interrupted):
    """Simulation makes no rounds, but ends at the same times with the same residuals."""
    run = partial(
        simulate, code, Exponential(1.0), cost=0.1, rounds=much(80, 40), interrupted=interrupted
    )
    found, by_round = run(), run(method="round")
    for name in ("times", "messages", "workers", "computations"):
        np.testing.assert_array_equal(getattr(found, name), getattr(by_round, name))
    np.testing.assert_allclose(found.residuals, by_round.residuals, rtol=0, atol=1e-12)
    assert found.residual == pytest.approx(np.sqrt(np.mean(found.residuals**2)))


@pytest.mark.parametrize("code", SIMULATED, ids=repr)
def test_residuals_of_many_sets_are_those_of_each(code):
    """They agree up to rounding, and are never less than least squares leave."""
    rng = np.random.default_rng(4)
    masks = rng.random((40, code.scheme.messages.count)) < rng.random((40, 1))
    masks[:, 0] = True
    found = residual_of_each(code.scheme, masks)
    np.testing.assert_allclose(found, [code.residual(mask) for mask in masks], rtol=0, atol=1e-12)
    if code.scheme.is_complex:  # the real part alone counts
        return
    rows = code.matrix()
    for mask, left in zip(masks, found, strict=True):
        optimum = np.linalg.lstsq(rows[mask].T, np.ones(code.k))[0] @ rows[mask] - 1
        assert left >= np.linalg.norm(optimum) / np.sqrt(code.k) - 1e-12


def test_vectors_of_dependent_rows_stay_short():
    """They stay short even if a long vector seems to come closer, by rounding alone."""
    code = BernoulliCode(15, load=3, groups=3, within=1, wait=12)
    for seed in range(40):
        came = np.sort(np.random.default_rng(seed).permutation(15)[:12])
        rows = code.matrix()[came]
        sizes = np.linalg.norm(rows, axis=1)  # messages' roundings grow with these
        shortest = np.linalg.lstsq(rows.T / sizes, np.ones(15))[0] / sizes
        np.testing.assert_allclose(code.scheme.vector(came), shortest, rtol=0, atol=1e-9)


def test_simulated_residuals_are_those_of_codes_that_leave_something_out():
    ignoring = simulate(Uncoded(10, tolerance=0.3), Exponential(1.0), rounds=50)  # uses a kernel
    np.testing.assert_allclose(ignoring.residuals, np.sqrt(3 / 7))
    exact = simulate(FractionalRepetition(12, stragglers=1), Exponential(1.0), rounds=50)
    assert exact.residuals is None
    assert np.isnan(exact.residual)  # it was not computed


@settings(deadline=None, max_examples=much(500, 60))
@given(seed=st.integers(0, 2**32), points=st.integers(2, 9), edges=st.integers(1, 24))
def test_circles_add_up_to_zero_and_are_all(seed, points, edges):
    """This holds for any intervals, even if one is reached only from its end."""
    rng = np.random.default_rng(seed)
    start, stop = np.sort(rng.permuted(np.tile(np.arange(points), (edges, 1)), axis=1)[:, :2]).T
    survivors = rng.permutation(edges)[: rng.integers(1, edges + 1)]
    sums = np.zeros((survivors.size, points))  # intervals as differences of sums up to their ends
    sums[np.arange(survivors.size), start[survivors]] = -1
    sums[np.arange(survivors.size), stop[survivors]] = 1
    rule = Tiling(start, stop, points - 1)
    first, position, coefficient = rule.circles(rule.edges(survivors))
    assert set(coefficient) <= {1, -1}
    checks = np.zeros((first.size, survivors.size))
    for check, at, signs in zip(
        checks, np.split(position, first[1:]), np.split(coefficient, first[1:]), strict=False
    ):
        assert len(set(at.tolist())) == at.size
        check[at] = signs
    assert not (checks @ sums).any()
    assert first.size == survivors.size - np.linalg.matrix_rank(sums)
    assert not first.size or np.linalg.matrix_rank(checks) == first.size


def test_cells_that_are_missing_are_the_heaviest():
    rule = Cells(np.arange(4), np.array([1, 2, 4, 5]), 9)
    sets = [np.array(F, np.int64) for F in ([], [1], [2], [0, 2, 3])]
    assert [rule.missing(F) for F in sets] == [2, 2, 1, 0]


def test_missing_of_a_span_covers_each_empty_column():
    rule = LinearCode([[1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]).scheme.rule
    sets = [np.array(F, np.int64) for F in ([], [0], [1], [0, 1], [0, 1, 2])]
    assert [rule.missing(F) for F in sets] == [2, 2, 2, 1, 0]


# -------------------------------------------------------- tilings, spans, and who can be taken away


def test_paths_without_a_common_edge():
    """As many as another program finds, also where one must be led another way later."""
    detours = [(1, 2), (2, 3), (3, 5), (0, 6), (6, 7), (4, 7)]
    joined = np.array([(0, 1), (1, 4), (4, 5), *detours])
    assert unchecked.edge_flow(joined, 8, 0, 5, 3, None) == 2
    rng = np.random.default_rng(0)
    for _ in range(much(2000, 300)):
        points, edges = rng.integers([3, 1], [10, 25])
        ends = np.sort(rng.permuted(np.tile(np.arange(points), (edges, 1)), axis=1)[:, :2])
        network, most = Network(parallel(ends, np.arange(edges))), int(rng.integers(1, 6))
        found = unchecked.edge_flow(ends, points, 0, points - 1, most, None)
        assert found == network.flow(0, points - 1, most)[0]


def test_missing_of_a_tiling_is_the_least_number_that_joins_the_ends():
    tiling = Tiling(np.array([0, 0, 1, 1]), np.array([2, 1, 2, 4]), 4)
    assert tiling.missing(np.array([0])) == 2
    assert tiling.missing(np.array([0, 2])) == 1
    assert tiling.missing(np.array([1, 3])) == 0
    apart = Tiling(np.array([0, 2]), np.array([1, 3]), 3)  # all messages do not suffice
    assert [apart.missing(np.arange(m)) for m in range(3)] == [3, 2, 1]
    code = BinaryCode(3, 3, stragglers=1)  # blocks [0, 2), [0, 3), [2, 3)
    assert code.decoding_vector([1]).tolist() == [1]


def in_span(rows):
    """Whether some combination of these rows is 1 everywhere."""
    ones = np.ones((1, rows.shape[1]))
    return len(rows) > 0 and np.linalg.matrix_rank(rows) == np.linalg.matrix_rank(
        np.vstack([rows, ones])
    )


def test_missing_of_a_tiling_is_found_among_few_messages_and_many():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(60):
        k, messages = rng.integers([2, 1], [7, 9]).tolist()
        ends = np.sort(rng.permuted(np.tile(np.arange(k + 1), (messages, 1)), axis=1)[:, :2])
        tiling, places = Tiling(*ends.T, k), np.arange(k)
        rows = (ends[:, :1] <= places) & (places < ends[:, 1:])
        came = rng.permutation(messages)[: rng.integers(messages + 1)]
        rest = np.setdiff1d(np.arange(messages), came)
        joins = (
            len(more)
            for count in range(rest.size + 1)
            for more in combinations(rest.tolist(), count)
            if in_span(rows[[*came.tolist(), *more]])
        )
        least = next(joins, rest.size + 1)
        assert tiling.missing(came) == least
        seen.add(least)
    assert seen >= {0, 1, 2, 3}
    seen.clear()
    rule = BinaryCode(900, stragglers=2).scheme.rule
    for part in (0.7, 0.95, 0.99, 0.995, 1.0) * 3:
        survivors = np.flatnonzero(rng.random(900) < part)
        tally = rule.tally()
        for message in survivors.tolist():
            joined = tally.add(message)
        assert (rule.missing(survivors) == 0) == joined
        seen.add(joined)
    assert seen == {True, False}


@pytest.mark.parametrize("code", [*SMALL, *WAITING], ids=repr)
def test_withstands_is_what_every_set_of_workers_tells(code):
    """The most workers that can be taken away from those who came, whichever they are."""
    rule, rng = code.scheme.rule, np.random.default_rng(0)
    sender = np.repeat(np.arange(code.n), code.scheme.messages.counts)
    for f in [*rng.integers(1, sender.size + 1, 8).tolist(), sender.size]:
        survivors = rng.permutation(sender.size)[:f]
        workers = np.unique(sender[survivors])
        exactly = getattr(rule, "rule", rule)  # whoever waits for few is not content with them
        if isinstance(exactly, Span | Sooner):
            exactly = exactly.whole()  # checks see complex messages whole
        true = -1
        for t in range(workers.size):  # without all of them, nothing is left
            lost = (np.isin(sender[survivors], some) for some in combinations(workers, t))
            if any(exactly.missing(survivors[~each]) for each in lost):
                break
            true = t
        for most in (0, 1, code.n):
            assert withstands(rule, survivors, sender, most) == min(most, true)


@pytest.mark.parametrize("liars", [1, 2])
@pytest.mark.parametrize("code", [*SMALL, *WAITING], ids=repr)
def test_spare_tally_suffices_when_workers_can_be_taken_away(code, liars):
    """Or before; just then, where it decides alone."""
    rule, sender = code.scheme.rule, code.scheme.messages.workers
    tally, rng = spare_tally(rule, liars), np.random.default_rng(0)
    if tally is None:
        assert not isinstance(rule, Blocks | Cells | Tiling)
        return
    exact = isinstance(rule, Blocks | Cells | Tiling) and sender.size == code.n
    for _ in range(6):
        tally.reset()
        order = rng.permutation(sender.size)
        for f, message in enumerate(order.tolist(), 1):
            enough = withstands(rule, order[:f], sender, liars) == liars
            told = tally.add(message)
            assert told == enough if exact else told or not enough


def test_spare_tally_follows_intervals_that_overlap():
    """A path may go back through one: [0, 5) less [3, 5) and [3, 8) are all."""
    rng, enough = np.random.default_rng(0), 0
    for _ in range(300):
        ends = np.array([rng.choice(6, 2, replace=False) for _ in range(12)])
        rule = Tiling(ends.min(axis=1), ends.max(axis=1), 5)
        sender, tally = np.arange(12), spare_tally(rule, 1)
        for f in range(1, 13):
            told = tally.add(f - 1)
            assert told == (withstands(rule, sender[:f], sender, 1) == 1)
        enough += told
    assert 0 < enough < 300


def test_withstands_tries_no_more_sets_than_it_may(monkeypatch):
    """It then says less than is true, never more."""
    code = LinearCode(CyclicRepetition(8, stragglers=4).matrix())
    everyone, true = np.arange(8), 4
    for sets, found in ((500, true), (70, true), (69, 3), (28, 2), (8, 1), (7, 0)):
        monkeypatch.setattr("fastgc.coding.rules.SETS_TAKEN_AWAY", sets)
        assert withstands(code.scheme.rule, everyone, everyone, 6) == found


def test_spare_says_of_every_set_whether_the_others_suffice():
    """By least squares: the first column, in the rows of the missing, as a sum of the others."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((6, 4))
    dependent = B.copy()
    dependent[3:] = rng.standard_normal((3, 2)) @ B[:2]
    dependent[2] = 1 - B[0]
    for rows in (B, dependent, np.array(BinaryCode(6, stragglers=1).matrix())):
        rule = LinearCode(rows, wait=6).scheme.rule.rule
        numbers = rule.spare()
        assert np.abs(numbers[:, 0]).max() == pytest.approx(1)
        free = np.where(np.abs(numbers[:, 1:]) < 1e-12, 0, numbers[:, 1:])
        np.testing.assert_allclose(free.T @ free, np.eye(free.shape[1]), atol=1e-12)
        for f in range(1, 6):
            for lost in map(list, combinations(range(6), f)):
                first, others = numbers[lost, 0], free[lost]
                y = np.linalg.lstsq(others, first)[0]
                alike = np.linalg.norm(others @ y - first) < 1e-9
                assert alike == (rule.missing(np.setdiff1d(np.arange(6), lost)) == 0)


@pytest.mark.parametrize(
    "code",
    [
        LinearCode(ReedSolomon(7, stragglers=3).matrix(), wait=6),
        LinearCode(ReedSolomon(7, stragglers=3).matrix(), wait=6, packed=False),
        LinearCode(BinaryCode(6, stragglers=1).matrix(), wait=6),
    ],
    ids=["complex", "real parts", "real"],
)
def test_turned_says_of_every_set_whether_it_suffices(code):
    """By least squares: the first column, over the rows of a set, is no sum of the others."""
    rule = code.scheme.rule.rule
    rows = rule.turned().reshape(code.n, -1, rule.turned().shape[1])
    np.testing.assert_allclose((rows**2).sum(axis=(1, 2)), 1)
    for f in range(1, code.n + 1):
        for came in map(list, combinations(range(code.n), f)):
            own = rows[came].reshape(-1, rows.shape[2])
            first, others = own[:, 0], own[:, 1:]
            alike = np.linalg.norm(others @ np.linalg.lstsq(others, first)[0] - first) < 1e-9
            assert alike == (rule.missing(np.array(came)) > 0)


def test_spare_of_what_cannot_be_told():
    def spare(B):
        return LinearCode(B, wait=1).scheme.rule.rule.spare()

    assert (spare([[1, 0, 1], [0, 1, 1]]) == 1).all()  # none can be spared
    assert spare([[1, 1j], [1, 1]]).shape == (4, 1)  # two rows for each complex message
    assert spare([[1, 1], [1, 1 + 1e-6]]) is None  # the rank is unclear
    assert spare([[1, 1], [1, 1 + 1e-4]]) is not None
    assert spare(np.eye(513)) is None  # too many entries
    assert spare(np.eye(512)) is not None


@pytest.mark.parametrize("code", [*SMALL, *WAITING], ids=repr)
def test_tally_says_when_none_is_missing(code):
    """In random orders, also again after `reset`, and beyond the message that suffices."""
    rule, rng, count = awaited(code), np.random.default_rng(0), code.scheme.messages.count
    tally = rule.tally()
    for _ in range(6):
        tally.reset()
        order = rng.permutation(count)
        for f, message in enumerate(order.tolist(), 1):
            assert tally.add(message) == (rule.missing(order[:f]) == 0)


@given(data=st.data())
def test_parts_tally_says_whether_rows_span_the_sum(data):
    """Of any graph, with loops and parallel edges, in two rounds; and how many more are needed."""
    vertices = data.draw(st.integers(1, 6))
    vertex = st.integers(0, vertices - 1)
    ends = np.array(data.draw(st.lists(st.tuples(vertex, vertex), min_size=1, max_size=10)))
    rule, rows = Parts(ends, vertices), np.zeros((len(ends), vertices))
    np.add.at(rows, (np.arange(len(ends))[:, None], ends), 1)
    tally = rule.tally()
    for _ in range(2):
        came = []
        for message in data.draw(st.permutations(range(len(ends)))):
            came.append(message)
            found = np.linalg.lstsq(rows[came].T, np.ones(vertices), rcond=None)[0]
            spanned = bool(np.allclose(found @ rows[came], 1, atol=1e-9))
            assert tally.add(message) == spanned
            assert (rule.missing(np.array(came)) == 0) == spanned
        tally.reset()
        assert tally.lacking > 0


@given(data=st.data())
def test_tiling_tally_says_when_none_is_missing(data):
    """Of any intervals, in two rounds."""
    k = data.draw(st.integers(1, 6))
    ends = st.tuples(st.integers(0, k), st.integers(0, k))
    start, stop = np.array(data.draw(st.lists(ends, min_size=1, max_size=10))).T
    whole = Tiling(np.append(start, 0), np.append(stop, k), k)  # all messages suffice
    tally = whole.tally()
    for _ in range(2):
        order = np.array(data.draw(st.permutations(range(whole.start.size))))
        for f, message in enumerate(order.tolist(), 1):
            assert tally.add(message) == (whole.missing(order[:f]) == 0)
        tally.reset()
