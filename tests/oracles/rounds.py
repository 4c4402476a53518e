"""Random delays of simulated rounds."""

import numpy as np

from fastgc import kernels

from .table import WIDE, Kernel, shapes, within

# SplitMix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)


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
    random = splitmix(delays.key, first * n, rounds * n).reshape(rounds, n)
    apart = 1 + (random & np.uint64(0xFFFFFFFF)).astype(WIDE) / WIDE(2) ** 72
    shift, scale, power, load, work = (each[:n].astype(WIDE) for each in delays[2:7])
    if len(delays.given):
        time = delays.given[given]
    else:
        hazard = -np.log1p(-((random >> np.uint64(12)) + WIDE(0.5)) / WIDE(2) ** 52)
        time = shift + scale * np.where(power > 0, np.exp(power * hazard), hazard)
    wait[:] = time * delays.onset * apart
    whole[:] = (time * load + work) * apart


def splitmix(key, first, count):
    """Return numbers ``first``, ``first + 1``, ... of the generator with this key."""
    counters = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z = key + counters * _STEP  # modulo 2^64
    for shift, factor in _MIX:
        z = (z ^ (z >> shift)) * factor
    mixed = z ^ (z >> _LAST)
    return mixed


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


def _near_times(given, found, truth):
    for name, value in truth.items():
        if value is not None:
            bound = 2e-15 * (1 + 40 * given["delays"].power.max(initial=0))
            within(bound * value, found[name], value)


KERNELS = [
    Kernel(
        "draw",
        _drawn,
        _near_times,
        ("wait", "whole"),
        shapes((1, 2, 7, 8, 9, 33), (1, 3, 9)),
        cases=tuple({"given": given} for given in (None, "nearly", "exactly")),
        wide=False,
    )
]
