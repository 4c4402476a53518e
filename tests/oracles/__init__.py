"""What kernels compute, in plain NumPy: one file for each family, with C's names and parameters.

Arrays may be of extended precision. Below its oracles, each file has their entries of the table of
kernels, `KERNELS`: how to make arguments, and how far results may be from the oracle's.
"""

from contextlib import contextmanager
from unittest import mock

from fastgc.kernels import unchecked

from . import combine, cover, decoding, fixed, lagrange, near_exact, optimize, rounds, vandermonde
from .table import named

__all__ = ["KERNELS", "NAMED", "SPLIT", "instead", "named"]

FAMILIES = combine, cover, decoding, fixed, lagrange, near_exact, optimize, rounds, vandermonde
KERNELS = [kernel for family in FAMILIES for kernel in family.KERNELS]
SPLIT = [kernel for kernel in KERNELS if kernel.split]

NAMED = {
    name: function
    for family in FAMILIES
    for name, function in vars(family).items()
    if not name.startswith("_") and callable(function) and hasattr(unchecked, name)
}


@contextmanager
def instead():
    """Have fastgc call these functions instead of C's."""
    with mock.patch.multiple(unchecked, **NAMED):
        yield
