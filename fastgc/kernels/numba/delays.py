"""Random delays of workers, and how long they work."""

from __future__ import annotations

import numpy as np
from numba import types

from .njit import njit_exact
from .vector import bits_as

__all__ = ["draw"]

# csrc/delays.c explains these. Every backend rounds alike.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ONE, _ROOT, _WHOLE = np.array([1.0, 0.5**0.5, 2.0**52]).view(np.uint64)
_LN2_HIGH, _LN2_LOW = 0.6931471805592082, 7.371002565167799e-13


_from_bits = bits_as(types.uint64, types.float64)
_bits_of = bits_as(types.float64, types.uint64)


@njit_exact
def _mixed(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit_exact
def _exponential(random):
    u = 2 - _from_bits((random >> np.uint64(12)) | _ONE) - 2.0**-53
    bits = _bits_of(u)
    e = (bits + (_ONE - _ROOT)) >> np.uint64(52)
    exponent = _from_bits(e | _WHOLE) - (2.0**52 + 1023)
    m = _from_bits(bits + _ONE - (e << np.uint64(52)))
    s = (m - 1) / (m + 1)
    z = s * s
    p = 0.14616449685043406
    p = p * z + 0.15331721600556042
    p = p * z + 0.18182889125261723
    p = p * z + 0.2222221113479508
    p = p * z + 0.28571428625975487
    p = p * z + 0.39999999999899505
    p = p * z + 0.666666666666667
    return -(exponent * _LN2_HIGH + (2 * s + (s * z * p + exponent * _LN2_LOW)))


@njit_exact
def _power_of_e(x):
    shifted = x * 1.4426950408889634 + 1.5 * 2.0**52
    k = shifted - 1.5 * 2.0**52
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    q = 2.5100375832561234e-08
    q = q * r + 2.7620075879983367e-07
    q = q * r + 2.7557268480310024e-06
    q = q * r + 2.4801521322368692e-05
    q = q * r + 0.00019841269863040545
    q = q * r + 0.0013888888917196719
    q = q * r + 0.008333333333330065
    q = q * r + 0.041666666666624164
    q = q * r + 0.16666666666666669
    q = q * r + 0.5000000000000001
    p = 1 + (r + r * r * q)
    return _from_bits(_bits_of(p) + (_bits_of(shifted) << np.uint64(52)))


@njit_exact
def draw(delays, first, wait, whole):
    """Draw rounds: see ``kernels.unchecked.draw``."""
    rounds, n = wait.shape
    if whole.shape != wait.shape or delays.shift.size < n or delays.given.shape[1] != n:
        raise ValueError("wait and whole must be of every worker, and of as many rounds")
    given = delays.given.shape[0] > 0
    if given and delays.given.shape[0] < rounds:
        raise ValueError("delays must be given of every round")
    counter = delays.key + np.uint64(first) * np.uint64(n) * _STEP
    for r in range(rounds):
        for i in range(n):
            counter += _STEP
            random = _mixed(counter)
            apart = 1 + (_from_bits(((random << np.uint64(32)) >> np.uint64(12)) | _ONE) - 1) * (
                2.0**-40
            )
            if given:
                time = delays.given[r, i]
            else:
                h = _exponential(random)
                if delays.power[i] > 0:
                    h = _power_of_e(h * delays.power[i])
                time = delays.shift[i] + delays.scale[i] * h
            wait[r, i] = time * delays.onset * apart
            whole[r, i] = (time * delays.load[i] + delays.work[i]) * apart
