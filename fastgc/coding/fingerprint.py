"""A digest of what the workers of a code send, by which runs and ranks find the same code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from .._base.arrays import Array
from .scheme import Row, Scheme

DIGESTED = 1 << 16  # entries of B that a fingerprint digests at a time


def fingerprint(scheme: Scheme) -> str:
    """Return a text that identifies a code by what its workers send: a digest of all rows.

    It takes six digits of coefficients, relative to the largest one in their message, so that
    it is the same on all machines.
    """
    hashed = hashlib.blake2b(digest_size=8)
    rows: list[Row] = []
    size = 0
    for row in scheme.message_rows():
        if size > DIGESTED or (rows and row[1].dtype != rows[0][1].dtype):
            hashed.update(_digested(rows))
            rows, size = [], 0
        rows.append(row)
        size += row[0].size
    hashed.update(_digested(rows))
    if scheme.data.coded:
        for X, _ in scheme.data.encode(np.eye(scheme.k), np.zeros(scheme.k)):
            X = np.ascontiguousarray(_rounded(X, [0, len(X)]))
            hashed.update(f"{X.dtype.str}{X.shape}".encode())
            hashed.update(X.data)
    return hashed.hexdigest()


def _digested(rows: Sequence[Row]) -> bytes:
    """The bytes that a fingerprint digests for these rows."""
    if not rows:
        return b""
    first = list(accumulate((held.size for held, _ in rows), initial=0))
    values = _rounded(np.concatenate([values for _, values in rows]), first)
    parts: list[bytes] = []
    for (held, _), start, end in zip(rows, first, first[1:], strict=False):
        for array in held, values[start:end]:
            parts += f"{array.dtype.str}{array.shape}".encode(), array.tobytes()
    return b"".join(parts)


def _rounded(values: Array, first: Sequence[int]) -> Array:
    """`values` to six digits of the largest one in their part; parts begin and end at `first`."""
    sizes = np.abs(values).reshape(len(values), -1).max(axis=1, initial=0)
    counts = np.diff(first)
    largest = np.maximum.reduceat(sizes, np.array(first[:-1])[counts > 0]) if sizes.size else sizes
    largest[largest == 0] = 1.0
    coarse = np.array([float(f"{size:.6g}") for size in largest.tolist()])
    shape = (-1,) + (1,) * (values.ndim - 1)
    largest, coarse = (np.repeat(x, counts[counts > 0]).reshape(shape) for x in (largest, coarse))
    with np.errstate(invalid="ignore"):  # values may be beyond float64
        relative = np.round(values / largest, 6) + 0.0  # + 0.0 turns -0.0 into 0.0
        rounded: Array = relative * coarse
    return rounded
