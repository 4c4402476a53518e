"""The arithmetic: compiled kernels, with checked arguments.

The functions of this module check their arguments and call C (csrc/). If arrays are not as
documented, they raise TypeError or ValueError, and write nothing. For short vectors the check takes
longer than the call itself. The functions of ``kernels.unchecked`` check nothing; fastgc's own
modules, which have already checked, call those. Kernels know no scheme.

``kernels.numba`` has four families for your own ``@njit`` code. With the environment variable
``FASTGC_BACKEND=numba``, fastgc calls them, too, instead of C's.

C splits long calls over threads (see `threads`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .._base.text import listing
from . import arrivals as arrivals
from . import cover as cover
from . import rounds as rounds
from . import threads, unchecked
from .combine import *  # noqa: F403
from .combine import __all__ as _combine
from .cyclic import Status
from .lagrange import *  # noqa: F403
from .lagrange import __all__ as _lagrange
from .optimize import *  # noqa: F403
from .optimize import __all__ as _optimize
from .rows import EXPAND, PACKED, REAL, REAL_PART, Rows
from .vandermonde import *  # noqa: F403
from .vandermonde import __all__ as _vandermonde

__all__ = ["EXPAND", "PACKED", "REAL", "REAL_PART", "Rows", "Status", "backend", "threads"]
__all__ += [*_combine, *_lagrange, *_optimize, *_vandermonde]
_LATER = ("c", "numba")  # loaded at their first use
__dir__ = listing([*__all__, *_LATER])


def backend() -> str:
    """Return "numba" if ``FASTGC_BACKEND`` names it, else "c"."""
    return unchecked.BACKEND


if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _LATER:
            return importlib.import_module(f".{name}", __name__)
        hint = f": {__name__}.unchecked has it" if hasattr(unchecked, name) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
