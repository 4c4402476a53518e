"""The protocol by which ranks agree on who takes part (docs/extending/protocol.md).

`Coordinator` is the code that runs. Lives are modelled: what `Member` and `ReactiveDataParallel` do
is cut down to where a life is, and which sums it has. An action is one step of one actor: a
message arrives, a life enters or leaves a collective, a fault happens. `explore` goes through all
orders of actions up to a bound, and `walk` takes random ones with more ranks and faults. Each
invariant of the page is an assertion here.
"""

import pickle
import random

import pytest
from strength import much

from fastgc.torch.coordinator import Coordinator

SUMS = 3  # each life ends after so many
HANG = 10.0


class Life:
    """A life: where it is, what it hears and says."""

    def __init__(self, rank, number, world, odd):
        self.rank, self.name, self.world = rank, f"{rank}.{number}", world
        self.odd = odd  # whether its parameters differ from the others' after its first sum
        self.refusing = False  # whether it has seen that parameters differ, and tells
        self.again = False  # whether its guard starts it again
        self.heard, self.says = [], []
        self.results = ()  # the sums that it has, each named by the collective that made it
        self.holds = self.ready = self.newcomer = self.left = self.stopped = False
        self.boundary, self.inside, self.owes, self.admits = True, None, False, False
        self.finishing = False  # whether it tells that the run has ended, until it hears it
        self.view, self.number, self.after, self.turn = None, 0, 0, 0
        self.waiting, self.last = frozenset(), (0, [])
        self.hello()

    @property
    def at(self):
        return len(self.results)

    @property
    def kind(self):
        if self.boundary:
            return "boundary"
        return "leave" if self.at == SUMS else "sum"

    def hello(self):
        told = {"life": self.name, "rank": self.rank, "world": self.world, "address": None}
        told |= {"holds": self.holds, "ready": self.ready, "at": self.at, "hang": HANG}
        told["number"] = self.number
        self.says.append(["hello", told | {"view": self.last[0], "lives": self.last[1]}])

    def connect(self):
        """Begin anew with a coordinator that knows nothing of this connection."""
        self.heard.clear()
        bye = [each for each in self.says if each[0] == "bye"]
        self.says = []
        self.hello()
        ends = [["finish", self.at]] * self.finishing + [["refuse", "why"]] * self.refusing
        self.says += ends or bye

    def answer(self):
        self.owes = False
        told = {"view": self.number, "at": self.at, "holds": self.holds}
        self.says.append(["here", told | {"boundary": self.boundary, "waits": True}])

    def hear(self):
        what, *told = self.heard.pop(0)
        if what == "gather":
            self.number, self.view, self.owes = told[0], None, True
            if self.inside is None:
                self.answer()
        elif what == "view" and told[0] == self.number:
            names = [name for _, name, _ in told[1]]
            self.view, self.turn, self.last = names, 0, (told[0], names)
            self.waiting = frozenset(told[2])
        elif what == "newcomer":
            self.newcomer = not self.ready
        elif what == "admit":
            self.waiting |= {told[0]}
        elif what in ("left", "lost", "finished", "refused"):
            self.left, self.again = True, what != "finished"

    def take(self, told, own):
        """Take the outcome of a collective in which all have told where they are."""
        current = self.view is not None and self.number == own[0]
        holders = [each for each in told.values() if each["holds"]]
        newest = max((len(each["results"]) for each in holders), default=0)
        source = next((e for e in holders if len(e["results"]) == newest), None)
        kinds = {each["kind"] for each in told.values()}
        self.admits |= kinds == {"sum"} and any(each["admits"] for each in told.values())
        if any(len(each["results"]) < newest for each in holders):
            if self.holds and self.at < newest:
                self.results, self.admits = source["results"], source["admitted"]
                self.boundary = self.admits
        elif not holders or not all(each["holds"] for each in told.values()):
            if not self.holds:
                self.results = source["results"] if source else ()
                self.odd = source["odd"] if source else self.odd
                self.holds = True
                self.says.append(["holds"])
            self.cross(current)
        elif kinds == {"boundary"} and any(each["admits"] for each in told.values()):
            self.says.append(["boundary", own[0]])
            self.after = own[0]
        elif kinds == {"leave"}:
            self.finishing = True
            self.says.append(["finish", self.at])
        elif kinds == {"sum"} and len({each["odd"] for each in told.values()}) == 2:
            self.refusing = True
            self.says.append(["refuse", "why"])
        elif kinds == {"sum"}:
            self.results += (own,)
            self.boundary = self.admits
        elif self.kind == "boundary":
            self.cross(current)
        elif self.kind == "leave":  # the others see that it leaves
            self.left = True
            self.says.append(["bye", self.at, "why"])
        elif "leave" in kinds:
            self.after = own[0]

    def cross(self, current):
        """Pass the boundary, unless the view has changed: then it is crossed in the next one."""
        if current:
            self.boundary = self.admits = False


