"""A round of G-CADA at the master, against its optimizer's step alone and against plain NumPy."""

from collections import deque

import numpy as np
import pytest
from measure import seconds

from fastgc.training.optimizers import GCADA, AMSGrad

LR, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
TURN = 24  # rounds timed together, because groups are selected in few of them
KEPT = 12  # points through which NumPy goes again and again; it would keep D + 1


class Plain:
    """Plain NumPy: both sides of eq. (9), the sum and the step, from all stored vectors."""

    def __init__(self, groups, c, max_age, squares, theta, gradients):
        self.groups, self.c, self.max_age, self.squares = groups, c, max_age, squares
        self.gradients, self.stored = gradients, np.zeros_like(gradients)
        self.history = deque((theta + 1e-3 * k for k in range(KEPT)), maxlen=KEPT)
        self.h, self.v = np.zeros((2, theta.size), theta.dtype)
        self.sent = [0] * groups
        self.round = 1

    def step(self):
        points, theta = self.history, self.history[-1]
        last = range(self.max_age)
        right = self.c * sum(
            np.sum((points[-1 - d % (KEPT - 1)] - points[-2 - d % (KEPT - 1)]) ** 2) for d in last
        )
        for group in range(self.groups):
            age = self.round - self.sent[group]
            left = self.squares[group] * np.sum((theta - points[-1 - min(age, KEPT - 1)]) ** 2)
            if left > right or age >= self.max_age:
                self.stored[group] = self.gradients[(group + self.round) % self.groups]
                self.sent[group] = self.round
        total = self.stored.sum(axis=0)
        self.h = BETA1 * self.h + (1 - BETA1) * total
        self.v = np.maximum(self.v, BETA2 * self.v + (1 - BETA2) * total**2)
        points.append(theta - LR * self.h / np.sqrt(EPSILON + self.v))
        self.round += 1


@pytest.mark.parametrize("max_age", [10, 100])
@pytest.mark.parametrize("groups", [3, 12])
@pytest.mark.parametrize("p", [10**4, 10**6])
def test_round(benchmark, note, p, groups, max_age):
    """Time gradients of selected groups, the step, and the next selection; c makes ages alike."""
    rng = np.random.default_rng(p)
    gradients = rng.standard_normal(p, np.float32) + 0.5 * rng.standard_normal(
        (groups, p), np.float32
    )
    smoothness, c, theta = np.geomspace(0.5, 2, groups), 16 / max_age, np.ones(p, np.float32)

    alone = AMSGrad(LR, BETA1, BETA2, EPSILON)
    alone.reset(theta)
    step = seconds(lambda: alone.step(gradients[0]), 101)
    plain = Plain(groups, c, max_age, (smoothness**2 / np.mean(smoothness**2)), theta, gradients)
    rounds = TURN if p <= 10**4 else 3

    def recompute():
        for _ in range(rounds):
            plain.step()

    numpy_seconds = seconds(recompute, 1) / rounds

    method = GCADA(
        groups, AMSGrad(LR, BETA1, BETA2, EPSILON), c=c, max_age=max_age, smoothness=smoothness
    )
    method.reset(theta)
    done = asked = 0

    def turn():
        nonlocal done, asked
        for _ in range(TURN):
            for group in method.selected:
                method.receive(group, gradients[(group + done) % groups])
                asked += 1
            method.step()
            done += 1

    benchmark.group = f"a round of G-CADA, p={p}"
    benchmark.pedantic(turn, rounds=9, warmup_rounds=120 // TURN)
    note(
        adaptive=f"p={p}, G={groups}, D={max_age}",
        rounds=TURN,
        asked=asked / done,
        step_seconds=step,
        numpy_seconds=numpy_seconds,
    )
