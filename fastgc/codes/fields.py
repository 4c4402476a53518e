"""Finite fields, by tables: what designs and graphs are made of."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Field", "is_prime", "prime_power"]


class Field(NamedTuple):
    """A field of q elements, numbered from 0, of which 0 is zero and 1 is one.

    Attributes
    ----------
    plus, times : (q, q) int64 array
    """

    plus: NDArray[np.int64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, q: int) -> Field:
        """The field of q elements, a power of a prime; ValueError otherwise.

        Elements are polynomials over the integers modulo p, modulo an irreducible one; the number
        of an element has its coefficients for digits, to the base p.
        """
        found = prime_power(q)
        if found is None:
            raise ValueError(f"there is a field of q elements for powers of primes, not q={q}")
        p, m = found
        place = p ** np.arange(m)
        digits = np.arange(q)[:, None] // place % p
        plus = (digits[:, None] + digits) % p @ place
        # products of all pairs of polynomials, of degree 2 m - 2 at most, to be reduced
        whole = np.zeros((q, q, 2 * m - 1), dtype=np.int64)
        for i, j in product(range(m), repeat=2):
            whole[..., i + j] += digits[:, None, i] * digits[:, j]
        for low in product(range(p), repeat=m):  # of x^m - low(x)
            left = whole % p
            for top in range(2 * m - 2, m - 1, -1):
                left[..., top - m : top] += left[..., top, None] * np.array(low)
                left %= p
            times = left[..., :m] @ place
            # without divisors of zero it is a field
            if (times[1:, 1:] != 0).all():
                return cls(plus, times)
        raise AssertionError("there is an irreducible polynomial of every degree")

    def squares(self) -> NDArray[np.int64]:
        """The elements that are squares, without 0."""
        return np.unique(np.diag(self.times)[1:])

    def minus(self) -> NDArray[np.int64]:
        """The negative of each element."""
        found: NDArray[np.int64] = self.plus.argmin(axis=1)
        return found


def is_prime(number: int) -> bool:
    """Whether it is a prime."""
    return number > 1 and all(number % i for i in range(2, int(number**0.5) + 1))


def prime_power(q: int) -> tuple[int, int] | None:
    """The prime p and the exponent m of q = p^m; None if it is no such power."""
    p = next((i for i in range(2, int(q**0.5) + 1) if q % i == 0), q)
    m = 1
    while p > 1 and p**m < q:
        m += 1
    return (p, m) if p > 1 and p**m == q else None
