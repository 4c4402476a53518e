"""Users' delay models: any object with `sample` works wherever a delay model does."""

import importlib.util
import inspect
import json
import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
import programs
import pytest

import fastgc
from fastgc import delays, planning, simulation
from fastgc.delays import Distribution, Exponential, Heterogeneous, Mixture, Pareto, parse
from fastgc.delays.interface import described, sample, tails
from fastgc.delays.text import MODELS, others
from fastgc.engines import LocalCluster, SimulatedCluster


class Weibull:
    """A delay model without a repr and without a base."""

    def __init__(self, shape, scale=0.01):
        self.shape, self.scale = shape, scale

    def sample(self, round, workers, seed):
        rng = np.random.default_rng((seed, round))
        return (self.scale * rng.weibull(self.shape, workers)).tolist()


class Uniform(Distribution):
    """A distribution that does not define its tails."""

    def __init__(self, width: float, per="round"):
        self.width, self.per = width, per

    def cdf(self, t):
        return np.clip(np.asarray(t) / self.width, 0, 1)

    def survival(self, t):
        return 1 - self.cdf(t)

    def quantile(self, q):
        return self.width * np.asarray(q, dtype=float)


# A user's file: a model that can be sampled, and a distribution.
MODULE = f"""
import numpy as np
from fastgc.delays import Distribution

{inspect.getsource(Weibull)}

{inspect.getsource(Uniform)}

class Useless:
    def __init__(self, size=1):
        self.size = size

def no_model():
    return None
"""


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """Write this file as a module that can be imported."""
    (tmp_path / "strangers_delays.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "strangers_delays", raising=False)
    yield importlib.import_module("strangers_delays")
    sys.modules.pop("strangers_delays", None)


@pytest.fixture
def registry(monkeypatch):
    """Have no installed package offer models."""
    monkeypatch.setattr(MODELS, "_offered", {})


class Told(Weibull):
    """The same, with everything that a model may define."""

    per = "computation"

    def tail_indices(self, workers):
        return [math.inf] * workers

    def draw(self, rng, rounds, workers):
        return [[self.scale] * workers] * rounds

    def __repr__(self):
        return "Told()"


def digits_of(n):
    X = np.random.default_rng(0).standard_normal((8 * n, 3))
    y = np.arange(8 * n) % 2
    return fastgc.data.Dataset("toy", X, y, X[:8], y[:8])


# ----------------------------------------------------------------------------------- what is asked


def test_one_method_is_enough():
    model = Weibull(0.7)
    code = fastgc.ReedSolomon(5, stragglers=1)
    found = simulation.simulate(code, model, rounds=50, seed=3)
    drawn = np.array([model.sample(r, 5, 3) for r in range(50)])
    np.testing.assert_allclose(found.times, np.sort(drawn)[:, 3])
    for method in ("kernel", "round"):
        again = simulation.simulate(code, model, rounds=50, seed=3, method=method)
        np.testing.assert_allclose(again.times, found.times)


def test_what_else_a_model_has_is_used():
    found = simulation.simulate(fastgc.Uncoded(4, 8), Told(0.7), rounds=3)
    np.testing.assert_allclose(found.times, 2 * 0.01)  # by `draw`, for each of two computations
    assert found.mean_exists is True


def test_engines_wait_as_a_stranger_says():
    model = Weibull(0.7, scale=0.05)
    code = fastgc.ReedSolomon(3, stragglers=1)
    times = [sorted(model.sample(r, 3, 7)) for r in range(3)]
    out = np.empty(2)
    engine = partial(SimulatedCluster, delays=model, seed=7)
    with engine(code, [1.0, 2.0, 3.0], np.multiply, 2) as cluster:
        for r in range(3):
            assert cluster.step(np.ones(2), out).wait_seconds == pytest.approx(times[r][1])
    with LocalCluster(code, [1.0, 2.0, 3.0], np.multiply, 2, delays=model, seed=7) as cluster:
        report = cluster.step(np.ones(2), out)
    assert report.wait_seconds >= times[0][1]
    np.testing.assert_allclose(out, 6.0)


def test_plans_are_made_for_strangers():
    found = planning.plan(6, Weibull(0.7), cost=1e-3, codes=["rs", "uncoded"], rounds=50)
    assert {choice.name for choice in found.choices} == {"rs", "uncoded"}
    assert all(choice.simulation.mean_exists is None for choice in found.choices)
    told = planning.plan(6, Told(0.7), cost=1e-3, codes=["uncoded"], rounds=50)
    assert told.best.simulation.mean_exists is True


def test_training_and_checkpoints_say_which_stranger(tmp_path):
    def train(model):
        return fastgc.train(
            fastgc.Uncoded(3),
            digits_of(3),
            rounds=2,
            delays=model,
            engine="simulated",
            checkpoint=tmp_path / "run",
        )

    history = train(Weibull(0.7))
    assert history.delays.endswith("Weibull(shape=0.7, scale=0.01)")
    assert len(train(Weibull(0.7)).rounds) == 2  # another object of the same model
    with pytest.raises(fastgc.CheckpointError, match=r"delays: .*shape=0.7.* -> .*shape=0.8"):
        train(Weibull(0.8))


def test_words_for_models():
    class Silent:
        def __init__(self, hidden):
            self._hidden = hidden

    assert described(None) == "None"
    assert described(Pareto(1, 2)) == repr(Pareto(1, 2))
    assert described(Told(3)) == "Told()"
    assert described(Weibull(3)).endswith(".Weibull(shape=3, scale=0.01)")
    assert described(Silent(3)).endswith("Silent object>")
    assert " at 0x" not in described(Silent(3))


# ---------------------------------------------------------------------------------------- unknown


def test_whether_means_exist_is_unknown_without_tails():
    code = fastgc.ReedSolomon(5, stragglers=1)
    run = partial(simulation.simulate, rounds=5)
    assert run(code, Weibull(0.7)).mean_exists is None
    assert run(code, Uniform(1.0)).mean_exists is None
    assert run(code, Weibull(0.7), interrupted=False).mean_exists is None
    assert run(code, Pareto(1, 1.5)).mean_exists is True
    assert run(code, None).mean_exists is True
    assert np.isnan(tails(Weibull(0.7), 3)).all()
    mixed = Mixture([Uniform(1.0), Exponential(1.0)], [0.5, 0.5])
    assert run(code, mixed).mean_exists is None


def test_what_is_known_of_some_workers_may_be_enough():
    code, run = fastgc.ReedSolomon(3, stragglers=1), partial(simulation.simulate, rounds=5)
    two = Heterogeneous([Uniform(1.0), Pareto(1, 1.5), Pareto(1, 1.2)])
    assert run(code, two).mean_exists is True  # one known tail beside the unknown suffices
    assert run(code, two, interrupted=False).mean_exists is True
    one = Heterogeneous([Uniform(1.0), Pareto(1, 0.9), Pareto(1, 9.0)])
    assert run(code, one).mean_exists is None
    with pytest.raises(ValueError, match="does not exist"):
        run(code, Heterogeneous([Uniform(1.0), Pareto(1, 0.4), Pareto(1, 0.4)]))
    with pytest.raises(ValueError, match="does not exist if workers finish"):
        run(
            code,
            Heterogeneous([Uniform(1.0), Pareto(1, 0.9), Pareto(1, 0.9)]),
            interrupted=False,
        )


def test_means_of_unknown_tails_are_not_guessed():
    model = Uniform(2.0)
    np.testing.assert_array_equal(model.quantile([0, 0.5]), [0, 1])
    for mean in (model.mean, lambda: model.order_statistic_mean(2, 3)):
        with pytest.raises(ValueError, match=r"exists is unknown under .*tail_indices"):
            mean()
    model.tail_indices = lambda workers: np.full(workers, math.inf)
    assert model.mean() == pytest.approx(1.0)
    assert model.order_statistic_mean(2, 3) == pytest.approx(1.0)


def test_what_is_known_of_some_may_be_enough_for_means():
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


@pytest.mark.parametrize(
    "use",
    [
        lambda model: simulation.threshold_mean(4, 3, model, 2),
        lambda model: planning.optimal_threshold(4, model, 1.0),
    ],
)
def test_closed_forms_need_a_distribution(use):
    with pytest.raises(TypeError, match=r"such as Pareto, not .*, which can only be simulated"):
        use(Weibull(0.7))


# ---------------------------------------------------------------------------------------- refused


def model_of(times, **attributes):
    return type("Model", (), {"sample": lambda self, *_: times, **attributes})()


@pytest.mark.parametrize(
    ("times", "error", "message"),
    [
        ([0.0, 1.0], ValueError, r"shape \(3,\), got \(2,\) from .*Model"),
        (0.0, ValueError, r"shape \(3,\), got \(\)"),
        ([0.0, -1.0, 0.0], ValueError, "not be negative or NaN"),
        ([0.0, math.nan, 0.0], ValueError, "not be negative or NaN"),
        (["a", "b", "c"], TypeError, "real numbers"),
        ([None] * 3, TypeError, "real numbers"),
        ([1j] * 3, TypeError, "real numbers"),
    ],
)
def test_what_strangers_sample_is_checked(times, error, message):
    with pytest.raises(error, match=message):
        sample(model_of(times), 0, 3, 0)
    engine = partial(SimulatedCluster, fastgc.Uncoded(3), [1.0] * 3, np.multiply, 1)
    with engine(delays=model_of(times)) as cluster, pytest.raises(error, match=message):
        cluster.step(np.ones(1), np.empty(1))
    with pytest.raises(error, match=message):
        simulation.simulate(fastgc.Uncoded(3), model_of(times), rounds=2)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (3.0, TypeError, r"have a method sample\(round, workers, seed\)"),
        (Weibull, TypeError, "method sample.*, not <class"),  # a class, not an instance
        (model_of([0.0] * 3, sample=3), TypeError, "method sample"),
        (model_of([0.0] * 3, per="day"), ValueError, "per must be 'round' or 'computation'"),
    ],
)
def test_what_is_no_model_is_refused_before_anything_starts(model, error, message, monkeypatch):
    monkeypatch.setattr(LocalCluster, "_open", None)  # it would start processes
    code = fastgc.Uncoded(3)
    for use in (
        lambda: simulation.simulate(code, model),
        lambda: planning.plan(3, model),
        lambda: SimulatedCluster(code, [1.0] * 3, np.multiply, 1, delays=model),
        lambda: LocalCluster(code, [1.0] * 3, np.multiply, 1, delays=model),
        lambda: fastgc.train(code, digits_of(3), delays=model),
    ):
        with pytest.raises(error, match=message):
            use()


