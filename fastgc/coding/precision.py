"""What a scheme knows of errors: of its messages, its vectors, and what these leave out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from .. import kernels
from .._base.arrays import Array, Floats, Ints
from ..kernels.rows import sums_of
from .data import Data
from .format import Layout
from .messages import Messages

# At most this many coefficients are kept, to compute what combinations of messages leave out.
ENTRIES_KEPT = 1 << 23


class Residuals(NamedTuple):
    """What gradients leave out if they are decoded from all messages of `workers` workers.

    Attributes
    ----------
    workers : int
        Number of workers that respond.
    mean : float
        Root mean square of `Approximation.residual` over the sets of workers.
    worst : float
        The largest residual of these sets.
    sets : int
        Number of sets examined; 0 if a formula covers all.
    exhaustive : bool
        Whether these are all sets. If not, the true worst case may be worse.
    """

    workers: int
    mean: float
    worst: float
    sets: int
    exhaustive: bool


class Rows(Protocol):
    """A `Scheme`, as far as `Precision` knows it."""

    n: int
    k: int
    exact: bool

    @property
    def load(self) -> int: ...
    @property
    def loads(self) -> Ints: ...
    @property
    def is_complex(self) -> bool: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def data(self) -> Data: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def entries(self) -> tuple[Ints, Ints, Array]: ...
    def message_rows(self) -> Iterator[tuple[Ints, Array]]: ...
    def partitions(self, worker: int, index: int | None = None) -> Ints: ...
    def coefficients(self, worker: int, index: int | None = None) -> Array: ...


class Precision:
    """Errors of messages and of vectors, from the rows of a scheme.

    A scheme that knows more, or knows it sooner, has a subclass as its `Scheme.precision`.

    Attributes
    ----------
    unbiased : bool
        Whether vectors with a residual are scaled so that the mean of a_F B_F is 1. Default: False;
        they are least-squares optima, for which that mean is 1 - residual^2.
    """

    unbiased: bool = False

    def __init__(self, scheme: Rows) -> None:
        self.scheme = scheme

    # ------------------------------------------------------------------------------- messages

    @cached_property
    def row_norms(self) -> Floats:
        """Squared 2-norm of each message, if that of the gradient is 1."""
        with np.errstate(over="ignore"):
            norms = [float(np.sum(np.abs(values) ** 2)) for _, values in self.scheme.message_rows()]
        return np.array(norms) / self.scheme.k

    @cached_property
    def unevenness(self) -> float:
        """Largest ratio of the norm of a message's coefficients to the least nonzero one."""
        largest = 0.0
        for _, values in self.scheme.message_rows():
            sizes = np.abs(values)
            if sizes.any():
                largest = max(largest, float(np.linalg.norm(sizes) / sizes[sizes > 0].min()))
        return largest

    @cached_property
    def row_sums(self) -> Floats:
        """Sum of ``|B_ij|`` over each message; Inf beyond float64."""
        return np.array([float(np.abs(values).sum()) for _, values in self.scheme.message_rows()])

    @property
    def copies(self) -> Ints | None:
        """A number for each message; copies, whose errors are the same, have the same number.

        Default: None. No two messages are copies, or vectors use only one of them.
        """
        return None

    @property
    def message_roundings(self) -> float:
        """Roundings in a message: its products and sums, and the coefficients of a and of B."""
        return sums_of(self.scheme.load / self.scheme.messages.per_worker) + 2

    @property
    def data_roundings(self) -> float:
        """Roundings that coded data add to each partial gradient. Default: none."""
        return 0.0

    def computation_roundings(self, terms: int) -> int:
        """Roundings in a computation of `terms` terms that are due to the code. Default: none."""
        return 0

    # -------------------------------------------------------------------------------- vectors

    def deviation(self, survivors: Ints, vector: Array) -> Array:
        """``a_F B_F - 1``, summed up in extended precision if the platform has it.

        Default: computed from the rows, for any vector.

        Returns
        -------
        (k,) float64 or complex128 array
            For each partition.
        """
        scheme = self.scheme
        if scheme.n * scheme.load <= ENTRIES_KEPT:
            total: Array = np.empty(scheme.data.shards, scheme.entries[2].dtype)
            self._size(vector, survivors, total)
        else:
            kind = np.clongdouble if scheme.is_complex else np.longdouble
            total = np.zeros(scheme.data.shards, dtype=kind)
            with np.errstate(all="ignore"):
                for number, factor in zip(survivors.tolist(), vector.astype(kind), strict=True):
                    sender = scheme.messages.sender(number)
                    total[scheme.partitions(*sender)] += scheme.coefficients(*sender) * factor
                total = (total - 1).astype(np.complex128 if scheme.is_complex else np.float64)
        return total.real if scheme.layout == "complex" else total

    @cached_property
    def _size(self) -> Callable[..., float]:
        """C's `deviation`, which returns its size."""
        return kernels.unchecked.bind_deviation(*self.scheme.entries, self.scheme.data.shards)

    def residual(self, survivors: Ints, vector: Array) -> float:
        """2-norm of `deviation`, over that of as many ones."""
        scheme, own = self.scheme, type(self).deviation is not Precision.deviation
        if own or scheme.layout == "complex" or scheme.n * scheme.load > ENTRIES_KEPT:
            lacking = self.deviation(survivors, vector)
            with np.errstate(over="ignore", invalid="ignore"):
                return float(np.linalg.norm(lacking)) / math.sqrt(len(lacking))
        return self._size(vector, survivors)

    def left_out(self, survivors: Ints, vector: Array) -> float:
        """What this vector leaves out besides rounding: 0 for exact codes, otherwise computed."""
        return 0.0 if self.scheme.exact else self.residual(survivors, vector)

    def vector_errors(self, survivors: Ints, vector: Array) -> Floats | None:
        """Expected squared error of each coefficient, as it was computed.

        Default: None. Coefficients are precise to a rounding or two, or the residual contains
        errors.
        """
        return None

    # --------------------------------------------------------------------- of a code as a whole

    def typical_error(self) -> float | None:
        """Typical relative error in float64, with as many stragglers as are tolerated.

        Default: None; it is then found from random sets of survivors.
        """
        return None

    def known_residuals(self, workers: int) -> Residuals | None:
        """`fastgc.Code.residuals` by a formula, for so many workers. Default: None, unknown."""
        return None
