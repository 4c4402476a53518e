"""Data for classification and regression: reading, splitting, cutting into partitions."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._base.arrays import Array, as_real, at_least, check_word, refuse_masks
from .._base.files import path_of, read_bytes, read_npz, refusing
from .._base.text import listed, listing
from ..coding.arguments import partition

__all__ = ["TASKS", "Dataset", "MiniBatches", "load", "partition", "read_idx"]
__dir__ = listing(__all__)

Samples = NDArray[np.floating[Any]]
Labels = NDArray[np.intp]
Targets = NDArray[np.floating[Any]]
Task = Literal["auto", "classification", "regression"]

TASKS = ("auto", "classification", "regression")

_IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and a test set of samples, with classes or with real-valued targets.

    In ``y``, integers are classes, and floats are targets. Give integers that are targets as
    ``y.astype(float)``.

    Parameters
    ----------
    name : str
        Name of the data in logs and plots.
    X_train, X_test : array of float32 or float64, shape (N, features)
        One sample a row, all entries finite.
    y_train, y_test : array of int, shape (N,), or of float32 or float64, (N,) or (N, outputs)
        Class of each sample; every class in 0 .. ``classes - 1`` occurs in at least one of the
        two. Or finite targets of each sample.

    Raises
    ------
    ValueError
        If a shape, a length, a label or an entry is not as above, or a set is empty.
    TypeError
        If an argument is not a NumPy array, or is a masked one.
    """

    name: str
    X_train: Samples = field(repr=False)
    y_train: Array = field(repr=False)
    X_test: Samples = field(repr=False)
    y_test: Array = field(repr=False)

    def __post_init__(self) -> None:
        for part, X, y in (
            ("training", self.X_train, self.y_train),
            ("test", self.X_test, self.y_test),
        ):
            _check_set(f"{self.name}: {part} set", X, y)
        if self.X_train.shape[1] != self.X_test.shape[1]:
            raise ValueError(
                f"{self.name}: {self.X_train.shape[1]} features in the training set "
                f"but {self.X_test.shape[1]} in the test set"
            )
        if (self.y_train.dtype.kind == "f") != (self.y_test.dtype.kind == "f"):
            raise ValueError(
                f"{self.name}: expected integer labels in both sets or float targets in both, "
                f"got {self.y_train.dtype} and {self.y_test.dtype}"
            )
        if self.task == "regression":
            if self.y_train.shape[1:] != self.y_test.shape[1:]:
                raise ValueError(
                    f"{self.name}: targets of shape {self.y_train.shape} in the training set "
                    f"but {self.y_test.shape} in the test set"
                )
            return
        present = np.union1d(self.y_train, self.y_test)
        if present[0] != 0 or present[-1] != len(present) - 1:
            raise ValueError(
                f"{self.name}: labels must be 0 .. classes - 1 without a gap, "
                f"got {len(present)} labels from {present[0]} to {present[-1]}; if they are "
                "targets, make them floats"
            )

    @property
    def features(self) -> int:
        """Numbers per sample."""
        return int(self.X_train.shape[1])

    @property
    def task(self) -> Literal["classification", "regression"]:
        """What the labels are for: ``"classification"``, or ``"regression"`` if they are floats."""
        return "regression" if self.y_train.dtype.kind == "f" else "classification"

    @property
    def classes(self) -> int:
        """Number of classes in the two sets together; ValueError if there are targets."""
        if self.task == "regression":
            raise ValueError(f"{self.name} has real-valued targets, and so no classes")
        return 1 + int(max(self.y_train.max(), self.y_test.max()))

    @property
    def outputs(self) -> int:
        """Targets per sample; ValueError if there are classes."""
        if self.task == "classification":
            raise ValueError(f"{self.name} has classes, and so no real-valued targets")
        return math.prod(self.y_train.shape[1:])

    def by_label(self) -> Dataset:
        """The same data, with the training samples sorted by label.

        Each partition then has few classes, as if every device kept its own data: leaving out a
        partition leaves out classes. Samples with the same label keep their order.

        Raises
        ------
        ValueError
            If a sample has more than one target.

        Examples
        --------
        >>> import fastgc
        >>> data = fastgc.data.load("digits").by_label()
        >>> X, y = fastgc.data.partition(data.X_train, data.y_train, 20)[0]
        >>> data.name, set(y.tolist())
        ('digits by label', {0})
        """
        labels = self.y_train.reshape(len(self.y_train), -1)
        if labels.shape[1] > 1:
            raise ValueError(
                f"{self.name} has {labels.shape[1]} targets a sample: sorting by label needs one"
            )
        order = np.argsort(labels[:, 0], kind="stable")
        return replace(
            self,
            name=f"{self.name} by label",
            X_train=self.X_train[order],
            y_train=self.y_train[order],
        )


