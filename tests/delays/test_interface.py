"""Users' delay models: any object with `sample` works wherever a delay model does."""

import importlib.util
import json
import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
import programs
import pytest
import strangers_delays
from strangers_delays import Uniform, Weibull
from toys import toy

import fastgc
from fastgc import planning, simulation
from fastgc.delays import Exponential, Heterogeneous, Mixture, Pareto
from fastgc.delays.interface import described, sample, tails
from fastgc.engines import LocalCluster, SimulatedCluster


class Told(Weibull):
    """The same, with everything that a model may define."""

    per = "computation"

    def tail_indices(self, workers):
        return [math.inf] * workers

    def draw(self, rng, rounds, workers):
        return [[self.scale] * workers] * rounds

    def __repr__(self):
        return "Told()"


def test_sample_is_enough():
    model = Weibull(0.7)
    code = fastgc.ReedSolomon(5, stragglers=1)
    drawn = np.array([model.sample(r, 5, 3) for r in range(50)])
    for method in ("auto", "kernel", "round"):
        found = simulation.simulate(code, model, rounds=50, seed=3, method=method)
        np.testing.assert_allclose(found.times, np.sort(drawn)[:, 3])


def test_model_draw_and_tails_are_used():
    found = simulation.simulate(fastgc.Uncoded(4, 8), Told(0.7), rounds=3)
    np.testing.assert_allclose(found.times, 2 * 0.01)  # by `draw`, for each of two computations
    assert found.mean_exists is True


def test_engines_wait_as_a_model_says():
    model = Weibull(0.7, scale=0.05)
    code = fastgc.ReedSolomon(3, stragglers=1)
    times = [sorted(model.sample(r, 3, 7))[1] for r in range(3)]
    simulated, local = (
        partial(kind, code, [1.0, 2.0, 3.0], np.multiply, 2, delays=model, seed=7)
        for kind in (SimulatedCluster, LocalCluster)
    )
    with simulated() as cluster:
        waits = [cluster.step(np.ones(2), np.empty(2)).wait_seconds for _ in range(3)]
    assert waits == pytest.approx(times)
    with local() as cluster:
        assert cluster.step(np.ones(2), np.empty(2)).wait_seconds >= times[0]


def test_described():
    class Silent:
        def __init__(self, hidden):
            self._hidden = hidden

    assert described(None) == "None"
    assert described(Pareto(1, 2)) == repr(Pareto(1, 2))
    assert described(Told(3)) == "Told()"
    assert described(Weibull(3)).endswith(".Weibull(shape=3, scale=0.01)")
    assert described(Silent(3)).endswith("Silent object>")
    assert " at 0x" not in described(Silent(3))
    signless = type("Signless", (Weibull,), {"__signature__": 3})  # no arguments are known
    assert described(signless(3)).endswith("Signless object>")


def test_tails_unknown():
    code = fastgc.ReedSolomon(5, stragglers=1)
    run = partial(simulation.simulate, rounds=5)
    mixed = Mixture([Uniform(1.0), Exponential(1.0)], [0.5, 0.5])
    for model, known in ((Weibull(0.7), None), (mixed, None), (Pareto(1, 1.5), True), (None, True)):
        assert run(code, model).mean_exists is known
    assert run(code, Weibull(0.7), interrupted=False).mean_exists is None
    assert np.isnan(tails(Weibull(0.7), 3)).all()


def test_tail_bounds_known_of_some_workers():
    def exists(*shapes, **options):
        late = Heterogeneous([Uniform(1.0), *(Pareto(1, shape) for shape in shapes)])
        code = fastgc.ReedSolomon(3, stragglers=1)
        return simulation.simulate(code, late, rounds=5, **options).mean_exists

    assert exists(1.5, 1.2) is True  # one known tail beside the unknown suffices
    assert exists(1.5, 1.2, interrupted=False) is True
    assert exists(0.9, 9.0) is None
    with pytest.raises(ValueError, match="does not exist"):
        exists(0.4, 0.4)
    with pytest.raises(ValueError, match="does not exist if workers finish"):
        exists(0.9, 0.9, interrupted=False)


def test_tail_bounds_means_are_not_guessed():
    model = Uniform(2.0)
    np.testing.assert_array_equal(model.quantile([0, 0.5]), [0, 1])
    for mean in (model.mean, lambda: model.order_statistic_mean(2, 3)):
        with pytest.raises(ValueError, match=r"exists is unknown under .*tail_indices"):
            mean()
    model.tail_indices = lambda workers: np.full(workers, math.inf)
    assert model.mean() == pytest.approx(1.0)
    assert model.order_statistic_mean(2, 3) == pytest.approx(1.0)


