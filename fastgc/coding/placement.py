"""The order of a code's workers in which a whole node or zone may be lost.

Workers of one domain (a node or zone) die together. Whether the others suffice depends on which
workers share a domain. In a binary code neighbouring workers have the copies; in fractional
repetition, workers far apart. Either code is as good in any other order of its workers.
`placement` looks for an order in which any one domain may be lost.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import as_array, check_index
from .._shown import listed, plural
from ..errors import warn_caller
from ..kernels.jitted import PlacedRule, VectorRule
from ..kernels.rows import DOUBLE
from .cache import SurvivorMask, VectorFunction
from .format import Format, Layout
from .parity import CHECKS, Parity
from .rules import Blocks, Cells, Follower, Rule, Tiling, Waiting, renumbered
from .scheme import Residuals, Row, Scheme
from .solve import Equations

__all__ = [
    "Domains",
    "PlacedScheme",
    "Placement",
    "check_order",
    "labels_of",
    "losses",
    "members_of",
    "placement",
    "survived",
    "warn_of_machines",
    "what_would_do",
]

# Domains as users give them: a label for each worker, or the workers of each label.
Domains = Sequence[Hashable] | Mapping[Any, Iterable[int]]

Workers = NDArray[np.int64]

ALL_TRIED = 12  # largest number of workers for which all orders are tried

# More workers take a random search. It begins with STRIDES orders at most, and improves the
# IMPROVED best of them, for which it computes the loss of about LOOKED_AT sets of workers.
LOOKED_AT, STRIDES, IMPROVED = 2000, 64, 4


def labels_of(domains: Domains, n: int | None = None) -> list[Hashable]:
    """Return the label of each worker's domain.

    Raises
    ------
    TypeError, ValueError
        If `domains` are not those of n workers (default: any number), each in one domain.
    """
    if isinstance(domains, Mapping):
        return _labels_of_mapping(domains, n)
    if isinstance(domains, str) or not isinstance(domains, Iterable):
        raise TypeError(
            "domains must be a label for each worker, as in ['a', 'a', 'b', 'b'], or a mapping of "
            f"labels to workers, not {domains!r}; fastgc.torch.hosts() gives those of ranks"
        )
    tolist = getattr(domains, "tolist", None)  # arrays' scalars become Python's numbers
    labels = list(domains) if tolist is None else list(tolist())
    if n is not None and len(labels) != n:
        raise ValueError(f"domains must have a label for each of {n} workers, not {len(labels)}")
    for worker, label in enumerate(labels):
        try:
            hash(label)
        except TypeError:
            raise TypeError(
                f"domains[{worker}] must be a label, such as a name or a number, not {label!r}"
            ) from None
    return labels


def _labels_of_mapping(domains: Mapping[Any, Iterable[int]], n: int | None) -> list[Hashable]:
    members: list[tuple[Hashable, int]] = []
    for label, workers in domains.items():
        if not isinstance(workers, Iterable):
            raise TypeError(f"domains[{label!r}] must be the workers of it, not {workers!r}")
        members += [(label, worker) for worker in workers]
    n = len(members) if n is None else n
    found: dict[int, Hashable] = {}
    for label, member in members:
        worker = check_index(f"a worker of domains[{label!r}]", member, n)
        if worker in found:
            raise ValueError(
                f"worker {worker} must be in one domain, not in {found[worker]!r} and {label!r}"
            )
        found[worker] = label
    if len(found) < n:
        left = next(worker for worker in range(n) if worker not in found)
        raise ValueError(f"domains must contain all {n} workers: worker {left} is in none")
    return [found[worker] for worker in range(n)]


def members_of(labels: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Return the workers of each domain, in the order of the domains' first workers."""
    found: dict[Hashable, list[int]] = {}
    for worker, label in enumerate(labels):
        found.setdefault(label, []).append(worker)
    return found


