"""An optimizer's step, in bytes per second, against NumPy's and PyTorch's."""

import math

import numpy as np
import pytest
from measure import REPEATS, Reader, Rivals, in_turns

from fastgc import optimizers

try:
    import torch
except ImportError:
    torch = None

SIZES = [(p, dtype) for p in (10**4, 10**6) for dtype in (np.float32, np.float64)]
LR, MOMENTUM, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.9, 0.999, 1e-8


class Vectors:
    """The vectors of a step: those that it writes, a gradient, and scratch."""

    def __init__(self, written, p, dtype):
        rng = np.random.default_rng(p)
        self.written = [np.ones(p, dtype) for _ in range(written)]
        self.gradient = rng.standard_normal(p, dtype=dtype)
        self.scratch = np.empty((2, p), dtype)


def sgd(vectors):
    (theta,), gradient, (scratch, _) = vectors.written, vectors.gradient, vectors.scratch

    def plain():
        nonlocal theta
        theta -= LR * gradient

    def in_place():
        np.multiply(gradient, LR, out=scratch)
        np.subtract(theta, scratch, out=theta)

    return plain, in_place


def momentum(vectors):
    (theta, velocity), gradient = vectors.written, vectors.gradient
    scratch, _ = vectors.scratch

    def plain():
        nonlocal theta, velocity
        velocity = MOMENTUM * velocity - LR * gradient
        theta += velocity

    def in_place():
        np.multiply(gradient, LR, out=scratch)
        np.multiply(velocity, MOMENTUM, out=velocity)
        np.subtract(velocity, scratch, out=velocity)
        np.add(theta, velocity, out=theta)

    return plain, in_place


def nesterov(vectors):
    (theta, point), gradient, (scratch, _) = vectors.written, vectors.gradient, vectors.scratch

    def plain():
        nonlocal theta, point
        following = point - LR * gradient
        point = following + MOMENTUM * (following - theta)
        theta = following

    def in_place():
        np.multiply(gradient, LR, out=scratch)
        np.subtract(point, scratch, out=point)
        np.subtract(point, theta, out=scratch)
        np.copyto(theta, point)
        np.multiply(scratch, MOMENTUM, out=scratch)
        np.add(point, scratch, out=point)

    return plain, in_place


def amsgrad(vectors):
    (theta, h, v), gradient, (scratch, other) = vectors.written, vectors.gradient, vectors.scratch

    def plain():
        nonlocal theta, h, v
        h = BETA1 * h + (1 - BETA1) * gradient
        v = np.maximum(v, BETA2 * v + (1 - BETA2) * gradient**2)
        theta -= LR * h / np.sqrt(EPSILON + v)

    def in_place():
        np.multiply(gradient, 1 - BETA1, out=scratch)
        np.multiply(h, BETA1, out=h)
        np.add(h, scratch, out=h)
        np.multiply(gradient, gradient, out=scratch)
        np.multiply(scratch, 1 - BETA2, out=scratch)
        np.multiply(v, BETA2, out=other)
        np.add(scratch, other, out=scratch)
        np.maximum(v, scratch, out=v)
        np.add(v, EPSILON, out=scratch)
        np.sqrt(scratch, out=scratch)
        np.divide(h, scratch, out=scratch)
        np.multiply(scratch, LR, out=scratch)
        np.subtract(theta, scratch, out=theta)

    return plain, in_place


# fastgc's method, NumPy's forms, number of vectors written, torch's method
METHODS = {
    "SGD": (lambda: optimizers.SGD(LR), sgd, 1, ("SGD", {})),
    "SGD, momentum": (
        lambda: optimizers.SGD(LR, MOMENTUM),
        momentum,
        2,
        ("SGD", {"momentum": MOMENTUM}),
    ),
    "Nesterov": (
        lambda: optimizers.Nesterov(LR, MOMENTUM),
        nesterov,
        2,
        ("SGD", {"momentum": MOMENTUM, "nesterov": True}),
    ),
    "AMSGrad": (
        lambda: optimizers.AMSGrad(LR, BETA1, BETA2, EPSILON),
        amsgrad,
        3,
        ("Adam", {"betas": (BETA1, BETA2), "eps": math.sqrt(EPSILON), "amsgrad": True}),
    ),
}


def torch_steps(method, numbers, gradient):
    """Return torch's steps: operation by operation, for lists of vectors, and fused."""
    steps = {}
    for form in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        theta = torch.ones(gradient.size, dtype=torch.from_numpy(gradient).dtype)
        theta.requires_grad_()
        theta.grad = torch.from_numpy(gradient.copy())
        optimizer = getattr(torch.optim, method)([theta], lr=LR, **numbers, **form)
        name = "torch" if form.get("foreach") is False else f"torch {next(iter(form))}"
        steps[name] = optimizer.step
    return steps


@pytest.mark.parametrize(
    ("method", "p", "dtype"),
    [
        *((method, p, dtype) for method in METHODS for p, dtype in SIZES),
        ("AMSGrad", 10**7, np.float32),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_step(benchmark, note, method, p, dtype):
    """Time a step of fastgc.optimizers, which also measures its length."""
    make, forms, written, (torch_method, numbers) = METHODS[method]
    vectors = Vectors(written, p, dtype)
    plain, in_place = forms(vectors)
    others = {"plain": plain, "in place": in_place}
    if torch is not None:
        others |= torch_steps(torch_method, numbers, vectors.gradient)
    rivals = Rivals(others, 5 * REPEATS[p])

    optimizer = make()
    optimizer.reset(np.ones(p, dtype))
    benchmark.group = f"step, p={p} {np.dtype(dtype).name}"
    touched = [*vectors.written, vectors.gradient]
    reader = Reader(touched, len(touched) * vectors.gradient.nbytes)
    read = in_turns(benchmark, lambda: optimizer.step(vectors.gradient), reader, 15 * REPEATS[p])
    note(
        step=f"{method}, p={p} {np.dtype(dtype).name}",
        bytes=(2 * written + 1) * vectors.gradient.nbytes,
        read_seconds=read,
        forms=rivals.times,
    )
