"""Encoding and decoding at the limit of memory: bytes per second beside those of plain reading.

Working sets are larger than 1 GB, and every case is timed in turns with a reader of the same rows
on as many threads. Bytes counted are those of the rows, read once, and of the result, written, and
read if it is added to. Reading a cache line before it is overwritten is not counted.
"""

import numpy as np
import pytest
from measure import Reader, Rivals, in_turns, multiply_add, receiving

import fastgc
from fastgc import kernels
from fastgc.kernels import threads

try:
    import torch
except ImportError:
    torch = None

N, S = 80, 12
F, W = N - S, S + 1
BYTES, P, ROUNDS = 1.1e9, 10**6, 7
_rivals = {}  # the best form for each case, and its time, for any number of threads
CORES = threads.get_num_threads()
THREADS = dict.fromkeys((1, CORES))  # a single entry on one core

# For each case: number of rows, their relation to the result, and their shift in elements.
KINDS = {
    "decode, packed": (F, kernels.PACKED, 0),
    "decode, packed, one array": (F, kernels.PACKED, 0),
    "decode, packed, odd and shifted": (F, kernels.PACKED, 1),
    "decode, complex messages": (F, kernels.REAL_PART, 0),
    "decode, real code": (F, kernels.REAL, 0),
    "encode, packed": (W, kernels.PACKED, 0),
    "encode, complex messages": (W, kernels.EXPAND, 0),
    "encode, real code": (W, kernels.REAL, 0),
    "encoder.add, packed": (1, kernels.PACKED, 0),
}


@pytest.fixture
def set_threads():
    yield threads.set_num_threads
    threads.set_num_threads(CORES)


def filled(shape):
    """Return numbers that are ordinary as float64 and as float32."""
    array = np.empty(shape, np.float64)
    pattern = np.random.default_rng(0).uniform(1, 2, 1 << 15).astype(np.float32).view(np.float64)
    flat = array.reshape(-1)
    for at in range(0, flat.size, pattern.size):
        flat[at : at + pattern.size] = pattern[: flat.size - at]
    return array


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    count, mode, shift = KINDS[request.param]
    # The encoder adds to another vector of as many bytes as its gradient.
    length = int(BYTES / 8 / max(count, 2)) // 2048 * 2048
    stacked = request.param.endswith("one array")
    rows = filled((count, length)) if stacked else [filled(length) for _ in range(count)]
    return request.param, mode, shift, rows


def rivals_of(what, mode, rows, coef, out):
    """Return forms of NumPy and PyTorch for the same rows."""
    dtype = coef.dtype
    whole = mode in (kernels.REAL, kernels.EXPAND)
    views = [row if whole else row[: row.size // 2 * 2].view(dtype) for row in rows]
    if what.startswith("encoder"):
        total, scaled = out.view(dtype), np.empty_like(views[0])
        found = {"multiply, add": lambda: np.add(total, np.multiply(views[0], coef, scaled), total)}
    else:
        total = np.empty(views[0].size, dtype)
        found = {"multiply, add by blocks": multiply_add(coef, views, total, 8192)}
    if isinstance(rows, np.ndarray):
        matrix = rows.view(dtype)
        found["matmul"] = lambda: np.matmul(coef, matrix, out=total)
        if torch is not None:
            tensors = torch.from_numpy(coef), torch.from_numpy(matrix)
            found["torch.matmul"] = lambda: torch.matmul(*tensors)
    return Rivals(found, 1)


@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda v: v.__name__)
def test_kernel(benchmark, note, case, dtype, count, set_threads):
    """Time the kernel behind `decode`, `encode` and an encoder, on rows in memory."""
    what, mode, shift, rows = case
    rows = rows.view(dtype) if isinstance(rows, np.ndarray) else [r.view(dtype) for r in rows]
    rows = [row[shift:] for row in rows] if shift else rows
    wide, rng = np.result_type(dtype, np.complex64), np.random.default_rng(0)
    coef, size = rng.standard_normal(len(rows)), rows[0].size
    if mode != kernels.REAL:
        coef = coef + 1j * rng.standard_normal(len(rows))
    if mode == kernels.REAL_PART:
        size //= 2
    out = np.zeros(size, wide if mode == kernels.EXPAND else dtype)
    given = kernels.Rows.of(rows, size, wide if mode == kernels.REAL_PART else np.dtype(dtype))
    adding = len(rows) == 1

    set_threads(count)
    if (what, dtype) not in _rivals:
        like = coef.astype(dtype if mode == kernels.REAL else wide)
        rivals = rivals_of(what, mode, rows, like, out)
        _rivals[what, dtype] = rivals.best, rivals.times[rivals.best]
    other, other_seconds = _rivals[what, dtype]
    read_rows = sum(row.nbytes for row in rows)
    # A single row is read fastest at four places at once.
    streams = rows if len(rows) > 1 else list(rows[0].reshape(4, -1))
    reader = Reader(streams, read_rows)
    benchmark.group = f"roofline, {np.dtype(dtype).name}, {count} threads"
    read = in_turns(
        benchmark, lambda: kernels.combine(mode, given, coef, out, adding), reader, ROUNDS
    )
    note(
        roofline=f"{what}, {np.dtype(dtype).name}",
        threads=count,
        bytes=read_rows + (1 + adding) * out.nbytes,
        read_per_byte=read / read_rows,
        other=other,
        other_seconds=other_seconds,
    )


@pytest.fixture(scope="module")
def messages():
    """Return packed messages in buffers, and times of NumPy and PyTorch for unpacked ones."""
    code = fastgc.ReedSolomon(N, stragglers=S)
    survivors = np.sort(np.random.default_rng(0).permutation(N)[:F])
    vector, total = code.decoding_vector(survivors), np.empty(P, complex)
    whole = filled((F, 2 * P)).view(complex)
    buffers, room = list(whole), np.empty_like(whole)
    forms = {
        "one array, matmul": lambda: np.matmul(vector, whole, out=total).real,
        "buffers, stack, matmul": lambda: np.matmul(vector, np.stack(buffers, out=room)).real,
        "buffers, multiply, add": multiply_add(vector, buffers, total),
        "buffers, multiply, add by blocks": multiply_add(vector, buffers, total, 8192),
    }
    if torch is not None:
        tensors = torch.from_numpy(vector), torch.from_numpy(whole)
        forms["one array, torch.matmul"] = lambda: torch.matmul(*tensors).real
    return code, survivors, [filled(P) for _ in range(F)], Rivals(forms, 3).times


@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("what", ["decode", "round", "round, unchecked", "round, once all came"])
def test_round(benchmark, note, messages, what, count, set_threads):
    """Time messages in buffers to a gradient, against unpacked messages to one of equal length.

    A round that checks messages reads each one a second time, when it comes, for its norm.
    """
    code, survivors, packed, forms = messages
    set_threads(count)
    rnd, out = code.round(P, check_finite="unchecked" not in what), np.empty(P)

    receive = receiving(rnd, survivors, packed)

    def both():
        receive()
        rnd.gradient(out)

    receive()
    call = {
        "decode": lambda: code.decode(survivors, packed, out=out),
        "round": both,
        "round, unchecked": both,
        "round, once all came": lambda: rnd.gradient(out),
    }[what]
    benchmark.group = "round, from buffers to the gradient"
    benchmark.pedantic(call, rounds=ROUNDS, warmup_rounds=1)
    note(from_buffers=what, threads=count, forms=forms)
