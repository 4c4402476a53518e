"""What compiled functions need of a code, as named tuples of arrays: see `fastgc.codes.jit`."""

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
        Stragglers, or survivors, from which on transforms are faster than `method`.
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
        What each message is in the code that `inner` is of.
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
        What decoding vectors are computed from.
    first : (M + 1,) int64 array
        Message m has ``partitions[first[m]:first[m + 1]]``, with those ``coefficients``.
    partitions : int64 array
    coefficients : float64 or complex128 array
    c : (3 or 13,) int64 array or None
        Where this process has C's ``fgc_combine_float``, ``fgc_combine_double`` and
        ``fgc_decoding_vector``, and cyclic tables as an ``fgc_cyclic``. None without C.
    """

    rule: VectorRule
    first: NDArray[np.int64]
    partitions: NDArray[np.int64]
    coefficients: NDArray[Any]
    c: NDArray[np.int64] | None

    def __reduce__(self) -> tuple[Any, ...]:
        return jitted_code, self[:-1]  # another process has all at other addresses


def jitted_code(
    rule: VectorRule,
    first: NDArray[np.int64],
    partitions: NDArray[np.int64],
    coefficients: NDArray[Any],
) -> JittedCode:
    """A code's rule and rows for compiled functions, which call the backend in use."""
    return JittedCode(rule, first, partitions, coefficients, addresses_in_c(rule))


@kernel
def addresses_in_c(rule: VectorRule) -> NDArray[np.int64] | None:
    """`JittedCode.c`, which the C backend has."""
    return None


@kernel
def bind_decode(
    rule: CyclicRule, mode: int, rows: Rows, vector: NDArray[Any], out: NDArray[Any], check: bool
) -> Callable[[int], int] | None:
    """``decode(id(survivors)) -> status``, all at once; None where C does not read array objects.

    Any status but `Status.OK` is no more than a reason to do it step by step, which tells what is
    wrong.
    """
    return None
