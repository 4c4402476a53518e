"""Completion times agree with rounds followed message by message."""

import functools

import numpy as np
import pytest
from completions import COMPLETIONS, completed, completion_truth, given_exactly
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc import kernels
from fastgc.coding.rules import Span
from fastgc.numerics.solve import Equations, least_squares

EMPTY = np.empty(0, np.int64)
KINDS = [kernels.rounds.BLOCKS, kernels.rounds.CELLS, kernels.rounds.TILING]


def assert_same(found, expected):
    (done, late), (true, true_late) = found, expected
    for name in done._fields:
        np.testing.assert_array_equal(getattr(done, name), getattr(true, name), err_msg=name)
    np.testing.assert_array_equal(late, true_late)


@pytest.mark.parametrize("kernel", COMPLETIONS, ids=lambda k: k.name)
def test_table(kernel, at_each_level):
    for arguments, truth in of_sizes(kernel):
        kept = {name: arguments[name].copy() for name in ("delay", "work")}
        for _ in at_each_level():
            assert_same(kernel.run(arguments), truth)
        for name, array in kept.items():
            np.testing.assert_array_equal(arguments[name], array)


# The truth, from rounds followed in Python, is shared by all backends.


@functools.cache
def of_sizes(kernel):
    rng = np.random.default_rng(1)
    found = [
        kernel.make(rng, size, count, np.float64)
        for size in (1, 2, 3, 8, 33)
        for count in (1, 2, 7, 40)
    ]
    return [(arguments, kernel.truth(arguments)) for arguments in found]


def plan_of(kind, counts, group, need, **more):
    """Return a plan of workers that send so many messages each, at equal distances."""
    counts = np.asarray(counts)
    share = [(np.arange(count) + 1) / count for count in counts]
    usual = {"share": np.concatenate(share), "loads": counts, "other": EMPTY, "total": 0}
    first = np.concatenate([[0], np.cumsum(counts)])
    group, need = np.asarray(group, np.int64), np.asarray(need, np.int64)
    return kernels.rounds.CompletionPlan(kind, first, group=group, need=need, **usual | more)


def random_plan(rng, kind, workers, most):
    """Return a plan with workers that send nothing, needs of 0, and sometimes too few messages."""
    counts = rng.integers(0, most + 1, workers)
    counts[rng.integers(workers)] = most
    loads = counts + rng.integers(0, 3, workers)
    share = [
        np.sort(rng.permutation(load)[:count] + 1) / load
        for load, count in zip(loads, counts, strict=True)
        if count
    ]
    messages = int(counts.sum())
    other, total = EMPTY, 0
    if kind == kernels.rounds.TILING:
        total = int(rng.integers(1, 8))
        ends = np.array([np.sort(rng.permutation(total + 1)[:2]) for _ in range(messages)])
        group, other, need = ends[:, 0].copy(), ends[:, 1].copy(), EMPTY
        if rng.random() < 0.7:
            group[-1], other[-1] = 0, total
    else:
        groups = int(rng.integers(1, 6))
        group = rng.integers(0, groups, messages)
        if kind == kernels.rounds.BLOCKS:
            most_of_each = np.bincount(group, minlength=groups) + (rng.random() < 0.1)
            need = rng.integers(0, most_of_each + 1)
        else:
            need = rng.integers(0, 4, groups)
            total = int(rng.integers(0, need[group].sum() + 2))
    share = np.concatenate(share)
    return plan_of(kind, counts, group, need, share=share, loads=loads, other=other, total=total)


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    workers=st.integers(1, 7),
    most=st.integers(1, 6),
    rounds=st.integers(1, 8),
    ties=st.booleans(),
    receive=st.sampled_from([0.0, 0.125, 0.3]),
    overhead=st.sampled_from([0.0, 0.5, 0.1]),
    interrupted=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_random_plans(seed, kind, workers, most, rounds, ties, receive, overhead, interrupted):
    plan, delay, work, late, expected = random_rounds(
        seed, kind, workers, most, rounds, ties, receive, overhead, interrupted
    )
    kept = delay.copy(), work.copy(), late.copy()
    late = late.copy()
    done = completed(plan, delay, work, late, receive, overhead, interrupted)
    assert_same((done, late), expected)
    np.testing.assert_array_equal(delay, kept[0])
    np.testing.assert_array_equal(work, kept[1])
    if interrupted:
        np.testing.assert_array_equal(late, kept[2])


