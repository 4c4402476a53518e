"""The compiled extension (csrc/), reached through cffi."""

from .combine import bind_combine, bind_encode, combine, square_sum
from .completion import completion
from .decoding import (
    bind_decoding_vector,
    bind_polar,
    bind_stream,
    bind_survivor_mask,
    decoding_vectors,
)
from .dispatch import select_simd, simd
from .lagrange import lagrange_basis, lagrange_products
from .near_exact import ridge
from .optimize import amsgrad, nesterov, replace, sgd, square_distance
from .vandermonde import leja_order, solve_vandermonde

__all__ = [
    "amsgrad",
    "bind_combine",
    "bind_decoding_vector",
    "bind_encode",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "completion",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "nesterov",
    "replace",
    "ridge",
    "select_simd",
    "sgd",
    "simd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
]
