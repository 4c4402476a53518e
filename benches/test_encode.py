"""A worker's arithmetic, sum of B_ij g_j over its w partitions, in bytes per second."""

import numpy as np
import pytest
from measure import Reader, seconds

import fastgc

SIZES = [(10**5, np.float32), (10**5, np.float64), (10**6, np.float32)]


@pytest.mark.parametrize(("p", "dtype"), SIZES, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("form", ["streaming", "streaming, one buffer", "separate", "stacked"])
def test_encode(benchmark, note, p, dtype, form):
    """Streaming as a worker does it, into one accumulator; or all partial gradients at once.

    "one buffer": each partial gradient is written to the same buffer, and so is in the cache when
    it is added; otherwise every one is a buffer of its own.
    """
    rng = np.random.default_rng(p)
    code = fastgc.ReedSolomon(80, stragglers=12)
    partitions = code.partitions(0).tolist()
    stacked = rng.standard_normal((len(partitions), p)).astype(dtype)
    partials = [stacked[0]] * len(partitions) if "one" in form else [g.copy() for g in stacked]
    out = np.empty(p, dtype)
    coef = code.coefficients(0).astype(np.result_type(dtype, np.complex64))
    views = [g.view(coef.dtype) for g in partials]
    matrix = stacked.view(coef.dtype)
    total, scaled = np.empty_like(views[0]), np.empty_like(views[0])

    def in_place():
        total[:] = 0
        for b, v in zip(coef, views, strict=True):
            np.multiply(v, b, out=scaled)
            np.add(total, scaled, out=total)

    others = {"multiply, add": in_place}
    if form == "separate":
        others["stack, matmul"] = lambda: coef @ np.stack(views)
    if form == "stacked":
        others["matmul"] = lambda: np.matmul(coef, matrix, out=total)
    others = {name: seconds(call, 51) for name, call in others.items()}
    against = min(others, key=others.get)
    # one buffer is read from the cache again and again, so the limit is the cache's bandwidth
    reader = Reader(partials)
    read = seconds(reader, 51)

    benchmark.group = f"encode, w={len(partitions)} p={p} {np.dtype(dtype).name}"
    if form.startswith("streaming"):
        encoder = code.encoder(0, p, dtype, out=out)

        def encode():
            encoder.reset()
            for j, g in zip(partitions, partials, strict=True):
                encoder.add(j, g)
            return encoder.message()

        benchmark(encode)
    else:
        benchmark(code.encode, 0, stacked if form == "stacked" else partials, out=out)
    exact = np.array(partials).astype(np.float64).view(complex)
    truth = (code.coefficients(0) @ exact).view(float)
    note(
        what=f"encode {form}, p={p} {np.dtype(dtype).name}",
        bytes=len(partitions) * p * np.dtype(dtype).itemsize,
        read_seconds=read,
        against=f"NumPy {against}",
        against_seconds=others[against],
        error=float(np.abs(out - truth).max() / np.abs(truth).max()),
    )
