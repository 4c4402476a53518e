"""Calls of C functions on arrays and numbers, generated from their declarations.

csrc/kernels.def says how parameters of C follow from those of the NumPy function. A call is
generated as Python code and compiled, as `dataclasses` does: a general function would take longer
than many kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from .._cffi import ffi, lib

__all__ = ["made"]

# The suffix of C functions for each dtype, by NumPy's character.
_KINDS = {"f": "float", "d": "double", "e": "half", "E": "bfloat"}
_DECLARED = re.compile(r"(\w+) (\w+)\((.*)\)", re.DOTALL)
_PARAMETER = re.compile(r"(?:const )?(\w+) (\*?)(\w+)")


@cache
def _declared() -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    """For each function, its return type, and types, stars and names of its parameters."""
    found: dict[str, tuple[str, list[tuple[str, str, str]]]] = {}
    at = 0
    while text := lib.fgc_declared[at]:
        match = _DECLARED.fullmatch(ffi.string(text).decode())
        assert match is not None
        returned, name, parameters = match.groups()
        named = [(kind, star, of.rstrip("_")) for kind, star, of in _PARAMETER.findall(parameters)]
        found[name] = returned, named
        at += 1
    return found


def _value(type_: str, star: str, name: str, oracle: Callable[..., Any], first: str) -> str:
    """The expression that is passed for a parameter of C."""
    annotations = oracle.__annotations__
    if name in annotations:
        value = f"from_buffer({type_}_, {name})" if star else name
        if annotations[name] == "bool":  # C gets 1 for any true value
            return f"not not {name}"
        optional = star and "None" in str(annotations[name])
        return f"NULL if {name} is None else {value}" if optional else value
    if name == "complex":
        return f"{first}.dtype.char in 'FD'"
    of, _, what = (f"{first}_len" if name == "len" else name).rpartition("_")
    if of not in annotations or what not in ("len", "size", "ndim"):
        raise TypeError(f"{oracle.__name__}: nothing is known of C's parameter {name}")
    return f"len({of})" if what == "len" else f"{of}.{what}"


def made(oracle: Callable[..., Any]) -> Callable[..., Any] | None:
    """Make the call of the C function with the oracle's name; None if there is none."""
    name, declared = oracle.__name__, _declared()
    kinds = {char: kind for char, kind in _KINDS.items() if f"{name}_{kind}" in declared}
    if not kinds and name not in declared:
        return None
    returned, parameters = declared[f"{name}_{next(iter(kinds.values()))}" if kinds else name]
    first = parameters[0][2]
    taken = ", ".join(oracle.__code__.co_varnames[: oracle.__code__.co_argcount])
    scope: dict[str, Any] = {"from_buffer": ffi.from_buffer, "NULL": ffi.NULL}
    scope |= {f"{type_}_": ffi.typeof(f"{type_}[]") for type_, star, _ in parameters if star}
    if kinds:
        by_dtype = {}
        for char, kind in kinds.items():
            real = declared[f"{name}_{kind}"][1][0][0]
            by_dtype[char] = getattr(lib, f"fgc_{name}_{kind}"), ffi.typeof(f"{real}[]")
        scope["by_dtype"] = by_dtype
        scope["oracle"] = oracle
        lines = [
            f"try: function, {parameters[0][0]}_ = by_dtype[{first}.dtype.char]",
            f"except KeyError: return oracle({taken})",
        ]
    else:
        scope["function"] = getattr(lib, f"fgc_{name}")
        lines = []
    values = [_value(*parameter, oracle, first) for parameter in parameters]
    call, answer = f"function({', '.join(values)})", oracle.__annotations__["return"]
    if returned != "fgc_status":
        lines.append(call if answer == "None" else f"return {call}")
    elif answer == "None":
        lines.append(f"if {call}: raise MemoryError")
    else:
        scope["no_memory"] = lib.FGC_NO_MEMORY
        lines += [
            f"status = {call}",
            "if status == no_memory: raise MemoryError",
            "return not status",
        ]
    exec(f"def {name}({taken}):\n    " + "\n    ".join(lines), scope)
    made: Callable[..., Any] = scope[name]
    made.__defaults__, made.__doc__ = oracle.__defaults__, oracle.__doc__
    return made
