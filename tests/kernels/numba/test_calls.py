"""Numba's functions are those of the table of kernels, from a user's compiled code as well."""

import copy
import inspect

import numpy as np
import pytest
from oracles import KERNELS
from oracles.combine import COMBINE
from oracles.decoding import DECODING

from fastgc import kernels
from fastgc.kernels.c import calls as c

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402
from fastgc.kernels.numba import calls as by_numba  # noqa: E402

FUNCTIONS = [name for name in nb.__all__ if callable(getattr(nb, name))]
# The kernel of another name that a function is compared with, and the function's arguments.
OTHERS = {
    "combine_rows": (
        COMBINE,
        lambda mode, rows, coef, out, accumulate, **_: (
            *(coef, np.array(rows), out, np.arange(len(rows)), accumulate),
        ),
    ),
    "decoding_vector": (
        DECODING,
        lambda plan, survivors, out, method: (plan.tables, method, survivors, out),
    ),
    "lagrange_functional": (
        next(kernel for kernel in KERNELS if kernel.name == "bind_functional"),
        lambda nodes, points, chosen, out: (nodes, points, chosen, out),
    ),
}


def entry(name):
    """Return the kernel that a function is compared with, and how to call the function."""
    if name in OTHERS:
        kernel, arranged = OTHERS[name]
        return kernel, lambda given: arranged(**given)
    parameters = [*inspect.signature(getattr(nb, name).py_func).parameters]
    [kernel] = (kernel for kernel in KERNELS if kernel.name == name)
    return kernel, lambda given: tuple(given[each] for each in parameters)


@pytest.mark.parametrize("name", sorted(by_numba.__all__))
def test_calls_take_what_c_takes(name):
    of = getattr(by_numba, name)
    taken = inspect.signature(getattr(of, "py_func", of)).parameters.values()
    wanted = inspect.signature(getattr(c, name, None) or c.made(name)).parameters.values()
    assert [(each.name, each.default) for each in taken] == [
        (each.name, each.default) for each in wanted
    ]


@pytest.mark.numba
@pytest.mark.few(5)
@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"decoding_vectors"}))
def test_functions_called_from_compiled_code(name):
    function, (kernel, arranged) = getattr(nb, name), entry(name)

    @numba.njit
    def call(*arguments):
        return function(*arguments)

    rng, case = np.random.default_rng(0), kernel.cases[-1]
    case = case | {"mode": kernels.PACKED} if name == "combine_rows" else case
    for size, count in [(1, 1), (6, 3), (9, 2), (33, 6)]:
        given = kernel.make(rng, size, count, np.float64, **case)
        truth, after = kernel.true(given), copy.deepcopy(given)
        returned = call(*arranged(after))
        found = {each: after[each] for each in kernel.writes if after[each] is not None}
        found["returned"] = returned[0] if name == "decoding_vector" else returned
        kernel.check(given, found, truth)
