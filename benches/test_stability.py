"""What the evaluation root and clusters do to the decoded gradient's error."""

import numpy as np
import pytest

import fastgc

CODES = {
    "root=1 (paper)": {"root": 1},
    'root="stable"': {},
    'clusters="auto"': {"clusters": "auto"},
}


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
@pytest.mark.parametrize(("n", "s"), [(20, 4), (80, 12), (256, 32), (1000, 100)])
@pytest.mark.parametrize("kind", CODES)
def test_relative_error(benchmark, note, n, s, kind):
    """Relative error of the gradient, float64, over 200 random sets of n - s survivors."""
    rng = np.random.default_rng(n)
    code = fastgc.ReedSolomon(n, stragglers=s, **CODES[kind])
    partials = rng.standard_normal((n, 64))
    truth = partials.astype(np.longdouble).sum(axis=0)
    messages = np.array([code.encode(i, partials[code.partitions(i)]) for i in range(n)])
    errors, trusted = [], []
    for _ in range(200):
        survivors = rng.permutation(n)[: n - s]
        gradient = code.decode(survivors, messages[survivors])
        error = np.linalg.norm((gradient - truth).astype(float))
        errors.append(error / np.linalg.norm(truth.astype(float)))
        trusted.append(code.trust(survivors).relative_error)
    benchmark.group = f"stability, n={n:4d} s={s}"
    benchmark(code.decode, survivors, messages[survivors])
    note(
        code=f"n={n}, s={s}, {kind}",
        median_error=float(np.median(errors)),
        worst_error=float(np.max(errors)),
        median_trust=float(np.median(trusted)),
    )
