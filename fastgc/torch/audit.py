"""Checks for silent corruption: another rank computes a rank's share again, and a third decides.

A device may compute some number wrongly each time, without an error, and cannot find that itself.
So in every so many steps each rank computes, besides its own share of the batch, that of the next
rank, with the same random numbers. Both tell a sketch of the gradient: its norm, and projections on
random signs. If two differ by more than rounding, a third rank computes the share as well, and one
of the three may be outvoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from .._base.arrays import Array

_PROJECTIONS = 8
SKETCH = 1 + _PROJECTIONS  # numbers of a sketch
_SAME = 1e-3  # largest difference of two gradients, relative to the norm, that may be rounding
_CLEAR = 8.0  # least distance of an outvoted gradient from others, relative to theirs
_COLUMNS = 4096

Version = tuple[int, Array]  # who computed a share, and the sketch of its gradient


@torch.no_grad()
def sketch(gradients: Sequence[torch.Tensor | None], seed: Sequence[int]) -> Array:
    """Return the norm of a gradient, and its projections on vectors of random signs.

    A gradient is read in rows of 4096 numbers. A sign is that of a row times that of a column, so
    the mean of the squared projections estimates the squared norm.
    """
    rng = np.random.default_rng(seed)
    square, found = 0.0, torch.zeros(_PROJECTIONS, dtype=torch.float64)
    for each in gradients:
        if each is None:
            continue
        flat = (each.to_dense() if each.is_sparse else each).detach().reshape(-1).cpu()
        flat = flat if flat.dtype == torch.float64 else flat.float()
        square += float(torch.dot(flat, flat))
        whole = len(flat) // _COLUMNS * _COLUMNS
        for part in (flat[:whole], flat[whole:]):
            if len(part):
                table = part.reshape(-1, min(_COLUMNS, len(part)))
                found += (_signs(rng, table, 0) * (table @ _signs(rng, table, 1))).sum(0)
    return np.array([np.sqrt(square), *found.tolist()])


def _signs(rng: np.random.Generator, table: torch.Tensor, axis: int) -> torch.Tensor:
    drawn = rng.integers(2, size=(table.shape[axis], _PROJECTIONS), dtype=np.int8)
    return torch.from_numpy(2 * drawn - 1).to(table.dtype)


def distance(a: Array, b: Array) -> float:
    """Estimate how far two gradients are apart, relative to the larger one; 0 if none is finite."""
    finite = [bool(np.isfinite(each).all()) for each in (a, b)]
    if not all(finite):
        return 0.0 if not any(finite) else np.inf
    largest = max(a[0], b[0])
    apart = max(np.sqrt(np.mean(np.square(a[1:] - b[1:]))), abs(a[0] - b[0]))
    return float(apart / largest) if largest else 0.0


def differ(versions: Sequence[Version]) -> bool:
    """Whether two that computed a share have gradients that differ by more than rounding."""
    return any(distance(a, b) > _SAME for (_, a), (_, b) in combinations(versions, 2))


def outvoted(versions: Sequence[Version]) -> int | None:
    """Return who is clearly apart from two others, that agree; None if nobody is."""
    for at, (who, own) in enumerate(versions):
        (_, b), (_, c) = [each for i, each in enumerate(versions) if i != at][:2]
        apart = min(distance(own, b), distance(own, c))
        if apart > max(_SAME, _CLEAR * distance(b, c)):
            return who
    return None
