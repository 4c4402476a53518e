"""Steps of optimizers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .._cffi import ffi, lib

__all__ = ["amsgrad", "nesterov", "replace", "sgd", "square_distance"]

# by a dtype's character, with the type of its vectors
_sgd = {"f": ("float[]", lib.fgc_sgd_float), "d": ("double[]", lib.fgc_sgd_double)}
_nesterov = {"f": ("float[]", lib.fgc_nesterov_float), "d": ("double[]", lib.fgc_nesterov_double)}
_amsgrad = {"f": ("float[]", lib.fgc_amsgrad_float), "d": ("double[]", lib.fgc_amsgrad_double)}
_replace = {"f": ("float[]", lib.fgc_replace_float), "d": ("double[]", lib.fgc_replace_double)}
_square_distance = {
    "f": ("float[]", lib.fgc_square_distance_float),
    "d": ("double[]", lib.fgc_square_distance_double),
}


def sgd(
    theta: NDArray[Any],
    velocity: NDArray[Any] | None,
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.sgd`."""
    vector, function = _sgd[theta.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, theta),
        ffi.NULL if velocity is None else ffi.from_buffer(vector, velocity),
        ffi.from_buffer(vector, gradient),
        lr,
        momentum,
        theta.size,
    )


def nesterov(
    theta: NDArray[Any],
    point: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.nesterov`."""
    vector, function = _nesterov[theta.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, theta),
        ffi.from_buffer(vector, point),
        ffi.from_buffer(vector, gradient),
        lr,
        momentum,
        theta.size,
    )


def amsgrad(
    theta: NDArray[Any],
    h: NDArray[Any],
    v: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """See `fastgc.kernels.amsgrad`."""
    vector, function = _amsgrad[theta.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, theta),
        ffi.from_buffer(vector, h),
        ffi.from_buffer(vector, v),
        ffi.from_buffer(vector, gradient),
        lr,
        beta1,
        beta2,
        epsilon,
        theta.size,
    )


def replace(old: NDArray[Any], new: NDArray[Any], total: NDArray[Any] | None) -> float:
    """See `fastgc.kernels.replace`."""
    vector, function = _replace[old.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, old),
        ffi.from_buffer(vector, new),
        ffi.NULL if total is None else ffi.from_buffer(vector, total),
        old.size,
    )


def square_distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_distance`."""
    vector, function = _square_distance[x.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, x), ffi.from_buffer(vector, y), x.size
    )
