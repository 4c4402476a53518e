"""The kernels in NumPy: the oracle of the other two, and the fallback."""

from .combine import bind_combine, bind_encode, combine, square_sum
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
from .vandermonde import leja_order, solve_vandermonde

__all__ = [
    "amsgrad",
    "bind_cells",
    "bind_combine",
    "bind_decoding_vector",
    "bind_edges",
    "bind_encode",
    "bind_functional",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "bind_tiling",
    "combine",
    "combine_pairs",
    "completion",
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
    "sgd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
]
