"""The compiled extension (csrc/), reached through cffi."""

from .apart import bind_add, bind_apart
from .arrivals import bind_arrivals
from .combine import bind_combine, bind_encode, bind_square_sum, combine, square_sum
from .combine_pairs import combine_pairs
from .completion import completion
from .cover import bind_cells, bind_tiling
from .decoding import (
    bind_decoding_vector,
    bind_polar,
    bind_stream,
    bind_survivor_mask,
    decoding_vectors,
)
from .delays import draw
from .dispatch import select_simd, simd
from .edges import bind_edges
from .lagrange import (
    bind_functional,
    lagrange_basis,
    lagrange_evaluate,
    lagrange_products,
    lagrange_weights,
)
from .near_exact import ridge
from .near_exact_pairs import locator_pairs, ridge_pairs
from .optimize import amsgrad, nesterov, replace, sgd, square_distance
from .pool import counts, set_least
from .rings import bind_rings
from .vandermonde import leja_order, solve_vandermonde

__all__ = [
    "amsgrad",
    "bind_add",
    "bind_apart",
    "bind_arrivals",
    "bind_cells",
    "bind_combine",
    "bind_decoding_vector",
    "bind_edges",
    "bind_encode",
    "bind_functional",
    "bind_polar",
    "bind_rings",
    "bind_square_sum",
    "bind_stream",
    "bind_survivor_mask",
    "bind_tiling",
    "combine",
    "combine_pairs",
    "completion",
    "counts",
    "decoding_vectors",
    "draw",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
    "leja_order",
    "locator_pairs",
    "nesterov",
    "replace",
    "ridge",
    "ridge_pairs",
    "select_simd",
    "set_least",
    "sgd",
    "simd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
]
