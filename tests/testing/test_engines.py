"""The engines behave alike; those that need their own programs run these checks in other files."""

import pytest

from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.testing import engines as conformance
from fastgc.testing.engines import CHECKS

# The simulated engine computes in this process: it raises a gradient's own error, and stays open
# after it. It drops late workers at the end of a round, and gets no messages from elsewhere.
SIMULATED = [
    conformance.gradients_are_sums,
    conformance.coded_data_are_decoded,
    conformance.less_precise_messages_are_decoded,
    conformance.chosen_survivors_give_the_same_bits,
    conformance.recorded_survivors_give_the_same_bits,
    conformance.rounds_of_ones_own_end_when_they_say,
    conformance.messages_sent_together_wait_for_the_last,
    conformance.holders_are_asked_for_what_is_late,
    conformance.rounds_are_numbered,
    conformance.gradients_are_told_partition_and_round,
    conformance.only_those_asked_take_part,
    conformance.gradients_must_be_written,
    conformance.rounds_lapse_with_the_next,
    conformance.unsuitable_arguments_leave_it_open,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_processes(check):
    check(LocalCluster)


@pytest.mark.parametrize("check", SIMULATED, ids=lambda check: check.__name__)
def test_simulation(check):
    check(SimulatedCluster)
