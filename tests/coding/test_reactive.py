"""Reactive redundancy: others compute failed shares in the same round, and only these."""

import itertools
import math
import time

import numpy as np
import pytest
from remote import DiesOnce
from strength import much

import fastgc
from fastgc.codes import ReactiveRound, Share
from fastgc.coding.reactive import Dues
from fastgc.coding.round import Host
from fastgc.delays import Empirical, Exponential, Mixture, Pareto, ShiftedExponential
from fastgc.engines import LocalCluster
from fastgc.errors import NotDecodableError
from fastgc.planning import plan
from fastgc.planning.simulation import simulate

# ----------------------------------------------------------------------------------------- the rule


class Game:
    """A round of `Dues` that a list of moves drives, one event after another.

    From some event on, workers fall silent: dead, which the master notices, or hung.
    """

    def __init__(self, n, holders):
        self.n = n
        scheme = fastgc.Reactive(n, holders=holders).scheme
        self.holders = [scheme.holders.of(i) for i in range(n)]

    def play(self, moves):
        """Play these moves; return what can happen next, and the shares that came and from whom."""
        dues, now = Dues(self.holders, 1.0), 0.0
        dues.begin(now, asks=True)
        sent, silent, dead, owed, came = set(), set(), set(), [], []
        for kind, worker in moves:
            now += 1e-3
            if kind == "sends":
                sent.add(worker)
                came += [worker] if worker in dues.missing else []
                dues.came(worker, now)
            elif kind == "dies":
                silent.add(worker)
                dead.add(worker)
                dues.dies(worker, now)
            elif kind == "hangs":
                silent.add(worker)
            elif kind == "answers":
                what = next(what for other, what in owed if other == worker)
                owed.remove((worker, what))
                assert worker in self.holders[what.worker]
                if (share := dues.answers(worker, what, now, has=True)) is not None:
                    came.append(share)
            else:
                now = dues.due
                dues.elapse(now)
            for worker, what in dues.questions():
                assert worker in sent - dead
                assert what.worker not in sent
                owed.append((worker, what))
        self.came, self.missing, self.silent = came, dues.missing, silent
        if not dues.missing:
            return []
        alive = [i for i in range(self.n) if i not in silent]
        able = [("sends", i) for i in alive if i not in sent]
        able += [("answers", i) for i in alive if any(other == i for other, _ in owed)]
        able += [("elapses", -1)] if dues.due < math.inf else []
        return able

    def all_rounds(self, spare, moves=()):
        """Play all orders of events of a round in which `spare` workers fail; return the count."""
        able = self.play(moves)
        came, missing, silent = self.came, self.missing, self.silent
        assert len(set(came)) == len(came), f"a share counts twice: {moves}"
        if not missing:
            assert sorted(came) == list(range(self.n))
            return 1
        assert able, f"the round ends without {missing}: {moves}"
        if len(silent) < spare:
            fail = [i for i in range(self.n) if i not in silent]
            able += [(kind, i) for kind in ("dies", "hangs") for i in fail]
        return sum(self.all_rounds(spare, (*moves, move)) for move in able)


def test_every_order_of_failures_ends_with_each_share_once():
    """The claim: up to s workers may die or hang at any moment, even after they were asked."""
    assert Game(2, 2).all_rounds(1) > 20
    assert Game(3, 2).all_rounds(1) > 500
    assert Game(3, 3).all_rounds(much(2, 1)) > 500


def test_a_round_with_more_failures_is_not_always_lost():
    """The failed workers may hold nothing in common."""
    game = Game(4, 2)
    moves = [("dies", 0), ("dies", 2), ("sends", 1), ("sends", 3)]
    assert game.play([*moves, ("answers", 1), ("answers", 3)]) == []
    assert sorted(game.came) == [0, 1, 2, 3]


def test_the_least_makespan_decides_who_is_asked():
    """Neighbours 0 and 1 die: worker 2 holds both shares, worker 3 only that of worker 1."""
    dues = Dues([[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]], 1.0)
    dues.begin(0.0, asks=True)
    for worker in (2, 3, 4):
        dues.came(worker, 0.1)
    dues.elapse(1.0)
    assert dues.questions() == [(2, Share(0)), (3, Share(1))]
    assert dues.questions() == []


