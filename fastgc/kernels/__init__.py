"""The arithmetic: a few functions, each written three times.

``kernels.numpy`` defines what each function does, and is the oracle and the fallback.
``kernels.numba`` can be called from your own ``@njit`` code, and ``kernels.c`` is the compiled
extension. Their files have the same names, which are also those of csrc/. `choice` picks one
backend: the fastest available one, or the one that the environment variable ``FASTGC_BACKEND`` or
`use_backend` names.

The functions of this module check their arguments and call the backend in use. If arrays are not as
documented, they raise TypeError or ValueError, and write nothing. For short vectors the check takes
about as long as the call itself. The functions of ``kernels.unchecked`` and of the backends check
nothing; fastgc's own modules, which have already checked, call those. Kernels know no scheme.

C splits long calls over threads (see `threads`); the other backends use one thread.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING

from .._base.text import listing
from . import choice, threads, unchecked
from . import numpy as plain
from .choice import backend, backends, use_backend
from .contract import contract_of
from .cyclic import Status
from .dispatch import checked_kernel
from .numpy.near_exact import Circulant, Projector
from .rows import EXPAND, PACKED, REAL, REAL_PART, Rows

if TYPE_CHECKING:  # to a type checker, a kernel is the NumPy function
    from .numpy import *  # noqa: F403

_KERNELS = {
    name: checked_kernel(each)
    for name, each in vars(plain).items()
    if isinstance(each, FunctionType) and contract_of(each)
}
globals().update(_KERNELS)

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
    "threads",
    "use_backend",
    *_KERNELS,
]
__dir__ = listing([*__all__, *choice.NAMES])


if not TYPE_CHECKING:

    def __getattr__(name):
        """Load a backend at its first use."""
        if name in choice.NAMES:
            return importlib.import_module(f".{name}", __name__)
        hint = f": {__name__}.unchecked has it" if hasattr(unchecked, name) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
