"""Files of at most 64 KB that may take much memory or time to read, of every format that is read.

``python tests/bombs.py --files 10000`` reads changed files and made ones (`made`), each as every
function reads it that may get it. Each must be read, or refused by a ValueError that names it, in
256 MiB beside what the process has at first, and in 2 seconds of the processor. The script prints
each fault with its number; ``--file 123`` reads that file alone. The exit status is 1 if there is a
fault.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import multiprocessing
import random
import re
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np

from fastgc import checkpoint, data, history
from fastgc.codes import catalogue
from fastgc.delays import Empirical

MOST_BYTES, MOST_MEMORY, MOST_SECONDS = 2**16, 2**28, 2.0
TIMES = np.random.default_rng(0).random((6, 4))


def saved(save, *arrays, **named):
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def in_parquet(columns, **how):
    import pyarrow
    from pyarrow import parquet

    file = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), file, **how)
    return file.getvalue().to_pybytes()


def in_lines(separator):
    return "\n".join(separator.join(f"{time:.4g}" for time in row) for row in TIMES).encode()


def in_checkpoint(head, rest=b""):
    """Return the content of a checkpoint with this head; its digest is right."""
    text = json.dumps(head).encode()
    content = checkpoint.MAGIC + struct.pack("<IQ", checkpoint.VERSION, len(text)) + text + rest
    return sealed(content + bytes(32))


def sealed(content):
    """Return a checkpoint with the right digest at its end."""
    hashed = checkpoint._new_hash()
    hashed.update(content[:-32])
    return content[:-32] + hashed.digest()


def of_columns(path):
    """Read all columns of a table, as ``--columns`` does."""
    return Empirical.read(path, columns=[1, 2, 3, 4])


def of_matrix(path):
    return catalogue.make(f"linear:B={path}", 6, 1)


IDX = b"\0\0\x08\x03" + struct.pack(">3I", 6, 2, 2) + bytes(24)
ROUND = history.Record(1, 0.1, 0.1, 0.0, (0, 2), 2, 0, 1.5, 0.25)
RUN = history.History(name="a", code="c", data="b", delays="none", seed=0, rounds=[ROUND])
HEAD = {"round": 1, "values": {"a": 1}, "arrays": [["theta", "<f8", [3]]]}

# For each file: its name, its content, and the functions that read it.
FILES = [
    ("a.csv", in_lines(","), (Empirical.read,)),
    ("a.csv", b'round,"a","b"\n0,"1.5","2"\n1,"2","3"\n', (Empirical.read,)),
    ("a.csv", b'"";"a";"b"\n"1";0,5;1,25\n"2";2,5;3\n', (Empirical.read,)),
    ("a.tsv", in_lines("\t"), (Empirical.read,)),
    ("a.txt", in_lines(" "), (Empirical.read,)),
    ("a.json", json.dumps(TIMES.tolist()).encode(), (Empirical.read,)),
    ("a.json", json.dumps([history.json_ready(RUN.to_dict())]).encode(), (history.read_json,)),
    ("a.npy", saved(np.save, TIMES), (Empirical.read,)),
    ("a.npy", saved(np.save, np.eye(6)), (of_matrix,)),
    ("a.npz", saved(np.savez, TIMES), (Empirical.read,)),
    ("a.npz", saved(np.savez_compressed, TIMES), (Empirical.read,)),
    ("a.npz", saved(np.savez_compressed, X=TIMES, y=np.arange(6) % 2), (data.load,)),
    ("a-images-idx3-ubyte", IDX, (data.read_idx,)),
    ("a-images-idx3-ubyte", gzip.compress(IDX), (data.read_idx,)),
    ("a.checkpoint", in_checkpoint(HEAD, bytes(24)), (checkpoint.read,)),
]
with contextlib.suppress(ImportError):
    columns = {f"w{i}": each for i, each in enumerate(TIMES.T)}
    columns["w3"] = np.array([9, 7, 8, 7, 9, 8])
    packed = {"w0": "BYTE_STREAM_SPLIT", "w3": "DELTA_BINARY_PACKED"}
    for how in (
        {},
        {"compression": "none", "use_dictionary": False},
        {"compression": "none", "use_dictionary": False, "column_encoding": packed},
        {"compression": "zstd", "data_page_version": "2.0"},
    ):
        FILES.append(("a.parquet", in_parquet(columns, **how), (of_columns,)))


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


# -------------------------------------------------------------------------------- made to be large


def npy(descr, shape, rest=b""):
    """Return an ``.npy`` file that announces any type and shape."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + rest


