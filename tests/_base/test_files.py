"""Files from elsewhere, whatever they hold: either their content, or an error that names them."""

import contextlib
import gzip
import importlib.util
import io
import os
import socket
import struct
import zipfile

import bombs
import numpy as np
import pytest
from strength import much

from fastgc import checkpoint, data, history
from fastgc._base import files
from fastgc.delays import Empirical
from fastgc.errors import CheckpointError


def test_files_are_read_or_refused_within_a_budget(tmp_path):
    """A part of what ``python tests/bombs.py`` reads, which says what it holds them to."""
    numbers = range(much(2000, 120))
    found = list(bombs.read_all(numbers, tmp_path, map(bombs.bomb, numbers)))
    assert [each for each in found if each[4]] == []
    assert sum(each[3] for each in found) > len(found) / 2


def test_a_table_of_many_columns_that_are_no_numbers(tmp_path):
    first = bombs.memory("VmRSS")
    content = b"1," + b"x," * 32_700
    assert bombs.read(tmp_path, "a.csv", content, Empirical.read, first)[:2] == (True, [])


# ------------------------------------------------------------------------------ what a file is


@contextlib.contextmanager
def no_file(path, kind):
    """Put something of this kind in the place of a file."""
    with contextlib.ExitStack() as stack:
        if kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a folder":
            path.mkdir()
        elif kind == "a device":
            path.symlink_to("/dev/zero")
        else:
            # A socket's path has at most about a hundred letters, so use a relative one.
            folder = os.open(path.parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        yield


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a device", "a socket"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.csv", Empirical.read),
        ("a.npz", Empirical.read),
        ("a.parquet", Empirical.read),
        ("a.json", Empirical.read),
        ("a.json", history.read_json),
        ("a.npy", bombs.of_matrix),
        ("idx", data.read_idx),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_what_is_no_file_is_not_waited_for(tmp_path, kind, name, read):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    with (
        no_file(tmp_path / name, kind),
        pytest.raises(ValueError, match=f"{name} is {kind}: name a file, a "),
    ):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["checkpoint", "rounds.jsonl"])
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link"])
def test_checkpoints_that_are_no_files(tmp_path, name, kind):
    folder = tmp_path / "run"
    with checkpoint.Checkpoint(folder, {"run": "x"}) as kept:
        kept.add(1)
        kept.save({"theta": np.ones(3)})
    (folder / name).rename(tmp_path / "else")
    if kind == "a link":
        (folder / name).symlink_to(tmp_path / "else")
        stand_in = contextlib.nullcontext()
    else:
        stand_in = no_file(folder / name, kind)
    before = (tmp_path / "else").read_bytes()
    # Files to write are opened first, so the system itself refuses links and folders.
    refused = CheckpointError if name == "checkpoint" or kind == "a pipe" else OSError
    with stand_in, pytest.raises(refused, match=name):
        checkpoint.Checkpoint(folder, {"run": "x"})
    assert (tmp_path / "else").read_bytes() == before


def test_what_replaces_a_file_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    before = os.stat(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)
    with pytest.raises(ValueError, match="pipe is a pipe"):
        files.read_bytes(tmp_path / "pipe", "times")


