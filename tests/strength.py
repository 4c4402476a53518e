"""How much is tried: all there is with ``--long``, else as much of it as takes three minutes."""

from __future__ import annotations

import hypothesis

LONG = False  # said by conftest.py, before any test is imported


def begin(long):
    """Say how much is to be tried."""
    global LONG
    LONG = long
    # Other examples at every run find more, but where it is not known who broke what.
    hypothesis.settings.register_profile("short", deadline=None, derandomize=True, max_examples=25)
    hypothesis.settings.register_profile("long", deadline=None)
    hypothesis.settings.load_profile("long" if long else "short")


def much(long, short):
    """One of the two."""
    return long if LONG else short
