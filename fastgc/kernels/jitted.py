"""Codes as named tuples of arrays, for compiled functions (`fastgc.codes.jit`) and for C."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

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


class Dtypes(NamedTuple):
    """Dtypes of an array's rows, and of the vector that they are combined to.

    Attributes
    ----------
    rows, out : numpy dtype
        float32, float64, complex64 or complex128.
    mode : int
        As in `fastgc.kernels.combine`.
    padded : int
        1 if real messages stand for complex pairs, and so are one longer than gradients of odd
        length; otherwise 0.
    """

    rows: np.dtype[Any]
    out: np.dtype[Any]
    mode: int
    padded: int


class DecodeObjects(NamedTuple):
    """Functions that decode unchecked arrays, which are given by their ``id``.

    Messages are rows of an array, or a tuple of vectors. The functions check the arrays, and
    threads may call them at the same time. Any status but ``Status.OK`` means only that the caller
    must decode step by step, to say what is wrong if anything is. Nothing has been written then,
    except with ``Status.NOT_FINITE``.

    Attributes
    ----------
    decode : callable
        ``decode(id(messages), id(out), flags, id(survivors))``. Flags: `CHECK` looks for numbers
        that are not finite; with `CHOSEN`, `messages` has a row for each message of a round,
        otherwise for each survivor.
    vector : callable
        ``vector(id(out), id(survivors))``: writes the decoding vector for float64 messages.
    vectors : numpy dtype
        Dtype of decoding vectors.
    dtypes : dict
        `Dtypes` by the dtype of messages.
    """

    decode: Callable[[int, int, int, int], int]
    vector: Callable[[int, int], int]
    vectors: np.dtype[Any]
    dtypes: dict[np.dtype[Any], Dtypes]


class EncodeObjects(NamedTuple):
    """A function that encodes unchecked arrays, under the rules of `DecodeObjects`.

    Attributes
    ----------
    encode : callable
        ``encode(id(partials), id(out))``.
    dtypes : dict
        `Dtypes` by the dtype of partial gradients.
    """

    encode: Callable[[int, int], int]
    dtypes: dict[np.dtype[Any], Dtypes]


CHECK, CHOSEN = 2, 16  # csrc/fastgc.h's flags


@kernel
def bind_decode(rule: VectorRule, dtypes: tuple[Dtypes, ...]) -> DecodeObjects | None:
    """Prepare functions that decode messages of these dtypes.

    Returns None in backends and interpreters where C reads no array objects.
    """
    return None


@kernel
def bind_encode_objects(coef: Array, dtypes: tuple[Dtypes, ...]) -> EncodeObjects | None:
    """Prepare to encode partial gradients of these dtypes; None if C reads no array objects.

    `coef` must be contiguous.
    """
    return None
