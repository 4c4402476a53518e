"""The kernels in Numba, for the facade and for a user's own ``@njit`` code.

`decoding_vector`, `rebuild_stream`, `step_stream`, `stream_vector`, `combine_rows`, `accumulate`,
`sgd`, `nesterov`, `amsgrad`, `replace`, `square_distance`, `leja_order`, `vandermonde_column`,
`lagrange_products` and `completion` take numbers, arrays, or named tuples of them, and may be
called from compiled functions; they check nothing. All are cached on disk and release the GIL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from . import cyclic
from .completion import BLOCKS, CELLS
from .cyclic import (
    LOCATOR,
    LOOKUP,
    SPREAD,
    CyclicPlan,
    CyclicStream,
    CyclicTables,
    Decode,
    StreamCalls,
    Where,
)
from .fourier import Polar
from .rows import EXPAND, PACKED, REAL, REAL_PART, CombinePart, Rows, kind_of

__all__ = [
    "accumulate",
    "amsgrad",
    "bind_combine",
    "bind_decoding_vector",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "combine_rows",
    "decoding_vector",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "nesterov",
    "rebuild_stream",
    "replace",
    "sgd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
    "step_stream",
    "stream_vector",
    "vandermonde_column",
]

# Fused multiply-adds are wanted (one rounding fewer); no other liberty with arithmetic is, but the
# order of sums where nothing else is computed.
_njit = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
_njit_sums = numba.njit(
    nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy"
)

_RUN = 32  # factors between two normalisations; see csrc/cyclic.c
_CHUNK = 2048  # workers whose products are in the nearest cache
_STEPS = 16  # phases that are turned by one that is looked up
_BLOCK = 2048  # elements of a row handled at a time
_OUT_OF_RANGE, _DUPLICATE = int(cyclic.Status.OUT_OF_RANGE), int(cyclic.Status.DUPLICATE)
_TOO_FEW, _OVERFLOW = int(cyclic.Status.TOO_FEW), int(cyclic.Status.OVERFLOW)


# ---------------------------------------------------------------------- decoding vectors


@_njit
def _normalise(product, exponent):
    """Move binary exponents of products to `exponent`."""
    bits = product.view(np.int64)
    for i in range(product.size):  # frexp, but for its branches
        biased = (bits[i] >> 52) & 0x7FF
        shift = (biased - 1023) & ~1 if biased else 0  # even; zero stays zero
        bits[i] -= shift << 52
        exponent[i] += shift


@_njit
def _scale(product, exponent):
    """product[i] *= 2^exponent[i], an even power; `exponent` is overwritten."""
    for i in range(product.size):
        exponent[i] = (min(max(exponent[i] // 2, -1022), 1022) + 1023) << 52
    half = exponent.view(np.float64)
    for i in range(product.size):  # twice: neither step leaves the range unless both do
        product[i] = product[i] * half[i] * half[i]


@_njit
def _multiply(table, lo, index, product, exponent):
    """product[i] 2^exponent[i] = prod_j table[lo + i - index[j]].

    Of no more than _RUN factors the exponents are not written: all are 0.
    """
    hi = lo + product.size
    product[:] = 1.0
    if index.size > _RUN:
        exponent[:] = 0
    for at in range(0, index.size, _RUN):
        some = index[at : at + _RUN]
        done = some.size - some.size % 8
        for r in range(0, done, 8):  # eight at a time: a product is read and written once
            a = table[lo - some[r] : hi - some[r]]
            b = table[lo - some[r + 1] : hi - some[r + 1]]
            c = table[lo - some[r + 2] : hi - some[r + 2]]
            d = table[lo - some[r + 3] : hi - some[r + 3]]
            e = table[lo - some[r + 4] : hi - some[r + 4]]
            f = table[lo - some[r + 5] : hi - some[r + 5]]
            g = table[lo - some[r + 6] : hi - some[r + 6]]
            h = table[lo - some[r + 7] : hi - some[r + 7]]
            for i in range(product.size):
                product[i] *= ((a[i] * b[i]) * (c[i] * d[i])) * ((e[i] * f[i]) * (g[i] * h[i]))
        for j in some[done:]:
            a = table[lo - j : hi - j]
            for i in range(product.size):
                product[i] *= a[i]
        if at + _RUN < index.size:
            _normalise(product, exponent)


@_njit
def _cyclic_product(table, index, product):
    """product[i] = prod_j table[i - index[j]], for a slice of a table that begins at -m."""
    m = table.size // 2
    exponent = np.empty(min(m, _CHUNK) if index.size > _RUN else 0, dtype=np.int64)
    for lo in range(0, m, _CHUNK):
        part = product[lo : lo + _CHUNK]
        power = exponent[: part.size]
        _multiply(table, m + lo, index, part, power)
        if index.size > _RUN:
            _scale(part, power)


@_njit
def _turn(phase, m, turn, stride, quarter, size, value):
    """value[i] = size[i] times the phase i strides on from `turn`, and i^quarter."""
    circle = 2 * m
    if quarter == 1:
        unit = 1j
    elif quarter == 2:
        unit = -1 + 0j
    elif quarter == 3:
        unit = -1j
    else:
        unit = 1 + 0j
    step = np.empty(_STEPS, np.complex128)
    at = 0
    for r in range(_STEPS):
        step[r] = complex(phase[2 * at], phase[2 * at + 1])
        at = (at + stride) % circle
    for lo in range(0, m, _STEPS):  # tables of large codes are in no cache
        base = complex(phase[2 * turn], phase[2 * turn + 1]) * unit
        hi = min(lo + _STEPS, m)
        to, by = value[lo:hi], size[lo:hi]
        for r in range(to.size):
            to[r] = by[r] * (base * step[r])
        turn += at
        if turn >= circle:
            turn -= circle


@_njit
def _turn_block(tables, b, lookup, count, total, product, value):
    """Entries from the products over `count` workers of a block, with this sum of their indices."""
    m, q = product.size, tables.q[b]
    sign = -1 if lookup else 1
    factors = count - 1 if lookup else count
    if not lookup:
        product /= m
    circle = 2 * m
    stride = sign * q * count % circle
    turn = -sign * q * (total % circle) % circle
    phase = tables.phase[tables.phase_offset[b] :]
    _turn(phase, m, turn, stride, -sign * factors % 4, product, value)


@_njit
def _decode_block(tables, b, method, present, value):
    m, lookup = present.size, method == LOOKUP
    index = np.flatnonzero(present == lookup)
    offset = tables.offset[b]
    table = tables.cosecant if lookup else tables.sine
    product = np.empty(m)
    _cyclic_product(table[offset : offset + 2 * m], index, product)
    _turn_block(tables, b, lookup, index.size, index.sum(), product, value)


@_njit
def _keep_spread(sine, need, present):
    """Unmark all but the `need` survivors that are spread best; see csrc/decoding.c."""
    m = present.size
    kept = np.zeros(m, dtype=np.bool_)
    score = present.astype(np.float64)
    for _ in range(need):
        best, largest = -1, 0.0
        for i in range(m):
            if score[i] > largest * (1 + 1e-9):
                best, largest = i, score[i]
        if best < 0:
            best = np.flatnonzero(present & ~kept)[0]
        kept[best] = True
        distance = sine[m - best : 2 * m - best]
        scale = 1 / largest if largest > 0 else 1.0
        for i in range(m):
            score[i] *= abs(distance[i]) * scale
    present[:] = kept


@_njit
def _spread_block(tables, b, present, value):
    need, m, count = tables.need[b], present.size, np.count_nonzero(present)
    _decode_block(tables, b, LOOKUP if 2 * count < m else LOCATOR, present, value)
    if count == need:
        return
    norm = 0.0
    for i in range(m):
        if present[i]:
            norm += value[i].real ** 2 + value[i].imag ** 2
    if norm <= 1 + 1e-9:
        return
    at = tables.offset[b]
    _keep_spread(tables.sine[at : at + 2 * m], need, present)
    _decode_block(tables, b, LOOKUP if 2 * need < m else LOCATOR, present, value)
    for i in range(m):
        if not present[i]:
            value[i] = 0


@_njit
def _mark(tables, survivors, present):
    """Check and mark survivors; a status and where it applies."""
    n = tables.start[-1]
    present[:] = False
    for at in range(survivors.size):
        i = survivors[at]
        if i < 0 or i >= n:
            return _OUT_OF_RANGE, at
        if present[i]:
            return _DUPLICATE, at
        present[i] = True
    missing = _missing(tables, present)
    return _TOO_FEW if missing else 0, missing


@_njit
def _missing(tables, present):
    missing = 0
    for b in range(tables.q.size):
        count = np.count_nonzero(present[tables.start[b] : tables.start[b + 1]])
        missing += max(0, tables.need[b] - count)
    return missing


@_njit
def _decode_marked(tables, method, present, value):
    for b in range(tables.q.size):
        lo, hi = tables.start[b], tables.start[b + 1]
        if method == SPREAD:
            _spread_block(tables, b, present[lo:hi], value[lo:hi])
        else:
            _decode_block(tables, b, method, present[lo:hi], value[lo:hi])


@_njit
def _gather(value, survivors, out):
    """The survivors' entries; a status and where it applies."""
    status, where = 0, 0
    for at in range(survivors.size):
        out[at] = value[survivors[at]]
        if not (np.isfinite(out[at].real) and np.isfinite(out[at].imag)):
            status, where = _OVERFLOW, at
    return status, where


