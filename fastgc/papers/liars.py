"""Workers that lie: Draco (Chen et al. 2018), and asking again (Hofmeister et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from .._base.arrays import Floats, Ints
from ..codes import AskingRound, Code, FractionalRepetition, Round
from ..plotting.panels import Line, Panel
from .figure import ROUNDS, Part, Row, Track, figure

ASKED, VOTED = "hofmeister2024 abstract", "chen2018 redundancy"
WORKERS = {1: 12, 2: 15}  # by the number of liars s: multiples of s + 1 and of 2 s + 1
P = 8  # dimension of the gradient
ENOUGH = 200  # rounds for each s


class _Liars:
    """Lying workers of a code: what they claim, and which of them answer truly when asked."""

    def __init__(self, code: Code, s: int, true: Floats, rng: np.random.Generator) -> None:
        self.code, self.true = code, true
        self.workers: list[int] = rng.permutation(code.n)[:s].tolist()
        agreed = _lie(rng, true, code.partitions(self.workers[0])) if rng.random() < 0.5 else None
        self._claims = {}
        for i in self.workers:
            claim = _lie(rng, true, code.partitions(i)) if agreed is None else agreed
            self._claims[i] = claim if rng.random() < 0.9 else true
        self._frank = rng.random(code.n) < 0.5

    def held(self, worker: int, frank: bool = False) -> Floats:
        """Return a worker's partial gradients: those it claims, or the true ones if `frank`."""
        claims = self.true if frank else self._claims.get(worker, self.true)
        held: Floats = claims[self.code.partitions(worker)]
        return held

    def send(self, rnd: Round) -> None:
        for i in range(self.code.n):
            rnd.receive(i, self.code.encode(i, self.held(i)))

    def ask(self, workers: list[int], question: int) -> dict[int, Floats]:
        """Return the workers' answers to a question."""
        return {
            i: AskingRound.answer(self.code, i, list(self.held(i, bool(self._frank[i]))), question)
            for i in workers
        }

    def compute(self, partition: int) -> Floats:
        """Return a partial gradient that the master computes itself."""
        gradient: Floats = self.true[partition]
        return gradient


def _lie(rng: np.random.Generator, true: Floats, group: Ints) -> Floats:
    """Return partial gradients of which some in `group` are false."""
    said = true.copy()
    wrong = rng.choice(group, rng.integers(1, group.size + 1), replace=False)
    kind = rng.integers(3)
    if kind == 0:
        said[wrong] += rng.standard_normal((wrong.size, P))
    elif kind == 1:
        said[wrong] *= -1.0
    else:
        said[wrong, rng.integers(P)] += 10.0 ** rng.integers(-3, 4)
    return said


@figure("hofmeister-liars", "Liars: 2s + 1 copies and a majority, or s + 1 and questions")
def liars(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Copies, and work of the master, for exact decoding although s workers lie.

    Liars are drawn at random in each round. They agree on their claims, or not. When asked, a liar
    answers truly or repeats its lie. In Draco, each partition is on 2 s + 1 workers and the
    majority decides. With questions, s + 1 workers are enough, and the master computes at most s
    partial gradients.
    """
    why = "s of 2 s + 1 copies never are the majority"
    by_vote = partial(Row, VOTED, note=why, tolerance=0)
    why = "of s + 1 copies one is honest: liars contradict it, or answers that the master checks"
    by_asking = partial(Row, ASKED, note=why, tolerance=0)
    rounds, costs = min(rounds, ENOUGH), []
    for s in track(list(WORKERS)):
        n = WORKERS[s]
        few, many = (FractionalRepetition(n, stragglers=extra) for extra in (s, 2 * s))
        rng = np.random.default_rng([seed, s])
        outvoted, wrong, unjust, computed, numbers = 0, 0, 0, [], []
        for _ in range(rounds):
            true = rng.standard_normal((n, P))
            total = true.sum(axis=0)
            voted, asked = many.round(P, verify=s), AskingRound(few, P, liars=s)
            _Liars(many, s, true, rng).send(voted)
            outvoted += not np.allclose(voted.gradient(), total, rtol=0, atol=1e-9)
            lying = _Liars(few, s, true, rng)
            lying.send(asked)
            cost = asked.settle(lying.ask, lying.compute)
            wrong += not np.allclose(asked.gradient(), total, rtol=0, atol=1e-9)
            unjust += not set(asked.corrupt) <= set(lying.workers)
            computed.append(cost.computed)
            numbers.append(cost.numbers)
        costs.append((np.mean(computed), max(computed)))
        of = f"of {rounds} rounds, {n} workers, s = {s}"
        note = (
            f"{np.mean(computed):.2f} on average, and {np.mean(numbers):.0f} numbers in answers, "
            "however long the gradient is"
        )
        more = sum(each > s for each in computed)
        yield by_vote(f"copies of each partition, majority, s = {s}", many.load, 2 * s + 1)
        yield by_vote(f"wrong gradients {of}", float(outvoted), closed=0.0)
        yield by_asking(f"copies of each partition, asking, s = {s}", few.load, s + 1)
        yield by_asking(f"wrong gradients {of}", float(wrong), closed=0.0)
        yield by_asking(f"honest workers named, {of}", float(unjust), closed=0.0)
        yield by_asking(f"master computes more than s, {of}", float(more), closed=0.0, note=note)
    mean, most = np.array(costs, dtype=np.float64).T
    x = np.array(list(WORKERS))
    lines = [Line("bound: s", x, x), Line("largest", x, most, "points")]
    lines.append(Line("mean", x, mean, "points"))
    yield Panel("Partial gradients that the master computes", "liars, s", "in a round", lines)
