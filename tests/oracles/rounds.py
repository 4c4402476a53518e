"""Random delays of simulated rounds."""

import numpy as np

from fastgc import kernels

from .table import Kernel, equal, shapes

# csrc/delays.c explains these, and the polynomials. Every backend rounds alike.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)
_ONE, _ROOT, _WHOLE = np.array([1.0, 0.5**0.5, 2.0**52]).view(np.uint64)
_LN2_HIGH, _LN2_LOW = 0.6931471805592082, 7.371002565167799e-13
_LOG = (
    0.14616449685043406,
    0.15331721600556042,
    0.18182889125261723,
    0.2222221113479508,
    0.28571428625975487,
    0.39999999999899505,
    0.666666666666667,
)
_EXP = (
    2.5100375832561234e-08,
    2.7620075879983367e-07,
    2.7557268480310024e-06,
    2.4801521322368692e-05,
    0.00019841269863040545,
    0.0013888888917196719,
    0.008333333333330065,
    0.041666666666624164,
    0.16666666666666669,
    0.5000000000000001,
)


def draw(delays, first, wait, whole):
    """Draw the delays and works of rounds ``first``, ``first + 1``, ...

    They depend only on the plan, the round and the number of workers.

    Parameters
    ----------
    delays : DelayPlan
    first : int
    wait, whole : (rounds, n) float64 array
        Written: the seconds until each worker begins, once it is free, and the seconds that all its
        work takes, as `completion` reads them.
    """
    rounds, n = wait.shape
    given = slice(first - delays.start, first - delays.start + rounds)
    if len(delays.whole):
        wait[:], whole[:] = delays.given[given], delays.whole[given]
        return
    random = _random(delays.key, first * n, rounds * n).reshape(rounds, n)
    apart = 1 + (((random << 32) >> 12 | _ONE).view(np.float64) - 1) * 2.0**-40
    shift, scale, power, load, work = (each[:n] for each in delays[2:7])
    if len(delays.given):
        time = delays.given[given]
    else:
        hazard = _exponential(random)
        if power.any():
            hazard = np.where(power > 0, _power_of_e(hazard * power), hazard)
        time = shift + scale * hazard
    wait[:] = time * delays.onset * apart
    whole[:] = (time * load + work) * apart


def _random(key, first, count):
    counters = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z = key + counters * _STEP  # modulo 2^64
    for shift, factor in _MIX:
        z = (z ^ (z >> shift)) * factor
    mixed = z ^ (z >> _LAST)
    return mixed


def _exponential(random):
    u = 2 - (random >> 12 | _ONE).view(np.float64) - 2.0**-53
    bits = u.view(np.uint64)
    e = bits + (_ONE - _ROOT) >> 52
    exponent = (e | _WHOLE).view(np.float64) - (2.0**52 + 1023)
    m = (bits + _ONE - (e << 52)).view(np.float64)
    s = (m - 1) / (m + 1)
    z = s * s
    p = np.full_like(z, _LOG[0])
    for each in _LOG[1:]:
        p = p * z + each
    hazard = -(exponent * _LN2_HIGH + (2 * s + (s * z * p + exponent * _LN2_LOW)))
    return hazard


def _power_of_e(x):
    shifted = x * 1.4426950408889634 + 1.5 * 2.0**52
    k = shifted - 1.5 * 2.0**52
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    q = np.full_like(r, _EXP[0])
    for each in _EXP[1:]:
        q = q * r + each
    p = 1 + (r + r * r * q)
    power = (p.view(np.uint64) + (shifted.view(np.uint64) << 52)).view(np.float64)
    return power


# ------------------------------------------------------------ the table


def _drawn(rng, size, count, dtype, given):
    """Draw a plan of `size` workers: random delays, given ones, or given ones exactly."""
    rounds = kernels.rounds
    key, numbers = rng.integers(2**64, dtype=np.uint64), rng.random((5, size))
    numbers[2] *= rng.random(size) < 0.5
    plan = rounds.DelayPlan.of(key, 1.0 + rng.random(), *numbers)
    if given:
        plan = plan._replace(given=rng.random((count + 2, size)), start=5)
    if given == "exactly":
        plan = plan._replace(whole=rng.random((count + 2, size)))
    wait, whole = np.zeros((2, count, size))
    return {"delays": plan, "first": 6, "wait": wait, "whole": whole}


KERNELS = [
    Kernel(
        "draw",
        _drawn,
        equal,
        ("wait", "whole"),
        shapes((1, 2, 7, 8, 9, 33), (1, 3, 9)),
        cases=tuple({"given": given} for given in (None, "nearly", "exactly")),
        wide=False,
    )
]
