# ramanujan.py
"""Explicit graphs of large spectral gap: edges for ``fastgc.GraphCode`` and `expander.py`."""

from itertools import product
from math import isqrt

import numpy as np


def paley(q):
    """The Paley graph of q vertices, a prime that is 1 modulo 4: they meet if squares apart.

    Its degree is (q - 1) / 2, and all other eigenvalues are (-1 +- sqrt(q)) / 2.
    """
    _check("q", q)
    squares, u, v = np.arange(1, q) ** 2 % q, *np.triu_indices(q, 1)
    return np.stack([u, v], axis=1)[np.isin(v - u, squares)]


def lps(p, q):
    """The graph X^{p,q} of Lubotzky, Phillips and Sarnak (1988), for two primes 1 modulo 4.

    It is the Cayley graph of PSL(2, q), or of PGL(2, q) if p is no square modulo q. Its generators
    are the p + 1 integer quaternions of norm p with an odd, positive real part and even other
    parts. Its degree is p + 1. All eigenvalues but +-(p + 1) are at most 2 sqrt(p), the least bound
    that large graphs can have. It has q (q^2 - 1) / 2 vertices, or, if bipartite, twice as many.
    The graph is simple for q > 2 sqrt(p).
    """
    _check("p", p)
    _check("q", q)
    if p == q or q * q <= 4 * p:
        raise ValueError(f"q must be larger than 2 sqrt(p) and not p: not p={p}, q={q}")
    root = next(i for i in range(q) if i * i % q == q - 1)  # of -1
    odd, even = np.arange(1, isqrt(p) + 1, 2), np.arange(-(isqrt(p) // 2) * 2, isqrt(p) + 1, 2)
    norm_p = np.array([x for x in product(odd, even, even, even) if np.dot(x, x) == p])
    to_matrices = [[1, 0, 0, 1], [root, 0, 0, -root], [0, 1, -1, 0], [0, root, root, 0]]
    steps = (norm_p @ to_matrices % q).reshape(-1, 2, 2)
    inverse = np.array([0] + [pow(i, -1, q) for i in range(1, q)])

    def numbers(matrices):
        """Numbers of matrices up to factors: the first entry that is not 0 becomes 1."""
        flat = matrices.reshape(-1, 4)
        first = np.where(flat[:, 0] != 0, flat[:, 0], flat[:, 1])
        return flat * inverse[first][:, None] % q @ q ** np.arange(4)

    # Find everything that the steps reach from the identity, layer by layer.
    layer = known = numbers(np.eye(2, dtype=np.int64))
    found = []
    while layer.size:
        here = (layer[:, None] // q ** np.arange(4) % q).reshape(-1, 1, 2, 2)
        there = numbers(here @ steps % q)
        found.append(np.stack([np.repeat(layer, len(steps)), there], axis=1))
        layer = np.setdiff1d(there, known)
        known = np.union1d(known, layer)
    return np.unique(np.sort(np.searchsorted(known, np.concatenate(found))), axis=0)


def _check(name, prime):
    if prime % 4 != 1 or not all(prime % i for i in range(2, isqrt(prime) + 1)) or prime < 5:
        raise ValueError(f"{name} must be a prime that is 1 modulo 4, such as 5 or 13, not {prime}")
