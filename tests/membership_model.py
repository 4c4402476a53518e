"""Check all interleavings of the protocol by which ranks agree who takes part.

``python -m tests.membership_model`` visits all states that a few ranks can reach by
`fastgc.torch.agreement.decide`, the function that the library runs, and prints their number.
``--old`` restores the former rule, by which any ranks that answer may form a group; the search
finds its fault.

A life is a rank from its start to its end. Its thread looks, decides and acts in one move. Its main
thread joins the group, compares or gets the state, and does steps. Each step needs all members; it
may still end for one member after others, who had begun it, have left. Faults, whose total number
is limited, are:

- a crash, after which the rank is started again at once, later, or never;
- a second start of a rank that is alive (a process that was stopped, and replaced);
- a silence: the ranks that have answered stop waiting for the others;
- a long wait: a rank says that it waits in vain, so that ranks that compute may be left out;
- a group that breaks without a reason;
- a pair of ranks that cannot reach each other from then on: each may take the other for dead until
  it answers.

Calls of `demand` state what must hold in each state. At last, each state must still have a way to a
good end without further faults. Of states that differ only in the names of lives, epochs and ranks,
one is visited (`normal`). Moves of ranks' threads are taken in all orders. With ``--eager`` they
are taken in one order, before those of main threads and before faults other than crashes; this
makes larger numbers of ranks feasible.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastgc.torch.agreement import (
    Answer,
    Begin,
    Build,
    End,
    Life,
    Own,
    Record,
    Replace,
    Say,
    Seen,
    Wait,
    decide,
)

STEPS = 2  # steps of a run
SETTLED, REFUSED = "(settled)", "(refused)"  # marks moves that take somebody for gone
Label = tuple[object, ...]  # what a move does: printed if it led to something wrong


class Process(NamedTuple):
    """A life that has not ended."""

    own: Own
    left: int = 0  # the last epoch in which its thread answered: it has left that group
    view: int = 0  # the epoch of the group in which its main thread is; 0 if in none
    aligned: bool = False  # whether it has the state that the members of this view agreed on
    fresh: bool = True  # whether it has not joined anybody yet
    history: tuple[int, ...] = ()  # the epoch in which it did each step
    late: int = 0  # steps that it ended in a view after the store had replaced it

    @property
    def life(self) -> Life:
        return self.own.life


class Group(NamedTuple):
    """What the members of an epoch have given each other."""

    epoch: int
    members: tuple[Life, ...]
    built: frozenset[Life] = frozenset()
    entered: frozenset[tuple[Life, bool, tuple[int, ...]]] = frozenset()  # fresh, history
    offered: frozenset[tuple[Life, int]] = frozenset()  # gradients of steps


class World(NamedTuple):
    newest: tuple[int, ...]
    processes: tuple[Process, ...]
    record: Record | None = None
    begun: bool = False
    answers: tuple[tuple[Life, Answer], ...] = ()
    groups: tuple[Group, ...] = ()
    cuts: frozenset[tuple[int, int]] = frozenset()
    starts: frozenset[int] = frozenset()  # ranks that may be started again
    faults: int = 0
    most: int = 0  # the largest number of steps that a life has ever done

    def put(self, process: Process) -> World:
        """Return the world with a process in its new state."""
        return self._replace(
            processes=tuple(process if p.life == process.life else p for p in self.processes)
        )

    def without(self, life: Life) -> World:
        return self._replace(processes=tuple(p for p in self.processes if p.life != life))

    def group(self, epoch: int) -> Group:
        return next(g for g in self.groups if g.epoch == epoch)

    def put_group(self, group: Group) -> World:
        return self._replace(
            groups=tuple(group if g.epoch == group.epoch else g for g in self.groups)
        )

    def started(self, rank: int) -> World:
        number = self.newest[rank] + 1
        newest = tuple(number if r == rank else old for r, old in enumerate(self.newest))
        made = Process(Own(Life(rank, number)))
        return self._replace(
            newest=newest,
            processes=tuple(sorted((*self.processes, made), key=lambda p: p.life)),
            starts=self.starts - {rank},
        )

    @property
    def epoch(self) -> int:
        return self.record.epoch if self.record else 0


class Wrong(Exception):
    """An invariant does not hold."""


def demand(what: bool, says: str) -> None:
    if not what:
        raise Wrong(says)


def enough(ranks: list[int], count: int) -> bool:
    """Whether these ranks decode: half of all do, so that sets that decode can be disjoint."""
    return len(ranks) >= max(1, count // 2)


# ---------------------------------------------------------------------------- the thread of a rank


def any_may_replace(own: Own, seen: Seen, inside: bool) -> bool:
    """Allow any ranks to form a group: the former rule (``--old``)."""
    return True


@lru_cache(1 << 20)
def decided(own: Own, seen: tuple, settled: bool, over: bool) -> object:  # type: ignore[type-arg]
    record, begun, newest, answers, dead, refusing = seen
    count = len(newest)
    look = Seen(record, begun, newest, dict(answers), dead, refusing, settled, over)
    return decide(own, look, lambda ranks: enough(ranks, count))


def threads(world: World, process: Process) -> Iterator[tuple[Label, World]]:
    """Yield what a rank's thread may do next, whether it waits for others or waits no longer."""
    known = {p.life for p in world.processes}
    lives = {Life(r, number) for r, number in enumerate(world.newest) if number}
    lives.update(world.record.members if world.record else ())
    cut = tuple(
        sorted(
            life
            for life in lives & known
            if tuple(sorted((life.rank, process.life.rank))) in world.cuts
        )
    )
    waits = not computes(world, process)
    in_vain = waits and process.own.answer.in_vain
    answer = Answer(waits=waits, in_vain=in_vain, cut_off=cut)
    dead, nobody = frozenset(lives - known), frozenset[Life]()
    heard = (world.record, world.begun, world.newest, world.answers)
    seen = (*heard, dead, nobody)
    own = process.own._replace(answer=answer)
    patient = decided(own, seen, False, False)
    yield from acted(world, process, patient)
    # A life that has joined others was connected to all of them, and knows which of them are dead.
    refusing = frozenset(cut if process.fresh else ()).difference(dict(world.answers))
    if refusing and isinstance(patient, Wait):  # it takes those it cannot reach for dead
        doubted = decided(own, (*heard, dead | refusing, refusing), False, False)
        for label, after in acted(world, process, doubted):
            yield (*label, REFUSED), after
    if world.begun and isinstance(patient, Wait):
        settled = decided(own, seen, True, False)
        for label, after in acted(world, process, settled):
            yield (*label, SETTLED), after
        for label, after in acted(world, process, decided(own, seen, True, True), over=True):
            yield (*label, "(over)"), after._replace(faults=after.faults + 1)


