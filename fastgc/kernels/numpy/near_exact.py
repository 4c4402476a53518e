"""Polynomials that nearly vanish at given roots of unity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ridge"]

BLOCK = 64  # unknowns that a triangular system is solved for at a time


def ridge(
    circle: NDArray[np.complex128],
    turns: NDArray[np.int64],
    c: int,
    unit: float,
    out: NDArray[np.complex128],
) -> None:
    """Write the coefficients of `fastgc.kernels.near_exact`'s polynomial to `out`.

    Here by a QR factorisation of the whole problem, O(s c^2).

    Parameters
    ----------
    circle : (2 n,) complex128 array
        ``exp(pi i u / n)``.
    turns : (s,) int64 array
    c : int
    unit : float
        As of `near_exact`; s and c are not 0.
    out : (c,) complex128 array
        Of z^1 .. z^c; contiguous.

    Notes
    -----
    With the phase ``z^((c+1)/2)`` taken out, powers z^1 .. z^c are cosines and sines, and the
    matrix is real.
    """
    s, n = turns.size, circle.size // 2
    twice = np.arange(c - 1, 0, -2)  # twice the exponents -(c-1)/2 .. (c-1)/2 that are positive
    half = twice.size
    waves = math.sqrt(2) * circle[np.multiply.outer(turns, twice) % (2 * n)]
    system = np.zeros((s + c, c + 2))
    system[:s, :half], system[:s, half : 2 * half] = waves.real, waves.imag
    system[:s, 2 * half : c] = 1
    system[s + np.arange(c), np.arange(c)] = 2 * unit * math.sqrt(n)
    target = circle[-turns * (c + 1) % (2 * n)] / -n
    system[:s, c], system[:s, c + 1] = target.real, target.imag
    r: Any = np.linalg.qr(system, mode="r")
    y: NDArray[Any] = r[:c, c] + 1j * r[:c, c + 1]
    for end in range(c, 0, -BLOCK):
        start = max(end - BLOCK, 0)
        y[start:end] = np.linalg.solve(r[start:end, start:end], y[start:end])
        y[:start] -= r[:start, start:end] @ y[start:end]
    cosine, sine = y[:half] / math.sqrt(2), y[half : 2 * half] / math.sqrt(2)
    out[:half], out[half : c - half] = cosine + 1j * sine, y[2 * half :]
    out[c - half :] = (cosine - 1j * sine)[::-1]
