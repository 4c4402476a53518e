"""How to share the partitions out among workers of unequal speed, by simulation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import check_cost, check_reals
from ..codes import BinaryCode
from ..codes.binary import ASSIGNMENTS
from ..delays import DelayModel
from ..simulation import Simulation, simulate

__all__ = ["Assigned", "assign"]


class Assigned(NamedTuple):
    """What `assign` found.

    Attributes
    ----------
    code : BinaryCode
        Of the assignment whose rounds are shortest.
    simulations : dict of str to Simulation
        Rounds of each assignment, the fastest first.
    """

    code: BinaryCode
    simulations: dict[str, Simulation]


def assign(
    speeds: ArrayLike,
    k: int | None = None,
    *,
    stragglers: int,
    delays: DelayModel | None = None,
    cost: ArrayLike | None = None,
    rounds: int = 10_000,
    seed: int = 0,
    interrupted: bool = True,
) -> Assigned:
    """Choose the assignment of a `BinaryCode` for workers of these speeds.

    All of them are simulated on the same delays: none is always best.

    Parameters
    ----------
    speeds : (n,) array
        Relative speeds of the workers, positive.
    k : int, optional
        Partitions, n by default. More of them make blocks fit the speeds better.
    stragglers : int
        Stragglers to tolerate, s.
    delays : DelayModel, optional
        How late workers are. Where slow workers are late in proportion, say so:
        ``Heterogeneous([Exponential(0.5 / v, per="computation") for v in speeds])``. Default: not
        at all.
    cost : float or (n,) array, optional
        Seconds to compute one partial gradient. Default: ``1 / speeds``.
    rounds, seed, interrupted
        As in `fastgc.simulation.simulate`.

    Raises
    ------
    ValueError
        If a parameter is impossible; says why.
    TypeError
        If an argument is of a wrong type.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgc import delays, planning
    >>> speeds = np.linspace(1, 4, 12)
    >>> late = delays.Heterogeneous([delays.Exponential(1 / v, per="computation") for v in speeds])
    >>> found = planning.assign(speeds, 120, stragglers=2, delays=late)
    >>> found.code.assignment
    'spread'
    >>> paper, mine = found.simulations["classes"], found.simulations["spread"]
    >>> bool(mine.mean < 0.9 * paper.mean)
    True
    """
    given = check_reals("speeds", speeds)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"speeds must be one number a worker, not of shape {given.shape}")
    codes = {
        name: BinaryCode(
            given.size, k, stragglers=stragglers, speeds=given.tolist(), assignment=name
        )
        for name in ASSIGNMENTS
    }
    with np.errstate(over="ignore"):  # what is then Inf is refused
        seconds = 1 / given if cost is None else check_cost(given.size, cost)
    found = {
        name: simulate(
            code, delays, cost=seconds, rounds=rounds, seed=seed, interrupted=interrupted
        )
        for name, code in codes.items()
    }
    names = sorted(found, key=lambda name: found[name].mean)
    return Assigned(codes[names[0]], {name: found[name] for name in names})
