"""When messages of simulated rounds suffice: calls of the kernel, and rounds followed by hand."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastgc import kernels
from fastgc.coding.rules import Blocks, Cells, Parts, Tiling, Waiting
from fastgc.numerics.graphs import components


def rule_of(plan):
    """Return the rule of `fastgc.coding.rules` that a plan stands for."""
    if plan.kind == kernels.rounds.BLOCKS:
        return Blocks(plan.group, plan.need)
    if plan.kind == kernels.rounds.CELLS:
        return Cells(plan.group, plan.need, plan.total)
    if plan.kind == kernels.rounds.EDGES:
        return Parts(np.stack([plan.group, plan.other], axis=1), plan.total)
    return Tiling(plan.group, plan.other, plan.total)


def suffice(rule, messages):
    """Whether messages suffice, also by a rule by which even all of them do not."""
    if isinstance(rule, Waiting):
        sent = np.bincount(rule.sender)
        whole = np.bincount(rule.sender[messages], minlength=sent.size) == sent
        return whole[sent > 0].sum() >= rule.wait or suffice(rule.rule, messages)
    if isinstance(rule, Tiling):
        return not components(rule.edges(messages), rule.k + 1)[rule.k]
    return not rule.missing(messages)


def completed(plan, delay, work, late, receive=0.0, overhead=0.0, interrupted=True):
    """Return what the kernel of simulated rounds writes."""
    out = kernels.rounds.Completion.empty(len(work))
    how = receive, overhead, interrupted
    kernels.unchecked.completion(plan, given_exactly(delay, work), 0, late, *how, out)
    return out


def given_exactly(delay, work):
    """Return the plan of these delays and works, with nothing drawn."""
    zeros = (np.zeros(delay.shape[1]) for _ in range(5))
    plan = kernels.rounds.DelayPlan.of(np.uint64(0), 1.0, *zeros)
    return plan._replace(given=delay, whole=work)


def completion_truth(plan, delay, work, late, receive, overhead, interrupted, rule=None):
    """Follow rounds message by message; return a `Completion` of lists, and workers' lateness."""
    rule, first, late = rule or rule_of(plan), plan.first.tolist(), late.tolist()
    if plan.wait:
        rule = Waiting(rule, np.repeat(np.arange(plan.loads.size), np.diff(first)), plan.wait)
    none = np.empty(0, np.int64)
    rounds = []
    for waits, row in zip(delay.tolist(), work.tolist(), strict=True):
        begin = [free_at + wait for free_at, wait in zip(late, waits, strict=True)]
        sent = [
            [begin[i] + whole * share for share in plan.share[first[i] : first[i + 1]].tolist()]
            for i, whole in enumerate(row)
        ]
        arrivals = sorted(
            (at, first[i] + m) for i, own in enumerate(sent) for m, at in enumerate(own)
        )
        order = np.array([message for _, message in arrivals], np.int64)
        at_once = not plan.total if plan.kind == kernels.rounds.TILING else not rule.missing(none)
        came = range(1, len(arrivals) + 1)
        enough = (arrivals[f - 1][0] for f in came if suffice(rule, order[:f]))
        ready = 0.0 if at_once else next(enough, math.inf)
        heard = [at for at, _ in arrivals if at <= ready]
        done = 0
        for i, (load, whole, since) in enumerate(zip(plan.loads.tolist(), row, begin, strict=True)):
            if since <= ready:
                part = min(1.0, (ready - since) / whole) if whole else 1.0
                came = sum(at <= ready for at in sent[i])
                part = max(part, plan.share[first[i] + came - 1]) if came else part
                done += math.floor(load * part + 1e-9)
        time = max([ready, *(at + (len(heard) - j) * receive for j, at in enumerate(heard))])
        senders = sum(bool(own) and own[0] <= ready for own in sent)
        rounds.append((time, len(heard), senders, done))
        if not interrupted:
            end = time + overhead
            busy = [
                [at for at in (free_at, *own) if at > end]
                for free_at, own in zip(late, sent, strict=True)
            ]
            late = [ahead[0] - end if ahead else 0.0 for ahead in busy]
    return kernels.rounds.Completion(*map(list, zip(*rounds, strict=True))), late


class Simulated(NamedTuple):
    """Rounds of one kind: how to make arguments, what the kernel makes of them, and the truth."""

    name: str
    make: Callable
    run: Callable
    truth: Callable


def _completion(rule, receive, interrupted):
    """Return a row for rounds of `size` workers that each send `count` messages."""

    def make(rng, size, count, dtype=np.float64, rounds=30):
        worker = np.repeat(np.arange(size), count)
        sent = np.tile(np.arange(count), size)
        empty = np.empty(0, np.int64)
        other, total = empty, 0
        if rule == "blocks":  # needs one message fewer than 2 workers send
            kind, group = kernels.rounds.BLOCKS, np.zeros_like(worker)
            need = np.array([min(2 * count - 1, worker.size)])
        elif rule == "cells":  # worker i begins with cell i
            kind, group, total = kernels.rounds.CELLS, (worker + sent) % size, size
            need = np.ones(size, np.int64)
        else:  # about three classes of workers, each of which splits the partitions
            kind, total, need = kernels.rounds.TILING, 2 * size * count, empty
            classes = np.array_split(np.arange(size * count), min(3, size * count))
            ends = [np.linspace(0, total, part.size + 1).astype(np.int64) for part in classes]
            group = np.concatenate([end[:-1] for end in ends])
            other = np.concatenate([end[1:] for end in ends])
        plan = kernels.rounds.CompletionPlan(
            kind,
            first=np.arange(size + 1) * count,
            share=(sent + 1) / count,
            loads=np.full(size, 2 * count),
            group=group,
            other=other,
            need=need,
            total=total,
        )
        delay, work = rng.exponential(size=(2, rounds, size))
        return {"plan": plan, "delay": delay, "work": 1 + work, "late": np.zeros(size)}

    def run(arguments):
        late = arguments["late"].copy()
        plan, how = arguments["plan"], (receive, 0.01, interrupted)
        return completed(plan, arguments["delay"], arguments["work"], late, *how), late

    def truth(arguments):
        return completion_truth(
            **arguments, receive=receive, overhead=0.01, interrupted=interrupted
        )

    title = f"completion {rule}{', receive' if receive else ''}{'' if interrupted else ', finish'}"
    return Simulated(title, make, run, truth)


COMPLETIONS = [
    _completion(rule, receive, interrupted)
    for rule in ("blocks", "cells", "tiling")
    for receive, interrupted in ((0.0, True), (1e-3, True), (0.0, False))
]
