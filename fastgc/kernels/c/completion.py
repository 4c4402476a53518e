"""When the messages of a simulated round suffice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..numpy.completion import Completion, CompletionPlan

__all__ = ["completion"]


def _as_struct(plan: CompletionPlan) -> Any:
    """A struct of which the arrays are kept alive by `plan`."""
    arrays = {
        name: ffi.from_buffer("double[]" if array.dtype == np.float64 else "int64_t[]", array)
        for name, array in plan._asdict().items()
        if isinstance(array, np.ndarray)
    }
    struct = {
        "kind": plan.kind,
        "workers": plan.loads.size,
        "groups": plan.need.size,
        "total": plan.total,
        "wait": plan.wait,
        "width": plan.spare.shape[1],
        **arrays,
    }
    return ffi.new("fgc_completion_plan *", struct)


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
    status = lib.fgc_completion(
        _as_struct(plan),
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
