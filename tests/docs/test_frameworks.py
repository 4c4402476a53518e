"""The page on other frameworks: its claims hold, and its examples work."""

import re
import threading

import numpy as np
import pytest
from examples import ROOT, example, printed

import fastgc
from fastgc import data, engines, optimizers

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import parametrize_with_checks

PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")


# -------------------------------------------------------------------------------- scikit-learn

CodedClassifier = example("coded_estimator").CodedClassifier


@pytest.mark.few(20)
@parametrize_with_checks([CodedClassifier(engine="simulated", rounds=60, random_state=0)])
def test_scikit_learn_takes_it_for_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.long
def test_the_estimators_script():
    share, messages = printed("coded_estimator").splitlines()
    assert float(re.match(r"\S+", share)[0]) > 0.92
    assert re.search(r"with [23] messages in the last step", messages)


def test_an_estimator_goes_on():
    X = np.random.default_rng(0).standard_normal((120, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = CodedClassifier(engine="simulated", random_state=0, partial_rounds=2)
    with pytest.raises(ValueError, match="classes must be given to the first call"):
        model.partial_fit(X, y)
    scores = [
        model.partial_fit(X, y, classes=["no", "yes", "never"]).score(X, y) for _ in range(20)
    ]
    assert scores[0] < 0.9
    assert scores[-1] > 0.95
    assert model.predict_proba(X).shape == (120, 3)
    with pytest.raises(ValueError, match="y holds classes that are not among"):
        model.partial_fit(X, np.where(y == "no", "perhaps", y))
    with pytest.raises(ValueError, match=r"classes are \['no'\] here, and were"):
        model.partial_fit(X, y, classes=["no"])


# ------------------------------------------------------------------------------------- mistakes


class Ours:
    """A newcomer's model, which lacks optional parts."""

    size = 4

    def partial_gradient(self, theta, shard, out):
        out[:] = 0

    def loss(self, theta, X, y):
        return 0.0

    error = loss


def toy():
    X = np.random.default_rng(0).standard_normal((20, 4))
    return data.Dataset("toy", X, np.arange(20) % 2, X[:2], np.arange(2))


def train(**given):
    usual = {"engine": "simulated", "rounds": 4, "model": Ours(), "data": toy()}
    usual["optimizer"] = optimizers.SGD(1.0)
    fastgc.train(fastgc.Uncoded(2), **usual | given)


def step(gradient, engine=engines.SimulatedCluster):
    with engine(fastgc.Uncoded(2), [1.0, 2.0], gradient, 2) as cluster:
        cluster.step(np.zeros(2), np.zeros(2))


class Sunk(Ours):
    """A model whose gradient vanishes only at 0."""

    def partial_gradient(self, theta, shard, out):
        out[:] = theta


MISTAKES = {
    "the gradient is returned": lambda: step(lambda theta, shard, out: theta + shard),
    "a part of `out`": lambda: step(lambda theta, shard, out: out[:1].fill(shard)),
    "a network starts at zero": lambda: train(model=Sunk()),
    "`theta0` of another shape": lambda: train(theta0=np.zeros(3)),
    "`theta0` of another type": lambda: train(theta0=np.zeros(4, complex)),
    "a gradient that cannot be pickled": lambda: step(
        threading.Lock().acquire, engines.LocalCluster
    ),
    "a model of another library": lambda: train(model=object()),
    "an optimizer of another library": lambda: train(optimizer=object()),
    "data of another library": lambda: train(data=(np.zeros((3, 2)), np.zeros(3))),
    "no optimizer": lambda: train(optimizer=None),
}


def rows():
    for line in PAGE.partition("## What is said")[2].splitlines():
        if line.startswith("| ") and not line.startswith(("| what", "| ---")):
            done, said = line.strip("| ").split(" | ")
            yield done, [part.strip() for part in said.split("...")]


@pytest.mark.parametrize("done", MISTAKES)
def test_mistakes_are_told_as_the_page_says(done):
    (said,) = (said for what, said in rows() if what.startswith(done))
    warning = said[0].startswith("a warning: ")
    said = ".*".join(re.escape(part.removeprefix("a warning: ")) for part in said)
    if warning:
        raised = pytest.warns(UserWarning, match=said)
    else:
        raised = pytest.raises((TypeError, ValueError), match=said)
    with raised:
        MISTAKES[done]()


def test_every_row_is_tried():
    elsewhere = {"a class below `if __name__"}  # test_memory.py
    for done, _ in rows():
        assert any(done.startswith(each) for each in {*MISTAKES, *elsewhere}), done