def _check_set(where: str, X: Any, y: Any) -> None:
    """Check one of a dataset's sets, with the errors that `Dataset` documents."""
    if not (isinstance(X, np.ndarray) and isinstance(y, np.ndarray)):
        raise TypeError(
            f"{where}: expected NumPy arrays, got {type(X).__name__} and {type(y).__name__}"
        )
    refuse_masks(f"{where}: X", X)
    refuse_masks(f"{where}: y", y)
    real = y.dtype in (np.float32, np.float64)
    if X.dtype not in (np.float32, np.float64) or not (real or y.dtype.kind in "iu"):
        raise ValueError(
            f"{where}: expected float32 or float64 samples, and integer labels or float32 or "
            f"float64 targets, got {X.dtype} and {y.dtype}"
        )
    if X.ndim != 2 or y.ndim not in ((1, 2) if real else (1,)):
        raise ValueError(
            f"{where}: expected X of shape (N, features) and y of shape (N,)"
            f"{' or (N, outputs)' * real}, got {X.shape} and {y.shape}"
        )
    if len(X) != len(y):
        raise ValueError(
            f"{where}: {len(X)} samples but {len(y)} {'targets' if real else 'labels'}"
        )
    if X.size == 0 or y.size == 0:
        raise ValueError(f"{where} is empty: X has shape {X.shape}, y {y.shape}")
    if not np.isfinite(X).all():
        raise ValueError(f"{where} holds NaN or Inf")
    if real and not np.isfinite(y).all():
        raise ValueError(f"{where}: targets hold NaN or Inf")


