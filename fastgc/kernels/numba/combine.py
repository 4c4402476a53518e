"""Linear combinations of long vectors, and their norms."""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from ..rows import EXPAND, PACKED, REAL, REAL_PART, extent_of, kind_of
from .njit import bits_as, by_types, njit, njit_sums

__all__ = [
    "accumulate",
    "combine",
    "combine_rows",
    "square_sum",
]

_BLOCK = 2048  # elements of a row handled at a time


@intrinsic
def pointer(typingctx, address):
    """Turn an integer into a pointer, for `numba.carray`."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.uintp), codegen


@by_types
def _real_parts(array):
    """Reals of a contiguous real or complex array, without copying."""
    if array.dtype == types.complex64:
        return lambda array: array.view(np.float32)
    if array.dtype == types.complex128:
        return lambda array: array.view(np.float64)
    return lambda array: array


# Empty arrays that stand for the kinds of rows: their dtype tells compiled code what bits mean.
_LIKE = {
    "float": np.empty(0, np.float32),
    "double": np.empty(0, np.float64),
    "half": np.empty(0, np.uint16),
    "bfloat": np.empty(0, np.int16),
}


@by_types
def _empty_sums(size, like):
    """Room to add up rows like `like`: in double precision, for halves in single precision."""
    dtype = np.float64 if isinstance(like.dtype, types.Float) else np.float32
    return lambda size, like: np.empty(size, dtype)


_float_of = bits_as(types.uint32, types.float32)


@intrinsic
def _float_of_half(typingctx, bits):
    """The float32 equal to the half with these bits, by the processor's own instruction."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


# Without the instruction LLVM would call a function that may be missing.
_CONVERTS_HALVES = binding.get_host_cpu_features().get("f16c", False)


@by_types
def _value(x):
    """The value of one element of a row."""
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


@njit
def _row(address, first, size, like):
    """View `size` reals, from `first` on, of the row at an address."""
    at = pointer(address + np.uintp(first * like.itemsize))
    return numba.carray(at, (size,), like.dtype)


@njit
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


@njit
def _add_rows(address, a, b, first, size, sums, mode, like):
    """`_add_row` for four rows in one pass."""
    # The sums are two halves of one array: so few arrays can be checked for overlap before a
    # vectorised loop.
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


@njit
def _begin(mode, sums, to, size):
    """Begin the sums with what is in the output already."""
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


@njit
def _finish(mode, sums, to, size):
    """Write the sums to the output. Returns how many elements."""
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


@njit
def _combine(mode, addresses, like, count, coef, out, in_len, extent, add, check):
    """fgc_combine of C; `out` is the output's reals, `like` an empty array of the rows' kind."""
    step = _BLOCK // 2 if mode == REAL_PART else _BLOCK
    sums = _empty_sums(2 * _BLOCK, like)
    a, b = coef.real.astype(sums.dtype), coef.imag.astype(sums.dtype)
    finite = True
    for j in range(0, extent, step):
        size = min(step, extent - j)
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


def combine(mode, rows, coef, out, accumulate=False, check=False):
    return _combine(
        mode,
        rows.addresses,
        _LIKE[rows.kind],
        rows.count,
        np.array(coef, np.complex128),  # a read-only array would have all compiled again
        out.view(out.real.dtype),
        rows.length,
        extent_of(mode, rows.length, out.size),
        accumulate,
        check,
    )


# The following functions call `_combine` with NumPy's numbers: Numba would compile it again for
# each literal number.


@by_types
def _mode(coef):
    """PACKED for complex coefficients, REAL for others."""
    mode = PACKED if isinstance(getattr(coef, "dtype", coef), types.Complex) else REAL
    return lambda coef: np.int64(mode)


@njit
def _extent(mode, in_len, out_len):
    if mode == REAL:
        return out_len
    extent = max(in_len, out_len)
    return extent + extent % 2


@njit
def _fits(mode, many, few):
    """Whether a gradient of `few` elements fits messages of `many`."""
    return many == few or (mode == PACKED and many == few + 1 and few % 2 == 1)


@njit
def _row_addresses(rows, survivors):
    which = np.arange(rows.shape[0]) if survivors is None else survivors
    return np.uintp(rows.ctypes.data) + which.astype(np.uintp) * np.uintp(rows.strides[0])


@njit
def combine_rows(coef, rows, out, survivors=None):
    """Compute ``out = coef @ rows[survivors]`` from a user's ``@njit`` code; nothing is gathered.

    Parameters
    ----------
    coef : (f,) complex128 or float64 array
        Coefficients of a complex code, packed; or of a real code.
    rows : (n, q) array
        float32, float64, complex64 or complex128, with contiguous rows. For complex coefficients
        reals stand for complex pairs (q even, or odd with an unpaired last element).
    out : (p,) array
        Of the rows' dtype. p is q; for reals and complex coefficients it may be q - 1.
    survivors : (f,) int64 array, optional
        Numbers of rows, in the order of `coef`. By default all rows; n is then f.

    Returns
    -------
    bool
        Whether every written value is finite.

    Raises
    ------
    ValueError
        If the lengths do not fit each other, or a survivor is not the number of a row.
    """
    reals = _real_parts(out)
    in_len = rows.shape[1] * (rows.itemsize // reals.itemsize)
    if not _fits(_mode(coef), in_len, reals.size):
        raise ValueError("out must be as long as a row, or one shorter")
    if survivors is None:
        if coef.size != rows.shape[0]:
            raise ValueError("there must be a row for each coefficient")
    else:
        if coef.size != survivors.size:
            raise ValueError("coef must be as long as survivors")
        for i in survivors:
            if i < 0 or i >= rows.shape[0]:
                raise ValueError("a survivor is no row")
    extent = _extent(_mode(coef), in_len, reals.size)
    return _combine(
        _mode(coef),
        _row_addresses(rows, survivors),
        reals,
        coef.size,
        coef.astype(np.complex128),
        reals,
        in_len,
        extent,
        np.bool_(False),
        np.bool_(True),
    )


@njit
def accumulate(coef, gradient, message):
    """One step of streaming encoding from ``@njit`` code: ``message += coef * gradient``.

    Parameters
    ----------
    coef : complex or float
        Coefficient of a complex code, packed; or of a real code.
    gradient : (p,) array
        float32, float64, complex64 or complex128, contiguous.
    message : (p,) array
        Of the gradient's dtype. A packed message has one element more if p is odd.

    Raises
    ------
    ValueError
        If the lengths do not fit each other.
    """
    reals = _real_parts(message)
    partial = _real_parts(gradient)
    if not _fits(_mode(coef), reals.size, partial.size):
        raise ValueError("message must be as long as gradient, or one longer if that is odd")
    address = np.full(1, partial.ctypes.data).astype(np.uintp)
    _combine(
        _mode(coef),
        address,
        reals,
        np.int64(1),
        np.full(1, complex(coef)),
        reals,
        partial.size,
        _extent(_mode(coef), partial.size, reals.size),
        np.bool_(True),
        np.bool_(False),
    )


@njit_sums
def sum_squares(x):
    """Sum of squares of a row of any kind, in double precision."""
    total = 0.0
    for j in range(x.size):
        value = np.float64(_value(x[j]))
        total += value * value
    return total


def square_sum(x):
    return float(sum_squares(x.view(_LIKE[kind_of(x.dtype)].dtype)))


@overload(square_sum)
def _square_sum(x):
    if isinstance(x.dtype, types.Float):
        return lambda x: sum_squares(x)
    return None