def computes(world: World, process: Process) -> bool:
    """Whether a rank waits for nobody: it has the state, and has not offered its next gradient."""
    if not (process.view and process.aligned and process.own.holds):
        return False
    return (process.life, len(process.history)) not in world.group(process.view).offered


def acted(
    world: World, process: Process, action: object, over: bool = False
) -> Iterator[tuple[Label, World]]:
    life = who = process.life
    epoch = world.epoch
    if isinstance(action, End):
        yield (who, action), ended(world, process, action, over)
    elif isinstance(action, Say):
        answers = dict(world.answers) | {life: action.answer}
        said = process._replace(left=epoch)
        yield (
            (who, action),
            # `Begin` follows. Nobody reads answers before it, so the two are one move.
            world.put(said)._replace(answers=tuple(sorted(answers.items())), begun=True),
        )
    elif isinstance(action, Begin):
        yield (who, action), world._replace(begun=True)
    elif isinstance(action, Build):
        group = world.group(epoch)
        own = process.own._replace(built=epoch)
        yield (
            (who, action),
            world.put(process._replace(own=own)).put_group(
                group._replace(built=group.built | {life})
            ),
        )
    elif isinstance(action, Replace):
        yield (who, action), replaced(world, action.record)


def replaced(world: World, record: Record) -> World:
    if record.epoch > world.epoch:
        world = world._replace(
            begun=False,
            answers=(),
            groups=(*world.groups, Group(record.epoch, record.members)),
        )
    carriers = set(record.carriers)
    processes = tuple(
        p._replace(own=p.own._replace(holds=True)) if p.life in carriers else p
        for p in world.processes
    )
    return world._replace(record=record, processes=processes)


