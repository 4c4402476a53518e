"""The figures of Ozfatura et al.: times and messages of rounds drawn here."""

import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from papers import ozfatura

from fastgc import simulation


def test_completion_times_are_distributed_as_the_closed_forms_say(checked):
    rows = checked(ozfatura.figure_1(rounds=20_000))
    assert all(row.ok for row in rows.values())
    most = math.sqrt(-math.log(0.001 / 2) / 2 / 20_000)
    distances = [row.ours for what, row in rows.items() if what.startswith("largest distance")]
    assert len(distances) == 5
    assert max(distances) < most
    # At n = 10, r = 5 the codes wait for 6 workers, 3 workers and 19 computations.
    means = [row.ours for what, row in rows.items() if what.startswith("mean")]
    assert means == sorted(means, reverse=True)
    drawn = rounds_of_ozfatura(10, 5, 20_000)
    for name, at in (("UC-MMC", 9), ("UC-MMC-PG, 9 of 10", 8)):
        times = np.sort(drawn.covered, axis=1)[:, at]
        row = rows[f"mean completion time (s), {name}"]
        assert abs(row.closed - times.mean()) < 4 * times.std() / math.sqrt(times.size)


class RoundsOfOzfatura(NamedTuple):
    """The times at which each computation is done and each partition covered, in many rounds."""

    computed: np.ndarray
    covered: np.ndarray


def rounds_of_ozfatura(n, load, rounds):
    """Draw rounds by eqs. (11) and (12), with none of the package's code."""
    each = 0.01 + np.random.default_rng(20).exponential(0.1, (rounds, n))
    computed = each[:, :, np.newaxis] * np.arange(1, load + 1)
    covered = np.full((rounds, n), np.inf)
    for j in range(load):  # partition i + j is worker i's (j + 1)-th
        covered = np.minimum(covered, np.roll(computed[:, :, j], j, axis=1))
    return RoundsOfOzfatura(computed, covered)


