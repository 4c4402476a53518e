"""The compiled extension (csrc/), reached through cffi.

Kernels on arrays and numbers need nothing here: their calls are made when they are first asked for.
What the others take and return is said once, by the NumPy functions of these names: so here, and in
``kernels.numba``, signatures have no types.
"""

from __future__ import annotations

from typing import Any

from .. import numpy as _plain
from .calls import made as _made
from .combine import *  # noqa: F403
from .plans import *  # noqa: F403
from .pool import *  # noqa: F403


def __getattr__(name: str) -> Any:
    oracle = getattr(_plain, name, None)
    call = _made(oracle) if callable(oracle) else None
    if call is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = call
    return call
