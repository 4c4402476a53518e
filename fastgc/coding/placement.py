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
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .._base.arrays import Array, Bools, Ints, check_index
from .._base.text import listed, plural
from ..errors import warn_caller
from ..kernels.rows import DOUBLE
from .cache import SurvivorMask, VectorFunction
from .rules import Blocks, Cells, Rule, Tiling, Waiting, renumbered
from .scheme import Row, Scheme

# Domains as users give them: a label for each worker, or the workers of each label.
Domains = Sequence[Hashable] | Mapping[Any, Iterable[int]]


ALL_TRIED = 12  # largest number of workers for which all orders are tried

# More workers take a random search. It begins with STRIDES orders at most, and improves the
# IMPROVED best of them, for which it computes the loss of about LOOKED_AT sets of workers.
LOOKED_AT, STRIDES, IMPROVED = 2000, 64, 4


def labels_of(domains: Domains, n: int | None = None) -> list[Hashable]:
    """Return the label of each worker's domain.

    TypeError or ValueError if `domains` are not those of n workers (default: any number), each in
    one domain.
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


class Placement(NamedTuple):
    """An order of a code's workers."""

    order: Ints  # the worker whose work each rank does
    survived: tuple[Hashable, ...]  # labels of the domains any one of which may be lost
    why: str  # why others may not be, as far as it is known; empty if any may


def placement(scheme: Scheme, labels: Sequence[Hashable]) -> Placement:
    """Return an order of the workers in which any one domain may be lost, or as many as were found.

    Take the order of the numbers if it will do. Otherwise theory may give an order for rules of
    copies or of two paths. If it does not, try all orders of up to `ALL_TRIED` workers, or search
    for an order of more workers.
    """
    members = members_of(labels)
    sets, why = _found(scheme, _Loss(scheme), list(members.values()))
    order = np.empty(scheme.n, dtype=np.int64)
    for ranks, workers in zip(members.values(), sets, strict=True):
        order[ranks] = sorted(workers)
    order.flags.writeable = False
    found = survived(scheme, members, order)
    return Placement(order, found, "" if len(found) == len(members) else why)


