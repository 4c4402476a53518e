"""Checks that the tests of several engines share."""

import os
import signal

import numpy as np
import pytest

from fastgc import ReedSolomon, Uncoded
from fastgc.testing.engines import Delays

# np.multiply(theta, shard, out) has the signature of a gradient function, and pickles.


def check_lateness(engine):
    """A delay per round precedes the first message; one per computation precedes each message."""
    out, late = np.empty(1), 0.05
    for per in ("round", "computation"):
        delays = Delays([late], per=per)
        with engine(Uncoded(1, 4, load=4), [1.0] * 4, np.multiply, 1, delays=delays) as cluster:
            arrivals = cluster.step(np.ones(1), out).arrivals
            assert out[0] == 4.0
        assert arrivals[0] >= late
        if per == "computation":
            assert (arrivals >= late * np.arange(1, 5)).all()


def check_leaving_between_messages(engine, pids_of, stale):
    """A late worker leaves a round between two messages; `stale` of them come in the next round."""
    out = np.empty(1)
    # Either worker can send everything alone.
    with engine(Uncoded(2, load=2), [1.0, 2.0], np.multiply, 1) as cluster:

        def step(number, worker, stale=0):
            report = cluster.step(np.full(1, float(number)), out)
            assert report.survivors.tolist() == [worker]
            assert report.messages == 2
            assert report.stale == stale
            assert out[0] == 3.0 * number

        zero, one = pids_of(cluster)
        os.kill(one, signal.SIGSTOP)
        for number in range(6):
            step(number, 0)
        os.kill(zero, signal.SIGSTOP)
        os.kill(one, signal.SIGCONT)
        step(10, 1, stale)
        step(11, 1)
        os.kill(zero, signal.SIGCONT)


def check_two_clusters(engine):
    """Two clusters work at once, and one goes on after the other is closed, even twice."""
    one, two = np.empty(3), np.empty(5)
    with (
        engine(Uncoded(2), [1.0, 2.0], np.multiply, 3) as first,
        engine(ReedSolomon(2, 2, stragglers=1), [3.0, 4.0], np.multiply, 5) as second,
    ):
        for number in range(5):
            first.step(np.full(3, float(number)), one)
            second.step(np.full(5, float(number)), two)
            np.testing.assert_array_equal(one, 3.0 * number)
            np.testing.assert_allclose(two, 7.0 * number)
        first.close()
        first.close()
        second.step(np.ones(5), two)
        np.testing.assert_allclose(two, 7.0)
        with pytest.raises(RuntimeError, match="closed"):
            first.step(np.ones(3), one)
