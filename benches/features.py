"""What each optional feature costs, beside the same work without it.

Run as ``python benches/features.py``, on an idle machine; arguments are the lengths of gradients.
One thread, float64. Both kinds of work take turns, and the ratio of their medians counts. A
verified round is compared with one that takes the same messages, in the same order. Columns are
codes. ``--steps`` compares steps of 16 local processes instead, beside those of as many messages of
as many partial gradients without a code.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from measure import times

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.engines import LocalCluster
from fastgc.kernels import threads
from fastgc.training.checkpoint import Checkpoint

LENGTHS = 1_000, 10_000, 100_000, 300_000
CODES = {
    "binary 18/3": fastgc.BinaryCode(18, stragglers=3),
    "fractional 16/3": fastgc.FractionalRepetition(16, stragglers=3),
    "rs 21/4": fastgc.ReedSolomon(21, stragglers=4),
    "binary 60/8": fastgc.BinaryCode(60, stragglers=8),
    "lcc 10, 2 messages": fastgc.LagrangeCode(10, 6, load=4, messages=2),
    "partial 8/4": fastgc.PartialWork(8, load=4),
}

Call = Callable[[], Any]


class Sent:
    """All messages of a code, and one random order of them for each turn."""

    def __init__(self, code: fastgc.Code, p: int) -> None:
        self.code, self.p, rng = code, p, np.random.default_rng(0)
        messages = code.scheme.messages
        self.senders = [messages.sender(number) for number in range(messages.count)]
        X = rng.standard_normal((2 * code.k, p))
        theta, shards = rng.standard_normal(p), code.encode_data(X, np.zeros(2 * code.k))
        self.partials = [A.T @ (A @ theta) for A, _ in shards]
        self.messages, self.energies = [], []
        for worker, index in self.senders:
            encoder = code.encoder(worker, p, index=index)
            for j in code.partitions(worker, index).tolist():
                encoder.add(j, self.partials[j])
            self.messages.append(encoder.message().copy())
            self.energies.append(encoder.energy)
        self.orders = [rng.permutation(messages.count).tolist() for _ in range(20)]
        self.out = np.empty(p)
        self.encoder, self.held = code.encoder(0, p), code.partitions(0, 0).tolist()

    def arguments(self, order: list[int], energies: bool = True) -> list[tuple[Any, ...]]:
        """Return what `Round.receive` is given of messages in this order."""
        several = len(self.senders) > self.code.n
        return [
            (
                self.senders[number][0],
                self.messages[number],
                self.senders[number][1] if several else None,
                self.energies[number] if energies else np.nan,
            )
            for number in order
        ]

    def play(self, rnd: Any, given: list[tuple[Any, ...]]) -> None:
        """Receive messages, and decode."""
        rnd.reset()
        receive = rnd.receive
        for worker, message, index, energy in given:
            receive(worker, message, index, energy=energy)
        rnd.gradient(out=self.out)

    def needed(self, rnd: Any, order: list[int]) -> list[int]:
        """The first messages of an order with which the round is ready."""
        rnd.reset()
        for at, number in enumerate(order):
            worker, index = self.senders[number]
            message, energy = self.messages[number], self.energies[number]
            if rnd.receive(worker, message, index, energy=energy):
                return order[: at + 1]
        raise AssertionError("the round never ends")

    def stream(self) -> None:
        """Add up the message of worker 0, as a worker does in each round."""
        encoder = self.encoder
        encoder.reset()
        for j in self.held:
            encoder.add(j, self.partials[j])
        encoder.message()
        assert encoder.energy >= 0


def compared(sent: Sent) -> Iterator[tuple[str, list[tuple[Call, Call]]]]:
    """Yield for each feature calls with it and without it, once for each turn."""
    code, p = sent.code, sent.p
    plain, trusted, verified = code.round(p), code.round(p), code.round(p, verify=1)
    tracked = code.round(p, tracker=fastgc.stability.StabilityTracker())
    few = [sent.needed(plain, order) for order in sent.orders]
    many = [sent.needed(verified, order) for order in sent.orders]

    def round_of(rnd: Any, order: list[int], then: str = "", **how: Any) -> Call:
        given = sent.arguments(order, **how)

        def call() -> None:
            sent.play(rnd, given)
            if then:
                getattr(rnd, then)()

        return call

    def pairs(rnd: Any, orders: list[list[int]], then: str = "") -> list[tuple[Call, Call]]:
        return [(round_of(rnd, order, then), round_of(plain, order)) for order in orders]

    yield "verify=1", pairs(verified, many)
    yield "rnd.trust()", pairs(trusted, few, "trust")
    yield "rnd.residual()", pairs(plain, few, "residual")
    yield "tracker=", pairs(tracked, few)
    without = [round_of(plain, order, energies=False) for order in few]
    yield "energy=", list(zip([round_of(plain, order) for order in few], without, strict=True))
    decoding = []
    for order in few:
        numbers, rows = np.array(order), [sent.messages[number] for number in order]
        decode = (lambda F, M: lambda: code.decode(F, M, out=sent.out, p=p))(numbers, rows)
        decoding.append((round_of(plain, order), decode))
    yield "a round, beside decode", decoding
    held, message = [sent.partials[j] for j in sent.held], np.empty_like(sent.messages[0])
    encoding = partial(code.encode, 0, held, out=message, index=0)
    yield "streamed, beside encode", [(sent.stream, encoding)] * 20


def ratio(pairs: list[tuple[Call, Call]], repeats: int) -> tuple[float, float]:
    """Return the median seconds of the calls without, and the ratio of those with to them.

    Each goes first as often: where messages fill the last cache, the third call that reads them
    takes 0.75 of the second's time.
    """
    times = np.empty((2 * repeats, len(pairs), 2))
    for number, turn in enumerate(times):
        for at, pair in enumerate(pairs):
            first = (number + at) % 2
            pair[1 - first]()  # both find in the caches what they have room for
            for which in (first, 1 - first):
                start = time.perf_counter()
                pair[which]()
                turn[at, which] = time.perf_counter() - start
    others = float(np.median(times[:, :, 1]))
    return others, float(np.median(times[:, :, 0])) / others


def work(theta: Any, shard: Any, out: Any) -> None:
    """Write a gradient as fast as possible."""
    out.fill(1.0)


def steps(p: int) -> Iterator[list[str]]:
    """Yield for each code the time of a step, and what verification and checkpoints add to it."""
    theta, out = np.zeros(p), np.empty(p)
    for code in (
        fastgc.BinaryCode(16, stragglers=3),
        fastgc.FractionalRepetition(16, stragglers=3),
    ):
        took: list[float] = []
        counts: list[int] = []
        with LocalCluster(code, [0] * code.n, work, p, verify=1) as cluster:
            for _ in range(60):
                start = time.perf_counter()
                report = cluster.step(theta, out=out)
                took.append(time.perf_counter() - start)
                counts.append(len(report.survivors))
            count = round(float(np.mean(counts)))
        # As many partial gradients, and as many messages.
        parts = code.n * code.scheme.load
        uncoded = fastgc.Uncoded(code.n, parts, tolerance=1 - count / code.n)
        with LocalCluster(uncoded, [0] * parts, work, p) as cluster:
            waits = times(partial(cluster.step, theta, out=out), 60)
        with tempfile.TemporaryDirectory() as folder, Checkpoint(folder, {"of": "a bench"}) as kept:

            def save() -> None:
                kept.add({"round": 0})
                kept.save({"theta": theta})

            saved = times(save, 20)
        plain = float(np.median(waits))
        each = [1e6 * plain, float(np.median(took)) / plain, 1 + float(np.median(saved)) / plain]
        yield [repr(code), f"{p:,}", f"{each[0]:.0f} µs", f"{each[1]:.2f}", f"{each[2]:.2f}"]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("p", type=int, nargs="*", default=LENGTHS, help="lengths of gradients")
    parser.add_argument("--steps", action="store_true", help="steps of local processes")
    options = parser.parse_args()
    threads.set_num_threads(1)
    if options.steps:
        body = [line for p in options.p for line in steps(p)]
        head = ["step", "p", "without", "verify=1", "checkpoint"]
        print(markdown_table("", head, body, 2).strip())
        return
    body = []
    for p in options.p:
        lines: dict[str, list[str]] = {}
        for code in CODES.values():
            for name, pairs in compared(Sent(code, p)):
                seconds, more = ratio(pairs, 5 if p < 50_000 else 1)
                lines.setdefault(name, []).append(f"{1e6 * seconds:.0f} µs × {more:.2f}")
        body += [[name, f"{p:,}", *line] for name, line in lines.items()]
    print(markdown_table("", ["feature", "p", *CODES], body, 2).strip())


if __name__ == "__main__":
    main()
