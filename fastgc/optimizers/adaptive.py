"""Adaptive selection: a new gradient only from those whose last one may be too old.

A run, where `gradient_at` computes the gradient of a group's data::

    method.reset(theta0)
    for _ in range(rounds):
        for group in method.selected:
            method.receive(group, gradient_at(group, method.point))
        method.step()
    method.theta
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import kernels
from .._arrays import (
    at_least,
    check_finite,
    check_index,
    check_real,
    check_reals,
    check_vector,
)
from .descent import AMSGrad, Array, Optimizer

__all__ = ["CADA", "GCADA"]

_FORGET = 0.9  # weight that the past keeps in an estimate when a gradient comes

# Bounds of a distance count where they leave this much room, relatively: more than the rounding of
# what they are sums of.
_ROOM = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}


@dataclass(eq=False)
class _Anchor:
    """A point of the past, which some groups' gradients are of."""

    point: Array
    users: int
    # The distance to the newest point was this when the path was so long.
    distance: float = 0.0
    path: float = 0.0


class GCADA:
    """Grouping-based CADA: groups of workers compute only if their last gradient may be too old.

    Zhu et al., section IV. Group g, whose last gradient is of the point tau_g steps ago, is
    selected if it violates eq. (9),

        L_g^2 ||theta^k - theta^{k - tau_g}||^2 <= c sum_{d=1..D} ||theta^{k+1-d} - theta^{k-d}||^2,

    or if tau_g >= D, or if it has sent none yet. The optimizer then steps along the sum of the
    newest gradients of all groups, eq. (3). A group's gradient is that of its fastest member, or
    is decoded from several members' messages (`fastgc.Grouped`): engines see to that.

    Parameters
    ----------
    groups : int
        Number of groups, G.
    optimizer : Optimizer, optional
        What to do with the sum. Default: ``AMSGrad()``, as in the paper; with `SGD`, selection is
        that of LASG.
    c : float
        The larger, the fewer are selected; 0 selects all as long as the point moves. The paper has
        0.3, and 2 for single workers, in units that it does not state; in those of `relative` 2
        lets all gradients become so old at once that training may oscillate.
    max_age : int
        D, 1 at least: how many steps old a gradient may become, and how many steps the right-hand
        side looks back.
    smoothness : float or (G,) array, optional
        Constants L_g. Default: estimated from the gradients received, as the root of their squared
        changes over those of the point, weighted sums over the past. With mini-batches the noise of
        the gradients counts as change.
    relative : bool, default True
        Take c in units of the mean of L_g^2, so that it need not be chosen anew for every data set.
        With False, or constants whose mean square is 1, eq. (9) as it stands.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of a wrong type or out of range.

    Notes
    -----
    A step costs O(p) and what the new gradients cost, whatever D: the right-hand side is a sum of D
    numbers that the optimizer's own pass returns, and distances are bounded by the length of the
    path since they were last computed, which is done only where these bounds do not decide. The
    sum of the gradients is kept, changed by what comes, and formed anew after G changes, so that it
    has never more than G roundings more than a sum formed anew.

    Kept are G gradients and the points they are of, min(G, D + 1) at most.

    The paper's text about groups lets ages exceed D; its Algorithm 1, and this, do not. Its
    tau_g^{k+1} = tau_g^k for those not selected is a misprint of Algorithm 1's tau_g^k + 1.
    """

    def __init__(
        self,
        groups: int,
        optimizer: Optimizer | None = None,
        *,
        c: float = 0.3,
        max_age: int = 10,
        smoothness: ArrayLike | None = None,
        relative: bool = True,
    ) -> None:
        self.groups = at_least("groups", groups, 1)
        self.optimizer = AMSGrad() if optimizer is None else optimizer
        if not callable(getattr(self.optimizer, "step", None)):
            raise TypeError(f"optimizer must be one of fastgc.optimizers, not {optimizer!r}")
        self.c = check_real("c", c)
        self.max_age = at_least("max_age", max_age, 1)
        self.smoothness = None if smoothness is None else _constants(smoothness, self.groups)
        self.relative = bool(relative)
        self._begun = False

    def __repr__(self) -> str:
        constants = "" if self.smoothness is None else f", smoothness={self.smoothness.tolist()}"
        relative = "" if self.relative else ", relative=False"
        return (
            f"{type(self).__name__}({self.groups}, {self.optimizer!r}, c={self.c}, "
            f"max_age={self.max_age}{constants}{relative})"
        )

    @property
    def theta(self) -> Array:
        """Current iterate, shape (p,): the optimizer's."""
        return self.optimizer.theta

    @property
    def point(self) -> Array:
        """Where gradients are wanted, shape (p,): the optimizer's."""
        return self.optimizer.point

    def reset(self, theta0: Array) -> None:
        """Begin a run at ``theta0``, a float array of shape (p,), with no gradient yet.

        Raises
        ------
        TypeError, ValueError
            As the optimizer's `reset`.
        """
        self.optimizer.reset(theta0)
        point = self.optimizer.point
        self._stored = np.zeros((self.groups, point.size), point.dtype)
        self._total = np.zeros_like(point)
        self._replaced = 0  # gradients changed in the total since it was formed
        self._anew = False
        self._ages = np.full(self.groups, self.max_age)  # such as are selected
        self._steps: deque[float] = deque(maxlen=self.max_age)
        self._path = 0.0
        self._anchors: dict[int, _Anchor] = {}
        self._anchor_of: list[_Anchor | None] = [None] * self.groups
        self._spare: list[Array] = []
        self._changes = np.zeros((2, self.groups))  # squared, of gradients and of points
        self._begun = True
        self._select()

    @property
    def selected(self) -> NDArray[np.int64]:
        """Groups whose gradient at `point` is wanted before the next step, ascending."""
        self._require_begun()
        return self._selected.copy()

    @property
    def ages(self) -> NDArray[np.int64]:
        """Steps since each group's last gradient, tau_g, (G,); D where it has sent none."""
        self._require_begun()
        return self._ages.copy()

    def receive(self, group: int, gradient: Array) -> None:
        """Take a group's gradient at `point`; it is copied.

        Parameters
        ----------
        group : int
            One of `selected`.
        gradient : (p,) array
            Of theta's dtype; the gradient of the sum over the group's samples, or all scaled alike.

        Raises
        ------
        TypeError, ValueError
            If the group was not selected or has sent its gradient, or if that does not fit or
            holds NaN or Inf. Nothing has changed then.
        RuntimeError
            If no run has begun.
        """
        self._require_begun()
        group = check_index("group", group, self.groups)
        if group not in self._due:
            why = "has sent its gradient" if group in self._selected else "was not selected"
            raise ValueError(f"group {group} {why} in this round; due are {sorted(self._due)}")
        total = self._total
        gradient = check_vector(
            "gradient of group", gradient, total.dtype, total.size, number=group
        )
        if not kernels.square_sum(gradient) < math.inf:
            check_finite(f"gradient of group {group}", gradient)
        if self.smoothness is None and (anchor := self._anchor_of[group]) is not None:
            moved = self._distance(anchor) ** 2
        else:
            moved = math.nan  # none to compare with
        row = self._stored[group]
        change = kernels.replace(row, gradient, None if self._anew else total)
        self._replaced += 1
        if moved > 0:
            self._changes[:, group] *= _FORGET
            self._changes[:, group] += change, moved
        self._due.discard(group)

    def gradient(self, out: Array | None = None) -> Array:
        """The sum of the groups' newest gradients, eq. (3).

        Parameters
        ----------
        out : (p,) array, optional
            Contiguous and writable, of theta's dtype.

        Raises
        ------
        RuntimeError
            If a group that was selected has not sent its gradient.
        """
        self._require_due()
        total = self._total
        if out is None:
            out = np.empty_like(total)
        else:
            check_vector("out", out, total.dtype, total.size, output=True)
        self._form()
        out[:] = total
        return out

    def step(self, gradient: Array | None = None) -> float:
        """Let the optimizer step.

        Parameters
        ----------
        gradient : (p,) array, optional
            What to step along, in place of `gradient()`: that, scaled, with a penalty's gradient
            added, or so.

        Returns
        -------
        float
            The squared distance that `point` has moved.

        Raises
        ------
        RuntimeError
            If a group that was selected has not sent its gradient.
        TypeError, ValueError
            As the optimizer's `step`; nothing has changed then.
        """
        self._require_due()
        self._form()
        fresh = self._selected
        before = self._spare.pop() if self._spare else np.empty_like(self._total)
        before[:] = self.point
        moved = self.optimizer.step(self._total if gradient is None else gradient)
        self._path += math.sqrt(moved)
        anchor = _Anchor(before, fresh.size, math.sqrt(moved), self._path)
        for group in fresh:
            self._release(self._anchor_of[group])
            self._anchor_of[group] = anchor
        if not fresh.size:
            self._spare.append(before)
        self._steps.append(moved)
        self._ages += 1
        self._ages[fresh] = 1
        self._select()
        return moved

    def _form(self) -> None:
        """Form the sum anew, if it has not been changed by what came."""
        if self._anew:
            rows = kernels.Rows.of(self._stored, self._total.size, self._total.dtype)
            kernels.combine(kernels.REAL, rows, np.ones(self.groups), self._total)
            self._replaced, self._anew = 0, False

    def _release(self, anchor: _Anchor | None) -> None:
        if anchor is not None:
            anchor.users -= 1
            if not anchor.users:
                self._spare.append(anchor.point)

    def _select(self) -> None:
        """Choose the groups of the next round, eq. (9)."""
        right = self.c * math.fsum(self._steps)
        chosen = [
            group
            for group, (age, weight) in enumerate(zip(self._ages, self._weights(), strict=True))
            if age >= self.max_age or self._exceeds(self._anchor_of[group], weight, right)
        ]
        self._selected = np.array(chosen, dtype=np.int64)
        self._due = set(chosen)
        # Where many change, a sum formed anew, of G reads, costs less than changing it.
        self._anew = 3 * len(chosen) > self.groups or self._replaced + len(chosen) > self.groups

    def _weights(self) -> NDArray[np.float64]:
        """L_g^2, over their mean if relative; NaN where there is no estimate yet."""
        if self.smoothness is not None:
            squares = self.smoothness**2
        else:
            changes, moves = self._changes
            squares = np.divide(changes, moves, out=np.full(self.groups, np.nan), where=moves > 0)
        known = squares[squares > 0]
        return squares / known.mean() if self.relative and known.size else squares

    def _exceeds(self, anchor: _Anchor | None, weight: float, right: float) -> bool:
        """Whether ``weight * distance^2 > right``, or cannot be said."""
        if anchor is None or math.isnan(weight):
            return True
        since = self._path - anchor.path
        room = _ROOM[self._total.dtype]
        least, most = max(0.0, anchor.distance - since), anchor.distance + since
        if weight * least**2 > right * (1 + room) and least > room * most:
            return True
        if weight * most**2 * (1 + room) <= right:
            return False
        return not weight * self._distance(anchor) ** 2 <= right

    def _distance(self, anchor: _Anchor) -> float:
        """Distance of the newest point from an anchor, O(p) unless it is known."""
        if anchor.path != self._path:
            squared = kernels.square_distance(self.point, anchor.point)
            anchor.distance, anchor.path = math.sqrt(squared), self._path
        return anchor.distance

    def _require_begun(self) -> None:
        if not self._begun:
            raise RuntimeError(f"{type(self).__name__}: reset(theta0) begins a run")

    def _require_due(self) -> None:
        self._require_begun()
        if self._due:
            raise RuntimeError(
                f"groups {sorted(self._due)} were selected and have not sent their gradients"
            )