def test_a_holder_is_asked_for_one_share_at_a_time_and_for_none_again():
    dues = Dues([[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]], 1.0)
    dues.begin(0.0, asks=True)
    dues.came(2, 0.1)
    dues.elapse(1.0)
    [(worker, what)] = dues.questions()
    assert (worker, what) == (2, Share(0))
    assert dues.answers(2, what, 1.1, has=False) is None  # the worker has lost the share
    [(worker, what)] = dues.questions()
    assert (worker, what) == (2, Share(1))
    assert dues.answers(2, what, 1.2, has=True) == 1
    assert dues.questions() == []  # share 0 is not asked for again
    dues.came(1, 1.3)
    assert dues.questions() == [(1, Share(0))]
    assert dues.missing == {0, 3}

    dues = Dues([[0, 2], [1, 2], [2, 3], [3, 2]], 1.0)  # worker 3 is done, but cannot help
    dues.begin(0.0, asks=True)
    dues.came(2, 0.1)
    dues.came(3, 0.1)
    dues.elapse(1.0)
    [(worker, what)] = dues.questions()
    assert (worker, what) == (2, Share(0))
    dues.answers(2, what, 1.1, has=True)
    assert dues.questions() == [(2, Share(1))]


def test_who_does_not_answer_is_asked_no_more_and_still_counts():
    dues = Dues([[0, 1, 2], [1, 2, 0], [2, 0, 1]], 1.0)
    dues.begin(0.0, asks=True)
    dues.came(1, 0.2)
    dues.came(2, 0.3)
    assert dues.due == 1.0
    dues.elapse(1.0)
    [(first, what)] = dues.questions()
    assert (first, what) == (1, Share(0))
    assert dues.due == 2.0
    dues.elapse(2.0)
    assert dues.questions() == [(2, Share(0))]
    dues.elapse(dues.due)
    assert dues.questions() == []
    assert dues.due == math.inf  # everybody was asked
    assert dues.answers(1, what, 9.0, has=True) == 0  # the first worker answers after all
    assert not dues.missing


def test_the_deadline_follows_recent_rounds():
    """It is twice the median time until all but s shares came, and exists from the first round."""
    dues = Dues([[0, 1], [1, 2], [2, 3], [3, 0]], "auto")
    assert dues.seconds == math.inf
    for number, late in enumerate((1.0, 3.0, 2.0, 50.0)):
        dues.begin(100.0 * number, asks=True)
        before = dues.due
        for worker, seconds in enumerate((0.1, 0.2, late, 60.0)):
            dues.came(worker, 100.0 * number + seconds)
            if worker == 2 and not number:
                assert (before, dues.due) == (math.inf, 2.0)
    dues.begin(0.0, asks=True)
    assert dues.seconds == dues.due == 5.0
    dues.begin(0.0, asks=False)
    assert dues.due == math.inf
    dues.begin(0.0, asks=True, least=7.0)
    assert dues.due == 7.0


@pytest.mark.parametrize(("least", "due"), [(math.inf, 12.0), (7.0, 17.0)])
def test_begin_waits_as_long_as_the_host_says(least, due):
    """Two seconds, as the round before had its second share after one; or longer."""
    rnd = ReactiveRound(fastgc.Reactive(3, holders=2), 1)
    for begun in (0.0, 10.0):
        now = iter([begun, *[begun + 1.0] * 3])
        rnd.reset()
        rnd.begin(Host(clock=lambda now=now: next(now), least_wait=least))
        assert not begun or rnd.due == due
        for worker in range(3):
            rnd.receive(worker, np.ones(1))


# ---------------------------------------------------------------------------------------- the round


def test_a_round_decodes_what_others_computed_to_the_last_bit():
    rng = np.random.default_rng(3)
    code = fastgc.Reactive(5, 11, holders=3)
    g = rng.standard_normal((11, 7))
    messages = [code.encode(i, g[code.partitions(i)]) for i in range(5)]
    plain = code.round(7)
    for worker in range(5):
        plain.receive(worker, messages[worker])
    time = iter(range(1000))
    for failed in itertools.combinations(range(5), 2):
        rnd = ReactiveRound(code, 7)
        rnd.begin(Host(clock=lambda: float(next(time))))
        for worker in failed:
            rnd.straggles(worker)
        for worker in range(5):
            if worker not in failed:
                rnd.receive(worker, messages[worker])
        while questions := rnd.questions():
            for worker, what in questions:
                assert not rnd.ready
                shared = messages[what.worker].copy()
                assert rnd.hear(worker, what, shared).tolist() == [what.worker]
                shared[:] = np.nan  # the worker reuses this memory for its next answer
        assert rnd.ready
        assert rnd.asks == 2
        assert sorted(rnd.survivors.tolist()) == [0, 1, 2, 3, 4]
        again = code.round(7)
        for worker in rnd.survivors.tolist():
            again.receive(worker, messages[worker])
        np.testing.assert_array_equal(rnd.gradient(), again.gradient())
        np.testing.assert_allclose(rnd.gradient(), plain.gradient(), rtol=1e-13)
        assert rnd.wants(failed[0])
        rnd.receive(failed[0], np.full(7, 1e9))  # the failed worker is back, but late
        np.testing.assert_array_equal(rnd.gradient(), again.gradient())


