"""Data: the reader reads files written here byte by byte; splits keep their promises."""

import gzip
import math
import struct

import numpy as np
import programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc.training.data import Dataset, MiniBatches, load, partition, read_idx

IDX_CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    code = IDX_CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + b"".join(struct.pack(f">{array.dtype.char}", v) for v in array.ravel().tolist())


def write_mnist(folder, names, pack=lambda content: content):
    """Write two training images and one test image of 2 x 3 pixels, with labels 0 and 1."""
    train = np.arange(12, dtype="u1").reshape(2, 2, 3) * 23
    test = np.array([[[255, 0, 51], [102, 153, 204]]], dtype="u1")
    arrays = train, np.array([1, 0], "u1"), test, np.array([1], "u1")
    for name, array in zip(names, arrays, strict=True):
        (folder / name).write_bytes(pack(idx_bytes(array)))
    return arrays


MNIST_DASHES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def toy(**changes):
    parts = {
        "X_train": np.zeros((3, 2)),
        "y_train": np.array([0, 1, 2]),
        "X_test": np.ones((1, 2)),
        "y_test": np.array([1]),
    }
    return Dataset("toy", **(parts | changes))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("dtype", IDX_CODES)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 1, 4)])
def test_read_idx_every_type(tmp_path, dtype, shape, pack):
    rng = np.random.default_rng(3)
    array = (rng.random(shape) * 200 - 100).astype("i2").astype(dtype)
    path = tmp_path / "entries"
    path.write_bytes(pack(idx_bytes(array)))
    read = read_idx(path)
    assert read.dtype == np.dtype(dtype)
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"\0\0\x08", "00 00 08$"),
        (b"\x01\x00\x08\x01", "01 00 08 01$"),
        (b"\0\0\x0a\x01\0\0\0\0", "0x08, .*got 0x0a"),
        (b"\0\0\x08\x03\0\0\0\x01", "3 axes takes 16 bytes, the file has 8"),
        (b"\0\0\x08\x01\0\0\0\x02\x07", r"\(2,\) of uint8, 10 bytes .* has 9"),
        (b"\0\0\x0b\x01\0\0\0\x01\0\0\0", r"\(1,\) of int16, 10 bytes .* has 11"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01\x07", mtime=0)[:-6], "no readable idx file"),
        (b"\0\0\x08\xff" + 255 * b"\0\0\0\x01" + b"\x07", "no readable idx file: .* 255"),
    ],
)
def test_read_idx_refused(tmp_path, content, message):
    path = tmp_path / "broken-idx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"broken-idx.* {message}"):
        read_idx(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("mark", ["-", "."])
def test_load_mnist_folder(tmp_path, mark, suffix):
    names = [name.replace("-idx", f"{mark}idx") + suffix for name in MNIST_DASHES]
    pack = gzip.compress if suffix else bytes
    train, y_train, test, y_test = write_mnist(tmp_path, names, pack)
    data = load(tmp_path, dtype=np.float32)
    assert (data.name, data.features, data.classes) == (tmp_path.name, 6, 2)
    assert data.X_train.dtype == data.X_test.dtype == np.float32
    np.testing.assert_allclose(data.X_train, train.reshape(2, 6) / 255, rtol=1e-7)
    np.testing.assert_allclose(data.X_test, test.reshape(1, 6) / 255, rtol=1e-7)
    np.testing.assert_array_equal(data.y_train, y_train)
    np.testing.assert_array_equal(data.y_test, y_test)


def test_load_mnist_folder_lacks_a_file(tmp_path):
    write_mnist(tmp_path, MNIST_DASHES)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected one of t10k-labels-idx1-ubyte, t10k-"):
        load(tmp_path)


@pytest.mark.parametrize("x", ["x", "X"])
def test_load_npz_to_be_split(tmp_path, x):
    X = np.arange(40).reshape(10, 2, 2)  # int64 pixels keep their values
    path = tmp_path / "whole.npz"
    np.savez(path, **{x: X, "y": np.array(["cat", "dog"] * 5)})
    data = load(path, test_fraction=0.4)
    assert (len(data.X_train), len(data.X_test)) == (6, 4)
    rows = np.concatenate([data.X_train, data.X_test])
    labels = np.concatenate([data.y_train, data.y_test])
    order = np.argsort(rows[:, 0])
    np.testing.assert_array_equal(rows[order], X.reshape(10, 4))
    np.testing.assert_array_equal(labels[order], [0, 1] * 5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2))}, "X_train, .*found X"),
        ({}, "found nothing"),
        ({"X": np.ones((2, 2)), "y": [0, 1, 1]}, "2 samples but 3 labels"),
        ({"X": np.ones(2), "y": [0, 1]}, r"two axes .* \(2,\)"),
        ({"X": np.ones((2, 2), complex), "y": [0, 1]}, "real numbers .*complex128"),
        ({"X": np.ones((2, 2)), "y": [[0], [1]]}, r"one label per sample.* \(2, 1\)"),
        ({"X": np.ones((2, 2)), "y": [0, 1j]}, "one label per sample.*complex128"),
        ({"X": np.ones((2, 2)), "y": [np.nan, 1]}, "whole numbers"),
        ({"X": np.array([[1, np.nan], [0, 0]]), "y": [0, 1]}, "NaN or Inf"),
        ({"X": np.ones((1, 2)), "y": [0]}, "1 samples cannot be split"),
    ],
)
def test_load_npz_refused(tmp_path, arrays, message):
    path = tmp_path / "broken.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"broken.*{message}"):
        load(path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"source": "absent"}, FileNotFoundError),
        *(({"test_fraction": fraction}, ValueError) for fraction in (0, 1, math.nan)),
        *(({"test_fraction": fraction}, TypeError) for fraction in ("0.2", None)),
        ({"dtype": "float16"}, ValueError),
        ({"task": "regress"}, ValueError),
        ({"seed": -1}, ValueError),
    ],
)
def test_load_refused(options, error):
    [(name, value)] = options.items()
    with pytest.raises(error, match=rf"(data|{name}) .*{value}"):
        load(**options)