def npz(names, content, pack=None):
    """Return a zip file of entries with one content, packed by a method that may announce less."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", pack or zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _of_arrays(chance):
    nbytes = chance.choice([10**5, 2 * 10**6, 8 * 10**6, 5 * 10**7])
    descr = chance.choice(["<f8", "|u1", "|b1", "<U1", "|S1", "<f2", "<i8", "<c16", "<U100000"])
    count = nbytes // np.dtype(descr).itemsize + 1
    shape = chance.choice([(count,), (count, 1), (1, count), (count // 8 or 1, 8), (2, count // 2)])
    size = int(np.prod(shape)) * np.dtype(descr).itemsize
    pack = chance.choice([None, None, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    names = chance.choice([["times"], ["X", "y"], ["X_train", "y_train", "X_test", "y_test"]])
    made = npz(names, npy(descr, shape, bytes(size)), pack)
    if pack and chance.random() < 0.5:  # announces a few bytes
        made = made.replace(
            struct.pack("<I", size + len(npy(descr, shape))), struct.pack("<I", 900)
        )
    return "a.npz", made, (data.load,) if "times" not in names else (Empirical.read,)


def _of_nothing(chance):
    """Arrays that take no bytes, and have any shape."""
    n = chance.choice([10**6, 10**9, 10**12, 2**62])
    descr, shape = (
        chance.choice(["<U0", "|S0", "<f8", "|V0"]),
        chance.choice([(n,), (0, n), (n, 0)]),
    )
    if chance.random() < 0.5:
        return "a.npy", npy(descr, shape), (Empirical.read, of_matrix)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("X.npy", npy(descr, (n, 0)))
        archive.writestr("y.npy", npy(chance.choice(["<U0", "<f8"]), (n,)))
    return "a.npz", file.getvalue(), (data.load,)


def _of_idx(chance):
    code, axes = chance.choice([8, 9, 11, 12, 13, 14]), chance.choice([0, 1, 2, 3, 60, 65, 255])
    longest = chance.choice([1, 2**16, 2**32 - 1])
    shape = [chance.choice([0, 1, longest]) for _ in range(axes)]
    rest = bytes(chance.choice([0, 1, 10**6, 3 * 10**7]))
    if axes == 1 or chance.random() < 0.5:
        axes, shape = 1, [len(rest)]
    made = bytes([0, 0, code, axes]) + struct.pack(f">{axes}I", *shape) + rest
    many = chance.choice([1, 1, 2000])
    made = gzip.compress(made) + gzip.compress(bytes(10 ** chance.choice([0, 5]))) * (many - 1)
    return "idx", made, (data.read_idx,)


def _of_parquet(chance):
    import pyarrow

    count = chance.choice([1, 10**5, 10**6, 3 * 10**6, 10**7])
    n = chance.choice([1, 1, 3, 200])
    count = count if n == 1 else min(count, 10**6) // n + 1
    values = {
        "nulls": lambda: pyarrow.nulls(count, pyarrow.float64()),
        "zeros": lambda: np.zeros(min(count, 4 * 10**6)),
        "texts": lambda: pyarrow.array(["x" * 10**4]).take(np.zeros(min(count, 2000), int)),
        "names": lambda: pyarrow.array(["x" * 10**4]).dictionary_encode(),
        "lists": lambda: pyarrow.array([[0.5] * 1000] * min(count, 100)),
        "nested": lambda: pyarrow.array([{"a": {"b": 0.5}}] * min(count, 100)),
        "whole": lambda: np.arange(min(count, 10**4)),
    }
    kind = chance.choice(list(values))
    # A page of zeros may unpack to what it takes.
    how = {
        "compression": chance.choice(["none", "snappy", "gzip", "zstd", "brotli"]),
        "use_dictionary": chance.random() < 0.5,
        "data_page_size": chance.choice([100, 2**20, 2**30]),
        "data_page_version": chance.choice(["1.0", "2.0"]),
        "row_group_size": chance.choice([max(1, count // 50), 2**26]),
    }
    column = values[kind]()
    made = in_parquet({f"c{i}": column for i in range(n)}, **how)
    if chance.random() < 0.4:
        made = _lying(made, chance)
    return "a.parquet", made, (Empirical.read,)


def _lying(made, chance):
    """Change integers of a parquet file's metadata: sizes, and numbers of rows and columns."""
    size = struct.unpack("<I", made[-8:-4])[0]
    start = max(0, len(made) - 8 - size)
    content = bytearray(made)
    for _ in range(chance.choice([1, 2, 4])):
        spots = [at.start() for at in re.finditer(rb"[\x80-\xff]+[\x00-\x7f]", content[start:-8])]
        if spots:
            at = start + chance.choice(spots)
            content[at] = chance.choice([0x82, 0x80, 0xFE, 0xFF])
    return bytes(content)


def _of_texts(chance):
    pieces = [b"1", b",", b"0.5", b";", b"\t", b" ", b'"', b"\n", b"\r", b"#", b"-", b"nan", b"e9"]
    pieces += [b"1,5", b"9" * 400, "µ".encode(), b"x", b"\0", b"round", b"0,1\n", b"1,2\n"]
    unit = b"".join(chance.choices(pieces, k=chance.choice([1, 2, 3, 8])))
    head = chance.choice([b"", b"1,", b"a,b\n", b"0,1\n", b"a;b\n", b"a b\n"])
    name = chance.choice(["a.csv", "a.txt", "a.tsv"])
    return name, (head + unit * MOST_BYTES)[:MOST_BYTES], (Empirical.read,)