def test_answers_that_do_not_fit_are_none():
    code = fastgc.Reactive(3, holders=3)
    rnd = ReactiveRound(code, 2)
    rnd.begin(Host(clock=lambda: 0.0))
    rnd.straggles(0)
    rnd.receive(1, np.ones(2))
    [(worker, what)] = rnd.questions()
    assert rnd.hear(worker, Share(0), np.ones(2)).size == 0  # an answer from another round
    assert rnd.hear(worker, what, np.ones(3)).size == 0
    assert rnd.questions() == []  # worker 1 is not asked again
    rnd.receive(2, np.ones(2))
    [(worker, what)] = rnd.questions()
    assert (worker, what.worker) == (2, 0)
    with pytest.raises(fastgc.NonFiniteMessageError, match="worker 2"):
        rnd.hear(worker, what, np.array([1.0, np.nan]))


def test_what_a_round_requires():
    code = fastgc.Reactive(4, holders=2)
    rnd = ReactiveRound(code, 1)
    rnd.begin(Host(clock=lambda: 0.0))
    rnd.require(np.array([1, 3]))
    with pytest.raises(NotDecodableError, match=r"partitions of workers \[1\]"):
        rnd.require(np.array([0, 3]))
    rnd.receive(2, np.ones(1))
    rnd.straggles(2)  # its own share has come
    rnd.straggles(1)
    rnd.require(np.array([0, 1, 2, 3]))  # worker 1 is back
    with pytest.raises(NotDecodableError, match=r"partitions of workers \[1\]"):
        rnd.require(np.array([0, 2, 3]))
    rnd.reset()
    rnd.begin(Host(clock=lambda: 0.0, asks=False))
    with pytest.raises(NotDecodableError, match=r"workers \[0, 2\]"):
        rnd.require(np.array([1, 3]))
    with pytest.raises(TypeError, match="hold nothing of what others compute"):
        ReactiveRound(fastgc.Uncoded(3), 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": 4, "holders": 1}, r"holders, .* must be in 2 \.\. n = 4, not 1"),
        ({"n": 4, "holders": 5}, r"must be in 2 \.\. n = 4, not 5"),
        ({"n": 4, "k": 3, "holders": 2}, "k must be at least n=4, not 3"),
        ({"n": 4, "holders": 2, "deadline": 0.0}, "deadline"),
        ({"n": 4, "holders": 2, "deadline": "soon"}, "seconds or \"auto\", not 'soon'"),
    ],
)
def test_parameters_that_do_not_fit(arguments, said):
    with pytest.raises(ValueError, match=said):
        fastgc.Reactive(**arguments)


def test_who_holds_what():
    code = fastgc.Reactive(5, 12, holders=3)
    parts = [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9], [10, 11]]
    assert [code.partitions(i).tolist() for i in range(5)] == parts
    assert code.scheme.holders.held_for == [[3, 4], [0, 4], [0, 1], [1, 2], [2, 3]]
    holders = code.scheme.holders
    assert (code.load, holders.stored, code.stragglers, holders.stand_ins) == (3, 8, 0, 2)
    assert fastgc.Uncoded(3).scheme.holders.stored == 1


# ---------------------------------------------------------------------------------------- engines