def check_order(order: ArrayLike, n: int) -> Workers:
    """Return an order of n workers as a new int64 array; raise TypeError or ValueError if not."""
    given = as_array("order", order)
    if given.dtype.kind not in "iu" or given.shape != (n,):
        raise TypeError(
            f"order must be {n} integers, the worker whose work each rank does, not {given.dtype} "
            f"of shape {given.shape}"
        )
    found: Workers = given.astype(np.int64)
    if not np.array_equal(np.sort(found), np.arange(n)):
        raise ValueError(f"order must name each of the workers 0 to {n - 1} once")
    found.flags.writeable = False
    return found


class Placement(NamedTuple):
    """An order of a code's workers.

    Attributes
    ----------
    order : (n,) int64 array
        The worker whose work each rank does.
    survived : tuple of labels
        Labels of the domains any one of which may be lost.
    why : str
        Why other domains may not be lost, as far as it is known; empty if any domain may.
    """

    order: Workers
    survived: tuple[Hashable, ...]
    why: str


def placement(scheme: Scheme, labels: Sequence[Hashable]) -> Placement:
    """Return an order of the workers in which any one domain may be lost, or as many as were found.

    Take the order of the numbers if it will do. Otherwise theory may give an order for rules of
    copies or of two paths. If it does not, try all orders of up to `ALL_TRIED` workers, or search
    for an order of more workers.
    """
    members = members_of(labels)
    sets = _found(scheme, _Loss(scheme), list(members.values()))
    order = np.empty(scheme.n, dtype=np.int64)
    for ranks, workers in zip(members.values(), sets.sets, strict=True):
        order[ranks] = sorted(workers)
    order.flags.writeable = False
    found = survived(scheme, members, order)
    return Placement(order, found, "" if len(found) == len(members) else sets.why)


def survived(
    scheme: Scheme, members: Mapping[Hashable, Sequence[int]], order: Workers
) -> tuple[Hashable, ...]:
    """Return the labels of the domains any one of which may be lost in this order."""
    loss = _Loss(scheme)
    return tuple(label for label, ranks in members.items() if not loss(order[ranks].tolist()))


def losses(
    members: Mapping[Hashable, Sequence[int]],
    survived: Sequence[Hashable],
    domain: str = "domain",
    lost: str = "lost",
) -> str:
    """Return a sentence that says which domains may be lost, with these words for both."""
    sizes = sorted({len(ranks) for ranks in members.values()})
    of = f"{sizes[0]} to {sizes[-1]} workers" if sizes[1:] else plural(sizes[0], "worker")
    if len(survived) == len(members):
        one = "any one of " if len(members) > 1 else ""
        return f"{one}{plural(len(members), domain)} may be {lost}, of {of}"
    if not survived:
        return f"none of {plural(len(members), domain)} may be {lost}, of {of}"
    others = [label for label in members if label not in set(survived)]
    return (
        f"any one of {len(survived)} of {len(members)} {domain}s may be {lost}, of {of}; "
        f"not {listed(others)}"
    )


def what_would_do(members: Mapping[Hashable, Sequence[int]]) -> str:
    """Return a sentence that names a code for which any one of these domains may be lost."""
    sizes = {len(ranks) for ranks in members.values()}
    if len(sizes) == 1 and len(members) > 1:
        # Each group has one worker of each domain, so it loses one.
        return (
            f"Grouped([CyclicRepetition({len(members)}, stragglers=1)] * {sizes.pop()}) does, at a "
            "load of 2, where it is placed"
        )
    if len(members) == 1:
        return "no code does"
    return f"a code that tolerates {max(sizes)} stragglers does in any order"


