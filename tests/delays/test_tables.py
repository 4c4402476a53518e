"""Tables of recorded times as programs write them: read right, or refused with what to do."""

import base64
import json
import zlib

import numpy as np
import pytest

from fastgc.delays import Empirical

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
    with pytest.raises(ValueError, match=f"a.csv: column '{name}' holds few integers.*--columns"):
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
    with pytest.raises(ValueError, match=r"columns must be a list .*not 'a'"):
        Empirical.read(path, columns="a")
    for columns in (["a", "a"], ["a", 2]):
        with pytest.raises(ValueError, match="column 'a' is chosen twice"):
            Empirical.read(path, columns=columns)
    twins = table(tmp_path / "c.csv", "a,a", "0.5,1.5", "0.25,0.75")
    with pytest.raises(ValueError, match="several of its columns are called 'a'"):
        Empirical.read(twins, columns=["a"])
    assert Empirical.read(twins, columns=[2]).samples.tolist() == [1.5, 0.75]


# Files as programs write them: here pandas 3.1, polars 2.1 and pyarrow 26 did, and others do by
# their documentation. For each: its name, its content, and the times, or what its refusal says.
CSV = "0.5,0.625\n0.75,1.25\n0.625,0.5\n"
SEMI = "0,5;0,625\n0,75;1,25\n0,625;0,5\n"
READ = np.array([[0.5, 0.625], [0.75, 1.25], [0.625, 0.5]])
FIRST = READ[:, 0]
CLOCK = [1767225600.25, 1767225601.5, 1767225603.75]
NUMBERED = "".join(f"{i},{row}\n" for i, row in enumerate(CSV.split()))
QUOTED = CSV.replace(",", '","').replace("\n", '"\n"')[:-1]
CHOOSE = ".*--columns"
MISSING = "line 3, column 1: the time is missing"

