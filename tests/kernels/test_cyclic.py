"""Tables of cyclic codes, and their decoding vectors: wrong survivors, overflow, spread ones."""

import warnings

import mpmath
import numpy as np
import oracles
import pytest

import fastgc
from fastgc import kernels
from fastgc.kernels import Status
from fastgc.kernels.cyclic import LOCATOR, LOOKUP, PAD, SPREAD, circle, cyclic_tables

pytestmark = pytest.mark.every_backend


def test_circle():
    for m in (1, 2, 7, 12, 100):
        with mpmath.workdps(30):
            expected = [complex(mpmath.expjpi(mpmath.mpf(u) / m)) for u in range(2 * m)]
        np.testing.assert_array_equal(circle(m), expected)
        assert not circle(m).flags.writeable


def test_cyclic_tables_by_definition():
    """Tables hold t = -m .. m-1 and then ones; equal blocks share theirs."""
    blocks = [(7, 3, 5), (4, 1, 2), (7, 3, 6), (7, 2, 1)]
    tables = cyclic_tables(blocks)
    assert tables.start.tolist() == [0, 7, 11, 18, 25]
    assert tables.need.tolist() == [5, 2, 6, 1]
    assert tables.q.tolist() == [3, 1, 3, 2]
    assert tables.offset.tolist() == [0, 14 + PAD, 0, 22 + 2 * PAD]
    assert tables.phase_offset.tolist() == [0, 28, 0, 44]
    for (m, q, _), at, phase in zip(blocks, tables.offset, tables.phase_offset, strict=True):
        sine, cosecant = (each[at : at + 2 * m] for each in (tables.sine, tables.cosecant))
        with mpmath.workdps(30):
            true = [float(2 * mpmath.sinpi(mpmath.mpf(q * t) / m)) for t in range(-m, m)]
        np.testing.assert_allclose(sine, true, rtol=2.0**-52, atol=0)
        assert (sine[[0, m]] == 0).all()
        assert (cosecant[[0, m]] == 1).all()
        other = np.arange(2 * m) % m > 0
        np.testing.assert_allclose(cosecant[other] * sine[other], 1, rtol=2.0**-52)
        np.testing.assert_array_equal(tables.phase[phase : phase + 4 * m].view(complex), circle(m))
        for table in (tables.sine, tables.cosecant):
            assert (table[at + 2 * m : at + 2 * m + PAD] == 1).all()


TWO = fastgc.ReedSolomon(24, stragglers=5, clusters=2)  # two clusters, which need 7 of 12 each


def vector_of(code, survivors, method):
    survivors = np.array(survivors, np.int64)
    out = np.full(survivors.size, np.nan, np.complex128)
    decode, where = kernels.unchecked.bind_decoding_vector(code.scheme._plan, survivors, out)
    return decode(method, survivors.size), where[0], out


@pytest.mark.parametrize(
    ("survivors", "status", "where"),
    [
        ([*range(24), 5], "DUPLICATE", 24),
        ([3, 3, 99], "DUPLICATE", 1),
        ([*range(23), 24], "OUT_OF_RANGE", 23),
        ([-1, 0, 0], "OUT_OF_RANGE", 0),
        (range(9), "TOO_FEW", 7),
        ([*range(4), *range(12, 20)], "TOO_FEW", 3),
    ],
)
@pytest.mark.parametrize("method", [LOCATOR, LOOKUP, SPREAD])
def test_bind_decoding_vector_of_wrong_survivors(survivors, status, where, method):
    found = vector_of(TWO, survivors, method)
    assert found[:2] == (Status[status], where)
    assert np.isnan(found[2]).all()


def test_bind_decoding_vector_tells_the_last_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = fastgc.ReedSolomon(3000, stragglers=1500, root=1)
    status, where, out = vector_of(code, range(1500), LOCATOR)
    beyond = np.flatnonzero(~np.isfinite(out))
    assert status == Status.OVERFLOW
    assert where == beyond[-1] > beyond[0]


def test_bind_decoding_vector_spread_decodes_long_ones_anew():
    """A cluster whose vector is longer than the sum's is decoded from just enough messages."""
    anew = 0
    for away in range(2, 5):
        for first in range(12):
            neighbours = 5 * (first + np.arange(away)) % 12  # on the circle: points step by 5
            survivors = np.setdiff1d(np.arange(24), neighbours)
            plain, spread = (vector_of(TWO, survivors, m)[2] for m in (LOCATOR, SPREAD))
            mine = survivors < 12
            # The oracle makes the same choice among equally good messages.
            method, tables = SPREAD, TWO.scheme.tables
            chosen = oracles.decoding.decoding_vector(tables, method, survivors)
            np.testing.assert_allclose(spread, chosen, rtol=1e-12, atol=1e-15)
            if np.linalg.norm(plain[mine]) > 1:
                anew += 1
                assert np.count_nonzero(spread[mine]) == 7
                assert np.linalg.norm(spread[mine]) < np.linalg.norm(plain[mine])
            else:
                np.testing.assert_allclose(spread[mine], plain[mine], rtol=1e-12)
            np.testing.assert_allclose(spread[~mine], plain[~mine], rtol=1e-12)
    assert anew == 24