def warn_of_machines(
    code: object,
    n: int,
    machines: Mapping[str, Sequence[int]],
    enough: Callable[[list[int]], bool],
    *,
    what: str = "workers",
    outage: str = "is lost, the others cannot go on",
    remedy: str,
) -> None:
    """Warn of machines without which the other machines cannot go on, in one sentence.

    Another order of the workers is to help. So the warning leaves out a machine with all workers, a
    machine with one worker, and a machine none of whose workers can be spared alone.

    Parameters
    ----------
    code : Code
    n : int
        Number of workers.
    machines : mapping
        The workers on each machine, by the machine's name.
    enough : callable
        ``enough(workers)`` says whether these workers can go on without the others.
    what : str
        The word for workers.
    outage : str
        The words for what happens to a machine, and to the others.
    remedy : str
        The end of the sentence: how to deal out the workers.
    """

    def spared(gone: Iterable[int]) -> bool:
        left = set(range(n)).difference(gone)
        return enough(sorted(left))

    needed = [
        f"{name} ({what} {listed(those)})"
        for name, those in machines.items()
        if 1 < len(those) < n and not spared(those) and any(spared([one]) for one in those)
    ]
    if needed:
        warn_caller(
            f"if {' or '.join(needed)} {outage}: they lack what only these hold of {code!r}. Deal "
            f"its workers out to the machines{remedy}",
            UserWarning,
        )


class _Sets(NamedTuple):
    """The workers of each domain, and why some domain may not be lost (empty if any may)."""

    sets: Sequence[Sequence[int]]
    why: str


class _Loss:
    """The least number of messages that are missing if some workers are lost; 0: none is missing.

    A code that waits for some workers decodes whatever came. For such a code it is the number of
    messages that are missing for the exact gradient.
    """

    def __init__(self, scheme: Scheme) -> None:
        rule = scheme.rule
        exact = isinstance(rule, Waiting) and scheme.wait is not None
        self.rule: Rule = rule.rule if exact and isinstance(rule, Waiting) else rule
        self._counts = np.array(scheme.message_counts, dtype=np.int64)
        self._known: dict[tuple[int, ...], int] = {}
        self.looked = 0  # number of different sets that were computed

    def __call__(self, workers: Iterable[int]) -> int:
        key = tuple(sorted(workers))
        if key not in self._known:
            self.looked += 1
            left = np.ones(self._counts.size, dtype=bool)
            left[list(key)] = False
            self._known[key] = self.rule.missing(np.flatnonzero(np.repeat(left, self._counts)))
        return self._known[key]


def _found(scheme: Scheme, loss: _Loss, domains: Sequence[Sequence[int]]) -> _Sets:
    """Return the workers that take the ranks of each domain."""
    sizes = [len(ranks) for ranks in domains]
    if not any(loss(ranks) for ranks in domains):
        return _Sets(domains, "")
    why = ""
    if len(sizes) == 1:
        why = "all workers are in one domain"
    elif scheme.message_count == scheme.n:
        for theory in _by_copies, _by_paths:
            sets, why = theory(loss.rule, sizes)
            if sets:
                return _Sets(sets, "")
            if why:
                break
    why = why or _never(loss, scheme.n) or _too_large(scheme, max(sizes))
    if scheme.n <= ALL_TRIED:
        sets = _by_trying_all(loss, sizes)
        why = why or "all orders of its workers were tried"
    else:
        sets, tried = _by_search(loss, domains, lost=bool(why))
        why = why or f"none was found among {tried}"
    return _Sets(sets, why)


# ------------------------------------------------------------------------------------- by theory


def _by_copies(rule: Rule, sizes: Sequence[int]) -> tuple[list[list[int]], str]:
    """Deal out the workers of a rule of blocks, each of which may miss some of its workers.

    The workers of each block go to the domains with the most room left. No domain gets more of a
    block than the block may miss. This leaves rooms as even as possible, which is best for the next
    blocks. So it finds an order if there is one.

    Returns
    -------
    sets : list of lists of int
        The workers of each domain; empty if there is no such order, or the rule is another.
    why : str
        Why there is no such order; empty if the rule is another.
    """
    blocks = _blocks_of(rule)
    if blocks is None:
        return [], ""
    block, spare = blocks
    room = list(sizes)
    sets: list[list[int]] = [[] for _ in sizes]
    by_block = np.split(np.argsort(block, kind="stable"), np.cumsum(np.bincount(block))[:-1])
    for members, most in zip(by_block, spare.tolist(), strict=True):
        heap = [(-left, d) for d, left in enumerate(room) if left]
        heapq.heapify(heap)
        given = [0] * len(room)
        for worker in members.tolist():
            if not most or not heap:
                return [], _why_no_copies(block, spare, sizes)
            left, d = heapq.heappop(heap)
            sets[d].append(worker)
            room[d] -= 1
            given[d] += 1
            if given[d] < most and room[d]:
                heapq.heappush(heap, (left + 1, d))
    return sets, ""


