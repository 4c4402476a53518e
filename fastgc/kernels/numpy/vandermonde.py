"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["leja_order", "solve_vandermonde"]


def leja_order(nodes: NDArray[Any], order: NDArray[np.int64]) -> None:
    """See `fastgc.kernels.leja_order`."""
    with np.errstate(all="ignore"):
        x = nodes / _power_of_two(nodes)
        product, left = np.ones(x.size), np.ones(x.size, dtype=bool)
        chosen = np.argmax(np.abs(x))
        for k in range(x.size):
            order[k] = chosen
            left[chosen] = False
            product *= np.abs(x - x[chosen])
            if k % 8 == 7:  # a common factor changes nothing; nor does the order of the hopeless
                product = np.maximum(product / _power_of_two(product), 2.0**-900)
            chosen = np.argmax(np.where(left, product, -1.0))


def _power_of_two(x: NDArray[Any]) -> float:
    """The power of two at or below the largest modulus; 1 where all is zero."""
    largest = np.abs(x).max()
    return float(2.0 ** (np.frexp(largest)[1] - 1)) if 0 < largest < np.inf else 1.0


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool,
) -> bool:
    """See `fastgc.kernels.solve_vandermonde`."""
    m = nodes.size
    if order is None:
        order = np.empty(m, dtype=np.int64)
        leja_order(nodes, order)
    x = nodes[order].reshape(-1, *[1] * (b.ndim - 1))
    c = b.copy() if transpose else b[order]
    with np.errstate(all="ignore"):
        if transpose:
            for k in range(m - 1):
                c[k + 1 :] -= x[k] * c[k:-1]
            for k in range(m - 2, -1, -1):
                c[k + 1 :] /= x[k + 1 :] - x[: m - k - 1]
                c[k:-1] -= c[k + 1 :]
        else:
            for k in range(m - 1):
                c[k + 1 :] = (c[k + 1 :] - c[k:-1]) / (x[k + 1 :] - x[: m - k - 1])
            for k in range(m - 2, -1, -1):
                c[k:-1] -= x[k] * c[k + 1 :]
    finite = bool(np.isfinite(nodes).all() and np.isfinite(c).all())
    if finite or forced:
        out[order if transpose else slice(None)] = c
    return finite
