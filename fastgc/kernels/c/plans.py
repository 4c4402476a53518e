"""Calls of C that take more than arrays and numbers: plans, tables, and rows of messages.

Each plan is a struct in C, with the fields of the named tuple that NumPy's functions read.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .. import numpy as plain
from .._cffi import ffi, lib
from ..cyclic import CyclicPlan, Polar, Status, StreamCalls
from ..jitted import CyclicRule, PlacedRule, release
from ..numpy.cover import CellsPlan, TilingPlan
from ..rows import INTEGER, address

__all__ = [
    "addresses_in_c",
    "bind_arrivals",
    "bind_cells",
    "bind_decoding_vector",
    "bind_edges",
    "bind_functional",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "bind_tiling",
    "completion",
    "decoding_vectors",
    "draw",
    "lagrange_weights",
]

_C_TYPES = {"d": "double[]", "?": "unsigned char[]", "B": "unsigned char[]", "L": "uintptr_t[]"}
pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def struct_of(name: str, **fields: Any) -> Any:
    """Make a struct from numbers, pointers and arrays. It keeps the arrays alive."""
    values = {
        field: ffi.from_buffer(_C_TYPES.get(value.dtype.char, "int64_t[]"), value)
        if isinstance(value, np.ndarray)
        else value
        for field, value in fields.items()
    }
    struct = ffi.new(f"{name} *", values)
    pointed_to[struct] = values
    return struct


# -------------------------------------------------------------------- what compiled functions call

_CALLED = "fgc_combine_apart_float", "fgc_combine_apart_double", "fgc_decoding_vector"


def addresses_in_c(rule):
    if ffi.sizeof("uintptr_t") != 8:  # then an array of int64 cannot stand for an fgc_cyclic
        return None
    found = [int(ffi.cast("uintptr_t", ffi.addressof(lib, name))) for name in _CALLED]
    inner = rule.inner if isinstance(rule, PlacedRule) else rule
    if isinstance(inner, CyclicRule):  # in the order of fgc_cyclic's fields
        tables = inner.tables
        found += [int(tables.start[-1]), tables.q.size, *map(address, tables)]
    return np.array([*found, release()], np.int64)


# --------------------------------------------------------------------------- messages as they come

_kinds = {  # C's constant, and the bytes of a real
    "float": (lib.FGC_FLOAT, 4),
    "double": (lib.FGC_DOUBLE, 8),
    "half": (lib.FGC_HALF, 2),
    "bfloat": (lib.FGC_BFLOAT, 2),
}


def bind_arrivals(rows, arrays, check):
    if rows.kind == INTEGER:
        return plain.bind_arrivals(rows, arrays, check)
    kind, size = _kinds[rows.kind]
    struct = struct_of(
        "fgc_arrivals",
        **arrays._asdict(),
        addresses=ffi.from_buffer("uintptr_t[]", rows.addresses),
        messages=arrays.numbers.size,
        length=rows.nbytes // size,  # in reals: a complex number counts as two
        kind=kind,
        check=check,
    )
    take, buffer = lib.fgc_arrive, ffi.from_buffer

    def arrive(number, row, energy):
        return take(struct, number, buffer(row), energy)

    return arrive, struct


# --------------------------------------------------------------- delays, and when messages suffice


def draw(delays, first, wait, whole):
    fields = delays._asdict() | {
        "key": int(delays.key),
        "workers": wait.shape[1],
        "given": delays.given if len(delays.given) else ffi.NULL,
        "powers": bool(delays.power.any()),
    }
    lib.fgc_draw(
        struct_of("fgc_delays", **fields),
        first,
        len(wait),
        ffi.from_buffer("double[]", wait),
        ffi.from_buffer("double[]", whole),
    )


def completion(plan, delay, work, late, receive, overhead, interrupted, out):
    fields = plan._asdict() | {
        "workers": plan.loads.size,
        "groups": plan.need.size,
        "width": plan.spare.shape[1],
    }
    status = lib.fgc_completion(
        struct_of("fgc_completion_plan", **fields),
        ffi.from_buffer("double[]", delay),
        ffi.from_buffer("double[]", work),
        ffi.from_buffer("double[]", late),
        len(work),
        receive,
        overhead,
        interrupted,
        ffi.from_buffer("double[]", out.time),
        *(ffi.from_buffer("int64_t[]", counts) for counts in out[1:]),
    )
    if status:
        raise MemoryError


# -------------------------------------------------------------------------------------- plain sums


def _bound(function, struct, survivors, out, work):
    """Return ``function(struct, survivors, out, work, f)`` as a function of f."""
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return partial(function, struct, survivors_, out_, ffi.from_buffer(work))


def bind_cells(plan, survivors, out):
    _, struct, _, work = rule_struct(plan)
    return _bound(lib.fgc_cells_vector, struct, survivors, out, np.empty(work, np.uint8))


def bind_tiling(plan, survivors, out):
    _, struct, _, work = rule_struct(plan)
    return _bound(lib.fgc_tiling_vector, struct, survivors, out, np.empty(work, np.uint8))


def bind_edges(plan, survivors, out):
    _, struct, _, work = rule_struct(plan)
    return _bound(lib.fgc_edges_vector, struct, survivors, out, np.empty(work, np.uint8))


def rule_struct(rule):
    """Return C's rule, its plan, the messages of a round, and the bytes of work space."""
    fields = rule._asdict()
    if isinstance(rule, CyclicRule):
        plan = CyclicPlan(rule.tables)
        return lib.FGC_BLOCKS, plan_struct(plan), plan.workers, plan.workers * lib.FGC_WORK
    if isinstance(rule, CellsPlan):
        messages, cells = rule.cell.size, rule.weight.size
        struct = struct_of("fgc_cells", **fields, messages=messages, cells=cells)
        return lib.FGC_CELLS, struct, messages, messages + cells
    if isinstance(rule, TilingPlan):
        points = rule.first.size - 1
        struct = struct_of("fgc_tiling", **fields, points=points)
        return lib.FGC_TILING, struct, rule.messages, 8 * (rule.messages + 2 * points)
    messages, vertices = len(rule.ends), rule.weight.size
    struct = struct_of("fgc_edges", **fields, messages=messages, vertices=vertices)
    return lib.FGC_EDGES, struct, messages, 8 * (8 * messages + 11 * vertices + 3)


