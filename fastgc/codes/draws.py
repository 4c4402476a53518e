"""Random choices of workers that need not know of each other: functions of a seed and a number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct_draws"]

Bits = NDArray[np.uint64]

_BLOCK = 1 << 18  # numbers drawn at a time, so that they stay in the cache


def distinct_draws(
    seed: int, workers: NDArray[np.int64], count: int, size: int
) -> NDArray[np.int64]:
    """What each of these workers picks: `size` of `count`, in random order, without repetition.

    Every worker has an endless sequence of random numbers, a function of (seed, worker) alone, and
    takes the first `size` distinct ones; or, where it takes more than half of all, those with the
    smallest numbers. All choices and orders are equally likely.

    Parameters
    ----------
    seed : int
        Not negative.
    workers : (rows,) int64 array
    count, size : int
        1 <= size <= count.

    Returns
    -------
    (rows, size) int64 array
    """
    # What `size` distinct ones take on average, and four standard deviations.
    taken = np.arange(min(size, count // 2 + 1)) / count
    width = size + int((taken / (1 - taken)).sum() + 4 * np.sqrt((taken / (1 - taken) ** 2).sum()))
    dense = 2 * size > count
    picked = np.empty((workers.size, size), dtype=np.int64)
    rows = max(1, _BLOCK // (count if dense else width))
    starts = _starts(seed, workers)
    for at in range(0, workers.size, rows):
        block, out = starts[at : at + rows], picked[at : at + rows]
        if dense:
            out[:] = np.argsort(_numbers(block, count), axis=1)[:, :size]
        else:
            _first_distinct(block, count, width, out)
    return picked


def _first_distinct(starts: Bits, count: int, width: int, out: NDArray[np.int64]) -> None:
    """The first distinct numbers below `count` of each sequence, as many as `out` has room for."""
    size = out.shape[1]
    lacking = np.arange(starts.size)
    while lacking.size:
        # 2^64 is no multiple of the count: probabilities differ by a part of count / 2^64 at most,
        # 6e-14 for a million.
        drawn = (_numbers(starts[lacking], width) % np.uint64(count)).view(np.int64)
        if size == 1:
            out[lacking] = drawn[:, :1]
            return
        order = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, order, axis=1)
        new = np.ones(drawn.shape, dtype=bool)  # not drawn before
        np.put_along_axis(new, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)
        rank = np.cumsum(new, axis=1)
        enough = rank[:, -1] >= size
        new &= (rank <= size) & enough[:, np.newaxis]
        out[lacking[enough]] = drawn[new].reshape(-1, size)
        lacking, width = lacking[~enough], 2 * width


def _starts(seed: int, workers: NDArray[np.int64]) -> Bits:
    """Where the sequence of each worker begins.

    Numbers of 64 bits. The sequences of two of n workers share one of w numbers with a probability
    of n^2 w / 2^64 at most: 1e-6 for a million workers and w = 20.
    """
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    return _mixed(key + (workers.astype(np.uint64) + np.uint64(1)) * _STEP)


def _numbers(starts: Bits, width: int) -> Bits:
    """The first numbers of each sequence, (rows, width): those of SplitMix64."""
    return _mixed(starts[:, np.newaxis] + np.arange(1, width + 1, dtype=np.uint64) * _STEP)


# SplitMix64 (Steele, Lea, Flood 2014), with its constants.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


def _mixed(bits: Bits) -> Bits:
    for shift, factor in _ROUNDS:
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    return bits
