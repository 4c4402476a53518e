"""Approximate codes by block designs (Kadhe, Koyluoglu, Ramchandran 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Bools, Floats, Ints, as_array, check_integer
from ..coding.cells import IncidenceScheme
from ..coding.code import Code
from ..coding.rules import Blocks, Rule, check_wait
from ..coding.scheme import Residuals
from ..numerics.graphs import Field, complete, prime_power

DESIGNS = ("projective", "affine", "hyperplanes", "paley", "pairs")

# Largest numbers of workers of designs that have names: their whole matrix is built.
POINTS, POINTS_PAIRED = 2_048, 200


class BIBDCode(Code):
    """Workers are points of a balanced incomplete block design, and partitions are its blocks.

    Every worker has r of b partitions, and any two workers have the same number, lambda, in common.
    Least squares therefore combine any f messages with the same coefficients,

        a_i = r / (r - lambda + lambda f),

    and leave out the same amount: the square of the residual is ``1 - r^2 f / (b (r - lambda +
    lambda f))``. An adversary who chooses the stragglers does no more harm than chance. The
    gradient is exact only if all n messages came.

    Parameters
    ----------
    n : int
        Workers, which are the points.
    k : int, optional
        Partitions, a multiple of the number of blocks b; b by default. If there are more than b,
        groups of them take the place of single partitions.
    design : str or (n, b) array, optional
        One of

        - ``"projective"``: lines of a projective plane over q elements, n = q^2 + q + 1 = b,
          r = q + 1, lambda = 1;
        - ``"affine"``: lines of an affine plane, n = q^2, b = q^2 + q, r = q + 1, lambda = 1;
        - ``"hyperplanes"``: those of a projective space of m > 2 dimensions,
          n = (q^(m+1) - 1) / (q - 1) = b, r = (q^m - 1) / (q - 1);
        - ``"paley"``: the squares of a field of n elements and their translates, n = b a power of a
          prime that is 3 modulo 4, r = (n - 1) / 2;
        - ``"pairs"``: all pairs of workers, for any n up to 200: b = n (n - 1) / 2, r = n - 1,
          lambda = 1;

        where q is a power of a prime; or a matrix of 0 and 1 that says which partitions each worker
        has. Default: the first of these designs that exists for n workers.
    wait : int, optional
        Most workers that a round waits for. Default: all n.

    Attributes
    ----------
    design : str or None
        The name of the design, if it has one.

    Raises
    ------
    ValueError
        If there is no such design; the error says for which n there is one.

    Notes
    -----
    Decoding uses the paper's optimal vector. Points are workers, as in the paper, whose designs are
    mostly symmetric, n = b: points and blocks are then interchangeable.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.BIBDCode(13, wait=10)  # a projective plane over 3 elements
    >>> code.load, code.design, round(code.residual(range(10)), 3)
    (4, 'projective', 0.231)
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        design: str | ArrayLike | None = None,
        wait: int | None = None,
    ) -> None:
        n = check_integer("n", n)
        if n < 3:
            raise ValueError(f"a design has at least 3 points, workers, not n={n}")
        self.design: str | None = None
        if design is None or isinstance(design, str):
            self.design, incidence = _named(design, n)
        else:
            incidence = _checked(design, n)
        b = incidence.shape[1]
        k = b if k is None else check_integer("k", k)
        if k < 1 or k % b:
            raise ValueError(f"k must be a multiple of the design's {b} blocks, not {k}")
        super().__init__(_DesignScheme(incidence, k // b, check_wait(wait, n)))


class _DesignScheme(IncidenceScheme):
    stragglers = 0

    def __init__(self, incidence: Bools, size: int, wait: int | None) -> None:
        blocks = incidence.shape[1]
        cuts = np.arange(blocks + 1) * size
        super().__init__(cuts, [np.flatnonzero(row) for row in incidence], wait)
        # r and lambda of the design.
        self._copies = int(incidence[0].sum())
        self._common = int((incidence[0] & incidence[1]).sum())

    @cached_property
    def rule(self) -> Rule:
        return self.waiting(Blocks.one(self.n, self.n))

    def vector(self, survivors: Ints) -> Floats:
        f = survivors.size
        if self.wait is None and f < self.n:
            self.raise_too_few(survivors)
        r, common = self._copies, self._common
        return np.full(f, r / (r - common + common * f))

    def known_residuals(self, workers: int) -> Residuals:
        # Any f rows have the same Gram matrix, and so the same residual.
        r, common, b = self._copies, self._common, self.sizes.size
        whole = b * (r - common + common * workers)
        left = math.sqrt((whole - workers * r * r) / whole)
        return Residuals(workers, left, left, 0, True)


class _Design(NamedTuple):
    """A design that exists: its number of blocks, each held by `holders` points."""

    name: str
    blocks: int
    holders: int
    make: Callable[[], Bools]


def _designs(n: int) -> Iterator[_Design]:
    """All named designs of n points."""
    if not 3 <= n <= POINTS:
        return
    root = math.isqrt(n)
    bases = [q for q in range(2, root + 1) if prime_power(q)]
    for q in bases:
        if q * q + q + 1 == n:
            yield _Design("projective", n, q + 1, partial(_hyperplanes, q, 2))
    if root in bases and root * root == n:
        yield _Design("affine", n + root, root, partial(_affine, root))
    for q in bases:
        m, size = 3, q**3 + q * q + q + 1
        while size < n:
            m, size = m + 1, size * q + 1
        if size == n:
            holders = (q**m - 1) // (q - 1)
            yield _Design("hyperplanes", n, holders, partial(_hyperplanes, q, m))
    if n > 3 and n % 4 == 3 and prime_power(n):
        yield _Design("paley", n, n // 2, partial(_paley, n))
    if n <= POINTS_PAIRED:
        yield _Design("pairs", n * (n - 1) // 2, 2, partial(_pairs, n))


def design_for(n: int, k: int, holders: int) -> str | None:
    """The named design of n workers whose blocks have nearest to `holders` holders; None if none.

    Designs for k partitions come first, if there are any.
    """
    found = list(_designs(n))
    fitting = [design for design in found if k % design.blocks == 0] or found
    nearest = min(fitting, key=lambda design: abs(design.holders - holders), default=None)
    return None if nearest is None else nearest.name


def _named(name: str | None, n: int) -> tuple[str, Bools]:
    """The name and matrix of this design, or of the first one there is."""
    if name not in (None, *DESIGNS):
        raise ValueError(f"design must be one of {', '.join(DESIGNS)} or a matrix, not {name!r}")
    for design in _designs(n):
        if name in (None, design.name):
            return design.name, design.make()
    wanted = {name} if name else set(DESIGNS) - {"pairs"}
    near = sorted(
        (m for m in range(3, 2 * n + 40) if any(d.name in wanted for d in _designs(m))),
        key=lambda m: abs(m - n),
    )
    known = ", ".join(map(str, sorted(near[:4])))
    others = ", ".join(design.name for design in _designs(n)) or "none"
    raise ValueError(
        f"there is no design {name!r} of n={n} workers: there is one of {known}; of {n} there is "
        f"{others}"
        if name
        else f"no design of n={n} workers is known here: there are some of {known}"
    )


def _checked(design: ArrayLike, n: int) -> Bools:
    """Check a matrix that a user gave."""
    given = as_array("design", design)
    if given.ndim != 2 or len(given) != n:
        raise ValueError(
            f"design must be a matrix with a row for each of n={n} workers, not of shape "
            f"{given.shape}"
        )
    if not np.isin(given, (0, 1)).all():
        raise ValueError("design must consist of 0 and 1")
    N = given.astype(np.int64)
    for what, counts in (
        ("each worker must have the same number of partitions", N.sum(axis=1)),
        ("each partition must lie on the same number of workers", N.sum(axis=0)),
        ("any two workers must have the same number in common", (N @ N.T)[np.triu_indices(n, 1)]),
    ):
        if np.ptp(counts):
            raise ValueError(
                f"it is no balanced design: {what}, not {counts.min()} and {counts.max()}"
            )
    if N.all() or not N.any():
        raise ValueError("it is no incomplete design: each worker must have some of the partitions")
    return given.astype(np.bool_)


def _hyperplanes(q: int, m: int) -> Bools:
    """Points and hyperplanes of the projective space of m dimensions over q elements."""
    field = Field.of(q)
    # Points up to factors: the first coordinate that is not 0 is 1.
    points = np.array(
        [x for x in product(range(q), repeat=m + 1) if any(x) and next(filter(None, x)) == 1]
    )
    total = np.zeros((len(points), len(points)), dtype=np.int64)
    for i in range(m + 1):
        total = field.plus[total, field.times[points[:, None, i], points[:, i]]]
    incident: Bools = total == 0
    return incident


def _affine(q: int) -> Bools:
    """Points and lines of the affine plane over q elements: y = s x + t, and x = t."""
    field = Field.of(q)
    x, y = (each.ravel() for each in np.indices((q, q)))
    lines = [y == field.plus[field.times[slope, x], t] for slope in range(q) for t in range(q)]
    return np.stack([*lines, *(x == t for t in range(q))], axis=1)


def _paley(q: int) -> Bools:
    """Elements of a field, and translates of its squares."""
    field = Field.of(q)
    incident = np.zeros((q, q), dtype=np.bool_)
    incident[field.plus[:, field.squares()], np.arange(q)[:, None]] = True
    return incident


def _pairs(n: int) -> Bools:
    pairs = complete(n)
    incident = np.zeros((n, len(pairs)), dtype=np.bool_)
    incident[pairs.T, np.arange(len(pairs))] = True
    return incident
