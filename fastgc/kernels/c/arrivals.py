"""Messages of a round as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
_sizes = {"float": 4, "double": 8, "half": 2, "bfloat": 2}


def bind_arrivals(
    rows: Rows,
    numbers: NDArray[np.int64],
    squares: NDArray[np.float64],
    heard: NDArray[np.uint8],
    block: NDArray[np.int64],
    lacking: NDArray[np.int64],
    state: NDArray[np.int64],
    check: bool,
) -> Callable[[int, Any], int]:
    """See `fastgc.kernels.Arrivals`: its `arrive`."""
    integers = {
        name: ffi.from_buffer("int64_t[]", array)
        for name, array in (
            ("block", block),
            ("lacking", lacking),
            ("state", state),
            ("numbers", numbers),
        )
    }
    given = {
        "messages": numbers.size,
        "length": rows.nbytes // _sizes[rows.kind],  # reals, of complex numbers two each
        "kind": _kinds[rows.kind],
        "check": check,
        "heard": ffi.from_buffer("unsigned char[]", heard),
        "squares": ffi.from_buffer("double[]", squares),
        "addresses": ffi.from_buffer("uintptr_t[]", rows.addresses),
        **integers,
    }
    struct = ffi.new("fgc_arrivals *", given)
    pointed_to[struct] = given
    take, buffer = lib.fgc_arrive, ffi.from_buffer

    def arrive(number: int, row: NDArray[Any]) -> int:
        return take(struct, number, buffer(row))  # type: ignore[no-any-return]

    return arrive
