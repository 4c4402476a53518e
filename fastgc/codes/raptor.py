"""Batched raptor codes (Wang, Liu, Shroff 2019)."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Bools, Floats, Ints, at_least
from ..coding.arguments import check_between, check_sizes
from ..coding.cache import VectorFunction
from ..coding.cells import IncidenceScheme, even_cuts
from ..coding.code import Code
from ..coding.rules import check_wait
from ..kernels.rows import DOUBLE

METHODS = ("auto", "peeling")


class RaptorCode(Code):
    """Each worker sums a random number of random batches, as the symbols of a raptor code.

    Each worker's number of batches (its degree) is random. Any n - s messages almost surely give
    all batches except a fraction of about `missing`, however large n is, with a mean load of
    O(log(1 / missing)) batches. Peeling finds them: a message of one batch gives that batch;
    subtracting it from other messages leaves more messages of one batch, and so on.

    The default, least squares, never has a larger residual than peeling, and rounding errors hardly
    grow. Peeling takes linear time, but it substitutes batches into each other so often that
    rounding errors of messages grow by a factor of 10 at 100 workers, and of 1e+4 at 1,000, with
    ``missing=0.05``.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    wait : int
        Most workers that a round waits for, n - s.
    missing : float, default 0.1
        Fraction of the batches that may be missing, below 1/4: epsilon of the paper.
    batches : int, optional
        Number of batches, which are as even as possible. Default:
        ``n / (ceil(1 / log(n / s)) + 1)``, rounded down, as in the paper.
    seed : int, default 0

    Attributes
    ----------
    batches : int

    Raises
    ------
    ValueError
        If the parameters do not fit.

    Notes
    -----
    The method "auto" decodes by least squares, and keeps vectors of recent survivor sets. The
    paper's method is "peeling". The guarantee holds for large n. With few workers, peeling often
    ends early; least squares do not depend on it.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.RaptorCode(40, wait=30)
    >>> code.batches, code.residual(range(30)) < 1e-9
    (20, True)
    """

    scheme: RaptorScheme
    _known_methods = METHODS

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        wait: int,
        missing: float = 0.1,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        n, k = check_sizes(n, k)
        if wait is None:
            raise TypeError("wait must be a number of workers, not None")
        wait = check_wait(wait, n)
        chances = degrees(missing)
        if batches is None:
            s = n - wait
            count = n // (math.ceil(1 / math.log(n / s)) + 1 if s else 1)
            count = max(min(count, k), 1)
        else:
            count = check_between("batches", batches, 1, k, "k")
        self.batches = count
        rng = np.random.default_rng(at_least("seed", seed, 0))
        drawn = np.minimum(1 + rng.choice(chances.size, size=n, p=chances), count)
        held = [np.sort(rng.choice(count, size=size, replace=False)) for size in drawn.tolist()]
        super().__init__(RaptorScheme(even_cuts(k, count), held, wait))

    def peel(self, survivors: ArrayLike) -> tuple[Floats, Bools]:
        """Compute a decoding vector by peeling, and the batches that it gives, in linear time.

        Parameters
        ----------
        survivors : (f,) integer array
            Workers whose messages came.

        Returns
        -------
        (f,) float64 array
            It counts each of these batches once, and the others not at all.
        (batches,) bool array
        """
        return self.scheme.peel(self.scheme.check_survivors(survivors))


class RaptorScheme(IncidenceScheme):
    """The scheme of `RaptorCode`."""

    methods = METHODS

    def bind_vector(self, survivors: Ints, vector: Floats, unit: float = DOUBLE) -> VectorFunction:
        by_squares = super().bind_vector(survivors, vector, unit)

        def fill(f: int, method: str) -> None:
            if method != "peeling":
                by_squares(f, method)
                return
            came = self.check_survivors(survivors[:f])
            if self.rule.missing(came):
                self.raise_too_few(came)
            vector[:f] = self.peel(came)[0]

        return fill

    def peel(self, survivors: Ints) -> tuple[Floats, Bools]:
        """See `RaptorCode.peel`."""
        # Lists: access to NumPy's elements would take longer than the work on them.
        sums = [self._batches[worker] for worker in survivors.tolist()]
        holders: list[list[int]] = [[] for _ in range(self.sizes.size)]
        for at, batches in enumerate(sums):
            for batch in batches:
                holders[batch].append(at)
        unknown = [len(batches) for batches in sums]
        known = [False] * self.sizes.size
        ready = [at for at, count in enumerate(unknown) if count == 1]
        order: list[tuple[int, int]] = []
        for at in ready:  # the loop appends to it
            for batch in sums[at]:
                if not known[batch]:
                    break
            else:
                continue
            known[batch] = True
            order.append((at, batch))
            for other in holders[batch]:
                unknown[other] -= 1
                if unknown[other] == 1:
                    ready.append(other)
        # Each batch must count once. The last batches come first: what a message contains of
        # batches found before it is subtracted by their messages.
        due, vector = [1.0] * self.sizes.size, [0.0] * survivors.size
        for at, batch in reversed(order):
            if factor := due[batch]:
                vector[at] = factor
                for other in sums[at]:
                    due[other] -= factor
        return np.array(vector), np.array(known)

    @cached_property
    def _batches(self) -> list[list[int]]:
        """The batches of each worker."""
        return [held.tolist() for held in self.held]


def degrees(missing: float) -> Floats:
    """Probabilities of the degrees 1, 2, ... of a raptor code (Shokrollahi 2006).

    With D = floor(1 / missing) and u = 2 missing (1 - 2 missing) / (1 - 4 missing)^2 these are u
    for degree 1, 1 / (i (i - 1)) for i = 2 .. D, and 1 / D for D + 1, all divided by u + 1.
    """
    if not 0 < missing < 0.25:
        raise ValueError(f"missing must be more than 0 and less than 1/4, not {missing}")
    D = math.floor(1 / missing)
    u = 2 * missing * (1 - 2 * missing) / (1 - 4 * missing) ** 2
    i = np.arange(2, D + 1)
    return np.concatenate([[u], 1 / (i * (i - 1)), [1 / D]]) / (u + 1)
