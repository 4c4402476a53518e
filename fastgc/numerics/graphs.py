"""Graphs: those that codes are made of, paths between messages, and matchings of work to ranks.

A graph that a code is made of is an (edges, 2) array of edges, each with the smaller vertex first,
in ascending order. It is random or explicit; finite fields help to make it.

A message is an edge if it is the difference of what two points stand for: a sum over an interval is
the difference of two partial sums. Every path between its ends is another way to compute it
(`Network`). By Menger's theorem, the largest number of paths without a common edge is the least
number of edges that cut the ends apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Floats, Ints, as_array, check_integer
from ..errors import NotDecodableError

Edges = Ints
Ends = Ints  # (messages, 2)
Pair = tuple[int, int]

TRIES = 100  # random graphs until one is connected, and random sets for a Cayley graph


def check_edges(graph: ArrayLike) -> Edges:
    """Return a user's graph as an array of edges, or raise an error."""
    given = as_array("graph", graph)
    if given.ndim != 2 or given.shape[1] != 2 or not len(given):
        raise ValueError(
            f"graph must be an array of edges, two vertices each, not of shape {given.shape}"
        )
    if given.dtype.kind not in "iu":
        raise TypeError(f"graph must be of integers, numbers of vertices, not {given.dtype}")
    edges = np.ascontiguousarray(given, dtype=np.int64)
    if edges.min() < 0:
        raise ValueError(f"vertices are numbered from 0, but graph has {edges.min()}")
    missing = np.setdiff1d(np.arange(min(int(edges.max()), 2 * len(edges)) + 1), edges)
    if missing.size:
        raise ValueError(f"vertex {missing[0]} of the graph has no edge")
    same = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if same.size:
        raise ValueError(f"edge {same[0]} of the graph leads from {edges[same[0], 0]} to itself")
    return edges


def adjacency(edges: Edges, vertices: int) -> Floats:
    """Return the number of edges between each two vertices, (vertices, vertices)."""
    found = np.zeros((vertices, vertices))
    np.add.at(found, (edges[:, 0], edges[:, 1]), 1)
    np.add.at(found, (edges[:, 1], edges[:, 0]), 1)
    return found


def components(edges: Edges, vertices: int, goal: int | None = None) -> Ints:
    """Return the component of each vertex, named by its least vertex.

    With a `goal`, only whether its component has vertex 0 is sure: the search ends once it has.
    """
    least = np.arange(vertices)
    while True:
        if goal is not None and not least[goal]:
            return least
        low, high = np.sort(least[edges], axis=1).T
        if (low == high).all():
            return least
        np.minimum.at(least, high, low)
        while ((further := least[least]) != least).any():
            least = further


def edge_connectivity(edges: Edges, vertices: int) -> int:
    """Return the least number of edges that cut the graph (Stoer, Wagner 1997), O(vertices^3)."""
    between = adjacency(edges, vertices)
    left, least = list(range(vertices)), len(edges)
    while len(left) > 1:
        inside = between[np.ix_(left, left)]
        tied = inside[0].copy()
        tied[0] = -1
        last, before = 0, 0
        for _ in left[1:]:
            last, before = int(np.argmax(tied)), last
            cut = tied[last]
            waiting = tied >= 0
            waiting[last] = False
            tied[waiting] += inside[last, waiting]
            tied[last] = -1
        least = min(least, int(cut))
        u, v = left[before], left[last]
        between[u] += between[v]
        between[:, u] += between[:, v]
        between[u, u] = 0
        left.remove(v)
    return least


def _ordered(edges: Ints) -> Edges:
    """Each edge once, by its vertices; a number an edge is sorted faster than rows are."""
    vertices = int(edges.max(initial=0)) + 1
    keys = np.unique(edges.min(axis=1) * vertices + edges.max(axis=1))
    return np.stack(np.divmod(keys, vertices), axis=1)


