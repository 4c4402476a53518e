"""Patterns of stragglers that schemes across rounds tolerate, by their definitions.

A pattern has a row for each round and a column for each worker. True marks a straggler, from which
nothing came in that round. If it is shorter than a window, all its rounds are one window.
"""

from functools import partial

import numpy as np

from fastgc.sequential import MSGC, SRSGC


def bursty(pattern, burst, window, stragglers):
    """Few workers straggle in any window of rounds, and each in one short burst."""
    for rows in _windows(pattern, window):
        if np.count_nonzero(rows.any(axis=0)) > stragglers:
            return False
        for column in rows.T:
            at = np.flatnonzero(column)
            if at.size and at[-1] - at[0] >= burst:
                return False
    return True


def arbitrary(pattern, times, window, stragglers):
    """Few workers straggle in any window of rounds, each a few times, in any rounds."""
    for rows in _windows(pattern, window):
        counts = rows.sum(axis=0)
        if np.count_nonzero(counts) > stragglers or counts.max() > times:
            return False
    return True


def promised(scheme):
    """Return pairs of a window and a function of patterns: what a scheme claims to tolerate."""
    if not isinstance(scheme, (SRSGC, MSGC)):
        return [_per_round(scheme.parts[0].stragglers)]
    burst, window, most = scheme.burst, scheme.window, scheme.stragglers
    bursts = window, partial(bursty, burst=burst, window=window, stragglers=most)
    if isinstance(scheme, SRSGC):
        return [bursts, _per_round(scheme.s)]
    longer = window + burst - 1
    return [bursts, (longer, partial(arbitrary, times=burst, window=longer, stragglers=most))]


def _per_round(stragglers):
    return 1, partial(arbitrary, times=1, window=1, stragglers=stragglers)


def _windows(pattern, window):
    return [pattern[at : at + window] for at in range(max(1, len(pattern) - window + 1))]
