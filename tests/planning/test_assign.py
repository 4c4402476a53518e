"""A plan by speeds chooses the best assignment of a binary code."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fastgc import BinaryCode
from fastgc.codes.binary import ASSIGNMENTS, classes_by_speed
from fastgc.delays import Heterogeneous, ShiftedExponential
from fastgc.planning import plan

N, K = 12, 96


def late(speeds, share):
    return Heterogeneous([ShiftedExponential(share / v, v / (1 - share)) for v in speeds])


def means(speeds, k, stragglers, **options):
    """Return the mean time of each assignment, the one that a plan ranks first before others."""
    given = {"stragglers": stragglers, "speeds": speeds.tolist()}
    codes = [BinaryCode(speeds.size, k, assignment=name, **given) for name in ASSIGNMENTS]
    ranked = plan(speeds.size, k=k, codes=codes, **options).choices
    return {choice.code.assignment: choice.simulation.mean for choice in ranked}


def mean_by_hand(code, share, speeds, rounds=3000, seed=9):
    """Return the mean time by definition: all blocks are covered, or a class is complete."""
    rng = np.random.default_rng(seed)
    unit = (share + (1 - share) * rng.standard_exponential((rounds, code.n))) / speeds
    end = unit * code.scheme.loads
    if code.assignment == "classes":
        mine = classes_by_speed(code.stragglers, np.asarray(speeds, float))
        classes = [np.flatnonzero(mine == c) for c in range(code.stragglers + 1)]
        return np.min([end[:, each].max(axis=1) for each in classes], axis=0).mean()
    starts = np.unique(code.scheme._start)
    holders = [np.flatnonzero(code.scheme._start == start) for start in starts]
    return np.max([end[:, each].min(axis=1) for each in holders], axis=0).mean()


@pytest.mark.parametrize("share", [0.95, 0.1])
def test_chooses_the_fastest(share):
    speeds = np.linspace(1, 4, N)
    found = means(speeds, K, 2, delays=late(speeds, share), rounds=3000)
    assert set(found) == {"spread", "aligned", "classes", "uniform"}
    assert list(found.values()) == sorted(found.values())
    mine = {
        name: mean_by_hand(
            BinaryCode(N, K, stragglers=2, speeds=speeds.tolist(), assignment=name), share, speeds
        )
        for name in ("spread", "aligned", "classes")
    }
    for name in ("spread", "aligned"):
        assert found[name] == pytest.approx(mine[name], rel=0.03)
    # Blocks of different classes sometimes fit together.
    assert found["classes"] < 1.03 * mine["classes"]
    assert mine[next(iter(found))] < 1.02 * min(mine.values())


def test_none_is_always_best():
    """If workers are lost, copies belong on workers of similar speed; otherwise on all kinds."""
    speeds = np.array([4.0, 4, 4, 4, 1, 1, 1, 1])
    assert next(iter(means(speeds, 80, 1, cost=1 / speeds, rounds=10))) == "spread"

    class Lost:
        per = "computation"

        def sample(self, round, workers, seed):
            lost = np.zeros(workers)
            lost[round % 4] = 1e6  # a fast worker
            return lost

    found = means(speeds, 80, 1, delays=Lost(), cost=1 / speeds, rounds=20)
    assert next(iter(found)) in ("aligned", "classes")
    assert found["spread"] > 1.9 * found["aligned"]


@pytest.mark.parametrize("how", ["plain", "dead", "busy"])
def test_table_of_the_clusters(how, monkeypatch):
    path = Path(__file__).parents[2] / "benches" / "assignments.py"
    spec = importlib.util.spec_from_file_location("assignments", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    monkeypatch.setattr(bench, "STRAGGLERS", (4,))
    monkeypatch.setattr(bench, "SHARES", (0.1,))
    title, _, head, _, *rows = bench.sweep(400, 1, how).splitlines()
    assert head.startswith("| speeds | s | constant share | uniform | classes | aligned | spread |")
    assert [row.split("|")[1].strip() for row in rows] == list(bench.clusters(20, 1))
    assert title.startswith("20 workers, 200 partitions, 400 rounds")
    for row in rows:
        *times, chosen, of_better, of_classes = (cell.strip() for cell in row.split("|")[4:-1])
        named = dict(
            zip(("uniform", "classes", "aligned", "spread"), map(float, times), strict=True)
        )
        assert float(of_classes) == pytest.approx(named[chosen] / named["classes"], abs=0.02)
        better = min(named["uniform"], named["classes"])
        assert float(of_better) == pytest.approx(named[chosen] / better, abs=0.02)
