"""Tables of recorded times are read from files of all kinds."""

import importlib.util
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgc
from fastgc.delays import Empirical, parse
from fastgc.planning.simulation import simulate

TIMES = np.random.default_rng(0).random((7, 4))


def write(path, times, names=None):
    """Write a table in the format of its name's suffix."""
    if path.suffix == ".npy":
        np.save(path, times)
    elif path.suffix == ".npz":
        np.savez(path, seconds=times)
    elif path.suffix == ".json":
        path.write_text(json.dumps(times.tolist()))
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        names = names or [f"w{i}" for i in range(times.shape[1])]
        parquet.write_table(pyarrow.table(dict(zip(names, times.T, strict=True))), path)
    else:
        separator = {".csv": ",", ".tsv": "\t", ".txt": " "}[path.suffix]
        head = "" if names is None else separator.join(names)
        np.savetxt(path, times, delimiter=separator, fmt="%.17g", header=head, comments="")


KINDS = [".csv", ".tsv", ".txt", ".npy", ".npz", ".json", ".parquet"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("unit", "many"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("NS", 1e9)])
def test_every_kind_of_file(tmp_path, kind, unit, many):
    path = tmp_path / f"times{kind}"
    write(path, TIMES)
    read = Empirical.read(path, unit)
    assert read == Empirical(TIMES / many)
    assert read.joint
    assert Empirical.read(str(path), per="computation") == Empirical(TIMES, "computation")
    assert parse(f"empirical:{path},unit={unit}") == read


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".txt", ".parquet"])
@pytest.mark.parametrize("first", ["round", "Step", "INDEX", "iteration"])
def test_a_column_that_numbers_rounds_is_left_out(tmp_path, kind, first):
    path = tmp_path / f"times{kind}"
    numbered = np.column_stack([np.arange(7), TIMES])
    write(path, numbered, [first, "a", "b", "c", "d"])
    assert Empirical.read(path) == Empirical(TIMES)
    write(path, TIMES, list("abcd"))
    assert Empirical.read(path) == Empirical(TIMES)
    path = tmp_path / f"other{kind}"
    write(path, TIMES, ["w0", first, "w2", "w3"])  # in another column it is an ordinary name
    assert Empirical.read(path) == Empirical(TIMES)


@pytest.mark.parametrize(
    "text",
    [
        ",0,1,2\n0,3,4,5\n1,6,7,8\n",  # as pandas writes it
        '# of a cluster\n\n"","a, b",c,d\n0,3,4,5\n\n1,6,7,8\n',
        "3;4;5\n6;7;8",
        "a;b;c\r\n3;4;5\r\n6;7;8\r\n",
        "round,0,1,2\n5,3,4,5\n6,6,7,8\n",
        "3, 4, 5\n6, 7, 8\n",
    ],
)
def test_lines_as_others_write_them(tmp_path, text):
    path = tmp_path / "times.csv"
    path.write_bytes(text.encode())
    assert Empirical.read(path) == Empirical([[3, 4, 5], [6, 7, 8]])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "1,2\n3,\n", r"a\.csv: line 2, column 2: the time is missing;"),
        ("a.csv", "x,y\n1,2\nnan,NA\n", r"line 3, column 1: the time is missing \(and 1 more\)"),
        ("a.csv", "# x\n\nround,x,y\n1,2,3\n2,-4,5\n", "line 5, column 2: the time is negative"),
        ("a.csv", "1,2\n3,inf\n", "line 2, column 2: the time is infinite"),
        ("a.csv", "1,2\n3,2 ms\n", "line 2, column 2: '2 ms' is no number such as 0.25"),
        ("a.csv", "1,x\n3,4\n", "line 1, column 2: 'x' is no number"),
        ("a.csv", ",2\n3,4\n", "line 1, column 1: the time is missing"),
        ("a.csv", "0,5;0,7\n0,5;0,7\n", "line 1, column 2: '5;0' is no number"),
        ("a.csv", "1,2\n\n3,4,5\n", "line 3 has 3 columns, where line 1 has 2"),
        ("a.csv", "1\n2\n-3\n", "line 3, column 1: the time is negative"),
        ("a.txt", "1 2 -3\n", "line 1, column 3: the time is negative"),
        ("a.csv", "round,worker,seconds\n0,0,1.5\n", "a column 'worker', as a list of single"),
        ("a.csv", "a,b\n", "it holds no times"),
        ("a.csv", "round\n1\n", "it holds no times"),
        ("a.csv", "# nothing\n", "it holds no times"),
        ("a.json", "[[1, 2], [3, null]]", "row 2, column 2: the time is missing"),
        ("a.json", "[1, 2, -3]", "row 3: the time is negative"),
        ("a.json", "[[1, 2], [3]]", "row 2 is not as long as the first one"),
        ("a.json", "[1, [2]]", "row 2 is not as long as the first one"),
        ("a.json", "7", "it must be a list of times"),
        ("a.json", '{"times": [[1]]}', "it is a recording, which .*Recording.read reads"),
        ("a.npy", "nothing", "a.npy is no readable .npy file: "),
        ("a.npz", "nothing", "a.npz is no readable .npz file: "),
        ("a.pkl", "nothing", r"ends in one of .npy, .npz, .json, .csv, .tsv, .txt, .parquet"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=says):
        Empirical.read(path)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ones((2, 2, 2)), r"one row for each round .* this has the shape \(2, 2, 2\)"),
        (np.array(["a", "b"]), "its entries must be real numbers, not <U1"),
        (np.ones((2, 2), complex), "its entries must be real numbers, not complex128"),
        (np.ones((2, 2), bool), "its entries must be real numbers, not bool"),
        (np.array([[1, np.nan]]), "row 1, column 2: the time is missing"),
        (np.empty((0, 3)), "it holds no times"),
    ],
)
def test_arrays_that_are_refused(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match=says):
            Empirical.read(tmp_path / name)
    # Objects would be unpickled, which runs code from the file.
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"objects\.npy is no "):
        Empirical.read(tmp_path / "objects.npy")


