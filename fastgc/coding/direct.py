"""Encoding and decoding of what nearly every call brings, prepared for others like it.

That is: contiguous arrays that fit, in one or separate, and an `out` apart from them, of formats
that one combination goes through. All else, what is wrong included, is for those who ask here
first: they are told None, and nothing was written that may not be then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import kernels
from .cache import VectorFunction
from .decoding import message_format
from .format import Format
from .scheme import FORMATS_KEPT, Scheme

__all__ = ["combinations", "decode_directly", "encode_directly", "output", "prepare_encoding"]


class _Decoding(NamedTuple):
    """What is prepared for messages of one format, in one thread."""

    survivors: memoryview  # what `fill` reads
    fill: VectorFunction
    run: kernels.Combinations
    dtype: np.dtype[Any]  # of gradients
    shape: tuple[int, ...]


def combinations(form: Format, coef: NDArray[Any], check: bool) -> kernels.Combinations | None:
    """What combines messages by these coefficients; None if that takes more than one pass."""
    if form.scaled or form.paired or form.pieces > 1 or form.decoded_dtype != form.gradient_dtype:
        return None
    mode, message, gradient = form.decode_mode, form.message_dtype, form.gradient_dtype
    return _bind(form, mode, coef, (message, form.length), (gradient, form.gradient_size), check)


def _bind(
    form: Format,
    mode: int,
    coef: NDArray[Any],
    row: tuple[np.dtype[Any], int],
    out: tuple[np.dtype[Any], int],
    check: bool = False,
) -> kernels.Combinations:
    """Combinations of arrays of a dtype and size to one of another."""
    (dtype, length), (_, size) = (
        (reals, count * kind.itemsize // reals.itemsize)
        for kind, count in (row, out)
        for reals in [form.reals(np.empty(0, kind), mode).dtype]
    )
    return kernels.bind_apart(mode, coef, length, dtype, size, check)


def output(out: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """`out` if results can be written to it as it is, a new array for None; else None."""
    if out is None:
        return np.empty(shape, dtype)
    if type(out) is np.ndarray and out.dtype is dtype and out.shape == shape and out.flags.carray:
        return out
    return None


def decode_directly(
    code: Scheme,
    survivors: NDArray[np.int64],
    messages: Any,
    out: Any,
    p: Any,
    method: str,
    check_finite: bool,
) -> NDArray[Any] | None:
    """`Code.decode` of checked survivors, or None; errors are as there."""
    f = survivors.size
    stacked = type(messages) is np.ndarray
    if stacked:
        if messages.ndim != 2 or not messages.flags.c_contiguous:
            return None
        dtype, length = messages.dtype, messages.shape[1]
    elif type(messages) is list and messages and type(messages[0]) is np.ndarray:
        dtype, length = messages[0].dtype, messages[0].size
    else:
        return None
    if len(messages) != f or not 0 < f <= code.message_count:
        return None
    if out is None:
        size = p
        if not (p is None or type(p) is int):
            return None
    else:
        if p is not None or type(out) is not np.ndarray:
            return None
        size = out.size
    own, key = code._thread_own, (kernels.choice.active, dtype, length, size, check_finite)
    try:
        found = own.direct[key]
    except (AttributeError, KeyError):
        found = _prepare_decoding(code, messages[0], size, key)
    if found is None:
        return None
    buffer, fill, run, kind, shape = found
    if (target := output(out, kind, shape)) is None:
        return None
    buffer[:f] = survivors
    fill(f, method)
    combine = run.stacked if stacked else run.objects
    return None if combine(messages, target, f) else target


def _prepare_decoding(
    code: Scheme, message: NDArray[Any], size: int | None, key: tuple[Any, ...]
) -> _Decoding | None:
    """What `decode_directly` needs for messages like this one, or None; kept for the thread."""
    form = message_format(code, message, None, size)
    own = code._thread_own
    active = kernels.choice.active or kernels.choice.load()
    if getattr(own, "backend", None) is not active or form.unit not in own.bound:
        code._bind_own(own, form.unit)
    _, survivors, vector, fill = own.bound[form.unit]
    run = None if code.gated else combinations(form, vector, bool(key[-1]))
    found = None
    if run is not None:
        found = _Decoding(survivors, fill, run, form.gradient_dtype, (form.gradient_size,))
    known = vars(own).setdefault("direct", {})
    if len(known) >= FORMATS_KEPT:
        known.clear()
    known[key] = found
    return found


class _Encoding(NamedTuple):
    """What is prepared for messages of one worker, from partial gradients of one format."""

    run: kernels.Combinations
    dtype: np.dtype[Any]  # of messages
    shape: tuple[int, ...]


def encode_directly(
    code: Scheme, worker: Any, partials: Any, out: Any, index: Any, message_dtype: Any
) -> NDArray[Any] | None:
    """`Code.encode`, or None; raises nothing."""
    if type(worker) is not int or type(index) is not int:
        return None
    if type(partials) is np.ndarray:
        if partials.ndim != 2 or not partials.flags.c_contiguous:
            return None
        dtype, length = partials.dtype, partials.shape[1]
    elif type(partials) is list and partials and type(partials[0]) is np.ndarray:
        dtype, length = partials[0].dtype, partials[0].size
    else:
        return None
    count = len(partials)
    try:
        key = kernels.choice.active, worker, index, count, dtype, length, message_dtype
        run, kind, shape = code._made_encodings[key]
    except (KeyError, TypeError):  # the latter: of what is no dtype
        return None
    if (message := output(out, kind, shape)) is None:
        return None
    combine = run.objects if type(partials) is list else run.stacked
    return None if combine(partials, message, count) else message


def prepare_encoding(
    code: Scheme,
    worker: int,
    index: int,
    message_dtype: DTypeLike | None,
    coef: NDArray[Any],
    form: Format,
) -> None:
    """Let `encode_directly` know what was found out of a worker's partial gradients."""
    plain = form.sum_dtype == form.message_dtype and form.row_dtype == form.partial_dtype
    # rows whose coefficient is 0 would not be read, and what they hold not be found
    if not plain or form.scaled or form.paired or form.pieces > 1 or not coef.all():
        return
    row, message = (form.partial_dtype, form.gradient_size), (form.message_dtype, form.message_size)
    run = _bind(form, form.encode_mode, np.ascontiguousarray(coef), row, message)
    known = code._made_encodings
    if len(known) >= FORMATS_KEPT:
        known.clear()
    key = kernels.choice.active, worker, index, len(coef), *row, message_dtype
    known[key] = _Encoding(run, form.message_dtype, (form.message_size,))
