"""Reed-Solomon gradient coding (Halbawi, Azizan-Ruhi, Salehi, Hassibi 2017)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from .. import kernels
from .._base.arrays import (
    Array,
    Bools,
    Complexes,
    Floats,
    Ints,
    check_flag,
    check_index,
    check_integer,
    check_real,
    check_word,
)
from ..coding.arguments import check_sizes
from ..coding.clusters import (
    SPANNED,
    Cluster,
    check_speeds,
    load_and_stragglers,
    log_totals,
    roots,
    shares_by_speed,
    shares_of,
    tau,
    valid_root,
)
from ..coding.code import Code
from ..coding.near_exact import (
    affordable,
    lacking,
    left_squared,
    longest_kept,
    nearer_vector,
    split,
    square,
    typical_error,
)
from ..coding.precision import Precision
from ..coding.rules import Blocks, Rule
from ..coding.scheme import Scheme, VectorFunction, vector_function
from ..coding.trust import UNSTABLE, check_stability
from ..errors import NotDecodableError
from ..kernels import fourier
from ..kernels.cover import CellsPlan
from ..kernels.cyclic import (
    LOCATOR,
    LOOKUP,
    SPREAD,
    CyclicPlan,
    Status,
    cyclic_tables,
)
from ..kernels.rows import DOUBLE
from ..numerics import vandermonde
from ..numerics.parity import CHECKS, Parity
from ..numerics.solve import SOLVED, Equations

# "auto" chooses among survivors only if that takes at most so many steps: 70 microseconds, as long
# as a near-exact vector, which gains as much from spare messages. Measured with an eighth of the
# stragglers come after all, in microseconds: 54 and 113 at n = 512, s = 200; 248 and 62 at 1000,
# 100; 58,000 and 2,100 at 16384, 1024. The near-exact vector always had the smaller error.
SPREAD_STEPS = 1 << 18

# Of more workers, checks by the rows name nobody.
_SEARCHED = 64


# Methods for decoding vectors: see the class.
METHODS = (
    "auto",
    "locator",
    "spread",
    "fft",
    "lookup",
    "vandermonde",
    "leja",
    "natural",
    "solve",
    "near-exact",
)


class ReedSolomon(Code):
    """Reed-Solomon gradient code: the exact gradient from any f = n - s workers.

    Each column of B is a codeword of RS[n, n-d+1] with the support that balances the workers'
    loads, for every valid n, k and w (Algorithms 1, 2 and 4). B is never stored: its columns are
    cyclic shifts of one or two vectors tau.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    stragglers : int, optional
        Stragglers to tolerate, s. The load is the smallest that tolerates them. If k != n, the code
        may tolerate more: ``code.stragglers`` says how many.
    load : int, optional
        Partitions per worker, w. The code tolerates floor(n w / k) - 1 stragglers, eq. (2).
        Give `stragglers`, `load` or both.
    root : "stable" or int, default "stable"
        The evaluation root is alpha = exp(2 pi i root / n); `root` must be coprime to n. "stable"
        chooses the root for which the largest ``|B_ij|`` is smallest. The papers use 1, whose
        rounding errors are about ``u (n / 2 pi)^s / ((s/2)!)^2`` times ``sqrt(n) |a|``, where u is
        the unit roundoff and a the decoding vector. No digit of the gradient is then right with 8
        stragglers at n = 1024, or with 12 at n = 256.
    packed : bool, default True
        Send pairs of real numbers as complex ones, so that a message is as long as the gradient
        (Ramamoorthy and Tang 2019, arXiv 1910.06515: rotations).
        False: send as many complex numbers as the gradient has elements, as in the paper.
    clusters : int or "auto", default 1
        The number of groups into which workers and partitions are split, each with its own code.
        Load and worst-case tolerance stay the same. Decoding is cheaper and better conditioned, and
        many smaller sets of survivors suffice. "auto": as many as possible, floor(n / (s+1)) if k
        allows.
    speeds : sequence of n positive numbers, optional
        Relative speeds of the workers; needs `stragglers`. Clusters get shares of the partitions,
        and so loads, such that all of them end at about the same time. A cluster of m workers waits
        for m - s. Workers with adjacent numbers form a cluster. If clusters have more than s + 1
        workers, number the workers by speed, so that those of a cluster are equally fast. If
        clusters have s + 1 workers, the first message of each suffices: put the fastest workers
        into different clusters. Default: all workers are equally fast.
    precision : float, default 0
        The relative error of gradients that is good enough. If an exact vector has at most this
        expected error, the method "auto" uses it, and does not replace it by a near-exact one. This
        saves time if hundreds of stragglers are tolerated.
    strict : bool, default False
        Raise an error if the code loses more than half of float64's digits when s random workers
        straggle. Otherwise this is an `InstabilityWarning`.

    Raises
    ------
    ValueError
        If no code has these parameters; the error says why.
    UnstableCodeError
        If `strict` and the code is unstable.

    Notes
    -----
    Any n - s survivors decode (with clusters, enough in each). Where columns of B are equal, far
    fewer may: if fewer than n - s differ. With k = n there are n / gcd(s + 1, n) that differ. If
    s + 1 divides n, workers hold the same partitions or none in common, and one of each kind is
    enough: on average 6.7 of 20 workers with 4 stragglers, instead of 16. The rank of the rows says
    which messages suffice. So it does if messages are not packed, as each is then two equations for
    real gradients. (If more than 128 columns differ, that takes too long, and rounds wait for n - s
    messages. With ``verify=`` those of more than 64 workers compare no fewer than n - s + 1, unless
    one of each kind is enough: among many workers only these tell who lies.) Only the method "auto"
    decodes from fewer than n - s, by one message of each kind, or by the shortest vector.

    With more survivors than needed there are many decoding vectors, and some make the gradient more
    precise than others. One of these methods computes the vector:

    - ``"locator"``: a_i = (1/n) prod over stragglers j of (1 - alpha^(i-j)), O(f s), from every
      message that came;
    - ``"spread"``: the same, unless that amplifies errors and a cluster has more survivors than it
      needs. Then it uses the survivors whose roots are spread best, in Leja order, O(f^2), and the
      others' entries are 0. At n = 4096, s = 1024 in clusters this reduces the error from 1e-3 to
      1e-15;
    - ``"fft"``: the logarithm of the locator formula, by a convolution, O(n log n), for hundreds of
      stragglers;
    - ``"lookup"``: Algorithm 3, a_i = prod over the other survivors j of (1 - alpha^(i-j))^-1 from
      a table, O(f^2);
    - ``"vandermonde"``: Björck and Pereyra's algorithm on the system of eq. (12), O(f^2), with
      nodes in golden-section steps; ``"leja"`` takes them in Leja order, and ``"natural"`` around
      the circle, which loses all digits from about f = 40 on;
    - ``"solve"``: LAPACK on that system, O(f^3); the error grows with its condition number;
    - ``"near-exact"``: a_i = p(alpha^i) with a polynomial p that nearly vanishes on the stragglers
      and is small on the survivors. Its residual is of the order of rounding errors, and `residual`
      and `trust` report it. O(n log n) for hundreds of random stragglers, and O(s^2) for most other
      sets. At n = 1000, s = 100 with neighbouring stragglers it reduces the error from 1e+13 to
      3e-15. If fewer columns of B differ than workers survive, it takes the shortest exact vector
      if that is good enough;
    - ``"auto"``: "spread". In clusters of more than about 500 workers, it does not choose among
      survivors, and uses the quickest of "locator", "lookup" and "fft". If that vector would
      lose more than three eighths of the messages' digits (an error of 1e-10 in float64), or have
      an error above `precision`, "auto" uses "near-exact" in that cluster. If more than 128 workers
      straggle in it, the polynomial comes before the shortest vector, and 1e-8 is good enough.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.ReedSolomon(n=8, k=4, load=3)
    >>> code.stragglers, code.threshold
    (5, 3)
    >>> g = np.arange(12.0).reshape(4, 3)
    >>> messages = [code.encode(i, g[code.partitions(i)]) for i in (6, 0, 3)]
    >>> np.round(code.decode([6, 0, 3], messages, p=3), 12)
    array([18., 22., 26.])
    """

    scheme: ReedSolomonScheme
    stragglers: int
    _known_methods = METHODS

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int | None = None,
        load: int | None = None,
        root: Literal["stable"] | int = "stable",
        packed: bool = True,
        clusters: Literal["auto"] | int = 1,
        speeds: Sequence[float] | None = None,
        precision: float = 0.0,
        strict: bool = False,
    ) -> None:
        n, k = check_sizes(n, k)
        precision = check_real("precision", precision)
        load = None if load is None else check_integer("load", load)
        stragglers = None if stragglers is None else check_integer("stragglers", stragglers)
        root = root if root == "stable" else check_integer('root, unless "stable",', root)
        clusters = (
            clusters if clusters == "auto" else check_integer('clusters, unless "auto",', clusters)
        )
        if speeds is not None and (stragglers is None or load is not None):
            raise ValueError("speeds= goes with stragglers= alone: the loads follow from them")
        load, wanted = load_and_stragglers(n, k, load, stragglers)
        if speeds is None:
            shares = shares_of(n, k, load, wanted, clusters)
        else:
            shares = shares_by_speed(check_speeds(speeds, n), k, wanted, clusters)
        made = []
        first_worker = first_partition = 0
        for m, share in shares:
            w = min(load, share) if speeds is None else -(-(wanted + 1) * share // m)
            q = valid_root(m, share, w, root)
            made.append(Cluster(first_worker, first_partition, m, share, w, q))
            first_worker += m
            first_partition += share
        packed = check_flag("packed", packed)
        super().__init__(ReedSolomonScheme(tuple(made), packed=packed, precision=precision))
        other = 'root="stable"' if root != "stable" else 'clusters="auto"'
        check_stability(self.scheme, strict, f"use {other}", limit=max(UNSTABLE, precision))


# Up to so many coefficients in all rows, adding them up takes less time than transforms do.
SMALL = 1 << 11


class _Precision(Precision):
    """Errors by transforms, in O(n log n)."""

    scheme: ReedSolomonScheme

    def typical_error(self) -> float:
        """As for any code, but from a sample of the survivors' coefficients: a few milliseconds."""
        scheme = self.scheme
        if scheme._cells is not None:  # a message is only divided by its coefficient
            return DOUBLE * math.sqrt(scheme.load + 2)
        largest = max(scheme.parts, key=lambda c: c.m)
        s = -(-scheme.stragglers * largest.m // scheme.n)  # its share; all, if there is no other
        return typical_error(largest, s, scheme._good_enough, scheme._products == "spread")

    @cached_property
    def row_norms(self) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(log_totals(self.scheme.parts, 2) - math.log(self.scheme.k))

    @cached_property
    def row_sums(self) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(log_totals(self.scheme.parts, 1))

    @cached_property
    def copies(self) -> Ints | None:
        # A worker that computes all partitions of its cluster sends their sum, as all of them do.
        whole = [c for c in self.scheme.parts if c.w == c.k and c.m > 1]
        if not whole:
            return None
        number = np.arange(self.scheme.n)
        for c in whole:
            number[c.first_worker :][: c.m] = c.first_worker
        return number

    def left_out(self, survivors: Ints, vector: Array) -> float:
        """The residual; unless the code is small, by transforms, with what their rounding adds."""
        scheme = self.scheme
        # Coefficients of a cell may differ by more than a rounding.
        if scheme._cells is not None or scheme.n * scheme.load <= SMALL:
            return self.residual(survivors, vector)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(scheme.parts) == 1 and scheme.layout != "complex":
                left = math.sqrt(left_squared(scheme.parts[0].alone, survivors, vector))
            else:
                found = lacking(scheme.parts, survivors, vector)
                left = float(np.linalg.norm(found.real if scheme.layout == "complex" else found))
        return left / math.sqrt(scheme.k) if left < np.inf else math.inf


class ReedSolomonScheme(Scheme):
    """The scheme of `ReedSolomon`: its matrix is the direct sum of its `parts`, the clusters."""

    precision = cached_property(_Precision)
    is_complex = True
    stragglers: int
    methods = METHODS

    def __init__(
        self, clusters: tuple[Cluster, ...], *, packed: bool, precision: float = 0.0
    ) -> None:
        self.parts, self.packed, self._good_enough = clusters, packed, precision
        self.clusters = len(clusters)
        self.n, self.k = sum(c.m for c in clusters), sum(c.k for c in clusters)
        self.load = max(c.w for c in clusters)
        self.stragglers = min(c.tolerance for c in clusters)

    # ------------------------------------------------------------------------------ encoding

    def row(self, worker: int) -> tuple[Ints, Complexes]:
        """A worker's row in O(w): columns of B are cyclic shifts of tau."""
        return _rows(self._cluster_of(check_index("worker", worker, self.n)), worker)

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Array]:
        found = [_rows(c, c.first_worker + np.arange(c.m)[:, None]) for c in self.parts]
        held, values = zip(*((held.ravel(), values.ravel()) for held, values in found), strict=True)
        return np.append(0, np.cumsum(self.loads)), np.concatenate(held), np.concatenate(values)

    def _cluster_of(self, worker: int) -> Cluster:
        return self.parts[bisect_right(self.parts, worker, key=attrgetter("first_worker")) - 1]

    # ----------------------------------------------------------------------------- stability

    @property
    def loads(self) -> Ints:
        workers, held = zip(*((c.m, c.w) for c in self.parts), strict=True)
        return np.repeat(np.array(held, dtype=np.int64), workers)

    def rings(self) -> list[Ints]:
        # In the order of their roots on the circle.
        return [c.first_worker + np.arange(c.m) * pow(c.q, -1, c.m) % c.m for c in self.parts]

    # ------------------------------------------------------------------------------ decoding

    @cached_property
    def _plan(self) -> CyclicPlan:
        return CyclicPlan(cyclic_tables([(c.m, c.q, c.m - c.tolerance) for c in self.parts]))

    @cached_property
    def _products(self) -> str:
        """The method that "auto" uses for few factors: see `SPREAD_STEPS`."""
        steps = sum(c.m * (c.m - c.tolerance) for c in self.parts)
        return "spread" if steps <= SPREAD_STEPS else "locator"

    @cached_property
    def _transforms_from(self) -> int:
        """The number of factors, stragglers or survivors, from which "auto" uses transforms.

        As many as there are workers if "auto" chooses among survivors, or no set that decodes has
        enough factors for transforms to be faster.
        """
        least = self.clusters * fourier.crossover(max(c.m for c in self.parts))
        products = self._products == "spread" or self.stragglers < least or self.n < 2 * least
        return self.n if products else least

    @property
    def tables(self) -> kernels.cyclic.CyclicTables:
        """The tables that `fastgc.kernels.numba.decoding_vector` takes, for ``@njit`` code."""
        return self._plan.tables

    @property
    def threshold(self) -> int:
        return self.n - self.stragglers

    @cached_property
    def _cells(self) -> Blocks | None:
        """One message of each cell, if every worker has one column of B but for copies; else None.

        A message is then a multiple of the sum over its cell. So the gradient is determined if and
        only if a message of each cell came. In a code with k = n it is so if s + 1 divides n.
        """
        cuts = [c.cells for c in self.parts]
        if any(each is None for each in cuts):
            return None
        sizes = np.concatenate([np.diff(each) for each in cuts if each is not None])
        cell = np.repeat(np.arange(sizes.size), sizes)
        return Blocks(cell, np.ones(sizes.size, dtype=np.int64))

    @cached_property
    def _scales(self) -> Complexes:
        """For each worker, the coefficient by which its message is the sum over its cell."""
        sizes = [(c, np.diff(c.cells).tolist()) for c in self.parts if c.cells is not None]
        return np.concatenate([tau(c.m, d, c.q) for c, each in sizes for d in each])

    @cached_property
    def rule(self) -> Rule:
        return super().rule if self._spans and self._cells is None else self.counting_rule

    @property
    def counting_rule(self) -> Blocks:
        return self._cells or self._whole

    approximate = False  # any n - s determine the gradient

    @cached_property
    def _deficient(self) -> bool:
        """Whether columns are so alike that fewer than n - s workers may suffice: by `parity`."""
        return self._affordable and any({c.alone: c.alone.deficient for c in self.parts}.values())

    @cached_property
    def _affordable(self) -> bool:
        """Whether few enough columns differ for systems of them to be solved in each round."""
        return sum(c.kinds()[0].size for c in self.parts) <= SPANNED

    @cached_property
    def _spans(self) -> bool:
        """Whether the rank of the rows says which messages suffice.

        If only real parts of messages count, each gives two equations, so fewer may suffice.
        """
        return self._deficient or (self.layout == "complex" and self._affordable)

    @cached_property
    def _distinct(self) -> tuple[Complexes, Floats]:
        """The columns of B that differ, times roots of how many there are; and these roots."""
        parts = [c.distinct() for c in self.parts]
        rows = np.zeros((self.n, sum(part.shape[1] for part in parts)), dtype=np.complex128)
        at = 0
        for c, part in zip(self.parts, parts, strict=True):
            rows[c.first_worker :][: c.m, at : at + part.shape[1]] = part
            at += part.shape[1]
        return rows, np.sqrt(np.concatenate([c.kinds()[2] for c in self.parts]))

    def equations(self, survivors: Ints) -> Equations:
        """As for any code, but with one column for all that are equal."""
        if not self._affordable:
            return super().equations(survivors)
        rows, roots = self._distinct
        return Equations(rows[survivors], roots, real_part=self.layout == "complex")

    @cached_property
    def _whole(self) -> Blocks:
        """The rule of all methods but "auto": n - s messages, in each cluster."""
        sizes = [c.m for c in self.parts]
        block = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        return Blocks(block, self._plan.tables.need)

    def bind_vector(
        self, survivors: Ints, vector: Complexes, unit: float = DOUBLE
    ) -> VectorFunction:
        if self._cells is None:
            return self._bind_formulas(survivors, vector, unit)
        formulas = cache(partial(self._bind_formulas, survivors, vector, unit))
        cell, need = self._cells
        plan = CellsPlan(cell, need, need.size, 0.0, 1 / self._scales)
        by_cells = vector_function(
            self, kernels.unchecked.bind_cells(plan, survivors, vector), survivors
        )

        def fill(f: int, method: str) -> None:
            by_cells(f, method) if method == "auto" else formulas()(f, method)

        vars(fill)["bound"] = vars(by_cells)["bound"]
        return fill

    def _bind_formulas(self, survivors: Ints, vector: Complexes, unit: float) -> VectorFunction:
        """`bind_vector` by the formulas for n - s survivors, or more."""
        longest = self._longest(unit)
        run, where = kernels.unchecked.bind_decoding_vector(self._plan, survivors, vector, longest)
        fourier: kernels.fourier.Fourier | None = None
        # A product has as many factors as there are stragglers, or survivors if these are fewer.
        least, most = self._transforms_from, self.n - self._transforms_from
        direct = _PRODUCTS[self._products]
        longest_by_transforms = self._longest(unit, True) if least <= most else 0.0

        def transform(f: int, limit: float) -> int:
            nonlocal fourier
            if fourier is None:
                fourier = kernels.fourier.Fourier(self._plan, survivors, vector)
            status: int = fourier.vector(f)
            where[0] = fourier.where[0]
            return status if status or square(vector[:f]) <= limit else Status.IMPRECISE

        def choose(f: int) -> int:
            status: int
            if least <= f <= most:
                status = transform(f, longest_by_transforms)
            else:
                status = run(LOOKUP if f < least <= most else direct, f)
            return status and retry(status, f)

        def retry(status: int, f: int) -> int:
            came, found = survivors[:f], vector[:f]
            if status == Status.TOO_FEW:
                good = self._solved(came, found, unit)
            else:
                good = self._replace(status, came, found, unit, longest)
            return Status.OK if good else status

        # Methods that fill the vector by kernels, and return a status. The others solve the system.
        ways: dict[str, Callable[[int], int]] = {
            "auto": choose,
            "fft": partial(transform, limit=math.inf),
            **{name: partial(run, kind) for name, kind in _PRODUCTS.items()},
        }

        def fill(f: int, method: str) -> None:
            if (way := ways.get(method)) is not None:
                status = way(f)
                if status and (method == "auto" or status != Status.IMPRECISE):
                    self._raise(Status(status), where[0], survivors[:f], method)
            elif method in self.methods:
                vector[:f] = self._anew(survivors[:f], method, unit)
            else:
                check_word("method", method, *self.methods)

        vars(fill)["many"] = partial(self._fill_many, longest, unit)
        bound = getattr(run, "bound", None)
        if bound is not None and least > most:
            vars(fill)["bound"] = bound | {"method": direct}
        return fill

    def _solved(self, survivors: Ints, vector: Complexes, unit: float) -> bool:
        """Write a vector of fewer messages than formulas need; return whether these suffice."""
        if not (self._spans and survivors.size):
            return False
        found, residual = self._solution(survivors, unit)
        vector[:] = found
        # The best vector for messages of less precision may leave more out.
        return residual <= SOLVED or not self.rule.missing(survivors)

    def _anew(self, survivors: Ints, method: str, unit: float) -> Complexes:
        """The vector by "near-exact", or by a method that solves the system."""
        chosen = self.check_survivors(survivors)
        if missing := self._whole.missing(chosen):
            self._raise(Status.TOO_FEW, missing, chosen, method)
        if method == "near-exact":
            found = nearer_vector(self.parts, chosen, unit, precision=self._good_enough)
        else:
            found = by_system(self.parts, chosen, method)
        beyond = ~np.isfinite(found)
        if beyond.any():
            self._raise(Status.OVERFLOW, int(np.argmax(beyond)), chosen, method)
        return found

    def _longest(self, unit: float, by_transforms: bool = False) -> float:
        """The largest squared norm of an exact vector that "auto" keeps."""
        m = max(c.m for c in self.parts) if by_transforms else 0
        products = max(c.tolerance for c in self.parts) / 4 * (DOUBLE / unit) ** 2
        precision = self._good_enough / math.sqrt(1 + products)
        return longest_kept(self.parts, unit, m, precision)

    def _replace(
        self, status: int, survivors: Ints, vector: Complexes, unit: float, longest: float
    ) -> bool:
        """Replace an exact vector that is too long by the near-exact one; whether one will do."""
        if status not in (Status.IMPRECISE, Status.OVERFLOW):
            return False
        if not affordable(self.parts):
            return bool(status == Status.IMPRECISE)
        kept = longest / self.clusters if self.clusters > 1 else 0.0
        vector[:] = nearer_vector(
            self.parts, survivors, unit, vector.copy(), kept, self._good_enough
        )
        return True

    def _fill_many(
        self, longest: float, unit: float, masks: Bools, method: str, out: Complexes
    ) -> Bools | None:
        """Write the vectors of many sets; None if `method` is not by products."""
        by = method
        if method == "auto" and self._transforms_from == self.n:
            by = self._products
        if by not in _PRODUCTS:
            return None
        where = np.empty(len(masks), dtype=np.int64)
        longest = longest if method == "auto" else math.inf
        kernels.unchecked.decoding_vectors(
            self._plan, masks.copy(), _PRODUCTS[by], out, where, longest
        )
        good: Bools = where == 0
        if method == "auto":
            for r in np.flatnonzero(where).tolist():
                came = np.flatnonzero(masks[r])
                vector = out[r, came]
                if where[r] > 0:
                    good[r] = self._solved(came, vector, unit)
                else:
                    status = Status.OVERFLOW if where[r] == -1 else Status.IMPRECISE
                    good[r] = self._replace(status, came, vector, unit, longest)
                out[r, came] = vector if good[r] else 0
        return good

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """For each block the moments ``sum_i a_i x_i^l c_i``, l = 1 .. number of spare messages.

        x_i are the roots and a_i the locator form, ``prod_(j in S) (1 - alpha^(i-j)) / m``. Up to a
        factor, ``a_i x_i`` are the barycentric weights of the survivors' roots. B_F's columns are
        the values of polynomials of degree below `need`. Divided differences of order f - 1 vanish
        on these, times ``x^(l-1)``. Divided by their scales, the messages of a cell are the values
        of a constant at any roots: here, of as many as it has workers. If columns are alike, there
        are more checks, by the rows; but among many workers only moments tell who lies.
        """
        if self._cells is None and self._deficient and self.n <= _SEARCHED:
            return super().parity(survivors, most)
        a = np.empty(survivors.size, dtype=np.complex128)
        run, _ = kernels.unchecked.bind_decoding_vector(self._any_plan, survivors, a)
        if run(LOCATOR, survivors.size) == Status.OVERFLOW:
            return Parity.none()
        if self._cells is not None:
            a /= self._scales[survivors]
        block, need = self.counting_rule
        checks = []
        for b, (m, q) in enumerate(self._circles):
            at = np.flatnonzero(block[survivors] == b)
            moments = np.arange(1, min(at.size - int(need[b]), most) + 1)
            place = survivors[at] - self._any_plan.tables.start[b]
            exponent = q * place * moments[:, None] % m
            checks.append((Parity.of(a[at] * roots(m)[exponent]), at))
        return Parity.beside(checks) if len(checks) > 1 else checks[0][0]

    @property
    def _circles(self) -> list[tuple[int, int]]:
        """Number of roots and q of each block of the rule, for `parity`."""
        if self._cells is None:
            return [(c.m, c.q) for c in self.parts]
        return [(size, 1) for size in np.bincount(self._cells.block).tolist()]

    @cached_property
    def _any_plan(self) -> CyclicPlan:
        """Tables of `_circles`, for any number of survivors."""
        return CyclicPlan(cyclic_tables([(m, q, 0) for m, q in self._circles]))

    def _raise(self, status: Status, where: int, survivors: Ints, method: str) -> None:
        if status in (Status.OUT_OF_RANGE, Status.DUPLICATE):
            self.check_survivors(survivors)
        if status == Status.TOO_FEW:
            if self.rule.missing(survivors):
                self.raise_too_few(survivors)
            raise NotDecodableError(
                f"the method {method!r} needs {where} more messages than these "
                f'{survivors.size}: "auto" decodes them',
                where,
            )
        if status == Status.NO_MEMORY:
            raise MemoryError("no memory for the decoding vector's work space")
        raise OverflowError(
            f"the coefficient of worker {survivors[where]} is beyond float64: these stragglers "
            'make decoding hopeless with one code for all workers; use clusters="auto"'
        )


