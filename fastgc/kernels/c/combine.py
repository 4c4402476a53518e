"""Linear combinations of long vectors, and their norms."""

from __future__ import annotations

import sys
from functools import lru_cache, partial

import numpy as np

from .. import numpy as plain
from .._cffi import ffi, lib
from ..cyclic import Status
from ..jitted import CyclicRule, DecodeObjects, EncodeObjects, PlacedRule
from ..rows import (
    INTEGER,
    PACKED,
    REAL,
    Combinations,
    alike,
    extent_of,
    extent_of_pairs,
    kind_of,
)
from .plans import pointed_to, rule_struct, struct_of

__all__ = [
    "bind_add",
    "bind_apart",
    "bind_combine",
    "bind_decode",
    "bind_encode",
    "bind_encode_objects",
    "bind_square_sum",
    "combine",
    "combine_pairs",
]

# The type of outputs, by the kind of rows.
_WRITTEN = {"float": "float[]", "double": "double[]", "half": "float[]", "bfloat": "float[]"}


def _functions(*names):
    """Return, by the kind of rows, the type of outputs and the functions of these names."""
    return {
        kind: (written, *(getattr(lib, f"fgc_{name}_{kind}") for name in names))
        for kind, written in _WRITTEN.items()
    }


_combine = _functions("combine", "combine_chosen")
_encode = _functions("encode")
_apart = _functions("combine_apart", "add_apart")


def combine(mode, rows, coef, out, accumulate=False, check=False):
    if rows.kind == INTEGER:
        return plain.combine(mode, rows, coef, out, accumulate, check)
    kind, function, _ = _combine[rows.kind]
    return not function(
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("double[]", coef),
        len(rows.arrays),
        extent_of(mode, rows.length, out.size),
        rows.length,
        out.size,
        accumulate + 2 * check,  # FGC_ACCUMULATE, FGC_CHECK
        ffi.from_buffer(kind, out),
    )


def bind_combine(mode, rows, numbers, coef, out, accumulate=False, check=False):
    if rows.kind == INTEGER:
        return plain.bind_combine(mode, rows, numbers, coef, out, accumulate, check)
    kind, _, function = _combine[rows.kind]
    call = partial(
        function,
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("int64_t[]", numbers),
        ffi.from_buffer("double[]", coef),
        extent_of(mode, rows.length, out.size),
        rows.length,
        out.size,
        accumulate + 2 * check,  # FGC_ACCUMULATE, FGC_CHECK
        ffi.from_buffer(kind, out, require_writable=True),
    )
    vars(call)["rows"] = rows  # the rows must live as long as the call, which has their addresses
    return call


def bind_encode(mode, rows, coef, weights, out, accumulate=False):
    if rows.kind == INTEGER:
        return plain.bind_encode(mode, rows, coef, weights, out, accumulate)
    kind, function = _encode[rows.kind]
    call = partial(
        function,
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("double[]", coef),
        ffi.from_buffer("double[]", weights),
        coef.size,
        extent_of(mode, rows.length, out.size),
        rows.length,
        out.size,
        int(accumulate),  # FGC_ACCUMULATE
        ffi.from_buffer(kind, out, require_writable=True),
    )
    vars(call)["rows"] = rows
    return call


def _addresses(rows):
    rows.c = ffi.from_buffer("uintptr_t[]", rows.addresses)
    return rows.c


def bind_square_sum(x):
    kind = kind_of(x.dtype)
    read = "uint16_t[]" if x.itemsize == 2 else f"{kind}[]"
    return partial(getattr(lib, f"fgc_square_sum_{kind}"), ffi.from_buffer(read, x), x.size)


def combine_pairs(rows, coef, out, *, paired, rounded=False, accumulate=False, check=False):
    return not lib.fgc_combine_pairs(
        rows.c or _addresses(rows),
        ffi.from_buffer("double[]", coef),
        len(rows.arrays),
        extent_of_pairs(rows, out, paired, rounded),
        rows.length // (2 if paired else 1),
        out.size // (1 if rounded else 2),
        accumulate + 2 * check + 4 * paired + 8 * rounded,  # FGC_ACCUMULATE, ... FGC_ROUNDED
        ffi.from_buffer("double[]", out),
    )


def _known_layout():
    """Return whether array objects have the layout of csrc/fastgc.h, as on CPython so far.

    The probe is a view that is not contiguous: base, strides and flags are not the usual ones.
    """
    probe = np.empty((3, 4))[:, 1:]
    if sys.implementation.name != "cpython":
        return False
    seen = ffi.cast("fgc_array *", id(probe))
    numbers = (seen.type, seen.data, seen.dtype, seen.base)
    same = (id(type(probe)), probe.ctypes.data, id(probe.dtype), id(probe.base))
    return (
        tuple(int(ffi.cast("uintptr_t", number)) for number in numbers) == same
        and seen.dimensions == probe.ndim
        and (*seen.shape[0:2], *seen.strides[0:2]) == (*probe.shape, *probe.strides)
        and seen.flags == probe.flags.num
    )


_KNOWN_LAYOUT = _known_layout()


