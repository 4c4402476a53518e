"""When the messages of a simulated round suffice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..completion import Completion, CompletionPlan

__all__ = ["completion"]


def completion(
    plan: CompletionPlan,
    delay: NDArray[np.float64],
    work: NDArray[np.float64],
    late: NDArray[np.float64],
    receive: float,
    overhead: float,
    interrupted: bool,
    out: Completion,
) -> None:
    """See `fastgc.kernels.completion`."""
    buffers = {
        name: ffi.from_buffer("double[]" if array.dtype == np.float64 else "int64_t[]", array)
        for name, array in plan._asdict().items()
        if name not in ("kind", "total")
    }
    struct = {
        "kind": plan.kind,
        "workers": plan.loads.size,
        "groups": plan.need.size,
        "total": plan.total,
        **buffers,
    }
    status = lib.fgc_completion(
        ffi.new("fgc_completion_plan *", struct),
        ffi.from_buffer("double[]", delay),
        ffi.from_buffer("double[]", work),
        ffi.from_buffer("double[]", late),
        len(work),
        receive,
        overhead,
        interrupted,
        ffi.from_buffer("double[]", out.time),
        ffi.from_buffer("int64_t[]", out.messages),
        ffi.from_buffer("int64_t[]", out.workers),
        ffi.from_buffer("int64_t[]", out.computations),
    )
    if status:
        raise MemoryError
