"""Random delays of simulated rounds: numbers are SplitMix64's, and times follow their laws."""

import math

import numpy as np
import oracles
import pytest
from oracles.rounds import splitmix
from strength import much

import fastgc
from fastgc import ReedSolomon, Uncoded, kernels
from fastgc.delays import Empirical, Exponential, Heterogeneous, Mixture, Pareto, ShiftedExponential
from fastgc.planning.simulation import simulate
from fastgc.planning.simulation.monte_carlo import kernel_rule, law_of
from fastgc.planning.simulation.rounds import Conditions, Kernel, drawn

MASK = (1 << 64) - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key_of(number):
    """Return the key whose first random number is `number`."""

    def unshifted(z, by):
        x = z
        for _ in range(64 // by):
            x = z ^ x >> by
        return x

    z = unshifted(number, 31) * pow(SECOND, -1, 1 << 64) & MASK
    z = unshifted(z, 27) * pow(FIRST, -1, 1 << 64) & MASK
    return unshifted(z, 30) - STEP & MASK


def test_the_generator_of_these_tests():
    # Other implementations are checked with these numbers of seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix(np.uint64(1234567), 0, 3).tolist() == expected
    for number in (*expected, 0, 1, MASK):
        assert splitmix(np.uint64(key_of(number)), 0, 1).tolist() == [number]


def plan_of(n, key=5, onset=1.0, shift=0.0, scale=1.0, power=0.0, load=0.0, work=0.0):
    each = (np.broadcast_to(x, n).astype(float) for x in (shift, scale, power, load, work))
    return kernels.rounds.DelayPlan.of(np.uint64(key), onset, *each)


@pytest.mark.parametrize(
    "number",
    [0, 1, 0xFFF, 0x1000, MASK, MASK - 0x1000, 1 << 63, (1 << 63) - 1, 0x4AFB0CCC06219 << 12],
)
def test_the_ends_of_the_range(number, at_each_level):
    """The first random number is a given one, such as those nearest to 0, 1 and 1 - sqrt(1/2)."""
    for power in (0.0, 1 / 1.5, 18.0):
        plan = plan_of(1, key_of(number), power=power)
        with oracles.instead():
            true = drawn(plan, 0, 1)[0]
        for _ in at_each_level():
            found = drawn(plan, 0, 1)[0]
            np.testing.assert_allclose(found, true, rtol=1e-15 * (1 + 40 * power))
            assert np.isfinite(found).all()
            assert (found > 0).all()


LAWS = [
    Exponential(0.3),
    ShiftedExponential(0.5, 4.0, per="round"),
    Pareto(0.2, 1.5),
    Pareto(0.2, 40.0),
]


def test_simulated_rounds_do_not_depend_on_how_they_are_cut(at_each_level):
    """Kernels draw a few rounds at a time; results are those of all rounds at once."""
    n, rounds = 20, much(700, 150)
    run = Kernel(kernel_rule(ReedSolomon(n, stragglers=4)))
    random = plan_of(n, scale=0.1, work=0.01)
    given = random._replace(given=np.random.default_rng(0).random((rounds, n)))
    for plan in (random, given, given._replace(whole=given.given[::-1].copy())):
        for interrupted in (True, False):
            how = Conditions(0.0, 0.05, interrupted)
            whole = run(plan, 0, rounds, np.zeros(n), how)
            for _ in at_each_level():
                late = np.zeros(n)
                cuts = range(0, rounds, 9)
                parts = [run(plan, at, min(9, rounds - at), late, how) for at in cuts]
                for cut, true in zip(zip(*parts, strict=True), whole, strict=True):
                    np.testing.assert_array_equal(np.concatenate(cut), true)


class Slower(Pareto):
    """A subclass of a known law, whose own `draw` must be used."""

    def _draw(self, rng, rounds, workers):
        return 2 * super()._draw(rng, rounds, workers)


def test_which_laws_are_known():
    assert law_of(None, 3).scale.tolist() == [0, 0, 0]
    both = law_of(Heterogeneous([Exponential(2.0), Pareto(3.0, 4.0)]), 2)
    assert both.shift.tolist() == [0, 0]
    assert both.scale.tolist() == [2, 3]
    assert both.power.tolist() == [0, 0.25]
    assert law_of(ShiftedExponential(1.0, 4.0), 1) == (1, 0.25, 0)
    unknown = [
        Slower(1.0, 2.0),
        Empirical([1.0, 2.0]),
        Mixture([Exponential(1.0), Exponential(2.0)], [0.5, 0.5]),
        Heterogeneous([Exponential(1.0), Slower(1.0, 2.0)]),
        Pareto(1.0, 0.05),  # up to e^740
        Pareto(1e300, 1.5),  # up to 1e310
        Exponential(1e308),
    ]
    for model in unknown:
        assert law_of(model, 2) is None
    assert law_of(Pareto(1.0, 0.06), 2) is not None


def test_what_the_kernels_draw_is_what_models_draw():
    """Compiled draws and the model's own have the same distribution of times."""
    stats = pytest.importorskip("scipy.stats")

    class Same:
        def __init__(self, model):
            self.draw, self.sample, self.per = model.draw, model.sample, model.per
            self.tail_indices = model.tail_indices

    code = ReedSolomon(13, stragglers=4)
    for seed, model in enumerate([*LAWS, ShiftedExponential(0.1, 2.0)]):
        settings = {"cost": 0.01, "rounds": much(4000, 2000), "seed": seed}
        ours, theirs = (simulate(code, each, **settings) for each in (model, Same(model)))
        assert stats.ks_2samp(ours.times, theirs.times).pvalue > 1e-3
        assert stats.ks_2samp(ours.computations, theirs.computations).pvalue > 1e-3
        assert (ours.workers == 9).all()


def test_ties_are_fair():
    """Of workers that answer at the same time, each is first equally often."""
    n, rounds = 6, much(6000, 3000)

    class Slow:
        """A delay model: one worker is late, and the others come at the same moment."""

        def sample(self, round, workers, seed):
            return np.array([2.0] + [1.0] * (workers - 1))

    # The number of messages until all three batches have come, each held by two workers.
    code = fastgc.FractionalRepetition(n, stragglers=1)
    run = simulate(code, None, cost=1.0, rounds=rounds)
    # The mean number of draws without replacement until each of three pairs has come.
    expected = 7 * (3 / 3 - 3 / 5 + 1 / 7)
    error = run.workers.std() / math.sqrt(rounds)
    assert abs(run.mean_workers - expected) < 4 * error
    late = simulate(Uncoded(n), Slow(), rounds=50)
    assert (late.workers == n).all()


def test_seeds_and_threads(split_over):
    code = fastgc.BinaryCode(9, stragglers=2)
    for late in (Pareto(1.0, 2.0), Empirical(np.random.default_rng(0).random(2000))):
        found = []
        for count in (1, 2, 3):
            split_over(count)
            found.append(simulate(code, late, cost=0.1, rounds=1000, seed=4))
        for other in found[1:]:
            np.testing.assert_array_equal(found[0].times, other.times)
            np.testing.assert_array_equal(found[0].computations, other.computations)
        assert (simulate(code, late, rounds=1000, seed=5).times != found[0].times).all()
