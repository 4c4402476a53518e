"""Calls of C functions, generated from their declarations if they take arrays and numbers alone.

csrc/kernels.def says how parameters of C follow from those of the NumPy function. A call is
generated as Python code and compiled, as `dataclasses` does: a general function would take longer
than many kernels.

The other calls, of rows of messages, plans and tables, are written here. Each plan is a struct in
C, with the fields of the named tuple that NumPy's functions read.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._cffi import ffi, lib
from ..cyclic import Polar, Status
from ..rows import (
    Combinations,
    alike,
    extent_of,
    kind_of,
)

__all__ = [
    "bind_add",
    "bind_apart",
    "bind_arrivals",
    "bind_cells",
    "bind_combine",
    "bind_decoding_vector",
    "bind_edges",
    "bind_encode",
    "bind_functional",
    "bind_polar",
    "bind_square_sum",
    "bind_survivor_mask",
    "bind_tiling",
    "combine",
    "completion",
    "decoding_vectors",
    "draw",
    "lagrange_weights",
]

# The suffix of C functions for each dtype, by NumPy's character.
_KINDS = {"f": "float", "d": "double", "e": "half", "E": "bfloat"}
_DECLARED = re.compile(r"(\w+) (\w+)\((.*)\)", re.DOTALL)
_PARAMETER = re.compile(r"(?:const )?(\w+) (\*?)(\w+)")


@cache
def _declared() -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    """For each function, its return type, and types, stars and names of its parameters."""
    found: dict[str, tuple[str, list[tuple[str, str, str]]]] = {}
    at = 0
    while text := lib.fgc_declared[at]:
        match = _DECLARED.fullmatch(ffi.string(text).decode())
        assert match is not None
        returned, name, parameters = match.groups()
        named = [(kind, star, of.rstrip("_")) for kind, star, of in _PARAMETER.findall(parameters)]
        found[name] = returned, named
        at += 1
    return found


def _value(type_: str, star: str, name: str, oracle: Callable[..., Any], first: str) -> str:
    """The expression that is passed for a parameter of C."""
    annotations = oracle.__annotations__
    if name in annotations:
        value = f"from_buffer({type_}_, {name})" if star else name
        if annotations[name] == "bool":  # C gets 1 for any true value
            return f"not not {name}"
        optional = star and "None" in str(annotations[name])
        return f"NULL if {name} is None else {value}" if optional else value
    if name == "complex":
        return f"{first}.dtype.char in 'FD'"
    of, _, what = (f"{first}_len" if name == "len" else name).rpartition("_")
    if of not in annotations or what not in ("len", "size", "ndim"):
        raise TypeError(f"{oracle.__name__}: nothing is known of C's parameter {name}")
    return f"len({of})" if what == "len" else f"{of}.{what}"


def made(oracle: Callable[..., Any]) -> Callable[..., Any] | None:
    """Make the call of the C function with the oracle's name; None if there is none."""
    name, declared = oracle.__name__, _declared()
    kinds = {char: kind for char, kind in _KINDS.items() if f"{name}_{kind}" in declared}
    if not kinds and name not in declared:
        return None
    returned, parameters = declared[f"{name}_{next(iter(kinds.values()))}" if kinds else name]
    first = parameters[0][2]
    taken = ", ".join(oracle.__code__.co_varnames[: oracle.__code__.co_argcount])
    scope: dict[str, Any] = {"from_buffer": ffi.from_buffer, "NULL": ffi.NULL}
    scope |= {f"{type_}_": ffi.typeof(f"{type_}[]") for type_, star, _ in parameters if star}
    if kinds:
        by_dtype = {}
        for char, kind in kinds.items():
            real = declared[f"{name}_{kind}"][1][0][0]
            by_dtype[char] = getattr(lib, f"fgc_{name}_{kind}"), ffi.typeof(f"{real}[]")
        scope["by_dtype"] = by_dtype
        scope["oracle"] = oracle
        lines = [
            f"try: function, {parameters[0][0]}_ = by_dtype[{first}.dtype.char]",
            f"except KeyError: return oracle({taken})",
        ]
    else:
        scope["function"] = getattr(lib, f"fgc_{name}")
        lines = []
    values = [_value(*parameter, oracle, first) for parameter in parameters]
    call, answer = f"function({', '.join(values)})", oracle.__annotations__["return"]
    if returned != "fgc_status":
        lines.append(call if answer == "None" else f"return {call}")
    elif answer == "None":
        lines.append(f"if {call}: raise MemoryError")
    else:
        scope["no_memory"] = lib.FGC_NO_MEMORY
        lines += [
            f"status = {call}",
            "if status == no_memory: raise MemoryError",
            "return not status",
        ]
    exec(f"def {name}({taken}):\n    " + "\n    ".join(lines), scope)
    made: Callable[..., Any] = scope[name]
    made.__defaults__, made.__doc__ = oracle.__defaults__, oracle.__doc__
    return made


# ------------------------------------------------------------------------ structs

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


# -------------------------------------------------------------- linear combinations of long vectors

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


