"""Adaptive selection: only workers or groups with outdated gradients compute new ones.

A run looks like this, where `gradient_at` computes the gradient of a group's data::

    method.reset(theta0)
    for _ in range(rounds):
        for group in method.selected:
            method.receive(group, gradient_at(group, method.point))
        method.step()
    method.theta
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import kernels
from ..._base.arrays import (
    Output,
    as_array,
    at_least,
    check_finite,
    check_flag,
    check_index,
    check_real,
    check_reals,
    check_vector,
    output_of,
)
from .descent import AMSGrad, Array, Optimizer, check_names, check_start

_FORGET = 0.9  # weight of the past in an estimate when a gradient comes

# Bounds of distances are widened by this relative margin, more than rounding of sums of squares.
_ROOM = 1e-6

_OPTIMIZER = "optimizer."  # prefix of the names of its state within the method's own


@dataclass(eq=False)
class _Anchor:
    """A past point, to which some groups' newest gradients belong."""

    point: Array
    users: int
    squared: float  # squared distance to the newest point, when it was last computed
    since: float = 0.0  # length of the path of points since then


class GCADA:
    """Grouping-based CADA: only groups whose last gradient may be too old compute.

    Zhu et al., section IV. Group g, whose last gradient belongs to the point tau_g steps ago, is
    selected if it violates eq. (9),

        L_g^2 ||theta^k - theta^{k - tau_g}||^2 <= c sum_{d=1..D} ||theta^{k+1-d} - theta^{k-d}||^2,

    or if tau_g >= D, or if it has not sent a gradient yet. The optimizer then steps along the sum
    of the newest gradients of all groups, eq. (3). Engines take a group's gradient from its fastest
    member, or decode it from several members' messages (`fastgc.Grouped`).

    Parameters
    ----------
    groups : int
        Number of groups, G.
    optimizer : Optimizer, optional
        The optimizer that uses the sum. Default: ``AMSGrad()``, as in the paper; with `SGD`, the
        selection is that of LASG. The `step` of your own optimizer must return the squared distance
        that `point` moved, and not change the gradient.
    c : float
        The larger c is, the fewer groups are selected; 0 selects all as long as the point moves.
        The paper uses 0.3, and 2 for single workers, in units that it does not state. With
        `relative`, 2 lets all gradients become so old at once that training may oscillate.
    max_age : int
        D, at least 1: the largest age of a gradient in steps, and the number of steps on the
        right-hand side.
    smoothness : float or (G,) array, optional
        Constants L_g. Default: estimated as the root of the gradients' squared changes over their
        points' squared moves, both as weighted sums over the past. With mini-batches, noise of the
        gradients counts as change.
    relative : bool, default True
        Take c in units of the mean of L_g^2, so that the same c suits different data sets. False,
        or constants with a mean square of 1, gives exactly eq. (9).

    Raises
    ------
    TypeError, ValueError
        If a parameter has a wrong type or is out of range.

    Notes
    -----
    Apart from the new gradients, a step costs O(p) for any D: the right-hand side is a sum of D
    numbers that the optimizer's own pass returns. Distances are bounded by the length of the path
    since they were last computed, and computed only if these bounds do not decide.

    The sum of the gradients is kept and updated. It is computed again if many gradients come, or if
    its rounding errors have added up. The norm of its error is at most 4 G u sum_g ||g_g||, with
    the newest gradients g_g and the unit roundoff u of theta's dtype; at most G u sum_g ||g_g||
    right after it was computed again.

    It stores G gradients and their points, at most min(G, D).

    The paper's text about groups lets ages exceed D; its Algorithm 1 and this class do not. The
    paper's tau_g^{k+1} = tau_g^k for groups that are not selected is a misprint of Algorithm 1's
    tau_g^k + 1.
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
        steps = callable(getattr(self.optimizer, "step", None))
        if not steps or isinstance(optimizer, type | GCADA):
            raise TypeError(f"optimizer must be such as SGD(0.1) or AMSGrad(), not {optimizer!r}")
        self.c = check_real("c", c)
        self.max_age = at_least("max_age", max_age, 1)
        self.smoothness = None if smoothness is None else _constants(smoothness, self.groups)
        self.relative = check_flag("relative", relative)
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
        """Current iterate of the optimizer, shape (p,)."""
        return self.optimizer.theta

    @property
    def point(self) -> Array:
        """Point at which gradients are needed, the optimizer's, shape (p,)."""
        return self.optimizer.point

    def reset(self, theta0: ArrayLike) -> None:
        """Begin a run at ``theta0``, as the optimizer does, with no gradients yet."""
        start = check_start(theta0)
        self.optimizer.reset(start)
        self._begin(start)

    def _begin(self, start: Array) -> None:
        check_vector("the optimizer's point", self.point, start.dtype, start.size)
        self._stored = np.zeros((self.groups, start.size), start.dtype)
        self._total = np.zeros(start.size, start.dtype)
        self._norms = [0.0] * self.groups  # of the stored gradients
        self._rounded = 0.0  # norms of all rounded vectors: u times this bounds the total's error
        self._anew = False
        self._ages = np.full(self.groups, self.max_age)  # old enough to be selected
        self._steps: deque[float] = deque(maxlen=self.max_age)  # squared lengths
        self._anchors: dict[int, _Anchor] = {}  # by group
        self._spare: list[Array] = []
        self._changes = [0.0] * self.groups  # weighted sums of gradients' squared changes
        self._moves = [0.0] * self.groups  # the same of their points' squared moves
        self._begun = True
        self._select()

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue: arrays, numbers and lists of numbers.

        It includes the optimizer's state, under names that begin with ``optimizer.``.

        Raises
        ------
        RuntimeError
            If no run has begun.
        TypeError
            If the optimizer has no method ``state``.
        """
        self._require_begun()
        inner = self._restorable().state()
        anchors = list(dict.fromkeys(self._anchors.values()))
        total = self._total
        return {
            "stored": self._stored.copy(),
            "total": total.copy(),
            "norms": list(self._norms),
            "rounded": self._rounded,
            "anew": self._anew,
            "ages": self._ages.tolist(),
            "steps": list(self._steps),
            "points": np.array([a.point for a in anchors], total.dtype).reshape(
                len(anchors), total.size
            ),
            "squared": [anchor.squared for anchor in anchors],
            "since": [anchor.since for anchor in anchors],
            "anchors": [
                anchors.index(self._anchors[group]) if group in self._anchors else -1
                for group in range(self.groups)
            ],
            "changes": list(self._changes),
            "moves": list(self._moves),
            "selected": self._selected.tolist(),
            "due": sorted(self._due),
        } | {f"{_OPTIMIZER}{name}": value for name, value in inner.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the run with this `state`, as `SGD.restore` does."""
        optimizer = self._restorable()
        own, inner = _checked_state(self, state)
        optimizer.restore(inner)
        self._begin(np.zeros_like(own["total"]))
        self._stored[:], self._total[:] = own["stored"], own["total"]
        self._norms, self._rounded, self._anew = list(own["norms"]), own["rounded"], own["anew"]
        self._ages[:] = own["ages"]
        self._steps.extend(own["steps"])
        users = Counter(own["anchors"])
        anchors = [
            _Anchor(point.copy(), users[at], own["squared"][at], own["since"][at])
            for at, point in enumerate(own["points"])
        ]
        self._anchors = {g: anchors[at] for g, at in enumerate(own["anchors"]) if at >= 0}
        self._changes, self._moves = list(own["changes"]), list(own["moves"])
        self._selected = np.array(own["selected"], dtype=np.int64)
        self._due = set(own["due"])

    def _restorable(self) -> Any:
        if not hasattr(self.optimizer, "state") or not hasattr(self.optimizer, "restore"):
            raise TypeError(
                f"{self.optimizer!r} has no methods state and restore, by which a run can go on"
            )
        return self.optimizer

    @property
    def selected(self) -> NDArray[np.int64]:
        """Groups whose gradient at `point` is needed before the next step, ascending."""
        self._require_begun()
        return self._selected.copy()

    @property
    def ages(self) -> NDArray[np.int64]:
        """Steps since each group's last gradient, tau_g, (G,); D if there is none."""
        self._require_begun()
        return self._ages.copy()

    def receive(self, group: int, gradient: Array) -> None:
        """Take a group's gradient at `point`; it is copied.

        Parameters
        ----------
        group : int
            One of `selected`.
        gradient : (p,) array
            Gradient of the sum over the group's samples, of theta's dtype. You may scale it by a
            factor that is the same for all groups.

        Raises
        ------
        TypeError, ValueError
            If the group was not selected or has already sent its gradient, or if the gradient does
            not fit or holds NaN or Inf. Nothing has changed in that case.
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
        square = kernels.unchecked.square_sum(gradient)
        if not square < math.inf:
            check_finite(f"gradient of group {group}", gradient)
        change = kernels.unchecked.replace(
            self._stored[group], gradient, None if self._anew else total
        )
        before, self._norms[group] = self._norms[group], math.sqrt(square)
        self._rounded += before + self._norms[group] + sum(self._norms)
        if (anchor := self._anchors.pop(group, None)) is not None:
            if self.smoothness is None:
                self._learn(group, change, self._squared_distance(anchor))
            anchor.users -= 1
            if not anchor.users:
                self._spare.append(anchor.point)
        self._due.discard(group)

    def gradient(self, out: Output | None = None) -> Array:
        """Return the sum of the groups' newest gradients, eq. (3).

        Parameters
        ----------
        out : (p,) array, optional
            Contiguous and writable, of theta's dtype.

        Raises
        ------
        RuntimeError
            If a selected group has not sent its gradient.
        """
        self._require_due()
        total = self._total
        sum_ = output_of(out, total.dtype, total.shape)
        self._form()
        sum_[:] = total
        return sum_ if out is None else out

    def step(self, gradient: Array | None = None) -> float:
        """Let the optimizer step.

        Parameters
        ----------
        gradient : (p,) array, optional
            The gradient to step along instead of `gradient()`, for instance scaled, or with the
            gradient of a penalty added.

        Returns
        -------
        float
            The squared distance that `point` has moved.

        Raises
        ------
        RuntimeError
            If a selected group has not sent its gradient.
        TypeError, ValueError
            As the optimizer's `step`; nothing has changed in that case. Also TypeError if it
            returns no distance.
        """
        self._require_due()
        self._form()
        fresh = self._selected
        if fresh.size:
            if not self._spare:
                self._spare.append(np.empty_like(self._total))
            self._spare[-1][:] = self.point
        returned: Any = self.optimizer.step(self._total if gradient is None else gradient)
        if not isinstance(returned, Real) or returned < 0:
            raise TypeError(
                f"{self.optimizer!r}: step must return the squared distance that point has moved, "
                f"not {returned!r}"
            )
        moved = float(returned)
        self._steps.append(moved)
        for anchor in set(self._anchors.values()):
            anchor.since += math.sqrt(moved)
        if fresh.size:
            anchor = _Anchor(self._spare.pop(), fresh.size, moved)
            self._anchors |= dict.fromkeys(fresh.tolist(), anchor)
        self._ages += 1
        self._ages[fresh] = 1
        self._select()
        return moved

    def _form(self) -> None:
        """Compute the sum again, if many gradients came or its rounding errors are too large."""
        size = self.groups * sum(self._norms)
        if self._anew or self._rounded > 4 * size:
            rows = kernels.Rows.of(self._stored, self._total.size, self._total.dtype)
            kernels.unchecked.combine(kernels.REAL, rows, np.ones(self.groups), self._total)
            self._rounded, self._anew = size, False

    def _select(self) -> None:
        """Select the groups of the next round, eq. (9)."""
        right = self.c * sum(self._steps)
        ages = self._ages.tolist()
        chosen = [
            group
            for group, weight in enumerate(self._weights())
            if ages[group] >= self.max_age or self._exceeds(self._anchors[group], weight, right)
        ]
        self._selected = np.array(chosen, dtype=np.int64)
        self._due = set(chosen)
        # If many gradients change, computing the sum again, in G reads, is cheaper than updates.
        self._anew = 3 * len(chosen) > self.groups

    def _learn(self, group: int, change: float, moved: float) -> None:
        """Note a gradient's squared change, and its point's squared move meanwhile."""
        if moved > 0 and change + moved < math.inf:
            self._changes[group] = _FORGET * self._changes[group] + change
            self._moves[group] = _FORGET * self._moves[group] + moved

    def _weights(self) -> list[float]:
        """Return L_g^2, over their mean if `relative`; NaN without an estimate.

        For c = 0, return 1: eq. (9) then asks whether the point has moved, even if gradients have
        not changed.
        """
        squares: list[float]
        if not self.c:  # an estimate of 0 would never exceed the right-hand side
            return [1.0] * self.groups
        if self.smoothness is not None:
            squares = (self.smoothness**2).tolist()
        else:
            estimates = zip(self._changes, self._moves, strict=True)
            squares = [change / moved if moved else math.nan for change, moved in estimates]
        known = [square for square in squares if 0 < square < math.inf]
        if self.relative and known:
            mean = sum(known) / len(known)
            squares = [square / mean for square in squares]
        return squares

    def _exceeds(self, anchor: _Anchor, weight: float, right: float) -> bool:
        """Whether ``weight * distance^2 > right``; True if NaN leaves it open."""
        if anchor.since and not math.isnan(weight):
            # By the triangle inequality, the distance lies between `least` and `most`.
            distance, since = math.sqrt(anchor.squared), anchor.since
            least = distance * (1 - _ROOM) - since * (1 + _ROOM)
            most = (distance + since) * (1 + _ROOM)
            if least > 0 and weight * (least * least) > right:
                return True
            if weight * (most * most) <= right:
                return False
            self._squared_distance(anchor)
        return not weight * anchor.squared <= right

    def _squared_distance(self, anchor: _Anchor) -> float:
        """Return the squared distance of an anchor from the newest point, in O(p) unless known."""
        if anchor.since:
            total = self._total
            point = check_vector("the optimizer's point", self.point, total.dtype, total.size)
            anchor.squared = kernels.unchecked.square_distance(point, anchor.point)
            anchor.since = 0.0
        return anchor.squared

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
    """Communication-adaptive distributed Adam: G-CADA in which each worker is a group of its own.

    Zhu et al., section III, eq. (7), after Chen, Guo, Sun and Yin 2021, with selection at the
    master. Parameters as in `GCADA`; `groups` is the number of workers, M.
    """


def _checked_state(
    method: GCADA, state: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state's own part, checked, and the optimizer's part."""
    names = (
        *("stored", "total", "norms", "rounded", "anew", "ages", "steps", "points", "squared"),
        *("since", "anchors", "changes", "moves", "selected", "due"),
    )
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be what state() gave, not {state!r}")
    own, inner = dict[str, Any](), dict[str, Any]()
    for name, value in state.items():
        part = inner if name.startswith(_OPTIMIZER) else own
        part[name.removeprefix(_OPTIMIZER)] = value
    check_names(method, own, names)
    total, points = as_array("total", own["total"]), as_array("points", own["points"])
    shapes = {
        "stored": (method.groups, total.size),
        "total": (total.size,),
        "points": (len(points), total.size),
        **dict.fromkeys(("squared", "since"), (len(points),)),
        **dict.fromkeys(("norms", "ages", "anchors", "changes", "moves"), (method.groups,)),
    }
    for name, shape in shapes.items():
        if np.shape(own[name]) != shape:
            raise ValueError(
                f"{name} of the state must have shape {shape}, not {np.shape(own[name])}"
            )
    return own, inner


def _constants(smoothness: ArrayLike, groups: int) -> NDArray[np.float64]:
    given = check_reals("smoothness", smoothness)
    if given.shape not in ((), (groups,)):
        raise ValueError(
            f"smoothness must be a number, or one for each of {groups} groups, not an array of "
            f"shape {given.shape}"
        )
    with np.errstate(over="ignore", under="ignore"):
        squares = given**2
    if not ((given > 0) & (squares > 0) & (squares < math.inf)).all():
        raise ValueError(
            f"smoothness must be positive and finite, as must be its square, not {smoothness!r}"
        )
    return np.array(np.broadcast_to(given, (groups,)))
