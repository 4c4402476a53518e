"""The protocol by which ranks agree on who takes part: what a rank does next, given what it sees.

The store holds one `Record`: who the members are, which of them hold the training's state, and
whether the run has ended. It changes by compare-and-set only, so there is one record at a time. A
rank that wants a change says so (`Begin`). Every rank then gives an `Answer`, and one of them
replaces the record.

The store also holds a mark, set once, that the record of an epoch is to be replaced; the `Answer`
of each `Life` to each epoch, which only that life writes; and the number of each rank's newest
life, which only grows.

Invariants, which ``python -m tests.membership_model`` checks in all interleavings:

- One state. In a record without carriers, all ranks begin. Once the members have compared their
  initial states, and before any of them does a step, the record names them as its carriers. From
  then on only a member that holds the state replaces the record, and it is in the next one. So no
  second group can begin from the start, and none can go on without the newest state.
- One view that steps. A step needs all members of a view, and a member leaves its group before it
  answers. So a step in an old view can end only if all its members had begun it.
- No progress is lost. Members of a view are at most one step apart, and the next record contains
  one of them.
- Progress. Ranks do not wait for a dead rank, because its sockets are closed. They wait for a
  silent rank until the deadline. They shut out a rank that cannot be reached.

Nothing here reads a clock, a socket or a store: `membership` does, and carries out the actions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple


class Life(NamedTuple):
    """A rank from its start, or from a call of ``join()``, until it leaves or dies.

    Lives of a rank are numbered from 1.
    """

    rank: int
    number: int


class Record(NamedTuple):
    """What the store holds about the run."""

    epoch: int  # grows by one whenever the members change
    members: tuple[Life, ...]  # the lives that take part, in the order of ranks
    # Members that are known to hold the state; none until members have compared initial states.
    carriers: tuple[Life, ...] = ()
    finished: int | None = None  # the step at which the run ended
    # Lives that answered, but could not be reached by others, or could not reach them.
    shut_out: tuple[Life, ...] = ()


class Answer(NamedTuple):
    """What a rank says when the record is to be replaced."""

    holds: bool = False  # whether it holds the state
    waits: bool = True  # whether it waits for others, instead of computing
    in_vain: bool = False  # whether it has waited for about the deadline
    # The lives that it cannot reach; also itself, if it knows that it is the cause.
    cut_off: tuple[Life, ...] = ()


class Own(NamedTuple):
    """What a rank knows of itself. An epoch of 0 means none."""

    life: Life
    holds: bool = False  # whether it holds the state: it was a carrier, or got the state from one
    compared: int = 0  # the last epoch in which it compared its initial state, and found it equal
    built: int = 0  # the last epoch for which it began to build a group
    broken: int = 0  # the last epoch whose group is known to be broken
    finished: int | None = None  # the step at which its run ended
    answer: Answer = Answer()  # what it would answer now, except for `holds`


class Seen(NamedTuple):
    """What a rank sees of the others."""

    record: Record | None  # None before the first
    begun: bool  # whether somebody wants the record replaced
    newest: tuple[int, ...]  # the number of each rank's newest life; 0 if it never started
    answers: Mapping[Life, Answer] = {}  # to this epoch
    dead: Collection[Life] = ()  # lives whose sockets are closed
    # Dead lives that this rank never reached. A firewall may hide them while they are alive.
    refusing: Collection[Life] = ()
    settled: bool = False  # whether `settle` seconds passed since this rank knew of the change
    over: bool = False  # the same for the deadline

    @property
    def epoch(self) -> int:
        """The record's epoch; 0 before the first."""
        return 0 if self.record is None else self.record.epoch

    def gone(self, life: Life) -> bool:
        """Whether a life is dead, or its rank started again."""
        return life in self.dead or self.newest[life.rank] != life.number


class Wait(NamedTuple):
    """Do nothing until something changes."""


class Build(NamedTuple):
    """Build the group of the record's members."""

    record: Record


class Say(NamedTuple):
    """Leave the group, and answer."""

    answer: Answer


class Begin(NamedTuple):
    """Say that the record is to be replaced."""


class Replace(NamedTuple):
    """Replace the record by compare-and-set."""

    record: Record


class End(enum.Enum):
    """Why a rank takes part no longer."""

    OVER = "the run ended, and this rank was a member"
    MISSED = "the run ended before this rank could join"
    LEFT_OUT = "the others went on without this rank, which holds an older state"
    SHUT_OUT = "ranks cannot reach each other"
    REPLACED = "this rank was started again"
    LOST = "nobody who held the state is left, or can be reached"


Action = Wait | Build | Say | Begin | Replace | End


