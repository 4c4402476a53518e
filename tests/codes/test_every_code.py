"""Every small code keeps the promises of `fastgc.testing.codes`."""

import pytest
from tables import SMALL, WAITING

from fastgc.testing.codes import CHECKS, check


@pytest.mark.parametrize("code", [*SMALL, *WAITING], ids=repr)
def test_check(code):
    """It is compared with linear algebra on its rows, and run, simulated and trained with."""
    said = []
    check(code, engines=["simulated"], report=said.append)
    assert len(said) == len(CHECKS) + 1