@_njit
def decoding_vector(tables, method, survivors, out):
    """Decoding vector of a direct sum of cyclic codes (Halbawi et al., Algorithm 3).

    Parameters
    ----------
    tables : CyclicTables
        ``code.tables``.
    method : int
        ``LOCATOR`` (0), ``LOOKUP`` (1) or ``SPREAD`` (2).
    survivors : (f,) int64 array
    out : (f,) complex128 array

    Returns
    -------
    (int, int)
        A `fastgc.kernels.Status` and where it applies, as in csrc/fastgc.h.
    """
    n = tables.start[-1]
    present = np.empty(n, dtype=np.bool_)
    status, where = _mark(tables, survivors, present)
    if status != 0:
        return status, where
    value = np.empty(n, dtype=np.complex128)
    _decode_marked(tables, method, present, value)
    return _gather(value, survivors, out)


@_njit
def _decoding_vectors(tables, masks, method, out, where):
    for r in range(len(masks)):
        present, value = masks[r], out[r]
        where[r] = _missing(tables, present)
        if where[r] == 0:
            _decode_marked(tables, method, present, value)
            for i in range(present.size):
                if not present[i]:
                    value[i] = 0
                elif not (np.isfinite(value[i].real) and np.isfinite(value[i].imag)):
                    where[r] = -1


