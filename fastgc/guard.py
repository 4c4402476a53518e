"""``python -m fastgc.guard script.py``: runs a script, and runs it again if it dies.

torchrun ends all ranks of a machine when a process that it started dies. So let it start a guard,
which outlives the script::

    torchrun --nproc-per-node 4 -m fastgc.guard script.py --epochs 10

`fastgc.torch.guard` says when the script starts again, and with which status the guard ends.
"""

from .torch.guard import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
