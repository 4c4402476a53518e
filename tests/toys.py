"""Small data, a network and histories of training that several tests train on and compare."""

import math
from dataclasses import dataclass

import numpy as np

from fastgc import data
from fastgc.training.history import History, Record
from fastgc.training.optimizers import CADA, GCADA, SGD, AMSGrad, Nesterov


def toy(dtype=np.float64, samples=67, features=5, seed=7):
    """Return data of three classes, whose number does not divide into equal partitions."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % 3
    X = (rng.standard_normal((samples, features)) + np.eye(3, features)[y]).astype(dtype)
    return data.Dataset("toy", X, y, X[:9], y[:9])


def made_up(*rounds, name="x"):
    """Return a history of rounds (time, loss, downloads, uploads, samples)."""
    history = History(name, "", "", "", 0)
    for number, (time, loss, *spent) in enumerate(rounds, start=1):
        history.rounds.append(
            Record(number, time, 0, 0, (), 0, 0, loss, 0.5, math.nan, (), (), *spent)
        )
    return history


# Optimizers, made anew by each call.
METHODS = {
    "sgd": lambda: SGD(0.3, momentum=0.5),
    "plain sgd": lambda: SGD(0.3),
    "nesterov": lambda: Nesterov(0.4),
    "amsgrad": lambda: AMSGrad(0.05),
    "cada": lambda: CADA(6, c=0.8, max_age=4),
    "gcada": lambda: GCADA(2, Nesterov(0.2), c=1.5, max_age=3),
    "gcada, known": lambda: GCADA(2, AMSGrad(0.1), c=0.5, smoothness=[1.0, 0.5]),
}


@dataclass(frozen=True)
class Network:
    """A hidden layer of tanh units, for classes: at zero most of its gradient vanishes."""

    features: int = 4
    classes: int = 3
    units: int = 10

    @property
    def size(self):
        return self.units * (self.features + 1 + self.classes)

    def _layers(self, theta):
        return np.split(theta.reshape(self.units, -1), [self.features, self.features + 1], axis=1)

    def _forward(self, theta, X):
        W, b, V = self._layers(theta)
        hidden = np.tanh(X @ W.T + b.T)
        scores = hidden @ V
        scores -= scores.max(axis=1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def initial(self, rng):
        return np.random.default_rng(rng).normal(0, 0.5, self.size)

    def learning_rate(self, X):
        return 0.1

    def gradient(self, theta, X, y):
        out = np.empty_like(theta)
        self.partial_gradient(theta, (X, y), out)
        return out

    def partial_gradient(self, theta, shard, out):
        X, y = shard
        hidden, logs = self._forward(theta, X)
        slope = np.exp(logs)
        slope[np.arange(len(y)), y] -= 1
        V = self._layers(theta)[2]
        inner = slope @ V.T * (1 - hidden**2)
        parts = inner.T @ X, inner.sum(axis=0)[:, None], hidden.T @ slope
        out[:] = np.concatenate(parts, axis=1).ravel()

    def loss(self, theta, X, y):
        return -float(np.mean(self._forward(theta, X)[1][np.arange(len(y)), y]))

    def error(self, theta, X, y):
        return float(np.mean(self._forward(theta, X)[1].argmax(axis=1) != y))