def ended(world: World, process: Process, end: End, over: bool) -> World:
    record = world.record
    life = process.life
    if end is End.OVER:
        demand(len(process.history) == STEPS, f"{life} ended without all steps")
    if end is End.LOST and not over:
        assert record is not None
        for p in world.processes:
            kept = p.own.holds and p.life in record.members
            again = world.newest[p.life.rank] != p.life.number
            demand(again or not kept, f"{life} says that the state is lost: {p.life} has it")
    world = world.without(life)
    if end is End.LEFT_OUT:
        world = world._replace(starts=world.starts | {life.rank})  # by join()
    return world


# ----------------------------------------------------------------------- the main thread of a rank


def mains(world: World, process: Process) -> Iterator[tuple[Label, World]]:
    """What a rank's main thread may do next."""
    life, own = process.life, process.own
    who = life
    record = world.record
    if own.finished is not None:
        return
    if not process.view:
        epoch = world.epoch
        if own.built == epoch and max(process.left, own.broken) < epoch and record is not None:
            group = world.group(record.epoch)
            if group.built.issuperset(group.members):
                entered = group.entered | {(life, process.fresh, process.history)}
                yield (
                    (who, "enters", group.epoch),
                    world.put(process._replace(view=group.epoch, aligned=False)).put_group(
                        group._replace(entered=entered)
                    ),
                )
        return
    group = world.group(process.view)
    at, step = group.epoch, len(process.history)
    known = {p.life: p for p in world.processes}

    def away(member: Life) -> bool:
        other = known.get(member)
        return other is None or (other.left >= at and other.view != at)

    if any(away(member) for member in group.members):
        yield (who, "sees a break of", at), broken(world, process)
    if not process.aligned:
        if len(group.entered) == len(group.members):
            yield (who, "aligns in", at), aligned(world, process, group)
        return
    if not own.holds:  # it waits for the record to name carriers
        if record is None or record.epoch != at:
            yield (who, "cannot begin in", at), broken(world, process)
        return
    offered = (life, step)
    if process.left >= at and at in process.history and offered not in group.offered:
        yield (who, "leaves view", at), world.put(process._replace(view=0, aligned=False))
        return
    if offered not in group.offered:
        # Drop this life's offers for earlier steps: all members have these steps' results.
        others = frozenset(o for o in group.offered if o[0] != life)
        yield (
            (who, "offers step", step),
            world.put_group(group._replace(offered=others | {offered})).put(
                process._replace(fresh=False)
            ),
        )
        return
    offers = dict(group.offered)
    if all(offers.get(member, -1) >= step for member in group.members):
        if step == STEPS:
            done = process._replace(own=own._replace(finished=STEPS))
            yield (who, "has finished"), world.put(done)
            return
        late = process.late + (record is not None and record.epoch > at)
        # Two are allowed: one step that it was behind, and one begun before the others left.
        demand(late <= 2, f"{who} goes on stepping in view {at}, which was replaced")
        history = (*process.history, at)
        after = process._replace(own=own._replace(answer=Answer()), history=history, late=late)
        yield (
            (who, "does step", step, "in", at),
            world.put(after)._replace(most=max(world.most, len(history))),
        )


def broken(world: World, process: Process) -> World:
    own = process.own._replace(broken=max(process.own.broken, process.view))
    return world.put(process._replace(own=own, view=0, aligned=False))


def aligned(world: World, process: Process, group: Group) -> World:
    """Compare or get the state in a new view, as `CodedAllReduce` does."""
    record = world.record
    running = sorted((history, life) for life, fresh, history in group.entered if not fresh)
    history = max((h for h, _ in running), key=len) if running else ()
    gets = process.fresh or len(process.history) < len(history)
    taken = history if gets else process.history
    for other, _ in running:
        demand(
            len(other) >= len(history) - 1 and other == history[: len(other)],
            f"copies differ in view {group.epoch}: {running}",
        )
    own = process.own
    current = record is not None and record.epoch == group.epoch
    if not own.holds and not current:
        return broken(world, process)
    founded = record is not None and current and bool(record.carriers)
    if current:
        demand(len(taken) >= world.most - 1, f"progress is lost: {taken} after {world.most} steps")
    own = own._replace(compared=group.epoch, holds=own.holds or founded, answer=Answer())
    return world.put(process._replace(own=own, aligned=True, fresh=not own.holds, history=taken))


