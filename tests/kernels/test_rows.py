"""Rows know their addresses, what shares memory with them, and whether they still lie there."""

import ml_dtypes
import numpy as np
import pytest

from fastgc.kernels import Rows
from fastgc.kernels.rows import ROUNDING, address, kind_of, stacked, sums_of

FLOAT = np.dtype(np.float32)


def places(arrays):
    return [array.__array_interface__["data"][0] for array in arrays]


def test_kind_of():
    kinds = {"f4": "float", "c8": "float", "f8": "double", "c16": "double", "f2": "half"}
    assert {name: kind_of(np.dtype(name)) for name in kinds} == kinds
    assert kind_of(np.dtype(ml_dtypes.bfloat16)) == "bfloat"
    for other in (">f4", "i8", "g", "O", "?"):
        with pytest.raises(TypeError, match=str(np.dtype(other))):
            kind_of(np.dtype(other))


@pytest.mark.parametrize("as_matrix", [False, True])
def test_rows_of(as_matrix):
    wide = np.zeros((5, 9), FLOAT)
    for given in (wide[:, 1:8], wide[::-1, :7], wide[1:2], wide[::2, :7]):
        rows = Rows.of(given if as_matrix else list(given), given.shape[1], FLOAT)
        assert rows.addresses.tolist() == places(given) == [*map(address, given)]
        assert (rows.count, rows.length, rows.nbytes) == (
            len(given),
            *given.shape[1:],
            given[0].nbytes,
        )
        assert (rows.dtype, rows.kind) == (FLOAT, "float")
        rows.check("rows")
    assert Rows.of([], 3, FLOAT).addresses.size == Rows.of([], 3, FLOAT).count == 0


def test_stacked_below_the_first():
    assert stacked(1000, 8, 3).tolist() == [1000, 1008, 1016]
    assert stacked(1000, -8, 3).tolist() == [1000, 992, 984]


def test_rows_append_point_and_clear():
    rows, arrays = Rows(3, 4, FLOAT), list(np.zeros((3, 4), FLOAT))
    for at, array in enumerate(arrays[:2]):
        rows.append(array)
        assert rows.count == at + 1
    rows.point(2, arrays[2])
    assert rows.addresses.tolist() == places(arrays)
    assert rows.count == 2
    assert rows.nbytes == 16
    rows.clear()
    assert rows.count == 0


def test_rows_select():
    rows = Rows.of(np.arange(12.0).reshape(4, 3), 3, np.dtype(float))
    for which in ([2, 0], [3], [1, 1, 2], []):
        chosen = rows.select(np.array(which, int))
        assert chosen.count == len(which)
        assert chosen.addresses.tolist() == rows.addresses[which].tolist()
        assert [row[0] for row in chosen.arrays] == [3 * at for at in which]
        assert [chosen.arrays[at][2] for at in range(len(which))] == [3 * at + 2 for at in which]
        assert (chosen.length, chosen.nbytes, chosen.kind) == (3, 24, "double")


@pytest.mark.parametrize("count", [1, 16, 17, 40])
@pytest.mark.parametrize("as_matrix", [False, True])
def test_rows_overlap(count, as_matrix):
    """Neighbours that touch share nothing; one byte is enough; gaps between rows are free."""
    memory = np.zeros(20 * count + 20, np.int8)
    table = memory[8 : 8 + 20 * count].reshape(count, 20)[:, :12].view(FLOAT)
    rows = Rows.of(table if as_matrix else list(table), 3, FLOAT)
    for at in range(memory.size):
        for size in (1, 8, 20):
            array = memory[at : at + size]
            inside = np.shares_memory(array, table)
            assert rows.overlap(array) == inside, (at, size)


def test_rows_check_says_what_is_wrong():
    good, moved = np.zeros((3, 4), FLOAT), np.zeros((3, 4), FLOAT)
    crooked = np.zeros(17, np.int8)[1:].view(FLOAT)
    for other, error, says in [
        ([1.0] * 4, TypeError, "1 is list"),
        (np.zeros(4), TypeError, "1 is of float64"),
        (np.zeros(5, FLOAT), ValueError, r"1 has \(5,\)"),
        (np.zeros(8, FLOAT)[::2], ValueError, "1 is not"),
        (crooked, ValueError, "1 is not"),
        (moved[1], ValueError, "do not lie"),
    ]:
        rows = Rows.of(list(good), 4, FLOAT)
        rows.check("rows")
        rows.arrays[1] = other
        with pytest.raises(error, match=f"messages .*{says}"):
            rows.check("messages")
    for arrays, says in [
        (np.zeros((3, 4, 1), FLOAT), r"\(3, 4, 1\)"),
        (np.zeros((3, 5), FLOAT), r"0 has \(5,\)"),
        (moved, "do not lie"),
        (good[::-1], "do not lie"),
        (np.concatenate([good, good]), "do not lie"),
    ]:
        rows = Rows.of(good, 4, FLOAT)
        rows.arrays = arrays
        with pytest.raises(ValueError, match=f"messages .*{says}"):
            rows.check("messages")
    rows = Rows.of(good, 4, FLOAT)
    rows.arrays = good[:2]  # fewer, where they were
    rows.check("messages")


def test_errors_of_sums():
    """A term is rounded once for each number after it in its group of 8, then once a group."""
    assert [sums_of(f) for f in (1, 4, 8, 80, 800)] == [1, 4, 5, 14, 104]
    numbers = 2 ** np.random.default_rng(0).random(100_000)  # logarithms are spread evenly
    error = numbers.astype(np.float32) - numbers
    measured = np.mean(error**2) / np.mean(numbers**2) / 2.0**-48
    assert measured == pytest.approx(ROUNDING, rel=0.05)
