"""Orders in which messages may come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from .._base.arrays import Ints
from .rules import Blocks
from .scheme import Scheme

_PART = 1 << 14  # messages that are drawn first: a round may need few of a million


def random_arrivals(scheme: Scheme, trials: int, seed: int) -> Iterator[list[int]]:
    """Yield `trials` random orders of messages, each until it makes a round ready.

    All orders in which each worker's own messages come in order are equally likely. Messages of
    a worker that sends them `together` come one after the other, also beyond the one that suffices.
    """
    rng = np.random.default_rng(seed)
    together, counts = scheme.messages.together, scheme.messages.counts
    senders = np.repeat(np.arange(scheme.n), np.where(together, 1, counts))
    at_once = np.where(together, counts, 1).tolist()
    tally = scheme.rule.tally()
    rule = scheme.rule
    each_counts = scheme.messages.per_worker == 1 and not scheme.gate.waits
    for _ in range(trials):
        if each_counts and isinstance(rule, Blocks) and rule.need.size == 1:
            # Without a tally: there may be 100,000 messages.
            yield rng.permutation(senders)[: rule.need[0]].tolist()
            continue
        tally.reset()
        due = scheme.messages.first[:-1].copy()
        heard: list[int] = []
        for worker in chain.from_iterable(_shuffled(rng, senders)):
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


def _shuffled(rng: np.random.Generator, senders: Ints) -> Iterator[list[int]]:
    """Yield the senders in random order, in two parts if they are many."""
    if senders.size > _PART:
        drawn = rng.choice(senders.size, _PART, replace=False)
        yield senders[drawn].tolist()
        senders = np.delete(senders, drawn)
    yield rng.permutation(senders).tolist()