def test_load_digits():
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    data = load("digits", dtype=np.float32)
    assert (data.name, data.features, data.classes) == ("digits", 64, 10)
    assert (len(data.X_train), len(data.X_test)) == (1797 - 359, 359)
    assert data.X_train.dtype == np.float32
    assert (data.X_train.min(), data.X_train.max()) == (0, 1)

    # Together, the two sets are the digits: compare sorted rows, with the label last.
    def table(X, y):
        rows = np.column_stack([X, y])
        return rows[np.lexsort(rows.T)]

    rows = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    np.testing.assert_array_equal(table(rows, y), table(pixels / 16, labels))
    share = np.bincount(data.y_test) / np.bincount(labels)
    np.testing.assert_allclose(share, 0.2, atol=1 / 170)  # the rarest class has 174 samples


def test_load_digits_without_optional_packages():
    source = """
import sys
sys.modules |= dict.fromkeys(["sklearn", "scipy", "rich", "typer", "threadpoolctl"])
import fastgc
code = fastgc.ReedSolomon(3, stragglers=1)
print(len(fastgc.train(code, rounds=2, engine="simulated").rounds))
"""
    assert programs.printed(source) == "2"


def test_load_seed_decides_the_split():
    first, again, other = load(seed=5), load(seed=5), load(seed=6)
    np.testing.assert_array_equal(first.X_train, again.X_train)
    np.testing.assert_array_equal(first.y_test, again.y_test)
    assert not np.array_equal(first.y_train, other.y_train)


@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=60),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**40),
)
def test_load_keeps_samples_and_proportions(tmp_path_factory, labels, fraction, seed):
    path = tmp_path_factory.mktemp("split") / "some.npz"
    X = np.arange(len(labels), dtype=float)[:, None]
    np.savez(path, X=X, y=labels)
    data = load(path, test_fraction=fraction, seed=seed)
    N = len(labels)
    assert len(data.X_test) == min(max(round(fraction * N), 1), N - 1)
    np.testing.assert_array_equal(np.sort(np.concatenate([data.X_train, data.X_test]), axis=0), X)
    values, numbered = np.unique(labels, return_inverse=True)
    for X_part, y_part in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        np.testing.assert_array_equal(numbered[X_part[:, 0].astype(int)], y_part)
    taken = np.bincount(data.y_test, minlength=len(values))
    wanted = np.bincount(numbered) * len(data.X_test) / N
    assert np.all(np.abs(taken - wanted) < 2)