def bind_apart(mode, coef, length, dtype, size, check=False):
    if kind_of(dtype) == INTEGER:
        return plain.bind_apart(mode, coef, length, dtype, size, check)
    fields = {
        "mode": mode,
        "flags": 2 * check,  # FGC_CHECK
        "coef": ffi.from_buffer("double[]", coef),
        "extent": extent_of(mode, length, size),
        "in_len": length,
        "out_len": size,
    }
    stack = ffi.new("fgc_apart *", fields | {"stride": length * dtype.itemsize})
    anywhere = ffi.new("fgc_apart *", fields)
    given = ffi.new("fgc_apart *", fields | {"objects": True})
    pointed_to[stack] = pointed_to[anywhere] = pointed_to[given] = fields
    kind, function, _ = _apart[kind_of(dtype)]
    real, pointers, ids = ffi.typeof(kind), ffi.typeof("char *[]"), ffi.typeof("uintptr_t[]")
    buffer, new, misplaced = ffi.from_buffer, ffi.new, int(Status.MISPLACED)

    def stacked(rows, out, count):
        return function(stack, buffer(rows), buffer(real, out), count)

    def separate(rows, out, count):
        try:
            addresses = new(pointers, list(map(buffer, rows)))
        except ValueError:  # some row is not contiguous
            return misplaced
        return function(anywhere, addresses, buffer(real, out), count)

    def listed(rows, out, count):
        addresses = rows.c
        if addresses is None:
            addresses = rows.c = buffer(ids, rows.addresses)
        return function(anywhere, addresses, buffer(real, out), count)

    def objects(arrays, out, count):
        if not _KNOWN_LAYOUT:
            return separate(arrays, out, count) if alike(arrays) else misplaced
        # An array of objects holds their addresses. C reads the rest from the objects: Python would
        # take as long for this as C takes to combine the rows.
        table = np.fromiter(arrays, object, count)
        return function(given, buffer(ids, table), buffer(real, out), count)

    return Combinations(stacked, separate, listed, objects)


def bind_add(mode, coef, weights, length, dtype, out, energy):
    if kind_of(dtype) == INTEGER:
        return plain.bind_add(mode, coef, weights, length, dtype, out, energy)
    struct = struct_of(
        "fgc_apart",
        mode=mode,
        coef=ffi.from_buffer("double[]", coef),
        extent=extent_of(mode, length, out.size),
        in_len=length,
        out_len=out.size,
    )
    kind, _, function = _apart[kind_of(dtype)]
    weights_, energy_ = ffi.from_buffer("double[]", weights), ffi.from_buffer("double[]", energy)
    out_, buffer = ffi.from_buffer(kind, out, require_writable=True), ffi.from_buffer

    def add(row, at, accumulate):
        return function(struct, weights_, energy_, out_, buffer(row), at, accumulate)

    return add


@lru_cache(maxsize=16)
def _known(dtypes):
    """Return an ``fgc_known`` of these dtypes, and `DecodeObjects.dtypes`."""
    table = ffi.new("fgc_dtypes[]", len(dtypes))
    for struct, each in zip(table, dtypes, strict=True):
        doubled = each.mode in (REAL, PACKED) and each.rows.kind == "c"
        struct.rows, struct.out = _pointer(each.rows), _pointer(each.out)
        struct.mode, struct.doubles = each.mode, kind_of(each.rows) == "double"
        struct.bytes, struct.reals = each.rows.itemsize, 2 if doubled else 1
        struct.padded = each.padded
    pointed_to[table] = dtypes
    known = struct_of("fgc_known", type=_pointer(np.ndarray), dtypes=table, count=len(dtypes))
    return known, {each.rows: each for each in dtypes}


def _pointer(thing):
    return ffi.cast("void *", id(thing))


def bind_decode(rule, dtypes):
    if not _KNOWN_LAYOUT or isinstance(rule, PlacedRule):
        return None
    cyclic = {}
    if isinstance(rule, CyclicRule):
        longest = rule.longest.tolist()
        cyclic = {"method": rule.method, "longest": longest, "factors": rule.factors}
    vectors = np.dtype(np.complex128 if cyclic else np.float64)
    known, by_rows = _known(dtypes)
    of, plan, messages, work = rule_struct(rule)
    struct = struct_of(
        "fgc_decoder",
        known=known,
        numbers=_pointer(np.dtype(np.int64)),
        vectors=_pointer(vectors),
        messages=messages,
        reals=2 if cyclic else 1,
        work=work,
        rule=of,
        plan=ffi.cast("void *", plan),
        **cyclic,
    )
    pointed_to[struct]["of"] = plan
    decode, vector = (
        partial(call, struct) for call in (lib.fgc_decode_objects, lib.fgc_vector_of_object)
    )
    return DecodeObjects(decode, vector, vectors, by_rows)


def bind_encode_objects(coef, dtypes):
    if not _KNOWN_LAYOUT:
        return None
    known, by_rows = _known(dtypes)
    coef_ = ffi.from_buffer("double[]", coef)
    struct = struct_of("fgc_encoder", known=known, coef=coef_, count=len(coef))
    return EncodeObjects(partial(lib.fgc_encode_objects, struct), by_rows)