@functools.cache
def random_rounds(seed, kind, workers, most, rounds, ties, receive, overhead, interrupted):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng, kind, workers, most)
    if ties:
        work = rng.choice([0.0, 1.0, 1.0, 2.0, 4.0], (rounds, workers))
        delay = rng.choice([0.0, 1.0], (rounds, workers))
        late = rng.choice([0.0, 0.0, 0.5, 3.0], workers)
    else:
        delay, work = rng.exponential(size=(2, rounds, workers))
        late = rng.exponential(size=workers)
    truth = completion_truth(plan, delay, work, late, receive, overhead, interrupted)
    return plan, delay, work, late, truth


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["blocks", "cells", "tiling", "edges", "span", "span forwards"]),
    workers=st.integers(1, 9),
    most=st.integers(1, 3),
    rounds=st.integers(1, 12),
    receive=st.sampled_from([0.0, 0.125]),
    interrupted=st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_plans_that_wait_for_some(seed, kind, workers, most, rounds, receive, interrupted):
    plan, delay, work, late, expected = waiting_rounds(
        seed, kind, workers, most, rounds, receive, interrupted
    )
    late = late.copy()
    assert_same((completed(plan, delay, work, late, receive, 0.1, interrupted), late), expected)


@functools.cache
def waiting_rounds(seed, kind, workers, most, rounds, receive, interrupted):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most + 1, workers)
    messages, rule = int(counts.sum()), None
    named = {"wait": int(rng.integers(1, workers + 1))}
    other, need, total = EMPTY, EMPTY, 0
    if kind in ("tiling", "edges"):
        total = int(rng.integers(2, 7))
        ends = np.array([rng.permutation(total)[:2] for _ in range(messages)])
        group, other = ends.T.copy()
    else:
        group = rng.integers(0, 3, messages)
        most_of_each = np.bincount(group, minlength=3)
        need = rng.integers(0, most_of_each + 2) if kind == "blocks" else np.array([1, 2, 3])
        total = int(rng.integers(1, 7))
    if kind in ("span", "span forwards"):
        rows = rng.integers(-1, 2, (messages, int(rng.integers(1, 6)))).astype(float)
        rows[0, 0] = 1  # at least one message holds something
        if rng.random() < 0.5:
            rows = rows + 1j * rng.integers(-1, 2, rows.shape)
        rule = span_of(rows, real_part=bool(rng.random() < 0.5))
        forwards = kind != "span"
        named |= {"spare": rule.turned() if forwards else rule.spare(), "forwards": forwards}
        kind = "span"
    kind = getattr(kernels.rounds, kind.upper())
    named |= {"loads": counts + 1, "other": other, "total": total}
    plan = plan_of(kind, counts, group, need, **named)
    delay, work = rng.exponential(size=(2, rounds, workers))
    late = rng.exponential(size=workers)
    truth = completion_truth(plan, delay, work, late, receive, 0.1, interrupted, rule)
    return plan, delay, work, late, truth


