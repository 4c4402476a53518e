"""``python -m fastgc.codes.conformance``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..._registry import load_object, read_value
from . import __doc__ as described
from . import check


def _arguments(listed: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for item in listed:
        key, equals, value = item.partition("=")
        if not equals:
            raise SystemExit(f"expected key=value, not {item!r}")
        yield key, read_value(value)


def main(words: Sequence[str] | None = None) -> None:
    """Check a code that is named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fastgc.codes.conformance", description=described
    )
    parser.add_argument("code", help="module:Class")
    parser.add_argument("--arg", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    parser.add_argument("--engines", help="a list such as simulated,local (default: all there are)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    sys.path.insert(0, os.getcwd())
    try:
        code = load_object(given.code)(**dict(_arguments(given.arg)))
        engines = given.engines.split(",") if given.engines else None
        check(code, engines=engines, seed=given.seed)
    except (AssertionError, ValueError, TypeError, ImportError) as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None


if __name__ == "__main__":
    main()
