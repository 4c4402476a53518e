"""Encoding and decoding in compiled functions, with a `JittedCode`."""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload, register_jitable

from ..cyclic import Status
from ..jitted import CyclicRule, PlacedRule, release
from ..numpy.cover import CellsPlan, EdgesPlan, TilingPlan
from ..rows import EXPAND, PACKED, REAL, REAL_PART
from .combine import _combine, _extent, _fits, _real_parts
from .cover import bind_cells, bind_edges, bind_tiling
from .decoding import short_vector
from .njit import by_types, njit

__all__ = ["decode", "encode"]

_IMPRECISE, _NOT_FINITE = int(Status.IMPRECISE), int(Status.NOT_FINITE)
_WORK = 25  # csrc/fastgc.h's FGC_WORK
_RELEASE = release()
_SHARED = "out must share no memory with rows, nor these with each other; all must be aligned"
_NO_ROWS = "messages must have a row for each message of the code"


@njit
def _renumbered(number, survivors):
    theirs = survivors.copy()
    for at in range(theirs.size):
        if 0 <= theirs[at] < number.size:
            theirs[at] = number[theirs[at]]
    return theirs


@partial(by_types, inline="always")
def _theirs(rule, survivors):
    """Return the survivors, by their numbers in the inner code if it is a `PlacedRule`."""
    if rule.instance_class is PlacedRule:
        return lambda rule, survivors: _renumbered(rule.number, survivors)
    return lambda rule, survivors: survivors


@by_types
def _write_vector(rule, survivors, out, wide):
    """Write the decoding vector, for messages of float64 (`wide`) or float32. Returns a status."""
    of = rule.instance_class
    if of is PlacedRule:
        return lambda rule, survivors, out, wide: _write_vector(
            rule.inner, _theirs(rule, survivors), out, wide
        )
    if of is CyclicRule:
        return lambda rule, survivors, out, wide: short_vector(
            rule.tables, rule.method, survivors, out, rule.longest[wide]
        )[0]
    bind = {CellsPlan: bind_cells, TilingPlan: bind_tiling, EdgesPlan: bind_edges}[of]
    return lambda rule, survivors, out, wide: bind(rule, survivors, out)(survivors.size)


def _mode(coef, rows, out):
    """Return the mode in which rows of these types are combined."""
    whole, part = (isinstance(each.dtype, types.Complex) for each in (rows, out))
    real = {getattr(each.dtype, "underlying_float", each.dtype) for each in (rows, out)}
    if len(real) > 1 or not real <= {types.float32, types.float64}:
        raise TypingError(
            "messages and gradients must be of float32, float64, complex64 or complex128, and both "
            f"of one precision, not of {rows.dtype} and {out.dtype}"
        )
    if whole == part:
        return PACKED if isinstance(coef.dtype, types.Complex) else REAL
    if isinstance(coef.dtype, types.Complex):
        return REAL_PART if whole else EXPAND
    raise TypingError(
        "the coefficients are real: messages and gradients must be of one dtype, not "
        f"{rows.dtype} and {out.dtype}"
    )


@by_types
def _mode_of(coef, rows, out):
    """Return the mode that the dtypes of coefficients, rows and output imply."""
    mode = _mode(coef, rows, out)
    return lambda coef, rows, out: np.int64(mode)


@partial(by_types, inline="always")
def _numbers(survivors):
    """Return the survivors as contiguous int64, for C."""
    if survivors.dtype == types.int64 and survivors.layout == "C":
        return lambda survivors: survivors
    return lambda survivors: survivors.astype(np.int64)


def _array(context, builder, kind, value):
    return context.make_array(kind)(context, builder, value=value)


def _data(context, builder, kind, value):
    return _array(context, builder, kind, value).data


def _field(builder, kind, value, name):
    """Return type and value of a named tuple's field."""
    at = kind.fields.index(name)
    return kind.types[at], builder.extract_value(value, at)


def _called(builder, address, values):
    """Emit a call of the C function at an address. Returns its int as an int64."""
    kind = ir.FunctionType(ir.IntType(32), [each.type for each in values]).as_pointer()
    returned = builder.call(builder.inttoptr(address, kind), values)
    return builder.zext(returned, ir.IntType(64))


def _fail_if(context, builder, condition, error, *text):
    """Emit the raising of an error."""
    with builder.if_then(condition, likely=False):
        context.call_conv.return_user_exc(builder, error, text)


