"""Texts of objects are short and true."""

import numpy as np
import programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgc
from fastgc import delays, planning, simulation
from fastgc.coding import display

LATE = delays.Exponential(0.01)
CODE = fastgc.ReedSolomon(8, stragglers=2)


@pytest.mark.subnormal
@given(st.complex_numbers(min_magnitude=1e-200, max_magnitude=1e200), st.integers(1, 8))
def test_coefficients_are_true_to_their_digits(value, digits):
    found = complex(display.text_of(np.complex128(value), digits))
    assert abs(found - value) <= 2 * 10.0 ** (1 - digits) * abs(value)


def test_coefficients_show_no_rounding_errors():
    assert display.text_of(np.complex128(-2e-16 - 3.46j), 3) == "-3.46j"
    assert display.text_of(np.complex128(2 + 1e-16j), 3) == "2"
    assert display.text_of(np.complex128(1 + 0.001j), 3) == "1+0.001j"
    assert display.text_of(np.float64(-0.25), 3) == "-0.25"


# ----------------------------------------------------------------------------------------- texts


def test_rounds_say_who_came_and_who_was_corrupt():
    code = fastgc.FractionalRepetition(6, stragglers=2)
    rnd = code.round(3, verify=True)
    assert "3 elements of float64: 0 of 6 messages, not decodable yet>" in repr(rnd)
    for worker in (0, 1):
        rnd.receive(worker, np.ones(3), energy=3.0)
    assert "2 of 6 messages, decodable, waits for more messages>" in repr(rnd)
    for worker in (2, 3, 4, 5):
        rnd.receive(worker, np.full(3, 1.0 + (worker == 4)), energy=3.0)
    assert "6 of 6 messages, ready, corrupt: workers 4>" in repr(rnd)
    rnd.reset()
    assert "0 of 6 messages" in repr(rnd)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CODE.round(5),
        lambda: fastgc.Grouped.repetition(8, 2).group_round(5),
        lambda: CODE.bind(np.ones((8, 6)), np.empty(6)),
        lambda: CODE.bind_encoder(0, np.ones((CODE.load, 4))),
        lambda: CODE.decoder(),
        lambda: CODE.encoder(0, 5),
        lambda: fastgc.StabilityTracker(limit=1e-8, action="raise"),
        lambda: CODE.trust(range(7)),
        lambda: CODE.decode(range(3), np.ones((3, 6)), partial="best"),
        lambda: simulation.simulate(CODE, LATE, rounds=100),
        lambda: planning.plan(8, LATE, codes=["rs", "binary", "lcc"], rounds=50, memory=3),
        lambda: fastgc.SimulatedCluster(CODE, [0] * 8, lambda theta, shard, out: out.fill(1), 5),
    ],
)
def test_texts_are_short_and_name_no_address(make):
    text = repr(make())
    assert " at 0x" not in text
    assert all(len(line) < 160 for line in text.splitlines())
    assert len(text.splitlines()) < 8


# ---------------------------------------------------------------------------------------- tables


def parsed(text, code):
    """Return the matrix that a table of few columns shows."""
    lines = text.splitlines()
    assert lines[1].split() == ["worker", *map(str, range(code.k))]
    rows = [line.split() for line in lines[2:]]
    assert [row[0] for row in rows] == list(map(str, range(code.n)))
    return np.array([[0 if x == "·" else complex(x) for x in row[1:]] for row in rows])


@pytest.mark.parametrize(
    "code", [CODE, fastgc.BinaryCode(7, stragglers=2), fastgc.CyclicRepetition(6, stragglers=1)]
)
def test_a_table_is_the_matrix(code):
    text = code.table(digits=9)
    np.testing.assert_allclose(parsed(text, code), code.matrix(), rtol=1e-8, atol=1e-15)
    assert "e-1" not in code.table()


def test_a_table_of_many_partitions_names_them():
    code = fastgc.BinaryCode(40, stragglers=3)
    lines = code.table().splitlines()
    assert lines[-1] == "… 40 workers in all"
    assert len(lines) == 2 + 20 + 1
    worker, *cells = lines[7].split()
    assert worker == "5"
    assert [int(each.rstrip(":")) for each in cells[::2]] == code.partitions(5).tolist()
    assert code.table([39]).splitlines()[-1].startswith("    39  ")


def test_a_table_has_a_line_for_each_message():
    code = fastgc.Uncoded(3, 6, load=2)
    assert len(code.table().splitlines()) == 2 + code.scheme.messages.count
    assert "2, message 1" in code.table()


def test_a_table_asks_for_workers_that_there_are():
    with pytest.raises(ValueError, match="worker 8 does not exist"):
        CODE.table([8])
    with pytest.raises(ValueError, match="digits must be at least 1"):
        CODE.table(digits=0)


def test_nothing_large_is_imported_for_it():
    told = "import sys, fastgc; c = fastgc.BinaryCode(6, stragglers=2); c.table(); "
    told += "repr(c.round(3)); "
    told += "print(sorted({'matplotlib', 'scipy', 'numba', 'torch', 'rich'} & sys.modules.keys()))"
    assert programs.printed(told) == "[]"
