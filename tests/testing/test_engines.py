"""The checks of engines pass good engines, and refuse those that break what they are about."""

import contextlib
from functools import partial

import numpy as np
import pytest

from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.testing import engines as conformance

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


@pytest.mark.parametrize(
    "check",
    [check for check in conformance.CHECKS if check not in SIMULATED],
    ids=lambda check: check.__name__,
)
def test_processes(check):
    check(LocalCluster)


@pytest.mark.parametrize("check", SIMULATED, ids=lambda check: check.__name__)
def test_simulation(check):
    check(SimulatedCluster)


# -------------------------------------------------------------------------------- wrong engines


def wrong(base, around):
    """Return an engine whose rounds are `around` calls of another engine's."""

    class Wrong(base):
        inside = False  # a step, which collects

        def outside(self, call, out):
            if self.inside:
                return call()
            self.inside = True
            try:
                return around(call, out)
            finally:
                self.inside = False

        def step(self, theta, out):
            return self.outside(partial(super().step, theta, out), out)

        def collect(self, *given):
            return self.outside(partial(super().collect, *given), np.empty(0))

    return Wrong


def misled(base):
    """Return an engine whose workers have other shards."""
    return lambda code, shards, *given, **options: base(
        code, [shard * (1 + 1e-3) for shard in shards], *given, **options
    )


def off(call, out):
    """Change the sum."""
    report = call()
    out *= 1 + 1e-3
    return report


def silent(call, out):
    """Say nothing of errors."""
    with contextlib.suppress(Exception):
        return call()


def terse(call, out):
    """Raise errors without a text."""
    try:
        return call()
    except Exception as error:
        error.args = ("",)
        raise


def open_(call, out):
    """Take steps, it seems, after it was closed."""
    try:
        return call()
    except RuntimeError as error:
        if "closed" not in str(error):
            raise


def reporting(**changed):
    def around(call, out):
        return call()._replace(**changed)

    return around


COLLECTED = [
    conformance.rounds_of_ones_own_end_when_they_say,
    conformance.only_those_asked_take_part,
    conformance.rounds_lapse_with_the_next,
]
CASES = [
    *(
        (off, SimulatedCluster, check)
        for check in SIMULATED
        if check not in (*COLLECTED, conformance.gradients_must_be_written)
    ),
    (silent, SimulatedCluster, conformance.gradients_must_be_written),
    (terse, SimulatedCluster, conformance.gradients_must_be_written),
    (silent, SimulatedCluster, conformance.unsuitable_arguments_leave_it_open),
    (terse, SimulatedCluster, conformance.unsuitable_arguments_leave_it_open),
    (open_, SimulatedCluster, conformance.unsuitable_arguments_leave_it_open),
    (off, LocalCluster, conformance.late_workers_jump_to_the_newest_round),
    (off, LocalCluster, conformance.strangers_are_refused),
    (off, LocalCluster, conformance.rounds_time_out),
    (off, LocalCluster, conformance.one_after_another),
    (off, LocalCluster, conformance.cancellation_is_seen),
    *(
        (around, LocalCluster, check)
        for around in (silent, terse)
        for check in (
            conformance.those_asked_must_suffice,
            conformance.failures_name_worker_and_partition,
            conformance.parameters_are_read_only,
            conformance.messages_that_are_not_finite_are_refused,
        )
    ),
    *(
        (open_, LocalCluster, check)
        for check in (
            conformance.those_asked_must_suffice,
            conformance.failures_name_worker_and_partition,
            conformance.messages_that_are_not_finite_are_refused,
            conformance.rounds_time_out,
            conformance.one_after_another,
        )
    ),
    (silent, LocalCluster, conformance.rounds_outlive_their_cluster),
    (terse, LocalCluster, conformance.parameters_stay_read_only),
    *(
        (reporting(**changed), SimulatedCluster, conformance.gradients_are_sums)
        for changed in (
            {"round": 7},
            {"lost": (1,)},
            {"deaths": 1},
            {"refused": 1},
            {"residual": 1e-3},
            {"received": np.zeros(0, int)},
            {"arrivals": np.ones(9)},
            {"arrivals": np.arange(4.0)[::-1]},
            {"survivors": np.array([3, 0])},
            {"messages": 0},
            {"wait_seconds": -1.0},
            {"decode_seconds": -1.0},
        )
    ),
]


@pytest.mark.parametrize(("around", "base", "check"), CASES)
def test_wrong_engines_are_refused(around, base, check):
    with pytest.raises(AssertionError):
        check(wrong(base, around))


@pytest.mark.parametrize(
    ("base", "check"),
    [
        *((SimulatedCluster, check) for check in COLLECTED),
        (LocalCluster, conformance.rounds_outlive_their_cluster),
    ],
)
def test_wrong_messages_are_refused(base, check):
    with pytest.raises(AssertionError):
        check(misled(base))


@pytest.mark.parametrize("named", ["nowhere:X", "fastgc.engines:X", "X"])
def test_main_refuses_what_is_no_engine(named):
    with pytest.raises(SystemExit, match=r"^(ModuleNotFound|Import|Value)Error: .*(nowhere|X)"):
        conformance.main([named])


def test_check_and_the_command_run_all(monkeypatch, capsys):
    ran = []
    checks = [lambda engine, number=number: ran.append((engine, number)) for number in range(3)]
    for number, check in enumerate(checks):
        check.__name__ = f"check_{number}"
    monkeypatch.setattr(conformance, "CHECKS", checks)
    conformance.check("an engine")
    conformance.main(["fastgc.engines:SimulatedCluster"])
    assert ran == [(engine, i) for engine in ("an engine", SimulatedCluster) for i in range(3)]
    assert capsys.readouterr().out.splitlines() == [f"check_{i}: passed" for i in range(3)]