def decide(own: Own, seen: Seen, enough: Callable[[list[int]], bool]) -> Action:
    """Return what a rank does next; `enough` says whether a list of ranks can decode."""
    record, life = seen.record, own.life
    if seen.newest[life.rank] > life.number:
        return End.REPLACED
    inside = record is not None and life in record.members
    if record is not None:
        if record.finished is not None:
            outside = End.LEFT_OUT if own.holds else End.MISSED
            return End.OVER if inside and own.holds else outside
        if life in record.shut_out:
            return End.SHUT_OUT
        if own.holds and not inside:
            return End.LEFT_OUT
        if inside and not record.carriers and own.compared == record.epoch:
            return Replace(record._replace(carriers=record.members))
        if inside and own.holds and own.finished is not None:
            return Replace(record._replace(finished=own.finished))
    if record is not None and inside:
        broken = own.broken >= record.epoch or any(map(seen.gone, record.members))
        if not (seen.begun or broken):
            return Wait() if own.built == record.epoch else Build(record)
    # Answer before `Begin`: a rank that learns of the change then finds this answer.
    answer = own.answer._replace(holds=own.holds)
    if seen.answers.get(life) != answer:
        return Say(answer)
    if not seen.begun:
        return Begin()
    if record is not None and _is_lost(record, seen):
        return End.LOST
    following = _following(own, seen, enough) if _may_replace(own, seen, inside) else None
    return Wait() if following is None else Replace(following)


def _may_replace(own: Own, seen: Seen, inside: bool) -> bool:
    record = seen.record
    if record is None:
        return True
    if record.carriers:
        return inside and own.holds
    return inside or all(map(seen.gone, record.members))


def _is_lost(record: Record, seen: Seen) -> bool:
    """Whether nobody is left who could hold the state.

    Until the deadline, a member that joined may still get the state from one that is gone by now,
    and one that refuses connections may still answer.
    """

    def without(life: Life) -> bool:
        if not seen.over or life in record.carriers or life not in seen.answers:
            return False
        return not seen.answers[life].holds

    def gone(life: Life) -> bool:
        may_answer = life in seen.refusing and seen.newest[life.rank] == life.number
        return seen.gone(life) and (seen.over or not may_answer)

    return bool(record.carriers) and all(gone(life) or without(life) for life in record.members)


def _following(own: Own, seen: Seen, enough: Callable[[list[int]], bool]) -> Record | None:
    """Return the next record, if it is time for one and this rank is in it."""
    record, answers = seen.record, seen.answers
    present = {life for life in answers if not seen.gone(life)}
    carriers: set[Life] = set()
    if record is None:
        members, needed = present, carriers
        all_here = len(present) == len(seen.newest)
    else:
        members = present.intersection(record.members)
        all_here = all(life in present or seen.gone(life) for life in record.members)
        if record.carriers:
            carriers = {r for r in present if r in record.carriers or answers[r].holds}
        needed = carriers or members
    # Only members count: a joining rank may have waited because it was stopped, or had no store.
    in_vain = any(answers[life].in_vain for life in members)
    if in_vain:
        # All present lives are alive: if a member waited in vain, those that compute are late.
        waiting = {life for life in present if answers[life].waits}
        if enough(_ranks(waiting)) and (waiting & needed or not needed):
            present = waiting
    here = reachable(present, {r: answers[r].cut_off for r in present}, needed)
    if own.life not in here:
        return None
    ready = enough(_ranks(here)) and (all_here or (in_vain and seen.settled))
    if not (ready or seen.over):
        return None
    shut_out = tuple(sorted(present - here))
    if record is not None:
        shut_out += tuple(life for life in record.shut_out if not seen.gone(life))
    following = sorted(here)
    return Record(
        seen.epoch + 1,
        tuple(following),
        tuple(life for life in following if life in carriers),
        shut_out=shut_out,
    )


def _ranks(lives: Collection[Life]) -> list[int]:
    return sorted(life.rank for life in lives)


def reachable(
    lives: Collection[Life], cut_off: Mapping[Life, Collection[Life]], needed: Collection[Life]
) -> set[Life]:
    """Return some of the `lives`, which all reach each other.

    Repeatedly leave out the life with the most cuts; one that cuts itself off counts one more. Of
    several, leave out first those that are not `needed`, then those that report no cut (they may
    have died after they answered), then those of higher ranks. The last needed life stays: only it
    can replace the record.
    """
    here = set(lives)
    pairs = {frozenset((a, b)) for a in here for b in cut_off.get(a, ()) if b in here}
    while any(len(pair) == 2 for pair in pairs):
        cuts = {life: sum(life in pair for pair in pairs) for life in here}
        last = here.intersection(needed)
        others = here - last if len(last) == 1 else here
        silent = {life for life in here if here.isdisjoint(cut_off.get(life, ()))}
        worst = max(others, key=lambda r: (cuts[r], r not in needed, r in silent, r))
        here.discard(worst)
        pairs = {pair for pair in pairs if worst not in pair}
    return here
