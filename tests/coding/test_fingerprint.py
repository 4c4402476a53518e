"""Fingerprints are digests of all rows, to six digits, by the definition."""

import hashlib

import numpy as np
from tables import SMALL

from fastgc import (
    Code,
    LinearCode,
)
from fastgc.coding.fingerprint import fingerprint


def test_fingerprints_do_not_see_the_sign_of_nothing():
    """A number that is rounded to 0 may come from either side."""
    codes = [LinearCode([[1, tiny], [0, 1], [1, 1]]) for tiny in (1e-9, -1e-9, 1e-3)]
    prints = [fingerprint(code.scheme) for code in codes]
    assert prints[0] == prints[1] != prints[2]


def test_fingerprints_are_digests_row_by_row():
    """This holds for codes of any kind, and for one with two kinds of rows."""

    class Mixed(Code):
        def __init__(self, n):
            self.n = self.k = n

        def row(self, worker):
            held = [worker, (worker + 1) % self.n]
            return held[: 1 + worker % 2], [1.5 + 1j * (worker > 1), 1e-9][: 1 + worker % 2]

    for code in (*SMALL, Mixed(4), LinearCode(np.diag([1.0, -2e-9, -3.0]))):
        hashed = hashlib.blake2b(digest_size=8)
        for number in range(code.scheme.messages.count):
            worker, index = code.scheme.messages.sender(number)
            values = code.coefficients(worker, index)
            largest = float(np.abs(values).max(initial=0)) or 1.0
            rounded = (np.round(values / largest, 6) + 0.0) * float(f"{largest:.6g}")
            for array in (code.partitions(worker, index), rounded):
                hashed.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        if not code.scheme.data.coded:
            assert fingerprint(code.scheme) == hashed.hexdigest()
