"""PyTorch training scripts on workers that straggle, die or lie.

`CodedDataParallel` computes a module's gradients on coded workers, from a module, a loss, a dataset
and a code. The optimizer and the rest of your training loop stay the same. `CodedAllReduce` is for
scripts in which every rank trains: no step is lost when ranks die.
"""

from .._extras import pip_install as _pip_install

try:
    import cloudpickle as _cloudpickle  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"fastgc.torch needs PyTorch and cloudpickle ({error}): {_pip_install('torch')}"
    ) from error

from .._shown import listing
from .all_reduce import Change, CodedAllReduce, Fault, all_reduce_gradients
from .data_parallel import CodedDataParallel, Result
from .ddp import coded_ddp
from .place import hosts
from .sampler import CodedSampler

__all__ = [
    "Change",
    "CodedAllReduce",
    "CodedDataParallel",
    "CodedSampler",
    "Fault",
    "Result",
    "all_reduce_gradients",
    "coded_ddp",
    "hosts",
]
__dir__ = listing(__all__)