def _of_json(chance):
    many = "x" * chance.choice([10, 20_000])
    texts = [many, *[""] * 10_000]
    unit = chance.choice(
        ["[", '{"a":', "[[],", "[1,", '"', "1e9", "9", "[0.5],", "null,", '{"":0},']
    )
    wild = (chance.choice(["", "[", '{"times":']) + unit * MOST_BYTES)[:MOST_BYTES].encode()
    round_ = {**history.json_ready(RUN.to_dict()), "message_counts": [0] * 20_000}
    deep = json.loads("[" * 60 + "1" + "]" * 60)
    held = chance.choice(
        [
            texts,
            [texts, texts[::-1]],
            {"times": texts},
            [[10**400] * 9],
            deep,
            [[[]] * 10_000],
            [round_, {**round_, "rounds": [{"round": texts}]}],
            [{**round_, "message_counts": texts}],
            [{"name": 1}] * 3000,
        ]
    )
    made = wild if chance.random() < 0.5 else json.dumps(held).encode()
    return "a.json", made, (Empirical.read, history.read_json)


def _of_checkpoint(chance):
    shape = chance.choice(
        [["a", 10**9], [[0], 10**9], [-1], [10**9], [2**62, 2**62], [0, 2**62], [1] * 99, "ab", 3]
    )
    head = {**HEAD, "arrays": [["theta", chance.choice(["<f8", "|b1", "<f0", "<c32"]), shape]]}
    return "a.checkpoint", in_checkpoint(head, bytes(24)), (checkpoint.read,)


MADE = [_of_arrays, _of_nothing, _of_idx, _of_texts, _of_json, _of_checkpoint]
if any(name == "a.parquet" for name, *_ in FILES):
    MADE += [_of_parquet, _of_parquet]


def bomb(number):
    """Return the name, the content and the readers of a file, which has MOST_BYTES at most."""
    for again in itertools.count():
        chance = random.Random(f"{number} {again}")
        if number % 2:
            name, content, readers = chance.choice(MADE)(chance)
        else:
            name, content, readers = chance.choice(FILES)
            content = mutated(content, chance)
            if name == "a.checkpoint" and len(content) > 32 and chance.random() < 0.8:
                content = sealed(content)
        if len(content) <= MOST_BYTES:
            return name, content, readers


# --------------------------------------------------------------------------------------- reading


def memory(which):
    """Return this process's memory, VmRSS or the largest since `forget`, VmHWM, in bytes."""
    found = re.search(rf"{which}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1])


def forget():
    Path("/proc/self/clear_refs").write_text("5")


def read(folder, name, content, reader, first):
    """Read a file; return whether it was refused, and what was wrong with that."""
    path = folder / name
    path.write_bytes(content)
    forget()
    begun, refused, wrong = time.process_time(), False, []
    try:
        reader(path)
    except ValueError as error:
        refused = True
        if str(path) not in str(error) and reader is not of_matrix:
            wrong.append(f"names no file: {str(error)[:200]}")
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {str(error)[:200]}")
    seconds, taken = time.process_time() - begun, memory("VmHWM") - first
    if seconds > MOST_SECONDS:
        wrong.append(f"{seconds:.1f} s")
    if taken > MOST_MEMORY:
        wrong.append(f"{taken / 2**20:.0f} MiB")
    return refused, wrong, seconds, taken


def read_all(numbers, folder, made):
    """Read files `made`; yield the number, name and reader of each with what `read` returns."""
    for name, content, readers in FILES:  # what is imported late is no memory of a file's
        for reader in readers:
            (folder / name).write_bytes(content)
            reader(folder / name)
    first = memory("VmRSS")
    for number, (name, content, readers) in zip(numbers, made, strict=True):
        for reader in readers:
            yield number, name, reader.__qualname__, *read(folder, name, content, reader, first)


def main(arguments=None):
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--file", type=int)
    options.add_argument("--first", type=int, default=0)
    asked = options.parse_args(arguments)
    numbers = range(asked.first, asked.first + asked.files)
    numbers = numbers if asked.file is None else [asked.file]
    warnings.simplefilter("ignore")
    faults = refusals = reads = 0
    longest, most = (0.0, 0), (0, 0)
    # Another process makes the files: that takes more memory than it takes to read them.
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool(1) as maker:
        made = maker.imap(bomb, numbers, chunksize=10)
        for number, name, reader, refused, wrong, seconds, taken in read_all(
            numbers, Path(folder), made
        ):
            reads, refusals = reads + 1, refusals + refused
            longest, most = max(longest, (seconds, number)), max(most, (taken, number))
            if reads % 2000 == 0:
                print(f"{number}: {longest[0]:.2f} s, {most[0] / 2**20:.0f} MiB", flush=True)
            if wrong or asked.file is not None:
                faults += bool(wrong)
                print(number, name, reader, *wrong, f"{taken / 2**20:.0f} MiB", flush=True)
    print(
        f"{reads} reads of {len(numbers)} files, {refusals} refused, {faults} faults; at most "
        f"{longest[0]:.2f} s (file {longest[1]}) and {most[0] / 2**20:.0f} MiB (file {most[1]})"
    )
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
