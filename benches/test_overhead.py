"""The time between a call from Python and its kernels, layer by layer, and the gain by a cache.

n = 80, f = 68, float64. The kernels are those of C, called through cffi with prepared pointers.
"""

from math import inf

import numpy as np
import pytest
from measure import receiving

import fastgc
from fastgc import kernels

pytestmark = pytest.mark.skipif("c" not in fastgc.backends(), reason="no extension")

N, S = 80, 12
F = N - S
LAYERS = {
    "decoding vector": ["kernel", "bound kernel", "decoder", "decoding_vector"],
    "decode": [
        "kernels",
        "bound kernels",
        "bound decoder",
        "bound decoder, unchecked",
        "Round.gradient",
        "decode, one array",
        "decode, separate arrays",
        "np.matmul, the vector given",
    ],
    "encode": [
        "kernel",
        "kernels.combine",
        "bound encoder",
        "encode, one array",
        "encode, separate arrays",
        "streaming encoder",
    ],
    "round": ["kernels", "messages taken", "and the gradient"],
}


def aligned(array):
    """Return a copy that begins on a cache line; others cost a kernel up to 1.3 times the time."""
    room = np.empty(array.size + 8)
    first = -room.ctypes.data % 64 // 8
    copy = room[first : first + array.size].reshape(array.shape)
    copy[:] = array
    return copy


def calls(p):
    """Return every layer of every verb, on the same messages; a verb's kernels come first."""
    from fastgc.kernels._cffi import ffi, lib

    from fastgc.kernels.c import calls

    code, rng = fastgc.ReedSolomon(N, stragglers=S), np.random.default_rng(0)
    survivors = np.sort(rng.permutation(N)[:F])  # sorted: all layers read memory in the same order
    messages, gradient = aligned(rng.standard_normal((N, p))), np.empty(p)
    stacked = aligned(messages[survivors])
    separate = list(map(aligned, stacked))
    vector, decoder = np.empty(F, complex), code.decoder()
    plan, where = calls.plan_struct(code.scheme._plan), ffi.new("int64_t *")
    work = calls.work_space(code.scheme._plan)
    numbers_, vector_ = (
        ffi.from_buffer(kind, array)
        for kind, array in (("int64_t[]", survivors), ("double[]", vector))
    )

    def decoding_vector():
        lib.fgc_decoding_vector(plan, numbers_, vector_, where, work, inf, lib.FGC_SPREAD, F)

    def combination(rows, coef, out):
        listed = kernels.Rows.of(rows, p, rows.dtype)
        rows_ = ffi.from_buffer("uintptr_t[]", listed.addresses)
        coef_, out_ = ffi.from_buffer("double[]", coef), ffi.from_buffer("double[]", out)
        size = p + p % 2

        def combine():
            lib.fgc_combine_double(
                kernels.PACKED, rows_, coef_, len(rows), size, p, p, lib.FGC_CHECK, out_
            )

        return listed, combine

    _, combine = combination(stacked, vector, gradient)

    def both():
        decoding_vector()
        combine()

    table = kernels.Rows.of(messages, p, messages.dtype)
    numbers = survivors.copy()
    run, _ = kernels.unchecked.bind_decoding_vector(code.scheme._plan, numbers, vector)
    combine_chosen = kernels.unchecked.bind_combine(
        kernels.PACKED, table, numbers, vector, gradient, check=True
    )

    def bound_kernels():
        run(kernels.unchecked.SPREAD, F)
        combine_chosen(F)

    bound, unchecked = (code.bind(messages, gradient, check_finite=c) for c in (True, False))
    rnd = code.round(p)
    for worker, message in zip(survivors.tolist(), separate, strict=True):
        rnd.receive(worker, message)
    arriving = code.round(p)

    take = receiving(arriving, numbers, separate)

    def whole():
        take()
        arriving.gradient(gradient)

    real = rng.standard_normal(F)
    partials, message = rng.standard_normal((code.load, p)), np.empty(code.message_size(p))
    each, coef = [row.copy() for row in partials], code.coefficients(3)
    rows, encode = combination(partials, coef, message)
    encoder, held = code.encoder(3, p, out=message.copy()), code.partitions(3).tolist()

    def stream():
        encoder.reset()
        for partition, partial in zip(held, each, strict=True):
            encoder.add(partition, partial)
        encoder.message()

    return {
        "decoding vector": [
            decoding_vector,
            lambda: run(kernels.unchecked.SPREAD, F),
            lambda: decoder(survivors),
            lambda: code.decoding_vector(survivors),
        ],
        "decode": [
            both,
            bound_kernels,
            lambda: bound(survivors),
            lambda: unchecked(survivors),
            lambda: rnd.gradient(gradient),
            lambda: code.decode(survivors, stacked, gradient),
            lambda: code.decode(survivors, separate, gradient),
            lambda: np.matmul(real, stacked, out=gradient),
        ],
        "encode": [
            encode,
            lambda: kernels.combine(kernels.PACKED, rows, coef, message),
            code.bind_encoder(3, partials, message),
            lambda: code.encode(3, partials, message),
            lambda: code.encode(3, each, message),
            stream,
        ],
        "round": [both, take, whole],
    }


@pytest.mark.parametrize("p", [10, 128, 640])
@pytest.mark.parametrize(
    ("verb", "layer"), [(verb, layer) for verb in LAYERS for layer in LAYERS[verb]]
)
def test_layer(benchmark, note, verb, layer, p):
    with fastgc.use_backend("c"):
        every = calls(p)  # keeps alive the arrays to which pointers point
        call = every[verb][LAYERS[verb].index(layer)]
        benchmark.group = f"overhead, {verb}, p={p}"
        benchmark.pedantic(call, rounds=200, iterations=100, warmup_rounds=5)
    note(verb=verb, layer=layer, p=p)


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
@pytest.mark.parametrize("way", ["computed", "a hit", "a new set"])
@pytest.mark.parametrize(("n", "s"), [(80, 12), (1024, 128), (16384, 2048)])
def test_cache(benchmark, note, n, s, way):
    """Time a decoder, with the same survivors in another order, or with other survivors."""
    code = fastgc.ReedSolomon(n, stragglers=s)
    if code.scheme.cache is None and way != "computed":
        pytest.skip("this code keeps no vectors: computing one is as fast")
    rng, decoder = np.random.default_rng(0), code.decoder()
    sets = [rng.permutation(n)[: n - s] for _ in range(64)]
    if way == "a hit":
        sets = [rng.permutation(sets[0]) for _ in range(64)]
        for _ in range(2):
            decoder(sets[0])
    elif code.scheme.cache is not None and way == "computed":
        code.scheme.cache.nbytes = 0
    turn = iter(range(1 << 60))

    def call():
        at = next(turn) % 64
        if at == 0 and way == "a new set":
            code.scheme.cache.clear()
        decoder(sets[at])

    benchmark.group = f"cache, n={n} s={s}"
    benchmark.pedantic(call, rounds=128, warmup_rounds=2)
    note(cached=way, n=n, s=s)
