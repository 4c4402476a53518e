"""What messages are decoded to that do not determine the gradient, and how near that comes.

By least squares the coefficients v = a_F B_F on the partial gradients come as near to 1 as they
can. That is biased towards 0: v is the projection of 1 on the span of the rows, so that its mean is
1 - r^2, r being the residual ``||v - 1|| / sqrt(k)``. Divided by this mean, v is the nearest to 1
of all whose mean is 1, and its residual is r / sqrt(1 - r^2). Such a gradient is unbiased

- over all orders in which the data may lie in the partitions, whoever the survivors are;
- over random survivors, in each partition, if the code treats all partitions alike.

The factor is that of the survivors at hand, known from their rows: neither a law of the delays is
assumed, nor is anything simulated. (Glasgow and Wootters 2021, section I, divide by the mean over
all survivor sets, which has the same aim.) The residual of an unbiased gradient is the standard
deviation of its coefficients over partitions.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import at_least, check_integer
from ..errors import NotDecodableError
from .format import unit_of
from .rounding import DOUBLE
from .rules import Waiting
from .scheme import Scheme
from .span import SOLVED, least_squares

__all__ = [
    "Approximate",
    "Nearest",
    "Partial",
    "Residuals",
    "check_partial",
    "nearest_vector",
    "residual_of_each",
]

Partial = Literal["best", "unbiased"]

# Mean coefficient below which messages hold nothing of the gradient but rounding.
_NOTHING = 1e-12


class Nearest(NamedTuple):
    """The vector nearest to a decoding vector, and how near it comes.

    Attributes
    ----------
    vector : (f,) or (f, pieces) array
    residual : float
        As of `Approximation`.
    mean : float
        Mean of the coefficients on the partial gradients.
    """

    vector: NDArray[Any]
    residual: float
    mean: float


class Residuals(NamedTuple):
    """What gradients leave out that are decoded from any so many workers.

    Attributes
    ----------
    workers : int
        Whose messages came, all of them.
    mean : float
        Root of the mean square of `Approximation.residual`, over the sets.
    worst : float
        The largest: of all sets there are, or of those that were drawn.
    sets : int
        Sets that were looked at; 0 where a formula knows all.
    exhaustive : bool
        Whether these are all there are. Otherwise the worst may be worse.
    """

    workers: int
    mean: float
    worst: float
    sets: int
    exhaustive: bool


def check_partial(partial: str | None, *others: str | None) -> None:
    """Raise ValueError unless it is a way to approximate, or one of what else may be said."""
    known = [*others, *get_args(Partial)]
    if partial not in known:
        said = [f'"{each}"' if each else str(each) for each in known]
        what = f"{', '.join(said[:-1])} or {said[-1]}"
        raise ValueError(f"partial must be {what}, not {partial!r}")


def nearest_vector(
    code: Scheme, survivors: NDArray[np.int64], unit: float, partial: Partial
) -> Nearest:
    """The vector nearest to a decoding vector, of checked survivors.

    NotDecodableError if it is to be unbiased, and no messages hold anything of the gradient.
    """
    check_partial(partial)
    pairs = False
    if code.wait is not None:
        vector = code._vector_for(survivors, unit)
    elif code.rule.missing(survivors):
        vector, pairs = least_squares(code.equations(survivors))[0], unit < DOUBLE
    else:
        vector = code._vector_by(survivors, unit=unit)
    residual, means = _assess(code, survivors, vector)
    if partial == "unbiased" and residual > SOLVED:
        if not means.min() > _NOTHING:
            raise NotDecodableError(
                f"no combination of these {survivors.size} messages is unbiased: they hold nothing "
                "of the gradient",
                max(1, code.rule.missing(survivors)),
            )
        vector = vector / (means if code.pieces > 1 else means[0])
        residual, means = _assess(code, survivors, vector)
    if pairs:
        vector = np.stack([vector, np.zeros_like(vector)], axis=-1)
    return Nearest(vector, residual, float(means.mean()))


def _assess(
    code: Scheme, survivors: NDArray[np.int64], vector: NDArray[Any]
) -> tuple[float, NDArray[np.float64]]:
    """Residual of a vector, and the mean coefficient that it gives each piece of the gradient."""
    lacking = code.deviation(survivors, vector)
    with np.errstate(over="ignore", invalid="ignore"):
        kind = np.complex128 if lacking.dtype.kind == "c" else np.float64
        residual = float(np.linalg.norm(lacking.astype(kind))) / math.sqrt(code.wanted)
        # Of coded data: partitions are pairs of a block with itself. Of pieces: each in its place.
        own = lacking if lacking.ndim == 1 else np.diagonal(lacking, axis1=-2, axis2=-1)
        means = own.real.astype(np.float64).reshape(-1, code.pieces).mean(axis=0) + 1
    return residual, means


# Entries, at most, of a matrix that combines messages to partial gradients for many sets at once,
# and of all their rows together.
_DENSE, _TOGETHER = 1 << 20, 1 << 20

_SMALL = 1 << 13  # entries of a set's rows, at most, where many sets are solved together


def residual_of_each(code: Scheme, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`Scheme.residual` of many sets of messages of a code that waits for some.

    Parameters
    ----------
    code : Scheme
        Of which `wait` is set.
    masks : (sets, messages) bool array
        True for messages that came.

    Returns
    -------
    (sets,) float64 array
    """
    if (
        code.is_complex
        or code.pieces > 1
        or code.codes_data
        or code.message_count * code.k > _DENSE
    ):
        return np.array([code.residual(mask) for mask in masks])
    vectors = np.zeros(masks.shape)
    if type(code).vector is not Scheme.vector:
        enough = code.fill_vectors(masks, "auto", vectors)
    else:
        enough = np.ones(len(masks), dtype=np.bool_)
        _fill_shortest(code, masks, vectors)
    lacking = np.linalg.norm(vectors @ code.matrix() - 1, axis=1)
    left: NDArray[np.float64] = lacking / math.sqrt(code.wanted)
    left[~enough] = [code.residual(mask) for mask in masks[~enough]]
    return left


