"""What kernels compute, in plain NumPy: one file for each family, with C's names and parameters.

Arrays may be of extended precision: `kernel_table` takes what comes out as the truth.
"""

from contextlib import contextmanager
from unittest import mock

from fastgc.kernels import unchecked

from . import combine, cover, decoding, lagrange, near_exact, optimize, rounds, vandermonde

NAMED = {
    name: function
    for family in (combine, cover, decoding, lagrange, near_exact, optimize, rounds, vandermonde)
    for name, function in vars(family).items()
    if not name.startswith("_") and callable(function) and hasattr(unchecked, name)
}


@contextmanager
def instead():
    """Have fastgc call these functions instead of C's."""
    with mock.patch.multiple(unchecked, **NAMED):
        yield