class CADA(GCADA):
    """Communication-adaptive distributed Adam: each worker is a group of its own.

    Zhu et al., section III, eq. (7), after Chen, Guo, Sun and Yin 2021: worker selection at the
    master.

    Parameters
    ----------
    workers : int
        M.
    optimizer, c, max_age, smoothness, relative
        As of `GCADA`.
    """

    def __init__(
        self,
        workers: int,
        optimizer: Optimizer | None = None,
        *,
        c: float = 0.3,
        max_age: int = 10,
        smoothness: ArrayLike | None = None,
        relative: bool = True,
    ) -> None:
        super().__init__(
            at_least("workers", workers, 1),
            optimizer,
            c=c,
            max_age=max_age,
            smoothness=smoothness,
            relative=relative,
        )


def _constants(smoothness: ArrayLike, groups: int) -> NDArray[np.float64]:
    given = check_reals("smoothness", smoothness)
    if given.shape not in ((), (groups,)):
        raise ValueError(
            f"smoothness must be a number, or one for each of {groups} groups, not an array of "
            f"shape {given.shape}"
        )
    if not ((given > 0) & (given < math.inf)).all():
        raise ValueError(f"smoothness must be positive and finite, not {smoothness!r}")
    return np.array(np.broadcast_to(given, (groups,)))
