"""Sums of tensors that are the same in every order."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from fastgc.torch import exact  # noqa: E402


def summed(terms):
    """Return the sum in integers, its exponent, and the sum as floats."""
    exponent = exact.exponent_of(max(map(exact.largest, terms)), len(terms))
    total = torch.zeros(terms[0].shape, dtype=torch.int64)
    for term in terms:
        exact.add(total, term, exponent)
    out = torch.empty_like(terms[0])
    exact.put_back(total, exponent, out)
    return total.tolist(), exponent, out


def all_finite(dtype):
    """Several terms of any finite floats of a dtype: zeros, subnormals, the largest."""
    width = 32 if dtype is torch.float32 else 64
    number = st.floats(allow_nan=False, allow_infinity=False, width=width)
    length = st.shared(st.integers(1, 20), key=f"length{width}")
    term = length.flatmap(lambda n: st.lists(number, min_size=n, max_size=n))
    return st.lists(term, min_size=1, max_size=17)


def check_terms(terms, dtype, order):
    tensors = [torch.tensor(term, dtype=dtype) for term in terms]
    total, exponent, out = summed(tensors)
    # Any order, and any grouping into parts that are summed apart, gives the same integers.
    assert summed([tensors[i] for i in order])[0] == total
    parts = [torch.zeros(len(total), dtype=torch.int64) for _ in range(3)]
    for at, tensor in enumerate(tensors):
        exact.add(parts[at % 3], tensor, exponent)
    assert sum(parts).tolist() == total
    # Each term is off by at most half a unit.
    unit, most = Fraction(2) ** -exponent, max(map(exact.largest, tensors))
    bits = 55 - math.ceil(math.log2(len(terms)))
    if most:
        assert unit / 2 <= Fraction(most) / 2**bits
    for at, whole in enumerate(total):
        true = sum(Fraction(float(tensor[at])) for tensor in tensors)
        assert abs(whole * unit - true) <= len(terms) * unit / 2
        assert abs(whole) < 2**62
        check_rounded(whole, exponent, out[at])


def check_rounded(whole, exponent, found):
    """The float is the nearest to the integer's value, ties to even."""
    kind = np.float32 if found.dtype == torch.float32 else np.float64
    digits = 24 if kind is np.float32 else 53
    least = -149 if kind is np.float32 else -1074
    last = max(whole.bit_length() - digits - exponent, least)  # exponent of the last digit
    rounded = round(Fraction(whole) * Fraction(2) ** (-exponent - last)) * Fraction(2) ** last
    if abs(rounded) >= Fraction(2) ** (128 if kind is np.float32 else 1024):
        assert math.isinf(found)
    elif kind is np.float64 and last == least:  # subnormal: rounded twice
        assert abs(Fraction(float(found)) - rounded) <= Fraction(2) ** least
    else:
        assert Fraction(float(found)) == rounded


@given(all_finite(torch.float32), st.randoms())
@example([[3.4e38], [3.4e38], [3.4e38]], None)
@example([[1e-45], [1e-45]], None)
@example([[0.0, -0.0]], None)
def test_add_float32(terms, random):
    order = list(range(len(terms)))
    random and random.shuffle(order)
    check_terms([np.float32(term).tolist() for term in terms], torch.float32, order)


@given(all_finite(torch.float64), st.randoms())
@example([[1.7e308], [1.7e308]], None)
@example([[5e-324], [5e-324], [1e-310]], None)
@example([[1.5e-323, 2.0**-1074]], None)
def test_add_float64(terms, random):
    order = list(range(len(terms)))
    random and random.shuffle(order)
    check_terms(terms, torch.float64, order)


