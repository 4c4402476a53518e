"""Adversaries of sequences and of statements run for a while: with --long, for longer."""

import os
import time

import adversary
import numpy as np
import pytest
import statements
from strength import much

from fastgc import Uncoded
from fastgc.engines import SimulatedCluster

SECONDS = float(os.environ.get("ADVERSARY_SECONDS", 60))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # by Python 3.12
def test_local_workers():
    until, number = time.monotonic() + SECONDS, time.time_ns()
    while time.monotonic() < until:
        print("seed", number)
        adversary.draw(adversary.Adversary, number, 4)
        number += 1


@pytest.mark.long
def test_actors():
    pytest.importorskip("ray")
    from fastgc.engines.ray import RayCluster

    with RayCluster(Uncoded(1), [0.0], np.multiply, 1):  # starts Ray, once
        adversary.draw(adversary.on(RayCluster), time.time_ns(), 8)


def test_simulated_workers():
    adversary.draw(adversary.on(SimulatedCluster), 0, much(200, 10))


def test_it_sees_wrong_sums():
    class Wrong(SimulatedCluster):
        def step(self, theta, out):
            report = super().step(theta, out)
            out *= 1 + 1e-6
            return report

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        adversary.draw(adversary.on(Wrong), 0, 300)


def test_it_sees_rounds_that_are_gone():
    class Forgetful(SimulatedCluster):
        def collect(self, theta, rnd, workers=None):
            self.messages, receive = [], rnd.receive

            def kept(worker, message, *given, **options):
                self.messages.append(message)
                return receive(worker, message, *given, **options)

            rnd.receive = kept
            try:
                return super().collect(theta, rnd, workers)
            finally:
                del rnd.receive

        def close(self):
            super().close()
            for message in getattr(self, "messages", ()):
                message[:] = 7

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        adversary.draw(adversary.on(Forgetful), 0, 1000, steps=30)


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
def test_statements_of_rounds():
    """What is verified is right, the accused lied, and none raises where nothing is in doubt.

    More: STATEMENTS=100000 pytest tests/test_adversary.py -k statements
    """
    verified = 0
    rounds = int(os.environ.get("STATEMENTS", much(3000, 300)))
    for seed in range(rounds):
        verified += bool(statements.Played(seed).found)
    assert verified > rounds / 2