WRITTEN = {
    "pandas index": ("a.csv", ",w0,w1\n" + NUMBERED, READ),
    "pandas no names": ("a.csv", ",0,1\n" + NUMBERED, READ),
    "pandas no index": ("a.csv", "w0,w1\n" + CSV, READ),
    "pandas neither": ("a.csv", "0,1\n" + CSV, READ),
    "pandas header=False": ("a.csv", NUMBERED, READ),
    "pandas decimal": (
        "a.csv",
        ";w0;w1\n0;0,5;0,625\n1;0,75;1,25\n2;0,625;0,5\n",
        READ,
    ),
    "pandas index_label": ("a.csv", "round,w0,w1\n" + NUMBERED, READ),
    "pandas dates": (
        "a.csv",
        ",w0,w1\n2026-01-01 00:00:00,0.5,0.625\n2026-01-01 00:00:01,0.75,1.25\n",
        f"line 2, column 1: '2026-01-01 00:00:00' is no number{CHOOSE}",
    ),
    "pandas NaN": ("a.csv", "w0,w1\n0.5,0.625\n,1.25\n", MISSING),
    "pandas na_rep": ("a.csv", "w0,w1\n0.5,0.625\nNULL,1.25\n", MISSING),
    "pandas quoted": (
        "a.csv",
        '"","w0","w1"\n"0","0.5","0.625"\n"1","0.75","1.25"\n"2","0.625","0.5"\n',
        READ,
    ),
    "pandas exponents": ("a.csv", "w0,w1\n5.000e-01,6.250e-01\n7.5e-01,1.25e+00\n", READ[:2]),
    "pandas two lines of names": (
        "a.csv",
        ",s,s\n,w0,w1\n" + NUMBERED,
        "line 2, column 2: 'w0'",
    ),
    "pandas two indices": (
        "a.csv",
        "epoch,step,w0,w1\n0,0,0.5,0.625\n0,1,0.75,1.25\n1,0,0.625,0.5\n",
        READ,
    ),
    "pandas Series": ("a.csv", ",w0\n0,0.5\n1,0.75\n2,0.625\n", FIRST),
    "pandas Series without names": ("a.csv", "0\n0.5\n0.75\n0.625\n", FIRST),
    "pandas to_string": (
        "a.txt",
        "      w0     w1\n0  0.500  0.625\n1  0.750  1.250\n2  0.625  0.500",
        READ,
    ),
    "pandas to_string no names": (
        "a.txt",
        "       0      1\n0  0.500  0.625\n1  0.750  1.250\n2  0.625  0.500",
        READ,
    ),
    "pandas tabs": ("a.tsv", "\tw0\tw1\n0\t0.5\t0.625\n1\t0.75\t1.25\n", READ[:2]),
    "pandas describe": (
        "a.csv",
        ",w0,w1\ncount,3.0,3.0\nmean,0.625,0.79\nstd,0.125,0.40\nmin,0.5,0.5\n",
        f"'count' is no number{CHOOSE}",
    ),
    "pandas melt": ("a.csv", ",node,seconds\n0,w0,0.5\n1,w0,0.75\n", f"'w0' is no number{CHOOSE}"),
    "pandas melt, numbers": (
        "a.csv",
        "index,node,seconds\n0,0,0.5\n1,0,0.75\n0,1,0.625\n1,1,1.25\n",
        f"column 'node' holds few integers{CHOOSE}",
    ),
    "pandas melt, integers": (
        "a.csv",
        "index,node,seconds\n0,0,500\n1,0,750\n0,1,625\n1,1,1250\n",
        f"column 'node' holds few integers, as numbers of workers{CHOOSE}",
    ),
    "pandas milliseconds": (
        "a.csv",
        "w0_ms,w1_ms\n500,625\n750,1250\n625,500\n",
        "column 'w0_ms' seems to be in ms: say the unit, .*--unit",
    ),
    "pandas integers, no names": (
        "a.csv",
        "0,500,625\n1,750,1250\n2,625,500\n",
        f"column 1 goes up evenly, as numbers of rounds do{CHOOSE}",
    ),
    "pandas integers, header of integers": (
        "a.csv",
        "0,1,2\n500,625,750\n750,1250,800\n",
        "its first line may number the columns, or be a round",
    ),
    "pandas JSON values": ("a.json", "[[0.5,0.625],[0.75,1.25],[0.625,0.5]]", READ),
    "pandas JSON null": (
        "a.json",
        "[[0.5,0.625],[null,1.25]]",
        "row 2, column 1: .* missing",
    ),
    "strings in JSON": ("a.json", '[["0.5", 0.25]]', 'must be real numbers, not "0.5"'),
    "flags in JSON": ("a.json", "[[0.5, true], [0.5, 0.5]]", "must be real numbers, not true"),
    "places": ("a.csv", "id,w0\n1_1,0.5\n1_2,0.25\n", "column 1: '1_1' is no number"),
    "pandas JSON columns": ("a.json", '{"w0":{"0":0.5,"1":0.75}}', "it must be a list"),
    "pandas JSON split": ("a.json", '{"columns":["w0"],"index":[0],"data":[[0.5]]}', "a list"),
    "pandas JSON lines": ("a.json", '{"w0":0.5,"w1":0.625}\n{"w0":0.75,"w1":1.25}\n', "Extra data"),
    "polars": ("a.csv", "column_0,column_1\n" + CSV, READ),
    "polars index": ("a.csv", "index,w0,w1\n" + NUMBERED, READ),
    "polars old index": ("a.csv", "row_nr,w0,w1\n" + NUMBERED, READ),
    "polars decimal_comma": ("a.csv", "w0;w1\n" + SEMI, READ),
    "polars mark": ("a.csv", "\ufeffw0,w1\n" + CSV, READ),
    "polars null": ("a.csv", "w0,w1\n0.5,0.625\n,1.25\n", MISSING),
    "polars NaN": (
        "a.csv",
        "w0,w1\n0.5,0.625\nNaN,1.25\n",
        MISSING,
    ),
    "polars no names": ("a.csv", CSV, READ),
    "polars JSON": ("a.json", '[{"w0":0.5,"w1":0.625},{"w0":0.75,"w1":1.25}]', "it must be a list"),
    "pyarrow": ("a.csv", '"w0","w1"\n' + CSV, READ),
    "Excel": ("a.csv", ("w0,w1\n" + CSV).replace("\n", "\r\n"), READ),
    "Excel UTF-8": ("a.csv", ("\ufeffw0,w1\n" + CSV).replace("\n", "\r\n"), READ),
    "Excel semicolons": ("a.csv", ("\ufeffw0;w1\n" + SEMI).replace("\n", "\r\n"), READ),
    "Excel semicolons, no names": ("a.csv", SEMI.replace("\n", "\r\n"), READ),
    "Excel commas in one column": ("a.csv", "w\r\n0,5\r\n0,75\r\n0,625\r\n", FIRST),
    "Excel commas, no name": ("a.csv", "0,5\r\n0,75\r\n0,625\r\n", "column 1 is 0 in every row"),
    "Excel commas, no name, above 1": ("a.csv", "1,5\r\n2,05\r\n", "column 2: '05' is no number"),
    "Excel tabs": ("a.txt", ("worker 0\tworker 1\n" + CSV).replace(",", "\t"), READ),
    "Excel tabs and commas": ("a.txt", SEMI.replace(";", "\t"), READ),
    "Excel old Macintosh": ("a.csv", ("w0,w1\n" + CSV).replace("\n", "\r"), READ),
    "Excel Unicode text": ("a.txt", ("w0\tw1\n" + CSV).encode("utf-16"), "is no text of times"),
    "Excel three digits": (
        "a.csv",
        "w0;w1\r\n1,234;2,345\r\n3,456;1,125\r\n",
        "line 2, column 1: the comma of '1,234' may stand before decimals or thousands",
    ),
    "Excel points and commas": ("a.csv", "w0;w1\r\n1.234;0,5\r\n", "column 2: the comma of '0,5'"),
    "Excel thousands": ("a.csv", 'w0,w1\r\n"1,234.5",2\r\n', "column 1: '1,234.5' is no number"),
    "Excel #N/A": ("a.csv", "w0,w1\r\n0.5,0.625\r\n#N/A,1\r\n", MISSING),
    "Excel #DIV/0!": (
        "a.csv",
        "w0,w1\r\n#DIV/0!,1\r\n",
        "column 1: '#DIV/0!' is no number",
    ),
    "Excel empty rows": ("a.csv", "w0,w1\r\n0.5,0.625\r\n,\r\n", MISSING),
    "Excel empty column": ("a.csv", "w0,w1,\r\n0.5,0.625,\r\n0.75,1.25,\r\n", READ[:2]),
    "Excel title": ("a.csv", "Times,\r\n,\r\nw0,w1\r\n0.5,0.625\r\n", "line 3, column 1: 'w0' is"),
    "Excel units": (
        "a.csv",
        "w0,w1\r\nms,ms\r\n0.5,0.625\r\n",
        "line 2, column 1: 'ms' is no",
    ),
    "Excel sep": ("a.csv", "sep=;\r\nw0;w1\r\n" + SEMI, "line 2, column 1: 'w0' is no number"),
    "R write.csv": (
        "a.csv",
        '"","w0","w1"\n"1",0.5,0.625\n"2",0.75,1.25\n"3",0.625,0.5\n',
        READ,
    ),
    "R write.csv2": (
        "a.csv",
        '"";"w0";"w1"\n"1";0,5;0,625\n"2";0,75;1,25\n"3";0,625;0,5\n',
        READ,
    ),
    "R write.table": ("a.txt", '"w0" "w1"\n"1" 0.5 0.625\n"2" 0.75 1.25\n"3" 0.625 0.5\n', READ),
    "R write.table dec": ("a.txt", '"w 0" "w1"\n"1" 0,5 0,625\n"2" 0,75 1,25\n', READ[:2]),
    "R write.table tabs": ("a.tsv", "w0\tw1\n1\t0.5\t0.625\n2\t0.75\t1.25\n", READ[:2]),
    "R matrix": ("a.csv", '"","V1","V2"\n"1",0.5,0.625\n"2",0.75,1.25\n', READ[:2]),
    "R NA": ("a.csv", '"w0","w1"\n0.5,0.625\nNA,1.25\n', MISSING),
    "R names of rows": ("a.csv", '"","w0"\n"a",0.5\n"b",0.75\n', f"'a' is no number{CHOOSE}"),
    "R tidy": (
        "a.csv",
        '"","round","worker","s"\n"1",0,0,0.5\n',
        "a column 'worker'",
    ),
    "MATLAB writematrix": ("a.csv", CSV, READ),
    "MATLAB writetable": ("a.csv", "Var1,Var2\n" + CSV, READ),
    "MATLAB names of rows": ("a.csv", "Row,w0,w1\nr1,0.5,0.625\nr2,0.75,1.25\n", READ[:2]),
    "MATLAB timetable": ("a.csv", "Time,w0\n0 sec,0.5\n1 sec,0.75\n", f"'0 sec' is no{CHOOSE}"),
    "MATLAB save -ascii": (
        "a.txt",
        "   5.0000000e-01   6.2500000e-01\n   7.5000000e-01   1.2500000e+00\n",
        READ[:2],
    ),
    "MATLAB save -ascii -tabs": ("a.txt", "5.0e-01\t6.25e-01\n7.5e-01\t1.25e+00\n", READ[:2]),
    "MATLAB NaN": ("a.csv", "0.5,0.625\nNaN,1.25\n", "line 2, column 1: the time is missing"),
    "MATLAB Inf": ("a.csv", "0.5,0.625\nInf,1.25\n", "line 2, column 1: the time is infinite"),
    "wandb chart": (
        "a.csv",
        '"Step","run-1 - s","run-1 - s__MIN","run-1 - s__MAX"\n"0","0.5","0.5","0.5"\n'
        '"1","0.75","0.75","0.75"\n"2","0.625","0.625","0.625"\n',
        FIRST,
    ),
    "wandb history": (
        "a.csv",
        ",_step,_runtime,_timestamp,w0,w1\n"
        + "".join(f"{i},{i},{i + 0.5},{CLOCK[i]},{row}\n" for i, row in enumerate(CSV.split())),
        READ,
    ),
    "wandb relative time": (
        "a.csv",
        '"Relative Time (Process)","a - s"\n'
        + "".join(f'"{1.5 * i + 0.25}","{0.5 + i % 3}"\n' for i in range(9)),
        [0.5 + i % 3 for i in range(9)],
    ),
    "TensorBoard CSV": (
        "a.csv",
        "Wall time,Step,Value\n"
        + "".join(f"{c},{i},{v}\n" for i, (c, v) in enumerate(zip(CLOCK, FIRST, strict=True))),
        FIRST,
    ),
    "TensorBoard JSON": (
        "a.json",
        str([[c, i, v] for i, (c, v) in enumerate(zip(CLOCK, FIRST.tolist(), strict=True))]),
        f"column 1 only goes up, as a clock does{CHOOSE}",
    ),
    "NumPy savetxt": (
        "a.txt",
        "# w0 w1\n5.000000000000e-01 6.25e-01\n7.5e-01 1.25\n",
        READ[:2],
    ),
    "NumPy savetxt commas": ("a.csv", "# w0,w1\n" + CSV, READ),
    "gnuplot": ("a.txt", "#w0 w1\n" + CSV.replace(",", " "), READ),
}


