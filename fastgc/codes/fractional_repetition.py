"""Fractional repetition (Tandon, Lei, Dimakis, Karampatziakis 2017), exact or as in ErasureHead."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from .._base.arrays import check_integer
from ..coding.arguments import check_sizes, check_stragglers
from ..coding.cells import CellPrecision, CellScheme, even_cuts
from ..coding.code import Code
from ..coding.precision import Residuals
from ..coding.rules import check_wait


class FractionalRepetition(Code):
    """s + 1 copies of an uncoded scheme on n / (s + 1) workers each.

    The partitions form g = n / (s + 1) blocks, and worker i sums block i mod g. The gradient is the
    sum of one message for each block. In the worst case s + 1 stragglers prevent that, but on
    average the round is ready long before n - s messages.

    With `wait` the code is ErasureHead (Wang, Charles, Papailiopoulos 2019): a round ends with the
    messages of `wait` workers at the latest. It adds up one message for each block that came, as
    least squares would, and leaves out the other blocks. If f random workers respond, the mean
    square of the residual is the mean share of missing blocks, C(n - s - 1, f) / C(n, f).

    Parameters
    ----------
    n : int
        Workers, a multiple of s + 1. `BinaryCode` has no such restriction.
    k : int, optional
        Partitions, at least n / (s + 1); n by default. Blocks are as even as possible.
    stragglers : int, optional
        Stragglers to tolerate, s.
    load : int, optional
        Partitions per worker, instead of `stragglers`: s + 1 = load * n / k.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.

    Raises
    ------
    ValueError
        If no code has these parameters; the error says why.
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int | None = None,
        load: int | None = None,
        wait: int | None = None,
    ) -> None:
        n, k = check_sizes(n, k)
        s = check_stragglers(_tolerated(n, k, stragglers, load), n)
        if n % (s + 1):
            raise ValueError(
                f"fractional repetition needs n to be a multiple of s + 1 = {s + 1}, not {n}; "
                "BinaryCode takes any n"
            )
        blocks = n // (s + 1)
        if k < blocks:
            raise ValueError(f"k must be at least n / (s + 1) = {blocks}, not {k}")
        cuts, once, choices = even_cuts(k, blocks), np.ones(n, np.int64), np.arange(n) % blocks
        wait = check_wait(wait, n)
        super().__init__(_RepetitionScheme(cuts, once, choices, stragglers=s, wait=wait))


class _Precision(CellPrecision):
    """How many blocks do not come, by counting."""

    scheme: _RepetitionScheme

    def known_residuals(self, workers: int) -> Residuals:
        scheme = self.scheme
        # A block is missing if its s + 1 workers are among the n - f that do not respond. At worst
        # the n - f workers are all holders of as many blocks as they can be, the largest ones.
        copies = scheme.stragglers + 1
        mean = math.comb(scheme.n - copies, workers) / math.comb(scheme.n, workers)
        lost = np.sort(np.diff(scheme.cuts))[::-1][: (scheme.n - workers) // copies].sum()
        return Residuals(workers, math.sqrt(mean), math.sqrt(lost / scheme.k), 0, True)


class _RepetitionScheme(CellScheme):
    precision = cached_property(_Precision)


def _tolerated(n: int, k: int, stragglers: int | None, load: int | None) -> int:
    """The stragglers as given, or as a load implies."""
    if load is None and stragglers is not None:
        return stragglers
    if load is None or stragglers is not None:
        raise TypeError("FractionalRepetition takes either stragglers or load")
    copies, rest = divmod(check_integer("load", load) * n, k)
    if rest or not 1 <= copies <= n:
        raise ValueError(
            f"load={load} must make a whole number of copies of n={n} workers' blocks, in 1 .. n: "
            f"load * n / k is {load * n / k:g}"
        )
    return copies - 1
