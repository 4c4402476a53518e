"""Calls from Python of the kernels in Numba, with the names and parameters of those of C.

``FASTGC_BACKEND=numba`` puts them in place of C's (`fastgc.kernels.unchecked`). What Numba does not
have, such as rows of bfloat16 and bounds of errors, C computes.
"""

from __future__ import annotations

import math

import numpy as np

from ..c import calls as c
from ..cyclic import Status
from ..rows import PACKED, REAL
from . import decoding, lagrange, vandermonde
from .combine import combine_at
from .lagrange import lagrange_basis, lagrange_evaluate, lagrange_products, lagrange_weights
from .vandermonde import leja_order

__all__ = [
    "bind_combine",
    "bind_decoding_vector",
    "bind_functional",
    "combine",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
    "leja_order",
    "solve_vandermonde",
]


def combine(mode, rows, coef, out, accumulate=False, check=False, used=False, squares=None):
    if mode not in (REAL, PACKED) or rows.kind not in ("float", "double") or squares is not None:
        return c.combine(mode, rows, coef, out, accumulate, check, used, squares)
    if used:
        at = np.flatnonzero(coef)
        rows, coef = rows.select(at), coef[at]
    return combine_at(
        mode == PACKED,
        rows.addresses,
        rows.count,
        np.array(coef, np.complex128),  # a read-only array would have all compiled again
        out,
        rows.length,
        accumulate,
        check,
    )


def bind_combine(mode, rows, numbers, coef, out, accumulate=False, check=False):
    if mode not in (REAL, PACKED) or rows.kind not in ("float", "double"):
        return c.bind_combine(mode, rows, numbers, coef, out, accumulate, check)

    def run(count):
        chosen = rows.select(numbers[:count])
        finite = combine(mode, chosen, coef[:count], out, accumulate, check, used=True)
        return Status.OK if finite else Status.NOT_FINITE

    return run


def bind_decoding_vector(plan, survivors, out, longest=math.inf):
    where = [0]

    def decode(method, f):
        status, where[0] = decoding.decoding_vector(
            plan.tables, method, survivors[:f], out[:f], longest
        )
        return status

    return decode, where


def decoding_vectors(plan, masks, method, out, where, longest=math.inf):
    decoding.decoding_vectors(plan.tables, masks, method, out, where, longest)


def bind_functional(nodes, points, chosen, out):
    return lambda f: lagrange.lagrange_functional(nodes, points, chosen[:f], out[:f])


_by_c = c.made("solve_vandermonde")


def solve_vandermonde(nodes, b, order, transpose, out, bound, choose, may_overflow):
    if bound is not None or choose or may_overflow:
        return _by_c(nodes, b, order, transpose, out, bound, choose, may_overflow)
    # A read-only array would have all compiled again.
    nodes, b = (x if x.flags.writeable else x.copy() for x in (nodes, b))
    return vandermonde.solve_vandermonde(nodes, b, order, transpose, out)
