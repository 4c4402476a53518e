"""Orders in which messages come."""

import numpy as np
import pytest
from tables import EVERY_SMALL, FEATURES, OUTPUTS

import fastgc
from fastgc.coding import orders
from fastgc.coding.orders import random_arrivals


def test_random_arrivals_of_any_so_many_need_not_hear_each(monkeypatch):
    """They are the same as if each message were checked for being the last."""
    scheme = fastgc.ReedSolomon(12, stragglers=3).scheme
    found = list(random_arrivals(scheme, 20, 4))
    monkeypatch.setattr(type(scheme.gate), "waits", True)
    assert list(random_arrivals(scheme, 20, 4)) == found


@EVERY_SMALL
def test_random_arrivals_end_with_the_message_that_makes_a_round_ready(code):
    """Messages of a worker that sends them together come together, to the last."""
    messages, found = code.scheme.messages, list(random_arrivals(code.scheme, 12, 1))
    rnd = code.round(FEATURES * OUTPUTS)
    for heard in found:
        senders = [messages.sender(m)[0] for m in heard]
        for worker in set(senders):
            sent = [m for m, sender in zip(heard, senders, strict=True) if sender == worker]
            assert sent == list(range(messages.first[worker], messages.first[worker] + len(sent)))
            if messages.together[worker]:
                assert len(sent) == messages.counts[worker]
                at = heard.index(sent[0])
                assert heard[at : at + len(sent)] == sent
        rnd.reset()
        sent = np.ones(rnd.message_size, rnd.form.message_dtype)
        ready = [rnd.receive(sender, sent) for sender in senders]
        last = messages.counts[senders[-1]] if messages.together[senders[-1]] else 1
        assert ready[-1]
        assert not any(ready[:-last])
    assert found == list(random_arrivals(code.scheme, 12, 1))


@pytest.mark.parametrize("part", [1, 3, 4])
def test_random_arrivals_are_equally_likely(part, monkeypatch):
    """Of two workers with two messages each, six orders are; the first two messages tell."""
    monkeypatch.setattr(orders, "_PART", part)
    code = fastgc.Uncoded(2, load=2)
    first = [tuple(heard[:2]) for heard in random_arrivals(code.scheme, 600, 0)]
    for each, share in (((0, 1), 1 / 6), ((0, 2), 1 / 3), ((2, 0), 1 / 3), ((2, 3), 1 / 6)):
        assert abs(first.count(each) - 600 * share) < 5 * (600 * share) ** 0.5


def test_random_arrivals_leave_no_solution_behind():
    """Decoding of these sets takes as long as of any others: `planning.plan` times it."""
    scheme = fastgc.ReedSolomon(60, 20, stragglers=30).scheme
    tally, (heard,) = scheme.rule.tally(), random_arrivals(scheme, 1, 0)
    assert not scheme._kept.solution.cache_info().currsize
    assert [tally.add(message) for message in heard][-1]
    assert scheme._kept.solution.cache_info().currsize
