"""Linear combinations of long vectors, their norms and hashes."""

from types import SimpleNamespace

import numpy as np

from fastgc.kernels import Status
from fastgc.kernels.rows import LARGEST_GROUP, PACKED, REAL_PART


def combine(mode, rows, coef, out, accumulate=False, check=False):
    """Compute ``out = sum_r coef[r] * rows[r]``, or ``out +=`` that."""
    size = (max(rows.length, out.size) + 1) // 2 if mode == PACKED else rows.length
    total = np.zeros(size, np.result_type(coef, out))
    scaled, group = np.empty_like(total), np.zeros_like(total)
    with np.errstate(over="ignore", invalid="ignore"):
        for r, (a, row) in enumerate(zip(coef, rows.arrays, strict=False), 1):
            if mode == PACKED:
                whole = row.size // 2
                wide = row.astype(total.real.dtype, copy=False)
                np.multiply(wide[: 2 * whole].view(total.dtype), a, out=scaled[:whole])
                scaled[whole:] = a * wide[2 * whole] if row.size % 2 else 0
            else:
                np.multiply(row.astype(np.result_type(row, np.float64), copy=False), a, out=scaled)
            group += scaled
            if r % LARGEST_GROUP == 0 or r == coef.size:
                total += group
                group[:] = 0
        if mode == PACKED:
            result = total.view(total.real.dtype)[: out.size]
        else:
            result = total.real if mode == REAL_PART else total
        np.copyto(out, out + result if accumulate else result, casting="same_kind")
    return not check or bool(np.isfinite(out).all())


def bind_combine(mode, rows, numbers, coef, out, accumulate=False, check=False):
    """Prepare `combine` of rows with these numbers; those whose coefficient is 0 are not read."""

    def run(count):
        used = np.flatnonzero(coef[:count])
        arrays = [rows.arrays[i] for i in numbers[used]]
        chosen = SimpleNamespace(arrays=arrays, length=rows.length)
        finite = combine(mode, chosen, coef[used], out, accumulate, check)
        return Status.OK if finite else Status.NOT_FINITE

    return run


def square_sum(x):
    """Sum of squares of a real vector, in double precision; not finite if `x` is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(x, dtype=np.promote_types(x.dtype, np.float64)).sum())


def bind_square_sum(x):
    """Prepare `square_sum` of a vector that is read at each call."""
    return lambda: square_sum(x)


def to_halves(x, out):
    """Round a vector to float16, each number once; an overflow becomes Inf."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(x, 1, out=out, casting="same_kind")  # as computing does, it makes NaN quiet


def hash_words(words, keys, out):
    """Hash each block of k words to one word, by the family NH with k random keys."""
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    for at in range(out.size):
        block = words[at * keys.size : (at + 1) * keys.size]
        key = keys[: block.size]
        low = ((block & mask) + (key & mask)) & mask
        high = ((block >> half) + (key >> half)) & mask
        out[at] = (low * high).sum(dtype=np.uint64)


def hash_and_scale(x, factor, keys, product, out):
    """Hash the bits of a vector as `hash_words` does, and compute ``product = x * factor``."""
    octets = np.zeros(-(-x.nbytes // 8) * 8, dtype=np.uint8)
    octets[: x.nbytes] = x.view(np.uint8)
    hash_words(octets.view(np.uint64), keys, out)
    by = x.dtype.type(factor)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(x, by, out=product)
    if by == 0:
        product.fill(0)
