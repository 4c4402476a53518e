"""Delay models as text: how texts are read, and what errors say."""

import re

import numpy as np
import pytest
import strangers_delays
from hypothesis import given, settings
from hypothesis import strategies as st
from strangers_delays import Uniform, Weibull

from fastgc import delays
from fastgc.delays import (
    Empirical,
    Exponential,
    Heterogeneous,
    Mixture,
    Pareto,
    ShiftedExponential,
    parse,
)
from fastgc.delays.text import COMMON, FORMS, MODELS, others, written

NUMBERS = st.floats(1e-300, 1e300)


@settings(deadline=None)
@given(a=NUMBERS, b=NUMBERS, per=st.sampled_from(["round", "computation"]))
def test_parse_what_repr_writes(a, b, per):
    for text, model in (
        (f"pareto:scale={a!r},shape={b!r}", Pareto(a, b, per)),
        (f"shifted-exponential:shift={a!r},rate={b!r}", ShiftedExponential(a, b, per)),
        (f"exponential:mean={a!r}", Exponential(a, per)),
    ):
        assert eval(repr(model)) == model
        assert parse(f"{text},per={per}") == model
        mixed = parse(f"0.25*{text},per={per}+7.5e-1*{text},per={per}")
        assert mixed == Mixture([model, model], [0.25, 0.75])
        assert parse(f"2 of {text},per={per}") == Heterogeneous([model, model])


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (" None ", None),
        (" Pareto : shape = 1.1 , scale = 1e-2 ", Pareto(0.01, 1.1)),
        ("shifted-exponential:shift=0,rate=1e+3", ShiftedExponential(0, 1000)),
        ("PARETO:Scale=0.01,SHAPE=1.1,Per=Computation", Pareto(0.01, 1.1, "computation")),
        ("shifted-exponential:shift=0,rate=2, per = round", ShiftedExponential(0, 2, "round")),
        ("1*exponential:mean=3", Mixture([Exponential(3)], [1])),
        (
            "0.9 * pareto:scale=1e+3,shape=2 + 1E-1 * exponential:mean=1e+2",
            Mixture([Pareto(1000, 2), Exponential(100)], [0.9, 0.1]),
        ),
        (
            "2 OF shifted-exponential:shift=20,rate=1; 1 of shifted-exponential:shift=20,rate=20",
            Heterogeneous([ShiftedExponential(20, 1)] * 2 + [ShiftedExponential(20, 20)]),
        ),
        (
            "1 of exponential:mean=1;2 of 0.5*exponential:mean=1+0.5*exponential:mean=9",
            Heterogeneous(
                [Exponential(1)] + [Mixture([Exponential(1), Exponential(9)], [0.5, 0.5])] * 2
            ),
        ),
    ],
)
def test_parse(text, model):
    assert parse(text) == model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty: expected none, .pareto: scale"),
        ("gauss:mean=1", "'gauss:mean=1': expected none, .pareto"),
        ("none:scale=1", "unknown delay model 'none:scale=1'"),
        ("exponental:mean=1", "'exponental:mean=1': did you mean 'exponential'. Else write none, "),
        ("pareto:scale=1", "'pareto:scale=1' needs shape=VALUE"),  # as `read_arguments` says
        ("pareto:scale=1,shape=-1", "shape must .*not -1.0"),
        ("exponential:mean=1,per=day", "per must .*got 'day'"),
        ("exponential:mean=1 + 0.1*exponential:mean=9", "a mixture is written as in '0.9"),
        ("0.5.*exponential:mean=1 + 0.5*exponential:mean=9", "a weight must be a number"),
        ("0.5*none + 0.5*exponential:mean=9", "unknown delay model 'none'"),
        ("3 of exponential:mean=1; exponential:mean=2", "are listed as in '95 of exponential"),
        ("1000001 of exponential:mean=1", "at most 1000000 workers in all"),
        ("999999 of exponential:mean=1;2 of exponential:mean=2", "'2 of .*at most 1000000 workers"),
        (f"{'9' * 5000} of exponential:mean=1", "at most 1000000 workers in all"),
        ("0 of exponential:mean=1", "at least one model is needed"),
        ("empirical:,per=round", "empirical takes a file"),
        ("empirical:times.csv,unit=day", "'empirical:.* unit must .*not 'day'"),
        ("empirical:times.csv,unit=ms,per=round,unit=s", "unit is given twice"),
    ],
)
def test_parse_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_parse_files(tmp_path):
    path = tmp_path / "times,per day.npy"
    times = np.random.default_rng(0).random((5, 3))
    np.save(path, times)
    assert parse(f"empirical:{path}") == Empirical(times)
    assert parse(f"Empirical: {path} , PER = Computation") == Empirical(times, "computation")
    both = parse(f"empirical:{path},unit=MS , per=computation")
    assert both == parse(f"empirical:{path},per=computation,unit=ms")
    assert both == Empirical(times / 1000, "computation")
    with pytest.raises(ValueError, match="got 'day'"):
        parse(f"empirical:{path},per=day")
    np.save(path, -times)
    with pytest.raises(ValueError, match=r"'empirical:.*, column 1: .* \(and 14 more"):
        parse(f"empirical:{path}")
    np.save(path, times[:, 0])
    unlike = parse(f"2 of 0.5*empirical:{path},per=round + 0.5*exponential:mean=1")
    mixed = Mixture([Empirical(times[:, 0]), Exponential(1)], [0.5, 0.5])
    assert unlike == Heterogeneous([mixed, mixed])


