"""Which rank does the work of which worker, so that a whole node or zone may be lost.

Workers of one domain (a node or zone) die together. Whether the others suffice depends on which
workers share a domain. In a binary code neighbouring workers have the copies; in fractional
repetition, workers far apart. Either code is as good in any order of its workers, so whoever starts
them chooses the order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

import numpy as np

from .._base.text import listed
from ..codes import Code
from ..coding.code import check_code
from ..coding.rules import Rule, Waiting
from ..coding.scheme import Scheme
from ..delays import DelayModel, Outages
from ..delays.mixtures import labels_of
from ..errors import warn_caller

# A search begins with STRIDES orders at most, and improves the IMPROVED best of them, for which it
# computes the loss of about LOOKED_AT sets of workers.
LOOKED_AT, STRIDES, IMPROVED = 2000, 64, 4


def placement(code: Code, domains: Sequence[Hashable]) -> list[int]:
    """Return the worker whose work each rank should do, so that any one domain may be lost.

    Ranks keep their own numbers if these will do. Otherwise some orders are searched. For few
    workers the search has found the best of all orders, wherever that was tried.

    Parameters
    ----------
    code : Code
    domains : sequence of n labels
        The domain of each rank: ``["a", "a", "b", "b"]``.

    Returns
    -------
    list of n int

    Raises
    ------
    TypeError, ValueError
        If domains do not fit the code's workers.

    Warns
    -----
    UserWarning
        If some domain may not be lost, even in the best order that was found; says which.

    Examples
    --------
    >>> import fastgc
    >>> code, nodes = fastgc.BinaryCode(6, stragglers=1), [0, 0, 0, 1, 1, 1]
    >>> code.decodable([3, 4, 5])  # node 0 is lost
    False
    >>> order = fastgc.engines.placement(code, nodes)
    >>> order, code.decodable([order[rank] for rank in [3, 4, 5]])
    ([0, 2, 4, 1, 3, 5], True)
    """
    check_code(code)
    order, needed = place(code.scheme, labels_of(domains, code.n))
    if needed:
        which = f"domain{'s' * (len(needed) > 1)} {listed(needed)}"
        warn_caller(
            f"{code!r} does not survive the loss of {which} in any order of its workers that was "
            "found: take a code that tolerates as many stragglers as a domain has workers",
            UserWarning,
        )
    return order


def place(scheme: Scheme, labels: Sequence[Hashable]) -> tuple[list[int], list[Hashable]]:
    """Return `placement`, and the labels of the domains that may not be lost in it."""
    members, loss = members_of(labels), _Loss(scheme)
    domains = sets = list(members.values())
    if len(domains) > 1 and any(map(loss, domains)):
        sets = _searched(loss, [len(ranks) for ranks in domains])
    order = dict(zip(chain(*domains), chain(*map(sorted, sets)), strict=True))
    needed = [label for label, mine in zip(members, sets, strict=True) if loss(mine)]
    return [order[rank] for rank in range(scheme.n)], needed


def dealt(model: DelayModel | None, code: Code) -> DelayModel | None:
    """Return a model with `Outages` of ranks as that of the workers dealt out to them."""
    if not isinstance(model, Outages):
        return model
    return model.dealt(place(code.scheme, labels_of(model.domains, code.n))[0])


def members_of(labels: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Return the ranks of each domain, in the order of the domains' first ranks."""
    found: dict[Hashable, list[int]] = {}
    for rank, label in enumerate(labels):
        found.setdefault(label, []).append(rank)
    return found


class _Loss:
    """The least number of messages that are missing if some workers are lost; 0: none is missing.

    A code that waits for some workers decodes whatever came. For such a code it is the number of
    messages that are missing for the exact gradient.
    """

    def __init__(self, scheme: Scheme) -> None:
        rule = scheme.rule
        exact = isinstance(rule, Waiting) and scheme.wait is not None
        self._rule: Rule = rule.rule if exact and isinstance(rule, Waiting) else rule
        self._counts = np.array(scheme.messages.counts, dtype=np.int64)
        self._known: dict[tuple[int, ...], int] = {}

    @property
    def looked(self) -> int:
        """Number of different sets that were computed."""
        return len(self._known)

    def __call__(self, workers: Iterable[int]) -> int:
        key = tuple(sorted(workers))
        if key not in self._known:
            left = np.ones(self._counts.size, dtype=bool)
            left[list(key)] = False
            self._known[key] = self._rule.missing(np.flatnonzero(np.repeat(left, self._counts)))
        return self._known[key]


def _searched(loss: _Loss, sizes: Sequence[int]) -> list[list[int]]:
    """Search for the workers of each domain, so that as many domains as possible may be lost.

    Deal workers to the domains at each of the first `STRIDES` strides. Then improve the best
    orders: exchange two workers at random, and take that back if it is worse.
    """
    n = sum(sizes)
    ranked: list[tuple[tuple[int, int], int, list[list[int]]]] = []
    for stride in range(1, min(n, STRIDES) + 1):
        workers = iter(sorted(range(n), key=lambda i: (i % stride, i)))
        sets = [[next(workers) for _ in range(size)] for size in sizes]
        ranked.append((_cost(map(loss, sets)), stride, sets))
    ranked.sort(key=lambda each: each[:2])
    rng = np.random.default_rng(n)
    least, _, best = ranked[0]
    for _, _, sets in ranked[:IMPROVED]:
        until = loss.looked + LOOKED_AT // IMPROVED
        for _ in range(LOOKED_AT):
            missing = list(map(loss, sets))
            if (cost := _cost(missing)) < least:
                best, least = [list(each) for each in sets], cost
            if not least[0] or not cost[0] or loss.looked >= until:
                break
            one = int(rng.choice(np.flatnonzero(missing)))
            other = int(rng.integers(len(sets) - 1))
            other += other >= one
            a, b = int(rng.integers(len(sets[one]))), int(rng.integers(len(sets[other])))
            sets[one][a], sets[other][b] = sets[other][b], sets[one][a]
            if _cost([loss(sets[one]), loss(sets[other])]) > _cost([missing[one], missing[other]]):
                sets[one][a], sets[other][b] = sets[other][b], sets[one][a]
    return best


def _cost(missing: Iterable[int]) -> tuple[int, int]:
    """Return how many domains cannot be lost, and how many messages they miss together."""
    each = list(missing)
    return sum(map(bool, each)), sum(each)