def test_dataset_counts_classes_over_both_sets():
    data = toy(y_train=np.array([0, 1, 1]), y_test=np.array([2]))
    assert (data.features, data.classes) == (2, 3)
    assert repr(data) == "Dataset(name='toy')"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X_train": np.zeros(3)}, r"training set: .* \(3,\)"),
        ({"y_test": np.zeros((1, 1), int)}, r"test set: .* y of shape \(N,\), got"),
        ({"y_train": np.array([0, 1])}, "training set: 3 samples but 2 labels"),
        ({"X_test": np.zeros((0, 2)), "y_test": np.zeros(0, int)}, "test set is empty"),
        ({"X_test": np.zeros((1, 2), int)}, "test set: .*got int64"),
        ({"y_test": np.array([1.0])}, "in both, got int64 and float64"),
        ({"y_test": np.array([True])}, "got .* bool"),
        ({"X_test": np.array([[1, np.nan]])}, "test set holds NaN"),
        ({"X_test": np.ones((1, 3))}, "2 features in the training set but 3 in the test set"),
        ({"y_train": np.array([0, 1, 3])}, "3 labels from 0 to 3"),
        ({"y_train": np.array([1, 2, 3])}, "3 labels from 1 to 3"),
        ({"y_train": np.array([-1, 1, 2])}, "3 labels from -1 to 2"),
    ],
)
def test_dataset_refused(changes, message):
    with pytest.raises(ValueError, match=f"toy: .*{message}"):
        toy(**changes)
    with pytest.raises(TypeError, match=r"test set: .* got list and ndarray"):
        toy(X_test=[[1.0, 1.0]])
    for masked in ({"y_test": np.ma.array([1])}, {"X_test": np.ma.array([[1.0, 1.0]])}):
        with pytest.raises(TypeError, match=r"test set: [Xy] must not be a masked"):
            toy(**masked)


def test_by_label():
    y = np.random.default_rng(0).integers(0, 3, 500)
    X = np.stack([np.arange(500.0), y], axis=1)
    order = sorted(range(500), key=y.tolist().__getitem__)  # samples of a class keep their order
    for labels in (y, y[:, None] / 2):
        data = Dataset("toy", X, labels, X, labels)
        listed = data.by_label()
        assert listed.name == "toy by label"
        np.testing.assert_array_equal(listed.y_train, labels[order])
        np.testing.assert_array_equal(listed.X_train, X[order])
        assert listed.X_test is data.X_test
    with pytest.raises(ValueError, match="two has 2 targets a sample"):
        Dataset("two", X, X, X, X).by_label()


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("y", "outputs"),
    [
        (np.linspace(-2, 3, 10), 1),
        (np.linspace(-2, 3, 10).astype("f4")[:, None], 1),
        (np.linspace(-2, 3, 20).astype("f2").reshape(10, 2), 2),
        (np.arange(30.0).reshape(10, 3), 3),  # whole numbers, but in columns
    ],
    ids=["(n,)", "(n, 1)", "(n, 2)", "whole (n, 3)"],
)
def test_load_floats_as_targets(tmp_path, y, outputs, dtype):
    X = np.arange(20.0).reshape(10, 2)
    path = save(tmp_path / "reg.npz", X=X, y=y)
    found = load(path, dtype=dtype, test_fraction=0.3)
    assert (found.task, found.outputs, found.features) == ("regression", outputs, 2)
    assert found.y_train.dtype == found.y_test.dtype == dtype
    assert found.y_train.shape == (7, *y.shape[1:])
    # Each sample keeps its target.
    for rows, targets in ((found.X_train, found.y_train), (found.X_test, found.y_test)):
        np.testing.assert_array_equal(targets, y[(rows[:, 0] / 2).astype(int)].astype(dtype))
    with pytest.raises(ValueError, match="reg has real-valued targets, and so no classes"):
        found.classes  # noqa: B018
    with pytest.raises(ValueError, match=r"labels of classes must be whole|one label per sample"):
        load(path, task="classification")


