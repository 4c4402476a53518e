"""Trust in a decoded gradient, in plain Python."""

import math

import numpy as np

from fastgc._base.arrays import is_half, least_number, unit_roundoff
from fastgc.coding.trust import OFF, _missing
from fastgc.kernels.rows import DOUBLE, ROUNDING, sums_of

FLOAT64 = np.dtype(np.float64)


def sums(precision, vector, survivors, norms, energies):
    """Terms, the vector's squared norm, and norms of the messages in the sum: see csrc/trust.c."""
    used = vector != 0
    sizes, number = np.abs(vector[used]) ** 2, survivors[used]
    norms, energies, rows = norms[used], energies[used], precision.row_norms[number]
    same = number if precision.copies is None else precision.copies[number]

    def total(squares):
        return sum(np.sqrt(squares[same == which]).sum() ** 2 for which in set(same.tolist()))

    known = (rows > 0) & (rows < np.inf)
    shares = np.where(np.isnan(energies), norms, energies)[known] / rows[known]
    scatter = shares.mean() if known.any() else np.inf
    aligned = np.sqrt(sizes * norms).sum()
    return used.sum(), sizes.sum(), total(sizes * norms), total(sizes * energies), aligned, scatter


def rounding(scheme, form, terms, amplified, inside, aligned, copied):
    """Expected square of the rounding errors."""
    message, each = unit_roundoff(form.message_dtype), unit_roundoff(form.sum_dtype)
    half, added = is_half(form.message_dtype), scheme.load / scheme.messages.per_worker
    total = unit_roundoff(np.dtype(np.float32 if half else np.float64))
    told, inner = inside >= 0, min(total, each)
    larger = max(amplified, inside) if told else amplified
    walks = [
        (inner, scheme.precision.message_roundings, 1, larger),
        (total, sums_of(terms), 1 / 3, 1),
        (total, 1, 1, 1),
    ]
    if inner < total:
        walks.append((total, 1, 1, amplified))
    if told and not copied:
        common = max(amplified - inside, 0) * added / max(added - 1, 1)
        random = max(inside - common / max(added, 1), 0)
        partial = common * (added / 3 + 1) + random * (added / 2 + 1)
        walks.append((each, added, 1 / 3, partial / added))
    if message > total:
        groups = [terms] if copied or told else [terms, added]
        walks += [(message, 1 + (min(many, 8) + 1) / 2, ROUNDING, amplified) for many in groups]
        if half:
            walks = walks[: -len(groups)]
        if not copied:
            walks.append((message, 1, ROUNDING, amplified))
    if unit_roundoff(form.gradient_dtype) > total:
        walks.append((unit_roundoff(form.gradient_dtype), 1, ROUNDING, 1))
    squared = sum(unit**2 * count * mean * size for unit, count, mean, size in walks)
    most = sum(unit * count * math.sqrt(size) for unit, count, _, size in walks)
    if amplified:
        squared = max(squared, (most / OFF * aligned / math.sqrt(amplified)) ** 2)
    coded = larger * scheme.precision.data_roundings
    return squared + unit_roundoff(form.partial_dtype) ** 2 * coded


def underflow(scheme, form, square, terms):
    """Expected square of what underflow loses."""
    lost = scheme.load * form.least**2 * square
    if form.message_dtype != form.sum_dtype:
        lost += least_number(form.message_dtype) ** 2 * square
    lost += terms * least_number(form.decoded_dtype) ** 2
    if form.decoded_dtype != form.gradient_dtype:
        lost += least_number(form.gradient_dtype) ** 2
    return lost * form.gradient_size * (2 if form.gradient_dtype.kind == "c" else 1) / 3


def trust(scheme, form, vector, survivors, squares=None, energies=None, zero=False):
    """The relative error and the growth."""
    precision, f = scheme.precision, survivors.size
    size, norms, told = 1.0, precision.row_norms[survivors], np.full(f, np.nan)
    if squares is not None:
        size, norms = squares[f], squares[:f]
        told = energies[:f].copy()
        told += 0 if zero else least_number(FLOAT64) * scheme.load * form.message_size
    terms, square, spread, inside, aligned, scatter = sums(
        precision, vector, survivors, norms, told
    )
    if squares is not None and not (size > 0 and math.isfinite(size + spread)):
        return (0.0, 0.0) if zero and not inside > 0 else (math.inf, math.inf)
    amplified, inside = spread / size, inside / size
    if not amplified < math.inf or inside == math.inf:
        return math.inf, math.inf
    rows = precision.row_norms[survivors[vector != 0]]
    copied = scheme.load == scheme.messages.per_worker
    copied &= not scheme.is_complex and not scheme.data.coded
    copied &= unit_roundoff(form.message_dtype) <= unit_roundoff(form.partial_dtype)
    copied &= bool((abs(rows * scheme.k - 1) < 4 * DOUBLE).all())
    along = 0.0 if squares is None else aligned / math.sqrt(size)
    squared = rounding(scheme, form, terms, amplified, inside, along, copied)
    wrong = precision.left_out(survivors, vector)
    if squares is not None and 0 < wrong < math.inf:
        wrong = _missing(scheme, wrong, scatter / size)
    if (errors := precision.vector_errors(survivors, vector)) is not None:
        squared += errors @ np.where(vector != 0, norms / size, 0)
    if squares is not None:
        squared += underflow(scheme, form, square, terms) / size
    growth = max(amplified, inside) if inside >= 0 else amplified
    return math.hypot(math.sqrt(squared), wrong), math.sqrt(growth)