# Methods that are one kernel, with its argument.
_PRODUCTS = {"spread": SPREAD, "locator": LOCATOR, "lookup": LOOKUP}


def _rows(cluster: Cluster, worker: int | Ints) -> tuple[Ints, Complexes]:
    """Partitions and coefficients of a worker of a cluster; for a column of workers, rows."""
    held, place, weight = cluster.row(worker)
    first, *others = cluster.weights
    if not others:
        return held, tau(cluster.m, first, cluster.q)[place]
    coefficients = np.empty(place.shape, dtype=np.complex128)
    for d in cluster.weights:
        of_d = weight == d
        coefficients[of_d] = tau(cluster.m, d, cluster.q)[place[of_d]]
    return held, coefficients


def by_system(clusters: Sequence[Cluster], survivors: Ints, method: str) -> Complexes:
    """Solve a_F G_F = e_1, eq. (12), in each cluster; G_F has the survivors' Vandermonde rows."""
    vector = np.empty(survivors.size, dtype=np.complex128)
    for c, at, members in split(clusters, survivors):
        turns = c.q * members % c.m
        moments = np.zeros(turns.size, dtype=np.complex128)
        moments[0] = 1
        if method == "solve":
            powers = np.outer(np.arange(turns.size), turns) % c.m
            vector[at] = np.linalg.solve(roots(c.m)[powers], moments)
            continue
        order: Any = method
        if method == "vandermonde":
            order = vandermonde.roots_order(c.m, turns)
        elif method == "natural":
            order = np.argsort(turns)
        vector[at] = vandermonde.solve(roots(c.m)[turns], moments, transpose=True, order=order)
    return vector
