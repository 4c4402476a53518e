"""Messages of a round as they come."""

from __future__ import annotations

from .. import numpy as plain
from .._cffi import ffi, lib
from ..rows import INTEGER
from .structs import struct_of

__all__ = ["bind_arrivals"]

_kinds = {  # C's name of it, and bytes
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
        length=rows.nbytes // size,  # reals, of complex numbers two each
        kind=kind,
        check=check,
    )
    take, buffer = lib.fgc_arrive, ffi.from_buffer

    def arrive(number, row, energy):
        return take(struct, number, buffer(row), energy)

    return arrive, struct
