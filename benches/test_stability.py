"""Errors of decoded gradients, by code, size and precision of the messages, beside their times."""

import numpy as np
import pytest

from fastgc.codes import catalogue
from fastgc.stability.precision import Experiment

SETS = 200
SIZES = [(20, 4), (80, 12), (256, 32), (1000, 100)]
CODES = ["rs:root=1", "rs", "rs-clustered", "cyclic", "binary", "lcc", "lcc:nodes=roots"]
PRECISIONS = ["float64", "float32", "float16", "bfloat16"]


def measure(benchmark, note, name, n, s, dtype, group):
    """Decode from random sets of n - s workers; gradients are float32 if messages are shorter."""
    code = catalogue.make(name, n, stragglers=s)
    experiment = Experiment(code, dtype=dtype, p=64)
    rng = np.random.default_rng(n)
    errors, trusted = [], []
    for _ in range(SETS):
        survivors = rng.permutation(n)[: n - s]
        vector = code.decoding_vector(survivors)
        errors.append(experiment.error(survivors, vector).relative)
        trusted.append(experiment.trust(survivors, vector))
    benchmark.group = group
    benchmark(code.decode, survivors, experiment.messages[survivors], p=experiment.p)
    note(
        code=f"{catalogue.describe(name)}, n={n}, s={s}",
        dtype=experiment.dtype.name,
        median_error=float(np.median(errors)),
        worst_error=float(np.max(errors)),
        median_trust=float(np.median(trusted)),
    )


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize("name", CODES)
def test_code(benchmark, note, name, n, s):
    if name == "cyclic" and n > 256:
        pytest.skip("takes too long")
    measure(benchmark, note, name, n, s, "float64", f"stability, n={n:4d} s={s}")


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", ["rs", "binary"])
def test_precision(benchmark, note, name, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    measure(benchmark, note, name, 80, 12, dtype, "stability, by precision")
