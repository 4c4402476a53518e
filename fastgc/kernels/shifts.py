"""The shortest vectors that have the product 1 with some shifts of one column.

Numbers of a vector and of the column lie on a circle of m; shifts are by multiples of a step. What
maps to zero from the left is then invariant under these shifts, too, and so is the projector on it:
it has as many entries as the step has rows. By LAPACK, through NumPy, for every backend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shifts", "shortest"]

_LITTLE = 2.0**-46  # of a vector's norm


class Shifts(NamedTuple):
    """What is known of a column, whoever is absent.

    Attributes
    ----------
    spectrum : (m,) complex128 array
        The column's transform.
    energy : (m // step,) float64 array
        Of each product of a vector with all shifts, transformed: what the shifts have of it.
    whole : (m,) complex128 array
        The shortest vector, if nobody is absent.
    projector : (step, step, m // step) complex128 array
        Of row ``i`` and column ``j``: at ``i % step, j % step, (i // step - j // step) mod`` that.
    """

    spectrum: NDArray[np.complex128]
    energy: NDArray[np.float64]
    whole: NDArray[np.complex128]
    projector: NDArray[np.complex128]

    @classmethod
    def of(cls, column: NDArray[np.complex128], step: int) -> Shifts:
        """Of a column of m entries, of which a step that divides m makes independent shifts."""
        m = column.size
        spectrum = np.fft.fft(column)
        energy = (np.abs(spectrum) ** 2).reshape(step, -1).sum(axis=0) / step
        parts = np.fft.fft(column.reshape(-1, step), axis=0).T
        products = parts[:, None] * parts.conj() / energy
        projector = -np.fft.ifft(products).conj()
        projector[np.arange(step), np.arange(step), 0] += 1
        ones = np.zeros(m // step)
        ones[0] = m // step
        whole = np.fft.ifft(spectrum * np.tile(ones / energy, step)).conj()
        return cls(spectrum, energy, whole, projector)


def shortest(shifts: Shifts, lost: NDArray[np.int64]) -> NDArray[np.complex128]:
    """The shortest vector that is 0 at some entries and has product 1 with all shifts of a column.

    O(s^3 + m log m). NaN where there is none.

    Parameters
    ----------
    shifts : Shifts
    lost : (s,) int64 array
        The entries that are 0, but for rounding.

    Returns
    -------
    (m,) complex128 array

    Notes
    -----
    With the projector P on what maps to zero it is ``a - P[:, lost] z``, a the shortest vector of
    all and z such that the entries vanish. P[lost, lost] squares the condition number. But its
    rounding does harm to these entries only, and if much is left of them it is solved for once
    more.
    """
    spectrum, energy, whole, projector = shifts
    step = len(projector)
    block, phase = np.divmod(lost, step)
    system = projector[phase[:, None], phase, block[:, None] - block]  # negative ones from the end
    found, z = whole, np.zeros(lost.size, dtype=np.complex128)
    for _ in range(2):
        if np.linalg.norm(found[lost]) <= _LITTLE * np.linalg.norm(found):
            break
        try:
            z = z + np.linalg.solve(system, found[lost])
        except np.linalg.LinAlgError:
            return np.full(whole.size, np.nan, dtype=np.complex128)
        at = np.zeros(whole.size, dtype=np.complex128)
        at[lost] = z
        mapped = (spectrum.conj() * np.fft.fft(at.conj())).reshape(step, -1).sum(axis=0) / step
        found = whole - at + np.fft.ifft(spectrum * np.tile(mapped / energy, step)).conj()
    return found