@pytest.mark.parametrize(
    "array", [bombs.TIMES, np.asfortranarray(bombs.TIMES), bombs.TIMES[0], np.empty((0, 3))]
)
def test_read_npy_of_any_shape(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(files.read_npy(tmp_path / "a.npy"), array)


def test_links_to_data_are_followed(tmp_path):
    (tmp_path / "there.csv").write_bytes(bombs.in_lines(","))
    (tmp_path / "here.csv").symlink_to("there.csv")
    assert Empirical.read(tmp_path / "here.csv").samples.shape == bombs.TIMES.shape


# ------------------------------------------------------------------------- how large a file may be


def header(text, version=1):
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


HUGE = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n"


def in_zip(content, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        archive.writestr("times.npy", content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.npy", header(HUGE), "its header announces the shape"),
        ("a.npy", header(HUGE, 2), "its header announces the shape"),
        ("a.npy", header(b"(" * 5000), "is no readable .npy file: "),
        ("a.npy", header(b"{'descr': '<f8\n"), "is no readable .npy file: "),
        ("a.npy", header(HUGE.replace(b"10", b"-1")), "shape"),
        ("a.npy", header(HUGE.replace(b"<f8", b"|O")), "it holds objects of Python"),
        ("a.npy", header(HUGE, 3), "a header of version 1 or 2, not 3"),
        ("a.npz", in_zip(header(HUGE)), "its header announces the shape"),
        ("a.npz", in_zip(b"nothing"), "is no readable .npz file: "),
        ("a.json", b"[" * 100_000, "it is nested too deeply|exceeded"),
        ("a.json", b"[1" + b"0" * 5000 + b"]", "is no readable .json file: .*digits"),
        ("a.json", b'{"times": [[1', "is no readable .json file: "),
        ("a.csv", b'1,"2\n3",4\n5,6\n', "a quotation goes on over several lines"),
        ("a.csv", b'1,"' + b"2" * 200_000 + b'"\n', "larger than field limit"),
        ("a.csv", b"\xff\xfe1\x00,\x002\x00", "is no text of times: .*utf-8"),
        ("a.parquet", b"PAR1" + bytes(100) + b"PAR1", "is no readable .parquet file: "),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_a_file_announces_is_checked(tmp_path, name, content, says):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as caught:
        Empirical.read(path)
    assert str(path) in str(caught.value)


def test_large_files_are_refused_before_they_are_read(tmp_path):
    """The files are sparse: nothing of them lies on the disk."""
    for name in ("a.csv", "a.json", "a.npy", "a.npz", "a-images-idx3-ubyte"):
        path = tmp_path / name
        path.touch()
        os.truncate(path, 2**42)
        with pytest.raises(
            ValueError, match=f"{name} has 4,194,304 MiB, more than the .* may have"
        ):
            data.read_idx(path) if "idx" in name else Empirical.read(path)
    with checkpoint.Checkpoint(tmp_path / "run", {"run": "x"}) as kept:
        kept.add(1)
        kept.save({"theta": np.ones(3)})
    os.truncate(tmp_path / "run" / "checkpoint", 2**42)
    with pytest.raises(CheckpointError, match="more than the"):
        checkpoint.read(tmp_path / "run" / "checkpoint")


@pytest.mark.parametrize("many", [10**6, 10**7])
def test_what_unpacks_to_far_more_is_refused(tmp_path, many):
    labels = b"\0\0\x08\x01" + struct.pack(">I", many) + bytes(many)
    parts = [
        ("a.npz", in_zip(bombs.saved(np.save, np.zeros(many))), Empirical.read),
        ("idx", gzip.compress(labels), data.read_idx),
    ]
    with contextlib.suppress(ImportError):
        for compression in ("gzip", "none"):  # runs are short without
            content = bombs.in_parquet({"a": np.zeros(many)}, compression=compression)
            parts.append((f"{compression}.parquet", content, Empirical.read))
    for name, content, read in parts:
        (tmp_path / name).write_bytes(content)
        if many == 10**6:
            assert np.size(getattr(read(tmp_path / name), "samples", range(many))) == many
        else:
            with pytest.raises(ValueError, match=rf"{name} .*it unpacks to more than .*: keep it"):
                read(tmp_path / name)


def test_zip_entries_that_announce_less_are_refused(tmp_path):
    """Packed by bzip2, an entry is unpacked as a whole, whatever its size says."""
    array = bombs.saved(np.save, np.zeros(10**6))
    content = bombs.npz(["times"], array, zipfile.ZIP_BZIP2)
    content = content.replace(struct.pack("<I", len(array)), struct.pack("<I", 200))
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="times is packed otherwise than NumPy packs arrays"):
        Empirical.read(tmp_path / "a.npz")


def integer(value):
    """Return a positive integer as Thrift writes it; x - 1/2 stands for -x."""
    value, digits = int(2 * value), []
    while value:
        digits.append(value & 127 | (value > 127) << 7)
        value >>= 7
    return bytes(digits)


def test_parquet_pages_that_unpack_to_more_than_announced(tmp_path, monkeypatch):
    """PyArrow makes as much room as a page's header says, up to 2 GB: here 1 MB for 160 KB."""
    monkeypatch.setattr(files, "SMALL", 2**19)
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    schema = pyarrow.schema([pyarrow.field("a", pyarrow.float64(), nullable=False)])
    table = pyarrow.table([np.zeros(20_000)], schema)
    parquet.write_table(table, path, use_dictionary=False, compression="zstd")
    assert Empirical.read(path).samples.size == 20_000
    content = path.read_bytes()
    size, larger, negative = integer(160_000), integer(1_000_000), integer(159_999.5)
    at = content.index(size)
    for other, says in ((larger, "more than 524,288 bytes"), (negative, "has a negative size")):
        assert len(size) == len(other)
        path.write_bytes(content[:at] + other + content[at + len(size) :])
        with pytest.raises(ValueError, match=says):
            Empirical.read(path)


def test_parquet_pages_of_dictionaries_are_counted(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    path.write_bytes(bombs.in_parquet({"a": np.arange(1000.0)}))
    budget = files.Budget(0)
    with open(path, "rb") as file:
        files._check_pages(file, path.stat().st_size, {"a"}, budget)
    # A dictionary of 8,000 bytes, as many for its numbers, 10 bits for each row; and two pages.
    assert 17_250 + 2 * files._EMPTY < budget.most - budget._left < 19_000


def test_lists_of_parquet_metadata_are_no_longer_than_the_file(tmp_path):
    """One announces 900,000 columns, for which PyArrow would make room."""
    pytest.importorskip("pyarrow")
    head = b"\x15\x02\x19\xfc" + bytes([0xA0, 0xF7, 0x36])
    content = b"PAR1" + head + struct.pack("<I", len(head)) + b"PAR1"
    (tmp_path / "a.parquet").write_bytes(content)
    bombs.forget()
    first = bombs.memory("VmRSS")
    with pytest.raises(ValueError, match=r"a\.parquet is no readable"):
        Empirical.read(tmp_path / "a.parquet")
    assert bombs.memory("VmHWM") - first < 2**25


def test_entries_of_a_byte_count_as_numbers(tmp_path):
    (tmp_path / "a.npz").write_bytes(in_zip(bombs.saved(np.save, np.ones(3 * 10**6, np.uint8))))
    with pytest.raises(ValueError, match="it unpacks to more than 16 MiB"):
        Empirical.read(tmp_path / "a.npz")


def test_read_npy_of_what_takes_no_bytes(tmp_path):
    """It may have any shape: what a number is made of for each entry takes all memory."""
    (tmp_path / "a.npy").write_bytes(bombs.npy("<U0", (10**12,)))
    with pytest.raises(ValueError, match="objects of Python, or nothing"):
        files.read_npy(tmp_path / "a.npy")


def test_parquet_metadata_that_contradict_themselves(tmp_path):
    """A column that has no missing numbers, and statistics of them: PyArrow may end the process."""
    pytest.importorskip("pyarrow")
    content = bombs.in_parquet({"a": np.zeros(9)})
    optional, required = b"\x15\x0a\x25\x02\x18\x01a", b"\x15\x0a\x25\x00\x18\x01a"
    assert content.count(optional) == 1
    (tmp_path / "a.parquet").write_bytes(content.replace(optional, required))
    with pytest.raises(ValueError, match=r"a.parquet is no readable .parquet file: "):
        Empirical.read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "held", [b"\x19\xf7" + b"\xff" * 8 + b"\x7f", b"\x18\xff\x7f", b"\x15\x02\x05\x02\x02\x00"]
)
def test_thrift_that_is_cut_off_or_has_a_field_twice(held):
    """The first is a list of 2^63 doubles."""
    with pytest.raises(ValueError, match=r"cut off|field twice"):
        files._Thrift(held).structure()


# ------------------------------------------------------------------------------- what is raised


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (RecursionError(), "it is nested too deeply"),
        (MemoryError(), "it takes more memory than there is"),
        (KeyError("a"), "KeyError 'a'"),
        (OSError("no thrift"), "no thrift"),
        (OSError(22, "Invalid argument"), "Invalid argument"),
        (EOFError(), "EOFError"),
        (ValueError("a\n b"), "a b"),
        (ValueError("x" * 10_000), "x{300}…$"),
    ],
    ids=repr,
)
def test_what_is_raised_is_said(raised, says):
    with (
        pytest.raises(CheckpointError, match=f"^a is no b: {says}") as caught,
        files.refusing("a", "b", CheckpointError),
    ):
        raise raised
    assert caught.value.__cause__ is raised
    assert len(str(caught.value)) < 400


def test_errors_of_the_disk_name_the_file():
    with pytest.raises(OSError, match="Input/output error: 'a'"), files.refusing("a", "b"):
        raise OSError(5, "Input/output error")
    with pytest.raises(KeyboardInterrupt), files.refusing("a", "b"):
        raise KeyboardInterrupt


def test_files_that_are_not_there(tmp_path):
    kinds = ["csv", "npy", "npz", "json"]
    kinds += ["parquet"] * (importlib.util.find_spec("pyarrow") is not None)
    for kind in kinds:
        with pytest.raises(FileNotFoundError, match=f"absent.{kind}"):
            Empirical.read(tmp_path / f"absent.{kind}")


@pytest.mark.parametrize("read", [Empirical.read, data.load, data.read_idx, checkpoint.read])
@pytest.mark.parametrize("path", [0, np.int64(0), np.arange(2), None], ids=repr)
def test_what_is_no_path_is_refused(path, read):
    """Numbers are not taken for file descriptors."""
    with pytest.raises(TypeError, match=r"os\.PathLike"):
        read(path)
