"""C's structs, and what keeps alive the arrays that they point to."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._cffi import ffi, lib

__all__ = ["ffi", "lib", "pointed_to", "struct_of"]

_C_TYPES = {"d": "double[]", "?": "unsigned char[]", "B": "unsigned char[]", "L": "uintptr_t[]"}
pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def struct_of(name: str, **fields: Any) -> Any:
    """A struct of these numbers, pointers and arrays, which live as long as it does."""
    values = {
        field: ffi.from_buffer(_C_TYPES.get(value.dtype.char, "int64_t[]"), value)
        if isinstance(value, np.ndarray)
        else value
        for field, value in fields.items()
    }
    struct = ffi.new(f"{name} *", values)
    pointed_to[struct] = values
    return struct
