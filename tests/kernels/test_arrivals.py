"""The kernel records the messages of a round as they come."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.table import HALVES

from fastgc import kernels
from fastgc.kernels import Rows, Status, rounds, threads
from fastgc.kernels.arrivals import NEXT, ROW, SIDE, Arrivals, Tally
from fastgc.kernels.rows import Projecting

KINDS = [np.float32, np.float64, np.complex64, np.complex128, np.float16]


def arrivals(messages, length, dtype, tally=None, reads=True, each=1):
    """Messages of workers that send so many each."""
    rows, project = Rows(messages, length, np.dtype(dtype)), None
    if reads:
        project = Projecting(
            np.ones((2, SIDE)), np.ones((1, SIDE, 8)), np.dtype(dtype).kind == "c", 1.0
        )
    return Arrivals(rows, np.full(messages, -1), np.arange(0, messages + 1, each), tally, project)


def take(taken, number, row, energy=math.nan):
    status = taken.arrive(number, 0, row, energy)
    if status in (Status.OK, Status.TOO_FEW):
        taken.rows.arrays.append(row)
    return status


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("dtype", KINDS)
def test_what_is_taken_down(dtype, reads):
    rng = np.random.default_rng(0)
    sent = (8 * rng.standard_normal((6, 7))).astype(dtype)
    taken = arrivals(6, 7, dtype, reads=reads)
    for at, number in enumerate([4, 0, 5]):
        assert take(taken, number, sent[number]) == Status.OK
        assert taken.numbers[: at + 1].tolist() == [4, 0, 5][: at + 1]
        assert taken.rows.addresses[at] == kernels.rows.address(sent[number])
        norm = (np.abs(sent[number].astype(complex)) ** 2).sum() if reads else math.nan
        assert taken.squares[at] == pytest.approx(norm, rel=1e-5, nan_ok=True)
    assert taken.heard.tolist() == [1, 0, 0, 0, 1, 1]
    taken.reset()
    assert not taken.heard.any()
    assert taken.rows.count == 0
    assert take(taken, 4, sent[4]) == Status.OK
    assert taken.numbers[0] == 4


@pytest.mark.parametrize("dtype", KINDS)
def test_what_is_not_taken_changes_nothing(dtype):
    sent = np.ones((4, 5), dtype)
    blocks = np.zeros(4, dtype=np.int64), np.array([3])
    taken = arrivals(4, 5, dtype, Tally.of_blocks(*blocks))
    assert take(taken, 1, sent[1]) == Status.TOO_FEW
    spoilt = sent[2].copy()
    for bad in (np.nan, np.inf, -np.inf):
        spoilt[4] = bad
        assert take(taken, 2, spoilt) == Status.NOT_FINITE
    for number, status in ((-1, 1), (4, 1), (1 << 40, 1), (1, 2)):
        assert take(taken, number, sent[0]) == status
        assert status in (Status.OUT_OF_RANGE, Status.DUPLICATE)
    assert taken.heard.tolist() == [0, 1, 0, 0]
    assert taken.numbers.tolist() == [1, -1, -1, -1]
    assert take(taken, 2, sent[2]) == Status.TOO_FEW
    assert take(taken, 0, sent[0]) == Status.OK
    unread = arrivals(4, 5, dtype, reads=False)
    assert take(unread, 2, spoilt) == Status.OK


def test_squares_beyond_float64():
    taken = arrivals(2, 3, np.float64)
    assert take(taken, 0, np.array([1e200, 1.0, 2.0])) == Status.OK
    assert taken.squares[0] == math.inf
    assert take(taken, 1, np.array([1e200, math.nan, 2.0])) == Status.NOT_FINITE


@given(data=st.data())
def test_blocks_that_need_some_of_theirs(data):
    block = np.array(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12)))
    sizes = np.bincount(block, minlength=4)
    need = np.array([data.draw(st.integers(-1, int(size))) for size in sizes])
    order = data.draw(st.permutations(range(block.size)))
    taken, row = arrivals(block.size, 1, np.float64, Tally.of_blocks(block, need)), np.ones(1)
    for _ in range(2):
        heard = np.zeros(4, dtype=int)
        for number in order:
            heard[block[number]] += 1
            enough = Status.OK if (heard >= need).all() else Status.TOO_FEW
            assert take(taken, number, row) == enough
        taken.reset()


@given(data=st.data())
def test_blocks_of_different_weight(data):
    """In each cell one message counts, by the cell's weight."""
    cell = np.array(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12)))
    weight = np.array(data.draw(st.lists(st.integers(0, 5), min_size=4, max_size=4)))
    total = data.draw(st.integers(1, 12))
    order = data.draw(st.permutations(range(cell.size)))
    tally = Tally(rounds.CELLS, cell, total, weight=weight)
    taken, row = arrivals(cell.size, 1, np.float64, tally), np.ones(1)
    for at, number in enumerate(order):
        there = weight[np.unique(cell[order[: at + 1]])].sum()
        assert take(taken, number, row) == (Status.OK if there >= total else Status.TOO_FEW)
        assert (tally.lacking <= 0) == (there >= total)
        assert taken.count == at + 1


@pytest.mark.parametrize("reads", [True, False])
def test_energies_are_taken_down(reads):
    """A negative one is unknown; but a message that is to be read is not taken with it."""
    taken, told = arrivals(4, 1, np.float64, reads=reads), [2.0, -1.0, math.nan, 0.0]
    status = [take(taken, number, np.ones(1), energy) for number, energy in enumerate(told)]
    assert status == [Status.OK, Status.NOT_FINITE if reads else Status.OK, Status.OK, Status.OK]
    known = [2.0, *[np.nan] * (2 - reads), 0.0]
    np.testing.assert_array_equal(taken.energies[: taken.count], known)


