"""Communication-reducing gradient coding (Ye and Abbe 2018)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_integer
from .base import Code
from .roots import roots, stable_root, tau
from .rules import Blocks

__all__ = ["YeAbbe"]


class YeAbbe(Code):
    """Messages of p/m elements: any n - s of them give the exact gradient.

    Gradients are cut into m pieces. A worker computes s + m partial gradients and sends one
    combination of all their pieces, as long as one of them: more computation than the s + 1 that
    are needed to tolerate s stragglers, for an m-th of the communication.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n); where they are more, groups of them as even as can be
        take the place of single ones.
    stragglers : int
        Stragglers to tolerate, s.
    reduce : int
        By how much messages are shorter than gradients, m, at most n - s.
    packed : bool, default True
        Send real gradients as pairs taken for complex numbers, as in `ReedSolomon`. False: as
        complex numbers, twice as long.
    strict : bool, default False
        Refuse codes that lose more than half of float64's digits when as many random workers
        straggle as may; else an `InstabilityWarning` says so.

    Raises
    ------
    ValueError
        If no code has these parameters; says why.
    UnstableCodeError
        If the code is unstable, and `strict`.

    Notes
    -----
    Ye and Abbe, "Communication-computation efficient gradient coding", ICML 2018, section III,
    with two changes that keep it precise: their real evaluation points are roots of unity here, in
    the order that suits the supports (`ReedSolomon`'s "stable" root), and the pieces of the sum are
    the lowest coefficients of the polynomial that the messages are values of, not the highest, so
    that all of B follows from its first s + m entries, for each piece.

    Of partition j, with the holders' points x_r and T_u their polynomial prod_r (1 - x / x_r), cut
    off after degree m - 1 - u: the coefficients of piece u are the values of
    ``x^u T_u(x) prod over the others (1 - x / x_l)``. As T of all its terms times that product is
    1 - x^n, its coefficients below x^m are those of x^u.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.YeAbbe(6, stragglers=1, reduce=2)
    >>> code.load, code.message_size(p=1000)
    (3, 500)
    >>> g = np.arange(24.0).reshape(6, 4)
    >>> messages = [code.encode(i, g[code.partitions(i)]) for i in range(1, 6)]
    >>> np.round(code.decode(range(1, 6), messages, p=4), 9)
    array([60., 66., 72., 78.])
    """

    is_complex = True
    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int,
        reduce: int,
        packed: bool = True,
        strict: bool = False,
    ) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        s, m = check_integer("stragglers", stragglers), check_integer("reduce", reduce)
        if n < 1 or not 0 <= s < n:
            raise ValueError(f"0 <= stragglers < n is needed, not n={n}, stragglers={s}")
        if not 1 <= m <= n - s:
            raise ValueError(f"reduce must be in 1 .. n - s = {n - s}, not {m}")
        if k < n:
            raise ValueError(f"k must be at least n={n}, not {k}")
        self.n, self.k, self.stragglers, self.pieces, self.packed = n, k, s, m, bool(packed)
        self._width = s + m  # groups of partitions that each worker holds
        self._root = stable_root(n, self._width)
        self._cuts = np.concatenate([[0], np.cumsum(k // n + (np.arange(n) < k % n))])
        self.check_stability(strict, "use a smaller reduce, or fewer stragglers")

    @cached_property
    def _table(self) -> NDArray[np.complex128]:
        """Coefficients of the holder at each place of a group, for each piece, up to its phase."""
        n, d, m, q = self.n, self._width, self.pieces, self._root
        alpha = roots(n)
        product = np.ones(1, dtype=np.complex128)  # of (1 - y alpha^(-q r)), lowest degree first
        for r in range(d):
            product = np.append(product, 0) - alpha[-q * r % n] * np.append(0, product)
        place = np.arange(d)
        terms = product[:m] * alpha[q * place[:, None] * np.arange(m) % n]
        cut_off = np.cumsum(terms, axis=1)[:, ::-1]  # after degree m - 1 - u
        table: NDArray[np.complex128] = tau(n, d, q)[:, None] * cut_off
        return table

    def row(self, worker: int) -> tuple[NDArray[np.int64], NDArray[np.complex128]]:
        """Groups worker to worker + d - 1: of the first it is the last holder."""
        n, d, q = self.n, self._width, self._root
        group = (worker + np.arange(d)) % n
        phase = roots(n)[q * worker * np.arange(self.pieces) % n]
        coefficients = self._table[::-1] * phase
        sizes = np.diff(self._cuts)[group]
        held = np.concatenate([np.arange(self._cuts[g], self._cuts[g + 1]) for g in group])
        values = np.repeat(coefficients, sizes, axis=0)
        return held, values if self.pieces > 1 else values[:, 0]

    @cached_property
    def rule(self) -> Blocks:
        return Blocks.one(self.n, self.n - self.stragglers)

    def vector(self, survivors: NDArray[np.int64]) -> NDArray[np.complex128]:
        """The shortest vectors: what extracts coefficient u from all values, less what vanishes.

        ``x_i^-u / n`` does, from the values at all points. Beside it, every x_i^-l of a degree l
        that the polynomial has not, n - s of them and more, adds nothing: so many as stragglers
        make their entries vanish. O(s^3 + n s).
        """
        n, s, q = self.n, self.stragglers, self._root
        if survivors.size < n - s:
            self.raise_too_few(survivors)
        worker = np.arange(n)[:, None]
        whole = roots(n)[-q * worker * np.arange(self.pieces) % n] / n
        idle = roots(n)[-q * worker * np.arange(n - s, n) % n]
        lost = np.ones(n, dtype=bool)
        lost[survivors] = False
        found: NDArray[np.complex128] = whole[survivors]
        if lost.any():
            y = np.linalg.lstsq(idle[lost], whole[lost])[0]
            found = found - idle[survivors] @ y
        return found if self.pieces > 1 else found[:, 0]