def test_add_ties_to_even():
    for value, rounded in (
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-0.5, 0),
        (-1.5, -2),
        (2.0**51 + 0.5, 2**51),
    ):
        total = torch.zeros(1, dtype=torch.int64)
        exact.add(total, torch.tensor([value], dtype=torch.float64), 0)
        assert total.item() == rounded, value


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**62, -(2.0**62)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_add_leaves_out_what_does_not_fit(dtype, bad):
    for at in range(9):
        term = torch.ones(9, dtype=dtype)
        term[at] = bad
        total = torch.zeros(9, dtype=torch.int64)
        assert exact.add(total, term, 0) == math.inf
        assert total.tolist() == [int(i != at) for i in range(9)]
        total[at] = 1
        assert total.sum() == 9
        if abs(bad) != 2.0**62:
            assert exact.largest(term) == math.inf


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_add_as_torch_does(dtype):
    """Terms of other dtypes, that are not contiguous, and sums on their way back."""
    torch.manual_seed(0)
    terms = [torch.randn(30, 40, dtype=torch.float64).to(dtype).t() for _ in range(5)]
    exponent = exact.exponent_of(max(map(exact.largest, terms)), 5)
    total = torch.zeros(40, 30, dtype=torch.int64)
    for term in terms:
        exact.add(total, term, exponent)
    naive = sum(torch.round(term.double() * 2.0**exponent).long() for term in terms)
    assert torch.equal(total, naive)
    out = torch.empty(30, 40, dtype=dtype).t()
    exact.put_back(total, exponent, out)
    torch.testing.assert_close(out, (naive.double() * 2.0**-exponent).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_put_back_rounds_once(dtype):
    """Also integers of more digits than a double has, next to what lies between two floats."""
    digits = 24 if dtype == torch.float32 else 53
    for size in (54, 58, 61, 62):
        middle = 2**size + 2 ** (size - digits)
        for whole in (
            middle - 1,
            middle,
            middle + 1,
            -middle - 1,
            3 * 2 ** (size - digits) + middle,
        ):
            if -(2**63) <= whole < 2**63:
                out = torch.empty(1, dtype=dtype)
                exact.put_back(torch.tensor([whole]), 0, out)
                check_rounded(whole, 0, out[0])


@pytest.mark.parametrize("terms", [1, 2, 3, 12, 16, 17, 1024])
def test_exponent_of_leaves_room_for_all_terms(terms):
    for modulus in (1.0, 2.0, np.nextafter(2.0, 0), 3e-30, 5e-324, 1.7e308):
        exponent = exact.exponent_of(modulus, terms)
        each = Fraction(modulus) * Fraction(2) ** exponent
        assert terms * each < 2**62
        assert 2**8 * 2 ** math.ceil(math.log2(terms)) * each >= 2**62  # and no more than needed
        assert exponent % 8 == 0


@given(st.floats(1e-290, 1e290), st.floats(1e-290, 1e290), st.sampled_from([1, 3, 12, 16, 17]))
def test_add_tells_whether_a_modulus_has_this_exponent(modulus, other, terms):
    exponent = exact.exponent_of(modulus, terms)
    assert exact.exponent_of(exact.top_of(exponent, terms), terms) == exponent
    assert exact.exponent_of(np.nextafter(exact.top_of(exponent, terms), 0), terms) > exponent
    for value in (modulus, other, exact.top_of(exponent, terms)):
        total = torch.full((2,), 7)
        term = torch.tensor([value, 0.0], dtype=torch.float64)
        found = exact.add(total, term, exponent, terms, keep=False)
        wanted = exact.exponent_of(value, terms)
        assert found == (1 if wanted == exponent else 0 if wanted > exponent else math.inf)
        assert total[1] == 0


@pytest.mark.parametrize(("modulus", "terms"), [(math.nan, 1), (math.inf, 1), (-1.0, 1), (1.0, 0)])
def test_exponent_of_unsuitable(modulus, terms):
    with pytest.raises(ValueError, match=r"modulus must be finite|terms must be at least 1"):
        exact.exponent_of(modulus, terms)


def test_largest_of_nothing():
    assert exact.largest(torch.empty(0)) == 0.0
    assert exact.largest(torch.tensor([1.0, -3.0])) == 3.0