def _addresses(context, builder, kind, value):
    """Emit a check that `JittedCode.c` is of this release. Returns its data."""
    array = _array(context, builder, kind, value)
    [size] = cgutils.unpack_tuple(builder, array.shape)
    last = builder.gep(array.data, [builder.sub(size, ir.IntType(64)(1))])
    other = builder.icmp_signed("!=", builder.load(last), ir.IntType(64)(_RELEASE))
    stale = "this function was compiled for another version of fastgc: delete Numba's cache of it"
    _fail_if(context, builder, other, RuntimeError, stale)
    return array.data


def _emit_plan(context, builder, encoding, mode, rows, out):
    """Emit checks of lengths. Returns an ``fgc_apart`` without coefficients, and the arrays' data.

    `rows` and `out` are pairs of type and value. All is emitted here, because a function of Numba's
    counts a reference to each array that it is given, those of a tuple included: that took twice as
    long as to encode 64 elements.
    """
    word, long = ir.IntType(32), ir.IntType(64)

    fail_if = partial(_fail_if, context, builder)

    def lengths(array, kind, name):
        """Return its number of rows, their length in the mode's units, and bytes between them."""
        shape = cgutils.unpack_tuple(builder, array.shape)
        strides = cgutils.unpack_tuple(builder, array.strides)
        apart = builder.icmp_signed("!=", strides[-1], array.itemsize)
        several = builder.icmp_signed(">", shape[-1], long(1))
        fail_if(builder.and_(apart, several), ValueError, f"{name} must be contiguous")
        reals = 2 if mode in (REAL, PACKED) and isinstance(kind.dtype, types.Complex) else 1
        return shape[0], builder.mul(shape[-1], long(reals)), strides[0]

    (kind_of_rows, rows), (kind_of_out, out) = (
        (kind, _array(context, builder, kind, value)) for kind, value in (rows, out)
    )
    _, many, stride = lengths(rows, kind_of_rows, "rows")
    _, few, _ = lengths(out, kind_of_out, "out")
    message, gradient = (few, many) if encoding else (many, few)
    fits = builder.icmp_signed("==", message, gradient)
    extent = many
    if mode == PACKED:  # of a gradient of odd length, messages may be one longer
        odd = builder.and_(gradient, long(1))
        fits = builder.or_(fits, builder.icmp_signed("==", message, builder.add(gradient, odd)))
        longer = builder.select(builder.icmp_signed(">", many, few), many, few)
        extent = builder.add(longer, builder.and_(longer, long(1)))
    unfit = "a message must be as long as a gradient, or one longer where that is odd"
    fail_if(builder.not_(fits), ValueError, unfit)
    fail_if(builder.icmp_signed("==", stride, long(0)), ValueError, _SHARED)
    # 2 is FGC_CHECK
    null = cgutils.get_null_value(ir.IntType(8).as_pointer())
    values = [word(int(mode)), word(2), null, stride, long(0), null, extent, many, few]
    plan = cgutils.alloca_once(builder, ir.LiteralStructType([each.type for each in values]))
    for at, value in enumerate(values):
        builder.store(value, cgutils.gep_inbounds(builder, plan, 0, at))
    return plan, rows.data, out.data


def _emit_combine(builder, function, planned, coef, numbers, count):
    """Emit a call of C's fgc_combine_apart. Returns its status."""
    plan, rows, out = planned
    for at, pointer in ((2, coef), (5, numbers)):
        address = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        builder.store(address, cgutils.gep_inbounds(builder, plan, 0, at))
    return _called(builder, function, [plan, rows, out, count])


def _fail_on(context, builder, status):
    """Emit the raising of errors for the statuses that are not returned. Returns the status."""
    misplaced, no_memory = (
        builder.icmp_signed("==", status, status.type(int(each)))
        for each in (Status.MISPLACED, Status.NO_MEMORY)
    )
    _fail_if(context, builder, misplaced, ValueError, _SHARED)
    _fail_if(context, builder, no_memory, MemoryError)
    return status