@pytest.mark.parametrize("x", ["x", "X"])
@pytest.mark.parametrize("y", [[7, 3, 3, 9, 7], [7.0, 3.0, 3.0, 9.0, 7.0]], ids=["ints", "floats"])
def test_load_whole_numbers_as_classes(tmp_path, y, x):
    X = np.random.default_rng(0).normal(size=(5, 3))
    arrays = {f"{x}_train": X[:3], f"{x}_test": X[3:], "y_train": y[:3], "y_test": y[3:]}
    path = save(tmp_path / "whole.npz", **arrays)
    for task in ("auto", "classification"):
        found = load(path, task=task)
        assert (found.name, found.task, found.classes) == ("whole", "classification", 3)
        np.testing.assert_array_equal([*found.X_train, *found.X_test], X)
        np.testing.assert_array_equal(found.y_train, [1, 0, 0])
        np.testing.assert_array_equal(found.y_test, [2, 1])
        with pytest.raises(ValueError, match="has classes, and so no real-valued targets"):
            found.outputs  # noqa: B018
    found = load(path, task="regression")
    assert (found.task, found.outputs) == ("regression", 1)
    np.testing.assert_array_equal(found.y_train, [7, 3, 3])
    np.testing.assert_array_equal(found.y_test, [9, 7])


def test_load_fractions_in_one_set_as_targets(tmp_path):
    X = np.eye(4)
    path = save(tmp_path / "two.npz", X_train=X, y_train=np.arange(4), X_test=X, y_test=[0.5] * 4)
    found = load(path)
    np.testing.assert_array_equal(found.y_train, np.arange(4.0))


def test_load_targets_of_idx_files(tmp_path):
    write_mnist(tmp_path, MNIST_DASHES)
    for name, y in (("train", [0.25, -1]), ("t10k", [7])):
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(idx_bytes(np.array(y, "f4")))
    found = load(tmp_path)
    np.testing.assert_array_equal(found.y_train, [0.25, -1])
    np.testing.assert_array_equal(found.y_test, [7])


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        ([0.5, np.nan, 1], "auto", "NaN or Inf"),
        ([1e300, 0.5, 1], "regression", "NaN or Inf"),  # too large for float32
        (["a", "b", "c"], "regression", "targets .* got <U1"),
        (np.ones((3, 1, 1)), "regression", r"targets .* \(3, 1, 1\)"),
        (np.ones((3, 2), int), "auto", r'int64 of shape \(3, 2\); task="regression" takes'),
        (np.ones((3, 0)), "regression", r"is empty: X has shape \(2, 2\), y \(2, 0\)"),
        ([0.5, 1], "regression", "3 samples but 2 labels"),
    ],
)
def test_load_targets_refused(tmp_path, y, task, message):
    path = save(tmp_path / "broken.npz", X=np.ones((3, 2)), y=y)
    with pytest.raises(ValueError, match=message):
        load(path, task=task, dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": np.ones((1, 2))}, r"shape \(3,\) in the training set but \(1, 2\)"),
        ({"y_test": np.array([np.nan])}, "test set: targets hold NaN or Inf"),
        ({"y_train": np.ones((3, 1, 1))}, r"training set: .* y of shape .* or \(N, outputs\)"),
        ({"y_train": np.ones(2)}, "training set: 3 samples but 2 targets"),
        ({"y_train": np.ones((3, 0)), "y_test": np.ones((1, 0))}, "training set is empty"),
        ({"y_test": np.ones(1, np.float16)}, "got float64 and float16"),
    ],
)
def test_dataset_of_targets_refused(changes, message):
    targets = {"y_train": np.array([0.5, 1, 2], "f4"), "y_test": np.array([1.5])}
    assert toy(**targets).task == "regression"
    with pytest.raises(ValueError, match=f"toy: .*{message}"):
        toy(**(targets | changes))


