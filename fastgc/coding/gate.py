"""Whether a round waits for more messages than suffice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from .._base.arrays import Array, Ints
from ..kernels.rows import DOUBLE
from .format import Format
from .messages import Messages


class Vectors(Protocol):
    """A `Scheme`, as far as its `Gate` knows it."""

    n: int

    @property
    def awaited(self) -> int | None: ...
    @property
    def messages(self) -> Messages: ...
    def vector(self, survivors: Ints, unit: float = DOUBLE) -> Array: ...
    def format(self, p: int, dtype: DTypeLike, message_dtype: DTypeLike | None = None) -> Format:
        """As `Scheme.format`."""


class Gate:
    """No round waits for more messages than suffice.

    A scheme whose rounds do, because vectors of some sets are imprecise, has a subclass as its
    `Scheme.gate`.
    """

    def __init__(self, scheme: Vectors) -> None:
        self.scheme = scheme

    @property
    def waits(self) -> bool:
        """Whether `doubt` is ever above 0, so that rounds may wait for more messages."""
        return False

    def doubt(self, survivors: Ints, vector: Array, form: Format) -> float:
        """Expected relative error of the gradient with this vector if it is too large, otherwise 0.

        If it is above 0, rounds wait for more messages, but for at most n - s workers.
        """
        return 0.0

    def awaits_more(self, survivors: Ints, doubt: Callable[[], float] | None = None) -> bool:
        """Whether a round waits for a better set of messages although these suffice.

        It no longer does once all messages of n - s workers have come.

        Parameters
        ----------
        survivors : (f,) int64 array
        doubt : callable, optional
            Returns the `doubt`, or raises OverflowError. Default: that of float64 gradients and the
            scheme's vector.
        """
        if not self.waits:
            return False
        try:
            if not (self._of_doubles(survivors) if doubt is None else doubt()):
                return False
        except OverflowError:
            pass
        scheme = self.scheme
        sent = np.bincount(scheme.messages.workers[survivors], minlength=scheme.n)
        whole = sent == scheme.messages.counts
        return int(whole.sum()) < (scheme.n if scheme.awaited is None else scheme.awaited)

    def _of_doubles(self, survivors: Ints) -> float:
        form = self.scheme.format(1, np.float64)
        return self.doubt(survivors, self.scheme.vector(survivors), form)