@intrinsic
def _encode_by_c(typingctx, code, message, partials, out):
    """Encode with the addresses in ``code.c``. Returns a status."""
    mode = _mode(code.types[code.fields.index("coefficients")], partials, out)

    def codegen(context, builder, signature, args):
        long, fail_if = ir.IntType(64), partial(_fail_if, context, builder)

        def array(name):
            return _array(context, builder, *_field(builder, code, args[0], name))

        first, at = array("first"), args[1]
        [ends] = cgutils.unpack_tuple(builder, first.shape)
        # as unsigned numbers: those below zero wrap to large ones
        none_such = builder.icmp_unsigned(">=", at, builder.sub(ends, long(1)))
        fail_if(none_such, ValueError, "there is no such message")
        rows = _array(context, builder, partials, args[2])
        [count, _] = cgutils.unpack_tuple(builder, rows.shape)
        _, k = _field(builder, code, args[0], "k")
        few = builder.icmp_signed("<", count, k)
        fail_if(few, ValueError, "partials must have a row for each partition")
        lo = builder.load(builder.gep(first.data, [at]))
        hi = builder.load(builder.gep(first.data, [builder.add(at, long(1))]))
        coef = builder.gep(array("coefficients").data, [lo])
        numbers = builder.gep(array("partitions").data, [lo])
        c = _addresses(context, builder, *_field(builder, code, args[0], "c"))
        planned = _emit_plan(context, builder, True, mode, (partials, args[2]), (out, args[3]))
        function = builder.load(builder.gep(c, [long(_wide(out))]))
        given = planned, coef, numbers, builder.sub(hi, lo)
        return _fail_on(context, builder, _emit_combine(builder, function, *given))

    return types.int64(code, types.int64, partials, out), codegen


@intrinsic
def _combine_by_c(typingctx, c, vector, numbers, messages, out):
    """Combine the messages of these numbers with the addresses in `c`. Returns a status."""
    mode = _mode(vector, messages, out)

    def codegen(context, builder, signature, args):
        c = _addresses(context, builder, signature.args[0], args[0])
        coef, numbers = map(partial(_data, context, builder), signature.args[1:3], args[1:3])
        array = _array(context, builder, signature.args[2], args[2])
        [count] = cgutils.unpack_tuple(builder, array.shape)
        planned = _emit_plan(context, builder, False, mode, (messages, args[3]), (out, args[4]))
        function = builder.load(builder.gep(c, [ir.IntType(64)(_wide(out))]))
        given = planned, coef, numbers, count
        return _fail_on(context, builder, _emit_combine(builder, function, *given))

    return types.int64(c, vector, numbers, messages, out), codegen


@intrinsic
def _decode_by_c(typingctx, code, theirs, numbers, messages, out):
    """Decode a cyclic code's messages of these numbers with the addresses in ``code.c``.

    `theirs` are the numbers in the inner code of a `PlacedRule`, otherwise the same. Returns a
    status.
    """
    mode = _mode(code.types[code.fields.index("coefficients")], messages, out)

    def codegen(context, builder, signature, args):
        word, long = ir.IntType(32), ir.IntType(64)
        fail_if = partial(_fail_if, context, builder)

        def at(pointer, index):
            return builder.gep(pointer, [index])

        kind, rule = _field(builder, code, args[0], "rule")
        if kind.instance_class is PlacedRule:
            kind, rule = _field(builder, kind, rule, "inner")
        longest = _data(context, builder, *_field(builder, kind, rule, "longest"))
        _, method = _field(builder, kind, rule, "method")
        c = _addresses(context, builder, *_field(builder, code, args[0], "c"))
        [n, _] = cgutils.unpack_tuple(builder, _array(context, builder, messages, args[3]).shape)
        first = _array(context, builder, *_field(builder, code, args[0], "first"))
        [ends] = cgutils.unpack_tuple(builder, first.shape)
        fail_if(builder.icmp_signed("!=", builder.add(n, long(1)), ends), ValueError, _NO_ROWS)
        planned = _emit_plan(context, builder, False, mode, (messages, args[3]), (out, args[4]))
        theirs = _data(context, builder, signature.args[1], args[1])
        came = _array(context, builder, signature.args[2], args[2])
        [f] = cgutils.unpack_tuple(builder, came.shape)
        # room for the vector, for the number `where`, and for work space
        whole = builder.add(builder.mul(f, long(16)), builder.mul(n, long(_WORK)))
        room = context.nrt.allocate(builder, builder.add(whole, long(16)))
        fail_if(cgutils.is_null(builder, room), MemoryError)
        vector = builder.bitcast(room, long.as_pointer())
        where = at(vector, builder.mul(f, long(2)))
        values = [at(c, long(3)), theirs, vector, where, at(where, long(1))]
        values += [builder.load(at(longest, long(_wide(out)))), builder.trunc(method, word), f]
        status = cgutils.alloca_once(builder, long)
        found = _called(builder, builder.load(at(c, long(2))), values)
        builder.store(found, status)
        written = [builder.icmp_signed("==", found, long(each)) for each in (0, _IMPRECISE)]
        with builder.if_then(builder.or_(*written)):
            function = builder.load(at(c, long(_wide(out))))
            combined = _emit_combine(builder, function, planned, vector, came.data, f)
            with builder.if_then(builder.icmp_signed("!=", combined, long(0))):
                builder.store(combined, status)
        context.nrt.free(builder, room)
        return _fail_on(context, builder, builder.load(status))

    return types.int64(code, theirs, numbers, messages, out), codegen


