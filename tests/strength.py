"""How much is tried: all there is with ``--long``, else less of it."""

from __future__ import annotations

import os

import hypothesis

LONG = False  # said by conftest.py, before any test is imported


def begin(long):
    """Say how much is to be tried."""
    global LONG
    LONG = long
    options = {"deadline": None}
    if not long:
        # Other examples at every run find more, but where it is not known who broke what.
        options |= {"derandomize": True, "max_examples": 25}
    if os.environ.get("FASTGC_SHRINK") == "0":  # where it matters only that a test fails
        options["phases"] = [
            phase for phase in hypothesis.Phase if phase.name not in ("shrink", "explain")
        ]
    hypothesis.settings.register_profile("fastgc", **options)
    hypothesis.settings.load_profile("fastgc")


def much(long, short):
    """One of the two."""
    return long if LONG else short
