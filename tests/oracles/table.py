"""What an entry of the table of kernels is, and what several entries need.

The truth is the oracle's, computed in extended precision. Tests compare C and Numba with it at all
sizes, dtypes and SIMD levels; the fuzzer and benches call kernels with these arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fastgc import kernels

WIDE = np.longdouble

WIDE_COMPLEX = np.clongdouble

HALVES = (np.float16, ml_dtypes.bfloat16)

REALS = (np.float32, np.float64)

UNIT = {np.float32: 2.0**-24, np.float64: 2.0**-53, **dict.fromkeys(HALVES, 2.0**-24)}  # of sums

U = UNIT[np.float64]

LONG = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 1025, 4097, 16385)

KINDS = ({"complex_": False}, {"complex_": True})
NODES = (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 65)


def _plainly(function, given):
    return function(**given)


@dataclass(frozen=True)
class Kernel:
    """How to call a kernel, and what its results must be.

    Attributes
    ----------
    name : str
        Of the call in `fastgc.kernels.unchecked`, and of its oracle.
    make : callable
        ``make(rng, size, count, dtype, **case)`` returns the call's arguments by name: `count`
        vectors of `size` elements; or `size` workers of which `count` straggle; or `size` nodes and
        `count` points or columns.
    check : callable
        ``check(given, found, truth)`` asserts that results are near the truth, for the arguments
        before the call. Results are a dict: arrays that are written, and what is "returned".
    writes : tuple of str
        Arguments that it writes.
    shapes : iterable of (size, count)
    dtypes : tuple
    cases : tuple of dict
        What `make` takes besides.
    call : callable
        ``call(function, arguments)``; it leaves the arguments as they are, but for arrays.
    wide : bool
        Whether the oracle has its arguments in extended precision.
    truth : callable, optional
        ``truth(arguments)`` returns results by other means than the oracle.
    moves : str, optional
        Of a step: the vector whose change it returns.
    split : bool
        Whether threads share its work.
    """

    name: str
    make: Callable[..., dict[str, Any]]
    check: Callable[..., None]
    writes: tuple[str, ...]
    shapes: Iterable[tuple[int, int]]
    dtypes: tuple[Any, ...] = (np.float64,)
    cases: tuple[dict[str, Any], ...] = ({},)
    call: Callable[..., Any] = _plainly
    wide: bool = True
    truth: Callable[..., dict[str, Any]] | None = None
    moves: str | None = None
    split: bool = False

    def run(self, given, function=None):
        """Call the kernel, or another function of its kind; return the results."""
        returned = self.call(function or getattr(kernels.unchecked, self.name), given)
        return {"returned": returned} | {
            name: given[name] for name in self.writes if given.get(name) is not None
        }

    def fresh(self, given):
        """Return the arguments; those that the kernel writes are copies."""
        return given | {name: copy.copy(given[name]) for name in self.writes}

    def true(self, given):
        """Return the true results."""
        from . import NAMED

        if self.truth is not None:
            return self.truth(given)
        given = {
            name: widened(value) if self.wide else copy.deepcopy(value)
            for name, value in given.items()
        }
        return self.run(given, NAMED[self.name])


def widened(value):
    """Copy an argument; floats and complex numbers of an array in extended precision."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind in "iub":
        return copy.deepcopy(value)
    # By way of float64, to which bfloat16 converts.
    value = value.astype(np.result_type(value, np.float64))
    return value.astype(WIDE_COMPLEX if np.iscomplexobj(value) else WIDE)


def equal(given, found, truth):
    for name, value in truth.items():
        if value is not None:
            np.testing.assert_array_equal(found[name], value, name)


def within(bound, found, truth):
    """Assert that numbers are near the truth, or equal to it: Inf, or not a number."""
    with np.errstate(invalid="ignore"):  # Inf minus Inf
        near = np.abs(found - truth) <= bound
    assert (near | (found == truth) | (np.isnan(found) & np.isnan(truth))).all()


def shapes(sizes, counts):
    return [(size, count) for size in sizes for count in counts]


def vectors(rng, size, count, dtype, complex_=False):
    """Draw vectors that begin at the second element: they need not begin on a cache line."""
    rows = []
    for _ in range(count):
        row = rng.standard_normal(size + 1)
        if complex_:
            row = row + 1j * rng.standard_normal(size + 1)
        rows.append(row.astype(np.result_type(dtype, np.complex64) if complex_ else dtype)[1:])
    return rows


def nodes_of(rng, size, complex_):
    """Return good nodes in random order: in [-2, 2], of capacity 1, or 8/9 of all roots of 1."""
    if not complex_:
        return rng.permutation(2 * np.cos(np.pi * (np.arange(size) + 0.5) / size))
    whole = size + size // 8
    return np.exp(2j * np.pi * rng.permutation(whole)[:size] / whole)


def named(chosen):
    """Return what ``pytest.mark.parametrize`` takes for each kernel, case and dtype."""
    found, ids = [], []
    for kernel in chosen:
        for case in kernel.cases:
            for dtype in kernel.dtypes:
                if dtype in HALVES and case.get("mode", 0) > kernels.PACKED:
                    continue
                found.append((kernel, case, dtype))
                words = [f"{name}={value}" for name, value in case.items()]
                words += [np.dtype(dtype).name] if len(kernel.dtypes) > 1 else []
                ids.append("-".join([kernel.name, *words]))
    return {"argnames": ("kernel", "case", "dtype"), "argvalues": found, "ids": ids}
