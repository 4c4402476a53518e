"""Arithmetic of real or complex numbers, and the bits of doubles."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from .njit import njit

__all__ = [
    "bits_as",
    "bits_of",
    "double_of",
    "inverses",
    "larger_part",
    "over",
    "power_of_two",
    "times",
]

_POWERS = np.ldexp(1.0, np.arange(-1022, 1024))


def over(a, d):
    """Quotient. Numba's own division of complex numbers raises an exception for 0."""


@overload(over)
def _over(a, d):
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


def times(z, a):
    """A number times a real one."""


@overload(times)
def _times(z, a):
    if isinstance(z, types.Complex):
        return lambda z, a: complex(z.real * a, z.imag * a)
    return lambda z, a: z * a


def inverses(c, d):
    """1 / c and 1 / d by one division, for c and d in the middle of a double's range."""


@overload(inverses)
def _inverses(c, d):
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
