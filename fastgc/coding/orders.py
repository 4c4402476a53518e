"""Orders in which messages may come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from .rules import Blocks
from .scheme import Scheme

_PART = 4096  # messages that are made a list at a time: a round may need few of a million


def random_arrivals(scheme: Scheme, trials: int, seed: int) -> Iterator[list[int]]:
    """Yield `trials` random orders of messages, each until it makes a round ready.

    All orders in which each worker's own messages come in order are equally likely. Messages of
    a worker that sends them `together` come one after the other, also beyond the one that suffices.
    """
    rng = np.random.default_rng(seed)
    together, counts = scheme.messages.together, scheme.messages.counts
    senders = np.repeat(np.arange(scheme.n, dtype=np.int32), np.where(together, 1, counts))
    at_once = np.where(together, counts, 1).tolist()
    tally = scheme.rule.tally()
    rule = scheme.rule
    each_counts = scheme.messages.per_worker == 1 and not scheme.gate.waits
    for _ in range(trials):
        order = rng.permutation(senders)
        if each_counts and isinstance(rule, Blocks) and rule.need.size == 1:
            yield order[: rule.need[0]].tolist()  # without a tally: there may be 100,000 messages
            continue
        tally.reset()
        due = scheme.messages.first[:-1].copy()
        heard: list[int] = []
        parts = (order[at : at + _PART].tolist() for at in range(0, order.size, _PART))
        for worker in chain.from_iterable(parts):
            first = due[worker]
            due[worker] = end = first + at_once[worker]
            ready = False
            for number in range(first, end):
                heard.append(number)
                ready = tally.add(number)
            if ready and not scheme.gate.awaits_more(np.array(heard)):
                break
        scheme._kept.solution.cache_clear()  # the tally may have solved what callers time
        yield heard
