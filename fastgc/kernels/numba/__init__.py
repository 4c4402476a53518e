"""Kernels for a user's own ``@njit`` code: Vandermonde systems, Lagrange, decoding, combinations.

Compiled functions can call everything in ``__all__``. Arguments are numbers and arrays, and for
decoding vectors a named tuple of arrays. The functions check lengths, and numbers of workers and
nodes, so that they write nothing out of place; they check nothing else. All are cached on disk and
release the GIL. A function of yours that calls them compiles in seconds, and ``@njit(cache=True)``
keeps it.

The example compiles a loop of gradient descent as a whole::

    import numba
    import numpy as np

    import fastgc
    from fastgc.kernels import numba as nb


    @numba.njit
    def train(tables, partitions, coefficients, targets, arrivals, lr):
        (n, p), f = targets.shape, arrivals.shape[1]
        theta, gradient, messages = np.zeros(p), np.empty(p), np.empty((n, p))
        vector = np.empty(f, np.complex128)
        for survivors in arrivals:
            partials = theta - targets
            for i in survivors:  # the workers' part
                nb.combine_rows(coefficients[i], partials, messages[i], partitions[i])
            if nb.decoding_vector(tables, nb.SPREAD, survivors, vector)[0] != 0:
                raise ValueError("not decodable")
            if not nb.combine_rows(vector, messages, gradient, survivors):
                raise ValueError("not finite")
            theta -= lr * gradient
        return theta


    code = fastgc.ReedSolomon(80, stragglers=12)
    partitions = np.array([code.partitions(i) for i in range(80)])
    coefficients = np.array([code.coefficients(i) for i in range(80)])
    rng = np.random.default_rng(0)
    targets = rng.standard_normal((80, 640))
    arrivals = np.array([rng.permutation(80)[:68] for _ in range(50)])
    theta = train(code.scheme.tables, partitions, coefficients, targets, arrivals, 0.5 / 80)
    np.testing.assert_allclose(theta, targets.mean(axis=0), atol=1e-9)
"""

from ..cyclic import LOCATOR as LOCATOR
from ..cyclic import LOOKUP as LOOKUP
from ..cyclic import SPREAD as SPREAD
from .combine import combine_rows
from .decoding import decoding_vector, decoding_vectors
from .lagrange import (
    lagrange_basis,
    lagrange_evaluate,
    lagrange_functional,
    lagrange_products,
    lagrange_weights,
)
from .vandermonde import leja_order, solve_vandermonde

__all__ = [
    "LOCATOR",
    "LOOKUP",
    "SPREAD",
    "combine_rows",
    "decoding_vector",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_functional",
    "lagrange_products",
    "lagrange_weights",
    "leja_order",
    "solve_vandermonde",
]