def span_of(rows, real_part=False):
    """Return the rule of these rows, by dense least squares."""

    def residual(messages):
        return least_squares(equations(messages))[1]

    def equations(messages):
        return Equations(
            rows[messages], np.ones(rows.shape[1]), real_part and np.iscomplexobj(rows)
        )

    return Span(equations, residual, len(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_many_messages_of_few_times(kind):
    """Selections split several times, among equal and among different keys."""
    rng = np.random.default_rng(kind)
    for ties in (False, True):
        for _ in range(20):
            plan = random_plan(rng, kind, 30, 20)
            delay, work = rng.exponential(size=(2, 4, 30))
            if ties:
                delay, work = np.ceil(2 * delay), np.ceil(2 * work)
            late = np.zeros(30)
            expected = completion_truth(plan, delay, work, late, 0.01, 0.0, True)
            assert_same((completed(plan, delay, work, late, 0.01), late), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 4, 24])
def test_rounds_like_those_before_and_unlike(kind, most, at_each_level):
    """Kernels look for the last message near its place in earlier rounds."""
    for plan, delay, work, expected in like_and_unlike(kind, most):
        for _ in at_each_level():
            late = np.zeros(delay.shape[1])
            done = completed(plan, delay, work, late)
            assert_same((done, late), expected)


@functools.cache
def like_and_unlike(kind, most):
    rng, found = np.random.default_rng(10 * kind + most), []
    rounds, n = 150, 60 if most < 24 else 12
    plan = random_plan(rng, kind, n, most)
    if most == 1:
        plan = plan._replace(first=np.arange(n + 1), share=np.ones(n), loads=np.full(n, 3))
        names = ("group", "other") if kind == kernels.rounds.TILING else ("group",)
        plan = plan._replace(**{name: np.resize(getattr(plan, name), n) for name in names})
    if kind == kernels.rounds.BLOCKS:  # one block of many messages, and one of few
        group = np.where(np.arange(plan.share.size) < 45, 0, 1)
        plan = plan._replace(group=group, need=np.array([38, 4]))
    elif kind == kernels.rounds.CELLS:
        group = rng.permutation(plan.share.size)
        plan = plan._replace(group=group, need=np.ones_like(group), total=40)
    for level in (np.ones(rounds), np.linspace(1, 3, rounds), 1 + np.arange(rounds) // 50 % 2):
        for digits in (1, 12):
            delay, work = rng.exponential(size=(2, rounds, n)).round(digits) * level[:, None]
            truth = completion_truth(plan, delay, work, np.zeros(n), 0.0, 0.0, True)
            found.append((plan, delay, work, truth))
    return found


def test_a_message_as_early_as_any_before(at_each_level):
    """It counts as inside the window of earlier rounds, not ahead of it, at any place."""
    workers, need = 41, 20
    plan = one_message_each(workers, need)
    work, late = np.zeros((33, workers)), np.zeros(workers)
    order = np.arange(workers, dtype=float)
    for r in range(32):  # ready at 5 and at 7
        work[r] = order + (5, 7)[r % 2] - (need - 1)
    work -= work.min()
    low, high = np.sort(work[:2])[:, need - 1]
    work[32] = [*np.zeros(18), *np.full(20, high + 9), (low + high) / 2, high, low]
    expected = completion_truth(plan, work, np.zeros_like(work), late, 0.0, 0.0, True)
    for _ in at_each_level():
        assert_same((completed(plan, work, np.zeros_like(work), late), late), expected)


def test_a_round_a_little_longer_than_those_before(at_each_level):
    """Messages that were skipped, as they seemed too late, come first."""
    often, once = 2, 30  # numbers of workers that send 150 messages, and one message
    counts = np.repeat([150, 1], [often, once])
    plan = plan_of(kernels.rounds.BLOCKS, counts, np.zeros(counts.sum()), [90])
    work = np.tile(np.repeat([1.0, 10.0], [often, once]), (1600, 1))
    unlike = np.arange(1600) % 97 == 96  # after many similar rounds, however rounds are split
    work[unlike] = np.repeat([1.4, 0.5], [often, once])
    delay, late = np.zeros_like(work), np.zeros(often + once)
    expected = completion_truth(plan, delay, work, late, 0.0, 0.0, True)
    np.testing.assert_allclose(expected[0].time, np.where(unlike, 1.4, 1.0) * 45 / 150)
    for _ in at_each_level():
        assert_same((completed(plan, delay, work, late), late), expected)


def test_every_rank_of_a_block():
    rng = np.random.default_rng(3)
    for n in (1, 2, 31, 32, 33, 200):
        work = rng.permutation(np.repeat(np.arange(1.0, n + 1), 2)[:n])[None]
        ordered = np.sort(work[0])
        for need in range(n + 1):
            plan = one_message_each(n, need)
            done = completed(plan, np.zeros((1, n)), work, np.zeros(n))
            assert done.time[0] == (ordered[need - 1] if need else 0)
            assert done.messages[0] == np.sum(ordered <= done.time[0])


def test_cells_of_one_weight():
    """As many cells are needed as weigh enough; of the last one, a part may suffice."""
    rng = np.random.default_rng(11)
    for cells, weight in ((7, 3), (40, 2), (5, 1)):
        group = np.tile(np.arange(cells), 2)
        for total in range(cells * weight + 2):
            ones, need = np.ones(2 * cells, int), np.full(cells, weight)
            plan = plan_of(kernels.rounds.CELLS, ones, group, need, total=total)
            work = rng.permutation(np.arange(1.0, 2 * cells + 1))[None]
            earliest = np.sort(work.reshape(2, cells).min(axis=0))
            needed = -(-total // weight)
            done = completed(plan, np.zeros_like(work), work, np.zeros(2 * cells))
            expected = np.inf if needed > cells else earliest[needed - 1] if needed else 0.0
            assert done.time[0] == expected


def one_message_each(n, need):
    """Return the plan of a Reed-Solomon code of load 1: any `need` of n messages suffice."""
    return plan_of(kernels.rounds.BLOCKS, np.ones(n, int), np.zeros(n), [need])


def test_a_message_for_each_computation_counts_it():
    """This holds even if rounding puts its arrival before or after the computation's end."""
    rng = np.random.default_rng(5)
    n, w = 12, 49
    arguments = COMPLETIONS[0].make(rng, n, w, np.float64, rounds=200)
    plan = arguments["plan"]._replace(loads=np.full(n, w))
    late = rng.exponential(size=n)
    done = completed(plan, arguments["delay"], arguments["work"], late)
    np.testing.assert_array_equal(done.computations, done.messages)


def test_workers_that_finish_join_the_newest_round():
    """Of two workers the first message decides; worker 1 sends its work in halves."""
    plan = plan_of(kernels.rounds.BLOCKS, [1, 2], np.zeros(3), [1], loads=np.array([1, 4]))
    work = np.array([[2.0, 10.0], [1.0, 8.0], [3.0, 1.0], [4.0, 4.0]])
    late = np.zeros(2)
    done = completed(plan, np.zeros_like(work), work, late, 0.25, 0.5, False)
    # Each round ends 0.25 after a message came, and the next one begins 0.5 later.
    # 0: worker 0 at 2. The next begins at 2.75: worker 1's half is due at 5, 2.25 into it.
    # 1: worker 0 at 1. The next begins at 1.75, 0.5 before that old message.
    # 2: worker 1 at 0.5 + 0.5, done at 1.5. Worker 0, due at 3, is 1.25 late for the next, at 1.75.
    # 3: worker 1 at 2. Worker 0 is due at 1.25 + 4, worker 1's second half at 4; the end is 2.75.
    np.testing.assert_array_equal(done.time, [2.25, 1.25, 1.25, 2.25])
    np.testing.assert_array_equal(done.messages, [1, 1, 1, 1])
    np.testing.assert_array_equal(done.workers, [1, 1, 1, 1])
    np.testing.assert_array_equal(done.computations, [1, 1, 2, 2])
    np.testing.assert_array_equal(late, [2.5, 1.25])


def test_threads_change_nothing(split_over):
    rng = np.random.default_rng(7)
    for kernel in COMPLETIONS:
        for rounds in (1, 7, 8, 9, 100):
            arguments = kernel.make(rng, 5, 3, np.float64, rounds)
            for count in (1, 3):
                split_over(count)
                assert_same(kernel.run(arguments), kernel.truth(arguments))


def test_written_where_told_and_nowhere_else():
    arguments = COMPLETIONS[0].make(np.random.default_rng(9), 4, 3, np.float64)
    room = kernels.rounds.Completion.empty(40)
    for array in room:
        array[:] = -7
    out = room.part(5, 35)
    plan, delay, work, late = arguments.values()
    delays = given_exactly(delay, work)
    kernels.unchecked.completion(plan, delays, 0, late, 0.0, 0.0, True, out)
    expected = completion_truth(**arguments, receive=0.0, overhead=0.0, interrupted=True)
    assert_same((out, arguments["late"]), expected)
    for array in room:
        assert (array[:5] == -7).all()
        assert (array[35:] == -7).all()


def test_no_rounds():
    done = completed(one_message_each(3, 2), *np.empty((2, 0, 3)), np.zeros(3))
    assert [array.size for array in done] == [0, 0, 0, 0]