@settings(deadline=None)
@given(data=st.data(), N=st.integers(1, 80))
def test_partition_is_even_contiguous_and_complete(data, N):
    k = data.draw(st.integers(1, N))
    X, y = np.arange(2.0 * N).reshape(N, 2), np.arange(N)
    parts = partition(X, y, k)
    sizes = [len(X_j) for X_j, _ in parts]
    assert sizes == [N // k + 1] * (N % k) + [N // k] * (k - N % k)
    np.testing.assert_array_equal(np.concatenate([X_j for X_j, _ in parts]), X)
    np.testing.assert_array_equal(np.concatenate([y_j for _, y_j in parts]), y)
    assert all(np.shares_memory(X_j, X) and np.shares_memory(y_j, y) for X_j, y_j in parts)


def test_partition_refused():
    with pytest.raises(TypeError, match=r"k must be an integer, not 1\.0"):
        partition(np.ones((3, 1)), np.zeros(3, int), 1.0)
    with pytest.raises(ValueError, match="3 samples but 2 labels"):
        partition(np.ones((3, 1)), np.zeros(2, int), 1)
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"3 samples .* k = {k} "):
            partition(np.ones((3, 1)), np.zeros(3, int), k)


def drawn(size, held=40, seed=0, partition=0, round=0):
    """Return which samples are drawn, and their labels."""
    shard = np.arange(2.0 * held).reshape(held, 2), np.arange(held)
    X, y = MiniBatches(size, seed)(shard, partition, round)
    np.testing.assert_array_equal(X, shard[0][y])
    assert X.dtype == shard[0].dtype
    return y


@settings(deadline=None)
@given(data=st.data(), held=st.integers(1, 50))
def test_mini_batches_are_drawn_without_replacement(data, held):
    size = data.draw(st.integers(1, held))
    y = drawn(size, held, data.draw(st.integers(0, 2**32)), data.draw(st.integers(0, 9)))
    assert y.shape == (size,)
    assert len(set(y.tolist())) == size


def test_mini_batches_depend_on_seed_partition_and_round_only():
    once = drawn(10, seed=1, partition=2, round=3)
    np.testing.assert_array_equal(drawn(10, seed=1, partition=2, round=3), once)
    others = [
        drawn(10, seed=1, partition=3, round=2),
        drawn(10, seed=1, partition=2, round=4),
        drawn(10, seed=1, partition=4, round=3),
        drawn(10, seed=2, partition=2, round=3),
        drawn(10, seed=2, partition=1, round=3),
    ]
    sets = {frozenset(y.tolist()) for y in [once, *others]}
    assert len(sets) == 6
    # Further arrays of as many samples: the same samples are drawn from all.
    three = np.arange(40), np.arange(40) * 2, np.arange(40) * 3
    for factor, array in enumerate(MiniBatches(10, 1)(three, 2, 3), start=1):
        np.testing.assert_array_equal(array, factor * once)


@pytest.mark.parametrize("vary", ["round", "partition", "seed"])
def test_mini_batches_are_uniform(vary):
    """Pearson's statistic counts how often each of 12 samples is among 3, in 4000 draws.

    Draws without replacement vary less than independent ones, by (12 - 3) / (12 - 1). Scaled by
    this, the statistic is chi-squared with 11 degrees of freedom; it exceeds 38 with a probability
    below 1e-4.
    """
    times, held, size = 4000, 12, 3
    counts = np.zeros(held)
    pairs = set()
    for number in range(times):
        y = drawn(size, held, **{vary: number})
        counts[y] += 1
        pairs.add(tuple(sorted(y.tolist())))
    expected = times * size / held
    statistic = np.sum((counts - expected) ** 2) / expected * (held - 1) / (held - size)
    assert statistic < 38
    assert len(pairs) == 220  # every set occurs: each is missed with probability 1e-8


def test_mini_batches_refused():
    assert len(drawn(40)) == 40
    assert len(drawn(1, seed=0)) == 1
    with pytest.raises(ValueError, match=r"41 samples .* partition 5, which has 40"):
        drawn(41, partition=5)
    for wrong, name in (
        ({"size": 0}, "size"),
        ({"size": 2, "seed": -1}, "seed"),
        ({"size": 2, "partition": -1}, "partition"),
        ({"size": 2, "round": -1}, "round"),
    ):
        with pytest.raises(ValueError, match=f"{name} must .*not {wrong[name]}"):
            drawn(**wrong)