def test_tails_of_strangers_are_checked():
    for wrong in ([1.0, 2.0], [1.0, 2.0, -3.0]):
        with pytest.raises(ValueError, match="tail_indices must give 3 exponents"):
            tails(model_of([0.0] * 3, tail_indices=lambda self, n, wrong=wrong: wrong), 3)


# ------------------------------------------------------------------------------------------ texts


def test_registered_models_are_read_by_name(registry):
    delays.register("weibull", Weibull)
    model = parse(" Weibull : shape = 0.7 , SCALE=2")
    assert (type(model), model.shape, model.scale) == (Weibull, 0.7, 2)
    assert others() == ["weibull"]
    with pytest.raises(ValueError, match="takes shape, once each, and scale; got 'size=3'"):
        parse("weibull:shape=1,size=3")
    with pytest.raises(ValueError, match="'weibull': shape missing"):
        parse("weibull")
    with pytest.raises(ValueError, match=r"unknown delay model 'gauss'.*also known: weibull"):
        parse("gauss")
    with pytest.raises(ValueError, match="registered already"):
        delays.register("weibull", Told)
    delays.register("weibull", Told, replace=True)
    assert type(parse("weibull:shape=1")) is Told


def test_none_is_no_name(registry):
    with pytest.raises(ValueError, match="it means no delays"):
        delays.register("none", Weibull)
    with pytest.raises(ValueError, match="registered already"):
        delays.register("pareto", Weibull)


