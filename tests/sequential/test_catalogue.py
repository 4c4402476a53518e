"""Schemes across rounds by name."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fastgc
from fastgc.sequential import (
    MSGC,
    SRSGC,
    Independent,
    SequentialScheme,
    Tasks,
    compare,
    make,
    names,
)
from fastgc.sequential.catalogue import candidates, describe


def test_make_by_name():
    scheme = make("m-sgc:burst=2,window=3,stragglers=1,code=binary", 5)
    assert isinstance(scheme, MSGC)
    assert (scheme.burst, scheme.window, scheme.stragglers) == (2, 3, 1)
    assert isinstance(scheme.parts[-1], fastgc.BinaryCode)
    assert isinstance(make("SR-SGC:burst=1,window=2,stragglers=2", 4), SRSGC)
    code = make("fractional", 6, stragglers=2)
    assert isinstance(code, Independent)
    assert code.load == 3
    assert names()[:2] == ["sr-sgc", "m-sgc"]
    assert describe("m-sgc:burst=1") == "m-sgc:burst=1 (multiplexed)"
    assert describe("rs") == "rs (Reed-Solomon)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cloud", "unknown code 'cloud'.*across rounds code sr-sgc, m-sgc"),
        ("m-sgc", "burst and window and stragglers missing, as in m-sgc:burst=1"),
        ("m-sgc:rate=1", "there is no 'rate'; it takes burst, window, stragglers, code"),
        ("m-sgc:burst", "burst needs a value, burst=VALUE"),
        ("sr-sgc:burst=2,window=4,stragglers=1", "1 more than a multiple of burst"),
        ("m-sgc:burst=1,window=2,stragglers=1,code=cloud", "unknown code 'cloud'"),
        ("random:load=2", "one message each"),
        ("nowhere:Scheme", "no module 'nowhere'"),
    ],
)
def test_make_refused(text, says):
    with pytest.raises(ValueError, match=says):
        make(text, 4)


def test_candidates_are_tried_within_the_delay():
    for text in ("m-sgc", "sr-sgc"):
        for delay in (1, 2, 3):
            found = candidates(text, 9, delay)
            assert {each.scheme.delay for each in found} == set(range(1, delay + 1))
            again = [make(f"{text}:{_listed(each.found)}", 9) for each in found]
            assert list(map(repr, again)) == [repr(each.scheme) for each in found]
            assert {each.found["stragglers"] for each in found} >= {1, 9}
    assert {each.found["stragglers"] for each in candidates("rs", 9, 0)} == {0, 1, 2, 3, 4, 6, 8}
    assert [each.found for each in candidates("uncoded", 9, 0)] == [{}]
    fixed = candidates("m-sgc:burst=1,code=binary", 9, 3)
    assert {each.scheme.burst for each in fixed} == {1}
    assert {each.scheme.window for each in fixed} == {2, 3, 4}
    assert all("burst" not in each.found for each in fixed)
    with pytest.raises(ValueError, match="done 2 rounds after it begins, and 1 are allowed"):
        candidates("m-sgc:burst=1,window=3,stragglers=1", 4, 1)
    with pytest.raises(ValueError, match="with jobs done 1 rounds after they begin, none is such"):
        candidates("m-sgc:burst=3", 4, 1)
    with pytest.raises(ValueError, match="leaves part of the gradient out"):
        candidates("ignore", 4, 1)


def test_candidates_without_those_that_are_none():
    """A code of repetition exists where the stragglers and one more divide the workers."""
    found = candidates("m-sgc:burst=1,window=2,code=fractional", 6, 1)
    assert [each.found for each in found] == [{"stragglers": s} for s in (1, 2, 6)]
    with pytest.raises(ValueError, match=r"stragglers=3', of 6 workers: .*s \+ 1 = 4"):
        candidates("m-sgc:burst=1,window=2,code=fractional,stragglers=3", 6, 1)


def _listed(found):
    return ",".join(f"{key}={value}" for key, value in found.items())


class Slow(SequentialScheme):
    """Each job in the round after it began."""

    def __init__(self, n, pause=1):
        self.n, self.pause = n, pause
        self._set_parts([fastgc.Uncoded(n)], slots=1, ages=[pause])

    def tasks(self, state, live, silent):
        age = np.full((self.n, 1), self.pause if self.pause in live else -1)
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def tolerable(self, state, live):
        return self.pause not in live or not self.lacks(0, state[self.pause, 0])


def test_make_own_schemes_by_module_and_class(monkeypatch):
    monkeypatch.setitem(sys.modules, "own_scheme", SimpleNamespace(Slow=Slow))
    own = "own_scheme:Slow"
    scheme = make(f"{own}:pause=2", 3)
    assert isinstance(scheme, SequentialScheme)
    assert scheme.delay == 2
    [found] = compare(np.ones((6, 3)), [own], models=3, mu=0)
    assert list(scheme.choices(3, 1)) == [{}]
    assert (found.run.rounds.tolist(), found.text) == ([0.0, 1.0, 1.0, 1.0, 1.0, 1.0], own)
