"""Batched coupon collector (Li, Mousavi Kalan, Avestimehr, Soltanolkotabi 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from .._base.arrays import check_integer
from ..coding.arguments import check_sizes
from ..coding.code import Code
from .random_assignment import check_loads, picked


class CouponCollector(Code):
    """Each worker picks one batch of partitions at random and sends the sum over it.

    Workers need not know of each other: what worker i picks is a function of (seed, i). The master
    drops duplicate batches. With b = ceil(k / r) batches it waits for b H_b workers on average
    (Theorem 1), where H_b = 1 + 1/2 + ... + 1/b.

    Workers may have different `loads`: worker i picks ``loads[i]`` partitions at random and sends
    each partial gradient by itself (the generalised scheme of section IV). In the paper it sends
    all of them when it has computed all, eq. (16): ``send="together"``.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    load : int, optional
        Partitions in a batch, r; the last batch may be smaller.
    loads : sequence of n ints, optional
        Instead of `load`.
    send : {"each", "together"}
        With `loads`: as in `RandomAssignment`.
    seed : int, default 0

    Raises
    ------
    ValueError
        If the parameters do not fit, or if no worker picks some batch with this seed. The
        probability of the latter is at most b (1 - 1/b)^n.
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int | None = None,
        loads: Sequence[int] | None = None,
        send: Literal["each", "together"] = "each",
        seed: int = 0,
    ) -> None:
        n, k = check_sizes(n, k)
        if (load is None) == (loads is None):
            raise ValueError("give load= (partitions in a batch) or loads= (of each worker)")
        if load is not None:
            size = int(check_loads(check_integer("load", load), n, k)[0])
            cuts = np.append(np.arange(0, k, size), k)
            sizes, what = np.ones(n, dtype=np.int64), "batch"
        else:
            assert loads is not None
            cuts, sizes, what = np.arange(k + 1), check_loads(loads, n, k), "partition"
        super().__init__(picked(cuts, sizes, send, seed, what))
