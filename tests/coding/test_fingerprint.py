"""Fingerprints are digests of all rows, to six digits, by the definition."""

import hashlib

import numpy as np
import pytest
from tables import SMALL

from fastgc import Code, LinearCode
from fastgc.coding.fingerprint import fingerprint


def test_fingerprints_do_not_see_the_sign_of_nothing():
    """A number that is rounded to 0 may come from either side."""
    codes = [LinearCode([[1, tiny], [0, 1], [1, 1]]) for tiny in (1e-9, -1e-9, 1e-3)]
    prints = [fingerprint(code.scheme) for code in codes]
    assert prints[0] == prints[1] != prints[2]


class Mixed(Code):
    """Rows of two kinds, of different lengths, of zeros, and, for every third worker, none."""

    def __init__(self, n):
        self.n = self.k = n

    def row(self, worker):
        size = worker % 3
        held = np.array([worker, (worker + 1) % self.n])[:size]
        values = [1.5 * (worker != 4), 1e-9] if worker < 5 else [1.5 + 1j, 1j * worker]
        return held, np.array(values)[:size]


@pytest.mark.parametrize("together", [0, 5, 1 << 16])
def test_fingerprints_are_digests_row_by_row(together, monkeypatch):
    """This holds for codes of any kind, however many rows are digested together."""
    monkeypatch.setattr("fastgc.coding.fingerprint.DIGESTED", together)
    for code in (*SMALL, Mixed(9), LinearCode(np.diag([1.0, -2e-9, -3.0]))):
        hashed = hashlib.blake2b(digest_size=8)
        for number in range(code.scheme.messages.count):
            worker, index = code.scheme.messages.sender(number)
            values = code.coefficients(worker, index)
            largest = float(np.abs(values).max(initial=0)) or 1.0
            rounded = (np.round(values / largest, 6) + 0.0) * float(f"{largest:.6g}")
            for array in (code.partitions(worker, index), rounded):
                hashed.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        if code.scheme.data.coded:  # what workers hold of each partition
            for X, _ in code.encode_data(np.eye(code.k), np.zeros(code.k)):
                largest = float(np.abs(X).max()) or 1.0
                rounded = (np.round(X / largest, 6) + 0.0) * float(f"{largest:.6g}")
                hashed.update(f"{X.dtype.str}{X.shape}".encode() + rounded.tobytes())
        assert fingerprint(code.scheme) == hashed.hexdigest()
