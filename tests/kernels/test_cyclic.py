"""Tables of cyclic codes."""

import mpmath
import numpy as np
import pytest

from fastgc.kernels.cyclic import PAD, circle, cyclic_tables

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
