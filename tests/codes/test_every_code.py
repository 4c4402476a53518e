"""Every small code keeps the promises of `fastgc.testing.codes`."""

from tables import EVERY_SMALL

from fastgc.testing.codes import CHECKS, check


@EVERY_SMALL
def test_check(code):
    """It is compared with linear algebra on its rows, and run, simulated and trained with."""
    said = []
    check(code, engines=["simulated"], report=said.append)
    assert len(said) == len(CHECKS) + 1
