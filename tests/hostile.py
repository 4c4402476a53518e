"""What fuzzers put in the place of right arguments: other layouts, shapes, numbers, or anything."""

from __future__ import annotations

import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np

DTYPES = [
    "f4",
    "f8",
    "f2",
    "c8",
    "c16",
    "i8",
    "i4",
    "u8",
    "?",
    "g",
    "O",
    "S3",
    ">f8",
    ">i8",
    ">c16",
]
REALS = [0.0, -0.0, 1.0, -1.0, 0.3, 1e300, 1e-300, 1e39, 2.0**255, np.inf, -np.inf, np.nan]
STRANGE = [None, "text", b"bytes", 3, -1, 0.5, float("nan"), 1j, (), [], {}, object, np.add]


class Changes:
    """Draws what takes arguments' places.

    Attributes
    ----------
    said : list of str
        What was changed.
    same : bool
        Whether all changes were of layouts and the like, which keep the numbers.
    wild : bool
        Whether results may differ in more than roundings.
    """

    dtypes = (*DTYPES, ml_dtypes.bfloat16)
    strange = STRANGE
    often = 0.1  # how often it is something altogether strange
    ways = (
        *("size", "size", "shape", "scalar", "dtype", "dtype", "layout", "layout", "values"),
        *("read_only", "type"),
    )

    def __init__(self, rng):
        self.rng, self.said, self.same, self.wild = rng, [], True, False

    def __str__(self):
        return ", ".join(self.said)

    def pick(self, values):
        """Return one of the values, not converted."""
        return values[self.rng.integers(len(values))]

    def array(self, value):
        """Return a copy of an array."""
        return np.array(value, order="C")

    def misaligned(self, value):
        memory = np.zeros(value.nbytes + 1, np.uint8)[1:].view(value.dtype).reshape(value.shape)
        memory[...] = value
        return memory

    def changed(self, name, value):
        """Return something to take an argument's place, and note what."""
        before = len(self.said)
        other = self.other(name, value)
        self.said[before:] = [f"{name}: {' '.join(self.said[before:])}"]
        return other

    def other(self, name, value):
        if self.rng.random() < self.often:
            return self.taken(self.strange)
        if type(value) is np.ndarray:
            return self.other_array(value)
        if isinstance(value, bool | np.bool_ | int | np.integer | float | np.floating):
            alike, others = self.numbers(name, value)
            same = self.same
            at = int(self.rng.integers(len(alike) + len(others)))
            new = self.taken([[*alike, *others][at]])
            self.same = same and at < len(alike)
            return new
        return self.taken(self.strange)

    def taken(self, values):
        """Return one of these values, which may change all results."""
        new, self.same, self.wild = self.pick(values), False, True
        huge = isinstance(new, np.ndarray) and new.size > 99
        self.said.append("huge" if huge else f"{new!r}"[:60])
        return new

    def numbers(self, name, value):
        """Return numbers that mean the same as one, and others."""
        if isinstance(value, bool | np.bool_):
            return [np.bool_(value)], [not value, 2, 0.0, "yes", np.array([True, False])]
        if isinstance(value, int | np.integer):
            more = [float(value), Fraction(value), np.array(value), value + 1, -value, 3 * value]
            return [np.int16(value), np.int64(value)] if abs(value) < 2**15 else [], more
        return [np.float64(value), np.array(value)], [*REALS, np.float16(0.5), 3, "0.5", 1j]

    def other_array(self, value):
        how = self.pick(self.ways)
        self.said.append(how.replace("_", "-"))
        self.same &= how in ("layout", "read_only", "type")
        return getattr(self, f"by_{how}")(value)

    def by_size(self, value):
        """Make one axis longer or shorter."""
        axis = int(self.rng.integers(max(value.ndim, 1)))
        size = value.shape[axis] if value.ndim else 1
        new = self.pick([size - 1, size + 1, 0, 1, 2, 2 * size, size - 2])
        self.said.append(str(new))
        flat = value if value.ndim else value[None]
        return self.array(
            np.take(flat, np.arange(max(new, 0)) % max(size, 1), axis) if size else flat
        )

    def by_shape(self, value):
        flat = value.reshape(-1)
        new = self.pick([value[None], value[..., None], flat, value.T, flat[:, None]])
        self.said.append(str(new.shape))
        return self.array(new)

    def by_scalar(self, value):
        """Return a number, which NumPy takes for an array, or an array without dimensions."""
        number = value.reshape(-1)[0] if value.size else value.dtype.type(0)
        new = self.pick([number, np.float64(2.5), np.int64(1), np.complex128(1), np.array(number)])
        self.said.append(f"{type(new).__name__} {new!r}"[:60])
        return self.array(new) if type(new) is np.ndarray else new

    def by_dtype(self, value):
        dtype, self.wild = np.dtype(self.pick(self.dtypes)), True
        self.said.append(str(dtype))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                new = value.astype(dtype)
            except (TypeError, ValueError):
                new = np.zeros(value.shape, dtype)
        return self.array(new)

    def by_layout(self, value):
        """Lay the numbers out otherwise."""
        ways = ["gaps", "backwards", "broadcast", "misaligned", "fortran", "shifted", "swapped"]
        how = self.pick(ways)
        self.said.append(how)
        if how == "broadcast":
            first = value.reshape(-1)[:1] if value.size else np.zeros(1, value.dtype)
            self.same, self.wild = False, True
            return np.broadcast_to(self.array(first)[0], value.shape)
        if how == "backwards" and value.ndim:
            return self.array(value[::-1])[::-1]
        if how == "gaps" and value.ndim:
            new = self.array(np.zeros((2 * value.shape[0], *value.shape[1:]), value.dtype))[::2]
            new[...] = value
            return new
        if how == "misaligned" and value.itemsize > 1:
            return self.misaligned(value)
        if how == "fortran":
            return np.asfortranarray(value)
        if how == "swapped":
            return value.astype(value.dtype.newbyteorder(">"))
        new = self.array(np.concatenate([value.reshape(-1)[:1], value.reshape(-1)]))[1:]
        return new.reshape(value.shape) if value.size else self.array(value)

    def by_values(self, value):
        """Make some numbers NaN, huge, negative, equal to the first, or indices out of range."""
        new, self.wild = np.array(value), True
        if not new.size:
            return self.array(new)
        at = self.rng.integers(new.size, size=self.rng.integers(1, 3))
        if new.dtype.kind in "iu":
            number = self.pick([-1, new.size, new.size + 1, 0, 1, 2**62, -(2**63), 2**63 - 1])
            number = np.array(number).astype(new.dtype)
        else:
            with np.errstate(all="ignore"):
                number = np.array(self.pick(REALS)).astype(new.dtype)
        if self.rng.random() < 0.3:
            number = new.reshape(-1)[0]
        self.said.append(str(number))
        new.reshape(-1)[at] = number
        return self.array(new)

    def by_read_only(self, value):
        new = self.array(value)
        new.flags.writeable = False
        return new

    def by_type(self, value):
        """Return something that is no array, or an array of a subclass."""
        kind = self.pick(["list", "memoryview", "matrix", "masked", "bytes", "subclass"])
        self.said.append(kind)
        self.same &= kind in ("list", "memoryview", "subclass")
        if kind == "list":
            return value.tolist()
        if kind == "memoryview":
            lends = value.dtype.char != "E"  # bfloat16 has no buffer
            return memoryview(self.array(value if lends else value.view(np.uint16)))
        if kind == "bytes":
            return value.tobytes()
        if kind == "matrix" and value.ndim in (1, 2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # np.matrix is deprecated
                return np.asmatrix(value)
        if kind == "masked":
            return np.ma.masked_array(value, mask=np.arange(value.size).reshape(value.shape) == 0)
        return self.array(value).view(type("Own", (np.ndarray,), {}))
