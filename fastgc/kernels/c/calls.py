"""Calls of C functions, generated from their declarations if they take arrays and numbers alone.

csrc/kernels.def says what a call takes and returns. It is generated as Python code and compiled, as
`dataclasses` does: a general function would take longer than many kernels.

The other calls, of rows of messages, plans and tables, are written here. Each plan is a struct in
C, with the fields of a named tuple. Nothing is checked: these are for `fastgc.kernels.unchecked`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..._base.arrays import Array, Bools, Complexes, Floats, Ints
from .._cffi import ffi, lib
from ..cyclic import CyclicPlan, Decode, Polar, Status, Where
from ..rows import (
    CombineApart,
    CombineRows,
    Rows,
    address,
    kind_of,
)

if TYPE_CHECKING:
    from ..cover import CellsPlan, EdgesPlan, TilingPlan
    from ..rounds import Completion, CompletionPlan, DelayPlan
    from ..rows import ArrivalArrays, Projecting

__all__ = [
    "bind_add",
    "bind_apart",
    "bind_arrivals",
    "bind_cells",
    "bind_combine",
    "bind_decode",
    "bind_decoding_vector",
    "bind_deviation",
    "bind_edges",
    "bind_functional",
    "bind_polar",
    "bind_square_sum",
    "bind_survivor_mask",
    "bind_taken",
    "bind_tally",
    "bind_tiling",
    "bind_trust",
    "combine",
    "completion",
    "decoding_vectors",
    "draw",
    "lagrange_weights",
    "struct_of",
    "take_masks",
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


def made(name: str) -> Callable[..., Any] | None:
    """Make the call of the kernel of this name in csrc/kernels.def; None if there is none."""
    declared = _declared()
    kinds = {char: kind for char, kind in _KINDS.items() if f"{name}_{kind}" in declared}
    if not kinds and name not in declared:
        return None
    returned, parameters = declared[f"{name}_{next(iter(kinds.values()))}" if kinds else name]
    first = parameters[0][2]
    own = {of for _, _, of in parameters}
    taken, values = [], []
    scope: dict[str, Any] = {"from_buffer": ffi.from_buffer, "NULL": ffi.NULL}
    scope |= {f"{type_}_": ffi.typeof(f"{type_}[]") for type_, star, _ in parameters if star}
    for type_, star, of in parameters:
        array, _, what = (f"{first}_len" if of == "len" else of).rpartition("_")
        if of == "complex":
            values.append(f"{first}.dtype.char in 'FD'")
        elif array in own and what in ("len", "size", "ndim"):
            values.append(f"len({array})" if what == "len" else f"{array}.{what}")
        else:
            taken.append(of)
            pointed = star and type_ != "fgc_inspection"  # which `struct_of` makes
            array_ = f"NULL if {of} is None else from_buffer({type_}_, {of})"
            values.append(array_ if pointed else of)
    lines = []
    if kinds:
        by_dtype = {}
        for char, kind in kinds.items():
            real = declared[f"{name}_{kind}"][1][0][0]
            by_dtype[char] = getattr(lib, f"fgc_{name}_{kind}"), ffi.typeof(f"{real}[]")
        scope["by_dtype"] = by_dtype
        lines.append(f"function, {parameters[0][0]}_ = by_dtype[{first}.dtype.char]")
    else:
        scope["function"] = getattr(lib, f"fgc_{name}")
    call = f"function({', '.join(values)})"
    if returned == "fgc_status":
        scope["no_memory"] = lib.FGC_NO_MEMORY
        lines += [
            f"status = {call}",
            "if status == no_memory: raise MemoryError",
            "return not status",
        ]
    else:
        lines.append(f"return {call}")
    exec(f"def {name}({', '.join(taken)}):\n    " + "\n    ".join(lines), scope)
    found: Callable[..., Any] = scope[name]
    return found


# ------------------------------------------------------------------------ structs

_C_TYPES = {
    "d": "double[]",
    "D": "double[]",
    "?": "unsigned char[]",
    "B": "unsigned char[]",
    "L": "uintptr_t[]",
}
pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _pointer(array):
    return ffi.from_buffer(_C_TYPES.get(array.dtype.char, "int64_t[]"), array)


def struct_of(name: str, **fields: Any) -> Any:
    """Make a struct from numbers, pointers and arrays; None is NULL. It keeps the arrays alive."""
    values = {
        field: _pointer(value) if isinstance(value, np.ndarray) else value
        for field, value in fields.items()
        if value is not None
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


_sums = _functions("combine", "add")
_apart = _functions("combine_objects")


def combine(
    mode: int,
    rows: Rows,
    coef: Array,
    out: Array,
    accumulate: bool = False,
    check: bool = False,
    used: bool = False,
    squares: Floats | None = None,
) -> bool:
    """Call C for `fastgc.kernels.combine`.

    If `used`, rows whose coefficient is 0 are not read. `squares` as in `bind_apart`.
    """
    kind, function, _ = _sums[rows.kind]
    coefficients = ffi.from_buffer("double[]", coef)
    flags = accumulate + 2 * check + 4 * used  # FGC_ACCUMULATE, FGC_CHECK, FGC_USED
    plan: list[Any] = [(mode, flags, coefficients, rows.length, out.size)]  # a struct on C's stack
    if squares is not None:
        plan = [(*plan[0], ffi.NULL, ffi.from_buffer("double[]", squares))]
    status = function(
        plan, rows.c or _addresses(rows), ffi.from_buffer(kind, out), len(rows.arrays)
    )
    if status and status == lib.FGC_NO_MEMORY:
        raise MemoryError
    return not status


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: Ints,
    coef: Array,
    out: Array,
    accumulate: bool = False,
    check: bool = False,
) -> CombineRows:
    """Prepare ``out = sum_r coef[r] * rows[numbers[r]]``, or ``out +=``, on fixed buffers.

    Returns a function ``combine(count) -> status`` that reads ``numbers[:count]`` and
    ``coef[:count]``. Rows whose coefficient is 0 are not read. The status is `Status.NOT_FINITE` if
    `combine` would return False. Pointers are taken once, here; the function keeps their arrays
    alive.

    Parameters
    ----------
    mode, rows, coef, out, accumulate, check
        As in `combine`.
    numbers : (capacity,) int64 array
        Numbers of rows; as long as `coef`.
    """
    kind, function, _ = _sums[rows.kind]
    flags = accumulate + 2 * check + lib.FGC_USED  # FGC_ACCUMULATE, FGC_CHECK
    plan = _plan(mode, coef, rows.length, out.size, flags, numbers=numbers)
    written = ffi.from_buffer(kind, out, require_writable=True)
    call = partial(function, plan, rows.c or _addresses(rows), written)
    vars(call)["rows"] = rows  # the rows must live as long as the call, which has their addresses
    return call


def _plan(mode, coef, length, size, flags, **more):
    """Describe a combination of rows of `length` numbers to `size` numbers."""
    fields = {"mode": mode, "flags": flags, "coef": coef, "in_len": length, "out_len": size}
    return struct_of("fgc_combination", **fields, **more)


def _addresses(rows):
    rows.c = ffi.from_buffer("uintptr_t[]", rows.addresses)
    return rows.c


def bind_square_sum(x: Array) -> Callable[[], float]:
    """Prepare `square_sum` of a contiguous vector of float32 or float64, read at each call."""
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
    table = ffi.cast("uintptr_t *", id(numbers) + _TUPLE)
    return head if known and tuple(table[0:4]) == tuple(map(id, numbers)) else 0


_TUPLE = tuple.__basicsize__  # bytes of a tuple before the addresses of what it holds
_HEAD = _layout()


def bind_apart(
    mode: int,
    coef: Array,
    row: tuple[np.dtype[Any], int],
    out: tuple[np.dtype[Any], int],
    check: bool = False,
    squares: Floats | None = None,
) -> CombineApart:
    """Prepare ``out = sum_r coef[r] * rows[r]`` for rows and an `out` that each call is given.

    Returns a function ``combine(rows, out, count) -> status``. Its rows are those of a matrix, the
    first `count` of `Rows`, or a sequence of `count` objects, which are arrays or refused. They
    fit otherwise. Rows whose coefficient is 0 are not read. The status is

    - ``Status.OK``;
    - ``MISPLACED`` if a row is no array like the first one, not aligned, not contiguous, or shares
      memory with `out`, or if `out` is no contiguous, aligned and writable array, or ``NO_MEMORY``;
      nothing is written then;
    - ``NOT_FINITE`` if `combine` would return False.

    Parameters
    ----------
    mode, check
        As in `combine`.
    coef : (capacity,) float64 or complex128 array
        As in `combine`; each call reads the first `count` of them.
    row, out : dtype and elements
        A complex number stands for two reals where `combine` takes reals.
    squares : (capacity + 1,) float64 array, optional
        Written in the same pass: the sum of squares of each row, NaN if it is not read, and then
        that of `out`. This takes 1.0 to 1.9 times the time for float64, 1.5 to 3 for float32.
    """
    misplaced, array = int(Status.MISPLACED), np.ndarray
    if not _HEAD:
        return lambda rows, out, count: misplaced
    (dtype, length), (made, size) = row, out
    reals = 1 + (mode in (lib.FGC_REAL, lib.FGC_PACKED) and "c" in dtype.kind + made.kind)
    flags = 2 * check + lib.FGC_USED + lib.FGC_APART  # FGC_CHECK
    fields = mode, coef, length * reals, size * reals
    more = {"squares": squares, "head": _HEAD, "elements": size}
    more |= {"type": ffi.cast("void *", id(array)), "dtype": ffi.cast("void *", id(made))}
    stack = _plan(*fields, flags, stride=length * dtype.itemsize, **more)
    anywhere, given = _plan(*fields, flags, **more), _plan(*fields, flags + lib.FGC_OBJECTS, **more)
    _, function = _apart[kind_of(dtype)]

    def combine(rows, out, count):
        kind = type(rows)
        if kind is array:
            return function(stack, id(rows), id(out), count)
        if kind is Rows:
            return function(anywhere, id(rows.addresses), id(out), count)
        table = tuple(rows)  # which holds their addresses
        if len(table) == count and type(table[0]) is array:  # C compares the others with it
            return function(given, id(table) + _TUPLE, id(out), count)
        return misplaced

    return combine


def bind_add(
    mode: int,
    coef: Array,
    weights: Floats,
    row: tuple[np.dtype[Any], int],
    out: Array,
    message: Array,
) -> tuple[Any, Callable[[Any, int, int], int], Callable[[Any], int]]:
    """Prepare ``out += coef[at] * row``, and ``energy += weights[at] * ||row||^2``, in one pass.

    Returns C's struct, which has the `energy`, and `more`, whether to add to what `out` holds; and
    functions ``add(struct, where(row), at) -> status`` and `where`. The status is ``Status.OK``;
    or, with nothing written, ``MISPLACED``, if the row is no contiguous and aligned vector as said,
    or shares memory with `message`, or ``NO_MEMORY``. `message` is `out`, or what it is rounded to.
    Other parameters are as in `bind_apart` and `combine`, but the mode is not ``REAL_PART``.
    """
    dtype, length = row
    reals = 1 + (dtype.kind == "c")
    more = {"head": _HEAD, "elements": length}
    more |= {"type": ffi.cast("void *", id(np.ndarray)), "dtype": ffi.cast("void *", id(dtype))}
    kind, _, function = _sums[kind_of(dtype)]
    struct = struct_of(
        "fgc_message",
        plan=_plan(mode, coef, length * reals, out.size, 0, **more),
        out=ffi.from_buffer(kind, out, require_writable=True),
        weight=weights,
        message=address(message),
        size=message.nbytes,
    )
    return struct, function, id if _HEAD else address


# --------------------------------------------------------------------------- messages as they come

_kinds = {  # C's constant, and the bytes of a real
    "float": (lib.FGC_FLOAT, 4),
    "double": (lib.FGC_DOUBLE, 8),
    "half": (lib.FGC_HALF, 2),
    "bfloat": (lib.FGC_BFLOAT, 2),
}


def bind_tally(
    kind: int, group: Ints, total: int, other: Ints | None, weight: Ints | None, need: Ints | None
) -> tuple[Any, Callable[[int], bool], Callable[[], None]]:
    """Prepare functions that count messages: `Tally.add` and `reset`. They come after C's struct.

    Parameters are those of `Tally`.
    """
    groups = 0 if weight is None else weight.size
    vertices = np.zeros((total + 1 if other is not None else 0, 6), np.int64)
    given = {"group": group, "other": other, "weight": weight, "need": need}
    struct = struct_of(
        "fgc_tally",
        kind=kind,
        groups=groups,
        total=total,
        lacking=np.empty(groups, np.int64),
        vertices=ffi.from_buffer("fgc_vertex[]", vertices),
        **{
            name: None if each is None else np.ascontiguousarray(each, np.int64)
            for name, each in given.items()
        },
    )
    return struct, partial(lib.fgc_tally_add, struct), partial(lib.fgc_tally_reset, struct)


def bind_arrivals(
    rows: Rows,
    arrays: ArrivalArrays,
    tally: Any,
    project: Projecting | None,
    sent: tuple[np.dtype[Any], int] | None,
) -> tuple[Any, Callable[..., int], Callable[[int, int, int, float], int], Callable[[], None]]:
    """Prepare functions that take messages one by one: `Arrivals.arrive` and `Arrivals.accept`.

    They come after C's struct, and before the one that forgets all messages.

    Parameters
    ----------
    rows, project, sent
        As in `Arrivals`.
    arrays : ArrivalArrays
    tally : Any
        `Tally.c`, or None.
    """
    kind, size = _kinds[rows.kind]
    dtype, length = (rows.dtype, rows.length) if sent is None else sent
    struct = struct_of(
        "fgc_arrivals",
        **arrays._asdict(),
        addresses=ffi.from_buffer("uintptr_t[]", rows.addresses),
        messages=arrays.numbers.size,
        workers=arrays.next.size,
        tally=tally,
        length=rows.nbytes // size,  # in reals: a complex number counts as two
        kind=kind,
        head=_HEAD,
        size=length,
        type=ffi.cast("void *", id(np.ndarray)),
        dtype=ffi.cast("void *", id(dtype)),
        **(project._asdict() if project else {}),
    )
    take, buffer = lib.fgc_arrive, ffi.from_buffer

    def arrive(worker: int, index: int, row: Any, energy: float) -> int:
        return take(struct, worker, index, buffer(row), energy)  # type: ignore[no-any-return]

    return (
        struct,
        arrive,
        partial(lib.fgc_arrive_array, struct),
        partial(lib.fgc_forget, struct),
    )


def bind_trust(of: Any, **fields: Any) -> Callable[[int, bool], int]:
    """Prepare fgc_trust_of for these fields, and the others as in this fgc_trust."""
    struct = ffi.new("fgc_trust *", of[0])
    kept = {name: each for name, each in fields.items() if each is not None}
    for name, each in kept.items():
        setattr(struct, name, _pointer(each) if isinstance(each, np.ndarray) else each)
    call = partial(lib.fgc_trust_of, struct)
    vars(call)["kept"] = of, kept  # arrays must live as long as the call, which has their addresses
    return call


def bind_deviation(first: Ints, held: Ints, value: Array, partitions: int) -> Callable[..., float]:
    """Prepare fgc_deviation for these rows: ``size(vector, numbers, out=None) -> float``."""
    rows, kind = (_pointer(first), _pointer(held), _pointer(value)), value.dtype
    call, buffer, doubles = lib.fgc_deviation, ffi.from_buffer, ffi.typeof("double[]")

    def size(vector, numbers, out=None):
        given = buffer(doubles, np.ascontiguousarray(vector, kind)), kind.kind == "c"
        which, to = _pointer(numbers), ffi.NULL if out is None else buffer(doubles, out)
        found = call(*given, which, numbers.size, *rows, to, partitions)
        if found < 0:
            raise MemoryError
        return found

    return size


# --------------------------------------------------------------- delays, and when messages suffice


def draw(delays: DelayPlan, first: int, wait: Floats, whole: Floats) -> None:
    """Draw the delays and works of rounds ``first``, ``first + 1``, ...

    They depend only on the plan, the round and the number of workers.

    Parameters
    ----------
    delays : DelayPlan
    first : int
    wait, whole : (rounds, n) float64 array
        Written: the seconds until each worker begins, once it is free, and the seconds that all its
        work takes.
    """
    lib.fgc_draw(
        _delays(delays),
        first,
        len(wait),
        ffi.from_buffer("double[]", wait),
        ffi.from_buffer("double[]", whole),
    )


def _delays(delays):
    fields = delays._asdict() | {
        "key": int(delays.key),
        "workers": delays.given.shape[1],
        "given": delays.given if len(delays.given) else ffi.NULL,
        "whole": delays.whole if len(delays.whole) else ffi.NULL,
        "powers": bool(delays.power.any()),
    }
    return struct_of("fgc_delays", **fields)


def completion(
    plan: CompletionPlan,
    delays: DelayPlan,
    first: int,
    late: Floats,
    receive: float,
    overhead: float,
    interrupted: bool,
    out: Completion,
) -> None:
    """Simulate rounds: when messages suffice, and what has come and been computed by then.

    In a round for which `draw` writes `wait` and `whole`, message m of worker i arrives ``late[i] +
    wait[i] + whole[i] * share[m]`` seconds after the round began.

    Parameters
    ----------
    plan : CompletionPlan
    delays : DelayPlan
    first : int
        The number of the first round.
    late : (n,) float64 array
        Seconds from the beginning of a round until each worker is free: in every round if
        `interrupted`; else in the first round, and overwritten with those of the next round.
    receive : float
        Seconds that the master takes for each message that came, one after the other in order of
        arrival.
    overhead : float
        Seconds between the end of a round and the beginning of the next one.
    interrupted : bool
        Whether workers drop their work when a round ends. If not, they finish the message that they
        are at when the next round begins, which nobody uses, and then join the newest round.
    out : Completion
        Where results are written; arrays of shape (rounds,).
    """
    fields = plan._asdict() | {
        "workers": plan.loads.size,
        "groups": plan.need.size,
        "width": plan.spare.shape[1],
        "ways": len(plan.spare) // len(plan.share),
    }
    status = lib.fgc_completion(
        struct_of("fgc_completion_plan", **fields),
        _delays(delays),
        first,
        ffi.from_buffer("double[]", late),
        out.time.size,
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


def bind_taken(bound: dict[str, Any], survivors: Ints, least: int) -> Callable[[int], int] | None:
    """Prepare the decoding vector of at least so many survivors, which C takes from their array.

    `bound` is that of the function that fills `survivors` and its vector. Returns a function of the
    array's ``id``: the number of survivors, or -1 if the function has to say what is wrong. None if
    C does not know arrays.
    """
    return partial(lib.fgc_take, _taking(bound, survivors, least)) if _HEAD else None


def take_masks(
    bound: dict[str, Any], survivors: Ints, least: int, masks: Bools, out: Array
) -> Bools:
    """Write to `out`, which is 0, the vectors of many sets; return which were found.

    Parameters
    ----------
    bound, survivors, least
        As for `bind_taken`.
    masks : (sets, N) bool array
    out : (sets, N) float64 or complex128 array
        C-contiguous, as are the masks.
    """
    struct, good = _taking(bound, survivors, least), np.empty(len(masks), np.bool_)
    lib.fgc_take_masks(
        struct,
        ffi.from_buffer("unsigned char[]", masks),
        len(masks),
        out.itemsize // 8,
        ffi.from_buffer("double[]", out, require_writable=True),
        ffi.from_buffer("unsigned char[]", good),
    )
    return good


def bind_decode(
    bound: dict[str, Any],
    survivors: Ints,
    least: int,
    mode: int,
    rows: Rows,
    out: Array,
    check: bool,
) -> Callable[[int], int] | None:
    """Prepare what `bind_taken` does together with the combination of rows, which has a status."""
    if not _HEAD:
        return None
    kind, function = _decode[rows.kind]
    flags, which = 2 * check + lib.FGC_USED, bound["survivors"]  # FGC_CHECK
    total = _plan(mode, bound["vector"], rows.length, out.size, flags, numbers=which)
    written = ffi.from_buffer(kind, out, require_writable=True)
    made = {"sum": total, "rows": rows.c or _addresses(rows), "out": written}
    decode = partial(function, _taking(bound, survivors, least, **made))
    vars(decode)["rows"] = rows
    return decode


def _taking(bound, survivors, least, **more):
    kinds = {"type": id(np.ndarray), "dtype": id(survivors.dtype)}
    more |= {name: ffi.cast("void *", number) for name, number in kinds.items()}
    sizes = {"head": _HEAD, "least": least, "capacity": survivors.size}
    return struct_of("fgc_bound", **bound, **sizes, **more)


def _bound(
    function: Any, rule: int, struct: Any, work: int, survivors: Ints, out: Array
) -> Callable[[int], int]:
    """Bind a function of C to a plan and to `work` bytes of work space."""
    given = {
        "rule": rule,
        "plan": struct,
        "survivors": ffi.from_buffer("int64_t[]", survivors),
        "vector": ffi.from_buffer("double[]", out, require_writable=True),
        "work": ffi.from_buffer(np.empty(work, np.uint8)),
    }
    run = partial(function, struct, given["survivors"], given["vector"], given["work"])
    vars(run)["bound"] = given
    return run


def bind_cells(plan: CellsPlan, survivors: Ints, out: Array) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums over cells, on two fixed buffers.

    Returns a function ``fill(f) -> status`` that reads ``survivors[:f]`` and writes ``out[:f]``: 1,
    or the plan's factor, times the plan's inverse, for the first message of each cell, and 0 for
    others. If its status is `Status.OUT_OF_RANGE`, `Status.DUPLICATE` or `Status.TOO_FEW`, `out`
    means nothing. Pointers are taken once, here.

    Parameters
    ----------
    plan : CellsPlan
    survivors : (M,) int64 array
    out : (M,) float64 array, or complex128 if the plan has inverses
    """
    messages, cells = plan.cell.size, plan.weight.size
    struct = struct_of("fgc_cells", **plan._asdict(), messages=messages, cells=cells)
    return _bound(lib.fgc_cells_vector, lib.FGC_CELLS, struct, messages + cells, survivors, out)


