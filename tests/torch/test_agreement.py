"""What a rank does next: in all interleavings of few ranks, and state by state.

The model of the protocol is `tests/membership_model.py`.
"""

import itertools
import random

import pytest
from strength import much

pytest.importorskip("torch")
import membership_model as model

from fastgc.torch import agreement
from fastgc.torch.agreement import Answer, End, Life, Own, Record, Seen, decide


@pytest.mark.parametrize(
    ("ranks", "faults", "eager"),
    [
        (2, 0, False),
        (3, 0, False),
        pytest.param(2, 1, False, marks=pytest.mark.long),
        pytest.param(3, 1, True, marks=pytest.mark.long),
        pytest.param(2, 2, True, marks=pytest.mark.long),
        pytest.param(4, 1, True, marks=pytest.mark.long),
        pytest.param(3, 2, True, marks=pytest.mark.long),
    ],
)
def test_decide_in_all_interleavings(ranks, faults, eager):
    assert model.explore(ranks, faults, eager)["states"] > 20


def test_decide_on_ways_drawn_at_random():
    """Ways drawn at random cover more ranks and faults than can be enumerated."""
    for seed in range(much(3000, 20)):
        assert model.walk(4, 3, seed) > 20


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("faults", [1, 3])
def test_worlds_of_other_names_go_the_same_ways(ranks, faults):
    """`normal` leaves out and renames parts of a world, which does not change later moves."""
    orders = list(itertools.permutations(range(ranks)))

    def names(world):
        chosen = orders if model.are_alike(world, faults) else orders[:1]
        return frozenset(model.normal(world, order) for order in chosen)

    for seed in range(much(20, 2)):
        chance = random.Random(seed)
        world = model.begin(ranks)
        while world.processes:
            after = [later for _, later in model.moves(world, faults, eager=False)]
            order = model.places(world, faults)
            same = model.normal(world, order)
            others = [later for _, later in model.moves(same, faults, eager=False)]
            if len(after) > 1:  # a single move may have been chosen by the order of ranks
                assert set(map(names, after)) == set(map(names, others))
            world = chance.choice(after)


@pytest.fixture
def undecided():
    model.decided.cache_clear()
    yield
    model.decided.cache_clear()


def test_the_model_finds_the_old_rule_at_fault(monkeypatch, undecided):
    """The fault: any ranks that answer form a group, also beside ranks that hold the state."""
    monkeypatch.setattr(agreement, "_may_replace", model.any_may_replace)
    monkeypatch.setattr(agreement, "_is_lost", lambda record, seen: False)
    with pytest.raises(model.Wrong, match="progress is lost"):
        model.explore(2, 2, False, limit=60)


def test_the_model_finds_a_state_that_nobody_wrote_down(monkeypatch, undecided):
    """The fault: ranks go on before a record says that they hold the state they begin with."""
    mains = model.mains

    def goes_on(world, process):
        if process.aligned and not process.own.holds:
            process = process._replace(own=process.own._replace(holds=True))
        yield from mains(world, process)

    monkeypatch.setattr(model, "mains", goes_on)
    with pytest.raises(model.Wrong):
        model.explore(2, 2, False, limit=60)


def test_the_model_finds_that_who_refuses_connections_may_be_alive(monkeypatch, undecided):
    """The fault: a rank whose connections all others refuse says that the state is lost."""

    def look(record, begun, newest, answers, dead, refusing, *passed):
        return Seen(record, begun, newest, answers, dead, (), *passed)

    monkeypatch.setattr(model, "Seen", look)
    with pytest.raises(model.Wrong, match="says that the state is lost"):
        model.explore(2, 2, True, limit=60)


# ---------------------------------------------------------------------------------------- reachable


def test_reachable_for_all_sets_of_cuts():
    """For all sets of cuts, the lives that stay reach each other, and a needed one stays.

    If several cuts have one life in common, it alone is left out, unless only it is needed.
    """
    lives = [Life(rank, 1) for rank in range(4)]
    pairs = list(itertools.combinations(lives, 2))
    for number in range(2 ** len(pairs)):
        cut = [pair for at, pair in enumerate(pairs) if number >> at & 1]
        for needed in ([], lives[2:3], lives[1:3]):
            said = {a: [b for x, b in cut if x == a] for a in lives}
            here = agreement.reachable(lives, said, needed)
            assert not any(a in here and b in here for a, b in cut)
            assert here
            if not cut:
                assert here == set(lives)
            assert not needed or here.intersection(needed)
            alone = [life for life in lives if all(life in pair for pair in cut)]
            if len(cut) > 1 and len(alone) == 1 and alone != needed:
                assert here == set(lives) - set(alone)


def test_reachable_keeps_who_says_that_another_refuses_it():
    """The other rank may have died after its answer, before there was a connection."""
    low, high = Life(0, 1), Life(1, 1)
    assert agreement.reachable([low, high], {high: [low]}, []) == {high}
    assert agreement.reachable([low, high], {high: [low], low: [high]}, []) == {low}
    assert agreement.reachable([low, high], {high: [low]}, [low]) == {low}


