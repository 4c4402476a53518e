"""Random delays of workers, with their works."""

from __future__ import annotations

from .._cffi import ffi, lib
from .structs import struct_of

__all__ = ["draw"]


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