class World:
    """A coordinator, lives, and what is under way between them."""

    def __init__(self, ranks, faults, again=True, odd=False):
        self.now, self.faults, self.may_start_again, self.over = 0.0, faults, again, False
        self.odd = odd  # whether rank 0 begins with other parameters than the others
        self.lives, self.ranks = {}, ranks
        self.numbers = dict.fromkeys(range(ranks), 0)
        self.coordinator = Coordinator(self.send)
        self.rounds = {}  # collectives, by view and turn: who has entered, and told what
        self.doomed = set()  # lives that were there when one refused to go on
        for rank in range(ranks):
            self.start(rank, odd and rank == 0)

    def copy(self):
        self.coordinator._send = None
        new = pickle.loads(pickle.dumps(self))
        self.coordinator._send, new.coordinator._send = self.send, new.send
        return new

    def start(self, rank, odd=False):
        life = Life(rank, self.numbers[rank], self.ranks, odd)
        self.numbers[rank] += 1
        self.lives[life.name] = life

    def send(self, line, message):
        if line not in self.lives or message is None:
            return
        self.lives[line].heard.append(message)
        if message[0] == "view":
            self.check_view(message)
        known = [each for each in self.standing() if each.name not in self.outside()]
        assert message[0] != "lost" or (self.odd and not known), "somebody holds the state"

    def standing(self):
        return [e for e in self.lives.values() if e.holds and not e.left and not e.stopped]

    def check_view(self, message):
        """A view has a holder of the newest state (3); members are at most one sum apart (2).

        Newcomers enter between steps only (4), and a rank has one life in it.
        """
        told = message[2]
        members = [self.lives[name] for _, name, _ in told if name in self.lives]
        holders = [each for each in members if each.holds]
        alive = [each for each in self.standing() if each.name not in self.outside()]
        newest = max((each.at for each in alive), default=0)
        assert len({rank for rank, _, _ in told}) == len(told)
        assert holders or not alive, "a view without the state"
        assert all(each.at >= newest - 1 for each in holders), "more than one sum apart"
        assert max((each.at for each in holders), default=0) >= newest, "without the newest state"
        if holders and len(holders) < len(members):
            assert all(each.boundary for each in members), "a newcomer enters within a step"

    def outside(self):
        """The lives that the coordinator has told that they are left out, or cannot know yet.

        Nor can it know of a life that holds the state before that life says so.
        """
        known = self.coordinator.lives
        return {n for n, e in self.lives.items() if n not in known or e.holds > known[n].holds}

    def check(self):
        """Lives of one view have the same results of the sums that both have done (1)."""
        found = {}
        for life in self.standing():
            if life.view is not None:
                other = found.setdefault(life.number, life)
                n = min(other.at, life.at)
                assert other.results[:n] == life.results[:n], "copies differ"

    # ------------------------------------------------------------------------------------ actions

    def actions(self):
        """Return what may happen next, without faults."""
        found = []
        for name, life in self.lives.items():
            if life.says and not life.stopped:
                found.append(("tell", name))
            if life.left or life.stopped:
                continue
            if life.heard:
                found.append(("hear", name))
            if life.newcomer and life.inside is None:
                found.append(("warm", name))
            if life.inside is not None:
                told, members = self.rounds[life.inside]
                if len(told) == len(members):
                    found.append(("complete", name))
                if any(self.is_out(each, life.inside[0]) for each in members):
                    found.append(("part", name))
            elif life.finishing or life.refusing:
                continue
            elif life.view is not None and life.number > life.after:
                found.append(("enter", name))
        return found

    def faulty(self):
        """Return the faults that may happen next: one holder at least lives on."""
        if not self.faults:
            return []
        # A coordinator that starts again knows of the end only if somebody tells it.
        tells = any(each.finishing and not each.left for each in self.lives.values())
        again = self.may_start_again and (not self.over or tells)
        found, outside = [("again",)] if again else [], self.outside()
        standing = [each for each in self.standing() if each.name not in outside]
        for name, life in self.lives.items():
            others = [each for each in standing if each is not life]
            if life.kind != "leave":  # those who are done leave those who are not
                others = [each for each in others if each.kind != "leave"]
            if others and not life.left:
                found.append(("kill", name))
            if not life.left:
                found.append(("cut", name))
        return found

    def is_out(self, name, number):
        """Whether a life is dead, or has left a view; not if it has yet to enter it."""
        life = self.lives.get(name)
        if life is None or life.left or life.number != number:
            return True
        return life.view is None and ["view", number] not in [each[:2] for each in life.heard]

    def act(self, action):
        getattr(self, action[0])(*action[1:])
        self.check()

    def tell(self, name):
        life = self.lives[name]
        if life.says[0][0] == "hello":  # it says where it is now that it is connected
            life.hello()
            life.says[0] = life.says.pop()
        if life.says[0][0] == "refuse" and name in self.coordinator.lives:
            self.doomed |= set(self.coordinator.lives) | set(life.last[1])
        self.coordinator.receive(name, life.says.pop(0), self.now)
        self.leave(name)

    def hear(self, name):
        self.over |= self.lives[name].heard[0][0] == "finished"
        self.lives[name].hear()
        self.leave(name)

    def leave(self, name):
        """A life that has left, and has nothing more to say, closes its line."""
        life = self.lives[name]
        if life.left and not life.says:
            self.coordinator.closed(name, self.now)
            del self.lives[name]
            if life.again:
                self.start(life.rank)

    def warm(self, name):
        """A newcomer has got the state, and has tried a step alone."""
        life = self.lives[name]
        life.ready, life.newcomer = True, False
        life.says.append(["warm"])

    def enter(self, name):
        life = self.lives[name]
        life.inside = life.number, life.turn
        told, members = self.rounds.setdefault(life.inside, ({}, life.view))
        told[name] = {
            "kind": life.kind,
            "results": life.results,
            "holds": life.holds,
            "odd": life.odd and life.at > 0,
            "admits": bool(life.waiting - set(members)),
            "admitted": life.admits,
        }

    def complete(self, name):
        life = self.lives[name]
        own, life.inside = life.inside, None
        life.turn += 1
        life.take(self.rounds[own][0], own)
        assert not (life.finishing and name in self.doomed), "one refused, and another went on"
        self.over |= life.left
        if life.owes and not life.left:
            life.answer()

    def part(self, name):
        """A collective fails."""
        life = self.lives[name]
        own, life.inside = life.inside, None
        life.turn += 1
        life.says.append(["broken", own[0], False])
        if life.number == own[0]:
            life.view = None
        if life.owes:
            life.answer()

    def kill(self, name):
        self.faults -= 1
        life = self.lives.pop(name)
        self.coordinator.closed(name, self.now)
        self.start(life.rank)

    def again(self):
        """The coordinator starts again: all connect anew."""
        self.faults -= 1
        self.coordinator = Coordinator(self.send)
        self.doomed.clear()  # it knows nothing of them, and may have told nobody
        for life in self.lives.values():
            life.connect()

    def cut(self, name):
        """A connection breaks, and the life connects anew."""
        self.faults -= 1
        self.coordinator.closed(name, self.now)
        self.lives[name].connect()

    def pass_time(self):
        self.now += HANG + 1
        self.coordinator.tick(self.now)

    def ended(self):
        return not [each for each in self.lives.values() if not each.left]

    def key(self):
        """Return what tells two worlds apart, whatever the order of their sets."""

        def state(made, without=()):
            told = {k: v for k, v in made.__dict__.items() if k not in without}
            for k, v in told.items():
                if isinstance(v, (set, frozenset, dict)):
                    told[k] = sorted(v.items() if isinstance(v, dict) else v)
            return told

        c = self.coordinator
        lives = [[state(each) for each in some.values()] for some in (self.lives, c.lives)]
        view = [each.name for each in c.view]
        inner = state(c, ("_send", "lives", "view"))
        return repr((lives, inner, view, self.rounds, self.faults))