def _layout():
    """Return the bytes of an array before its ``fgc_array``; 0 if they lie otherwise."""
    probe = np.empty((3, 4))[:, 1:]
    if sys.implementation.name != "cpython":
        return 0
    head = object.__basicsize__ - ffi.sizeof("void *")  # an object's last field is its type
    seen = ffi.cast("fgc_array *", id(probe) + head)
    numbers = (seen.type, seen.data, seen.dtype, seen.base)
    same = (id(type(probe)), probe.ctypes.data, id(probe.dtype), id(probe.base))
    known = (
        tuple(int(ffi.cast("uintptr_t", number)) for number in numbers) == same
        and seen.dimensions == probe.ndim
        and (*seen.shape[0:2], *seen.strides[0:2]) == (*probe.shape, *probe.strides)
        and seen.flags == probe.flags.num
    )
    return head if known else 0


_HEAD = _layout()


def bind_apart(mode, coef, length, dtype, size, check=False):
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
    given = ffi.new("fgc_apart *", fields | {"head": _HEAD})
    pointed_to[stack] = pointed_to[anywhere] = pointed_to[given] = fields
    kind, function, _ = _apart[kind_of(dtype)]
    real, pointers, ids = ffi.typeof(kind), ffi.typeof("char *[]"), ffi.typeof("uintptr_t[]")
    buffer, new, misplaced = ffi.from_buffer, ffi.new, int(Status.MISPLACED)

    def stacked(rows, out, count):
        return function(stack, buffer(rows), buffer(real, out), count)

    def separate(rows, out, count):
        if _HEAD:  # an array of objects holds their addresses; C reads the rest from the objects
            table = np.fromiter(rows, object, count)
            return function(given, buffer(ids, table), buffer(real, out), count)
        if not alike(rows):
            return misplaced
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

    return Combinations(stacked, separate, listed)


def bind_add(mode, coef, weights, length, dtype, out, energy):
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


# --------------------------------------------------------------------------- messages as they come

_kinds = {  # C's constant, and the bytes of a real
    "float": (lib.FGC_FLOAT, 4),
    "double": (lib.FGC_DOUBLE, 8),
    "half": (lib.FGC_HALF, 2),
    "bfloat": (lib.FGC_BFLOAT, 2),
}


def bind_arrivals(rows, arrays, check):
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

    return arrive


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


_decode = _functions("decode")


def _decoder(given, mode, rows, out, check, **method):
    """Bind a vector and the combination by it to one function of C, which `given` describes."""
    kind, function = _decode[rows.kind]
    struct = struct_of(
        "fgc_bound",
        **given,
        **method,
        mode=mode,
        table=rows.c or _addresses(rows),
        extent=extent_of(mode, rows.length, out.size),
        in_len=rows.length,
        out_len=out.size,
        flags=2 * check,  # FGC_CHECK
        out=ffi.from_buffer(kind, out, require_writable=True),
    )
    decode = partial(function, struct)
    vars(decode)["rows"] = rows
    return decode


def _bound(function, rule, struct, work, survivors, out):
    """Bind a function of C to a plan and to `work` bytes of work space."""
    given = {
        "rule": rule,
        "plan": struct,
        "survivors": ffi.from_buffer("int64_t[]", survivors),
        "vector": ffi.from_buffer("double[]", out, require_writable=True),
        "work": ffi.from_buffer(np.empty(work, np.uint8)),
    }
    run = partial(function, struct, given["survivors"], given["vector"], given["work"])
    vars(run)["decoder"] = partial(_decoder, given)
    return run


def bind_cells(plan, survivors, out):
    messages, cells = plan.cell.size, plan.weight.size
    struct = struct_of("fgc_cells", **plan._asdict(), messages=messages, cells=cells)
    return _bound(lib.fgc_cells_vector, lib.FGC_CELLS, struct, messages + cells, survivors, out)


def bind_tiling(plan, survivors, out):
    points = plan.first.size - 1
    struct = struct_of("fgc_tiling", **plan._asdict(), points=points)
    work = 8 * (plan.messages + 2 * points)
    return _bound(lib.fgc_tiling_vector, lib.FGC_TILING, struct, work, survivors, out)


def bind_edges(plan, survivors, out):
    messages, vertices = len(plan.ends), plan.weight.size
    struct = struct_of("fgc_edges", **plan._asdict(), messages=messages, vertices=vertices)
    work = 8 * (8 * messages + 11 * vertices + 3)
    return _bound(lib.fgc_edges_vector, lib.FGC_EDGES, struct, work, survivors, out)


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
    given = {"rule": lib.FGC_BLOCKS, "plan": struct, "survivors": survivors_, "vector": out_}
    given |= {"where": where, "work": work_space(plan), "longest": longest}
    # Unlike a function, a partial adds no Python frame to the call.
    decode = partial(
        lib.fgc_decoding_vector, struct, survivors_, out_, where, given["work"], longest
    )
    vars(decode)["decoder"] = partial(_decoder, given)
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