def load(
    source: str | os.PathLike[str] = "digits",
    *,
    test_fraction: float = 0.2,
    seed: int = 0,
    dtype: DTypeLike = np.float64,
    task: Task = "auto",
) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    source : str or path
        One of

        - ``"digits"``: 1797 handwritten digits of 8 x 8 pixels, which come with fastgc (see Notes);
        - an ``.npz`` file with arrays ``X_train``, ``y_train``, ``X_test``, ``y_test``, or with
          ``X`` and ``y``, which are split (``x`` may be lower-case);
        - a folder with MNIST's four idx files, gzipped or not, named with dashes or dots
          (``train-images-idx3-ubyte``, ``t10k-labels.idx1-ubyte.gz``).

        Samples with more than one axis are flattened. ``uint8`` samples are divided by 255, and the
        digits by 16, so that pixels lie in [0, 1]; other samples keep their values. `task` says
        what ``y`` holds.
    test_fraction : float
        Share of the samples, in (0, 1), that goes to the test set if the source is not split
        already; each class keeps its share to within about one sample.
    seed : int
        Seed of the split.
    dtype : dtype
        float32 or float64, for the samples and for targets.
    task : {"auto", "classification", "regression"}
        What ``y`` holds:

        - ``"classification"``: classes, one per sample: integers, whole numbers or strings, which
          are renumbered 0 .. classes - 1 in sorted order;
        - ``"regression"``: targets, real numbers of shape (N,) or (N, outputs), which keep their
          values, even if they are whole;
        - ``"auto"``: targets if ``y`` consists of floats with fractions or has more than one
          column, otherwise classes. Integers are never targets unless you say "regression".

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        If there is no such file, or a file that belongs to it is missing.
    ValueError
        If a file does not hold what it should; the error names the file.

    Notes
    -----
    The digits are the test set of "Optical recognition of handwritten digits" by E. Alpaydin and
    C. Kaynak, UCI Machine Learning Repository (1998), doi:10.24432/C50P49, under the licence
    CC BY 4.0. scikit-learn's ``load_digits`` holds the same.
    """
    dtype = _sample_dtype(dtype)
    test_fraction = as_real("test_fraction", test_fraction)
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must lie in (0, 1), got {test_fraction}")
    check_word("task", task, *TASKS)
    seed = at_least("seed", seed, 0)
    path = path_of(source)
    if source == "digits":
        name, arrays = "digits", _digits()
    elif path.is_dir():
        name, arrays = path.name, _read_mnist(path)
    elif path.is_file():
        name, arrays = path.stem, _read_npz(path)
    else:
        raise FileNotFoundError(
            f"no data at {path}: expected 'digits', an .npz file, or a folder with MNIST's four "
            "idx files"
        )

    samples = [_samples(X, dtype, path) for X in arrays[::2]]
    labels = arrays[1::2]
    real = task == "regression" or (task == "auto" and any(map(_has_fractions, labels)))
    known: list[Any] = _targets(labels, dtype, path) if real else _renumbered(labels, path)
    for X, y in zip(samples, known, strict=True):
        if len(X) != len(y):
            raise ValueError(f"{path}: {len(X)} samples but {len(y)} labels")
    if len(samples) == 1:
        X, y = samples[0], known[0]
        alike = np.zeros(len(y), np.intp) if real else y  # targets are not kept in proportion
        train, test = _split(alike, test_fraction, seed, path)
        return Dataset(name, X[train], y[train], X[test], y[test])
    return Dataset(name, samples[0], known[0], samples[1], known[1])


@dataclass(frozen=True)
class MiniBatches:
    """Random samples of a partition: new ones in each round, the same for all its workers.

    Codes need every copy of a partial gradient to be the same. With these samples they decode
    stochastic gradients exactly. Give this object to an engine as `batch`.

    Parameters
    ----------
    size : int
        Samples drawn from each partition, without replacement.
    seed : int
        Seed of the draws; not negative.
    """

    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)
        at_least("seed", self.seed, 0)

    def __call__(self, shard: tuple[Any, ...], partition: int, round: int) -> tuple[Any, ...]:
        """Draw `size` samples from arrays of equal length, such as samples and labels.

        Raises
        ------
        ValueError
            If the partition has fewer samples.
        """
        partition, round = at_least("partition", partition, 0), at_least("round", round, 0)
        held = len(shard[0])
        if self.size > held:
            raise ValueError(
                f"mini-batches of {self.size} samples cannot be drawn from partition {partition}, "
                f"which has {held}"
            )
        seeds = np.random.SeedSequence(self.seed, spawn_key=(partition, round))
        drawn = np.random.default_rng(seeds).choice(held, self.size, replace=False, shuffle=False)
        return tuple(array[drawn] for array in shard)


def read_idx(path: str | os.PathLike[str]) -> Array:
    """Read an idx file, the format MNIST is distributed in, gzipped or not.

    An idx file is two zero bytes, a type code, the number of axes, the length of each axis as a
    big-endian 32-bit integer, then the entries, big-endian and in C order.

    Parameters
    ----------
    path : str or path
        The file. Its first bytes, not its name, say whether it is compressed.

    Returns
    -------
    array
        In native byte order: uint8, int8, int16, int32, float32 or float64, as the file says.

    Raises
    ------
    ValueError
        If the file is no idx file, its length differs from what its header announces, or it unpacks
        to more than both 2 MiB and 32 times its size.
    """
    content = read_bytes(path, "readable idx file", packed=True)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(
            f"{path}: not an idx file: expected two zero bytes, a type code and the number "
            f"of axes, got {content[:4].hex(' ') or 'an empty file'}"
        )
    code, axes = content[2], content[3]
    if code not in _IDX_DTYPES:
        known = ", ".join(f"0x{known:02x}" for known in _IDX_DTYPES)
        raise ValueError(f"{path}: idx type code must be one of {known}, got 0x{code:02x}")
    header = 4 + 4 * axes
    if len(content) < header:
        raise ValueError(
            f"{path}: idx header of {axes} axes takes {header} bytes, the file has {len(content)}"
        )
    shape = tuple(np.frombuffer(content, ">u4", axes, offset=4).tolist())
    dtype = np.dtype(_IDX_DTYPES[code])
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise ValueError(
            f"{path}: idx header announces shape {shape} of {dtype.name}, {expected} bytes "
            f"in all, the file has {len(content)}"
        )
    with refusing(path, "readable idx file"):  # arrays have at most 64 axes
        entries = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return entries.astype(dtype.newbyteorder("="))


def _sample_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return `dtype` as one that samples may have; raise ValueError for another."""
    checked = np.dtype(dtype)
    if checked not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {checked}")
    return checked