def random(vertices: int, count: int, seed: int) -> Edges:
    """Return a random connected simple graph of `count` edges, whose degrees differ by at most one.

    Half-edges are paired at random. Half-edges that make a loop or a double edge change partners
    with random others, until there are none. ValueError if there is no such graph, or none is
    found.
    """
    most = vertices * (vertices - 1) // 2
    if not vertices - 1 <= count <= most:
        raise ValueError(
            f"a connected graph of {vertices} vertices has {vertices - 1} to {most} edges, "
            f"not {count}"
        )
    rng = np.random.default_rng(seed)
    for _ in range(TRIES):
        if 2 * count > most:  # the edges that it does not have are easier to draw
            u, v = np.triu_indices(vertices, 1)
            without = _paired(rng, vertices, most - count, high=False)
            kept = np.ones((vertices, vertices), dtype=bool)
            kept[without[:, 0], without[:, 1]] = False
            edges = np.stack([u, v], axis=1)[kept[u, v]]
        else:
            edges = _paired(rng, vertices, count, high=True)
        if not components(edges, vertices).any():
            return edges
    raise ValueError(
        f"none of {TRIES} random graphs of {vertices} vertices and {count} edges is connected: "
        "a larger degree makes it likely"
    )


def _paired(rng: np.random.Generator, vertices: int, count: int, high: bool) -> Edges:
    """Return a random simple graph; vertices of larger degree come first if `high`, else last."""
    least, more = divmod(2 * count, vertices)
    degree = np.full(vertices, least)
    degree[np.arange(more) if high else np.arange(vertices - more, vertices)] += 1
    ends = rng.permutation(np.repeat(np.arange(vertices), degree)).reshape(-1, 2)
    while True:
        key = ends.min(axis=1) * vertices + ends.max(axis=1)
        order = np.argsort(key, kind="stable")
        again = np.zeros(len(ends), dtype=bool)
        again[order[1:]] = key[order[1:]] == key[order[:-1]]
        bad = np.flatnonzero(again | (ends[:, 0] == ends[:, 1]))
        if not bad.size:
            return _ordered(ends)
        for i, j in zip(bad.tolist(), rng.integers(len(ends), size=bad.size), strict=True):
            ends[i, 1], ends[j, 1] = ends[j, 1], ends[i, 1]
            if rng.integers(2):
                ends[j] = ends[j, ::-1]