# ---------------------------------------------------------------------------------- all that may be


def crashes(world: World) -> Iterator[tuple[Label, World]]:
    for process in world.processes:
        life = process.life
        after = world.without(life)
        yield (
            (life, "crashes"),
            after._replace(starts=after.starts | {life.rank}, faults=world.faults + 1),
        )


def mishaps(world: World) -> Iterator[tuple[Label, World]]:
    more = world._replace(faults=world.faults + 1)
    count = len(world.newest)
    for process in world.processes:
        life = process.life
        if process.view:
            yield (life, "loses its group"), broken(more, process)
        if not (process.own.answer.in_vain or computes(world, process)):
            own = process.own._replace(answer=Answer(in_vain=True))
            yield (life, "waits in vain"), more.put(process._replace(own=own))
        if world.newest[life.rank] == life.number:
            yield (life, "is started again beside itself"), more.started(life.rank)
    for pair in itertools.combinations(range(count), 2):
        if pair not in world.cuts:
            yield (pair, "cannot reach each other"), more._replace(cuts=world.cuts | {pair})


def moves(world: World, faults: int, eager: bool) -> Iterator[tuple[Label, World]]:
    """Yield what may happen next: a label, and the world after it."""
    more = world.faults < faults
    at_work: list[tuple[Label, World]] = []
    over: list[tuple[Label, World]] = []
    for process in world.processes:
        for label, after in threads(world, process):
            if isinstance(label[1], Build):  # others notice only when they enter: any order will do
                yield label, after
                return
            (over if after.faults > world.faults else at_work).append((label, after))
    if more:
        yield from crashes(world)
    if eager and at_work:
        # Yield moves that do not wait for slow ranks, too: otherwise every answer comes in time.
        prompt = [move for move in at_work if move[0][-1] not in (SETTLED, REFUSED)]
        yield from prompt[:1]
        yield from (move for move in at_work if move[0][-1] in (SETTLED, REFUSED))
        return
    yield from at_work
    # If only main threads can move, and nothing can come between, any order will do.
    one = not (more or at_work or world.begun or world.starts)
    idle = not at_work
    for process in world.processes:
        for move in mains(world, process):
            yield move
            idle = False
            if one:
                return
    if more:
        yield from over
    elif idle:  # then time passes
        yield from ((label, after._replace(faults=faults)) for label, after in over)
    for rank in world.starts:
        yield ("rank", rank, "starts again"), world.started(rank)
    if more:
        yield from mishaps(world)


