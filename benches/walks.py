"""Count the modules that a value goes through: how far a reader has to walk to follow it.

    python benches/walks.py           # a table
    python benches/walks.py --show    # and the functions, in the order of their calls

Each call is made three times; the last one is followed. A function counts when it is first called
with the value, or an array equal to it, as an argument, so that a loop counts as one turn of it. A
*stay* is a run of such functions in one module. A *return* is a stay in a module that was left
before. What C does is not seen.

The script follows the fastgc that its interpreter imports: run it with another one's Python, in
another folder, to compare.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import fastgc
from fastgc.engines import LocalCluster

ROOT = Path(fastgc.__file__).parent
N, STRAGGLERS, P = 16, 4, 50

Call = Callable[[], object]


def same(given: Any, value: Any) -> bool:
    """Whether this is the value, or an array or list of the same numbers."""
    if given is value or not isinstance(given, list | np.ndarray) or not np.ndim(given):
        return given is value
    return len(given) == len(value) and np.array_equal(given, value)


def carries(frame: FrameType, value: object) -> bool:
    """Whether a function has got the value as an argument."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return any(same(frame.f_locals.get(name), value) for name in code.co_varnames[:count])


def followed(call: Call, value: object) -> list[tuple[str, str]]:
    """Return the functions that get the value while a call is made, as (module, name)."""
    found: dict[tuple[str, str], None] = {}

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        ours = event == "call" and ROOT in path.parents and not code.co_name.startswith("<")
        if ours and carries(frame, value):
            found[str(path.relative_to(ROOT).with_suffix("")), code.co_name] = None

    call(), call()
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


def walks() -> Iterator[tuple[str, Call, object]]:
    """Yield what is followed, a call, and the value."""
    rng = np.random.default_rng(0)
    code = fastgc.ReedSolomon(N, stragglers=STRAGGLERS)
    partials = rng.standard_normal((code.k, P))
    encoded = np.stack([code.encode(w, partials[list(code.partitions(w))]) for w in range(N)])
    survivors = [w for w in range(N) if w % 5 != 4][: N - STRAGGLERS]
    messages = encoded[survivors]
    numbers = messages.tolist()
    own = partials[list(code.partitions(0))]
    yield "decode: survivors", lambda: code.decode(survivors, messages), survivors
    yield "decode, lists of numbers: survivors", lambda: code.decode(survivors, numbers), survivors
    yield "decode, lists of numbers: messages", lambda: code.decode(survivors, numbers), numbers
    yield "decoding_vector: survivors", lambda: code.decoding_vector(survivors), survivors
    yield "encode: partials", lambda: code.encode(0, own), own
    last = messages[-1]

    def rounds() -> object:
        current = code.round(P)
        for worker, message in zip(survivors, messages, strict=True):
            current.receive(worker, last if worker == survivors[-1] else message)
        return current.gradient()

    yield "a round: the last message", rounds, last
    theta, out = np.ones(P), np.empty(P)
    with LocalCluster(code, list(partials), np.multiply, P) as cluster:
        yield "a cluster's step: theta", lambda: cluster.step(theta, out), theta


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--show", action="store_true", help="print the functions, too")
    options = parser.parse_args(arguments)
    print(f"{'':38}{'functions':>10}{'stays':>8}{'rooms':>8}{'returns':>8}")
    for what, call, value in walks():
        functions = followed(call, value)
        stays = [module for module, _ in itertools.groupby(functions, key=lambda pair: pair[0])]
        rooms = len(set(stays))
        counts = len(functions), len(stays), rooms, len(stays) - rooms
        print(f"{what:38}{counts[0]:10}" + "".join(f"{count:8}" for count in counts[1:]))
        if options.show:
            print("\n".join(f"    {module}.{name}" for module, name in functions))


if __name__ == "__main__":
    main()
