"""Coding across rounds: several models trained in turn on the same workers.

A gradient code makes up for stragglers within a round. Where several gradients (jobs) are computed
in turn, what a straggler did not do can also be done in a later round, by the same worker: that
takes less computation where stragglers come and go, and does not help where they stay.
"""

from .._shown import listing
from .catalogue import make, names, register
from .cluster import Done, SequentialCluster
from .multiplexed import MSGC
from .patterns import Arbitrary, Bursty, PerRound
from .repetition import SRSGC
from .scheme import Independent, Schedule, SequentialScheme, Tasks
from .simulation import Compared, SequentialRun, compare, simulate_sequential
from .training import train_models

__all__ = [
    "MSGC",
    "SRSGC",
    "Arbitrary",
    "Bursty",
    "Compared",
    "Done",
    "Independent",
    "PerRound",
    "Schedule",
    "SequentialCluster",
    "SequentialRun",
    "SequentialScheme",
    "Tasks",
    "compare",
    "make",
    "names",
    "register",
    "simulate_sequential",
    "train_models",
]
__dir__ = listing(__all__)