def _why_no_copies(block: Workers, spare: Workers, sizes: Sequence[int]) -> str:
    if not spare.all():
        return "it holds something once only, and tolerates no loss at all"
    held = np.bincount(block)
    largest = np.cumsum(sorted(sizes, reverse=True)).tolist()
    for count, together in enumerate(largest, 1):
        fit = int(np.minimum(held, count * spare).sum())
        if together > fit:
            break
    if count == 1:
        return f"of its workers {fit} may be lost together at most, and a domain has {together}"
    return (
        f"the {count} largest domains have {together} workers, and there is room for {fit} in "
        f"{count} domains of which any one may be lost"
    )


def _blocks_of(rule: Rule) -> tuple[Workers, Workers] | None:
    """Return the block of each worker, and how many workers each block may miss; or None."""
    if isinstance(rule, Cells) and int(rule.weight.sum()) == rule.need:
        rule = Blocks(rule.cell, np.ones_like(rule.weight))
    if isinstance(rule, Tiling):
        ends, strand = _strands(rule)
        chain = np.array_equal(ends[:-1, 1], ends[1:, 0]) and not ends[0, 0]
        if not chain or ends[-1, 1] != rule.k:
            return None
        rule = Blocks(strand, np.ones(len(ends), dtype=np.int64))
    if not isinstance(rule, Blocks):
        return None
    return rule.block, np.bincount(rule.block, minlength=rule.need.size) - rule.need


def _strands(rule: Tiling) -> tuple[NDArray[np.int64], Workers]:
    """Return the different intervals, ascending, and for each worker which of them it has."""
    ends = np.stack([rule.start, rule.stop], axis=1)
    different, strand = np.unique(ends, axis=0, return_inverse=True)
    return different, strand.reshape(-1)


def _by_paths(rule: Rule, sizes: Sequence[int]) -> tuple[list[list[int]], str]:
    """Deal out the workers of a rule of two disjoint paths, either of which gives the sum.

    This is the rule of a binary code with two classes whose blocks have no inner end in common. A
    domain may be lost if and only if all its workers are on one path. Results as in `_by_copies`.
    """
    if not isinstance(rule, Tiling):
        return [], ""
    following: dict[int, list[int]] = {}
    for worker, start in enumerate(rule.start.tolist()):
        following.setdefault(start, []).append(worker)
    paths: list[list[int]] = [[], []]
    if len(following.get(0, [])) != 2:
        return [], ""
    for path, worker in zip(paths, following[0], strict=True):
        path.append(worker)
        while (end := int(rule.stop[path[-1]])) != rule.k:
            if len(following.get(end, [])) != 1 or len(path) > rule.start.size:
                return [], ""
            path.append(following[end][0])
    if len({*paths[0], *paths[1]}) != rule.start.size:
        return [], ""
    # For each sum of sizes, domains that add up to it.
    within: dict[int, list[int]] = {0: []}
    for d, size in enumerate(sizes):
        for total, made in list(within.items()):
            within.setdefault(total + size, [*made, d])
    first = within.get(len(paths[0]))
    if first is None:
        return [], (
            f"its workers are of two classes, of {len(paths[0])} and {len(paths[1])}, whose blocks "
            "do not fit each other: a domain may be lost only if all of it is of one class, and no "
            "domains add up to one"
        )
    left = [list(path) for path in paths]
    return [[left[d not in first].pop(0) for _ in range(size)] for d, size in enumerate(sizes)], ""


