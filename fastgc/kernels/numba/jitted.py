"""Encoding and decoding in compiled functions, with a `JittedCode`."""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload, register_jitable

from ..cyclic import Status
from ..jitted import CyclicRule, PlacedRule
from ..numpy.cover import CellsPlan, EdgesPlan, TilingPlan
from ..rows import EXPAND, PACKED, REAL, REAL_PART
from .combine import _combine, _extent, _fits, _real_parts
from .cover import bind_cells, bind_edges, bind_tiling
from .decoding import short_vector
from .njit import njit

__all__ = ["decode", "encode"]

_IMPRECISE, _NOT_FINITE = int(Status.IMPRECISE), int(Status.NOT_FINITE)
_WORK = 25  # csrc/fastgc.h's FGC_WORK


def _write_vector(rule, survivors, out, wide, c):
    """Write the decoding vector, for messages of float64 (`wide`) or float32. Returns a status."""


@overload(_write_vector)
def _write_vector_impl(rule, survivors, out, wide, c):
    of = rule.instance_class
    if of is PlacedRule:

        def renumbered(rule, survivors, out, wide, c):
            theirs = survivors.copy()
            for at in range(theirs.size):
                if 0 <= theirs[at] < rule.number.size:
                    theirs[at] = rule.number[theirs[at]]
            return _write_vector(rule.inner, theirs, out, wide, c)

        return renumbered
    if of is CyclicRule and isinstance(c, types.NoneType):
        return lambda rule, survivors, out, wide, c: short_vector(
            rule.tables, rule.method, survivors, out, rule.longest[wide]
        )[0]
    if of is CyclicRule:

        def cyclic(rule, survivors, out, wide, c):
            work, longest = np.empty(_WORK * c[3] // 8 + 2), rule.longest[wide]
            return _call_vector(c, survivors, out, work, longest, rule.method, survivors.size)

        return cyclic
    bind = {CellsPlan: bind_cells, TilingPlan: bind_tiling, EdgesPlan: bind_edges}[of]
    return lambda rule, survivors, out, wide, c: bind(rule, survivors, out)(survivors.size)


def _mode_of(coef, rows, out):
    """Return the mode that the dtypes of coefficients, rows and output imply."""


@overload(_mode_of)
def _mode_of_impl(coef, rows, out):
    whole, part = (isinstance(each.dtype, types.Complex) for each in (rows, out))
    real = {getattr(each.dtype, "underlying_float", each.dtype) for each in (rows, out)}
    if len(real) > 1 or not real <= {types.float32, types.float64}:
        raise TypingError(
            "messages and gradients must be of float32, float64, complex64 or complex128, and both "
            f"of one precision, not of {rows.dtype} and {out.dtype}"
        )
    if whole == part:
        mode = PACKED if isinstance(coef.dtype, types.Complex) else REAL
    elif isinstance(coef.dtype, types.Complex):
        mode = REAL_PART if whole else EXPAND
    else:
        raise TypingError(
            "the coefficients are real: messages and gradients must be of one dtype, not "
            f"{rows.dtype} and {out.dtype}"
        )
    return lambda coef, rows, out: np.int64(mode)


def _numbers(survivors):
    """Return the survivors as contiguous int64, for C."""


@overload(_numbers)
def _numbers_impl(survivors):
    if survivors.dtype == types.int64 and survivors.layout == "C":
        return lambda survivors: survivors
    return lambda survivors: survivors.astype(np.int64)


def _data(context, builder, kind, value):
    return context.make_array(kind)(context, builder, value=value).data


def _called(builder, address, values):
    """Emit a call of the C function at an address. Returns its int as an int64."""
    kind = ir.FunctionType(ir.IntType(32), [each.type for each in values]).as_pointer()
    returned = builder.call(builder.inttoptr(address, kind), values)
    return builder.zext(returned, ir.IntType(64))


@intrinsic
def _call_combine(typingctx, function, mode, rows, coef, count, extent, in_len, out_len, out):
    """Call C's fgc_combine at the address `function`. Returns 0 if all that it writes is finite."""

    def codegen(context, builder, signature, args):
        function, mode, rows, coef, *sizes, out = args
        word, kinds = ir.IntType(32), signature.args
        rows, coef, out = (
            _data(context, builder, kinds[at], value)
            for at, value in ((2, rows), (3, coef), (8, out))
        )
        check = ir.Constant(word, 2)  # FGC_CHECK
        values = [builder.trunc(mode, word), rows, coef, *sizes, check, out]
        return _called(builder, function, values)

    given = types.int64, types.int64, rows, coef, *[types.int64] * 4, out
    return types.int64(*given), codegen


@intrinsic
def _call_vector(typingctx, c, survivors, out, work, longest, method, f):
    """Call C's fgc_decoding_vector with the tables in `JittedCode.c`. Returns a status."""

    def codegen(context, builder, signature, args):
        word, kinds = ir.IntType(32), signature.args
        c, survivors, out, work = map(partial(_data, context, builder), kinds[:4], args[:4])
        at = [builder.gep(c, [ir.Constant(word, offset)]) for offset in (2, 3)]
        where, rest = work, builder.gep(work, [ir.Constant(word, 1)])
        longest, method, f = args[4:]
        method = builder.trunc(method, word)
        values = [at[1], survivors, out, where, rest, longest, method, f]
        return _called(builder, builder.load(at[0]), values)

    given = c, survivors, out, work, types.float64, types.int64, types.int64
    return types.int64(*given), codegen


def _is_wide(array):
    """Return 1 if the array's reals are float64, else 0."""


@overload(_is_wide)
def _is_wide_impl(array):
    wide = int(getattr(array.dtype, "underlying_float", array.dtype) == types.float64)
    return lambda array: wide


@register_jitable(inline="always")
def _lengths(mode, rows, out, encoding):
    """Return the lengths of a row and of the output in the mode's units; check that they fit."""
    if rows.shape[1] > 1 and rows.strides[1] != rows.itemsize:
        raise ValueError("rows must be contiguous")
    if out.size > 1 and out.strides[0] != out.itemsize:
        raise ValueError("out must be contiguous")
    many, few = rows.shape[1], out.size
    if mode in (REAL, PACKED):
        reals = _real_parts(out)
        many, few = many * (rows.itemsize // reals.itemsize), reals.size
    message, gradient = (few, many) if encoding else (many, few)
    if not _fits(mode, message, gradient):
        raise ValueError("a message must be as long as a gradient, or one longer where that is odd")
    return many, few


def _combine_rows(c, coef, rows, addresses, out, encoding):
    """Combine the rows at these addresses. Returns whether all that is written is finite."""


@overload(_combine_rows, inline="always")
def _combine_rows_impl(c, coef, rows, addresses, out, encoding):
    def by_c(c, coef, rows, addresses, out, encoding):
        mode, size = _mode_of(coef, rows, out), coef.size
        many, few = _lengths(mode, rows, out, encoding)
        extent = _extent(mode, many, few) if mode == PACKED else many
        function = c[_is_wide(out)]
        return _call_combine(function, mode, addresses, coef, size, extent, many, few, out) == 0

    def by_numba(c, coef, rows, addresses, out, encoding):
        mode, size, to = _mode_of(coef, rows, out), coef.size, _real_parts(out)
        many, few = _lengths(mode, rows, out, encoding)
        extent = _extent(mode, many, few) if mode == PACKED else many
        numbers, add, check = coef.astype(np.complex128), np.bool_(False), np.bool_(True)
        return _combine(mode, addresses, to, size, numbers, to, many, extent, add, check)

    return by_numba if isinstance(c, types.NoneType) else by_c


@njit
def _encode(first, partitions, coefficients, c, message, partials, out):
    if not 0 <= message < first.size - 1:
        raise ValueError("there is no such message")
    lo, hi = first[message], first[message + 1]
    addresses = np.empty(hi - lo, np.uintp)
    base, step = np.uintp(partials.ctypes.data), np.uintp(partials.strides[0])
    for r in range(hi - lo):
        partition = partitions[lo + r]
        if partition >= partials.shape[0]:
            raise ValueError("partials must have a row for each partition")
        addresses[r] = base + np.uintp(partition) * step
    _combine_rows(c, coefficients[lo:hi], partials, addresses, out, True)


def encode(code, message, partials, out):
    """Write a worker's message, as `fastgc.Code.encode` does.

    Parameters
    ----------
    code : JittedCode
        Made by `fastgc.codes.jit`.
    message : int
        The worker's number; if workers send several messages, the message's number.
    partials : (k, p) array
        Partial gradients of all partitions, with contiguous rows: float32, float64, complex64 or
        complex128. Only the message's own partitions are read.
    out : (message_size,) array
        Of the same dtype; complex for codes that send complex messages for real gradients.
        It must be contiguous, and share no memory with `partials`.

    Raises
    ------
    ValueError
        If there is no such message, or lengths do not fit.
    """
    _encode(code.first, code.partitions, code.coefficients, code.c, message, partials, out)


@overload(encode, inline="always")  # passing a tuple of arrays would take longer than encoding
def _encode_impl(code, message, partials, out):
    return lambda code, message, partials, out: _encode(
        code.first, code.partitions, code.coefficients, code.c, message, partials, out
    )


@njit
def decode(code, survivors, messages, out):
    """Write the gradient from the survivors' messages, as `fastgc.Code.decode` does.

    Parameters
    ----------
    code : JittedCode
        Made by `fastgc.codes.jit`.
    survivors : (f,) int64 array
        Numbers of messages, in any order.
    messages : (M, message_size) array
        Message m is row m; rows are contiguous. Only the survivors' rows are read, and of these
        only those that are needed.
    out : (p,) array
        The gradient. It must be contiguous, and share no memory with `messages`.

    Returns
    -------
    int
        A `fastgc.kernels.Status`. 0: the gradient is in `out`. ``IMPRECISE``: it is in `out`, but
        the decoding vector is so long that rounding errors may matter; `fastgc.Code.decode` would
        have used a near-exact vector. ``NOT_FINITE``: a message that is read is not finite, and
        `out` means nothing. ``TOO_FEW``, ``OUT_OF_RANGE``, ``DUPLICATE``, ``OVERFLOW``: nothing is
        written.

    Raises
    ------
    ValueError
        If lengths do not fit.
    """
    if messages.shape[0] != code.first.size - 1:
        raise ValueError("messages must have a row for each message of the code")
    came = _numbers(survivors)
    vector = np.empty(came.size, code.coefficients.dtype)
    status = _write_vector(code.rule, came, vector, _is_wide(out), code.c)
    if status != 0 and status != _IMPRECISE:
        return status
    addresses, count = np.empty(vector.size, np.uintp), 0
    first, step = np.uintp(messages.ctypes.data), np.uintp(messages.strides[0])
    for at in range(vector.size):
        if vector[at] != 0:
            vector[count] = vector[at]
            addresses[count] = first + np.uintp(came[at]) * step
            count += 1
    if not _combine_rows(code.c, vector[:count], messages, addresses, out, False):
        return _NOT_FINITE
    return status
