"""Files from elsewhere, whatever they hold: either their content, or an error that names them."""

import contextlib
import gzip
import importlib.util
import io
import json
import os
import random
import socket
import struct
import zipfile

import numpy as np
import pytest
from strength import much

from fastgc import checkpoint, data, history
from fastgc._base import files
from fastgc.codes import catalogue
from fastgc.delays import Empirical
from fastgc.errors import CheckpointError
from fastgc.planning import Recording

TIMES = np.random.default_rng(0).random((6, 4))


def saved(save, *arrays, **named):
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def in_parquet():
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({f"w{i}": t for i, t in enumerate(TIMES.T)}), file)
    return file.getvalue().to_pybytes()


def in_lines(separator):
    return "\n".join(separator.join(f"{time:.4g}" for time in row) for row in TIMES).encode()


def of_fit(path):
    """Read a file as `fastgc fit` does."""
    from fastgc.cli.plan import _recorded

    return _recorded(path, "s")


def of_matrix(path):
    return catalogue.make(f"linear:B={path}", 6, 1)


IDX = b"\0\0\x08\x03" + struct.pack(">3I", 6, 2, 2) + bytes(24)
RECORDING = {"times": TIMES.tolist(), "cost": 0.01, "source": "a test"}
ROUND = history.Record(1, 0.1, 0.1, 0.0, (0, 2), 2, 0, 1.5, 0.25)
RUN = history.History(name="a", code="c", data="b", delays="none", seed=0, rounds=[ROUND])

# For each file: its name, its content, and the functions that read it.
READ = [
    ("a.csv", lambda: in_lines(","), (Empirical.read, of_fit)),
    ("a.csv", lambda: b'round,"a","b"\n0,"1.5","2"\n1,"2","3"\n', (Empirical.read, of_fit)),
    ("a.tsv", lambda: in_lines("\t"), (Empirical.read,)),
    ("a.txt", lambda: in_lines(" "), (Empirical.read,)),
    ("a.json", lambda: json.dumps(TIMES.tolist()).encode(), (Empirical.read, of_fit)),
    ("a.json", lambda: json.dumps(RECORDING).encode(), (Recording.read, of_fit)),
    (
        "a.json",
        lambda: json.dumps([history.json_ready(RUN.to_dict())]).encode(),
        (history.read_json,),
    ),
    ("a.npy", lambda: saved(np.save, TIMES), (Empirical.read, of_fit)),
    ("a.npy", lambda: saved(np.save, np.eye(6)), (of_matrix,)),
    ("a.npz", lambda: saved(np.savez, TIMES), (Empirical.read,)),
    ("a.npz", lambda: saved(np.savez_compressed, TIMES), (Empirical.read, of_fit)),
    ("a.npz", lambda: saved(np.savez_compressed, X=TIMES, y=np.arange(6) % 2), (data.load,)),
    ("a.parquet", in_parquet, (Empirical.read, of_fit)),
    ("a-images-idx3-ubyte", lambda: IDX, (data.read_idx,)),
    ("a-images-idx3-ubyte", lambda: gzip.compress(IDX), (data.read_idx,)),
]


def mutated(content, chance):
    """Return the content with bytes changed, cut off, inserted, removed or doubled."""
    content = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5])):
        # Headers are at either end.
        near = chance.choice([len(content), min(len(content), 128)])
        at = chance.choice([chance.randrange(near + 1), len(content) - chance.randrange(near + 1)])
        length = chance.choice([1, 1, 4, 30])
        what = chance.random()
        if what < 0.5:
            content[at : at + 1] = chance.randbytes(1)
        elif what < 0.6:
            content[at : at + 1] = chance.choice([b"(", b"[" * 3000, b"\0", b'"', b"9" * 20, b"'"])
        elif what < 0.7:
            del content[at:]
        elif what < 0.8:
            del content[at : at + length]
        elif what < 0.9:
            content[at:at] = content[at : at + length]
        else:
            content[at : at + length] = chance.choice([b"\0", b"\xff", b"9"]) * length
    return bytes(content)


@pytest.mark.filterwarnings("ignore")
def test_mutated_files_are_refused_in_one_way(tmp_path):
    """Reading a changed file raises a ValueError that names it, or returns its content."""
    contents = [(name, make(), readers) for name, make, readers in READ]
    for name, content, readers in contents:
        (tmp_path / name).write_bytes(content)
        for read in readers:
            read(tmp_path / name)
    chance, refused, many = random.Random(5), [], much(2000, 60)
    for number in range(many):
        name, content, readers = contents[number % len(contents)]
        path = tmp_path / name
        path.write_bytes(mutated(content, chance))
        for read in readers:
            try:
                read(path)
            except ValueError as error:
                refused.append((read, str(error)))
    assert len(refused) > many / 3
    for read, says in refused:
        assert str(tmp_path) in says or read is of_matrix, (read, says)


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
        ("a.npz", of_fit),
        ("a.parquet", Empirical.read),
        ("a.json", Recording.read),
        ("a.json", history.read_json),
        ("a.npy", of_matrix),
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


@pytest.mark.parametrize("array", [TIMES, np.asfortranarray(TIMES), TIMES[0], np.empty((0, 3))])
def test_read_npy_of_any_shape(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(files.read_npy(tmp_path / "a.npy"), array)


def test_links_to_data_are_followed(tmp_path):
    (tmp_path / "there.csv").write_bytes(in_lines(","))
    (tmp_path / "here.csv").symlink_to("there.csv")
    assert Empirical.read(tmp_path / "here.csv").samples.shape == TIMES.shape


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


def test_what_unpacks_to_far_more_is_refused(tmp_path, monkeypatch):
    """A bomb unpacks from a megabyte to a gigabyte; here both bomb and limit are smaller."""
    zeros = saved(np.save, np.zeros(10**6))
    labels = b"\0\0\x08\x01" + struct.pack(">I", 10**7) + bytes(10**7)
    parts = [
        ("a.npz", in_zip(zeros), Empirical.read),
        ("idx", gzip.compress(labels), data.read_idx),
    ]
    for name, content, read in parts:
        (tmp_path / name).write_bytes(content)
        read(tmp_path / name)
    with monkeypatch.context() as limited:
        limited.setattr(files, "SMALL", 2**20)
        for name, _, read in parts:
            with pytest.raises(ValueError, match=rf"{name} .*it unpacks to more than .*: keep it"):
                read(tmp_path / name)
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"a": np.zeros(10**6), "b": np.zeros(10**6)}), path)
    assert Empirical.read(path).samples.shape == (10**6, 2)
    monkeypatch.setattr(files, "half_of_memory", lambda: 2**20)
    with pytest.raises(ValueError, match=r"a\.parquet .*it unpacks to more than"):
        Empirical.read(path)


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
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        Recording.read(tmp_path / "absent.json")


@pytest.mark.parametrize("read", [Empirical.read, data.load, data.read_idx, checkpoint.read])
@pytest.mark.parametrize("path", [0, np.int64(0), np.arange(2), None], ids=repr)
def test_what_is_no_path_is_refused(path, read):
    """Numbers are not taken for file descriptors."""
    with pytest.raises(TypeError, match=r"os\.PathLike"):
        read(path)
