"""PyTorch training scripts on workers that straggle, die or lie.

`CodedDataParallel` computes a module's gradients on coded workers, from a module, a loss, a dataset
and a code. The optimizer and the rest of your training loop stay the same. `CodedAllReduce` is for
scripts in which every rank trains: no step is lost when ranks die.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .._base.extras import pip_install as _pip_install
from .._base.text import listing

if TYPE_CHECKING:
    from .all_reduce import Change, CodedAllReduce, Fault, all_reduce_gradients
    from .data_parallel import CodedDataParallel, Result
    from .ddp import coded_ddp
    from .place import hosts
    from .reactive import ReactiveDataParallel
    from .sampler import CodedSampler
    from .tensors import decode

_LAZY = {
    "Change": "all_reduce",
    "CodedAllReduce": "all_reduce",
    "CodedDataParallel": "data_parallel",
    "CodedSampler": "sampler",
    "Fault": "all_reduce",
    "ReactiveDataParallel": "reactive",
    "Result": "data_parallel",
    "all_reduce_gradients": "all_reduce",
    "coded_ddp": "ddp",
    "decode": "tensors",
    "hosts": "place",
}

__all__ = [
    "Change",
    "CodedAllReduce",
    "CodedDataParallel",
    "CodedSampler",
    "Fault",
    "ReactiveDataParallel",
    "Result",
    "all_reduce_gradients",
    "coded_ddp",
    "decode",
    "hosts",
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
