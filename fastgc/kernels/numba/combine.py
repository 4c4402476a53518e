"""Linear combinations of long vectors: a worker's message, and the gradient from messages."""

from __future__ import annotations

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .njit import by_types, njit

__all__ = ["combine_rows"]

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


@njit
def _row(address, first, size, out):
    """View `size` reals of the row at an address, from `first` on; they have the dtype of `out`."""
    at = pointer(address + np.uintp(first * out.itemsize))
    return numba.carray(at, (size,), out.dtype)


@njit
def _add_row(address, a, b, first, size, sums, packed, out):
    """Add a v to the first half of the sums and, if `packed`, b v to the second."""
    v, a0, b0 = _row(address[0], first, size, out), a[0], b[0]
    if packed:
        for j in range(size):
            sums[j] += a0 * v[j]
            sums[_BLOCK + j] += b0 * v[j]
    else:
        for j in range(size):
            sums[j] += a0 * v[j]


@njit
def _add_rows(address, a, b, first, size, sums, packed, out):
    """`_add_row` for four rows in one pass."""
    # The sums are two halves of one array: so few arrays can be checked for overlap before a
    # vectorised loop.
    v0 = _row(address[0], first, size, out)
    v1 = _row(address[1], first, size, out)
    v2 = _row(address[2], first, size, out)
    v3 = _row(address[3], first, size, out)
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    if packed:
        for j in range(size):
            x0, x1, x2, x3 = v0[j], v1[j], v2[j], v3[j]
            sums[j] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            sums[_BLOCK + j] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
    else:
        for j in range(size):
            sums[j] += a0 * v0[j] + a1 * v1[j] + a2 * v2[j] + a3 * v3[j]


@njit
def _finish(packed, sums, to, size):
    """Write the sums to the output. Returns how many elements."""
    if not packed:
        for t in range(size):
            to[t] = sums[t]
        return size
    size = min(size, to.size)
    for t in range(size // 2):
        to[2 * t] = sums[2 * t] - sums[_BLOCK + 2 * t + 1]
        to[2 * t + 1] = sums[2 * t + 1] + sums[_BLOCK + 2 * t]
    if size % 2:
        to[size - 1] = sums[size - 1] - sums[_BLOCK + size]
    return size


@njit
def combine_at(packed, addresses, count, coef, out, in_len, add, check):
    """Combine rows of `in_len` reals at these addresses to `out`, as csrc's fgc_combine does.

    With `packed`, two reals are a complex number, and `out` may be one real shorter or longer than
    a row. Without, imaginary parts of the coefficients are not used. Returns False if `check` is
    set and a written value is not finite.
    """
    sums = np.empty(2 * _BLOCK)
    a, b, finite = coef.real.copy(), coef.imag.copy(), True
    extent = max(in_len, out.size) if packed else out.size
    extent += extent % 2 if packed else 0
    fours = count - count % 4
    for first in range(0, extent, _BLOCK):
        size = min(_BLOCK, extent - first)
        to = out[first:]
        sums[:size] = 0
        if packed:
            sums[_BLOCK : _BLOCK + size] = 0
        if add:
            for t in range(min(size, to.size)):
                sums[t] = to[t]
        there = min(size, in_len - first)
        for r in range(0, fours, 4):
            _add_rows(addresses[r:], a[r:], b[r:], first, there, sums, packed, out)
        for r in range(fours, count):
            _add_row(addresses[r:], a[r:], b[r:], first, there, sums, packed, out)
        size = _finish(packed, sums, to, size)
        if check:
            for t in range(size):
                finite &= np.isfinite(to[t])
    return finite


@by_types
def _packed(coef):
    """Whether coefficients are complex, so that two reals of a row are a complex number."""
    packed = isinstance(getattr(coef, "dtype", coef), types.Complex)
    return lambda coef: np.bool_(packed)


@njit
def _fits(packed, many, few):
    """Whether a gradient of `few` reals fits messages of `many`."""
    return many == few or (packed and many == few + 1 and few % 2 == 1)


@njit
def combine_rows(coef, rows, out, survivors=None, accumulate=False):
    """Compute ``out = coef @ rows[survivors]``, or ``out +=`` that; nothing is gathered.

    It decodes, from messages and a decoding vector, and encodes, from partial gradients and a
    worker's coefficients. A message is also made of one partial gradient after the other:
    ``combine_rows(coef[j : j + 1], g.reshape(1, -1), message, None, j > 0)``.

    Parameters
    ----------
    coef : (f,) complex128 or float64 array
        Coefficients of a complex code, packed; or of a real code.
    rows : (n, q) array
        float32, float64, complex64 or complex128, with contiguous rows. For complex coefficients
        reals stand for complex pairs (q even, or odd with an unpaired last element).
    out : (p,) array
        Of the rows' dtype, contiguous. p is q; for reals and complex coefficients it may be one
        less than an even q (a gradient from messages) or one more than an odd one (a message from
        gradients).
    survivors : (f,) int64 array, optional
        Numbers of rows, in the order of `coef`. By default all rows; n is then f.
    accumulate : bool
        Add to `out`.

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
    packed = _packed(coef)
    if not (_fits(packed, in_len, reals.size) or _fits(packed, reals.size, in_len)):
        raise ValueError("out must be as long as a row, or one longer or shorter and not both odd")
    if in_len > 1 and rows.strides[1] != rows.itemsize:
        raise ValueError("rows must be contiguous")
    which = np.arange(len(rows)) if survivors is None else survivors.astype(np.int64)
    if coef.size != which.size:
        raise ValueError("there must be a row for each coefficient")
    for i in which:
        if i < 0 or i >= len(rows):
            raise ValueError("a survivor is no row")
    addresses = np.uintp(rows.ctypes.data) + which.astype(np.uintp) * np.uintp(rows.strides[0])
    add, check = np.bool_(accumulate), np.bool_(True)
    wide = coef.astype(np.complex128)
    return combine_at(packed, addresses, wide.size, wide, reals, in_len, add, check)
