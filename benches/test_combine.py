"""The arithmetic of decoding, the sum of a_i c_i, in bytes per second."""

import ml_dtypes
import numpy as np
import pytest
from measure import REPEATS, Reader, Rivals, forms, in_turns, multiply_add

import fastgc
from fastgc import kernels

N, S = 80, 12
F = N - S
SIZES = [
    (10**6, np.float64),
    (10**6, np.float32),
    (10**6, np.float16),
    (10**6, ml_dtypes.bfloat16),
    (10**5, np.float64),
    (10**4, np.float64),
    (650, np.float64),
]
FORMS = ["separate", "separate, checked", "stacked", "stacked, checked", "round", "kernel"]


class Converted:
    """Complex numbers of halves, converted to single precision on access."""

    def __init__(self, halves):
        self.halves = halves

    def __getitem__(self, part):
        reals = self.halves[2 * part.start : 2 * part.stop]
        return reals.astype(np.float32).view(np.complex64)


def sent(values, dtype):
    """Return a message of these values."""
    return fastgc.Uncoded(1).encode(0, [values], message_dtype=dtype)


@pytest.mark.parametrize(("p", "dtype"), SIZES, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("form", FORMS)
def test_decode(benchmark, note, p, dtype, form):
    """Decode into `out`: by `decode`, by a round with all messages, and by the kernel alone."""
    rng = np.random.default_rng(p)
    code = fastgc.ReedSolomon(N, stragglers=S)
    survivors = rng.permutation(N)[:F].astype(np.int64)
    wide = np.result_type(dtype, np.float32)  # the gradient's
    messages = [sent(rng.standard_normal(p, dtype=wide), np.dtype(dtype)) for _ in range(F)]
    stacked = None
    if "stacked" in form:
        stacked = np.stack(messages)
        messages = list(stacked)
    out = np.empty(p, wide)
    vector = code.decoding_vector(survivors)

    coef = vector.astype(np.result_type(wide, np.complex64))
    if wide == dtype:
        views = [m.view(coef.dtype) for m in messages]
        others = forms(coef, views, None if stacked is None else stacked.view(coef.dtype))
    else:
        total = np.empty(p // 2, coef.dtype)
        blocks = multiply_add(coef, [Converted(m[:p]) for m in messages], total, 8192)
        others = {"convert, multiply, add by blocks": blocks}
    rivals = Rivals(others, REPEATS[p])

    if form == "round":
        rnd = code.round(p, wide, dtype)
        for worker, message in zip(survivors, messages, strict=True):
            rnd.receive(worker, message)

        def call():
            rnd.gradient(out=out)
    elif form == "kernel":
        rows = kernels.Rows.of([message[:p] for message in messages], p, messages[0].dtype)

        def call():
            kernels.combine(kernels.PACKED, rows, vector, out)
    else:
        given, checked = messages if stacked is None else stacked, "checked" in form

        def call():
            code.decode(survivors, given, out=out, check_finite=checked)

    benchmark.group = f"decode, f={F} p={p} {np.dtype(dtype).name}"
    reader = Reader(messages, (F + 1) * messages[0].nbytes)
    read = in_turns(benchmark, call, reader, 3 * REPEATS[p])

    few = slice(0, 100)
    pairs = np.array([message[few].astype(float) for message in messages]).view(complex)
    truth = (vector.astype(np.clongdouble) @ pairs.astype(np.clongdouble)).astype(complex)
    truth = truth.view(float)
    note(
        what=f"decode {form}, p={p} {np.dtype(dtype).name}",
        bytes=F * messages[0].nbytes,
        read_seconds=read,
        against=rivals.best,
        against_seconds=rivals.again(),
        numpy_forms=rivals.times,
        error=float(np.abs(out[few] - truth).max() / np.abs(truth).max()),
    )
