"""Small data and histories of training that several tests train on and compare."""

import math

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
