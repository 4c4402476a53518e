"""PyTorch training scripts on ranks and workers that straggle, die or lie.

`ReactiveDataParallel` is for scripts in which every rank trains, as with DistributedDataParallel:
no step is lost when ranks die, and slow ranks get less to do. `CodedDataParallel` is for workers
that are slow in every step: it computes a module's gradients on coded workers, with a master that
waits for the first of them. The optimizer and the rest of your training loop stay the same.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .._base.extras import pip_install as _pip_install
from .._base.text import listing

if TYPE_CHECKING:
    from .data_parallel import CodedDataParallel, Result
    from .reactive import ReactiveDataParallel

_LAZY = {
    "CodedDataParallel": "data_parallel",
    "ReactiveDataParallel": "reactive",
    "Result": "data_parallel",
}

__all__ = [
    "CodedDataParallel",
    "ReactiveDataParallel",
    "Result",
]
__dir__ = listing(__all__)


def __getattr__(name: str) -> Any:
    """Load PyTorch at the first use: a guard does without."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import cloudpickle  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"fastgc.torch needs PyTorch and cloudpickle ({error}): {_pip_install('torch')}"
        ) from error
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value