def decoding_vectors(
    plan: CyclicPlan,
    masks: NDArray[np.bool_],
    method: int,
    out: NDArray[np.complex128],
    where: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.decoding_vectors`."""
    _decoding_vectors(plan.tables, masks, method, out, where)


@_njit
def _polar_vector(tables, survivors, present, size, out):
    value = np.empty(present.size, dtype=np.complex128)
    for b in range(tables.q.size):
        lo, hi = tables.start[b], tables.start[b + 1]
        m = hi - lo
        q, circle, heard = tables.q[b] % m, 2 * m, present[lo:hi]
        # With residues r = q (i-j) mod m the sines of pi r / m are positive; the angles add up:
        # sum r = lost x - sum y + m #{y > x}, x = q i mod m, y = q j mod m.
        odd = np.zeros(m, dtype=np.bool_)
        lost, total, x = 0, 0, 0
        for i in range(m):
            if not heard[i]:
                odd[x] = True
                lost += 1
                total += x
            x += q
            if x >= m:
                x -= m
        above = False
        for y in range(m - 1, -1, -1):
            odd[y], above = above, above ^ odd[y]
        # x = q i less a multiple of m, of which too only the parity counts
        signed, wrapped, x = size[lo:hi].copy(), False, 0
        for i in range(m):
            if odd[x] ^ wrapped:
                signed[i] = -signed[i]
            x += q
            if x >= m:
                x -= m
                wrapped ^= lost % 2 == 1
        phase = tables.phase[tables.phase_offset[b] :]
        _turn(phase, m, -total % circle, lost * q % circle, -lost % 4, signed, value[lo:hi])
    return _gather(value, survivors, out)


def bind_decoding_vector(
    plan: CyclicPlan, survivors: NDArray[np.int64], out: NDArray[np.complex128]
) -> tuple[Decode, Where]:
    """See `fastgc.kernels.bind_decoding_vector`."""
    tables: CyclicTables = plan.tables
    where = [0]

    def decode(method: int, f: int) -> int:
        status, where[0] = decoding_vector(tables, method, survivors[:f], out[:f])
        return status

    return decode, where


def bind_polar(
    plan: CyclicPlan,
    survivors: NDArray[np.int64],
    present: NDArray[np.bool_],
    size: NDArray[np.float64],
    out: NDArray[np.complex128],
) -> Polar:
    """See `fastgc.kernels.fourier.Polar`."""
    tables, where = plan.tables, [0]

    def mark(f: int) -> int:
        status, where[0] = _mark(tables, survivors[:f], present)
        return status

    def write(f: int) -> int:
        status, where[0] = _polar_vector(tables, survivors[:f], present, size, out[:f])
        return status

    return Polar(mark, write, where)


@_njit
def _survivor_mask(n, survivors, bits):
    bits[:] = 0
    twice = False
    for i in survivors:
        if i < 0 or i >= n:
            return True
        bit = np.uint8(1 << (i & 7))
        twice |= (bits[i >> 3] & bit) != 0
        bits[i >> 3] |= bit
    return twice


def bind_survivor_mask(
    n: int, survivors: NDArray[np.int64], bits: NDArray[np.uint8]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_survivor_mask`."""
    return lambda f: _survivor_mask(n, survivors[:f], bits)


@_njit
def rebuild_stream(tables, stream):
    """All products of a stream, from `stream.away` alone.

    Parameters
    ----------
    tables : CyclicTables
        ``code.tables``.
    stream : CyclicStream
        ``fastgc.kernels.cyclic_stream(tables)``.
    """
    for b in range(tables.q.size):
        s, m, q = tables.start[b], tables.start[b + 1] - tables.start[b], tables.q[b]
        away, product = stream.away[s : s + m], stream.product[s : s + m]
        exponent = stream.exponent[s : s + m]
        lost = np.flatnonzero(away)
        others = 2 * lost.size > m
        index = np.flatnonzero(~away) if others else lost
        at = tables.offset[b]
        table = (tables.cosecant if others else stream.factor)[at : at + 2 * m]
        exponent[:] = 0
        for lo in range(0, m, _CHUNK):
            hi = min(lo + _CHUNK, m)
            _multiply(table, m + lo, index, product[lo:hi], exponent[lo:hi])
        if others:  # over all, without the others; see csrc/decoding.c
            odd = (m - 1) * (q + 1) // 2
            for i in range(m):
                product[i] *= -m if (odd + q * i) & 1 else m
        stream.lost[b], stream.lost_sum[b] = lost.size, lost.sum()
        stream.pending[b] = (index.size - 1) % _RUN + 1 if index.size else 0


@_njit
def step_stream(tables, stream, worker, away):
    """A worker leaves a stream that it is not away from, or joins one that it is.

    Parameters
    ----------
    tables, stream
        As of `rebuild_stream`.
    worker : int
    away : bool
        Whether it leaves.
    """
    b = np.searchsorted(tables.start, worker, side="right") - 1
    lo, hi = tables.start[b], tables.start[b + 1]
    m, j = hi - lo, worker - lo
    at = tables.offset[b] + m - j
    product = stream.product[lo:hi]
    factors = (stream.factor if away else tables.cosecant)[at : at + m]
    if stream.pending[b] == _RUN:
        _normalise(product, stream.exponent[lo:hi])
        stream.pending[b] = 0
    for i in range(m):
        product[i] *= factors[i]
    stream.pending[b] += 1
    stream.lost[b] += 1 if away else -1
    stream.lost_sum[b] += j if away else -j
    stream.away[worker] = away


@_njit
def stream_vector(tables, stream, survivors, out):
    """Decoding vector of the workers that are not away, O(n); see csrc/fastgc.h.

    Parameters
    ----------
    tables, stream
        As of `rebuild_stream`.
    survivors : (f,) int64 array
        All that are not away, in any order.
    out : (f,) complex128 array

    Returns
    -------
    (int, int)
        As of `decoding_vector`.
    """
    missing = 0
    for b in range(tables.q.size):
        there = tables.start[b + 1] - tables.start[b] - stream.lost[b]
        missing += max(0, tables.need[b] - there)
    if missing:
        return _TOO_FEW, missing
    value = np.empty(tables.start[-1], dtype=np.complex128)
    for b in range(tables.q.size):
        lo, hi = tables.start[b], tables.start[b + 1]
        size = stream.product[lo:hi].copy()
        _scale(size, stream.exponent[lo:hi].copy())
        _turn_block(tables, b, False, stream.lost[b], stream.lost_sum[b], size, value[lo:hi])
    return _gather(value, survivors, out)


def bind_stream(plan: CyclicPlan, stream: CyclicStream) -> StreamCalls:
    """See `fastgc.kernels.bind_stream`."""
    tables = plan.tables
    where = [0]

    def vector(survivors: NDArray[np.int64], out: NDArray[np.complex128]) -> int:
        status, where[0] = stream_vector(tables, stream, survivors, out)
        return status

    return StreamCalls(
        partial(rebuild_stream, tables, stream),
        lambda worker: step_stream(tables, stream, worker, True),
        lambda worker: step_stream(tables, stream, worker, False),
        vector,
        where,
    )


# -------------------------------------------------------------------------- combinations


@intrinsic
def _pointer(typingctx, address):
    """Turn an integer into a pointer, for `numba.carray`."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.uintp), codegen


def _real_parts(array):
    """Reals of a contiguous real or complex array, without copying."""


@overload(_real_parts, inline="never")
def _real_parts_impl(array):
    if array.dtype == types.complex64:
        return lambda array: array.view(np.float32)
    if array.dtype == types.complex128:
        return lambda array: array.view(np.float64)
    return lambda array: array


# Empty arrays that stand for the kinds of rows: compiled code is told by the dtype what bits mean.
_LIKE = {
    "float": np.empty(0, np.float32),
    "double": np.empty(0, np.float64),
    "half": np.empty(0, np.uint16),
    "bfloat": np.empty(0, np.int16),
}


def _empty_sums(size, like):
    """Room to add up rows like these: in double precision, or for halves in single."""


@overload(_empty_sums, inline="never")
def _empty_sums_impl(size, like):
    dtype = np.float64 if isinstance(like.dtype, types.Float) else np.float32
    return lambda size, like: np.empty(size, dtype)


@intrinsic
def _float_of(typingctx, bits):
    """The float32 with these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), codegen


@intrinsic
def _float_of_half(typingctx, bits):
    """The float32 equal to the half with these bits, by the processor's own instruction."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


# Without it LLVM would call a function that may not be there.
_CONVERTS_HALVES = binding.get_host_cpu_features().get("f16c", False)


def _value(x):
    """What an element of a row stands for."""


@overload(_value)
def _value_impl(x):
    if isinstance(x, types.Float):
        return lambda x: x
    if x == types.int16:
        return lambda x: _float_of(np.uint32(np.uint32(np.uint16(x)) << 16))

    if _CONVERTS_HALVES:
        return lambda x: _float_of_half(x)

    def half(x):  # see csrc/combine.c
        kept = (np.uint32(x) & 0x7FFF) << 13
        tiny, huge = kept < 1 << 23, kept >= 31 << 23
        raised = kept + ((113 << 23) if tiny else (224 << 23) if huge else (112 << 23))
        size = _float_of(np.uint32(raised)) - np.float32(2.0**-14 if tiny else 0.0)
        return -size if x & 0x8000 else size

    return half


@_njit
def _row(address, first, size, like):
    """`size` reals, from `first` on, of the row at an address."""
    at = _pointer(address + np.uintp(first * like.itemsize))
    return numba.carray(at, (size,), like.dtype)


@_njit
def _add_row(address, a, b, first, size, sums, mode, like):
    """Add a v to the first half of the sums and, unless `mode` is REAL, b v to the second."""
    v, a0, b0 = _row(address[0], first, size, like), a[0], b[0]
    if mode == REAL:
        for j in range(size):
            sums[j] += a0 * _value(v[j])
    else:
        for j in range(size):
            x = _value(v[j])
            sums[j] += a0 * x
            sums[_BLOCK + j] += b0 * x


@_njit
def _add_rows(address, a, b, first, size, sums, mode, like):
    """`_add_row` for four rows in one pass."""
    # Both halves of one array: few enough addresses to be compared before a vectorised loop.
    v0 = _row(address[0], first, size, like)
    v1 = _row(address[1], first, size, like)
    v2 = _row(address[2], first, size, like)
    v3 = _row(address[3], first, size, like)
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    if mode == REAL:
        for j in range(size):
            x0, x1, x2, x3 = _value(v0[j]), _value(v1[j]), _value(v2[j]), _value(v3[j])
            sums[j] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
    else:
        for j in range(size):
            x0, x1, x2, x3 = _value(v0[j]), _value(v1[j]), _value(v2[j]), _value(v3[j])
            sums[j] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            sums[_BLOCK + j] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3


@_njit
def _begin(mode, sums, to, size):
    """What is in the output already, as the sums of no rows."""
    if mode == REAL_PART:
        for t in range(size):
            sums[2 * t] = to[t]
    elif mode == EXPAND:
        for t in range(size):
            sums[t] = to[2 * t]
            sums[_BLOCK + t] = to[2 * t + 1]
    else:
        for t in range(min(size, to.size)):
            sums[t] = to[t]


@_njit
def _finish(mode, sums, to, size):
    """Write the sums to the output, and how many elements."""
    if mode == REAL:
        for t in range(size):
            to[t] = sums[t]
    elif mode == REAL_PART:
        for t in range(size):
            to[t] = sums[2 * t] - sums[_BLOCK + 2 * t + 1]
    elif mode == EXPAND:
        for t in range(size):
            to[2 * t] = sums[t]
            to[2 * t + 1] = sums[_BLOCK + t]
        size *= 2
    else:
        size = min(size, to.size)
        for t in range(size // 2):
            to[2 * t] = sums[2 * t] - sums[_BLOCK + 2 * t + 1]
            to[2 * t + 1] = sums[2 * t + 1] + sums[_BLOCK + 2 * t]
        if size % 2:
            to[size - 1] = sums[size - 1] - sums[_BLOCK + size]
    return size


@_njit
def _combine(mode, addresses, like, count, coef, out, in_len, lo, hi, add, check):
    """csrc/combine.c's fgc_combine; `out` is the output's reals, `like` an array like the rows."""
    step = _BLOCK // 2 if mode == REAL_PART else _BLOCK
    sums = _empty_sums(2 * _BLOCK, like)
    a, b = coef.real.astype(sums.dtype), coef.imag.astype(sums.dtype)
    finite = True
    for j in range(lo, hi, step):
        size = min(step, hi - j)
        first = 2 * j if mode == REAL_PART else j
        reals = 2 * size if mode == REAL_PART else size
        sums[:reals] = 0
        if mode != REAL:
            sums[_BLOCK : _BLOCK + reals] = 0
        to = out[2 * j if mode == EXPAND else j :]
        if add:
            _begin(mode, sums, to, size)
        if mode == PACKED:
            reals = min(reals, in_len - first)
        fours = count - count % 4
        for r in range(0, fours, 4):
            _add_rows(addresses[r:], a[r:], b[r:], first, reals, sums, mode, like)
        for r in range(fours, count):
            _add_row(addresses[r:], a[r:], b[r:], first, reals, sums, mode, like)
        size = _finish(mode, sums, to, size)
        if check:
            for t in range(size):
                finite &= np.isfinite(to[t])
    return finite


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    lo: int,
    hi: int,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine`; only elements lo .. hi-1 of the rows."""
    return _combine(
        mode,
        rows.addresses,
        _LIKE[rows.kind],
        rows.count,
        coef.astype(np.complex128, copy=False),
        out.view(out.real.dtype),
        rows.length,
        lo,
        hi,
        accumulate,
        check,
    )


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool,
    check: bool,
) -> CombinePart:
    """See `fastgc.kernels.bind_combine`."""

    def part(count: int, lo: int, hi: int) -> int:
        used = np.flatnonzero(coef[:count])
        chosen = rows.select(numbers[used])
        finite = combine(mode, chosen, coef[used], out, lo, hi, accumulate, check)
        return cyclic.Status.OK if finite else cyclic.Status.NOT_FINITE

    return part


def _mode(coef):
    """PACKED for complex coefficients, REAL for others."""


@overload(_mode)
def _mode_impl(coef):
    mode = PACKED if isinstance(getattr(coef, "dtype", coef), types.Complex) else REAL
    return lambda coef: mode


@_njit
def _extent(mode, in_len, out_len):
    if mode == REAL:
        return out_len
    extent = max(in_len, out_len)
    return extent + extent % 2


@_njit
def _row_addresses(rows, survivors):
    which = np.arange(rows.shape[0]) if survivors is None else survivors
    return np.uintp(rows.ctypes.data) + which.astype(np.uintp) * np.uintp(rows.strides[0])


@_njit
def combine_rows(coef, rows, out, survivors=None):
    """``out = coef @ rows[survivors]``, from a user's own ``@njit`` code; nothing is gathered.

    Parameters
    ----------
    coef : (f,) complex128 or float64 array
        Of complex codes, packed; or of real ones.
    rows : (n, q) array
        float32, float64, complex64 or complex128, with contiguous rows. For complex coefficients
        reals stand for complex pairs (q even, or odd with an unpaired last element).
    out : (p,) array
        Of the rows' dtype; p may be q, or q - 1 for reals and complex coefficients.
    survivors : (f,) int64 array, optional
        Which rows, in the order of `coef`; numbers below n, as `decoding_vector` makes sure. All
        rows by default, n being f.

    Returns
    -------
    bool
        Whether every written value is finite.
    """
    reals = _real_parts(out)
    in_len = rows.shape[1] * (rows.itemsize // reals.itemsize)
    extent = _extent(_mode(coef), in_len, reals.size)
    return _combine(
        _mode(coef),
        _row_addresses(rows, survivors),
        reals,
        coef.size,
        coef.astype(np.complex128),
        reals,
        in_len,
        0,
        extent,
        False,
        True,
    )


@_njit
def accumulate(coef, gradient, message):
    """``message += coef * gradient``: one step of streaming encoding, from ``@njit`` code.

    Parameters
    ----------
    coef : complex or float
        Of complex codes, packed; or of real ones.
    gradient : (p,) array
        float32, float64, complex64 or complex128, contiguous.
    message : (p,) array
        Of the gradient's dtype; packed messages of odd p have one element more.
    """
    reals = _real_parts(message)
    partial = _real_parts(gradient)
    address = np.full(1, partial.ctypes.data).astype(np.uintp)
    _combine(
        _mode(coef),
        address,
        reals,
        1,
        np.full(1, complex(coef)),
        reals,
        partial.size,
        0,
        _extent(_mode(coef), partial.size, reals.size),
        True,
        False,
    )


# ------------------------------------------------------------------------------- norms


@_njit_sums
def _square_sum(x):
    total = 0.0
    for j in range(x.size):
        value = np.float64(_value(x[j]))
        total += value * value
    return total


def square_sum(x: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_sum`."""
    return float(_square_sum(x.view(_LIKE[kind_of(x.dtype)].dtype)))


# ------------------------------------------------------------------ steps of optimizers

_PIECE = 1024  # elements whose changes are kept until their squares are added up


@_njit
def sgd(theta, velocity, gradient, lr, momentum):
    """See `fastgc.kernels.sgd`; `velocity` may be None here, too."""
    lr_, momentum_ = theta.dtype.type(lr), theta.dtype.type(momentum)
    change, total = np.empty(min(theta.size, _PIECE)), 0.0
    for at in range(0, theta.size, _PIECE):
        x, g = theta[at : at + _PIECE], gradient[at : at + _PIECE]
        if velocity is None:
            for j in range(x.size):
                old = x[j]
                x[j] = old - lr_ * g[j]
                change[j] = np.float64(x[j]) - np.float64(old)
        else:
            u = velocity[at : at + _PIECE]
            for j in range(x.size):
                old = x[j]
                move = momentum_ * u[j] - lr_ * g[j]
                u[j] = move
                x[j] = old + move
                change[j] = np.float64(x[j]) - np.float64(old)
        total += _square_sum(change[: x.size])
    return total


@_njit
def nesterov(theta, point, gradient, lr, momentum):
    """See `fastgc.kernels.nesterov`."""
    lr_, momentum_ = theta.dtype.type(lr), theta.dtype.type(momentum)
    change, total = np.empty(min(theta.size, _PIECE)), 0.0
    for at in range(0, theta.size, _PIECE):
        x, y = theta[at : at + _PIECE], point[at : at + _PIECE]
        g = gradient[at : at + _PIECE]
        for j in range(x.size):
            old = y[j]
            following = old - lr_ * g[j]
            y[j] = following + momentum_ * (following - x[j])
            x[j] = following
            change[j] = np.float64(y[j]) - np.float64(old)
        total += _square_sum(change[: x.size])
    return total


@_njit
def amsgrad(theta, h, v, gradient, lr, beta1, beta2, epsilon):
    """See `fastgc.kernels.amsgrad`."""
    real = theta.dtype.type
    lr_, epsilon_ = real(lr), real(epsilon)
    keep1, take1, keep2, take2 = real(beta1), real(1 - beta1), real(beta2), real(1 - beta2)
    change, total = np.empty(min(theta.size, _PIECE)), 0.0
    for at in range(0, theta.size, _PIECE):
        x, g = theta[at : at + _PIECE], gradient[at : at + _PIECE]
        mean, most = h[at : at + _PIECE], v[at : at + _PIECE]
        for j in range(x.size):
            old = x[j]
            mean_ = keep1 * mean[j] + take1 * g[j]
            now = keep2 * most[j] + take2 * (g[j] * g[j])
            most_ = most[j] if most[j] > now else now
            mean[j], most[j] = mean_, most_
            x[j] = old - lr_ * mean_ / np.sqrt(epsilon_ + most_)
            change[j] = np.float64(x[j]) - np.float64(old)
        total += _square_sum(change[: x.size])
    return total


@_njit
def replace(old, new, total):
    """See `fastgc.kernels.replace`; `total` may be None here, too."""
    change, moved = np.empty(min(old.size, _PIECE)), 0.0
    for at in range(0, old.size, _PIECE):
        x, y = old[at : at + _PIECE], new[at : at + _PIECE]
        if total is not None:
            t = total[at : at + _PIECE]
            for j in range(x.size):
                t[j] += y[j] - x[j]
        for j in range(x.size):
            change[j] = np.float64(y[j]) - np.float64(x[j])
            x[j] = y[j]
        moved += _square_sum(change[: x.size])
    return moved


@_njit
def square_distance(x, y):
    """See `fastgc.kernels.square_distance`."""
    change, total = np.empty(min(x.size, _PIECE)), 0.0
    for at in range(0, x.size, _PIECE):
        u, w = x[at : at + _PIECE], y[at : at + _PIECE]
        for j in range(u.size):
            change[j] = np.float64(u[j]) - np.float64(w[j])
        total += _square_sum(change[: u.size])
    return total


def _over(a, d):
    """Quotient; Numba's own division of complex numbers raises an exception for 0."""


@overload(_over)
def _over_impl(a, d):
    if isinstance(d, types.Complex):

        def divide(a, d):
            size = max(abs(d.real), abs(d.imag))
            re, im = d.real / size, d.imag / size
            square = (re * re + im * im) * size
            return a * complex(re / square, -im / square)

        return divide
    return lambda a, d: a / d


# ---------------------------------------------------------------------- Lagrange bases

_NEAREST = 2.0**-250
_POINTS = 64  # whose products are in the nearest cache
_POWERS = np.ldexp(1.0, np.arange(-1022, 1024))


@intrinsic
def _bits(typingctx, x):
    """The bits of a float64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.int64))

    return types.int64(types.float64), codegen


@intrinsic
def _double(typingctx, bits):
    """The float64 with these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.int64), codegen


@_njit
def _power_of_two(e):
    return _POWERS[min(max(e, -1022), 1023) + 1022]


@_njit
def _part(z):
    """The larger part of a number, in size."""
    return max(abs(z.real), abs(z.imag))


def _scaled(z, a):
    """A number times a real one."""


@overload(_scaled)
def _scaled_impl(z, a):
    if isinstance(z, types.Complex):
        return lambda z, a: complex(z.real * a, z.imag * a)
    return lambda z, a: z * a


@_njit
def _factor(d, one):
    return d if _part(d) >= _NEAREST else one


@_njit
def _multiply_nodes(nodes, j, points, mantissa, exponent):
    """Multiply by the differences to four nodes and normalise; whether one counts as none."""
    x0, x1, x2, x3 = nodes[j], nodes[j + 1], nodes[j + 2], nodes[j + 3]
    one = mantissa.dtype.type(1)
    near = False
    for i in range(points.size):
        d0, d1, d2, d3 = points[i] - x0, points[i] - x1, points[i] - x2, points[i] - x3
        far = (_part(d0) >= _NEAREST) & (_part(d1) >= _NEAREST)
        near |= not (far & (_part(d2) >= _NEAREST) & (_part(d3) >= _NEAREST))
        first, second = _factor(d0, one) * _factor(d1, one), _factor(d2, one) * _factor(d3, one)
        product = mantissa[i] * first * second
        e = (_bits(_part(product)) >> 52) - 1023
        mantissa[i] = _scaled(product, _double((1023 - e) << 52))
        exponent[i] += e
    return near


@_njit
def lagrange_products(nodes, points, mantissa, exponent, hit):
    """``mantissa[i] 2^exponent[i] = prod_j (points[i] - nodes[j])``, see the facade."""
    mantissa[:] = 1
    exponent[:] = 0
    hit[:] = -1
    x = np.full(nodes.size + -nodes.size % 4, nodes.dtype.type(np.nan))  # no factor either
    x[: nodes.size] = nodes
    for lo in range(0, points.size, _POINTS):
        hi = min(lo + _POINTS, points.size)
        z, product, power, equal = points[lo:hi], mantissa[lo:hi], exponent[lo:hi], hit[lo:hi]
        for j in range(0, x.size, 4):
            if _multiply_nodes(x, j, z, product, power):
                for t in range(j, min(j + 4, nodes.size)):
                    for i in range(z.size):
                        equal[i] = t if _part(z[i] - nodes[t]) < _NEAREST else equal[i]


def _inverses(c, d):
    """1 / c and 1 / d by one division, for c and d in the middle of a double's range."""


@overload(_inverses)
def _inverses_impl(c, d):
    if isinstance(c, types.Complex):

        def invert(c, d):
            u, v = c.real * c.real + c.imag * c.imag, d.real * d.real + d.imag * d.imag
            both = 1 / (u * v)
            over_c, over_d = both * v, both * u
            return complex(c.real * over_c, -c.imag * over_c), complex(
                d.real * over_d, -d.imag * over_d
            )

        return invert

    def invert_real(c, d):
        both = 1 / (c * d)
        return both * d, both * c

    return invert_real


@_njit
def _two_rows(nodes, weights, y, z, p, q, row, other):
    """row[j] = p weights[j] / (y - nodes[j]) and other[j] = q weights[j] / (z - nodes[j])."""
    for j in range(nodes.size):
        first, second = _inverses(y - nodes[j], z - nodes[j])
        row[j], other[j] = p * (weights[j] * first), q * (weights[j] * second)


@_njit
def _add_two_rows(nodes, weights, y, z, p, q, row):
    """Add both to one row."""
    for j in range(nodes.size):
        first, second = _inverses(y - nodes[j], z - nodes[j])
        row[j] += p * (weights[j] * first) + q * (weights[j] * second)


@_njit
def _add_any(nodes, weights, weight_exponent, z, p, exponent, row):
    """Add p 2^exponent weights[j] / (z - nodes[j]), whatever the exponents."""
    for j in range(nodes.size):
        value = _over(p, z - nodes[j]) * weights[j]
        e = exponent + weight_exponent[j]
        half = e >> 1  # one factor alone may be out of range
        row[j] += _scaled(_scaled(value, _power_of_two(half)), _power_of_two(e - half))


@_njit
def _bases(nodes, weights, weight_exponent, points, rows):
    """Writes l_j(points[i]) to row i, or the sums over i to the only one."""
    mantissa, spare = np.empty_like(points), np.empty_like(nodes)
    exponent, hit = np.empty(points.size, np.int64), np.empty(points.size, np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    most = weight_exponent.max()
    alike = most - weight_exponent.min() < 400  # nearly always: all fit one scale, without loss
    scaled = weights.copy()
    for j in range(nodes.size):
        scaled[j] = _scaled(weights[j], _power_of_two(weight_exponent[j] - most))
    together = len(rows) < points.size
    if together:
        rows[:] = 0
    usual, count = np.empty(points.size, np.int64), 0
    for i in range(points.size):
        e = exponent[i] + most
        if hit[i] < 0 and alike and abs(e) < 400:
            mantissa[i] = _scaled(mantissa[i], _power_of_two(e))
            usual[count] = i
            count += 1
            continue
        row = rows[0 if together else i]
        if not together:
            row[:] = 0
        if hit[i] >= 0:
            row[hit[i]] += 1
        else:
            _add_any(nodes, weights, weight_exponent, points[i], mantissa[i], exponent[i], row)
    for at in range(0, count, 2):
        i, last = usual[at], at + 1 == count
        j = i if last else usual[at + 1]
        y, z, p, q = points[i], points[j], mantissa[i], mantissa[j]
        if together:
            q = 0 * q if last else q
            _add_two_rows(nodes, scaled, y, z, p, q, rows[0])
        else:
            _two_rows(nodes, scaled, y, z, p, q, rows[i], spare if last else rows[j])


def lagrange_basis(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    points: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """See `fastgc.kernels.lagrange_basis`."""
    _bases(nodes, weights, weight_exponent, points, np.atleast_2d(out))


# ---------------------------------------------------------------------- Vandermonde systems


@_njit
def _multiply_distances(rest, at, product, low):
    """Multiply by squared distances; where the largest product is, but for its last bits `low`."""
    most = np.int64(0)  # numbers that are not negative are in the order of their bits
    for i in range(rest.size):
        d = rest[i] - at
        product[i] *= d.real * d.real + d.imag * d.imag
        most = max(most, (_bits(product[i]) & ~low) | i)
    return most & low


@_njit
def leja_order(nodes, order):
    """Write to `order` a permutation that puts the nodes in Leja order, see the facade."""
    m = nodes.size
    largest = 0.0
    for z in nodes:
        largest = max(largest, abs(z.real), abs(z.imag))
    scale = 1.0
    if 0 < largest < np.inf:
        scale = _power_of_two(-math.frexp(largest)[1])
    x = nodes * scale
    chosen, farthest = 0, -1.0
    for i in range(m):
        size = x[i].real * x[i].real + x[i].imag * x[i].imag
        if size > farthest:
            chosen, farthest = i, size
        order[i] = i
    low = 1
    while low < m:
        low *= 2
    low -= 1
    product = np.ones(m)
    for k in range(m):
        at, where = x[chosen], order[chosen]
        x[chosen], product[chosen], order[chosen] = x[k], product[k], order[k]
        x[k], order[k] = at, where
        chosen = k + 1 + _multiply_distances(x[k + 1 :], at, product[k + 1 :], low)
        if k % 8 == 7 and chosen < m and product[chosen] > 0:
            # a common factor changes nothing; nor does the order of the hopeless
            scale = _power_of_two(-math.frexp(product[chosen])[1])
            for i in range(k + 1, m):
                scaled = product[i] * scale
                product[i] = scaled if scaled > 2.0**-900 else 2.0**-900


_COLUMNS = 4  # that share their reciprocals
_LARGEST = 2.0**240  # node whose differences can be inverted two at a time


@_njit
def _invert_differences(x, k, f, g, careful):
    """f[i] = 1 / (x[i+k] - x[i-1]) and g[i] = 1 / (x[i+k-1] - x[i-1]), i > 0; f alone for k = 0."""
    near, middle, far = x[: x.size - k - 1], x[k : x.size - 1], x[k + 1 :]
    one, to, other = x.dtype.type(1), f[1:], g[1:]
    if k and not careful:
        for i in range(near.size):
            to[i], other[i] = _inverses(far[i] - near[i], middle[i] - near[i])
    else:
        for i in range(near.size):
            to[i] = _over(one, far[i] - near[i])
            if k:
                other[i] = _over(one, middle[i] - near[i])
    if k:
        other[near.size] = _over(one, x[-1] - x[near.size])


@_njit
def _subtract_before(c, node, to):
    to[0] = c[0]
    for i in range(1, c.size):
        to[i] = c[i] - node * c[i - 1]


@_njit
def _subtract_after(c, node):
    for i in range(c.size - 1):
        c[i] -= node * c[i + 1]


@_njit
def _subtract_divide(c, f, to):
    to[0] = c[0]
    for i in range(1, c.size):
        to[i] = (c[i] - c[i - 1]) * f[i]


@_njit
def _divide_subtract(c, f):
    for i in range(c.size - 1):
        c[i] = c[i] * f[i] - c[i + 1] * f[i + 1]
    c[-1] *= f[c.size - 1]


@_njit
def _solve_columns(x, columns, transpose, careful):
    """csrc/vandermonde.c's steps k in pairs, last - 1 and last, that share their reciprocals."""
    m = x.size
    f, g, spare = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    f[0] = g[0] = 1
    for last in range(m % 2, m - 1, 2):
        before = max(last - 1, 0)
        if not transpose:
            _invert_differences(x, last, f, g, careful)
        for c in columns:
            if last == 0:
                spare[:] = c
            elif transpose:
                _subtract_before(c[before:], x[before], spare[before:])
            else:
                _subtract_divide(c[before:], g, spare[before:])
            if transpose:
                _subtract_before(spare[last:], x[last], c[last:])
            else:
                _subtract_divide(spare[last:], f, c[last:])
    for last in range(m - 2, -1, -2):
        if transpose:
            _invert_differences(x, last, f, g, careful)
        for c in columns:
            if transpose:
                _divide_subtract(c[last:], f)
            else:
                _subtract_after(c[last:], x[last])
            if last and transpose:
                _divide_subtract(c[last - 1 :], g)
            elif last:
                _subtract_after(c[last - 1 :], x[last - 1])


@_njit
def vandermonde_column(x, c, transpose):
    """Solve ``V^T a = c``, or ``V a = c``, in place: Björck and Pereyra's algorithms.

    `x` : the nodes, (m,), in the order in which they are to be taken, and c's entries too unless
    `transpose`. With it, the entries of a belong to the nodes in this order.
    """
    order = np.arange(x.size)
    column = c.copy().reshape(x.size, 1)
    _solve_in_order(x, column, order, transpose, c.reshape(x.size, 1), True)


@_njit
def _solve_in_order(x, b, rows, transpose, out, forced):
    """Solve for b[rows] (or b, if `transpose`) and nodes in the order of elimination."""
    m, width = b.shape
    large = 0.0
    for z in x:
        large = max(large, _part(z))
    finite = True
    work = np.empty((min(width, _COLUMNS), m), x.dtype)
    for done in range(0, width, _COLUMNS):
        columns = work[: min(_COLUMNS, width - done)]
        # Fast reciprocals are not finite outside the middle of a double's range: see csrc.
        good = False
        for careful in (False, True):
            if good or (large > _LARGEST and not careful):
                continue
            for i in range(m):
                row = b[i if transpose else rows[i]]
                for t in range(len(columns)):
                    columns[t, i] = row[done + t]
            _solve_columns(x, columns, transpose, careful)
            good = np.isfinite(columns).all()
        finite = finite and good
        if not (good or forced):
            return False
        for i in range(m):
            row = out[rows[i] if transpose else i]
            for t in range(len(columns)):
                row[done + t] = columns[t, i]
    return finite


@_njit
def _solve_vandermonde(nodes, b, order, transpose, out, forced):
    return _solve_in_order(nodes[order], b, order, transpose, out, forced)


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool,
) -> bool:
    """See `fastgc.kernels.solve_vandermonde`."""
    if order is None:
        order = np.empty(nodes.size, dtype=np.int64)
        leja_order(nodes, order)
    shape = nodes.size, -1
    finite = _solve_vandermonde(
        nodes, b.reshape(shape), order, bool(transpose), out.reshape(shape), forced
    )
    return bool(finite) and bool(np.isfinite(nodes).all())


# ---------------------------------------------------------------------- completion times

# Times are compared for equality: every backend must round them alike.
_njit_exact = numba.njit(nogil=True, cache=True, error_model="numpy")

_SAMPLE = 8


@_njit_exact
def _select(key, weight, whole, need):
    """The smallest t such that the keys up to t weigh `need` > 0, or each 1 if `weight` is None.

    Together they weigh `whole`. See csrc/completion.c; the arrays are overwritten.
    """
    if need > whole:
        return np.inf
    count = key.size
    spare, sample = np.empty_like(key), np.empty(_SAMPLE)
    weights = np.empty(0, np.int64) if weight is None else weight
    spare_weights = np.empty_like(weights)
    random = np.uint64(1)
    while True:
        size = 1 if count < 4 * _SAMPLE else _SAMPLE
        for i in range(size):
            random = random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            x = key[((random >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)]
            at = i
            while at and sample[at - 1] > x:
                sample[at] = sample[at - 1]
                at -= 1
            sample[at] = x
        pivot = sample[int((need - 0.5) / whole * size)]
        less, more, below, above = 0, 0, 0, 0
        for j in range(count):
            x, w = key[j], 1
            key[less] = x
            spare[more] = x
            if weight is not None:
                w = weights[j]
                weights[less] = w
                spare_weights[more] = w
            below += w if x < pivot else 0
            above += w if x > pivot else 0
            less += x < pivot
            more += x > pivot
        if need <= below:
            count, whole = less, below
        elif need <= whole - above:
            return pivot
        else:
            need -= whole - above
            count, whole = more, above
            key, spare = spare, key
            weights, spare_weights = spare_weights, weights


@_njit_exact
def _blocks_ready(plan, order, bound, arrival):
    ready = 0.0
    key = np.empty_like(arrival)
    for b in range(plan.need.size):
        if plan.need[b] == 0:
            continue
        later = 0
        for m in order[bound[b] : bound[b + 1]]:
            key[later] = arrival[m]
            later += arrival[m] > ready
        lacking = plan.need[b] - (bound[b + 1] - bound[b] - later)
        if lacking > 0:
            ready = _select(key[:later], None, later, lacking)
    return ready


@_njit_exact
def _cells_ready(plan, arrival):
    earliest = np.full(plan.need.size, np.inf)
    for m in range(arrival.size):
        c = plan.group[m]
        earliest[c] = arrival[m] if arrival[m] < earliest[c] else earliest[c]
    if plan.total <= 0:
        return 0.0
    return _select(earliest, plan.need.copy(), plan.need.sum(), plan.total)


@_njit_exact
def _root(parent, point):
    while parent[point] != point:
        parent[point] = parent[parent[point]]
        point = parent[point]
    return point


@_njit_exact
def _tiling_ready(plan, arrival):
    k = plan.total
    parent = np.arange(k + 1)
    ready = 0.0
    for m in np.argsort(arrival):
        if _root(parent, 0) == _root(parent, k):
            return ready
        parent[_root(parent, plan.group[m])] = _root(parent, plan.other[m])
        ready = arrival[m]
    return ready if _root(parent, 0) == _root(parent, k) else np.inf


@_njit_exact
def completion(plan, delay, work, late, receive, overhead, interrupted, out):
    """Simulate rounds, see `fastgc.kernels.completion`."""
    n = plan.loads.size
    arrival = np.empty(plan.share.size)
    if plan.kind == BLOCKS:
        order = np.argsort(plan.group)
        bound = np.searchsorted(plan.group[order], np.arange(plan.need.size + 1))
    for r in range(work.shape[0]):
        for i in range(n):
            for m in range(plan.first[i], plan.first[i + 1]):
                arrival[m] = late[i] + delay[r, i] + work[r, i] * plan.share[m]
        if plan.kind == BLOCKS:
            ready = _blocks_ready(plan, order, bound, arrival)
        elif plan.kind == CELLS:
            ready = _cells_ready(plan, arrival)
        else:
            ready = _tiling_ready(plan, arrival)

        heard, senders, done = 0, 0, 0
        for i in range(n):
            sent = 0
            for m in range(plan.first[i], plan.first[i + 1]):
                sent += arrival[m] <= ready
            heard += sent
            senders += sent > 0
            since = ready - (late[i] + delay[r, i])
            part = 1.0 if since >= 0 else 0.0
            if 0 <= since < work[r, i]:
                part = since / work[r, i]
            if sent:  # since may have lost the digits that tell, see csrc/completion.c
                part = max(part, plan.share[plan.first[i] + sent - 1])
            done += math.floor(plan.loads[i] * part + 1e-9)
        end = ready
        if receive > 0:
            in_order = arrival[arrival <= ready]
            in_order.sort()
            for j in range(heard):
                end = max(end, in_order[j] + (heard - j) * receive)
        out.time[r], out.messages[r] = end, heard
        out.workers[r], out.computations[r] = senders, done
        if interrupted:
            continue
        end += overhead
        for i in range(n):
            free_at = late[i]
            for m in range(plan.first[i], plan.first[i + 1]):
                if free_at > end:
                    break
                free_at = arrival[m]
            late[i] = free_at - end if free_at > end else 0.0
