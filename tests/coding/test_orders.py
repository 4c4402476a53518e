"""Orders in which messages come."""

import fastgc
from fastgc.coding.orders import random_arrivals


def test_random_arrivals_of_any_so_many_need_not_hear_each(monkeypatch):
    """They are the same as if each message were checked for being the last."""
    scheme = fastgc.ReedSolomon(12, stragglers=3).scheme
    found = list(random_arrivals(scheme, 20, 4))
    monkeypatch.setattr(type(scheme.gate), "waits", True)
    assert list(random_arrivals(scheme, 20, 4)) == found