def _fill_shortest(code: Scheme, masks: NDArray[np.bool_], out: NDArray[np.float64]) -> None:
    """The shortest vectors of least residual, of all sets of one size together."""
    rows, target, _ = code.equations(np.arange(code.message_count))
    sizes = masks.sum(axis=1)
    for f in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == f)
        if f * target.size > _SMALL:  # what is sparse is solved sooner one by one
            for at in alike.tolist():
                those = np.flatnonzero(masks[at])
                out[at, those] = code.vector(those)
            continue
        step = max(1, _TOGETHER // max(1, f * target.size))
        for at in range(0, alike.size, step):
            some = alike[at : at + step]
            came = np.nonzero(masks[some])[1].reshape(some.size, f)
            cut = max(f, target.size) * np.finfo(np.float64).eps
            out[some[:, None], came] = target @ np.linalg.pinv(rows[came], rcond=cut)


class Approximate(Scheme):
    """A scheme that says what comes nearest to the gradient, and what is usually left out."""

    @property
    def approximate(self) -> bool:
        """Whether a round may end before the gradient is exact: of codes that wait for some only.

        `wait` says so, or stragglers that are declared of a code known by its rows alone.
        """
        return not self.exact and isinstance(self.rule, Waiting)

    def best_vector(
        self,
        survivors: ArrayLike,
        *,
        partial: Partial = "best",
        message_dtype: DTypeLike = np.float64,
    ) -> tuple[NDArray[Any], float]:
        """The vector nearest to a decoding vector, when too few messages came.

        Parameters
        ----------
        survivors, message_dtype
            As in `decoding_vector`.
        partial : "best" or "unbiased"
            The shortest a_F that minimises ``||a_F B_F - 1||``; or that divided by the mean of its
            a_F B_F, which is then 1.

        Returns
        -------
        (f,) complex128 or float64 array
            A decoding vector if there is one.
        float
            The residual, as in `Approximation`, computed from the rows.

        Raises
        ------
        NotDecodableError
            If it is to be unbiased, and the messages hold nothing of the gradient.
        """
        unit = unit_of(self, message_dtype)
        return nearest_vector(self, self.check_survivors(survivors), unit, partial)[:2]

    def residuals(
        self, workers: int | None = None, *, sets: int = 2000, seed: int = 0
    ) -> Residuals:
        """What gradients leave out that are decoded from all messages of any so many workers.

        Parameters
        ----------
        workers : int, optional
            Default: those that are `awaited`; all, where that is unknown.
        sets : int, default 2000
            Look at all sets of workers if there are no more than these, else at so many random
            ones.
        seed : int
            Of these.

        Raises
        ------
        TypeError, ValueError
            If there are not so many workers.
        """
        if workers is None:
            workers = self.n if self.awaited is None else self.awaited
        f = check_integer("workers", workers)
        if not 1 <= f <= self.n:
            raise ValueError(f"workers must be in 1 .. n = {self.n}, not {f}")
        sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
        return self._residuals_of(f, sets, seed)

    def _residuals_of(self, f: int, sets: int, seed: int) -> Residuals:
        """The same, of checked arguments. For schemes that know a formula."""
        exhaustive = math.comb(self.n, f) <= sets
        rng = np.random.default_rng(seed)
        drawn: Any = (rng.permutation(self.n)[:f] for _ in range(sets))
        if exhaustive:
            drawn = map(np.array, combinations(range(self.n), f))
        left = np.array([self.residual(self.messages_of(heard)) for heard in drawn])
        mean = float(np.sqrt(np.mean(left**2)))
        return Residuals(f, mean, float(left.max()), left.size, exhaustive)