@pytest.mark.parametrize("size", [1e-323, 1e-200, 1e-140, 1.0, 1e140, 1e200])
def test_norms_where_squares_are_beyond_float64(size):
    project = Projecting(np.ones((2, SIDE)), np.full((4, SIDE, 8), 2.0**-70), False, 2.0**-70)
    rows, first = Rows(1, 64, np.dtype(np.float64)), np.arange(2)
    taken = Arrivals(rows, np.empty(1, np.int64), first, project=project)
    assert take(taken, 0, np.full(64, size)) == Status.OK
    assert taken.norms[0] == pytest.approx(8 * size * 2.0**-70, rel=1e-14, abs=1e-323)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("length", [1, 7, 8, ROW - 1, ROW + 9, 70_001, 1_300_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
def test_projections(dtype, length, paired):
    """As the definition says, and by any number of threads."""
    rng = np.random.default_rng(length)
    length += length % 2 * paired
    blocks, eights = -(-length // (2 * ROW)), -(-min(length, 2 * ROW) // 16)
    right = rng.standard_normal((eights, SIDE, 4 if paired else 8)).repeat(1 + paired, axis=2)
    project = Projecting(rng.standard_normal((2 * blocks, SIDE)), right, paired, 0.5)
    sent = rng.standard_normal((2, length)).astype(dtype)
    rows = Rows(2, length, np.dtype(dtype))
    taken = Arrivals(rows, np.full(2, -1), np.arange(3), project=project)
    for number in (1, 0):
        assert take(taken, number, sent[number]) == Status.OK
    W = project.right.swapaxes(1, 2).reshape(-1, SIDE)
    padded = np.zeros((2, 2 * blocks * len(W)))
    padded[:, :length] = sent[::-1]
    # Two rows take turns by eights.
    M = padded.reshape(2, blocks, eights, 2, 8).swapaxes(2, 3).reshape(2, 2 * blocks, len(W))
    if paired:
        M, W = M.view(complex), W[::2]
    wanted = (project.left.T @ M @ W).reshape(2, SIDE**2)
    np.testing.assert_allclose(taken.values, wanted, atol=1e-12 * length)
    squares = (sent[::-1].astype(float) ** 2).sum(axis=1)
    np.testing.assert_allclose(taken.squares, squares, rtol=1e-12)
    np.testing.assert_allclose(taken.norms, np.sqrt(squares) / 2, rtol=1e-12)
    before = taken.values.copy()
    one = threads.get_num_threads()
    threads.set_num_threads(3 - min(one, 2))
    try:
        taken.reset()
        for number in (1, 0):
            take(taken, number, sent[number])
    finally:
        threads.set_num_threads(one)
    np.testing.assert_array_equal(taken.values, before)


def test_accept_takes_no_other_objects():
    taken, row = arrivals(8, 4, np.float64, reads=False), np.arange(4.0)
    strided, shifted = np.zeros(8)[::2], np.zeros(40, np.uint8)[3:35].view(np.float64)

    class Own(np.ndarray):
        pass

    others = row.view(Own), row[:3], row[None], row.astype(np.float32), row.astype(">f8")
    for other in (*others, strided, shifted, np.float64(1), 4.0, [1.0, 2.0, 3.0, 4.0], None):
        assert taken.accept(0, 0, id(other), 1.0) == Status.MISPLACED
    assert taken.count == 0
    row.flags.writeable = False
    assert taken.accept(3, 0, id(row), 1.0) == Status.OK
    assert taken.rows.addresses[0] == kernels.rows.address(row)
    assert taken.accept(3, 0, id(row), 1.0) == Status.DUPLICATE
    assert taken.accept(8, 0, id(row), 1.0) == Status.OUT_OF_RANGE


def test_accept_takes_what_was_sent():
    """Messages of complex numbers whose rows are reals."""
    rows, row = Rows(2, 8, np.dtype(np.float64)), np.arange(4) + 1j
    sent = row.dtype, row.size
    taken = Arrivals(rows, np.full(2, -1), np.arange(3), sent=sent)
    assert taken.accept(0, 0, id(np.ones(8)), 1.0) == Status.MISPLACED
    assert taken.accept(1, 0, id(row), 1.0) == Status.OK
    assert rows.addresses[0] == kernels.rows.address(row)


@given(data=st.data())
def test_accept_counts_the_messages_of_each_worker(data):
    """In any order, with their indices or as the next ones."""
    each, row = data.draw(st.integers(1, 4)), np.ones(1)
    taken = arrivals(3 * each, 1, np.float64, reads=False, each=each)
    for _ in range(2):
        after, heard = [0, 0, 0], []
        for worker in data.draw(st.lists(st.integers(0, 2), max_size=12)):
            given_ = st.sampled_from([NEXT, *range(each + 1), -1, 2**63 - 1, NEXT + 1])
            index = data.draw(given_)
            at = after[worker] if index == NEXT else index
            number = worker * each + at
            status = taken.accept(worker, index, id(row), 1.0)
            if not 0 <= at < each:
                assert status == Status.OUT_OF_RANGE
            elif number in heard:
                assert status == Status.DUPLICATE
            else:
                assert status == Status.OK
                heard.append(number)
                after[worker] = at + 1
            assert taken.numbers[: taken.count].tolist() == heard
            assert taken.next.tolist() == after
        taken.reset()
        assert taken.count == 0
        assert taken.next.tolist() == [0, 0, 0]
