"""Codes as named tuples of arrays, for compiled functions: see `fastgc.codes.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cyclic import CyclicTables
from .dispatch import kernel
from .numpy.cover import CellsPlan, EdgesPlan, TilingPlan
from .rows import Rows

__all__ = ["CyclicRule", "JittedCode", "PlacedRule", "VectorRule", "bind_decode", "jitted_code"]


class CyclicRule(NamedTuple):
    """Decoding vectors of Reed-Solomon codes, clustered ones too.

    Attributes
    ----------
    tables : CyclicTables
    method : int
        ``LOCATOR`` or ``SPREAD``.
    longest : (2,) float64 array
        Squared norm up to which vectors are precise enough, for messages of float32 and of float64.
    factors : int
        With at least so many stragglers and survivors, transforms are faster than `method`.
    """

    tables: CyclicTables
    method: int
    longest: NDArray[np.float64]
    factors: int


class PlacedRule(NamedTuple):
    """Decoding vectors of a code whose workers have other numbers.

    Attributes
    ----------
    number : (M,) int64 array
        The number of each message in the code of `inner`.
    inner : CyclicRule, CellsPlan, TilingPlan or EdgesPlan
    """

    number: NDArray[np.int64]
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
    c : (3 or 13,) int64 array or None
        The addresses in this process of C's ``fgc_combine_float``, ``fgc_combine_double`` and
        ``fgc_decoding_vector``; then for cyclic codes an ``fgc_cyclic``. None without C.
    """

    rule: VectorRule
    first: NDArray[np.int64]
    partitions: NDArray[np.int64]
    coefficients: NDArray[Any]
    c: NDArray[np.int64] | None

    def __reduce__(self) -> tuple[Any, ...]:
        return jitted_code, self[:-1]  # addresses differ in another process


def jitted_code(
    rule: VectorRule,
    first: NDArray[np.int64],
    partitions: NDArray[np.int64],
    coefficients: NDArray[Any],
) -> JittedCode:
    """Make a `JittedCode`. Compiled functions call the backend that is in use now."""
    return JittedCode(rule, first, partitions, coefficients, addresses_in_c(rule))


@kernel
def addresses_in_c(rule: VectorRule) -> NDArray[np.int64] | None:
    """`JittedCode.c`; None in backends other than C."""
    return None


@kernel
def bind_decode(
    rule: CyclicRule, mode: int, rows: Rows, vector: NDArray[Any], out: NDArray[Any], check: bool
) -> Callable[[int], int] | None:
    """Bind ``decode(id(survivors)) -> status``, one call of C for a whole decoding.

    None if C does not read array objects. Any status but `Status.OK` means only that the caller
    must decode step by step, which says what is wrong.
    """
    return None
