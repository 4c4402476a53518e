"""PyTorch training scripts on workers that straggle, die or lie.

`CodedDataParallel` computes a module's gradients on coded workers: a module, a loss, a dataset and
a code. The optimizer, and all else of the loop, stays as it is.
"""

try:
    import cloudpickle as _cloudpickle  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'fastgc.torch needs PyTorch and cloudpickle ({error}): pip install "fastgc[torch]"'
    ) from error

from .data_parallel import CodedDataParallel, Result

__all__ = ["CodedDataParallel", "Result"]