# As polars 2.1 writes parquet: 846 bytes, of DataFrame([[0.5, 0.625], ...], ["w0", "w1"]).
OF_POLARS = (
    b"c-jka3^EjD5Va9?&=F+=GT21fWXu>eI2gd-g}nrn^}rrTXl&L0t01?Rfgytl$YWy!iN1JZ&&;5$=^)Kyz$D5gsmj"
    b"16DZx~3Aj%`gCf3I&Hi=P<!v>duxGnxdz~U$N3|}5#v)B;H;$Mt5xJ;B3WRgVi;mjBIq70H^IHkY9q-Df7L?<x<S"
    b"s>;wMkrg9Nz%rHr6@nYM3jX=luMNf6c8|mA%hs3q>QAF+AKyHQo~8?6^p2t*gIxXI|j8LW*L%wE7rg&Dj~Lp1*l("
    b"a4wD$08i&{tCJ~V1C3qZzg8aj+ijy-^a}y=*FzSPVX|W>^xPl0aG9bSq5XuJ&c{@55J352uKu7HWpnQ2bNZixWF&"
    b"(PT6GVdroj`<d2vCtlGTcyzIwyz<kh~8_-We|CkzC>E=u!-FiZ4hEA`=NF1AW1Ux~2n-0?~mG%UqyFX@lHb?&;{1"
    b"?&uD3AJjacO}4fS5`F>sIf+HZ3K|8KB^mj7nhIs9Ma7x<c?w2)hI$4H8cC&@IVlR}X_f{?Nh!u@X(>kLX=xTlDTX"
    b"FS<`#(tmWf7|rfF$LY37NkDV9c>k~%UB3_!&2i;;mL0GN{iOv9vV"
)


