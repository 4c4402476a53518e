"""Decoding's arithmetic, sum of a_i c_i, in bytes per second."""

import numpy as np
import pytest
from measure import Reader, seconds

import fastgc

N, S = 80, 12
F = N - S
SIZES = [
    (10**6, np.float64),
    (10**6, np.float32),
    (10**5, np.float64),
    (10**4, np.float64),
    (650, np.float64),
]


def numpy_forms(vector, messages, stacked):
    """NumPy's ways to combine; the fastest is what fastgc is held against."""
    views = [m.view(vector.dtype) for m in messages]
    total, scaled = np.empty_like(views[0]), np.empty_like(views[0])

    def in_place():
        total[:] = 0
        for a, v in zip(vector, views, strict=True):
            np.multiply(v, a, out=scaled)
            np.add(total, scaled, out=total)

    if stacked is None:
        return {
            "multiply, add": in_place,
            "stack, matmul": lambda: vector @ np.stack(views),
        }
    matrix = stacked.view(vector.dtype)
    return {"matmul": lambda: np.matmul(vector, matrix, out=total)}


@pytest.mark.parametrize(("p", "dtype"), SIZES, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("form", ["separate", "stacked", "separate, checked", "round"])
def test_decode(benchmark, note, p, dtype, form):
    rng = np.random.default_rng(p)
    code = fastgc.ReedSolomon(N, stragglers=S)
    survivors = rng.permutation(N)[:F].astype(np.int64)
    stacked = rng.standard_normal((F, p)).astype(dtype) if form == "stacked" else None
    messages = (
        [rng.standard_normal(p).astype(dtype) for _ in range(F)]
        if stacked is None
        else list(stacked)
    )
    out = np.empty(p, dtype)
    vector = code.decoding_vector(survivors)

    # What it is compared with comes first: BLAS threads go on spinning for a while.
    others = numpy_forms(vector.astype(np.result_type(dtype, np.complex64)), messages, stacked)
    others = {name: seconds(call, 3 if p >= 10**6 else 9) for name, call in others.items()}
    against = min(others, key=others.get)
    reader = Reader([stacked] if stacked is not None else messages)
    read = seconds(reader)

    benchmark.group = f"decode, f={F} p={p} {np.dtype(dtype).name}"
    if form == "round":
        rnd = code.round(p, dtype)
        for worker, message in zip(survivors, messages, strict=True):
            rnd.receive(worker, message)
        benchmark(rnd.gradient, out=out)
    else:
        given = messages if stacked is None else stacked
        benchmark(code.decode, survivors, given, out=out, check_finite="checked" in form)
    read = (read + seconds(reader)) / 2  # before and after: the machine drifts

    few = slice(0, 100)
    pairs = np.array([m[few] for m in messages]).astype(np.float64).view(complex)
    truth = (vector.astype(np.clongdouble) @ pairs.astype(np.clongdouble)).astype(complex)
    truth = truth.view(float)
    note(
        what=f"decode {form}, p={p} {np.dtype(dtype).name}",
        bytes=F * p * np.dtype(dtype).itemsize,
        read_seconds=read,
        against=f"NumPy {against}",
        against_seconds=others[against],
        error=float(np.abs(out[few] - truth).max() / np.abs(truth).max()),
    )
