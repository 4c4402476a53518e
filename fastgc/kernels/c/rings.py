"""What a master and its worker processes tell each other in shared memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..arrivals import Arrivals
from ..rings import RingArrays, RingCalls
from ..rows import address
from .structs import struct_of

__all__ = ["bind_rings"]

Array = NDArray[Any]

FUTEX = sys.platform == "linux"


def bind_rings(arrays: RingArrays, bell: int) -> RingCalls | None:
    """See `fastgc.kernels.Rings`; None where processes cannot sleep on a word they share."""
    if not FUTEX:
        return None
    shared = {name: getattr(arrays, name) for name in ("newest", "orders", "wanted", "news")}
    sizes = {"workers": len(arrays.orders), "capacity": arrays.capacity}
    rings = struct_of("fgc_rings", **shared, **sizes)
    taken = ffi.from_buffer("int64_t[]", arrays.taken)
    found, out = arrays.found, ffi.from_buffer("fgc_news[]", arrays.found)
    hand_out, take_all, take_more = lib.fgc_rings_hand, lib.fgc_rings_take, lib.fgc_rings_want

    def hand(
        workers: list[int], first: list[int], delay: list[float], round: int, buffer: int
    ) -> None:
        hand_out(rings, workers, first, delay, round, buffer, len(workers))

    def take() -> list[Any]:
        return found[: take_all(rings, taken, out, found.size)].tolist()  # type: ignore[no-any-return]

    def want(count: int) -> list[Any]:
        number = take_more(rings, taken, out, found.size, count)
        return found[:number].tolist()  # type: ignore[no-any-return]

    last: tuple[Any, ...] = ()  # what was gathered into, and what C knows that by

    def gather(
        arrivals: Arrivals, slots: Sequence[Array], files: int, heard: int, seconds: float
    ) -> list[Any]:
        nonlocal last
        if not last or last[0] is not arrivals or last[1] is not arrivals.when:
            last = arrivals, arrivals.when, _intake(arrivals, slots, files, heard)
        start, before = arrivals.start, arrivals.count
        left = lib.fgc_rings_gather(rings, taken, out, found.size, last[2], start, seconds)
        if arrivals.count > before:
            arrivals.pending, arrivals.slots = True, slots
        return found[:left].tolist() if left else []

    def look(files: int, heard: int) -> list[Any] | None:
        number = lib.fgc_rings_look(rings, taken, out, found.size, files, heard)
        return found[:number].tolist() if number > 0 else [] if number == 0 else None

    admit, wait = partial(lib.fgc_rings_admit, rings), partial(lib.fgc_rings_wait, rings)
    tell = partial(lib.fgc_rings_tell, rings, bell)
    return RingCalls(hand, admit, wait, tell, take, want, gather, look)


def _intake(arrivals: Arrivals, slots: Sequence[Array], files: int, heard: int) -> Any:
    return struct_of(
        "fgc_intake",
        when=arrivals.when,
        slots=ffi.from_buffer("char[]", slots[0]),
        arrivals=arrivals.c,
        stride=address(slots[1]) - address(slots[0]) if len(slots) > 1 else 0,
        least=arrivals.least,
        once=arrivals.once,
        files=files,
        bell=heard,
    )
