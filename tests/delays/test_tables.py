"""Tables of recorded times as programs write them: read right, or refused with what to do."""

import numpy as np
import pytest

from fastgc.delays import Empirical
from fastgc.planning import Recording

TIMES = np.array([[0.5, 0.6], [0.8, 0.9], [0.7, 0.4]])
ROWS = [f"{a:g},{b:g}" for a, b in TIMES]


def table(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def numbered(first, last=False, values=range(3)):
    """Return lines with a column of integers at the beginning or the end."""
    rows = [f"{row},{i}" if last else f"{i},{row}" for i, row in zip(values, ROWS, strict=True)]
    return [f"a,b,{first}" if last else f"{first},a,b", *rows]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "Unnamed: 0",
        "",
        "epoch",
        "iter",
        "id",
        "t",
        "global_step",
        "step",
        "row nr",
        '"__index_level_0__"',
    ],
)
def test_read_times_leaves_out_what_numbers_rows(name, last, tmp_path):
    assert Empirical.read(table(tmp_path / "a.csv", *numbered(name, last))) == Empirical(TIMES)


def test_read_times_leaves_out_epochs_that_repeat(tmp_path):
    lines = numbered("epoch", values=[0, 0, 1])
    assert Empirical.read(table(tmp_path / "a.csv", *lines)) == Empirical(TIMES)


def test_read_times_takes_integers_for_names_of_columns(tmp_path):
    """As DataFrame(times).to_csv(index=False) writes them."""
    assert Empirical.read(table(tmp_path / "a.csv", "0,1", *ROWS)) == Empirical(TIMES)


def test_read_times_of_integers_is_of_rounds(tmp_path):
    """Milliseconds, for example: what goes up by 1 in one column may be a time."""
    lines = ["4,1", "2,3", "3,9"]
    whole = np.array([[4.0, 1], [2, 3], [3, 9]])
    assert Empirical.read(table(tmp_path / "a.csv", *lines)) == Empirical(whole)
    assert Empirical.read(table(tmp_path / "b.csv", "a,b", *lines)) == Empirical(whole)


@pytest.mark.parametrize("name", ["node", "host", "gpu", "client"])
def test_read_times_refuses_lists_of_single_times(name, tmp_path):
    lines = [f"{r},{n},{0.1 * (n + 1):g}" for r in range(3) for n in range(4)]
    path = table(tmp_path / "a.csv", f"step,{name},seconds", *lines)
    with pytest.raises(ValueError, match=f"a.csv: column '{name}' holds integers.*--columns"):
        Empirical.read(path)
    assert Empirical.read(path, columns=["seconds"]).samples.size == 12


@pytest.mark.parametrize("missing", ["#N/A", "#DIV/0!", "NaN", "", "<NA>", "#REF!"])
def test_read_times_loses_no_row(missing, tmp_path):
    path = table(
        tmp_path / "a.csv", "# a comment", "#another", "a,b", ROWS[0], f"{missing},0.3", "# 1"
    )
    with pytest.raises(ValueError, match="line 5, column 1"):
        Empirical.read(path)


def test_read_times_of_chosen_columns(tmp_path):
    path = table(tmp_path / "a.csv", "node,a,b", *numbered("")[1:])
    for columns in (["a", "b"], [2, 3], ["2", "b"]):
        assert Empirical.read(path, columns=columns) == Empirical(TIMES)
    assert Empirical.read(path, columns=[1, 2, 3]).samples.shape == (3, 3)
    with pytest.raises(ValueError, match="no column 'c': columns are called node, a, b"):
        Empirical.read(path, columns=["c"])
    with pytest.raises(ValueError, match="line 3, column 2: the time is negative"):
        Empirical.read(table(tmp_path / "b.csv", "i,a", "0,1.5", "1,-2.5"), columns=["a"])
    np.save(tmp_path / "a.npy", TIMES)
    assert Empirical.read(tmp_path / "a.npy", columns=[1]) == Empirical(TIMES[:, 0])
    with pytest.raises(ValueError, match="no column 3: columns are numbered 1 to 2"):
        Empirical.read(tmp_path / "a.npy", columns=[3])


@pytest.mark.parametrize("index", [[3, 5, 9], [0.5, 1.5, 2.25]])
def test_read_times_leaves_out_the_index_of_pandas(index, tmp_path):
    """Which stands last in a parquet file, and is named by its metadata."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(TIMES, columns=["a", "b"], index=pandas.Index(index, name="when"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert Empirical.read(tmp_path / "a.parquet") == Empirical(TIMES)
    frame.rename_axis(None).to_parquet(tmp_path / "b.parquet")
    assert Empirical.read(tmp_path / "b.parquet") == Empirical(TIMES)


def test_recording_refuses_a_cost_above_its_times(tmp_path):
    path = table(tmp_path / "a.csv", "a,b", *ROWS)
    assert Recording.read(path, 0.1).cost == 0.1
    with pytest.raises(ValueError, match="a cost of 1 s is more than half of the times take"):
        Recording.read(path, 1.0)
    with pytest.raises(ValueError, match="is their unit ms"):
        Recording.read(path, 0.1, "ms")
