"""What a master and its worker processes tell each other in shared memory."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from .._cffi import ffi, lib
from ..rings import RingArrays, RingCalls
from .decoding import pointed_to

__all__ = ["bind_rings"]

FUTEX = sys.platform == "linux"


def bind_rings(arrays: RingArrays, bell: int) -> RingCalls | None:
    """See `fastgc.kernels.Rings`; None where processes cannot sleep on a word they share."""
    if not FUTEX:
        return None
    given = {
        name: ffi.from_buffer("int64_t[]", getattr(arrays, name))
        for name in ("newest", "orders", "wanted", "news")
    }
    capacity = arrays.capacity
    rings = ffi.new("fgc_rings *", {"workers": len(arrays.orders), "capacity": capacity, **given})
    pointed_to[rings] = given
    taken = ffi.from_buffer("int64_t[]", arrays.taken)
    found, out = arrays.found, ffi.from_buffer("fgc_news[]", arrays.found)
    hand_out, look, look_again = lib.fgc_rings_hand, lib.fgc_rings_take, lib.fgc_rings_want

    def hand(
        workers: list[int], first: list[int], delay: list[float], round: int, buffer: int
    ) -> None:
        hand_out(rings, workers, first, delay, round, buffer, len(workers))

    def tell(worker: int, round: int, index: int, energy: float) -> None:
        lib.fgc_rings_tell(rings, worker, round, index, energy, bell)

    def take() -> list[Any]:
        return found[: look(rings, taken, out, found.size)].tolist()  # type: ignore[no-any-return]

    def want(count: int) -> list[Any]:
        number = look_again(rings, taken, out, found.size, count)
        return found[:number].tolist()  # type: ignore[no-any-return]

    admit, wait = partial(lib.fgc_rings_admit, rings), partial(lib.fgc_rings_wait, rings)
    return RingCalls(hand, admit, wait, tell, take, want)
