"""Messages of a round as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..rows import Rows
from .decoding import pointed_to

__all__ = ["bind_arrivals"]

_kinds = {
    "float": lib.FGC_FLOAT,
    "double": lib.FGC_DOUBLE,
    "half": lib.FGC_HALF,
    "bfloat": lib.FGC_BFLOAT,
}
_C_TYPES = {"l": "int64_t[]", "q": "int64_t[]", "B": "unsigned char[]", "d": "double[]"}
_sizes = {"float": 4, "double": 8, "half": 2, "bfloat": 2}


def bind_arrivals(
    rows: Rows, arrays: Any, check: bool
) -> tuple[Callable[[int, Any, float], int], Any]:
    """See `fastgc.kernels.Arrivals`: its `arrive` and `c`."""
    given = {
        name: ffi.from_buffer(_C_TYPES[array.dtype.char], array)
        for name, array in arrays._asdict().items()
    }
    given["addresses"] = ffi.from_buffer("uintptr_t[]", rows.addresses)
    sizes = {
        "messages": arrays.numbers.size,
        "length": rows.nbytes // _sizes[rows.kind],  # reals, of complex numbers two each
        "kind": _kinds[rows.kind],
        "check": check,
    }
    struct = ffi.new("fgc_arrivals *", sizes | given)
    pointed_to[struct] = given
    take, buffer = lib.fgc_arrive, ffi.from_buffer

    def arrive(number: int, row: NDArray[Any], energy: float) -> int:
        return take(struct, number, buffer(row), energy)  # type: ignore[no-any-return]

    return arrive, struct