def _never(loss: _Loss, n: int) -> str:
    """Say that all workers do not suffice, or which cannot be lost even alone; "" if neither."""
    if loss(()):
        return "the messages of all its workers do not suffice"
    needed = [worker for worker in range(n) if loss((worker,))]
    return f"its workers {listed(needed)} cannot be spared even alone" if needed else ""


def _too_large(scheme: Scheme, largest: int) -> str:
    """Say why a domain of `largest` workers cannot be lost, if loads tell; "" if they do not."""
    if scheme.approximate or scheme.wait is not None or scheme.codes_data:
        return ""
    left = np.sort(scheme.loads)[::-1][: scheme.n - largest]
    if left.sum() >= scheme.k:
        return ""
    return (
        f"a domain has {largest} workers, and the others hold {left.sum()} of {scheme.k} "
        f"partitions at most: it takes a load of {-(-scheme.k // max(left.size, 1))}"
    )


# ------------------------------------------------------------------------------------- by trying


def _by_trying_all(loss: _Loss, sizes: Sequence[int]) -> list[list[int]]:
    """Return the workers of each domain; as many domains as possible may be lost, each alone."""
    n = sum(sizes)
    # One dictionary for each number of first domains. For each set of workers (as bits) that these
    # domains can have together: how many of them may be lost at most, and the last one's workers.
    found: list[dict[int, tuple[int, tuple[int, ...]]]] = [{0: (0, ())}]
    for size in sizes:
        more: dict[int, tuple[int, tuple[int, ...]]] = {}
        for taken, (count, _) in found[-1].items():
            rest = [worker for worker in range(n) if not taken >> worker & 1]
            for chosen in combinations(rest, size):
                key = taken | sum(1 << worker for worker in chosen)
                total = count + (not loss(chosen))
                if key not in more or more[key][0] < total:
                    more[key] = total, chosen
        found.append(more)
    sets, taken = [], (1 << n) - 1
    for stage in reversed(found[1:]):
        chosen = stage[taken][1]
        sets.append(list(chosen))
        taken &= ~sum(1 << worker for worker in chosen)
    return sets[::-1]


def _by_search(
    loss: _Loss, domains: Sequence[Sequence[int]], lost: int
) -> tuple[list[list[int]], int]:
    """Search for the workers of each domain; also return how many orders were tried.

    Deal workers to the domains at each of the first `STRIDES` strides. Then improve the best
    orders: exchange two workers at random, and take that back if it is worse. The search ends once
    at most `lost` domains cannot be lost, which is the best there can be.
    """
    n, tried = sum(map(len, domains)), 0
    ranked: list[tuple[tuple[int, int], int, list[list[int]]]] = []
    for stride in range(1, min(n, STRIDES) + 1):
        workers = iter(sorted(range(n), key=lambda i: (i % stride, i)))
        sets = [[next(workers) for _ in ranks] for ranks in domains]
        tried += 1
        cost = _cost(loss(each) for each in sets)
        if cost[0] <= lost:
            return sets, tried
        ranked.append((cost, stride, sets))
    ranked.sort(key=lambda each: each[:2])
    rng = np.random.default_rng(n)
    best, least = ranked[0][2], ranked[0][0]
    for _, _, sets in ranked[:IMPROVED]:
        until = loss.looked + LOOKED_AT // IMPROVED
        for _ in range(LOOKED_AT):
            missing = [loss(each) for each in sets]
            cost = _cost(missing)
            if cost < least:
                best, least = [list(each) for each in sets], cost
            if cost[0] <= lost:
                return best, tried
            if loss.looked >= until:
                break
            one = int(rng.choice(np.flatnonzero(missing)))
            other = int(rng.integers(len(sets) - 1))
            other += other >= one
            a, b = int(rng.integers(len(sets[one]))), int(rng.integers(len(sets[other])))
            tried += 1
            sets[one][a], sets[other][b] = sets[other][b], sets[one][a]
            if _cost([loss(sets[one]), loss(sets[other])]) > _cost([missing[one], missing[other]]):
                sets[one][a], sets[other][b] = sets[other][b], sets[one][a]
    return best, tried


