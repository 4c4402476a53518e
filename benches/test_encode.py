"""The arithmetic of a worker, the sum of B_ij g_j over its w partitions, in bytes per second."""

import numpy as np
import pytest
from measure import REPEATS, Reader, Rivals, forms, in_turns, multiply_add

import fastgc

SIZES = [(10**5, np.float32), (10**5, np.float64), (10**6, np.float32), (10**6, np.float64)]


@pytest.mark.parametrize(("p", "dtype"), SIZES, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("form", ["streaming", "streaming, one buffer", "separate", "stacked"])
def test_encode(benchmark, note, p, dtype, form):
    """Time a worker's streaming into one accumulator, and encoding all partial gradients at once.

    With "one buffer", each partial gradient is written to the same buffer, and so is in the cache
    when it is added. Otherwise each has its own buffer.
    """
    rng = np.random.default_rng(p)
    code = fastgc.ReedSolomon(80, stragglers=12)
    partitions = code.partitions(0).tolist()
    stacked = rng.standard_normal((len(partitions), p), dtype=dtype)
    partials = [stacked[0]] * len(partitions) if "one" in form else [g.copy() for g in stacked]
    if form == "stacked":
        partials = list(stacked)
    out = np.empty(p, dtype)
    coef = code.coefficients(0).astype(np.result_type(dtype, np.complex64))
    views = [g.view(coef.dtype) for g in partials]
    # Streaming has one gradient at a time, so it can use neither blocks nor a matrix.
    if form.startswith("streaming"):
        others = {"multiply, add": multiply_add(coef, views, np.empty_like(views[0]))}
    else:
        matrix = stacked.view(coef.dtype) if form == "stacked" else None
        others = forms(coef, views, matrix)
    rivals = Rivals(others, 2 * REPEATS[p])

    if form.startswith("streaming"):
        encoder = code.encoder(0, p, dtype, out=out)

        def call():
            encoder.reset()
            for j, g in zip(partitions, partials, strict=True):
                encoder.add(j, g)
            encoder.message()

        moved = 2 * out.nbytes  # per call
    else:
        given = stacked if form == "stacked" else partials

        def call():
            code.encode(0, given, out=out)

        moved = (len(partitions) + 1) * out.nbytes
    benchmark.group = f"encode, w={len(partitions)} p={p} {np.dtype(dtype).name}"
    # One buffer is read from the cache again and again, so the limit is the cache's bandwidth.
    read = in_turns(benchmark, call, Reader(partials, moved), 8 * REPEATS[p])

    few = slice(0, 10**5)
    pairs = np.array([g[few] for g in partials]).astype(np.float64).view(complex)
    truth = (code.coefficients(0) @ pairs).view(float)
    note(
        what=f"encode {form}, p={p} {np.dtype(dtype).name}",
        bytes=len(partitions) * out.nbytes,
        read_seconds=read,
        against=rivals.best,
        against_seconds=rivals.again(),
        numpy_forms=rivals.times,
        error=float(np.abs(out[few] - truth).max() / np.abs(truth).max()),
    )
