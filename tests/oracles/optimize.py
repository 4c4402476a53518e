"""Steps of optimizers."""

import numpy as np

from .combine import near_sum, square_sum
from .table import LONG, REALS, UNIT, WIDE, Kernel, U, shapes, vectors, within


def sgd(theta, velocity, gradient, lr, momentum):
    """One step of gradient descent with momentum, in one pass."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        if velocity is None:
            theta -= real(lr) * gradient
        else:
            velocity[:] = real(momentum) * velocity - real(lr) * gradient
            theta += velocity
    return square_distance(theta, before)


def nesterov(theta, point, gradient, lr, momentum):
    """One step of Nesterov's accelerated gradient; see `sgd`."""
    real, before = theta.dtype.type, point.copy()
    with np.errstate(all="ignore"):
        following = point - real(lr) * gradient
        point[:] = following + real(momentum) * (following - theta)
    theta[:] = following
    return square_distance(point, before)


def amsgrad(theta, h, v, gradient, lr, beta1, beta2, epsilon):
    """One step of AMSGrad (Zhu et al. 2022, equations 8a to 8c); see `sgd`."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        square = gradient * gradient  # the gradient may be h
        h[:] = real(beta1) * h + real(1 - beta1) * gradient
        np.maximum(v, real(beta2) * v + real(1 - beta2) * square, out=v)
        theta -= real(lr) * h / np.sqrt(real(epsilon) + v)
    return square_distance(theta, before)


def replace(old, new, total=None):
    """Replace a vector: ``total += new - old; old = new``, in one pass; see `sgd`."""
    moved = square_distance(new, old)
    if total is not None:
        with np.errstate(all="ignore"):
            total += new - old
    old[:] = new
    return moved


def square_distance(x, y):
    """Sum of the squares of ``x - y``, in float64; not finite if a difference is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return square_sum(np.subtract(x, y, dtype=np.promote_types(x.dtype, np.float64)))


# ------------------------------------------------------------ the table


def exact_square_distance(x, y):
    return float(np.sum((x.astype(WIDE) - y.astype(WIDE)) ** 2))


def _step(name, moves, writes, reads, cases=({},), **numbers):
    """Return the entry of an optimizer's step; numbers of a case are arguments, too."""

    def make(rng, size, count, dtype, **case):
        given = {each: vectors(rng, size, 1, dtype)[0] for each in (*writes, *reads)}
        if "v" in given:
            given["v"] = np.abs(given["v"]) + dtype(0.5)
        return given | numbers | case

    def check(given, found, truth):
        dtype = given[moves].dtype.type
        for name in found.keys() - {"returned"}:
            # A few roundings of numbers up to 10, and one of each coefficient.
            within(40 * UNIT[dtype], found[name], truth[name])
        # The distance of the stored vectors, not of the move before it was rounded.
        exact = exact_square_distance(found[moves], given[moves])
        rough = 2.0**-20 if dtype == np.float32 and "gradient" in given else 0
        within((rough + (found[moves].size + 4) * U) * exact, found["returned"], exact)

    sizes = shapes(LONG, (1,))
    return Kernel(name, make, check, writes, sizes, REALS, cases, moves=moves, split=True)


STEPS = [
    _step(
        "sgd",
        "theta",
        ("theta", "velocity"),
        ("gradient",),
        ({"velocity": None, "momentum": 0.0}, {"momentum": 0.9}),
        lr=0.1,
    ),
    _step("nesterov", "point", ("theta", "point"), ("gradient",), lr=0.1, momentum=0.8),
    _step(
        "amsgrad",
        "theta",
        ("theta", "h", "v"),
        ("gradient",),
        lr=0.1,
        beta1=0.9,
        beta2=0.75,
        epsilon=1e-3,
    ),
    _step("replace", "old", ("old", "total"), ("new",), ({}, {"total": None})),
]

SQUARE_DISTANCE = Kernel(
    "square_distance",
    lambda rng, size, count, dtype: dict(zip("xy", vectors(rng, size, 2, dtype), strict=True)),
    near_sum,
    (),
    shapes(LONG, (1,)),
    REALS,
    split=True,
)
KERNELS = [*STEPS, SQUARE_DISTANCE]
