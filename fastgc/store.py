"""``python -m fastgc.store``: keeps what ranks need to find each other, on a machine that lasts.

Ranks on machines that may be taken away (spot machines) find each other, and what they agree on, in
a coordinator that must outlive them::

    python -m fastgc.store --port 29400                       # on a machine that lasts
    FASTGC_STORE=HOST:29400 python -m fastgc.guard script.py   # for each rank

It holds no state of the training. If it is started again at the same port, the ranks connect anew.
"""

from .torch.guard import store as main

__all__ = ["main"]

if __name__ == "__main__":
    main()
