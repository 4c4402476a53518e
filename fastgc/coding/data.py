"""What workers compute on: partitions of the samples, unless a scheme codes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base.arrays import Array
from .arguments import partition


class Data:
    """Partitions of the samples, one for each that a row may name.

    A scheme that codes the data has a subclass as its `Scheme.data`.

    Attributes
    ----------
    shards : int
        Length of what `encode` returns: rows give numbers below it.
    coded : bool
        Whether the data are coded instead of the gradients, which must then be quadratic in them.
    """

    coded: bool = False

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def encode(self, X: Array, y: Array) -> list[tuple[Array, Array]]:
        """See `fastgc.Code.encode_data`: `shards` pairs."""
        return partition(X, y, self.shards)

    def cancelling(self, shard: Any) -> Callable[[Array], float] | None:
        """How much cancels while a worker computes on a coded block, as a function of theta.

        This is for codes of the data, whose coded residuals stay large while those of the data
        vanish. The function returns the squared norm of the terms that are added up, which is part
        of a message's energy. Default: None, unknown.
        """
        return None