def walk(seed, ranks, faults, odd, likely=0.05):
    """Take random actions until all lives have ended."""
    rng = random.Random(seed)
    world = World(ranks, faults, odd=odd)
    for _ in range(5000):
        if world.ended():
            return world
        actions, faulty = world.actions(), world.faulty()
        if faulty and (rng.random() < likely or not actions):
            world.act(rng.choice(faulty))
        elif actions:
            world.act(rng.choice(actions))
        else:
            world.pass_time()
    raise AssertionError("the run does not end")


@pytest.mark.parametrize("faults", [0, 1, 2, 4])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("odd", [False, True])
def test_a_run_ends_with_the_same_results_whatever_happens(ranks, faults, odd):
    for seed in range(much(3000, 60)):
        walk(seed, ranks, faults, odd)


def explore(world, most):
    """Go through all orders of actions and faults, or `most` states; return how many they were."""
    seen, todo = set(), [world]
    while todo and len(seen) < most:
        world = todo.pop()
        if (key := hash(world.key())) in seen:
            continue
        seen.add(key)
        actions = world.actions()
        if not actions and not world.ended():
            new = world.copy()
            new.pass_time()
            assert new.actions(), "nothing can happen any more"
            todo.append(new)
        for action in [*actions, *world.faulty()]:
            new = world.copy()
            new.act(action)
            todo.append(new)
    return len(seen)


