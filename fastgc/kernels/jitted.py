"""What compiled functions need of a code, as named tuples of arrays: see `fastgc.codes.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cyclic import CyclicTables
from .dispatch import kernel
from .numpy.cover import CellsPlan, EdgesPlan, TilingPlan

__all__ = [
    "CHECK",
    "CHOSEN",
    "CyclicRule",
    "DecodeObjects",
    "Dtypes",
    "EncodeObjects",
    "JittedCode",
    "PlacedRule",
    "VectorRule",
    "bind_decode",
    "bind_encode_objects",
    "jitted_code",
]


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


class Dtypes(NamedTuple):
    """Dtypes of rows in an array, and of the vector that they are combined to.

    Attributes
    ----------
    rows, out : numpy dtype
        Of floats, doubles, or complex numbers of these.
    mode : int
        As in `fastgc.kernels.combine`.
    padded : int
        1 where messages are of pairs, and so one longer than gradients of odd length; else 0.
    """

    rows: np.dtype[Any]
    out: np.dtype[Any]
    mode: int
    padded: int


class DecodeObjects(NamedTuple):
    """Decoding of arrays that nobody has looked at, by their ``id``.

    Threads may call these at the same time. They return ``Status.OK``. Any other status is no more
    than a reason to do it step by step, which tells what is wrong; nothing has been written then,
    except for ``Status.NOT_FINITE``.

    Attributes
    ----------
    decode : callable
        ``decode(id(messages), id(out), flags, id(survivors))``. Flags are `CHECK`, to find what is
        not finite, and `CHOSEN`, if `messages` has a row for each message of a round, and not only
        for each survivor.
    vector : callable
        ``vector(id(out), id(survivors))``, for messages of float64.
    vectors : numpy dtype
        Of decoding vectors.
    dtypes : dict
        By those of messages.
    """

    decode: Callable[[int, int, int, int], int]
    vector: Callable[[int, int], int]
    vectors: np.dtype[Any]
    dtypes: dict[np.dtype[Any], Dtypes]


class EncodeObjects(NamedTuple):
    """Encoding of arrays that nobody has looked at, likewise.

    Attributes
    ----------
    encode : callable
        ``encode(id(partials), id(out))``.
    dtypes : dict
        By those of partial gradients.
    """

    encode: Callable[[int, int], int]
    dtypes: dict[np.dtype[Any], Dtypes]


CHECK, CHOSEN = 2, 16  # csrc/fastgc.h's flags


@kernel
def bind_decode(rule: VectorRule, dtypes: tuple[Dtypes, ...]) -> DecodeObjects | None:
    """Prepare to decode messages of these dtypes; None where C does not read array objects.

    Nor does it for a `PlacedRule`.
    """
    return None


@kernel
def bind_encode_objects(coef: NDArray[Any], dtypes: tuple[Dtypes, ...]) -> EncodeObjects | None:
    """Prepare to encode partial gradients of these dtypes, likewise; `coef` is contiguous."""
    return None
