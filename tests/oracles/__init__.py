"""What kernels compute, in plain NumPy: one file for each family, with C's names and parameters.

A family's `ROWS` say how to call its kernels: `test_kernels.py` compares each with its oracle.
"""

from contextlib import contextmanager
from unittest import mock

from fastgc.kernels import unchecked

from . import combine, cover, decoding, lagrange, near_exact, optimize, rounds, vandermonde

FAMILIES = combine, cover, decoding, lagrange, near_exact, optimize, rounds, vandermonde


@contextmanager
def instead():
    """Have fastgc call these functions instead of C's."""
    with mock.patch.multiple(
        unchecked,
        **{
            name: function
            for family in FAMILIES
            for name, function in vars(family).items()
            if not name.startswith("_") and callable(function) and hasattr(unchecked, name)
        },
    ):
        yield