@pytest.mark.parametrize(("ranks", "faults"), [(2, 1), (3, 1)])
@pytest.mark.parametrize("odd", [False, True])
def test_orders_of_actions_keep_the_invariants(ranks, faults, odd):
    most = much(100_000, 1000)
    assert explore(World(ranks, faults, again=ranks == 2, odd=odd), most) == most


@pytest.mark.parametrize("odd", [False, True])
def test_all_orders_of_actions_keep_the_invariants(odd):
    """Of two ranks without faults, and a part if parameters differ."""
    whole = 71_391 if odd else 4839
    most = much(whole, min(whole, 5000))
    assert explore(World(2, 0, odd=odd), most + 1) == most + (most < whole)


def test_a_life_that_asks_is_answered_and_nothing_else_happens():
    world, rng, asked = World(3, 2), random.Random(1), 0
    while not world.ended():
        for name in world.coordinator.lives:
            new = world.copy()
            before = new.key()
            new.coordinator.receive(name, ["ping"], new.now)
            asked += new.lives[name].heard.pop() == ["pong"]
            assert new.key() == before
        actions = world.actions() + world.faulty()
        world.act(rng.choice(actions)) if actions else world.pass_time()
    assert asked > 50


class Told:
    """A coordinator, and what it has told to whom."""

    def __init__(self):
        self.told = []
        self.coordinator = Coordinator(lambda line, message: self.told.append((line, message)))

    def hello(self, line, rank, **others):
        what = {"life": line, "rank": rank, "world": 2, "address": None, "holds": False}
        what |= {"ready": False, "at": 0, "hang": HANG, "view": 0, "lives": [], "number": 0}
        self.coordinator.receive(line, ["hello", what | others], 0.0)


def test_a_rank_that_died_is_waited_for_until_it_knows_of_the_end():
    made = Told()
    made.hello("a", 0)
    made.hello("b", 1)
    made.coordinator.closed("b", 0.0)
    assert not made.coordinator.awaits
    made.coordinator.receive("a", ["finish", 7], 0.0)
    made.coordinator.closed("a", 0.0)
    assert made.coordinator.awaits
    made.hello("c", 1)
    assert ("c", ["finished", 7]) in made.told
    assert not made.coordinator.awaits


@pytest.mark.parametrize("ready", [False, True])
def test_newcomers_hear_that_nobody_holds_the_state(ready):
    """Also those that have got it, and tried a step alone; the next lives begin anew."""
    made = Told()
    made.hello("a", 0, holds=True, at=3, world=1)
    made.hello("b", 1, ready=ready)
    here = {"view": 1, "at": 3, "holds": False, "boundary": True, "waits": True}
    made.coordinator.receive("b", ["here", here], 0.0)
    made.coordinator.closed("a", 1.0)
    made.coordinator.tick(1.0 + HANG - 1)
    assert ("b", None) not in made.told
    made.coordinator.tick(1.0 + HANG)
    assert [message for line, message in made.told if line == "b"][-1] is None
    assert any(line == "b" and message and message[0] == "lost" for line, message in made.told)
    made.hello("c", 0)
    made.hello("d", 1)
    assert ("c", ["gather", made.coordinator.number]) in made.told


def test_a_life_that_was_cut_hears_that_one_refused_and_takes_no_place():
    made = Told()
    for line, rank in (("a", 0), ("b", 1)):
        made.hello(line, rank)
    for line in ("a", "b"):
        here = {"view": 1, "at": 0, "holds": False, "boundary": True, "waits": True}
        made.coordinator.receive(line, ["here", here], 0.0)
    assert [message[0] for line, message in made.told if line == "b"][-1] == "view"
    made.coordinator.closed("b", 1.0)
    made.coordinator.receive("a", ["refuse", "why"], 1.0)
    made.hello("c", 1)
    made.hello("b", 1, holds=True, at=1, view=1, lives=["a", "b"], number=1)
    assert made.told[-1] == ("b", ["refused", "why"])
    assert "c" in made.coordinator.lives
    assert not any(line == "c" and message[0] == "left" for line, message in made.told)
