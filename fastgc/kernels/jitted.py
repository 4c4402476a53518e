"""Codes as named tuples of arrays, for compiled functions (`fastgc.codes.jit`) and for C."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from .._base.arrays import Array, Floats, Ints
from .cyclic import CyclicTables
from .dispatch import kernel
from .numpy.cover import CellsPlan, EdgesPlan, TilingPlan


class CyclicRule(NamedTuple):
    """Decoding vectors of Reed-Solomon codes, clustered ones too.

    Attributes
    ----------
    tables : CyclicTables
    method : int
        ``LOCATOR`` or ``SPREAD``.
    longest : (2,) float64 array
        Largest squared norm of vectors that are precise enough, for float32 and float64 messages.
    factors : int
        With at least so many stragglers and so many survivors, transforms are faster than `method`.
    """

    tables: CyclicTables
    method: int
    longest: Floats
    factors: int


class PlacedRule(NamedTuple):
    """Decoding vectors of a code that is another code with its workers renumbered.

    Attributes
    ----------
    number : (M,) int64 array
        The number that each message has in that other code, for `inner`.
    inner : CyclicRule, CellsPlan, TilingPlan or EdgesPlan
    """

    number: Ints
    inner: Any


VectorRule = CyclicRule | CellsPlan | TilingPlan | EdgesPlan | PlacedRule


class JittedCode(NamedTuple):
    """A code for ``@njit`` functions, `fastgc.kernels.numba.encode` and ``decode``.

    Attributes
    ----------
    rule : VectorRule
        How decoding vectors are computed.
    first : (M + 1,) int64 array
        Message m combines ``partitions[first[m]:first[m + 1]]``, with the same slice of
        ``coefficients``.
    partitions : int64 array
    coefficients : float64 or complex128 array
    k : int
        Number of partitions.
    c : (4 or 14,) int64 array or None
        The addresses in this process of C's ``fgc_combine_apart_float``,
        ``fgc_combine_apart_double`` and ``fgc_decoding_vector``; then for cyclic codes an
        ``fgc_cyclic``; at last `release`. None without C.
    """

    rule: VectorRule
    first: Ints
    partitions: Ints
    coefficients: Array
    k: int
    c: Ints | None

    def __reduce__(self) -> tuple[Any, ...]:
        return jitted_code, self[:-2]  # addresses differ in another process


def jitted_code(rule: VectorRule, first: Ints, partitions: Ints, coefficients: Array) -> JittedCode:
    """Make a `JittedCode`. Compiled functions then call the backend that is in use now."""
    k = int(partitions.max()) + 1
    return JittedCode(rule, first, partitions, coefficients, k, addresses_in_c(rule))


def release() -> int:
    """Return a number for this version of fastgc.

    Numba keeps users' compiled functions on disk, and does not notice that fastgc has changed. They
    compare this number before they call C at an address.
    """
    from .. import __version__

    return zlib.crc32(__version__.encode())


@kernel
def addresses_in_c(rule: VectorRule) -> Ints | None:
    """`JittedCode.c`; None in backends other than C."""
    return None
