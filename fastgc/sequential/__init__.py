"""Coding across rounds: several models trained in turn on the same workers.

A gradient code makes up for stragglers within a round. If several gradients (jobs) are computed in
turn, a straggler can also do its missing work in a later round. This needs a smaller load if
stragglers come and go, and does not help if they stay slow.
"""

from .._base.text import listing
from .bursty import MSGC, SRSGC
from .catalogue import make, names
from .cluster import Done, SequentialCluster
from .scheme import Independent, Schedule, SequentialScheme, Tasks
from .simulation import Compared, SequentialRun, compare, simulate_sequential

__all__ = [
    "MSGC",
    "SRSGC",
    "Compared",
    "Done",
    "Independent",
    "Schedule",
    "SequentialCluster",
    "SequentialRun",
    "SequentialScheme",
    "Tasks",
    "compare",
    "make",
    "names",
    "simulate_sequential",
]
__dir__ = listing(__all__)
