"""The arithmetic: a few functions, each written three times.

``kernels.numpy`` says what each function does, and is the oracle and the fallback;
``kernels.numba`` is callable from a user's own ``@njit`` code, ``kernels.c`` is the compiled
extension. Their files are named alike, and as those of csrc/, some of which they hold together.
`choice` picks one backend: the fastest there is, or the one named by the environment variable
``FASTGC_BACKEND`` or by `use_backend`.

Names of this module call the backend in use, and check first what they are given: TypeError or
ValueError, and nothing is written, where arrays are not as the functions say. That takes about as
long as the call itself where vectors are short. Those of ``kernels.unchecked``, and of backends,
check nothing: fastgc's own modules, which have checked by then, call those. Kernels know no scheme.

Of C, what takes long enough is split over threads (see `threads`); the others use one.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING

from .._shown import listing
from . import choice, threads, unchecked
from . import numpy as plain
from .choice import backend, backends, use_backend
from .contract import checked, contract_of
from .cyclic import Status
from .dispatch import checked_kernel
from .near_exact import Circulant, Projector
from .rows import EXPAND, PACKED, REAL, REAL_PART, Rows

if TYPE_CHECKING:  # to a type checker, a kernel is the NumPy function
    from .numpy import *  # noqa: F403

_KERNELS = {
    name: checked_kernel(each)
    for name, each in vars(plain).items()
    if isinstance(each, FunctionType) and contract_of(each)
}
globals().update(_KERNELS)
# These put kernels together, whatever the backend.
locator_pairs = checked(unchecked.locator_pairs)
minimum_norm = checked(unchecked.minimum_norm)
near_exact = checked(unchecked.near_exact)
near_exact_pairs = checked(unchecked.near_exact_pairs)
weighted_minimum_norm = checked(unchecked.weighted_minimum_norm)

__all__ = [
    "EXPAND",
    "PACKED",
    "REAL",
    "REAL_PART",
    "Circulant",
    "Projector",
    "Rows",
    "Status",
    "backend",
    "backends",
    "locator_pairs",
    "minimum_norm",
    "near_exact",
    "near_exact_pairs",
    "threads",
    "use_backend",
    "weighted_minimum_norm",
    *_KERNELS,
]
__dir__ = listing([*__all__, *choice.NAMES])


if not TYPE_CHECKING:

    def __getattr__(name):
        """Backends load when they are first asked for."""
        if name in choice.NAMES:
            return importlib.import_module(f".{name}", __name__)
        hint = f": {__name__}.unchecked has it" if name in unchecked.__all__ else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
