"""Every job in a round of its own: what other schemes are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..codes import Code
from .scheme import SequentialScheme, State, Tasks, check_part

__all__ = ["Independent"]


class Independent(SequentialScheme):
    """A gradient code, round by round: a job is done in the round that it begins in.

    Parameters
    ----------
    code : Code
        `fastgc.Uncoded`, or any whose workers send one message.

    Raises
    ------
    TypeError, ValueError
        If it is no such code.

    Examples
    --------
    >>> import fastgc
    >>> Independent(fastgc.FractionalRepetition(6, stragglers=2)).load
    3.0
    """

    def __init__(self, code: Code) -> None:
        if not isinstance(code, Code):
            raise TypeError(f"code must be a code of fastgc, not {code!r}")
        self.n = code.n
        self._set_parts([check_part(code, code.n, 0)], slots=1, ages=[0])

    def __repr__(self) -> str:
        return f"Independent({self.parts[0]!r})"

    def tasks(  # noqa: D102
        self, state: State, live: Sequence[int], silent: NDArray[np.int64]
    ) -> Tasks:
        age = np.full((self.n, 1), 0 if live else -1)
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def tolerable(self, state: State, live: Sequence[int]) -> bool:  # noqa: D102
        return not live or not self.lacks(0, state[0, 0])