def _digits() -> tuple[Array, ...]:
    pixels, labels = _read_npz(Path(__file__).with_name("digits.npz"))
    return pixels / 16, labels


def _read_npz(path: Path) -> tuple[Array, ...]:
    def choose(names: Sequence[str]) -> Sequence[str]:
        # Accept a lower-case x.
        keys = {name.replace("x", "X", 1): name for name in names}
        for wanted in (("X_train", "y_train", "X_test", "y_test"), ("X", "y")):
            if keys.keys() >= set(wanted):
                return [keys[key] for key in wanted]
        raise ValueError(
            "expected arrays X_train, y_train, X_test, y_test, or X and y; found "
            f"{listed(names) or 'nothing'}"
        )

    return tuple(read_npz(path, choose).values())


def _read_mnist(folder: Path) -> tuple[Array, ...]:
    return tuple(
        read_idx(_existing(folder, f"{part}-{content}-ubyte"))
        for part in ("train", "t10k")
        for content in ("images-idx3", "labels-idx1")
    )


def _existing(folder: Path, name: str) -> Path:
    """Return the idx file that has one of the usual spellings of its name."""
    names = dict.fromkeys((name.replace(".idx", "-idx"), name.replace("-idx", ".idx")))
    spellings = [each + suffix for suffix in ("", ".gz") for each in names]
    for spelling in spellings:
        if (folder / spelling).is_file():
            return folder / spelling
    raise FileNotFoundError(f"{folder}: expected one of {', '.join(spellings)}")


def _samples(X: Array, dtype: np.dtype[Any], path: Path) -> Samples:
    """Copy samples into rows of floats."""
    if X.dtype.kind not in "biuf" or X.ndim < 2:
        raise ValueError(
            f"{path}: expected samples as an array of real numbers of two axes or more, "
            f"got {X.dtype} of shape {X.shape}"
        )
    rows: Samples = X.reshape(len(X), math.prod(X.shape[1:])).astype(dtype, order="C")
    if X.dtype == np.uint8:
        rows /= 255
    return rows


def _has_fractions(y: Array) -> bool:
    """Whether labels can only be targets: floats in columns, or some with fractions."""
    if y.dtype.kind != "f":
        return False
    return y.ndim > 1 or bool((np.isfinite(y) & (y != np.rint(y))).any())


def _targets(labels: tuple[Array, ...], dtype: np.dtype[Any], path: Path) -> list[Targets]:
    """Copy targets as floats."""
    for y in labels:
        if y.ndim not in (1, 2) or y.dtype.kind not in "biuf":
            raise ValueError(
                f"{path}: expected targets as real numbers of shape (N,) or (N, outputs), "
                f"got {y.dtype} of shape {y.shape}"
            )
    with np.errstate(over="ignore"):  # too large numbers become Inf, which `Dataset` refuses
        return [y.astype(dtype, order="C") for y in labels]


def _renumbered(labels: tuple[Array, ...], path: Path) -> list[Labels]:
    """Renumber the labels 0 .. classes - 1 over all sets together."""
    for y in labels:
        if y.ndim != 1 or y.dtype.kind not in "biufU":
            raise ValueError(
                f"{path}: expected one label per sample, integers or strings, "
                f"got {y.dtype} of shape {y.shape}"
                + '; task="regression" takes numbers as targets'
                * (y.dtype.kind in "iuf")
            )
        if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.rint(y))).all():
            raise ValueError(
                f"{path}: labels of classes must be whole numbers, not fractions, NaN or Inf"
            )
    inverse = np.unique(np.concatenate(labels), return_inverse=True)[1].astype(np.intp, copy=False)
    return np.split(inverse, np.cumsum([len(y) for y in labels])[:-1])


def _split(y: Labels, fraction: float, seed: int, path: Path) -> tuple[Labels, Labels]:
    """Draw the indices of training and test samples, each class in proportion."""
    total = len(y)
    if total < 2:
        raise ValueError(f"{path}: {total} samples cannot be split into a training and a test set")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(total)
    # Order samples by their places within their class, as fractions: every prefix then holds the
    # classes in proportion.
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    sizes = np.bincount(y)
    place = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    order = by_class[np.argsort(place, kind="stable")]
    cut = min(max(round(fraction * total), 1), total - 1)
    return rng.permutation(order[cut:]), rng.permutation(order[:cut])
