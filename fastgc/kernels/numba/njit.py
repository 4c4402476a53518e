"""How kernels are compiled, and arithmetic by bits, which Numba lacks.

Kernels run without the GIL, and are kept on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic, overload


def _digest(folder: Path) -> str:
    """Digest of the sources in a folder and below it."""
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# Numba takes cached code for outdated if the function's own file has changed its time or size. That
# is too little: the functions compiled into it are in other files here, and the tables that it
# takes in kernels/cyclic.py. It is also too much: a new installation of the same sources needs no
# new code.
# So the stamp is a digest of all these sources.
_SOURCES = _digest(Path(__file__).parents[1])


def _or_empty(load: Callable[[], dict[Any, str]]) -> Callable[[], dict[Any, str]]:
    """Load the index of cached code; take it for empty if it names types that have moved.

    Numba unpickles the types in an index before it compares stamps.
    """

    def index() -> dict[Any, str]:
        try:
            return load()
        except (ImportError, AttributeError):
            return {}

    return index


def _disabled(*_: object) -> NoReturn:
    raise RuntimeError(
        "NUMBA_DISABLE_JIT is set, and the functions of fastgc.kernels.numba work compiled only: "
        "unset it, or call fastgc.kernels, whose functions are compiled from C"
    )


def _compiler(**options: Any) -> Callable[[Any], Any]:
    compile_ = numba.njit(nogil=True, cache=True, error_model="numpy", **options)

    def decorate(function: Any) -> Any:
        if numba.config.DISABLE_JIT:
            return _disabled
        kernel = compile_(function)
        with suppress(AttributeError):  # a Numba with another cache, or with compilation disabled
            kept = kernel._cache._cache_file
            kept._source_stamp = _SOURCES
            kept._load_index = _or_empty(kept._load_index)
        return kernel

    return decorate


# Fused multiply-adds are allowed (one rounding fewer). No other liberty is.
njit = _compiler(fastmath={"contract"})

# For times and distances, which are compared for equality: every backend must round them alike.
# fastmath is given: Numba takes omitted options from the first caller, also for cached code.
njit_exact = _compiler(fastmath=False)


def by_types(choose):
    """Decorate a function that returns, for types of arguments, a function of compiled code.

    Compiled code calls it by the decorated function's name.
    """

    @wraps(choose)
    def stand_in(*arguments):
        raise NotImplementedError("only compiled code calls this")

    overload(stand_in)(choose)
    return stand_in


_POWERS = np.ldexp(1.0, np.arange(-1022, 1024))


@by_types
def over(a, d):
    """Quotient. Numba's own division of complex numbers raises an exception for 0."""
    if isinstance(d, types.Complex):

        def divide(a, d):
            size = max(abs(d.real), abs(d.imag))
            re, im = d.real / size, d.imag / size
            square = (re * re + im * im) * size
            return a * complex(re / square, -im / square)

        return divide
    return lambda a, d: a / d


def bits_as(given, taken):
    """Make a function of compiled code that turns a number into one of type `taken`, bit by bit."""

    @intrinsic
    def take(typingctx, number):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(taken))

        return taken(given), codegen

    return take


bits_of = bits_as(types.float64, types.int64)
double_of = bits_as(types.int64, types.float64)


@njit
def power_of_two(e):
    """``2.0**e``, or the nearest such power that is a normal float64."""
    return _POWERS[min(max(e, -1022), 1023) + 1022]


@njit
def larger_part(z):
    """The larger of the sizes of a number's real and imaginary part."""
    return max(abs(z.real), abs(z.imag))


@by_types
def times(z, a):
    """A number times a real one."""
    if isinstance(z, types.Complex):
        return lambda z, a: complex(z.real * a, z.imag * a)
    return lambda z, a: z * a


@by_types
def inverses(c, d):
    """1 / c and 1 / d by one division, for c and d in the middle of a double's range."""
    if isinstance(c, types.Complex):

        def invert(c, d):
            u, v = c.real * c.real + c.imag * c.imag, d.real * d.real + d.imag * d.imag
            both = 1 / (u * v)
            over_c, over_d = both * v, both * u
            return complex(c.real * over_c, -c.imag * over_c), complex(
                d.real * over_d, -d.imag * over_d
            )

        return invert

    def invert_real(c, d):
        both = 1 / (c * d)
        return both * d, both * c

    return invert_real
