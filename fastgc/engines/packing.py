"""What workers are sent, as bytes of which they make the same; or a sentence that says why not."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Keep", "packed"]

Keep = Callable[[pickle.PickleBuffer], object]  # what pickle calls buffer_callback


def packed(thing: Any, keep: Keep | None = None) -> bytes:
    """Pickle what ``pickle.loads`` is to make again in another process.

    Functions and classes go by their names, under which that process imports them. Those of an
    interactive session, or a notebook, which it cannot import, go by value if cloudpickle is there.
    Memory of arrays may be kept out of it by ``keep``.

    Raises
    ------
    TypeError
        If it cannot be pickled; says what can.
    """
    interactive = hasattr(sys, "ps1")  # a prompt, of Python or IPython
    try:
        if interactive and importlib.util.find_spec("cloudpickle") is not None:
            import cloudpickle

            by_value: bytes = cloudpickle.dumps(thing, pickle.HIGHEST_PROTOCOL, keep)
            return by_value
        return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL, buffer_callback=keep)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"workers cannot be sent what pickle cannot store ({error}): they find functions and "
            "classes by their names, at the top level of a module or script"
        ) from error