def test_classes_are_read_by_their_module(strangers):
    model = parse("strangers_delays:Weibull:shape=0.7")
    assert type(model) is strangers.Weibull
    assert (model.shape, model.scale) == (0.7, 0.01)
    uniform = parse("strangers_delays:Uniform:width=3,per=Computation")
    assert (uniform.width, uniform.per) == (3.0, "computation")


def test_distributions_of_strangers_mix(strangers):
    mixed = parse("0.9*strangers_delays:Uniform:width=3 + 0.1*exponential:mean=9")
    assert type(mixed) is Mixture
    assert type(mixed.models[0]) is strangers.Uniform
    assert mixed.sample(0, 4, 1).shape == (4,)
    unlike = parse("2 of strangers_delays:Uniform:width=3; 1 of exponential:mean=9")
    assert [type(each) for each in unlike.models] == [strangers.Uniform] * 2 + [Exponential]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("0.5*strangers_delays:Weibull:shape=1 + 0.5*exponential:mean=1", ValueError, "mixtures"),
        (
            "3 of strangers_delays:Weibull:shape=1",
            ValueError,
            "Weibull:shape=1' .*that differ need",
        ),
        ("strangers_delays:Weibull", ValueError, "shape missing; it takes shape, once each"),
        ("strangers_delays:Weibull:shape", ValueError, "takes shape, .*got 'shape'"),
        ("strangers_delays:Uniform:width=wide", ValueError, "width must be a number, not 'wide'"),
        ("strangers_delays:Uniform:width=1,per=day", ValueError, "per must be 'round' or"),
        ("strangers_delays:Useless", ValueError, "'strangers_delays:Useless': .*method sample"),
        ("strangers_delays:no_model", ValueError, "returned None instead of a model"),
        ("strangers_delays:Missing", ImportError, "'strangers_delays' has no 'Missing'"),
        ("nowhere_at_all:Weibull:shape=1", ValueError, "no module 'nowhere_at_all'"),
    ],
)
def test_texts_of_strangers_refused(text, error, message, strangers):
    with pytest.raises(error, match=message):
        parse(text)


