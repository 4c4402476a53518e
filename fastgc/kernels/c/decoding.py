"""Decoding vectors and streams of cyclic codes, and the bits of sets of survivors."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from .._cffi import ffi, lib
from ..cyclic import Polar, StreamCalls
from .structs import struct_of

__all__ = [
    "bind_decoding_vector",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "decoding_vectors",
]


def plan_struct(plan):
    """The plan's tables as C knows them, made once."""
    if plan.c is None:
        sizes = {"workers": plan.workers, "blocks": len(plan.tables.q)}
        plan.c = struct_of("fgc_cyclic", **plan.tables._asdict(), **sizes)
    return plan.c


def work_space(plan):
    """Memory that decoding vectors are put together in."""
    return ffi.from_buffer(np.empty(plan.workers * lib.FGC_WORK, dtype=np.uint8))


def bind_decoding_vector(plan, survivors, out, longest=math.inf):
    struct = plan_struct(plan)
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    where = ffi.new("int64_t *")
    # a partial adds no Python frame to the call
    decode = partial(
        lib.fgc_decoding_vector, struct, survivors_, out_, where, work_space(plan), longest
    )
    return decode, where


def bind_polar(plan, survivors, present, size, out):
    struct, where = plan_struct(plan), ffi.new("int64_t *")
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    present_ = ffi.from_buffer("unsigned char[]", present, require_writable=True)
    size_ = ffi.from_buffer("double[]", size)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return Polar(
        partial(lib.fgc_mark, struct, survivors_, present_, where),
        partial(
            lib.fgc_polar_vector, struct, survivors_, present_, size_, out_, where, work_space(plan)
        ),
        where,
    )


def bind_stream(plan, stream):
    structs = plan_struct(plan), struct_of("fgc_stream", **stream._asdict())
    where, work = ffi.new("int64_t *"), work_space(plan)

    def vector(survivors, out):
        survivors_ = ffi.from_buffer("int64_t[]", survivors)
        out_ = ffi.from_buffer("double[]", out, require_writable=True)
        return lib.fgc_stream_vector(*structs, survivors_, out_, where, work, survivors.size)

    return StreamCalls(
        partial(lib.fgc_stream_rebuild, *structs, work),
        partial(lib.fgc_stream_leave, *structs),
        partial(lib.fgc_stream_join, *structs),
        vector,
        where,
    )


def decoding_vectors(plan, masks, method, out, where, longest=math.inf):
    status = lib.fgc_decoding_vectors(
        plan_struct(plan),
        ffi.from_buffer("unsigned char[]", masks, require_writable=True),
        ffi.from_buffer("double[]", out, require_writable=True),
        ffi.from_buffer("int64_t[]", where, require_writable=True),
        longest,
        method,
        len(masks),
    )
    if status:
        raise MemoryError


def bind_survivor_mask(n, survivors, bits):
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    bits_ = ffi.from_buffer("uint8_t[]", bits, require_writable=True)
    return partial(lib.fgc_survivor_mask, n, survivors_, bits_)