def bind_tiling(plan: TilingPlan, survivors: Ints, out: Floats) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums over intervals, on two fixed buffers.

    Takes the same buffers as `bind_cells`, and returns the same kind of function ``fill(f) ->
    status``. It writes 1 for the fewest messages that add up to the whole. If none do, it writes 1
    and -1 for the fewest that add up to it if some are subtracted. Other messages have 0. Of
    equally few, it takes those that breadth-first search finds first, by number.
    """
    points = plan.first.size - 1
    struct = struct_of("fgc_tiling", **plan._asdict(), points=points)
    work = 8 * (plan.messages + 2 * points)
    return _bound(lib.fgc_tiling_vector, lib.FGC_TILING, struct, work, survivors, out)


def bind_edges(plan: EdgesPlan, survivors: Ints, out: Floats) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums of two blocks, on two fixed buffers.

    Takes the same buffers as `bind_cells`, and returns the same kind of function ``fill(f) ->
    status``. Its vector combines the messages so that each block counts as nearly once as possible:
    if block v counts x_v times, the sum over v of ``weight_v (x_v - 1)^2`` is least. It takes time
    linear in blocks and messages. In a component of the graph that is not bipartite, all x are 1.
    In one that is, with sides L and R, ``x_v = 1 -+ (|L| - |R|) / (weight_v sum over u of 1 /
    weight_u)``, with - in L and + in R. The status is `Status.TOO_FEW` if fewer messages came than
    the plan needs, unless all x are 1.

    Of all vectors with these x it writes a short one. At most a hundred steps of conjugate
    gradients go towards the least sum, over messages, of the weight of both blocks times the square
    of the coefficient. What x then lacks is corrected along a spanning tree.
    """
    messages, vertices = len(plan.ends), plan.weight.size
    struct = struct_of("fgc_edges", **plan._asdict(), messages=messages, vertices=vertices)
    work = 8 * (8 * messages + 11 * vertices + 3)
    return _bound(lib.fgc_edges_vector, lib.FGC_EDGES, struct, work, survivors, out)