def _cost(missing: Iterable[int]) -> tuple[int, int]:
    """Return how many domains cannot be lost, and how many messages they miss together."""
    each = list(missing)
    return sum(map(bool, each)), sum(each)


# ------------------------------------------------------------------------------------- the scheme


class PlacedScheme(Scheme):
    """A scheme with its workers renumbered: worker i does what worker ``order[i]`` did.

    Every hook calls the inner scheme's, with the inner scheme's numbers.

    Parameters
    ----------
    scheme : Scheme
    order : (n,) int64 array
    """

    def __init__(self, scheme: Scheme, order: Workers) -> None:
        self.inner, self.order = scheme, order
        for name in _THE_SAME:
            setattr(self, name, getattr(scheme, name))

    @cached_property
    def _number(self) -> Workers:
        """The inner scheme's number of each message."""
        first = self.inner.first_messages
        return np.concatenate(
            [np.arange(first[worker], first[worker + 1]) for worker in self.order.tolist()]
        )

    # who sends what

    def row(self, worker: int) -> Row:
        return self.inner._whole_row(int(self.order[check_index("worker", worker, self.n)]))

    def pair_row(self, worker: int) -> NDArray[np.complex128]:
        return self.inner.pair_row(int(self.order[check_index("worker", worker, self.n)]))

    @cached_property
    def load(self) -> int:
        return self.inner.load

    @property
    def loads(self) -> NDArray[np.int64]:
        return self.inner.loads[self.order]

    @cached_property
    def message_counts(self) -> list[int]:
        return [self.inner.message_counts[worker] for worker in self.order.tolist()]

    @property
    def sends_together(self) -> NDArray[np.bool_]:
        return self.inner.sends_together[self.order]

    @cached_property
    def is_complex(self) -> bool:
        return self.inner.is_complex

    @property
    def shard_count(self) -> int:
        return self.inner.shard_count

    def encode_data(
        self, X: NDArray[Any], y: NDArray[Any]
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        return self.inner.encode_data(X, y)

    def cancelling(self, shard: Any) -> Callable[[NDArray[Any]], float] | None:
        return self.inner.cancelling(shard)

    # what suffices

    @cached_property
    def stragglers(self) -> int | None:
        return self.inner.stragglers

    @property
    def threshold(self) -> int | None:
        return self.inner.threshold

    @property
    def awaited(self) -> int | None:
        return self.inner.awaited

    @cached_property
    def rule(self) -> Rule:
        return renumbered(self.inner.rule, self._number)

    @property
    def approximate(self) -> bool:
        return self.inner.approximate

    @property
    def gated(self) -> bool:
        return self.inner.gated

    @property
    def waits(self) -> bool:
        return self.inner.waits

    def doubt(self, survivors: Workers, vector: NDArray[Any], form: Format) -> float:
        return self.inner.doubt(self._number[survivors], vector, form)

    def awaits_more(
        self,
        survivors: Workers,
        vector: Callable[[], NDArray[Any]] | None = None,
        form: Format | None = None,
    ) -> bool:
        return self.inner.awaits_more(self._number[survivors], vector, form)

    # vectors

    def vector(self, survivors: Workers) -> NDArray[Any]:
        return self.inner.vector(self._number[survivors])

    def vector_for(self, survivors: Workers, unit: float) -> NDArray[Any]:
        return self.inner.vector_for(self._number[survivors], unit)

    def solution(self, survivors: Workers, unit: float = DOUBLE) -> tuple[NDArray[Any], float]:
        return self.inner.solution(self._number[survivors], unit)

    def bind_vector(
        self, survivors: Workers, vector: NDArray[Any], unit: float = DOUBLE
    ) -> VectorFunction:
        number, theirs = self._number, np.zeros_like(survivors)
        mask = SurvivorMask(self.message_count, survivors)
        inner = self.inner.bind_vector(theirs, vector, unit)

        def fill(f: int, method: str) -> None:
            if not mask.sound(f):
                self.check_survivors(survivors[:f])
            number.take(survivors[:f], out=theirs[:f], mode="clip")
            try:
                inner(f, method)
            except OverflowError as error:
                raise OverflowError(f"{error} (numbered as in {self.inner!r})") from None

        return fill

    def jit_rule(self) -> VectorRule | None:
        inner = self.inner.jit_rule()
        return None if inner is None else PlacedRule(self._number, inner)

    def follower(
        self, survivors: Workers, vector: NDArray[Any], unit: float = DOUBLE
    ) -> Follower | None:
        theirs = np.zeros_like(survivors)
        inner = self.inner.follower(theirs, vector, unit)
        return None if inner is None else _Follower(inner, self._number, survivors, theirs)

    def log_vector(self, survivors: Workers) -> NDArray[np.complex128]:
        return self.inner.log_vector(self._number[survivors])

    def equations(self, survivors: Workers) -> Equations:
        return self.inner.equations(self._number[survivors])

    def touched(self, number: int) -> NDArray[np.int64]:
        return self.inner.touched(int(self._number[number]))

    def parity(self, survivors: Workers, most: int = CHECKS) -> Parity:
        return self.inner.parity(self._number[survivors], most)

    # precision

    def deviation(self, survivors: Workers, vector: NDArray[Any]) -> NDArray[Any]:
        return self.inner.deviation(self._number[survivors], vector)

    def left_out(self, survivors: Workers, vector: NDArray[Any]) -> float:
        return self.inner.left_out(self._number[survivors], vector)

    def vector_errors(self, survivors: Workers, vector: NDArray[Any]) -> NDArray[np.float64] | None:
        return self.inner.vector_errors(self._number[survivors], vector)

    @property
    def copies(self) -> Workers | None:
        copies = self.inner.copies
        return None if copies is None else copies[self._number]

    @property
    def message_roundings(self) -> float:
        return self.inner.message_roundings

    @property
    def data_roundings(self) -> float:
        return self.inner.data_roundings

    @property
    def wanted(self) -> int:
        return self.inner.wanted

    def computation_roundings(self, terms: int) -> int:
        return self.inner.computation_roundings(terms)

    @cached_property
    def row_norms(self) -> NDArray[np.float64]:
        return self.inner.row_norms[self._number]

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        return self.inner.row_sums[self._number]

    @cached_property
    def log_row_sums(self) -> NDArray[np.float64]:
        return self.inner.log_row_sums[self._number]

    def typical_error(self) -> float | None:
        return self.inner.typical_error()

    def known_residuals(self, workers: int) -> Residuals | None:
        return self.inner.known_residuals(workers)

    def rings(self) -> list[Workers]:
        new = np.argsort(self.order)
        return [new[ring] for ring in self.inner.rings()]

    @property
    def layout(self) -> Layout:
        return self.inner.layout


# Attributes of a scheme that are the same in any order.
_THE_SAME = (
    *("n", "k", "pieces", "wait", "codes_data", "packed", "integral", "exact", "unbiased"),
    *("cache", "methods", "on_request"),
)


class _Follower:
    """The inner scheme's follower, called with its own numbers."""

    def __init__(
        self, inner: Follower, number: Workers, survivors: Workers, theirs: Workers
    ) -> None:
        self._inner, self._number = inner, number
        self._survivors, self._theirs = survivors, theirs
        self.reset = inner.reset

    def receive(self, worker: int) -> None:
        self._inner.receive(int(self._number[worker]))

    def straggles(self, worker: int) -> None:
        self._inner.straggles(int(self._number[worker]))

    def vector(self, f: int) -> NDArray[Any] | None:
        self._number.take(self._survivors[:f], out=self._theirs[:f], mode="clip")
        return self._inner.vector(f)