def schemes_of_ozfatura(n, load, rounds):
    """Return completion times and numbers of messages of each scheme."""
    computed, covered = rounds_of_ozfatura(n, load, rounds)
    messages = computed.reshape(rounds, -1)
    order = np.sort(covered, axis=1)
    found = {}
    for name, times in (("UC-MMC", order[:, -1]), ("UC-MMC-PG", order[:, n - n // 20 - 1])):
        found[name] = times, (messages <= times[:, np.newaxis]).sum(axis=1)
    lagrange = {"LCC": load, "LCC-MMC": 1, "LCC-MMC-2": 2}
    for name, P in lagrange.items():
        needed = 2 * math.ceil(n / P) - 1
        sums = computed[:, :, P - 1 :: P].reshape(rounds, -1)
        if load > 1 and load % P == 0:
            found[name] = np.sort(sums, axis=1)[:, needed - 1], np.full(rounds, needed)
    return found


def test_loads_of_ozfatura(checked):
    loads, rounds = (1, 2, 4), 10_000
    rows = checked(ozfatura.figure_2(loads=loads, rounds=2000))
    assert [what for what, row in rows.items() if not row.ok] == [
        "loads at which UC-MMC communicates most, of LCC, LCC-MMC and UC-MMC"
    ]
    assert rows["messages of LCC-MMC, mean over r = 2, 4"].ours == 79
    for other, most in (("LCC", 70), ("UC-MMC", 33)):
        note = rows[f"UC-MMC-PG takes less time than {other} by, r = 2"].note
        assert f"up to {most} %, where r is small" in note
    with pytest.raises(ValueError, match="r = 2, which must be one of the loads"):
        ozfatura.figure_2(loads=(1, 3))
    own = {load: schemes_of_ozfatura(40, load, rounds) for load in loads}
    time, sent, spread = {}, {}, {}
    for load, schemes in own.items():
        for name, (times, messages) in schemes.items():
            time[name, load], sent[name, load] = times.mean(), messages.mean()
            for what, values in (("mean completion time (s), ", times), ("messages of ", messages)):
                row = rows.get(f"{what}{name}, r = {load}")
                if row is not None:
                    error = values.std() / math.sqrt(rounds)
                    assert abs(row.closed - values.mean()) < 4 * error + 1e-9
                    spread[row.what] = error
    assert len(spread) == 6 + 2 * 3 + 6
    # Count and compare again.
    by = {what: row.ours for what, row in rows.items()}
    three = ("LCC", "LCC-MMC", "UC-MMC")
    least, most = (
        sum(pick(three, key=lambda name: sent[name, r]) == which for r in (2, 4))
        for pick, which in ((min, "LCC"), (max, "UC-MMC"))
    )
    of_three = "communicates {}, of LCC, LCC-MMC and UC-MMC"
    assert by["loads at which LCC " + of_three.format("least")] == least == 2
    assert by["loads at which UC-MMC " + of_three.format("most")] == most == 1
    less = sum(sent["UC-MMC-PG", r] < sent["UC-MMC", r] for r in loads)
    assert by["loads at which UC-MMC-PG communicates less than UC-MMC"] == less == 3
    assert by["steps to the next load at which LCC communicates less"] == 1
    rises = sum(sent["UC-MMC", a] < sent["UC-MMC", b] for a, b in itertools.pairwise(loads))
    assert by["steps to the next load at which UC-MMC communicates more"] == rises == 2
    for r in (2, 4):
        costs = time["LCC-MMC-2", r] / time["LCC-MMC", r] - 1
        assert by[f"LCC-MMC-2 takes longer than LCC-MMC by, r = {r}"] == pytest.approx(
            costs, abs=0.01
        )
        saves = 1 - sent["LCC-MMC-2", r] / sent["LCC-MMC", r]
        assert costs < saves
    ratio = by["time of decoding 20000 elements, LCC-MMC-2 over LCC-MMC, r = 2"]
    assert 0 < ratio < math.inf  # it depends on the machine
    what = "loads at which LCC-MMC-2 costs a smaller part of the time than it saves of messages"
    assert by[what] == 2
    dearer = max((2, 4), key=lambda r: time["UC-MMC", r] / time["LCC-MMC", r])
    name = f"UC-MMC takes longer than LCC-MMC by, most of all loads, r = {dearer}"
    exact = time["UC-MMC", dearer] / time["LCC-MMC", dearer] - 1
    assert by[name] == pytest.approx(exact, abs=0.02)


def test_steps_at_which_nothing_changes_are_named(checked):
    loads = (2, 6, 8, 12)
    rows = checked(ozfatura.figure_2(n=12, loads=loads, rounds=200))
    falls = rows["steps to the next load at which LCC communicates less"]
    assert (falls.ours, falls.paper) == (2, 3)  # 11, 3, 3 and 1 messages
    # 5 % of 12 partitions are less than one: with this tolerance the schemes are the same.
    same = rows["loads at which UC-MMC-PG communicates less than UC-MMC"]
    assert (same.ours, same.paper) == (0, 4)
    # UC-MMC sends most messages at a load of 8, not at the largest.
    sent = {r: simulation.covered_messages(12, r, ozfatura.DELAYS) for r in loads}
    rises = rows["steps to the next load at which UC-MMC communicates more"]
    assert rises.ours == sum(sent[b] > sent[a] for a, b in itertools.pairwise(loads)) == 2
    assert f"most at r = 8, {sent[8]:.4f}, and {sent[12]:.4f} at r = 12" in rises.note


@pytest.mark.long
def test_all_loads_of_the_figure_are_counted():
    """The figure counts all loads; a choice of them could have most steps as the paper says."""
    assert tuple(range(1, 41)) == ozfatura.LOADS
    sent = [simulation.covered_messages(40, r, ozfatura.DELAYS) for r in ozfatura.LOADS]
    assert sum(b > a for a, b in itertools.pairwise(sent)) == 23
    # By order statistics: at r = 1, a round of UC-MMC ends with the last of 40 messages, one of
    # UC-MMC-PG with the 38th. This saves more than at r = 2, the load of the paper's "up to".
    last, third_last = (
        0.01 + sum(Fraction(1, j) for j in range(first, 41)) / 10 for first in (1, 3)
    )
    times = {r: ozfatura.exact_means(40, r) for r in (1, 2)}
    assert times[1]["UC-MMC"][0] == pytest.approx(float(last))
    assert times[1]["UC-MMC-PG"][0] == pytest.approx(float(third_last))
    saved = [1 - times[r]["UC-MMC-PG"][0] / times[r]["UC-MMC"][0] for r in (1, 2)]
    assert saved == pytest.approx([0.343, 0.331], abs=5e-4)
    lcc = [2 * -(-40 // r) - 1 for r in ozfatura.LOADS[1:]]
    assert sum(b < a for a, b in itertools.pairwise(lcc)) == 10
    assert ozfatura.listed([1, 2, 4, 5, 6, 9]) == "1, 2, 4 to 6, 9"