# ---------------------------------------------------------------------------------- Lagrange bases

_NO_MEMORY = Status.NO_MEMORY
_double_pointer = ffi.typeof("double[]")  # parsed once
_index_pointer = ffi.typeof("int64_t[]")
_index = ffi.typeof("int64_t *")


def lagrange_weights(
    nodes: Array, scaled: Array, weights: Array, exponent: Ints | None
) -> int | None:
    """Call C for `fastgc.kernels.lagrange_weights`."""
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


def bind_functional(nodes: Array, points: Array, chosen: Ints, out: Array) -> Callable[[int], int]:
    """Prepare the column sums of Lagrange bases of some of the nodes, on two fixed buffers.

    Returns a function ``functional(f) -> status``, f >= 1, that reads ``chosen[:f]``, numbers of
    nodes, and writes ``out[:f]``: ``sum_i l_j(points[i])`` for each of these. Its status is
    `Status.OUT_OF_RANGE` if a number is not that of a node, `Status.DUPLICATE` if two nodes
    coincide, and `Status.OVERFLOW` if a sum does not fit a double.

    Parameters
    ----------
    nodes : (n,) float64 or complex128 array
        Moduli are about 1 at most.
    points : (p,) array
    chosen : int64 array
    out : array
        Has the dtype of `nodes`, as `points` has.
    """
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