def test_tail_bounds_known_of_some_means():
    model = Heterogeneous([Uniform(2.0), Pareto(1, 1.5), Pareto(1, 1.2)])
    known = Heterogeneous([Pareto(1, 1.5), Pareto(1, 1.2)])
    assert model.order_statistic_mean(1, 3) < known.order_statistic_mean(1, 2)
    assert model.order_statistic_mean(2, 3) > 1.0  # one known tail beside the unknown suffices
    with pytest.raises(ValueError, match="exists is unknown"):
        model.order_statistic_mean(3, 3)
    with pytest.raises(ValueError, match=r"mean of the 3-th .* does not exist"):
        Heterogeneous([Uniform(2.0), Pareto(1, 1.5), Pareto(1, 0.9)]).order_statistic_mean(3, 3)
    assert simulation.received_mean([1, 1, 1], model, 2) == pytest.approx(
        model.order_statistic_mean(2, 3), rel=1e-9
    )
    with pytest.raises(ValueError, match="whether the mean exists is unknown"):
        simulation.received_mean([1, 1, 1], model, 3)
    found = planning.optimal_threshold(3, model, 0.0)
    assert np.isnan(found.times).tolist() == [False, False, True]
    with pytest.raises(ValueError, match="whether a mean exists is unknown"):
        planning.optimal_threshold(3, Uniform(2.0), 0.0)


def test_check_delays_of_closed_forms():
    for model, told in ((Weibull(0.7), True), (3.0, False)):
        with pytest.raises(TypeError, match="such as Pareto") as refused:
            simulation.threshold_mean(4, 3, model, 2)
        assert ("can only be simulated" in str(refused.value)) == told


def model_of(times, **attributes):
    return type("Model", (), {"sample": lambda self, *_: times, **attributes})()


@pytest.mark.parametrize(
    ("times", "error", "message"),
    [
        ([0.0, 1.0], ValueError, r"shape \(3,\), got \(2,\) from .*Model"),
        ([0.0, -1.0, 0.0], ValueError, "not be negative or NaN"),
        ([0.0, math.nan, 0.0], ValueError, "not be negative or NaN"),
        ([None] * 3, TypeError, "real numbers"),
    ],
)
def test_sample_is_checked(times, error, message):
    with pytest.raises(error, match=message):
        sample(model_of(times), 0, 3, 0)
    engine = partial(SimulatedCluster, fastgc.Uncoded(3), [1.0] * 3, np.multiply, 1)
    with engine(delays=model_of(times)) as cluster, pytest.raises(error, match=message):
        cluster.step(np.ones(1), np.empty(1))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (3.0, TypeError, r"have a method sample\(round, workers, seed\)"),
        (Weibull, TypeError, "method sample.*, not <class"),  # a class, not an instance
        (model_of([0.0] * 3, sample=3), TypeError, "method sample"),
        (model_of([0.0] * 3, per="day"), ValueError, "per must be 'round' or 'computation'"),
    ],
)
def test_check_model_before_anything_starts(model, error, message):
    code = fastgc.Uncoded(3)
    for use in (
        lambda: simulation.simulate(code, model),
        lambda: planning.plan(3, model),
        lambda: SimulatedCluster(code, [1.0] * 3, np.multiply, 1, delays=model),
        lambda: LocalCluster(code, [1.0] * 3, np.multiply, 1, delays=model),
        lambda: fastgc.train(code, toy(), delays=model),
    ):
        with pytest.raises(error, match=message):
            use()


def test_tails_are_checked():
    for wrong in ([1.0, 2.0], [1.0, 2.0, -3.0]):
        with pytest.raises(ValueError, match="tail_indices must give 3 exponents"):
            tails(model_of([0.0] * 3, tail_indices=lambda self, n, wrong=wrong: wrong), 3)
    told = [0.0, math.nan, math.inf]
    found = tails(model_of([0.0] * 3, tail_indices=lambda self, n: told), 3)
    np.testing.assert_array_equal(found, told)


@pytest.mark.skipif(importlib.util.find_spec("typer") is None, reason="needs typer")
def test_commands_take_models_of_the_current_folder(tmp_path):
    script = Path(sys.executable).with_name("fastgc")  # without the folder on the path
    if not script.exists():
        pytest.skip("the command is not installed beside this Python")
    (tmp_path / "own_delays.py").write_text(Path(strangers_delays.__file__).read_text())
    arguments = ["-n", "4", "--delays", "own_delays:Weibull:shape=0.7", "--json", "--rounds", "20"]
    done = programs.run(
        [script, "simulate", "rs,uncoded", *arguments], folder=tmp_path, env={"PYTHONPATH": None}
    )
    figures = json.loads(done.stdout)
    assert figures["rs"]["mean_exists"] is None
    unknown = "mean time of rs, uncoded may not exist: own_delays.Weibull(shape=0.7"
    assert unknown in done.stderr