def cayley(vertices: int, degree: int, seed: int) -> Edges:
    """Return a Cayley graph of the integers modulo `vertices`: the best of a hundred random sets.

    Vertex v meets v + t and v - t for each t of a set. The best graph is connected and has the
    smallest second eigenvalue, in absolute value. Eigenvalues are Fourier transforms of the set.
    ValueError if there is no such graph.
    """
    half = (vertices - 1) // 2
    if not 2 <= degree <= vertices - 1 or (degree % 2 and vertices % 2):
        raise ValueError(
            f"a Cayley graph of {vertices} vertices has a degree of 2 to {vertices - 1}"
            f"{', an even one' if vertices % 2 else ''}, not {degree}"
        )
    rng = np.random.default_rng(seed)
    chosen, least = np.arange(1, degree // 2 + 1), np.inf
    for attempt in range(TRIES + 1):
        # The first set is 1, 2, ..., whose graph is connected.
        drawn = rng.permutation(half)[: degree // 2] + 1 if attempt else chosen
        member = np.zeros(vertices)
        member[drawn] = member[-drawn] = 1
        if degree % 2:
            member[vertices // 2] = 1
        second = float(np.abs(np.fft.fft(member).real[1:]).max())
        if second < least:
            chosen, least = np.flatnonzero(member), second
    at = np.arange(vertices)
    return _ordered(
        np.stack(
            np.broadcast_arrays(at[:, None], (at[:, None] + chosen) % vertices), axis=2
        ).reshape(-1, 2)
    )


def complete(vertices: int) -> Edges:
    """Return the complete graph."""
    return np.stack(np.triu_indices(vertices, 1), axis=1).astype(np.int64)


def paley(q: int) -> Edges:
    """Return the Paley graph: elements of the field of q, joined if they differ by a square.

    Its degree is (q - 1) / 2; all other eigenvalues are (-1 +- sqrt(q)) / 2. ValueError unless q is
    a power of a prime and 1 modulo 4.
    """
    if q % 4 != 1 or prime_power(q) is None:
        near = [i for i in range(5, 2 * q + 9) if i % 4 == 1 and prime_power(i)]
        near = sorted(sorted(near, key=lambda i: abs(i - q))[:3])
        raise ValueError(
            f"a Paley graph has a power of a prime for vertices that is 1 modulo 4, such as "
            f"{', '.join(map(str, near))}, not {q}"
        )
    field = Field.of(q)
    squares = field.squares()
    at = np.repeat(np.arange(q), squares.size)
    return _ordered(np.stack([at, field.plus[:, squares].ravel()], axis=1))


def lps(p: int, q: int) -> Edges:
    """Return the Ramanujan graph X^{p,q} of Lubotzky, Phillips and Sarnak (1988).

    It is the Cayley graph of PSL(2, q), or of PGL(2, q) if p is no square modulo q. Its generators
    are the p + 1 integer quaternions of norm p with an odd, positive real part and even other
    parts. Its degree is p + 1. All eigenvalues but +-(p + 1) are at most 2 sqrt(p), the least bound
    that large graphs can have. It has q (q^2 - 1) / 2 vertices, or, if bipartite, twice as many.

    ValueError unless p and q are distinct primes, 1 modulo 4, and q > 2 sqrt(p), which makes the
    graph simple.
    """
    for name, prime in ("p", p), ("q", q):
        if check_integer(name, prime) % 4 != 1 or not is_prime(prime):
            raise ValueError(
                f"{name} must be a prime that is 1 modulo 4, such as 5, 13, 17 or 29, not {prime}"
            )
    if p == q or q * q <= 4 * p:
        raise ValueError(f"q must be larger than 2 sqrt(p) and not p: not p={p}, q={q}")
    root = next(i for i in range(q) if i * i % q == q - 1)  # of -1
    side = isqrt(p)
    odd = range(1, side + 1, 2)
    even = range(-(side // 2) * 2, side + 1, 2)
    solutions = [
        (a, b, c, d)
        for a in odd
        for b in even
        for c in even
        for d in even
        if a * a + b * b + c * c + d * d == p
    ]
    steps = (
        np.array(
            [[a + root * b, c + root * d, -c + root * d, a - root * b] for a, b, c, d in solutions]
        )
        % q
    )

    inverse = np.array([0] + [pow(i, -1, q) for i in range(1, q)])

    def normal(matrices: Ints) -> Ints:
        """Numbers of matrices up to factors: the first entry that is not 0 becomes 1."""
        first = np.where(matrices[..., 0] != 0, matrices[..., 0], matrices[..., 1])
        keys: Ints = matrices * inverse[first][..., None] % q @ q ** np.arange(4)
        return keys

    def digits(keys: Ints) -> Ints:
        found: Ints = keys[..., None] // q ** np.arange(4) % q
        return found

    # Find everything that the steps reach from the identity, layer by layer.
    layer = known = normal(np.array([[1, 0, 0, 1]]))
    found = []
    while layer.size:
        a, b, c, d = (x[:, None] for x in digits(layer).T)
        e, f, g, h = steps.T
        there = normal(
            np.stack([a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h], axis=2) % q
        )
        found.append(np.stack([np.repeat(layer, len(steps)), there.ravel()], axis=1))
        layer = np.setdiff1d(there, known)
        known = np.union1d(known, layer)
    return _ordered(np.searchsorted(known, np.concatenate(found)))


KINDS = ("random", "cayley", "paley", "lps", "complete")


def regular(kind: str, vertices: int, degree: int, seed: int) -> Edges:
    """Return the graph of this kind in which all vertices have this degree.

    ValueError if there is none; the message says which exist.
    """
    if kind not in KINDS:
        raise ValueError(f"graph must be one of {', '.join(KINDS)} or edges, not {kind!r}")
    if not 1 <= degree < vertices:
        raise ValueError(
            f"a simple graph of {vertices} vertices has degrees of 1 to {vertices - 1}, "
            f"not {degree}"
        )
    if vertices * degree % 2:
        raise ValueError(
            f"a graph of {vertices} vertices, an odd number, has an even degree, not {degree}"
        )
    if kind == "random":
        return random(vertices, vertices * degree // 2, seed)
    if kind == "cayley":
        return cayley(vertices, degree, seed)
    if kind == "lps":
        return _lps_of(vertices, degree)
    edges = complete(vertices) if kind == "complete" else paley(vertices)
    if 2 * len(edges) != vertices * degree:
        what, right = {"complete": "complete", "paley": "Paley"}[kind], 2 * len(edges) // vertices
        raise ValueError(
            f"the {what} graph of {vertices} vertices has degree {right}, not {degree}"
        )
    return edges


def _lps_of(vertices: int, degree: int) -> Edges:
    p = degree - 1
    sizes = []
    if p % 4 == 1 and is_prime(p):
        for q in range(5, 200, 4):
            if is_prime(q) and q != p and q * q > 4 * p:
                size = q * (q * q - 1)
                # p is a square modulo q: PSL(2, q), half of PGL(2, q)
                sizes.append(size // 2 if pow(p, (q - 1) // 2, q) == 1 else size)
                if sizes[-1] == vertices:
                    return lps(p, q)
    known = ", ".join(map(str, sizes[:4]))
    raise ValueError(
        f"Ramanujan graphs of degree {degree} have {known} or more vertices, not {vertices}"
        if sizes
        else "Ramanujan graphs have a degree of 1 more than a prime that is 1 modulo 4, such as "
        f"6, 14, 18 or 30, not {degree}"
    )


def max_degree(count: int) -> int:
    """Return the largest mean degree, rounded down, of a simple graph with `count` edges."""
    vertices = 2
    while vertices * (vertices - 1) < 2 * count:
        vertices += 1
    return 2 * count // vertices


def with_edges(kind: str, count: int, degree: int | None, seed: int) -> Edges:
    """Return the graph of this kind with `count` edges; random ones are as regular as possible.

    ValueError if there is none; the message says which exist.
    """
    if kind in ("complete", "paley") and degree is None:
        # The count is vertices (vertices - 1), over 2 or 4.
        vertices = (1 + isqrt(1 + 8 * count * (1 + (kind == "paley")))) // 2
        degree = max(2 * count // vertices, 1)
    if degree is None:
        raise ValueError("give degree=, the number of workers that hold each block")
    largest = max_degree(count)
    if not 2 <= degree <= largest:
        raise ValueError(
            f"degree must be in 2 .. {largest} for {count} edges of a simple graph, not {degree}"
            if largest >= 2
            else f"a simple graph without ends has 3 edges or more, not {count}"
        )
    if kind == "random":
        return random(round(2 * count / degree), count, seed)
    if 2 * count % degree:
        fitting = [d for d in range(2, largest + 1) if 2 * count % d == 0]
        raise ValueError(
            f"a regular graph of {count} edges has a degree that divides {2 * count}, such as "
            f"{', '.join(map(str, fitting[:8]))}, not {degree}; random graphs may have others"
        )
    return regular(kind, 2 * count // degree, degree, seed)


class Field(NamedTuple):
    """A field of q elements, numbered from 0; number 0 is zero and number 1 is one.

    Attributes
    ----------
    plus, times : (q, q) int64 array
    """

    plus: Ints
    times: Ints

    @classmethod
    def of(cls, q: int) -> Field:
        """Return the field of q elements; raise ValueError unless q is a power of a prime.

        Elements are polynomials over the integers modulo p, modulo an irreducible polynomial. The
        digits of an element's number, to the base p, are its coefficients.
        """
        found = prime_power(q)
        if found is None:
            raise ValueError(f"there is a field of q elements for powers of primes, not q={q}")
        p, m = found
        place = p ** np.arange(m)
        digits = np.arange(q)[:, None] // place % p
        plus = (digits[:, None] + digits) % p @ place
        # Products of all pairs of polynomials, of degree 2 m - 2 at most, not yet reduced.
        whole = np.zeros((q, q, 2 * m - 1), dtype=np.int64)
        for i, j in product(range(m), repeat=2):
            whole[..., i + j] += digits[:, None, i] * digits[:, j]
        for low in product(range(p), repeat=m):  # modulo x^m - low(x)
            left = whole % p
            for top in range(2 * m - 2, m - 1, -1):
                left[..., top - m : top] += left[..., top, None] * np.array(low)
                left %= p
            times = left[..., :m] @ place
            # It is a field if there are no divisors of zero.
            if (times[1:, 1:] != 0).all():
                return cls(plus, times)
        raise AssertionError("there is an irreducible polynomial of every degree")

    def squares(self) -> Ints:
        """Return the squares other than 0."""
        return np.unique(np.diag(self.times)[1:])


def is_prime(number: int) -> bool:
    """Say whether a number is prime."""
    return number > 1 and all(number % i for i in range(2, int(number**0.5) + 1))


def prime_power(q: int) -> tuple[int, int] | None:
    """Return the prime p and the exponent m with q = p^m, or None if q is no such power."""
    p = next((i for i in range(2, int(q**0.5) + 1) if q % i == 0), q)
    m = 1
    while p > 1 and p**m < q:
        m += 1
    return (p, m) if p > 1 and p**m == q else None


def parallel(ends: Ends, kept: Ints) -> dict[Pair, Ints]:
    """Group the messages `kept` by their ends, the lower end first."""
    if not kept.size:
        return {}
    low, high = np.sort(ends[kept], axis=1).T
    order = np.lexsort((high, low))
    new = np.ones(order.size, dtype=np.bool_)
    new[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    first = np.flatnonzero(new)
    strands = np.split(kept[order], first[1:])
    at = order[first]
    return dict(zip(zip(low[at].tolist(), high[at].tolist(), strict=True), strands, strict=True))


class Network:
    """Points joined by edges: `strands` maps two points, the lower first, to those between them."""

    def __init__(self, strands: Mapping[Pair, Sequence[int] | Ints]) -> None:
        self._strands = strands
        self._near: dict[int, list[int]] = {}
        self._room: dict[Pair, int] = {}  # each way
        for (u, v), edges in strands.items():
            if u != v and len(edges):
                self._near.setdefault(u, []).append(v)
                self._near.setdefault(v, []).append(u)
                self._room[u, v] = self._room[v, u] = len(edges)

    def others(self, pair: Pair) -> int:
        """Bound the number of edge-disjoint paths between two points, direct edges left out."""
        direct = self._room.get(pair, 0)
        return min(sum(self._room[u, v] for v in self._near.get(u, ())) for u in pair) - direct

    def flow(
        self, source: int, target: int, most: int, *, without: Pair | None = None
    ) -> tuple[int, dict[Pair, int]]:
        """Return how many edge-disjoint paths lead from `source` to `target`, up to `most`.

        Edges between the points `without`, the lower first, are left out. Also return for each pair
        of points how many of the paths pass from one to the other, less those that come back. This
        is Ford and Fulkerson's algorithm (1956) with shortest paths, as in Edmonds and Karp's
        (1972). Each path is taken as often as its edges allow.
        """
        room = self._room.copy()
        if without in room:
            u, v = without
            room[u, v] = room[v, u] = 0
        whole = room.copy()
        found = 0
        while found < most:
            came_from = {source: source}
            ahead = deque([source])
            while ahead and target not in came_from:
                here = ahead.popleft()
                for there in self._near.get(here, ()):
                    if there not in came_from and room[here, there]:
                        came_from[there] = here
                        ahead.append(there)
            if target not in came_from:
                break
            steps, here = [], target
            while here != source:
                steps.append((came_from[here], here))
                here = came_from[here]
            wide = min(most - found, *(room[step] for step in steps))
            for u, v in steps:
                room[u, v] -= wide
                room[v, u] += wide
            found += wide
        return found, {
            pair: whole[pair] - left for pair, left in room.items() if left != whole[pair]
        }

    def disjoint_paths(
        self, source: int, target: int, most: int, *, without: Pair | None = None
    ) -> list[list[tuple[int, int]]]:
        """Return up to `most` edge-disjoint paths; of parallel edges, the first are used first.

        Arguments are those of `flow`. A path consists of edges, each with a sign: 1 if it is passed
        from its lower end to the higher, else -1.
        """
        found, along = self.flow(source, target, most, without=without)
        next_of: dict[int, list[int]] = {}
        for (u, v), passing in along.items():
            next_of.setdefault(u, []).extend([v] * passing)
        taken: dict[Pair, int] = {}
        paths = []
        for _ in range(found):
            points = [source]
            while points[-1] != target:
                there = next_of[points[-1]].pop()
                if there in points:  # a circle, which leads nowhere
                    del points[points.index(there) + 1 :]
                else:
                    points.append(there)
            path = []
            for u, v in pairwise(points):
                pair = (u, v) if u < v else (v, u)
                number = taken.get(pair, 0)
                path.append((self._strands[pair][number], 1 if u < v else -1))
                taken[pair] = number + 1
            paths.append(path)
        return paths


def owners(holders: Sequence[Sequence[int]], ranks: Iterable[int]) -> list[int]:
    """Return one holder for each partition, so that the largest number at one rank is least.

    `holders` are the ranks that hold each partition, and `ranks` those that are there;
    NotDecodableError if none of them holds some partition. It is a bipartite matching by augmenting
    paths. Each rank has one place at first, and one more whenever partitions are left over. So as
    many ranks as possible own something. Equal sets of ranks give the same owners, in whatever
    order they are given.
    """
    there = set(ranks)
    able = [sorted(there.intersection(each)) for each in holders]
    if lost := [j for j, each in enumerate(able) if not each]:
        raise NotDecodableError(f"no rank is left that holds partitions {lost}", 1)
    own: dict[int, set[int]] = {r: set() for r in there}
    of: list[int] = [-1] * len(able)
    left, places = list(range(len(able))), 0
    while left:
        places += 1
        left = [j for j in left if not _place_by_path(j, able, own, of, places)]
    return of


def _place_by_path(
    j: int, able: list[list[int]], own: dict[int, set[int]], of: list[int], places: int
) -> bool:
    """Give a partition to a rank with a free place, moving others for it; False if none is free."""
    first = min(able[j], key=lambda r: len(own[r]))
    if len(own[first]) < places:
        own[first].add(j)
        of[j] = first
        return True
    # By rank: the partition that would move there, and the rank it would leave.
    came_from: dict[int, tuple[int, int]] = {}
    ahead = deque([(j, -1)])
    while ahead:
        part, here = ahead.popleft()
        for r in sorted(able[part], key=lambda r: len(own[r])):
            if r in came_from:
                continue
            came_from[r] = part, here
            if len(own[r]) < places:
                while r >= 0:
                    part, here = came_from[r]
                    if here >= 0:
                        own[here].discard(part)
                    own[r].add(part)
                    of[part] = r
                    r = here
                return True
            ahead.extend((other, r) for other in sorted(own[r]))
    return False
