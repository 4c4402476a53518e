# bibd.py
"""Workers are points of a balanced incomplete block design, and partitions are its blocks."""

from itertools import product

import numpy as np

import fastgc


class BIBDCode(fastgc.Code):
    """Any two workers have as many partitions in common (Kadhe, Koyluoglu, Ramchandran 2019).

    Let every worker have r of b partitions, and any two lambda in common. Least squares combine any
    f messages with the coefficient r / (r - lambda + lambda f), and the square of the residual is
    ``1 - r^2 f / (b (r - lambda + lambda f))``: an adversary who chooses the stragglers does no
    more harm than chance. The gradient is exact only if all messages came.

    Parameters
    ----------
    q : int
        A prime, which is 3 modulo 4 for "paley". ValueError otherwise.
    design : {"projective", "affine", "paley"}
        Lines of a plane over the integers modulo q: n = q^2 + q + 1 = b and r = q + 1 if it is
        projective, n = q^2 and b = q^2 + q if it is affine; or the squares modulo n = q = b, and
        their translates, with r = (q - 1) / 2.
    wait : int, optional
        Most workers that a round waits for. Default: all.
    """

    def __init__(self, q, design="projective", *, wait=None):
        x = np.arange(q)
        if q < 2 or not all(q % i for i in range(2, q)):
            raise ValueError(f"there is no field of integers modulo q={q}")
        if design == "projective":
            # Points, and lines, up to factors: the first coordinate that is not 0 is 1.
            points = [p for p in product(range(q), repeat=3) if next(filter(None, p), 0) == 1]
            self.held = np.inner(points, points) % q == 0
        elif design == "affine":  # points (x, y) and lines y = slope x + t, and x = t
            lines = [(x, (m * x + t) % q) for m, t in product(range(q), repeat=2)]
            lines += [(np.full(q, t), x) for t in range(q)]
            self.held = np.zeros((q * q, len(lines)), dtype=bool)
            for number, (here, there) in enumerate(lines):
                self.held[here * q + there, number] = True
        elif design == "paley" and q % 4 == 3:
            self.held = np.zeros((q, q), dtype=bool)
            self.held[(x[:, None] + x[1:] ** 2) % q, x[:, None]] = True
        else:
            raise ValueError(f"there is no design {design!r} over q={q} elements")
        self.n, self.k = self.held.shape
        self.wait = wait

    def row(self, worker):
        """The lines through a point, each of which counts once."""
        lines = np.flatnonzero(self.held[worker])
        return lines, np.ones(lines.size)
