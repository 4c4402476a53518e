"""Messages that are plain sums: the choice of those added up is the best of all."""

import itertools

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_table import WRONG_SURVIVORS, filled

from fastgc import BinaryCode, Uncoded, kernels
from fastgc.kernels import Status


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 20),
    st.booleans(),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_the_first_of_each_cell(cell, need, whole, data):
    weight = np.arange(1, 7)
    plan = kernels.cover.CellsPlan(np.array(cell), weight, need, 21.0 * whole)
    survivors = data.draw(st.permutations(range(len(cell))))
    survivors = survivors[: data.draw(st.integers(0, len(cell)))]
    expected, came = [], set()
    for i in survivors:
        expected.append(float(cell[i] not in came))
        came.add(cell[i])
    sum_of = int(sum(weight[c] for c in came))
    status, vector = filled(kernels.unchecked.bind_cells, plan, survivors)
    if sum_of < need:
        assert status == Status.TOO_FEW
        return
    assert status == Status.OK
    factor = 21.0 / sum_of if whole and sum_of else 1.0
    np.testing.assert_allclose(vector, np.array(expected) * factor, rtol=1e-15)
    assert not whole or not survivors or abs(sum_of * max(vector) - 21) < 1e-13


def fewest(start, stop, k, survivors):
    """Return the signs of the fewest messages that give [0, k), if possible all 1; or None."""
    for signs in ((0, 1), (0, 1, -1)):
        found = []
        for choice in itertools.product(signs, repeat=len(survivors)):
            total = np.zeros(k)
            for sign, i in zip(choice, survivors, strict=True):
                total[start[i] : stop[i]] += sign
            if (total == 1).all():
                found.append((np.count_nonzero(choice), choice))
        if found:
            return min(found)[0], signs
    return None


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_fewest_intervals(data):
    k = data.draw(st.integers(1, 5))
    interval = st.tuples(st.integers(0, k - 1), st.integers(1, k)).map(sorted)
    intervals = data.draw(
        st.lists(interval.filter(lambda ends: ends[0] < ends[1]), min_size=1, max_size=7)
    )
    start, stop = np.array(intervals).T
    plan = kernels.cover.tiling_plan(start, stop, k)
    survivors = data.draw(st.permutations(range(len(intervals))))
    survivors = survivors[: data.draw(st.integers(0, len(intervals)))]
    status, vector = filled(kernels.unchecked.bind_tiling, plan, survivors)
    best = fewest(start, stop, k, survivors)
    if best is None:
        assert status == Status.TOO_FEW
        return
    assert status == Status.OK
    total = np.zeros(k)
    for sign, i in zip(vector, survivors, strict=True):
        total[start[i] : stop[i]] += sign
    np.testing.assert_array_equal(total, 1)
    assert np.count_nonzero(vector) == best[0]
    assert set(vector) <= set(best[1])
    # The order in which messages came does not matter.
    again, oracle = sorted(survivors), oracles.cover.bind_tiling
    assert dict(zip(survivors, vector, strict=True)) == dict(
        zip(again, filled(oracle, plan, again)[1], strict=True)
    )


@pytest.mark.parametrize(("survivors", "status"), [*WRONG_SURVIVORS, ([2], Status.OK)])
def test_what_is_wrong_with_survivors(survivors, status):
    tiling = kernels.cover.tiling_plan(np.array([0, 1, 0]), np.array([1, 2, 2]), 2)
    assert filled(kernels.unchecked.bind_tiling, tiling, survivors)[0] == status
    cells = kernels.cover.CellsPlan(np.array([0, 1, 2]), np.array([1, 1, 2]), 2, 0.0)
    assert filled(kernels.unchecked.bind_cells, cells, survivors)[0] == status


@pytest.mark.parametrize("code", [BinaryCode(6, stragglers=2), Uncoded(4, tolerance=0.3)])
def test_codes_say_what_is_wrong(code):
    decode = code.decoder()
    for survivors, says in [
        ([0, 0], r"survivors\[1\] names worker 0 a second time"),
        ([0, 9], r"survivors\[1\] is 9, but workers are numbered 0 to"),
        ([0], "at least"),
    ]:
        for call in (code.decoding_vector, decode):
            with pytest.raises(ValueError, match=says):
                call(survivors)
    with pytest.raises(ValueError, match='knows the method "auto"'):
        decode(range(code.n), "spread")
    assert len(decode(range(code.n))) == code.n


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_the_mask_of_a_set(data):
    n = data.draw(st.integers(1, 200))
    chosen = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n))
    survivors = np.full(n, -1, np.int64)
    survivors[: len(chosen)] = chosen
    bits = np.full(-(-n // 8) + 1, 7, np.uint8)  # the last byte must stay
    mask = kernels.unchecked.bind_survivor_mask(n, survivors, bits[:-1])
    assert mask(len(chosen)) == 0
    assert int.from_bytes(bits[:-1].tobytes(), "little") == sum(1 << i for i in chosen)
    assert bits[-1] == 7
    if chosen:
        wrong = data.draw(st.sampled_from([chosen[0], -1, n, n + 8, -(2**63), 2**63 - 1]))
        survivors[data.draw(st.integers(min(1, len(chosen) - 1), len(chosen) - 1))] = wrong
        bad = len(set(survivors[: len(chosen)].tolist())) < len(chosen) or not 0 <= wrong < n
        assert mask(len(chosen)) == bad