def test_parse_refuses_other_types():
    with pytest.raises(TypeError, match="a delay model is a text, not b'none'"):
        parse(b"none")


def test_forms_are_read(tmp_path):
    file = tmp_path / "times.csv"
    file.write_text("1,2\n3,4\n")
    for form, _ in FORMS:
        text = form.replace("MODEL", "exponential:mean=0.01").replace("FILE", str(file))
        text = text.replace("MODULE:CLASS:KEY=VALUE", "fastgc.delays:Exponential:mean=1")
        assert text == "none" or parse(text) is not None
    common = [form.replace(" ", "") for form in re.findall('"(.*?)"', COMMON)]
    assert len(common) == 4
    assert {*common} <= {form for form, _ in FORMS}
    named = {form.partition(":")[0] for form, _ in FORMS}
    assert set(MODELS.names()) <= named  # users' own are listed by `others`


@pytest.mark.parametrize(
    "model",
    [Pareto(0.25, 1.5), ShiftedExponential(0.5, 16.0, per="round"), Exponential(0.125)],
    ids=repr,
)
def test_written_can_be_read(model):
    assert parse(written(model)) == model


def test_written_needs_a_name():
    with pytest.raises(TypeError, match="no text for Empirical"):
        written(Empirical([1.0, 2.0]))


def test_register_by_name():
    delays.register("weibull", Weibull)
    model = parse(" Weibull : shape = 0.7 , SCALE=2")
    assert (type(model), model.shape, model.scale) == (Weibull, 0.7, 2)
    assert others() == ["weibull"]
    with pytest.raises(ValueError, match="'weibull' needs shape=VALUE"):
        parse("weibull")
    with pytest.raises(ValueError, match=r"unknown delay model 'gauss'.*also known: weibull"):
        parse("gauss")
    with pytest.raises(ValueError, match="registered already"):
        delays.register("weibull", Uniform)
    delays.register("weibull", Uniform, replace=True)
    assert type(parse("weibull:width=1")) is Uniform


def test_register_refused():
    with pytest.raises(ValueError, match="it means no delays"):
        delays.register("none", Weibull)
    with pytest.raises(ValueError, match="registered already"):
        delays.register("pareto", Weibull)


def test_parse_classes_of_modules():
    model = parse("strangers_delays:Weibull:shape=0.7")
    assert type(model) is strangers_delays.Weibull
    assert (model.shape, model.scale) == (0.7, 0.01)
    uniform = parse("strangers_delays:Uniform:width=3,per=Computation")
    assert (uniform.width, uniform.per) == (3.0, "computation")


def test_parse_mixtures_of_own_models():
    mixed = parse("0.9*strangers_delays:Uniform:width=3 + 0.1*exponential:mean=9")
    assert type(mixed) is Mixture
    assert type(mixed.models[0]) is strangers_delays.Uniform
    assert mixed.sample(0, 4, 1).shape == (4,)
    unlike = parse("2 of strangers_delays:Uniform:width=3; 1 of exponential:mean=9")
    assert [type(each) for each in unlike.models] == [strangers_delays.Uniform] * 2 + [Exponential]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("0.5*strangers_delays:Weibull:shape=1 + 0.5*exponential:mean=1", ValueError, "mixtures"),
        ("3 of strangers_delays:Weibull:shape=1", ValueError, "Weibull:shape=1' .*that differ"),
        ("strangers_delays:Weibull", ValueError, "needs shape=VALUE; it takes shape"),
        ("strangers_delays:Uniform:width=1,per=day", ValueError, "per must be 'round' or"),
        ("strangers_delays:Useless", ValueError, "'strangers_delays:Useless': .*method sample"),
        ("strangers_delays:no_model", ValueError, "returned None instead of a model"),
    ],
)
def test_parse_own_models_refused(text, error, message):
    with pytest.raises(error, match=message):
        parse(text)
