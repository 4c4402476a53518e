"""Numbers of twice float64's precision: arithmetic agrees with exact numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgc.kernels import pairs
from fastgc.kernels.pairs import exact_sum

U2 = Fraction(1, 2**106)


def value(pair):
    return Fraction(float(pair[0])) + Fraction(float(pair[1]))


def is_normal(pair):
    return float(pair[0]) + float(pair[1]) == float(pair[0])


def near(low, high):
    """Return a strategy of 0 and numbers whose sizes lie between two powers of two."""
    size = st.floats(2.0**low, 2.0**high, allow_subnormal=False)
    return st.one_of(st.just(0.0), size, size.map(lambda x: -x))


@st.composite
def numbers(draw, low=-200, high=200):
    x = draw(near(low, high))
    share = draw(st.floats(-0.5, 0.5))
    return pairs.two_sum(x, share * float(np.spacing(abs(x))) if x else 0.0)


class TestArithmetic:
    @pytest.mark.subnormal
    @given(numbers(), numbers(), st.integers(-3, 3))
    def test_sum_and_product(self, x, y, nearly):
        if nearly:  # the numbers nearly cancel
            y = pairs.two_sum(-x[0] * (1 + nearly * 2.0**-52), y[1] * 2.0**-60)
        for found, exact, within in (
            (pairs.add(x, y), value(x) + value(y), 4),
            (pairs.multiply(x, y), value(x) * value(y), 7),
            (pairs.add(x, pairs.negate(x)), Fraction(0), 0),
        ):
            assert is_normal(found)
            assert abs(value(found) - exact) <= within * U2 * abs(exact)

    @pytest.mark.subnormal
    @given(numbers(), numbers())
    def test_quotient(self, x, y):
        if y[0]:
            exact = value(x) / value(y)
            found = pairs.divide(x, y)
            assert is_normal(found)
            assert abs(value(found) - exact) <= 16 * U2 * abs(exact)

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    def test_what_is_not_finite_stays_so(self, bad):
        one, broken = (np.array(1.5), np.array(2.0**-60)), (np.array(bad), np.array(0.0))
        with np.errstate(invalid="ignore"):
            for operation in (pairs.add, pairs.multiply):
                for found in (operation(one, broken), operation(broken, one)):
                    assert not np.isfinite(sum(found))
            assert not np.isfinite(sum(pairs.divide(broken, one)))


@given(
    st.lists(
        st.floats(-1e200, 1e200, allow_subnormal=False).filter(lambda x: not 0 < abs(x) < 1e-200),
        min_size=1,
        max_size=40,
    )
)
def test_exact_sum(terms):
    total, rest = exact_sum(np.array(terms)[:, None])
    expected = sum(map(Fraction, terms))
    lacking = expected - Fraction(float(total[0])) - Fraction(float(rest[0]))
    assert abs(lacking) <= abs(expected) / 10**30 + Fraction(1, 10**300)
    assert float(total[0]) == float(expected)


def test_exact_sum_of_complex_numbers():
    terms = np.array([1 + 1e-20j, 1e20 - 1j, -1e20 + 1j])[:, None]
    total, rest = exact_sum(terms)
    assert total[0] == 1 + 1e-20j
    assert rest[0] == 0