@pytest.mark.parametrize("dtype", [None, np.float16])
def test_a_worker_killed_in_a_round_costs_no_round(tmp_path, dtype):
    """A second worker is killed, too, that was asked for the first one's share."""
    code = fastgc.Reactive(4, 8, holders=3)
    shards, out = list(np.arange(1.0, 9.0)), np.empty(5, np.float32)
    orders = {1: [3], 2: [0, 6], 3: [2, 3]}
    gradient = DiesOnce(str(tmp_path))
    options = {"message_dtype": dtype, "patience": 60.0}
    with LocalCluster(code, shards, gradient, 5, np.float32, **options) as cluster:
        for number in range(5):
            for j in orders.get(number, []):
                (tmp_path / f"{number}-{j}").touch()
            report = cluster.step(np.full(5, number + 1.0, np.float32), out)
            np.testing.assert_array_equal(out, 36.0 * (number + 1))
            assert sorted(report.received.tolist()) == [0, 1, 2, 3]
            assert not list(tmp_path.iterdir())
            came = dict(zip(report.received.tolist(), report.arrivals.tolist(), strict=True))
            for share, helper, began in report.stood_in:
                assert share != helper
                assert helper in code.scheme.holders.of(share)
                assert 0 <= began <= came[share]
        end = time.monotonic() + 60
        while report.deaths < 5 and time.monotonic() < end:  # a line may close after the round
            report = cluster.step(np.ones(5, np.float32), out)
        assert report.deaths == 5


# -------------------------------------------------------------------------------- what it costs


def test_without_failures_it_is_uncoded():
    late = ShiftedExponential(shift=1.0, rate=50.0)
    for n in (5, 12):
        reactive = simulate(fastgc.Reactive(n, 2 * n, holders=3), late, cost=0.1, rounds=400)
        uncoded = simulate(fastgc.Uncoded(n, 2 * n), late, cost=0.1, rounds=400)
        np.testing.assert_allclose(reactive.times, uncoded.times, rtol=1e-9)
        assert (reactive.computations == 2 * n).all()
        assert (reactive.messages == n).all()
        coded = simulate(fastgc.ReedSolomon(n, 2 * n, stragglers=2, strict=False), late, cost=0.1)
        assert coded.mean_computations > 2 * 2 * n


def test_recorded_times_are_simulated():
    """A worker that was gone in one of ten rounds costs a deadline and a share in these rounds.

    It costs no deadline if it was gone in the round before as well.
    """
    times = np.full((10, 4), 1.0)
    times[7, 2] = 1000.0
    run = simulate(fastgc.Reactive(4, holders=2), Empirical(times), cost=0.5, rounds=300)
    ordinary = run.times < 2.0
    np.testing.assert_allclose(run.times[ordinary], 1.5)
    before = np.append(False, ~ordinary[:-1])
    np.testing.assert_allclose(run.times[~ordinary & ~before], 2 * 1.5 + 0.5)
    np.testing.assert_allclose(run.times[~ordinary & before], 1.5 + 0.5)
    assert (~ordinary & before).any()
    assert 0.05 < 1 - ordinary.mean() < 0.15
    assert (run.computations[~ordinary] == 4).all()
    assert simulate(fastgc.Uncoded(4), Empirical(times), cost=0.5, rounds=300).mean > 50


def test_the_mean_exists_where_a_share_comes_from_anybody():
    heavy = Pareto(scale=0.1, shape=0.6)
    assert simulate(fastgc.Reactive(6, holders=2), heavy, rounds=10).mean_exists
    with pytest.raises(ValueError, match="mean time of a round does not exist"):
        simulate(fastgc.Uncoded(6), heavy, rounds=10)
    for code, method in (
        (fastgc.Reactive(6, holders=2), "round"),
        (fastgc.Reactive(6, holders=2, deadline=math.inf), "auto"),
    ):
        with pytest.raises(ValueError, match="mean time of a round does not exist"):
            simulate(code, heavy, rounds=10, method=method)


def test_plan_says_reactive_where_deaths_are_rare_and_not_where_workers_are_slow():
    """Workers have room for three shares each, and finish what they are at, as on engines."""
    usual = ShiftedExponential(shift=0.01, rate=1000.0, per="round")
    gone = ShiftedExponential(shift=10.0, rate=1.0, per="round")
    how = {"cost": 0.1, "memory": 3, "interrupted": False, "rounds": much(2000, 500)}
    deaths = plan(12, Mixture([usual, gone], [0.999, 0.001]), **how)
    assert deaths.best.name == "reactive"
    assert deaths.best.simulation.mean_computations < 1.01 * 12
    slow = plan(12, Exponential(0.2), **how)
    assert slow.best.name not in ("reactive", "uncoded")
    times = {each.name: each.wait for each in slow.by_code()}
    assert times["binary"] < times["reactive"] < times["uncoded"]