def test_installed_packages_offer_models(tmp_path, monkeypatch, strangers):
    info = tmp_path / "strange_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange_models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fastgc.delays]\noffered = strangers_delays:Weibull\nbroken = strangers_delays:Nothing\n"
    )
    monkeypatch.setattr(MODELS, "_offered", None)
    importlib.invalidate_caches()
    assert others() == ["broken", "offered"]
    assert type(parse("offered:shape=1")) is strangers.Weibull
    assert type(parse("pareto:scale=1,shape=2")) is Pareto
    with pytest.raises(ImportError, match=r"'broken'.*'strangers_delays:Nothing'.*strange_models"):
        parse("broken:shape=1")


# ------------------------------------------------------------------------------- the command line


def command(*arguments, folder, module=False):
    """Run the installed command: like scripts, without the working directory on the path."""
    script = Path(sys.executable).parent / "fastgc"
    if not module and not script.exists():
        pytest.skip("the command is not installed beside this Python")
    start = [sys.executable, "-m", "fastgc"] if module else [str(script)]
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": None}
    return programs.run([*start, *arguments], status=None, folder=folder, env=environment)


@pytest.mark.skipif(importlib.util.find_spec("typer") is None, reason="needs typer")
def test_commands_take_strangers_of_the_current_folder(tmp_path):
    (tmp_path / "strangers_delays.py").write_text(MODULE)
    model = "strangers_delays:Weibull:shape=0.7"
    done = command(
        "simulate", "rs,uncoded", "-n", "4", "--delays", model, "--json", "--rounds", "20",
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["rs"]["mean_exists"] is None
    unknown = "mean time of rs, uncoded may not exist: strangers_delays.Weibull(shape=0.7"
    assert unknown in done.stderr
    done = command("simulate", "rs", "-n", "4", "--delays", "nowhere:X", folder=tmp_path)
    assert done.returncode == 2
    assert "fastgc: unknown delay model 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("typer") is None, reason="needs typer")
def test_help_lists_what_others_added(registry, monkeypatch):
    from typer.testing import CliRunner

    from fastgc.cli import app
    from fastgc.codes import catalogue

    def shown(name):
        text = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
        return " ".join(text.replace("│", " ").split())

    assert "{" not in shown("simulate")
    delays.register("weibull", Weibull)
    for name in ("simulate", "plan", "train"):
        assert "also known: weibull" in shown(name)
    monkeypatch.setattr(catalogue._REGISTRY, "_offered", {})
    fastgc.codes.register("mine", fastgc.Uncoded)
    assert "also known: mine." in shown("train")
