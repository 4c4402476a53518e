"""The gradient of least squares, which codes of the data compute on coded blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._base.arrays import Output, as_array, view_of

__all__ = ["least_squares_gradient"]

# Sums that overflow become Inf, without a warning.
_quiet = np.errstate(over="ignore", invalid="ignore")


@_quiet
def least_squares_gradient(
    theta: ArrayLike, X: ArrayLike, y: ArrayLike, out: Output | None = None
) -> NDArray[Any]:
    """Compute X'(X theta - y), flat.

    Parameters
    ----------
    theta : (features,), (features, outputs) or flat (features * outputs,) array
    X : (m, features) array
        Real or complex; X' is not conjugated.
    y : (m,) or (m, outputs) array
    out : (theta.size,) array, optional
        Contiguous.

    Returns
    -------
    (theta.size,) array

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    theta, X, y = as_array("theta", theta), as_array("X", X), as_array("y", y)
    outputs = y.shape[1] if y.ndim == 2 else 1
    fits = X.ndim == 2 and theta.size == X.shape[1] * outputs
    if not fits or y.shape not in ((len(X),), (len(X), outputs)):
        raise ValueError(
            f"shapes do not fit: theta {theta.shape}, X {X.shape}, y {y.shape}; X must be "
            "(m, features), y (m,) or (m, outputs), and theta have features * outputs elements"
        )
    table = theta.reshape(X.shape[1], outputs)
    residual = X @ table
    residual -= y.reshape(len(X), outputs)
    dtype = np.result_type(theta, X)
    total = np.empty(theta.size, dtype) if out is None else view_of("out", out)
    if total.shape != (theta.size,) or not total.flags.c_contiguous:
        raise ValueError(
            f"out must be a contiguous array of shape ({theta.size},), not {total.shape}"
        )
    np.matmul(X.T, residual, out=total.reshape(X.shape[1], outputs))
    return total if out is None else out
