"""Calls of kernels without checks, for fastgc's own modules, which have checked their arguments.

Not public: arrays that do not fit are read and written beyond their ends. Public kernels are in
`fastgc.kernels`, with contracts (`fastgc.kernels.contract`). A kernel that csrc/kernels.def
declares is a function here, made at its first use; the other calls are in `fastgc.kernels.c.calls`.
With ``FASTGC_BACKEND=numba``, Numba's functions (`fastgc.kernels.numba.calls`) stand in their
place.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .c.calls import *  # noqa: F403
from .c.calls import made

BACKEND = os.environ.get("FASTGC_BACKEND") or "c"
if BACKEND not in ("c", "numba"):
    raise ValueError(f"FASTGC_BACKEND must be c or numba, not {BACKEND!r}")
if not TYPE_CHECKING and BACKEND == "numba":
    from .numba.calls import *  # noqa: F403


def __getattr__(name: str) -> Any:
    call = None if name.startswith("_") else made(name)
    if call is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = call
    return call