def bind_decoding_vector(
    plan: CyclicPlan, survivors: Ints, out: Complexes, longest: float = math.inf
) -> tuple[Decode, Where]:
    """Prepare the computation of decoding vectors on two fixed buffers.

    Returns a function ``decode(method, f) -> status`` that reads ``survivors[:f]`` and writes
    ``out[:f]``, and an object whose item 0 then says where the status applies. Pointers are taken
    once, here. If the entries' sum of squares is over `longest`, they are written, and the status
    is ``IMPRECISE``.
    """
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
    vars(decode)["bound"] = given
    return decode, where


def bind_polar(
    plan: CyclicPlan, survivors: Ints, present: Bools, size: Floats, out: Complexes
) -> Polar:
    """Prepare a vector whose magnitudes are known, by worker: `size`, read when it is written.

    Parameters
    ----------
    plan : CyclicPlan
    survivors : (n,) int64 array
    present : (n,) bool array
        Written by `Polar.mark`.
    size : (n,) float64 array
    out : (n,) complex128 array
    """
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


def decoding_vectors(
    plan: CyclicPlan,
    masks: Bools,
    method: int,
    out: Complexes,
    where: Ints,
    longest: float = math.inf,
) -> None:
    """Compute the decoding vectors of many rounds.

    Parameters
    ----------
    plan : CyclicPlan
    masks : (rounds, n) bool array
        The survivors of each round; C-contiguous. ``SPREAD`` overwrites it.
    method : int
        As for the function that `bind_decoding_vector` returns.
    out : (rounds, n) complex128 array
        C-contiguous; the coefficients of all workers, 0 for stragglers.
    where : (rounds,) int64 array
        0; or how many more survivors are needed, and the row of `out` is not written; or -1 if an
        entry does not fit a double; or -2 if the sum of squares is over `longest`.
    longest : float
    """
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


def bind_survivor_mask(n: int, survivors: Ints, bits: NDArray[np.uint8]) -> Callable[[int], int]:
    """Prepare the bit mask of a set of survivors on two fixed buffers.

    Returns a function ``mask(f)`` that reads ``survivors[:f]``, in any order, and writes `bits`:
    survivor i has bit ``i % 8`` of byte ``i // 8``. It returns 0 if survivors are distinct and in
    0 .. n-1; otherwise 1, and the bits mean nothing.

    Parameters
    ----------
    n : int
    survivors : (n,) int64 array
    bits : (ceil(n / 8),) uint8 array
    """
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    bits_ = ffi.from_buffer("uint8_t[]", bits, require_writable=True)
    return partial(lib.fgc_survivor_mask, n, survivors_, bits_)