def test_of_several_arrays_one_is_called_times(tmp_path):
    np.savez(tmp_path / "a.npz", other=np.ones(3), times=TIMES)
    assert Empirical.read(tmp_path / "a.npz") == Empirical(TIMES)
    np.savez(tmp_path / "b.npz", other=np.ones(3), seconds=TIMES)
    with pytest.raises(ValueError, match=r"called times, .* there are other, seconds"):
        Empirical.read(tmp_path / "b.npz")


def test_parquet_that_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    for columns, says in (
        ({"a": [1.0, None], "b": [2.0, 3.0]}, "row 2, column 'a': the time is missing"),
        ({"round": [0, 1], "a": [1, 2], "b": [3, -3]}, "row 2, column 'b': the time is negative"),
        ({"a": ["x", "y"]}, "column 'a': its entries are no real numbers, but string"),
        ({"worker": [0, 1], "seconds": [1.0, 2.0]}, "a column 'worker'"),
        ({"round": [0, 1]}, "it has no column of times"),
    ):
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(ValueError, match=says):
            Empirical.read(path)
    path.write_text("nothing")
    with pytest.raises(ValueError, match=r"a\.parquet is no "):
        Empirical.read(path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_text("")
    with pytest.raises(ImportError, match=r'parquet files need PyArrow: pip install ".*parquet\]"'):
        Empirical.read(tmp_path / "a.parquet")


@pytest.mark.parametrize(("unit", "error"), [("day", ValueError), (3, TypeError)])
def test_units_that_there_are_not(tmp_path, unit, error):
    with pytest.raises(error, match="unit must be"):
        Empirical.read(tmp_path / "nowhere.csv", unit)


def test_files_that_are_not_there(tmp_path):
    kinds = [".csv", ".npy", ".npz", ".json"]
    if importlib.util.find_spec("pyarrow") is not None:
        kinds.append(".parquet")
    for kind in kinds:
        with pytest.raises(FileNotFoundError, match=r"\[Errno 2\] .*nowhere"):
            Empirical.read(tmp_path / f"nowhere{kind}")


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), min_size=2, max_size=5))
def test_lines_are_read_to_the_last_bit(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("times") / "times.csv"
    path.write_text("\n".join(",".join(map(repr, row)) for row in rows))
    assert np.array_equal(Empirical.read(path).samples, rows)


def test_whole_rounds_are_kept(tmp_path):
    """One of two workers is always late, in turns; drawn independently, both often would be."""
    path = tmp_path / "times.csv"
    path.write_text("1,9\n9,1\n" * 5)
    model = parse(f"empirical:{path}")
    code = fastgc.FractionalRepetition(2, stragglers=1)
    assert simulate(code, model, rounds=200).times == pytest.approx(1)
    assert all(model.sample(r, 2, 0).sum() == 10 for r in range(20))
