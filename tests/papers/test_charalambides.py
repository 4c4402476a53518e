"""Binary codes: the numbers of Charalambides et al. by enumeration."""

import itertools
import math

import numpy as np
import pytest
from papers import charalambides

from fastgc import BinaryCode


@pytest.mark.parametrize(("k", "parts"), [(0, 1), (3, 1), (4, 3), (6, 4)])
def test_splits_are_all_there_are(k, parts):
    splits = [tuple(split) for split in charalambides._splits(k, parts)]
    assert len(set(splits)) == len(splits) == math.comb(k + parts - 1, parts - 1)
    assert {sum(split) for split in splits} == {k}
    assert {len(split) for split in splits} == {parts}


def test_binary_codes_are_as_even_as_classes_allow(monkeypatch, checked):
    monkeypatch.setattr(charalambides, "LEMMA", range(1, 6))
    monkeypatch.setattr(charalambides, "TABLE", (10, 3))
    rows = checked(charalambides.section_5(workers=range(3, 9)))
    within, over_all, example, several, lemma, widest, condition, *rest = rows.values()
    table, searched, beyond, mixed = rest
    assert within.ours == within.paper == sum(n - 2 for n in range(3, 9))
    # s + 1 divides n, 1 <= s <= n - 2
    divisors = sum(n % d == 0 for n in range(3, 9) for d in range(2, n))
    assert over_all.ours == divisors
    assert not over_all.ok
    assert example.ours == example.closed == 6
    assert several.ours > 0
    assert (lemma.ours, widest.ours) == (1, 3)
    assert "s = 2, n = 5, where t = 2" in lemma.note
    assert condition.paper == 0 < condition.ours
    assert "they differ by 6 with n = 11, s = 5" in condition.note
    assert table.ours == table.closed == 120 * 10 * 9 / 1e6
    assert searched.ours > 0
    assert beyond.ours == pytest.approx(math.comb(80, 12) * 80 * 9 / 1e12)
    assert 0 < mixed.ours < 55
    assert "with 2 fast workers and times of 1 and 4 they are [8, 2]" in mixed.note


def test_evenest_loads_of_n_4_s_2_are_not_the_only_ones():
    """Try all 0-1 matrices of n = k = 4 whose three classes hold each partition once."""
    far = {}
    for split in itertools.product(range(2), repeat=4):  # for each partition: worker 0 or 3
        loads = tuple(sorted((split.count(0), split.count(1), 4, 4)))
        far[loads] = sum(abs(load - 3) for load in loads)
    least = min(far.values())
    assert {loads for loads in far if far[loads] == least} == {(2, 2, 4, 4), (1, 3, 4, 4)}
    assert charalambides._evenest(4, 4, 2)[0] == (2.0, {(2, 2), (1, 3)})
    assert charalambides.least_distance(4, 4, 2) == least


def test_lemma_4_fails_once():
    """Lemma 4, with divisions done by repeated subtraction."""
    for s, n in itertools.product(range(1, 9), range(2, 120)):
        if n < s * s or s >= n:
            continue
        ell, rest, t = 0, n, 0
        while rest >= s + 1:
            rest, ell = rest - s - 1, ell + 1
        while rest >= ell:
            rest, t = rest - ell, t + 1
        right = t == (1 if n - s * s in {s - 2, s - 1, 2 * s} else 0)
        assert charalambides.lemma_4_fails(s, n) == (None if right else t)
        assert right == ((s, n) != (2, 5))


def test_loads_may_differ_by_more_than_3_where_n_is_less_than_the_square(monkeypatch):
    """Section V-A: l + r > s is no sufficient condition, but n >= s^2 is, by algorithms 1 and 2."""

    def loads(n, s):
        found = set()
        for c in range(s + 1):
            members = sum(worker % (s + 1) == c for worker in range(n))
            found |= {n // members, -(-n // members)}
        return found

    differ = {}
    for s in range(1, 8):
        for n in range(s + 1, 2 * s * s + 2):
            differ[n, s] = max(loads(n, s)) - min(loads(n, s))
            if n >= s * s:
                assert differ[n, s] <= 3
    for s in range(3, 8):
        assert sum(divmod(2 * s + 1, s + 1)) > s
        assert differ[2 * s + 1, s] == s + 1 > 3
    monkeypatch.setattr(charalambides, "LEMMA", range(1, 8))
    held = [(n, s) for n, s in differ if n < s * s and sum(divmod(n, s + 1)) > s]
    row = charalambides._condition_row()
    assert f"of {len(held)} with" in row.what
    assert row.ours == sum(differ[pair] > 3 for pair in held)


def sums_of_classes(loads, classes, k):
    """Return all sums, none above k, that classes can have, adding one worker after another."""
    reached = {(0,) * classes}
    for load in loads:
        reached = {
            tuple(sorted((*room[:c], room[c] + load, *room[c + 1 :])))
            for room in reached
            for c in range(classes)
            if room[c] + load <= k
        }
    return reached


def test_loads_that_fit_classes():
    rng = np.random.default_rng(0)
    found = set()
    for _ in range(60):
        loads = tuple(rng.multinomial(12, np.ones(6) / 6).tolist())
        fits = (4, 4, 4) in sums_of_classes(loads, 3, 4)
        assert charalambides.fits_classes(loads, 4, 3) == fits
        found.add(fits)
    assert found == {True, False}


def test_table_holds_every_set():
    code = BinaryCode(7, stragglers=2)
    came, vectors = charalambides.table_of_vectors(code)
    assert len(np.unique(came, axis=0)) == len(came) == 21
    assert (came.sum(axis=1) == 5).all()
    np.testing.assert_array_equal(vectors @ code.matrix(), 1)
    assert not vectors[~came].any()