def normal(world: World, order: Sequence[int]) -> World:
    """Return the same world with normal names, and without what no rank will read.

    Ranks take their places in `order`. Each rank's lives are numbered from 1, and all its dead have
    the number 0. Epochs are numbered from 1; past epochs become 0, except in histories of steps.
    """
    record, low = world.record, world.epoch
    place = {rank: at for at, rank in enumerate(order)}
    alive = sorted(p.life for p in world.processes)
    lives: dict[Life, Life] = {}
    newest = [0] * len(order)
    for life in alive:
        newest[place[life.rank]] += 1
        lives[life] = Life(place[life.rank], newest[place[life.rank]])
    for rank, number in enumerate(world.newest):
        newest[place[rank]] += Life(rank, number) not in lives

    used = {low}
    for p in world.processes:
        used.add(p.view)
        low = min(low, p.view or low)
    for p in world.processes:
        used.update((p.own.compared, p.own.built, p.own.broken, p.left))
    used = {epoch for epoch in used if epoch >= low}
    for p in world.processes:
        used.update(p.history)
    groups = [
        g
        for g in world.groups
        if g.epoch == world.epoch or any(g.epoch == p.view for p in world.processes)
    ]
    for group in groups:
        used.add(group.epoch)
        for _, _, history in group.entered:
            used.update(history)
    epochs = {epoch: at for at, epoch in enumerate(sorted(used | {0}))}

    def named(life: Life) -> Life:
        return lives.get(life) or Life(place[life.rank], 0)

    def all_named(them: Iterable[Life], kept: Container[Life] | None = None) -> tuple[Life, ...]:
        return tuple(sorted(named(life) for life in them if kept is None or life in kept))

    def since(epoch: int) -> int:
        return epochs[epoch] if epoch >= low else 0

    def told(history: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(epochs[epoch] for epoch in history)

    processes = []
    for p in world.processes:
        own = p.own._replace(
            life=named(p.life),
            compared=since(p.own.compared),
            built=since(p.own.built),
            broken=since(p.own.broken),
        )
        processes.append(
            p._replace(own=own, left=since(p.left), view=epochs[p.view], history=told(p.history))
        )
    if record is not None:
        record = record._replace(
            epoch=epochs[record.epoch],
            members=all_named(record.members),
            carriers=all_named(record.carriers),
            shut_out=all_named(record.shut_out, lives),
        )
    return world._replace(
        newest=tuple(newest),
        processes=tuple(sorted(processes, key=lambda p: p.life)),
        record=record,
        answers=tuple(
            sorted(
                (lives[life], answer._replace(cut_off=all_named(answer.cut_off, lives)))
                for life, answer in world.answers
                if life in lives and world.newest[life.rank] == life.number
            )
        ),
        groups=tuple(
            Group(
                epochs[group.epoch],
                all_named(group.members),
                frozenset(map(named, group.built)),
                frozenset((named(life), fresh, told(h)) for life, fresh, h in group.entered),
                frozenset((named(life), step) for life, step in group.offered),
            )
            for group in groups
        ),
        cuts=frozenset((min(place[a], place[b]), max(place[a], place[b])) for a, b in world.cuts),
        starts=frozenset(place[rank] for rank in world.starts),
    )


def are_alike(world: World, faults: int) -> bool:
    """Whether ranks may change places: nobody is cut off, now or later.

    If somebody is, `agreement.reachable` prefers lower ranks to higher ones.
    """
    cut = any(answer.cut_off for _, answer in world.answers)
    shut_out = world.record is not None and world.record.shut_out
    return not (world.faults < faults or world.cuts or cut or shut_out)


def places(world: World, faults: int) -> Sequence[int]:
    """Return an order of ranks that is mostly equal for worlds that differ only in names."""
    ranks = range(len(world.newest))
    if not are_alike(world, faults):
        return ranks
    record = world.record
    known = {p.life for p in world.processes}
    about: list[list[object]] = [[rank in world.starts] for rank in ranks]
    for p in world.processes:
        newest = p.life.number == world.newest[p.life.rank]
        about[p.life.rank].append((newest, p.own.holds, p.own[2:5], p.own.finished or 0, p[1:]))
    for life, answer in world.answers:
        about[life.rank].append(answer)
    if record is not None:
        for life in record.members:
            about[life.rank].append((life in known, life in record.carriers))
    for group in world.groups:
        for life in group.members:
            about[life.rank].append((group.epoch, life in known, life in group.built))
        for entered in group.entered:
            about[entered[0].rank].append(entered[1:])
        for life, step in sorted(group.offered):
            about[life.rank].append(step)
    keys = [hash(tuple(what)) for what in about]
    return sorted(ranks, key=keys.__getitem__)


def begin(count: int) -> World:
    """Return the world in which all ranks have just started."""
    world = World((0,) * count, ())
    for rank in range(count):
        world = world.started(rank)
    return world


def walk(count: int, faults: int, seed: int) -> int:
    """Make random moves until all lives have ended, and return their number."""
    chance = random.Random(seed)
    world = begin(count)
    likely = chance.choice([1, 4, 16])  # weight of moves that are no faults; a fault's is 1
    way: list[Label] = []
    try:
        while world.processes:
            after = list(moves(world, faults, eager=False))
            demand(bool(after) and len(way) < 1000 * count, "no end")
            weights = [1 if later.faults > world.faults else likely for _, later in after]
            label, world = chance.choices(after, weights)[0]
            way.append(label)
    except Wrong as error:
        lines = (" ".join(map(str, label)) for label in way)
        raise Wrong("\n".join((str(error), *lines))) from None
    return len(way)


def explore(count: int, faults: int, eager: bool, limit: float = float("inf")) -> Counter[str]:
    """Visit all states; raise `Wrong`, with the moves that lead there, if one is wrong."""
    first = begin(count)
    numbers: dict[int, int] = {hash_of(first): 0}
    met: dict[int, int] = {}  # the same for worlds whose names are not normal
    parents: array[int] = array("l", [-1])
    labels: list[Label] = [()]
    states: list[World | None] = [first]
    sources, targets = array("l"), array("l")
    good = set()
    end = time.monotonic() + limit
    at = 0
    stack = [0]
    while stack:
        at = stack.pop()
        world = states[at]
        assert world is not None
        states[at] = None
        if not world.processes:
            good.add(at)
        try:
            for label, after in moves(world, faults, eager):
                found = hash_of(after)
                number = met.get(found)
                if number is None:
                    after = normal(after, places(after, faults))
                    number = met[found] = numbers.setdefault(hash_of(after), len(states))
                if number == len(states):
                    states.append(after)
                    parents.append(at)
                    labels.append(label)
                    stack.append(number)
                if after.faults == world.faults:
                    sources.append(at)
                    targets.append(number)
        except Wrong as error:
            raise Wrong(f"{error}\n{way_to(at, parents, labels)}") from None
        if time.monotonic() > end:
            raise TimeoutError(f"{len(states)} states, and more")
    stuck = without_way(len(states), sources, targets, good)
    if stuck is not None:
        raise Wrong(f"no way out of this\n{way_to(stuck, parents, labels)}")
    return Counter(states=len(states), moves=len(sources))


def hash_of(world: World) -> int:
    """Hash a world to 61 bits: of 10^7 states, two share a hash once in 50,000 runs."""
    return hash(world)


def way_to(state: int, parents: array[int], labels: list[Label]) -> str:
    way = []
    while state > 0:
        way.append(" ".join(map(str, labels[state])))
        state = parents[state]
    return "\n".join(reversed(way))


def without_way(count: int, sources: array[int], targets: array[int], good: set[int]) -> int | None:
    """Return a state from which no move without a fault leads on to a good end, or None."""
    import numpy as np

    reached = np.zeros(count, bool)
    reached[list(good)] = True
    origin, target = np.frombuffer(sources, np.int64), np.frombuffer(targets, np.int64)
    while True:
        new = np.unique(origin[reached[target] & ~reached[origin]])
        if not len(new):
            break
        reached[new] = True
    left = np.flatnonzero(~reached)
    return int(left[0]) if len(left) else None


def walks(count: int, faults: int, number: int, seed: int) -> int:
    done = 0
    for at in range(seed, seed + number):
        try:
            done += walk(count, faults, at)
        except Wrong as error:
            print(f"seed {at}: {error}")
            return 1
    print(f"{count} ranks, {faults} faults: {number:,} ways, {done:,} moves")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, help="how many there are; default: a table")
    parser.add_argument("--faults", type=int, default=1, help="how many there may be")
    parser.add_argument("--eager", action="store_true", help="threads of ranks act at once")
    parser.add_argument("--old", action="store_true", help="any ranks that answer form a group")
    parser.add_argument("--walks", type=int, help="go through so many ways, drawn at random, alone")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.old:
        from fastgc.torch import agreement

        agreement._may_replace = any_may_replace  # type: ignore[assignment]
        agreement._is_lost = lambda record, seen: False
    if options.walks:
        return walks(options.ranks or 4, options.faults, options.walks, options.seed)
    cases = [(options.ranks, options.faults, options.eager)]
    if options.ranks is None:
        cases = [(2, 0, False), (2, 1, False), (3, 0, False), (2, 2, True), (3, 1, True)]
        cases = [(2, 2, False)] if options.old else [*cases, (4, 1, True), (3, 2, True)]
    print("ranks  faults  threads act       states       moves  seconds")
    for count, faults, eager in cases:
        begin = time.monotonic()
        try:
            found = explore(count, faults, eager)
        except Wrong as error:
            print(f"{count} ranks, {faults} faults: {error}")
            return 1
        print(
            f"{count:5}  {faults:6}  {'at once' if eager else 'any time':11}"
            f"{found['states']:13,}{found['moves']:12,}{time.monotonic() - begin:9.1f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
