"""Floating-point arithmetic as users may have set it."""

import ctypes
import platform
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

# The word of glibc's `fenv_t`, and its bits, by which subnormal numbers count as zero: FTZ and DAZ
# of MXCSR; FZ of FPCR.
_BITS = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}.get(platform.machine())
FLUSHES = sys.platform == "linux" and _BITS is not None


@contextmanager
def flushing(on=True):
    """Let this thread flush subnormal numbers to zero, as ``torch.set_flush_denormal`` does."""
    if not FLUSHES:
        pytest.skip("flushes subnormal numbers by glibc, on two kinds of processors")
    word, bits = _BITS
    c = ctypes.CDLL(None)
    before = (ctypes.c_uint32 * 8)()
    c.fegetenv(before)
    now = type(before)(*before)
    now[word] = now[word] | bits if on else now[word] & ~bits
    c.fesetenv(now)
    try:
        yield
    finally:
        c.fesetenv(before)


def raising():
    """Have NumPy raise where a line of fastgc divides by 0, overflows or underflows.

    As in a program with ``np.seterr(all="raise")``; but lines of tests may do so, as usual.
    """
    return np.errstate(all="call", call=_raise)


def _raise(kind, _):
    frame = sys._getframe(1)
    while (package := frame.f_globals["__name__"].partition(".")[0]) in ("numpy", "scipy"):
        frame = frame.f_back
    if package == "fastgc":
        raise FloatingPointError(kind)
    if kind != "underflow":
        warnings.warn(f"{kind} encountered", RuntimeWarning, stacklevel=2)


MODES = {"raise": raising, "flush": flushing}
