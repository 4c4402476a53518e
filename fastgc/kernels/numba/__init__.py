"""The kernels in Numba, for the facade and for a user's own ``@njit`` code.

`decoding_vector`, `rebuild_stream`, `step_stream`, `stream_vector`, `combine_rows`, `accumulate`,
`sgd`, `nesterov`, `amsgrad`, `replace`, `square_distance`, `leja_order`, `vandermonde_column`,
`lagrange_products` and `completion` take numbers, arrays, or named tuples of them, and may be
called from compiled functions; they check nothing. All are cached on disk and release the GIL.
"""

from ..cyclic import LOCATOR, LOOKUP, SPREAD
from .combine import accumulate, bind_combine, combine, combine_rows, square_sum
from .completion import completion
from .decoding import (
    bind_decoding_vector,
    bind_polar,
    bind_stream,
    bind_survivor_mask,
    decoding_vector,
    decoding_vectors,
    rebuild_stream,
    step_stream,
    stream_vector,
)
from .lagrange import lagrange_basis, lagrange_products
from .optimize import amsgrad, nesterov, replace, sgd, square_distance
from .vandermonde import leja_order, solve_vandermonde, vandermonde_column

__all__ = [
    "LOCATOR",
    "LOOKUP",
    "SPREAD",
    "accumulate",
    "amsgrad",
    "bind_combine",
    "bind_decoding_vector",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "combine_rows",
    "completion",
    "decoding_vector",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "nesterov",
    "rebuild_stream",
    "replace",
    "sgd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
    "step_stream",
    "stream_vector",
    "vandermonde_column",
]
