"""The kernels in Numba, for `fastgc.kernels` and for a user's own ``@njit`` code.

Compiled functions can call everything in ``__all__``. Arguments are numbers, arrays, or named
tuples of them. The functions check lengths, and numbers of workers and nodes, so that they write
nothing out of place; they check nothing else. All are cached on disk and release the GIL. A
function of yours that calls them compiles in seconds, and ``@njit(cache=True)`` keeps it. Functions
whose names begin with ``bind_`` return a function, also in compiled code. The other functions of
this module take Python objects, and are for `fastgc.kernels`.

The example compiles a loop of gradient descent as a whole. `fastgc.codes.jit` says which codes
`encode` and `decode` take; `combine_rows` and `accumulate` take the coefficients of any code::

    import numba
    import numpy as np

    import fastgc
    from fastgc.kernels import numba as nb


    @numba.njit
    def train(code, targets, arrivals, lr):
        n, p = targets.shape
        theta, gradient, messages = np.zeros(p), np.empty(p), np.empty((n, p))
        for survivors in arrivals:
            partials = theta - targets
            for i in survivors:  # the workers' part
                nb.encode(code, i, partials, messages[i])
            if nb.decode(code, survivors, messages, gradient) != 0:
                raise ValueError("not decodable, imprecise or not finite")
            theta -= lr * gradient
        return theta


    code = fastgc.ReedSolomon(80, stragglers=12)
    rng = np.random.default_rng(0)
    targets = rng.standard_normal((80, 640))
    arrivals = np.array([rng.permutation(80)[:68] for _ in range(50)])
    theta = train(fastgc.codes.jit(code), targets, arrivals, 0.5 / 80)
    np.testing.assert_allclose(theta, targets.mean(axis=0), atol=1e-9)
"""

from .. import numpy as _plain
from ..cyclic import LOCATOR as LOCATOR
from ..cyclic import LOOKUP as LOOKUP
from ..cyclic import SPREAD as SPREAD
from .combine import *  # noqa: F403
from .cover import *  # noqa: F403
from .decoding import *  # noqa: F403
from .jitted import *  # noqa: F403
from .lagrange import *  # noqa: F403
from .vandermonde import *  # noqa: F403

# These take Python objects: plans of cyclic codes, or rows.
_FACADES = {"bind_decoding_vector", "combine", "decoding_vectors"}
__all__ = ["LOCATOR", "LOOKUP", "SPREAD"]
__all__ += [
    _name
    for _name, _each in sorted(globals().items())
    if callable(_each) and not _name.startswith("_") and _name not in _FACADES
]

for _name, _function in [*globals().items()]:  # NumPy's functions have the docstrings
    if callable(_function) and not _function.__doc__:
        _function.__doc__ = getattr(_plain, _name).__doc__
