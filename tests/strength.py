"""How much tests try: everything with ``--long``, otherwise a part."""

from __future__ import annotations

import os

import hypothesis

LONG = False  # set by conftest.py before any test is imported


def begin(long):
    """Set how much is tried, and Hypothesis' options."""
    global LONG
    LONG = long
    options = {"deadline": None}
    if not long:
        # The same examples at each run: new ones would find more, but blame unrelated changes.
        options |= {"derandomize": True, "max_examples": 20}
    if os.environ.get("FASTGC_SHRINK") == "0":  # the caller asks only whether tests fail
        options["phases"] = [
            phase for phase in hypothesis.Phase if phase.name not in ("shrink", "explain")
        ]
    hypothesis.settings.register_profile("fastgc", **options)
    hypothesis.settings.load_profile("fastgc")


def much(long, short):
    """Return `long` with ``--long``, otherwise `short`."""
    return long if LONG else short