def survived(
    scheme: Scheme, members: Mapping[Hashable, Sequence[int]], order: Ints
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
    ``enough(workers)`` says whether these workers of the code can go on without the others. In the
    sentence, `what` is the word for workers, `outage` what happens to a machine and to the others,
    and `remedy` how to deal out the workers.
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


def _found(
    scheme: Scheme, loss: _Loss, domains: Sequence[Sequence[int]]
) -> tuple[Sequence[Sequence[int]], str]:
    """Return who takes the ranks of each domain, and why some may not be lost, if so."""
    sizes = [len(ranks) for ranks in domains]
    if not any(loss(ranks) for ranks in domains):
        return domains, ""
    why = ""
    if len(sizes) == 1:
        why = "all workers are in one domain"
    elif scheme.message_count == scheme.n:
        for theory in _by_copies, _by_paths:
            sets, why = theory(loss.rule, sizes)
            if sets:
                return sets, ""
            if why:
                break
    why = why or _never(loss, scheme.n) or _too_large(scheme, max(sizes))
    if scheme.n <= ALL_TRIED:
        sets = _by_trying_all(loss, sizes)
        why = why or "all orders of its workers were tried"
    else:
        sets, tried = _by_search(loss, domains, lost=bool(why))
        why = why or f"none was found among {tried}"
    return sets, why


# ------------------------------------------------------------------------------------- by theory


def _by_copies(rule: Rule, sizes: Sequence[int]) -> tuple[list[list[int]], str]:
    """Deal out the workers of a rule of blocks, each of which may miss some of its workers.

    The workers of each block go to the domains with the most room left. No domain gets more of a
    block than the block may miss. This leaves rooms as even as possible, which is best for the next
    blocks. So it finds an order if there is one. Return the workers of each domain, or none and why
    there is no such order; no reason if the rule is another.
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


def _why_no_copies(block: Ints, spare: Ints, sizes: Sequence[int]) -> str:
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


def _blocks_of(rule: Rule) -> tuple[Ints, Ints] | None:
    """Return the block of each worker, and how many workers each block may miss; or None."""
    if isinstance(rule, Cells) and int(rule.weight.sum()) == rule.need:
        rule = Blocks(rule.cell, np.ones_like(rule.weight))
    if isinstance(rule, Tiling):
        # The different intervals, ascending, and for each worker which of them it has.
        both = np.stack([rule.start, rule.stop], axis=1)
        ends, strand = np.unique(both, axis=0, return_inverse=True)
        chain = np.array_equal(ends[:-1, 1], ends[1:, 0]) and not ends[0, 0]
        if not chain or ends[-1, 1] != rule.k:
            return None
        rule = Blocks(strand.reshape(-1), np.ones(len(ends), dtype=np.int64))
    if not isinstance(rule, Blocks):
        return None
    return rule.block, np.bincount(rule.block, minlength=rule.need.size) - rule.need


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

    Every hook is the inner scheme's, with the inner scheme's numbers. The tables below the class
    say how, for hooks that need nothing else.
    """

    def __init__(self, scheme: Scheme, order: Ints) -> None:
        self.inner, self.order = scheme, order
        for name in _THE_SAME:
            setattr(self, name, getattr(scheme, name))

    @cached_property
    def _number(self) -> Ints:
        """The inner scheme's number of each message."""
        first = self.inner.first_messages
        return np.concatenate(
            [np.arange(first[worker], first[worker + 1]) for worker in self.order.tolist()]
        )

    def _worker(self, worker: int) -> int:
        """The inner scheme's number of a worker."""
        return int(self.order[check_index("worker", worker, self.n)])

    def row(self, worker: int) -> Row:
        return self.inner._whole_row(self._worker(worker))

    @cached_property
    def message_counts(self) -> list[int]:
        return [self.inner.message_counts[worker] for worker in self.order.tolist()]

    @property
    def loads(self) -> Ints:
        return self.inner.loads[self.order]

    @property
    def sends_together(self) -> Bools:
        return self.inner.sends_together[self.order]

    @cached_property
    def rule(self) -> Rule:
        return renumbered(self.inner.rule, self._number)

    def bind_vector(self, survivors: Ints, vector: Array, unit: float = DOUBLE) -> VectorFunction:
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

    def touched(self, number: int) -> Ints:
        return self.inner.touched(int(self._number[number]))

    @property
    def copies(self) -> Ints | None:
        copies = self.inner.copies
        return None if copies is None else copies[self._number]

    def rings(self) -> list[Ints]:
        new = np.argsort(self.order)
        return [new[ring] for ring in self.inner.rings()]


# Attributes of a scheme that are the same in any order: those that are known when it is made, and
# those, and methods, that are not looked up before they are asked for.
_THE_SAME = (
    *("n", "k", "pieces", "wait", "codes_data", "packed", "integral", "exact", "unbiased"),
    *("cache", "methods"),
)
_THE_SAME_LATER = (
    *("load", "is_complex", "shard_count", "layout", "stragglers", "threshold", "awaited"),
    *("wanted", "approximate", "gated", "waits", "message_roundings", "data_roundings"),
    *("encode_data", "cancelling", "computation_roundings", "typical_error", "known_residuals"),
)
# Arrays with an entry for each message.
_OF_MESSAGES = ("row_norms", "row_sums", "log_row_sums")
# Methods whose first argument is survivors.
_OF_SURVIVORS = (
    *("vector", "vector_for", "solution", "equations", "parity", "deviation"),
    *("left_out", "vector_errors", "doubt", "awaits_more"),
)


def _of_messages(name: str) -> cached_property[Array]:
    found = cached_property(lambda placed: getattr(placed.inner, name)[placed._number])
    found.__set_name__(PlacedScheme, name)
    return found


def _of_survivors(name: str) -> Callable[..., Any]:
    def call(placed: PlacedScheme, survivors: Ints, *args: Any, **named: Any) -> Any:
        return getattr(placed.inner, name)(placed._number[survivors], *args, **named)

    return call


for _name in _THE_SAME_LATER:
    setattr(PlacedScheme, _name, property(attrgetter(f"inner.{_name}")))
for _name in _OF_MESSAGES:
    setattr(PlacedScheme, _name, _of_messages(_name))
for _name in _OF_SURVIVORS:
    setattr(PlacedScheme, _name, _of_survivors(_name))
