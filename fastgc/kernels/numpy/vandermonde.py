"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["leja_order", "solve_vandermonde"]


def leja_order(nodes: NDArray[Any], order: NDArray[np.int64]) -> None:
    """See `fastgc.kernels.leja_order`; csrc/vandermonde.c says why every rounding is as there."""
    m, complex_ = nodes.size, nodes.dtype.kind == "c"
    parts = np.array([nodes.real, nodes.imag] if complex_ else [nodes])
    order[:] = np.arange(m)
    low = max(8, 1 << (m - 1).bit_length()) - 1
    with np.errstate(all="ignore"):
        parts *= 2.0 ** -min(max(_exponent(float(np.abs(parts).max())), -1022), 1022)
        product = np.ones(m)
        best, growth = int(np.argmax(_squares(parts))), 1.0
        for k in range(m - 1):
            for each in (*parts, product, order):
                each[[k, best]] = each[[best, k]]
            distance = parts[:, k + 1 :] * growth - growth * parts[:, k : k + 1]
            rest = product[k + 1 :]
            rest *= _squares(distance) if complex_ else np.abs(distance[0])
            top = int(((rest.view(np.int64) & ~low) | np.arange(k + 1, m)).max())
            best = top & low
            if not (top & ~low and k < best < m):  # all are 0, or not finite
                best = k + 1
            exponent = _exponent(float(np.int64(top).view(np.float64)))
            growth = 1.0
            if abs(exponent) <= 1000:
                growth = 2.0 ** -(exponent >> 1 if complex_ else exponent)
            if k % 16 == 15:  # the order of the hopeless changes nothing
                np.maximum(rest, 2.0**-500, out=rest)


def _squares(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = (parts**2).sum(axis=0)
    return squares


def _exponent(x: float) -> int:
    """That of the power of two at or below x; -1023 of zero, and of what is not normal."""
    return (int(np.float64(x).view(np.int64)) >> 52 & 0x7FF) - 1023


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
