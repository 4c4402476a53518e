"""Lagrange coded computing for least squares (Yu et al. 2019; Ozfatura, Gunduz, Ulukus 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import (
    Array,
    Floats,
    Ints,
    Output,
    as_array,
    check_index,
    check_integer,
    check_real,
    unit_roundoff,
)
from ..coding.arguments import check_sizes
from ..coding.code import Code
from ..coding.data import Data
from ..coding.format import Format
from ..coding.gate import Gate
from ..coding.messages import Messages
from ..coding.precision import Precision
from ..coding.rules import Sooner
from ..coding.scheme import Scheme, VectorFunction, vector_function
from ..coding.trust import UNSTABLE, check_stability, expected_trust, trust_by_rows
from ..kernels import Status
from ..kernels.rows import DOUBLE, ROUNDING
from ..numerics import interpolation, vandermonde
from ..numerics.least_squares import least_squares_gradient
from ..numerics.parity import CHECKS, Parity
from ..numerics.solve import SOLVED, Equations, near_exact_solution

# Rounds tried to find the worst in a thousand: for 40 workers they take 0.1 to 0.2 s.
ROUNDS_TRIED = 1000

NodeChoice = Literal["chebyshev", "roots"]


class LagrangeCode(Code):
    """Lagrange coded computing: the data are coded, not the gradients.

    This works for gradients that are quadratic in the data: X'(X theta - y), least squares. The k
    blocks of rows of (X, y) are distributed over P polynomials of degree K - 1, K = ceil(k / P),
    whose values at K points alpha are the blocks. A worker holds their values at points beta, and
    sends the sum of the P gradients there, which is a value of one polynomial h of degree 2 K - 2.
    Any 2 K - 1 such values determine the gradient, the sum of h over the alphas. If more came, the
    code uses those whose points are spread best. The factors follow from the points alone; the
    master never computes the coefficients of h.

    Workers compute r = `load` coded blocks each and send `messages` messages, each the sum over
    P = load / messages of them. LCC sends one message (P = r, section II-B), LCC-MMC one for each
    block (P = 1, threshold 2 k - 1, section II-C), and LCC-MMC-2 one for two blocks (section V,
    Remark 1, which prints degree N - 1 for its two polynomials, of degree N / 2 - 1).

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Blocks of the data, n by default.
    load : int
        Coded blocks per worker, r.
    messages : int, default 1
        Messages per worker; must divide `load`.
    nodes : "chebyshev", "roots" or a pair of arrays, default "chebyshev"
        Points alpha and beta. "chebyshev": real, between -1 and 1, so that coded data are real.
        "roots": roots of unity; coded data and messages are complex, which costs four times the
        computation and twice the communication, but decodes far more precisely. A pair: K points
        alpha, and n * messages points beta, message by message.
    limit : float or None, default 1e-7
        If workers send several messages, the precision of the first 2 K - 1 varies from round to
        round by many powers of ten. While the expected relative error of the gradient exceeds this
        limit (or half the digits of messages less precise than float64), a round waits for more
        messages, at most until n - s workers have sent all of theirs. At the paper's 40 workers one
        round in four or five waits, typically for 2 messages, and the mean round takes 0.7% longer.
        None: no round waits, as in the paper.
    strict : bool, default False
        Raise an error if the code loses more than half of float64's digits when s random workers
        straggle or, if workers send several messages, in one round of a thousand. Otherwise this is
        an `InstabilityWarning`.

    Raises
    ------
    ValueError
        If the parameters do not fit, points coincide, or there are fewer than 2 K - 1 messages.
    UnstableCodeError
        If `strict` and the code is unstable.

    Notes
    -----
    Rounds wait for 2 K - 1 messages, and decode by interpolation. Fewer may determine the gradient,
    as it is real: with roots of unity nearly any 2 K - 3, and at points that lie well, as few as K.
    Such sets are `decodable`, with longer vectors, also in a round that goes on to wait.

    This is what waiting gains for n = 100 workers with 10 messages each, whose speed varies from
    round to round (Chebyshev points; 199 of the 1000 messages are needed). In 40 rounds, the first
    199 messages decode with a typical relative error of 2e-3, and of 1e+12 at worst. The default
    limit reduces them to 2e-8 and 8e-8, and rounds take 2% longer; a limit of 1e-9 to 5e-10 and
    1e-9, for 5%. Near-exact vectors, as in `LinearCode`, gain a factor of 2 here and replace no
    message: if 5% of the messages are missing, so is a fifth of the gradient.

    Near convergence the gradient is small. The values that a worker computes on coded data are as
    large as before, and so are their rounding errors: about 1e-16 ``|X|^2 |theta|``, times the
    amplification of decoding. ``LagrangeCode(12, 6, load=3)`` decodes gradients of 60 samples of 5
    features with relative errors of 2e-8, 1e-4 and 4e-2 if theta is within 7e-8, 2e-11 and 5e-15 of
    the optimum. You find theta as precisely as without a code, but the gradient is not precise, for
    instance to stop the training by its norm.

    Engines tell the master how much cancels, so that `Round.trust` and trackers see it. In your own
    loops, call ``encoder.add(j, g, cancelled)`` with ``code.scheme.data.cancelling(shard)(theta)``.

    For precise gradients use an anchor: code ``(X, 0)``, send ``theta - anchor``, and add the
    gradient at the anchor, computed without a code. Cancellation is then proportional to the
    distance from the anchor: with a new anchor every 20 rounds the errors above are 2e-12, 5e-9 and
    4e-5.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.LagrangeCode(n=6, load=2)
    >>> code.threshold, code.stragglers
    (5, 1)
    >>> X, y, theta = np.arange(12.0).reshape(6, 2), np.ones(6), np.array([1.0, -1.0])
    >>> shards = code.encode_data(X, y)
    >>> messages = [
    ...     code.encode(i, [code.compute(shards[j], theta) for j in code.partitions(i)])
    ...     for i in range(1, 6)
    ... ]
    >>> np.round(code.decode(range(1, 6), messages), 9), X.T @ (X @ theta - y)
    (array([-60., -72.]), array([-60., -72.]))
    """

    scheme: LagrangeScheme
    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int,
        messages: int = 1,
        nodes: NodeChoice | tuple[ArrayLike, ArrayLike] = "chebyshev",
        limit: float | None = 1e-7,
        strict: bool = False,
    ) -> None:
        n, k = check_sizes(n, k)
        load, sent = check_integer("load", load), check_integer("messages", messages)
        if load < 1 or sent < 1 or load % sent:
            raise ValueError(
                f"messages must divide load, not load={load}, messages={sent}: every message is "
                "the sum over load / messages polynomials"
            )
        limit = None if limit is None else check_real("limit", limit, positive=True)
        points = -(-k // (load // sent))
        needed = 2 * points - 1
        if needed > n * sent:
            raise ValueError(
                f"{needed} messages are needed, but {n} workers send {n * sent}: use a larger load "
                f"or fewer blocks (threshold 2 ceil(k messages / load) - 1)"
            )
        scheme = LagrangeScheme(
            k,
            load // sent,
            *_points(nodes, points, n, sent),
            messages=sent,
            limit=limit,
        )
        super().__init__(scheme)
        remedy = 'use nodes="roots", a larger load or fewer messages per worker'
        if sent == 1:
            check_stability(scheme, strict, remedy)
        else:
            when, enough = "in one round of a thousand", max(UNSTABLE, limit or 0.0)
            check_stability(scheme, strict, remedy, when=when, limit=enough)

    @property
    def alpha(self) -> Array:
        """Points at which the polynomials equal the data, (K,) array."""
        return self.scheme.alpha

    @property
    def beta(self) -> Array:
        """Points of the messages, (message_count,) array."""
        return self.scheme.beta

    def compute(
        self, shard: tuple[ArrayLike, ArrayLike], theta: ArrayLike, out: Output | None = None
    ) -> Array:
        """Compute on one coded block, as a worker does: X~'(X~ theta - y~).

        Parameters
        ----------
        shard : pair of arrays
            One pair of `Code.encode_data`.
        theta : (features,) or (features, outputs) array
            A flat (features * outputs,) array will do, too.
        out : (theta.size,) array, optional

        Returns
        -------
        (theta.size,) array
        """
        return least_squares_gradient(theta, *shard, out=out)


class _Precision(Precision):
    """Errors of coded data, and of vectors whose terms cancel."""

    scheme: LagrangeScheme

    def typical_error(self) -> float | None:
        """Typical error; if workers send several messages, the error of one round in a thousand.

        Messages come in random order: the errors of partial sets differ by many decades.
        """
        scheme = self.scheme
        if scheme._sent == 1:
            return None
        trials = min(ROUNDS_TRIED, max(30, int(ROUNDS_TRIED * (64 / scheme._points) ** 2)))
        rng, senders = np.random.default_rng(0), np.repeat(np.arange(scheme.n), scheme._sent)
        orders = []
        for _ in range(trials):
            order = np.empty(senders.size, np.int64)
            # `random_arrivals` would take three times as long.
            order[np.argsort(rng.permutation(senders), kind="stable")] = np.arange(senders.size)
            orders.append((self._growth(order[: scheme.threshold]), order))
        # Look only at the sets that amplify most, twenty times as many as one in a thousand.
        orders.sort(key=lambda each: each[0])
        errors = sorted(self._error(order) for _, order in orders[-max(30, trials // 50) :])
        return errors[-1 - trials // 1000]

    def _growth(self, survivors: Ints) -> float:
        try:
            return float(np.abs(self.scheme.vector(survivors)) ** 2 @ self.row_norms[survivors])
        except OverflowError:
            return math.inf

    def _error(self, order: Ints) -> float:
        """The expected relative error of a round in which messages come in this order."""
        f = self.scheme.threshold
        while f < order.size and self.scheme.gate.awaits_more(order[:f]):
            f += 1
        try:
            return expected_trust(self.scheme, order[:f], np.float64, None).relative_error
        except OverflowError:
            return math.inf

    def left_out(self, survivors: Ints, vector: Array) -> float:
        few = survivors.size < self.scheme.threshold
        return self.scheme.residual(survivors, vector) if few else 0.0

    def vector_errors(self, survivors: Ints, vector: Array) -> Floats | None:
        if survivors.size < self.scheme.threshold:
            return None  # they are in the residual
        used, errors = np.flatnonzero(vector), np.zeros(survivors.size)
        errors[used] = self._errors(survivors[used].tobytes())
        return errors

    @cached_property
    def _errors(self) -> Callable[[bytes], Floats]:
        """`vector_errors` of these messages. The last are kept: rounds ask several times."""

        @lru_cache(maxsize=8)
        @np.errstate(all="ignore")
        def found(numbers: bytes) -> Floats:
            # A coefficient is a sum in which much may cancel. Each term is a product of 2 f
            # differences, all rounded.
            nodes, scheme = self.scheme.beta[np.frombuffer(numbers, np.int64)], self.scheme
            errors = np.zeros(nodes.size)
            for values in interpolation.parts_of_basis(nodes, scheme.alpha):
                errors += (np.abs(values) ** 2).sum(axis=0)
            errors *= 4 * nodes.size * ROUNDING * 2.0**-106
            return errors

        return found

    @property
    def data_roundings(self) -> float:
        # Coded data are sums of K terms, and their errors enter a partial gradient twice.
        return 4 * (self.scheme._points / 3 + 1)

    @cached_property
    def row_norms(self) -> Floats:
        return np.asarray(self._totals(2) ** 2 / self.scheme._points)

    def deviation(self, survivors: Ints, vector: Array) -> Array:
        scheme = self.scheme
        # Deviation of the sum over pairs of blocks: B has a column for each, see `equations`.
        basis = scheme._basis[survivors]
        total: Array = (vector[:, None] * basis).T @ basis - np.eye(scheme._points)
        return total.real if scheme.is_complex else total

    def computation_roundings(self, terms: int) -> int:
        # Data coded from K blocks enter a gradient twice. Complex products have two roundings.
        return 2 * (self.scheme._points + 2) + terms + self.scheme.is_complex

    @cached_property
    def row_sums(self) -> Floats:
        return np.asarray(self._totals(1) ** 2 * self.scheme._polynomials)

    def _totals(self, power: int) -> Floats:
        """For each message i, the sum of ``|l_j(beta_i)|^power`` over j."""
        parts = interpolation.parts_of_basis(self.scheme.alpha, self.scheme.beta)
        return np.concatenate([(np.abs(values) ** power).sum(axis=1) for values in parts])


class _Blocks(Data):
    """Coded blocks, ``n * load``: values of the polynomials at beta."""

    coded = True

    def __init__(self, scheme: LagrangeScheme) -> None:
        super().__init__(scheme.n * scheme.load)
        self.scheme = scheme

    def encode(self, X: ArrayLike, y: ArrayLike) -> list[tuple[Array, Array]]:
        """Coded blocks by eqs. (4) and (10); the labels are coded like one more column.

        Rows of zeros make all blocks equally long; they add nothing to the gradient.

        Parameters
        ----------
        X : (N, features) array
            N must be at least k.
        y : (N,) or (N, outputs) array

        Returns
        -------
        list of ``n * load`` pairs (X~, y~)
            Of X's dtype, or complex of that precision; ``partitions(i)`` names those of worker i.
        """
        scheme = self.scheme
        X, y = as_array("X", X), as_array("y", y)
        if len(X) != len(y):
            raise ValueError(f"{len(X)} samples but {len(y)} labels")
        if not scheme.k <= len(X):
            raise ValueError(f"{len(X)} samples cannot be cut into k = {scheme.k} blocks")
        if X.dtype.kind not in "fc":
            raise TypeError(f"X must be floating-point, not {X.dtype}")
        if X.dtype.kind == "c" and scheme.is_complex:
            raise TypeError(
                "complex data need real nodes: with complex ones gradients must be real"
            )
        if y.dtype.kind == "c" and X.dtype.kind != "c":
            raise TypeError(f"y is complex, but X is {X.dtype}: both must be")
        dtype = np.result_type(X.dtype, np.complex64) if scheme.is_complex else X.dtype
        coded = [self._encode_array(values.astype(X.dtype, copy=False), dtype) for values in (X, y)]
        return list(zip(*coded, strict=True))

    def _encode_array(self, values: Array, dtype: np.dtype[Any]) -> list[Array]:
        scheme = self.scheme
        rows = -(-len(values) // scheme.k)  # rows of a block
        P, K = scheme._polynomials, scheme._points
        padded = np.zeros((P * K * rows, *values.shape[1:]), dtype=values.dtype)
        padded[: len(values)] = values
        blocks = padded.reshape(P, K, -1)
        # In order of messages, and in each message in order of polynomials.
        with np.errstate(over="ignore", invalid="ignore"):  # a message shows what is not finite
            coded = np.matmul(scheme._basis.astype(dtype), blocks)
        return list(coded.swapaxes(0, 1).reshape(-1, rows, *values.shape[1:]))

    def cancelling(self, shard: Any) -> Callable[[Array], float] | None:
        # Each entry of X~ theta - y~ has an error like a random one of the size of its terms. Its
        # row of X~ takes the error into the gradient: sum_i |x_i|^2 (sum_j |x_ij theta_j|^2 +
        # |y_i|^2).
        if not (isinstance(shard, tuple | list) and len(shard) == 2):
            return None
        X, y = shard
        if not all(isinstance(each, np.ndarray) and each.dtype.kind in "fc" for each in shard):
            return None
        if X.ndim != 2 or y.ndim < 1 or len(X) != len(y):
            return None
        X, y = (np.abs(each.astype(np.complex128)) ** 2 for each in shard)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = X.sum(axis=1)
            of_features, of_labels = rows @ X, float((rows @ y.reshape(len(y), -1)).sum())

        def energy(theta: Array) -> float:
            if theta.size % len(of_features):  # a user's gradient of something else
                return 0.0
            with np.errstate(over="ignore", invalid="ignore"):
                squares = (np.abs(theta) ** 2).reshape(len(of_features), -1).sum(axis=1)
                return float(of_features @ squares) + of_labels

        return energy


class _Gate(Gate):
    """A round waits while its expected error exceeds the limit."""

    scheme: LagrangeScheme

    @property
    def waits(self) -> bool:
        return self.scheme._sent > 1 and self.scheme._limit is not None

    def doubt(self, survivors: Ints, vector: Array, form: Format) -> float:
        if self.scheme._sent == 1 or self.scheme._limit is None:
            return 0.0
        error = trust_by_rows(self.scheme, survivors, vector, form).relative_error
        limit = max(self.scheme._limit, math.sqrt(unit_roundoff(form.message_dtype)))
        return 0.0 if error <= limit else error


class LagrangeScheme(Scheme):
    """The scheme of `LagrangeCode`, with its checked arguments.

    A message is the sum over P = `polynomials`. `alpha` has shape (K,), and `beta`, numbered as
    messages are, (n * messages,).
    """

    precision = cached_property(_Precision)
    gate = cached_property(_Gate)
    data = cached_property(_Blocks)
    exact = True
    stragglers: int

    def __init__(
        self,
        k: int,
        polynomials: int,
        alpha: Array,
        beta: Array,
        *,
        messages: int,
        limit: float | None,
    ) -> None:
        self.n, self.k, self.load = beta.size // messages, k, polynomials * messages
        self._sent, self._polynomials, self._points = messages, polynomials, alpha.size
        self._limit, self.alpha, self.beta = limit, alpha, beta
        alpha.flags.writeable = beta.flags.writeable = False
        self.is_complex = beta.dtype.kind == "c"
        self._roots = alpha.size > 1 and bool(
            (alpha == interpolation.roots_of_unity(alpha.size)).all()
        )
        self._roots &= bool((np.abs(np.abs(beta) - 1) < 4 * DOUBLE).all())
        self.stragglers = self.n - -(-self.threshold // messages)

    @property
    def threshold(self) -> int:
        """Messages that always suffice, 2 K - 1, whichever they are."""
        return 2 * self._points - 1

    @cached_property
    def messages(self) -> Messages:
        return Messages([self._sent] * self.n)

    def row(self, worker: int) -> tuple[Ints, Floats]:
        worker = check_index("worker", worker, self.n)
        held = np.arange(worker * self.load, (worker + 1) * self.load)
        return held, np.ones(self.load)

    # ------------------------------------------------------------------------------- decoding

    @cached_property
    def rule(self) -> Sooner:
        rule = Sooner.one(self.messages.count, self.threshold)
        # The gradient is of rank K, a message of rank 1, and the real part of a complex one of 2.
        rule.least = -(-self._points // (1 + self.is_complex))
        rule.suffice = lambda came: self._solution(came)[1] <= SOLVED
        return rule

    def _solve(self, survivors: Ints, unit: float = DOUBLE) -> tuple[Array, float]:
        """The shortest vector of few messages, and its residual."""
        given = self._few_unknowns(survivors)
        vector, _ = near_exact_solution(given.rows, given.target, unit, given.real_part)
        return vector, self.precision.residual(survivors, vector)

    def _few_unknowns(self, survivors: Ints) -> Equations:
        """`equations` with O(K) unknowns, which are met by the same vectors.

        A message is the value of a polynomial h of degree 2 K - 2. If it is real, its values at
        2 K - 1 points are the unknowns. If alpha are roots of unity, and beta on the circle, let
        c_m be the coefficients of a real block's polynomial: c_{K-m} is the conjugate of c_m. So
        ``z^-K c_a c_b z^(a+b)``, summed over a, b > 0, is real, and so is the sum of ``z^(-K/2) c_0
        c_m z^m``. These are sums of sines and cosines.
        """
        K, beta = self._points, self.beta[survivors]
        if not self.is_complex:
            every = np.concatenate([self.alpha, self.beta])
            middle, half = (every.max() + every.min()) / 2, np.ptp(every) / 2
            points = middle + half * interpolation.chebyshev(2 * K - 1)
            rows = interpolation.basis(points, beta)
            return Equations(rows, interpolation.basis(points, self.alpha).sum(axis=0))
        if not self._roots:
            return self.equations(survivors)
        angle = np.angle(beta)[:, None]
        parts = [np.ones((beta.size, 1))]
        for turn, waves in ((K, np.arange(K - 1)), (K / 2, np.arange(K % 2, K - 1, 2) / 2)):
            sines = np.sin(waves[waves > 0] * angle)
            parts.append(np.exp(1j * turn * angle) * np.hstack([np.cos(waves * angle), sines]))
        rows = np.hstack(parts)
        target = np.zeros(rows.shape[1])
        target[:2] = K  # c_0^2, and the mean of the first sums
        return Equations(rows, target, real_part=True)

    def bind_vector(self, survivors: Ints, vector: Array, unit: float = DOUBLE) -> VectorFunction:
        run = self._functionals.bind(survivors, vector)

        def of_enough(f: int) -> int:
            if f == self.threshold:
                status = run(f)
                if status == Status.OVERFLOW:
                    self._raise_overflow(survivors[:f], vector[:f])
                return status
            if f > self.threshold:
                vector[:f] = self._vector_of_some(self.check_survivors(survivors[:f]))
            if f < self.threshold:
                came = self.check_survivors(survivors[:f])
                if self.rule.missing(came):
                    return 1
                vector[:f] = self._solution(came, unit)[0]
            return 0

        return vector_function(self, of_enough, survivors)

    def _vector_of_some(self, survivors: Ints) -> Array:
        """The vector that uses only the best spread of more messages than are needed.

        More points raise the degree, and with gaps between points the error: at n = 256, with 32
        neighbours silent, from 1e-15 to 1e+50.
        """
        chosen = vandermonde.leja_order(self.beta[survivors])[: self.threshold]
        vector = np.zeros(survivors.size, dtype=self.beta.dtype)
        vector[chosen] = used = self._functionals(survivors[chosen])
        if not np.isfinite(used).all():
            self._raise_overflow(survivors[chosen], used)
        return vector

    def _raise_overflow(self, survivors: Ints, vector: Array) -> NoReturn:
        raise OverflowError(
            f"the coefficient of message {survivors[np.argmin(np.isfinite(vector))]} is beyond "
            "float64: with these points decoding is hopeless; use fewer messages per worker, or "
            'nodes="roots"'
        )

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """Parity checks by prediction: the messages decoded from predict the others.

        All messages are values of the same polynomial.
        """
        f = survivors.size
        if f <= self.threshold:
            return Parity.none()
        order = vandermonde.leja_order(self.beta[survivors])
        chosen, spare = (
            order[: self.threshold],
            order[self.threshold :][: most * self.messages.per_worker],
        )
        H = np.zeros((spare.size, f), dtype=self.beta.dtype)
        H[np.arange(spare.size), spare] = 1
        H[:, chosen] = -interpolation.basis(
            self.beta[survivors[chosen]], self.beta[survivors[spare]]
        )
        return Parity.of(H)

    def equations(self, survivors: Ints) -> Equations:
        # A message is the sum of l_j l_j' x_j x_j'^T theta over pairs of blocks. Decoding must take
        # the pairs of a block with itself. A pair j < j' stands for two, hence the root.
        first, second = np.triu_indices(self._points)
        basis = self._basis[survivors]
        rows = basis[:, first] * basis[:, second] * np.where(first == second, 1, np.sqrt(2))
        return Equations(rows, (first == second).astype(np.float64), real_part=self.is_complex)

    def rings(self) -> list[Ints]:
        beta = self.beta.reshape(self.n, -1)[:, 0]
        return [np.argsort(np.angle(beta) if self.is_complex else beta)]

    @cached_property
    def _basis(self) -> Array:
        """``l_j(beta_i)``, one row for each message i."""
        return interpolation.basis(self.alpha, self.beta)

    @cached_property
    def _functionals(self) -> interpolation.Functionals:
        """Coefficients of chosen messages in the sum of the values at alpha."""
        return interpolation.Functionals(self.beta, self.alpha)


def _points(
    nodes: NodeChoice | tuple[ArrayLike, ArrayLike], K: int, n: int, sent: int
) -> tuple[Array, Array]:
    """Return alpha, and beta in the order of messages; raise an error for impossible `nodes`."""
    count = n * sent
    if isinstance(nodes, str) and nodes in ("chebyshev", "roots"):
        roots = nodes == "roots"
        alpha = interpolation.roots_of_unity(K) if roots else interpolation.chebyshev(K)
        beta = interpolation.roots_of_unity(count, 0.5) if roots else interpolation.chebyshev(count)
        return alpha, beta[_spread(n, sent)]
    if not isinstance(nodes, tuple | list) or len(nodes) != 2:
        raise ValueError(f'nodes must be "chebyshev", "roots" or a pair of arrays, not {nodes!r}')
    checked = []
    for name, size, points in zip(("alpha", "beta"), (K, count), nodes, strict=True):
        array = as_array(name, points)
        if array.shape != (size,) or array.dtype.kind not in "iufc":
            raise ValueError(f"{name} must be {size} numbers, not {array.dtype} {array.shape}")
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        interpolation.weights(array)  # raises if points coincide or are not finite
        checked.append(array)
    alpha, beta = checked
    if alpha.dtype.kind == "c":
        beta = beta.astype(np.complex128)
    return alpha, beta


def _spread(n: int, sent: int) -> Ints:
    """Place of each message among all points, such that the messages that come are spread well.

    First messages are evenly spaced, and so are second ones, halfway between them (by bit
    reversal). From one message to the next, workers move on by a golden section of the circle, so
    that the gaps a slow worker leaves lie far apart. If each worker had neighbouring points, the
    error at n = 40 with eight messages each would be 1e-7 instead of 2e-12 (roots), and 4e-5
    instead of 5e-10 (Chebyshev).
    """
    worker, t = np.divmod(np.arange(n * sent), sent)
    step = next(g for g in range(max(1, round(0.382 * n)), n + 1) if math.gcd(g, n) == 1)
    bits = max(1, (sent - 1).bit_length())
    reversed_ = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(sent)]
    layer = np.argsort(np.argsort(reversed_))
    place: Ints = (worker + t * step) % n * sent + layer[t]
    return place