def test_read_times_of_parquet_as_polars_writes_it(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(zlib.decompress(base64.b85decode(OF_POLARS)))
    np.testing.assert_array_equal(Empirical.read(tmp_path / "a.parquet").samples, READ)


@pytest.mark.parametrize(
    ("columns", "indices", "expected"),
    [
        ({}, [{"kind": "range", "name": None, "start": 0, "stop": 3, "step": 1}], READ),
        ({"when": [0.5, 1.5, 2.25]}, ["when"], READ),
        ({"__index_level_0__": [3, 5, 9]}, ["__index_level_0__"], READ),
        ({"__index_level_0__": ["x", "y", "z"]}, ["__index_level_0__"], READ),
        ({"host": ["x", "y", "z"]}, [], f"column 'host': its entries are .*, but string{CHOOSE}"),
        ({"t": [[1.5], [2.0], []]}, [], f"but list<.*{CHOOSE}"),
        ({"t": [{"a": 1.5}] * 3}, [], f"but struct<.*{CHOOSE}"),
        ({"t": [True, False, True]}, [], f"but bool{CHOOSE}"),
        ({"t": [1.5, None, 2.0]}, [], "row 2, column 't': the time is missing"),
        ({"w0.x": [{"a": 1.5}] * 3, "w0": [0.5] * 3}, [], "two of its columns go by the same name"),
    ],
)
def test_read_times_of_parquet_as_pandas_writes_it(columns, indices, expected, tmp_path):
    """It writes with pyarrow, and names its indices, which stand last, in the metadata."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"w0": READ[:, 0], "w1": READ[:, 1]} | columns)
    table = table.replace_schema_metadata({"pandas": json.dumps({"index_columns": indices})})
    parquet.write_table(table, path)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            Empirical.read(path)
        if expected.endswith(CHOOSE):
            assert Empirical.read(path, columns=["w0", "w1"]) == Empirical(READ)
    else:
        np.testing.assert_array_equal(Empirical.read(path).samples, expected)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int32", "uint64"])
def test_read_times_of_parquet_of_every_kind(compression, version, kind, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    times = np.random.default_rng(0).integers(1, 99, (300, 2)) * (1.0 if "int" in kind else 0.25)
    columns = [pyarrow.array(column.astype(kind)) for column in times.T]
    how = {"compression": compression, "data_page_version": version, "row_group_size": 70}
    parquet.write_table(pyarrow.table(columns, ["a", "b"]), tmp_path / "a.parquet", **how)
    np.testing.assert_array_equal(Empirical.read(tmp_path / "a.parquet").samples, times)


@pytest.mark.parametrize(("name", "content", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_read_times_as_programs_write_them(name, content, expected, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected) as caught:
            Empirical.read(path)
        assert str(path) in str(caught.value)
    else:
        np.testing.assert_array_equal(Empirical.read(path).samples, expected)


@pytest.mark.parametrize(
    "times",
    [
        [[9, 0.5], [8, 0.25], [7, 1.5]],  # integers that go down
        [[5.5, 1.5 + i % 3] for i in range(9)],  # a time that stays
        [[1.5**i, 1.75**i] for i in range(9)],  # all go up
        [[1, 2], [2, 1], [1, 1], [2, 2]],  # all are few
        [[1, 10], [2, 20], [3, 30]],  # all go up evenly
        np.zeros((4, 2)),
    ],
)
def test_read_times_does_not_doubt_all_columns_alike(times, tmp_path):
    np.savetxt(tmp_path / "a.csv", times, delimiter=",", fmt="%.17g", header="a,b", comments="")
    np.testing.assert_array_equal(Empirical.read(tmp_path / "a.csv").samples, times)


def test_read_times_takes_a_clock_for_times_where_there_are_no_others(tmp_path):
    path = table(tmp_path / "a.csv", "round,wall_time", "0,0.5", "1,0.25")
    assert Empirical.read(path) == Empirical([0.5, 0.25])


def test_read_times_of_named_and_given_units(tmp_path):
    path = table(tmp_path / "a.csv", "a (ms),b", *ROWS)
    assert Empirical.read(path, "s") == Empirical(TIMES)
    assert Empirical.read(path, "ms") == Empirical(TIMES / 1e3)
    assert Empirical.read(path, columns=["b"]) == Empirical(TIMES[:, 1])


def test_read_times_of_numbered_columns(tmp_path):
    lines = ["0.5,0.6,0.7", "0.8,0.9,1.0"]
    path = table(tmp_path / "a.csv", "1,2,3", *lines)
    assert Empirical.read(path).samples.shape == (2, 3)
    assert Empirical.read(table(tmp_path / "a.csv", "1,2", *ROWS)).samples.shape == (4, 2)
    with pytest.raises(ValueError, match="its first line may number the columns"):
        Empirical.read(table(tmp_path / "a.csv", "0,1", "20,30", "25,35"))
