"""Jobs across rounds on an engine; as a program: ``jobs_across_rounds.py ENGINE [FILE]``.

As a program some workers are late. With a file, one worker dies instead, once, which the file
remembers.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import fastgc
from fastgc.engines import find_engine
from fastgc.sequential import MSGC, SRSGC, SequentialCluster
from fastgc.testing import engines as conformance


class Times:
    """Delays from a table, a row for each round, repeated."""

    per = "round"

    def __init__(self, rows):
        self.rows = np.array(rows, dtype=float)

    def sample(self, round, workers, seed):
        return self.rows[round % len(self.rows)]


class Fatal:
    """A gradient that kills the only worker of partition 1, in round 2."""

    def __init__(self, path):
        self.path = Path(path)

    def __call__(self, theta, shard, out, *, partition, round):
        if (partition, round) == (1, 2) and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        conformance.curved(theta, shard, out)


def trained(
    scheme, jobs, *, dtype=np.float64, p=5, idle=(), gradient=conformance.curved, **options
):
    """Check gradients of jobs, which depend on the parameters.

    Return them, what rounds waited, and how many workers died.
    """
    rng = np.random.default_rng(7)
    shards = list(rng.standard_normal((scheme.k, p)).astype(dtype))
    thetas = rng.standard_normal((jobs, p)).astype(dtype)
    done, begun, waits = [], {}, []
    with SequentialCluster(scheme, shards, gradient, p, dtype, **options) as cluster:
        for i, theta in enumerate(thetas):
            if i in idle:
                done += cluster.step(None)
            begun[cluster.schedule.round] = theta
            given = theta.copy()
            done += cluster.step(given)
            given[:] = np.nan  # the engine has copied it
            waits.append(cluster.report.wait_seconds)
        while not cluster.schedule.idle:
            done += cluster.step(None)
            waits.append(cluster.report.wait_seconds)
        assert cluster.finish() == []
        deaths = cluster.report.deaths
    assert sorted(each.job for each in done) == sorted(begun)
    for each in done:
        assert each.gradient.dtype == dtype
        assert not each.residual > 1e-12
        truth = sum(np.sin(begun[each.job]).astype(float) * shard for shard in shards)
        np.testing.assert_allclose(each.gradient, truth, atol=1e3 * np.finfo(dtype).eps)
    return done, waits, deaths


def main(name, path=None):
    options = {"engine": name, "mu": 0.5, "timeout": 100.0, "patience": 100.0}
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    if getattr(find_engine(name), "serve_all", bool)():  # serves any number of clusters
        return
    if path is not None:
        print(trained(scheme, 8, gradient=Fatal(path), **options)[-1], flush=True)
        return
    # Workers are late in turn, and finish their work when a round is over.
    late = Times([[0.0, 0.0, 0.0, 0.2], [0.0] * 4, [0.0, 0.2, 0.0, 0.0], [0.0] * 4])
    scheme = MSGC(4, burst=2, window=3, stragglers=1, code=fastgc.ReedSolomon)
    trained(scheme, 9, idle=(4, 5), delays=late, **options)
    scheme = SRSGC(4, burst=2, window=3, stragglers=3)
    trained(scheme, 7, dtype=np.float32, delays=late, **options)
    print("done", flush=True)


if __name__ == "__main__":
    import jobs_across_rounds  # workers import what they compute

    jobs_across_rounds.main(*sys.argv[1:])