def test_reachable_leaves_out_first_who_has_no_file_descriptors():
    """It reports itself, because cuts between two ranks do not tell whose fault they are."""
    low, high, third = (Life(rank, 1) for rank in range(3))
    own_fault = {low: [low, high, third]}
    for needed in ([], [high], [low, high], [low, high, third]):
        assert agreement.reachable([low, high], own_fault, needed) == {high}
        assert agreement.reachable([low, high, third], own_fault, needed) == {high, third}
    assert agreement.reachable([low, high], own_fault, [low]) == {low}
    assert agreement.reachable([low], own_fault, []) == {low}
    all_of_them = {life: [low, high, third] for life in (low, high, third)}
    assert len(agreement.reachable([low, high, third], all_of_them, [])) == 1


# ------------------------------------------------------------------------------------------- decide


def test_seen_who_is_gone():
    a, b = Life(0, 1), Life(1, 1)
    seen = Seen(Record(1, (a, b)), begun=False, newest=(1, 2), dead={a})
    assert seen.gone(a)
    assert seen.gone(b)  # its rank was started again, even if the process still lives
    assert not seen.gone(Life(1, 2))


def all_enough(ranks):
    return bool(ranks)


def test_decide_what_ranks_are_told():
    a, b, c = (Life(rank, 1) for rank in range(3))
    record = Record(3, (a, b), (a, b))
    seen = Seen(record, False, (1, 1, 1))
    assert decide(Own(a, holds=True, built=3), seen, all_enough) == agreement.Wait()
    assert decide(Own(a), seen, all_enough) == agreement.Build(record)
    assert decide(Own(c, holds=True), seen, all_enough) is End.LEFT_OUT
    assert decide(Own(c), seen, all_enough) == agreement.Say(Answer())
    ended = Seen(record._replace(finished=9), False, (1, 1, 1))
    assert decide(Own(c), ended, all_enough) is End.MISSED
    assert decide(Own(c, holds=True), ended, all_enough) is End.LEFT_OUT
    assert decide(Own(a, holds=True), ended, all_enough) is End.OVER
    assert decide(Own(a), Seen(record, False, (2, 1, 1)), all_enough) is End.REPLACED
    shut = Seen(record._replace(shut_out=(c,)), True, (1, 1, 1))
    assert decide(Own(c), shut, all_enough) is End.SHUT_OUT
    gone = Seen(record, True, (1, 1, 1), {c: Answer()}, dead={a, b})
    assert decide(Own(c), gone, all_enough) is End.LOST
    refused = gone._replace(refusing={b})  # it may be alive behind a firewall
    assert decide(Own(c), refused, all_enough) == agreement.Wait()
    assert decide(Own(c), refused._replace(over=True), all_enough) is End.LOST
    assert decide(Own(c), refused._replace(newest=(1, 2, 1)), all_enough) is End.LOST


def test_decide_who_replaces_the_record_and_when():
    a, b, c = (Life(rank, 1) for rank in range(3))
    record = Record(3, (a, b), (a,))
    idle = Answer(waits=False)
    answers = {a: Answer(holds=True), b: Answer(), c: Answer()}
    seen = Seen(record, True, (1, 1, 1), answers)
    following = Record(4, (a, b, c), (a,))
    assert decide(Own(a, holds=True), seen, all_enough) == agreement.Replace(following)
    both = seen._replace(answers=answers | {b: Answer(holds=True)})  # b has got the state meanwhile
    assert decide(Own(a, holds=True), both, all_enough) == agreement.Replace(
        following._replace(carriers=(a, b))
    )
    assert decide(Own(b), seen, all_enough) == agreement.Wait()  # a member without the state
    assert decide(Own(c), seen, all_enough) == agreement.Wait()

    # A member that has joined may still get the state, so it is not lost until the deadline.
    dead = seen._replace(answers={b: Answer(), c: Answer()}, dead={a})
    assert decide(Own(c), dead, all_enough) == agreement.Wait()
    assert decide(Own(c), dead._replace(over=True), all_enough) is End.LOST

    # Ranks wait for a silent member until the deadline; if one waited in vain, `settle` seconds.
    in_vain = Answer(holds=True, in_vain=True)
    own = Own(a, holds=True, answer=Answer(in_vain=True))
    silent = seen._replace(answers={a: in_vain, c: Answer()})
    assert decide(own, silent, all_enough) == agreement.Wait()
    without = agreement.Replace(Record(4, (a, c), (a,)))
    assert decide(own, silent._replace(settled=True), all_enough) == without
    patient = silent._replace(answers={a: Answer(holds=True), c: Answer()}, settled=True)
    assert decide(Own(a, holds=True), patient, all_enough) == agreement.Wait()
    assert decide(Own(a, holds=True), patient._replace(over=True), all_enough) == without

    # A rank that computes is late if another has waited in vain.
    late = silent._replace(answers={a: in_vain, b: idle, c: Answer()})
    assert decide(own, late, all_enough) == without

    # It is not late if that other one only joins: a joining rank may have been stopped.
    answers = {a: Answer(holds=True), b: idle, c: Answer(in_vain=True)}
    joins = seen._replace(answers=answers, settled=True)
    assert decide(Own(a, holds=True), joins, all_enough) == agreement.Replace(following)
    answers = {a: Answer(holds=True), c: Answer(in_vain=True)}
    joins = joins._replace(answers=answers)
    assert decide(Own(a, holds=True), joins, all_enough) == agreement.Wait()