# ---------------------------------------------------------------------------------- Lagrange bases

_NO_MEMORY = Status.NO_MEMORY
_double_pointer = ffi.typeof("double[]")  # parsed once
_index_pointer = ffi.typeof("int64_t[]")
_index = ffi.typeof("int64_t *")


def lagrange_weights(nodes, scaled, weights, exponent):
    shift = ffi.new(_index)
    status = lib.fgc_lagrange_weights(
        ffi.from_buffer(_double_pointer, nodes),
        nodes.size,
        nodes.dtype.char == "D",
        ffi.from_buffer(_double_pointer, scaled),
        ffi.from_buffer(_double_pointer, weights),
        ffi.NULL if exponent is None else ffi.from_buffer(_index_pointer, exponent),
        shift,
    )
    if status == _NO_MEMORY:
        raise MemoryError
    return None if status else shift[0]


def bind_functional(nodes, points, chosen, out):
    return partial(
        lib.fgc_lagrange_functional,
        ffi.from_buffer(_double_pointer, nodes),
        nodes.size,
        ffi.from_buffer(_double_pointer, points),
        points.size,
        nodes.dtype.char == "D",
        ffi.from_buffer(_index_pointer, chosen),
        ffi.from_buffer(_double_pointer, out, require_writable=True),
    )


# ------------------------------------------------------------------------------------ cyclic codes


def plan_struct(plan):
    """Return the plan's tables as C's struct, which is made once."""
    if plan.c is None:
        sizes = {"workers": plan.workers, "blocks": len(plan.tables.q)}
        plan.c = struct_of("fgc_cyclic", **plan.tables._asdict(), **sizes)
    return plan.c


def work_space(plan):
    """Allocate work space for decoding vectors."""
    return ffi.from_buffer(np.empty(plan.workers * lib.FGC_WORK, dtype=np.uint8))


def bind_decoding_vector(plan, survivors, out, longest=math.inf):
    struct = plan_struct(plan)
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    where = ffi.new("int64_t *")
    # Unlike a function, a partial adds no Python frame to the call.
    decode = partial(
        lib.fgc_decoding_vector, struct, survivors_, out_, where, work_space(plan), longest
    )
    return decode, where


def bind_polar(plan, survivors, present, size, out):
    struct, where = plan_struct(plan), ffi.new("int64_t *")
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    present_ = ffi.from_buffer("unsigned char[]", present, require_writable=True)
    size_ = ffi.from_buffer("double[]", size)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return Polar(
        partial(lib.fgc_mark, struct, survivors_, present_, where),
        partial(
            lib.fgc_polar_vector, struct, survivors_, present_, size_, out_, where, work_space(plan)
        ),
        where,
    )


def bind_stream(plan, stream):
    structs = plan_struct(plan), struct_of("fgc_stream", **stream._asdict())
    where, work = ffi.new("int64_t *"), work_space(plan)

    def vector(survivors, out):
        survivors_ = ffi.from_buffer("int64_t[]", survivors)
        out_ = ffi.from_buffer("double[]", out, require_writable=True)
        return lib.fgc_stream_vector(*structs, survivors_, out_, where, work, survivors.size)

    return StreamCalls(
        partial(lib.fgc_stream_rebuild, *structs, work),
        partial(lib.fgc_stream_leave, *structs),
        partial(lib.fgc_stream_join, *structs),
        vector,
        where,
    )


def decoding_vectors(plan, masks, method, out, where, longest=math.inf):
    status = lib.fgc_decoding_vectors(
        plan_struct(plan),
        ffi.from_buffer("unsigned char[]", masks, require_writable=True),
        ffi.from_buffer("double[]", out, require_writable=True),
        ffi.from_buffer("int64_t[]", where, require_writable=True),
        longest,
        method,
        len(masks),
    )
    if status:
        raise MemoryError


def bind_survivor_mask(n, survivors, bits):
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    bits_ = ffi.from_buffer("uint8_t[]", bits, require_writable=True)
    return partial(lib.fgc_survivor_mask, n, survivors_, bits_)
