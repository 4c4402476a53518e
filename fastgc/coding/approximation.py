"""What messages decode to if they do not determine the gradient, and how near to it that is.

Least squares brings the coefficients v = a_F B_F on the partial gradients as near to 1 as possible.
That v is biased towards 0: it is the projection of 1 on the span of the rows, so its mean is
1 - r^2, where r is the residual ``||v - 1|| / sqrt(k)``. Divided by its mean, v is the nearest to 1
of all vectors with the mean 1, and its residual is r / sqrt(1 - r^2). Such a gradient is unbiased

- over all orders in which the data may lie in the partitions, whoever the survivors are;
- over random survivors, for each partition, if the code treats all partitions alike.

The factor is computed from the rows of the survivors at hand. No law of delays is assumed, and
nothing is simulated. (Glasgow and Wootters 2021, section I, divide by the mean over all sets of
survivors, for the same purpose.) The residual of an unbiased gradient is the standard deviation of
its coefficients over partitions.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import NotDecodableError
from ..kernels.rows import DOUBLE
from .scheme import Residuals, Scheme
from .solve import SOLVED, least_squares

__all__ = [
    "Nearest",
    "Partial",
    "check_partial",
    "nearest_vector",
    "residual_of_each",
    "residuals",
]

Partial = Literal["best", "unbiased"]

# Mean coefficient up to which messages hold nothing of the gradient but rounding.
_NOTHING = 1e-12


class Nearest(NamedTuple):
    """The vector nearest to a decoding vector, and how near it comes.

    Attributes
    ----------
    vector : (f,) or (f, pieces) array
    residual : float
        As in `Approximation`.
    mean : float
        Mean of the coefficients on the partial gradients.
    """

    vector: NDArray[Any]
    residual: float
    mean: float


def check_partial(partial: str | None, *others: str | None) -> None:
    """Raise ValueError unless `partial` is a way to approximate, or one of `others`."""
    known = [*others, *get_args(Partial)]
    if partial not in known:
        said = [f'"{each}"' if each else str(each) for each in known]
        what = f"{', '.join(said[:-1])} or {said[-1]}"
        raise ValueError(f"partial must be {what}, not {partial!r}")


def nearest_vector(
    scheme: Scheme, survivors: NDArray[np.int64], unit: float, partial: Partial
) -> Nearest:
    """Return the vector nearest to a decoding vector, for checked survivors.

    Raise NotDecodableError if it is to be unbiased and the messages hold nothing of the gradient.
    """
    check_partial(partial)
    pairs = False
    if scheme.wait is not None:
        vector = scheme.vector_for(survivors, unit)
    elif scheme.rule.missing(survivors):
        vector, pairs = least_squares(scheme.equations(survivors))[0], unit < DOUBLE
    else:
        vector = scheme._vector_by(survivors, unit=unit)
    residual, means = _assess(scheme, survivors, vector)
    if partial == "unbiased" and residual > SOLVED:
        if not means.min() > _NOTHING:
            raise NotDecodableError(
                f"no combination of these {survivors.size} messages is unbiased: they hold nothing "
                "of the gradient",
                max(1, scheme.rule.missing(survivors)),
            )
        vector = vector / (means if scheme.pieces > 1 else means[0])
        residual, means = _assess(scheme, survivors, vector)
    if pairs:
        vector = np.stack([vector, np.zeros_like(vector)], axis=-1)
    return Nearest(vector, residual, float(means.mean()))


def _assess(
    scheme: Scheme, survivors: NDArray[np.int64], vector: NDArray[Any]
) -> tuple[float, NDArray[np.float64]]:
    """Return a vector's residual, and the mean coefficient that it gives each piece."""
    lacking = scheme.deviation(survivors, vector)
    with np.errstate(over="ignore", invalid="ignore"):
        kind = np.complex128 if lacking.dtype.kind == "c" else np.float64
        residual = float(np.linalg.norm(lacking.astype(kind))) / math.sqrt(scheme.wanted)
        # Coded data: each block with itself is a partition. Pieces: each in its own place.
        own = lacking if lacking.ndim == 1 else np.diagonal(lacking, axis1=-2, axis2=-1)
        means = own.real.astype(np.float64).reshape(-1, scheme.pieces).mean(axis=0) + 1
    return residual, means


# Most entries of a matrix that takes messages to partial gradients, for many sets at once, and of
# the rows of these sets together.
_DENSE, _TOGETHER = 1 << 20, 1 << 20

_SMALL = 1 << 13  # most entries of a set's rows for which many sets are solved together


def residual_of_each(scheme: Scheme, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`Scheme.residual` of many sets of messages, for a code that waits for some workers.

    Parameters
    ----------
    scheme : Scheme
        Its `wait` is set.
    masks : (sets, messages) bool array
        True for messages that came.

    Returns
    -------
    (sets,) float64 array
    """
    if (
        scheme.is_complex
        or scheme.pieces > 1
        or scheme.codes_data
        or scheme.message_count * scheme.k > _DENSE
    ):
        return np.array([scheme.residual(mask) for mask in masks])
    vectors = np.zeros(masks.shape)
    if type(scheme).vector is not Scheme.vector:
        enough = scheme.fill_vectors(masks, "auto", vectors)
    else:
        enough = np.ones(len(masks), dtype=np.bool_)
        _fill_shortest(scheme, masks, vectors)
    lacking = np.linalg.norm(vectors @ scheme.matrix() - 1, axis=1)
    left: NDArray[np.float64] = lacking / math.sqrt(scheme.wanted)
    left[~enough] = [scheme.residual(mask) for mask in masks[~enough]]
    return left


def _fill_shortest(scheme: Scheme, masks: NDArray[np.bool_], out: NDArray[np.float64]) -> None:
    """Fill in the shortest vectors of least residual, all sets of one size together."""
    rows, target, _ = scheme.equations(np.arange(scheme.message_count))
    sizes = masks.sum(axis=1)
    for f in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == f)
        if f * target.size > _SMALL:  # one by one, sparse equations are solved faster
            for at in alike.tolist():
                those = np.flatnonzero(masks[at])
                out[at, those] = scheme.vector(those)
            continue
        step = max(1, _TOGETHER // max(1, f * target.size))
        for at in range(0, alike.size, step):
            some = alike[at : at + step]
            came = np.nonzero(masks[some])[1].reshape(some.size, f)
            cut = max(f, target.size) * np.finfo(np.float64).eps
            out[some[:, None], came] = target @ np.linalg.pinv(rows[came], rcond=cut)


def residuals(scheme: Scheme, workers: int, sets: int, seed: int) -> Residuals:
    """Return `fastgc.Code.residuals`, for checked arguments."""
    known = scheme.known_residuals(workers)
    if known is not None:
        return known
    exhaustive = math.comb(scheme.n, workers) <= sets
    rng = np.random.default_rng(seed)
    drawn: Any = (rng.permutation(scheme.n)[:workers] for _ in range(sets))
    if exhaustive:
        drawn = map(np.array, combinations(range(scheme.n), workers))
    left = np.array([scheme.residual(scheme.messages_of(heard)) for heard in drawn])
    mean = float(np.sqrt(np.mean(left**2)))
    return Residuals(workers, mean, float(left.max()), left.size, exhaustive)