def _wide(kind):
    """Return 1 if the reals of an array of this type are float64, else 0."""
    return int(getattr(kind.dtype, "underlying_float", kind.dtype) == types.float64)


@by_types
def _is_wide(array):
    """Return 1 if the array's reals are float64, else 0."""
    wide = _wide(array)
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


@njit
def _combine_rows(coef, rows, numbers, out, encoding):
    """Combine the rows of these numbers. Returns ``OK`` or ``NOT_FINITE``."""
    mode, to, used = _mode_of(coef, rows, out), _real_parts(out), 0
    many, few = _lengths(mode, rows, out, encoding)
    extent = _extent(mode, many, few) if mode == PACKED else many
    chosen, addresses = np.empty(coef.size, np.complex128), np.empty(coef.size, np.uintp)
    first, step = np.uintp(rows.ctypes.data), np.uintp(rows.strides[0])
    for at in range(coef.size):
        if coef[at] != 0:
            chosen[used] = coef[at]
            addresses[used] = first + np.uintp(numbers[at]) * step
            used += 1
    add, check = np.bool_(False), np.bool_(True)
    finite = _combine(mode, addresses, to, used, chosen, to, many, extent, add, check)
    return np.int64(0 if finite else _NOT_FINITE)


@njit
def _encode(first, partitions, coefficients, k, message, partials, out):
    if not 0 <= message < first.size - 1:
        raise ValueError("there is no such message")
    if partials.shape[0] < k:
        raise ValueError("partials must have a row for each partition")
    lo, hi = first[message], first[message + 1]
    _combine_rows(coefficients[lo:hi], partials, partitions[lo:hi], out, True)


@partial(by_types, inline="always")
def _decode(c, vector, numbers, messages, out):
    """Combine the messages of these numbers. Returns ``OK`` or ``NOT_FINITE``."""
    if isinstance(c, types.NoneType):
        return lambda c, vector, numbers, messages, out: _combine_rows(
            vector, messages, numbers, out, False
        )
    return lambda c, vector, numbers, messages, out: _combine_by_c(
        c, vector, numbers, messages, out
    )


def encode(code, message, partials, out):
    """Write a worker's message, as `fastgc.Code.encode` does.

    Numba inlines the call, which therefore cannot be made with ``*arguments``.

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
        If there is no such message, or lengths do not fit; with C also if memory is shared or not
        aligned.
    """
    first, partitions, coefficients = code.first, code.partitions, code.coefficients
    _encode(first, partitions, coefficients, code.k, message, partials, out)


@overload(encode, inline="always")  # passing a tuple of arrays would take longer than encoding
def _encode_impl(code, message, partials, out):
    if isinstance(code.types[code.fields.index("c")], types.NoneType):
        return lambda code, message, partials, out: _encode(
            code.first, code.partitions, code.coefficients, code.k, message, partials, out
        )

    def encode_by_c(code, message, partials, out):
        _encode_by_c(code, message, partials, out)

    return encode_by_c


@njit
def _decode_by_steps(code, survivors, messages, out):
    if messages.shape[0] != code.first.size - 1:
        raise ValueError(_NO_ROWS)
    came = _numbers(survivors)
    vector = np.empty(came.size, code.coefficients.dtype)
    status = _write_vector(code.rule, came, vector, _is_wide(out))
    if status != 0 and status != _IMPRECISE:
        return status
    found = _decode(code.c, vector, came, messages, out)
    return status if found == 0 else found


def decode(code, survivors, messages, out):
    """Write the gradient from the survivors' messages, as `fastgc.Code.decode` does.

    Numba inlines the call, as with `encode`.

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
        If lengths do not fit; with C also if memory is shared or not aligned.
    """
    return _decode_by_steps(code, survivors, messages, out)


@overload(decode, inline="always")
def _decode_impl(code, survivors, messages, out):
    rule, c = (code.types[code.fields.index(name)] for name in ("rule", "c"))
    placed = rule.instance_class is PlacedRule
    inner = rule.types[rule.fields.index("inner")] if placed else rule
    if isinstance(c, types.NoneType) or inner.instance_class is not CyclicRule:
        return lambda code, survivors, messages, out: _decode_by_steps(
            code, survivors, messages, out
        )

    def decode_by_c(code, survivors, messages, out):
        came = _numbers(survivors)
        return _decode_by_c(code, _theirs(code.rule, came), came, messages, out)

    return decode_by_c
