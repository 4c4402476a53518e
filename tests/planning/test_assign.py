"""The choice of an assignment is the best of all, and bad arguments are refused."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fastgc import BinaryCode
from fastgc.codes.binary import classes_by_speed
from fastgc.delays import Exponential, Heterogeneous, ShiftedExponential
from fastgc.planning import assign

N, K = 12, 96


def late(speeds, share):
    return Heterogeneous([ShiftedExponential(share / v, v / (1 - share)) for v in speeds])


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
    found = assign(speeds, K, stragglers=2, delays=late(speeds, share), cost=0.0, rounds=3000)
    assert set(found.simulations) == {"spread", "aligned", "classes", "uniform"}
    means = [run.mean for run in found.simulations.values()]
    assert means == sorted(means)
    assert found.code.assignment == next(iter(found.simulations))
    assert found.code.scheme.loads.sum() == 3 * K
    mine = {
        name: mean_by_hand(
            BinaryCode(N, K, stragglers=2, speeds=speeds.tolist(), assignment=name), share, speeds
        )
        for name in ("spread", "aligned", "classes")
    }
    for name in ("spread", "aligned"):
        assert found.simulations[name].mean == pytest.approx(mine[name], rel=0.03)
    # Blocks of different classes sometimes fit together.
    assert found.simulations["classes"].mean < 1.03 * mine["classes"]
    assert mine[found.code.assignment] < 1.02 * min(mine.values())


def test_none_is_always_best():
    """If workers are lost, copies belong on workers of similar speed; otherwise on all kinds."""
    speeds = np.array([4.0, 4, 4, 4, 1, 1, 1, 1])
    assert assign(speeds, 80, stragglers=1, rounds=10).code.assignment == "spread"

    class Lost:
        per = "computation"

        def sample(self, round, workers, seed):
            lost = np.zeros(workers)
            lost[round % 4] = 1e6  # a fast worker
            return lost

    found = assign(speeds, 80, stragglers=1, delays=Lost(), rounds=20)
    assert found.code.assignment in ("aligned", "classes")
    assert found.simulations["spread"].mean > 1.9 * found.simulations["aligned"].mean


def test_cost_is_that_of_the_speeds():
    given = assign([1, 2, 4], stragglers=0, rounds=5)
    assert given.code.n == given.code.k == 3
    assert given.simulations["uniform"].mean == pytest.approx(1.0)
    dear = assign([1, 2, 4], 7, stragglers=0, cost=[3.0, 1.5, 0.75], rounds=5)
    assert dear.simulations["classes"].mean == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"speeds": 3.0}, ValueError, "one number a worker"),
        ({"speeds": []}, ValueError, "one number a worker"),
        ({"speeds": [1, 0, 1]}, ValueError, "positive and finite"),
        ({"speeds": [1j, 1]}, TypeError, "speeds must be real"),
        ({"speeds": [1, 2], "stragglers": 2}, ValueError, "stragglers must be in 0"),
        ({"speeds": [1, 2], "cost": [1, 2, 3]}, ValueError, "one for each of 2 workers"),
        ({"speeds": [1, 2], "rounds": 0}, ValueError, "rounds must be at least 1"),
        ({"speeds": [1e-320, 1.0]}, ValueError, "cost must be seconds, finite"),
        (
            {"speeds": [1, 2], "delays": Heterogeneous([Exponential(1.0)] * 3)},
            ValueError,
            "3",
        ),
    ],
)
def test_impossible(arguments, error, says):
    with pytest.raises(error, match=says):
        assign(**{"stragglers": 1, **arguments})


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
