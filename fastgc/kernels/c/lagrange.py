"""Lagrange bases."""

from __future__ import annotations

from functools import partial

from .._cffi import ffi, lib
from ..cyclic import Status

__all__ = ["bind_functional", "lagrange_weights"]

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
