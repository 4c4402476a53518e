"""Gates: rounds wait for better messages, but for no more workers than must come."""

import numpy as np
import pytest

from fastgc import CyclicRepetition, LagrangeCode, LinearCode, ReedSolomon, Uncoded
from fastgc.coding.gate import Gate


class Doubtful(Gate):
    """Doubts sets of messages."""

    waits = True


def beyond():
    raise OverflowError


def test_no_code_waits_by_itself():
    gate = Gate(ReedSolomon(6, stragglers=2).scheme)
    assert not gate.waits
    assert gate.doubt(np.arange(4), np.ones(4), None) == 0
    assert not gate.awaits_more(np.arange(3))


@pytest.mark.parametrize(
    ("code", "whole", "short"),
    [
        (ReedSolomon(6, stragglers=2), [0, 1, 2, 3], [0, 1, 2]),  # four workers always come
        (Uncoded(2, 4, load=2), [0, 1, 2, 3], [0, 1, 2]),  # the second worker may send one more
        (LinearCode(CyclicRepetition(60, stragglers=5).matrix()), range(60), range(4)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_awaits_more_until_all_workers_came_that_must(code, whole, short):
    gate, whole, short = Doubtful(code.scheme), np.array(whole), np.array(short)
    for doubt in (lambda: 1.0, beyond):
        assert gate.awaits_more(short, doubt)
        assert not gate.awaits_more(whole, doubt)
    many = np.arange(min(5, code.scheme.messages.count))
    assert gate.awaits_more(many, beyond) == (code.n == 60)
    assert not gate.awaits_more(short, lambda: 0.0)


def test_awaits_more_asks_for_the_vector_of_the_scheme():
    scheme = ReedSolomon(6, stragglers=3).scheme
    asked = []

    class Asking(Doubtful):
        def doubt(self, survivors, vector, form):
            asked.append((vector, form))
            return 0.0

    assert not Asking(scheme).awaits_more(np.arange(3))
    np.testing.assert_array_equal(asked[0][0], scheme.vector(np.arange(3)))
    assert asked[0][1] == scheme.format(1, np.float64)


def test_rounds_wait_for_better_messages():
    """Fifteen messages suffice, but decode imprecisely; all of six workers are awaited at most."""
    nodes = np.linspace(-1, 1, 8) + 0.01, np.linspace(-1, 1, 32)
    code = LagrangeCode(8, 8, load=4, messages=4, nodes=nodes)
    rnd, ready = code.round(3), []
    for worker in range(8):
        for _ in range(4):
            rnd.receive(worker, np.ones(3))
            ready.append(rnd.ready)
            assert rnd.decodable == (len(ready) >= 15)
    assert ready.index(True) == 4 * code.scheme.awaited - 1


def test_rounds_doubt_a_set_of_messages_once(monkeypatch):
    code, asked = LagrangeCode(10, 6, load=4, messages=2), []
    gate = type(code.scheme.gate)
    doubt = gate.doubt
    monkeypatch.setattr(gate, "doubt", lambda *of: asked.append(of[1].size) or doubt(*of))
    rnd = code.round(3)
    while not rnd.ready:
        rnd.receive(len(rnd.survivors) // 2, np.ones(3))
    rnd.gradient()
    rnd.gradient()
    assert asked == sorted(set(asked))
    assert asked[-1] == rnd.survivors.size
