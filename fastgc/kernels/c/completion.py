"""When the messages of a simulated round suffice."""

from __future__ import annotations

from .._cffi import ffi, lib
from .structs import struct_of

__all__ = ["completion"]


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
