"""Lagrange's bases in a user's compiled code."""

import numpy as np
import pytest

from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = pytest.mark.numba


def wrong_lengths():
    one, two, three = np.ones(1), np.ones(2), np.arange(3.0)
    numbers, square, exponent = np.arange(3), np.ones((3, 2)), np.zeros(3, int)
    return [
        ("out must", nb.lagrange_basis, three, three, exponent, two, square),
        ("one length", nb.lagrange_basis, three, three, exponent, two, np.ones((2, 2))),
        ("one length", nb.lagrange_basis, three, two, exponent, two, three),
        ("one length", nb.lagrange_weights, three, two, three, None),
        ("one length", nb.lagrange_weights, three, three, three, exponent[:2]),
        ("a node at least", nb.lagrange_weights, three[:0], three[:0], three[:0], None),
        ("as long as points", nb.lagrange_evaluate, *[three] * 2, exponent, three, two, 1.0, one),
        ("one length", nb.lagrange_evaluate, *[three] * 2, exponent, two, two, 1.0, two),
        ("as long as chosen", nb.lagrange_functional, three, two, numbers, two),
        ("as long as chosen", nb.lagrange_functional, three, two, numbers[:0], two[:0]),
    ]


@pytest.mark.few(9)
@pytest.mark.parametrize("at", range(len(wrong_lengths())))
def test_lagrange_checks_lengths(at):
    says, kernel, *given = wrong_lengths()[at]
    with pytest.raises(ValueError, match=says):
        kernel(*given)


def test_lagrange_functional_tells_what_is_wrong():
    def found(*chosen):
        return nb.lagrange_functional(np.arange(3.0), np.ones(1), np.array(chosen), np.empty(3))

    assert found(0, 5, 0) == Status.OUT_OF_RANGE
    assert found(0, 1, 0) == Status.DUPLICATE
