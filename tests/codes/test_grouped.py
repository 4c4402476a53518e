"""Groups of codes: numbers of workers and partitions, and rounds of some of the groups.

Other tests of codes try sets of messages of all groups.
"""

import itertools

import numpy as np
import pytest
from liars import send

from fastgc import (
    BinaryCode,
    CouponCollector,
    FractionalRepetition,
    Grouped,
    LagrangeCode,
    LinearCode,
    NonFiniteMessageError,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes.grouped import GroupedRound
from fastgc.coding.rules import Blocks, Cells, Groups, Tiling, side_by_side
from fastgc.coding.verify import Inspector

# Groups with real and complex codes, one message and several, of unequal sizes.
MIXED = Grouped([Uncoded(2, load=2), ReedSolomon(3, 4, stragglers=1), BinaryCode(3, stragglers=1)])


def sent(code, p=3, dtype=np.float64, seed=0):
    """Return partial gradients and all messages."""
    partials = np.random.default_rng(seed).standard_normal((code.k, p)).astype(dtype)
    return partials, [
        code.encode(i, partials[code.partitions(i, t)], index=t)
        for i, t in map(code.scheme.messages.sender, range(code.scheme.messages.count))
    ]


def begun(code, groups, p=1, **options):
    """Return a round of these groups."""
    rnd = code.group_round(p, **options)
    rnd.reset(groups)
    return rnd


def test_workers_and_partitions_are_counted_on():
    assert [MIXED.members(g) for g in range(3)] == [range(2), range(2, 5), range(5, 8)]
    assert [MIXED.partitions_of(g) for g in range(3)] == [range(2), range(2, 6), range(6, 9)]
    assert [MIXED.group_of(i) for i in range(8)] == [0, 0, 1, 1, 1, 2, 2, 2]
    assert (MIXED.n, MIXED.k, MIXED.groups, MIXED.load, MIXED.stragglers) == (8, 9, 3, 3, 1)
    assert MIXED.scheme.loads.tolist() == [i for code in MIXED.codes for i in code.scheme.loads]
    assert MIXED.scheme.messages.counts == [2, 2, 1, 1, 1, 1, 1, 1]
    B = MIXED.matrix()
    at = [0, 4, 7, 10]
    for g, code in enumerate(MIXED.codes):
        held = MIXED.partitions_of(g)
        np.testing.assert_array_equal(B[at[g] : at[g + 1], held], code.matrix())
        B[at[g] : at[g + 1], held] = 0
        for i in MIXED.members(g):
            assert set(MIXED.partitions(i)) <= set(held)
    assert not B.any()


@pytest.mark.parametrize("method", ["members", "partitions_of", "group_of"])
@pytest.mark.parametrize(
    ("number", "error"), [(-1, ValueError), (8, ValueError), (1.0, TypeError), ("0", TypeError)]
)
def test_there_is_no_such_group_or_worker(method, number, error):
    with pytest.raises(error, match=r"(group|worker) (-?\d does not exist|must be an integer)"):
        getattr(MIXED, method)(number)


def test_repetition_has_a_partition_for_each_group():
    code = Grouped.repetition(12, 3)
    assert (code.n, code.k, code.groups, code.load, code.stragglers) == (12, 3, 3, 1, 3)
    assert code.threshold == 9
    np.testing.assert_array_equal(code.matrix(), np.repeat(np.eye(3), 4, axis=0))
    alone = Grouped.repetition(4, 4)
    np.testing.assert_array_equal(alone.matrix(), np.eye(4))
    assert (alone.stragglers, alone.threshold) == (0, 4)
    assert Grouped.repetition(3, 1).matrix().tolist() == [[1.0]] * 3
    several = Grouped.repetition(4, 2, 6)
    assert (several.k, several.load, several.threshold) == (6, 3, 3)
    np.testing.assert_array_equal(several.matrix(), np.kron(np.eye(2), np.ones((2, 3))))
    for F in itertools.combinations(range(12), 4):  # one worker of each group suffices
        assert code.decodable(F) == ({i // 4 for i in F} == {0, 1, 2})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((12, 5), ValueError, "groups must divide the n=12 workers .*, not be 5"),
        ((12, 3, 4), ValueError, "the k=4 partitions, not be 3"),
        ((12, 3, 0), ValueError, "the k=0 partitions, not be 3"),
        ((12, 0), ValueError, "groups must divide"),
        ((0, 1), ValueError, "groups must divide"),
        ((12, 3.0), TypeError, "groups must be an integer"),
    ],
)
def test_repetition_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        Grouped.repetition(*arguments)


@pytest.mark.parametrize(
    ("codes", "error", "message"),
    [
        ([], ValueError, "codes must hold a code for each group"),
        (Uncoded(3), TypeError, "codes must be a sequence of codes"),
        ([Uncoded(3), "rs"], TypeError, r"codes\[1\] must be a code of fastgc, .*, not 'rs'"),
        ([Uncoded], TypeError, r"codes\[0\] must be a code of fastgc"),
        ([Uncoded(2), LagrangeCode(3, load=2)], ValueError, r"codes\[1\], LagrangeCode"),
        ([ReedSolomon(4, stragglers=1, packed=False)], ValueError, r"codes\[0\], ReedSolomon"),
    ],
)
def test_codes_refused(codes, error, message):
    with pytest.raises(error, match=message):
        Grouped(codes)


def test_threshold_is_what_one_group_may_miss():
    # Of 4, 3 and 3 messages, 3, 2 and 2 are needed.
    spare = [code.scheme.messages.count - code.threshold for code in MIXED.codes]
    assert MIXED.threshold == MIXED.scheme.messages.count - min(spare)
    loose = Grouped([ReedSolomon(9, stragglers=4), ReedSolomon(5, stragglers=2)])
    assert (loose.threshold, loose.stragglers) == (12, 2)


def test_rules_side_by_side_are_of_their_own_kind():
    """Rules that simulations know stay rules that they know."""
    kinds = {
        Blocks: [ReedSolomon(4, stragglers=1), ReedSolomon(3, 5, stragglers=2)],
        Cells: [Uncoded(3), CouponCollector(6, load=3, seed=2)],
        Tiling: [BinaryCode(5, stragglers=1), BinaryCode(4, 7, stragglers=1)],
        Groups: [ReedSolomon(4, stragglers=1), BinaryCode(4, stragglers=1)],
    }
    rng = np.random.default_rng(1)
    for kind, codes in kinds.items():
        code = Grouped(codes)
        rule, of_groups = code.scheme.rule, [c.scheme.rule for c in codes]
        parts = Groups.joined(of_groups, code.scheme.cuts.tolist())
        assert isinstance(rule, kind)
        assert isinstance(side_by_side(of_groups, code.scheme.cuts.tolist()), kind)
        for _ in range(200):
            order = rng.permutation(code.scheme.messages.count)
            tracker, other = rule.tally(), parts.tally()
            for at, message in enumerate(order.tolist()):
                F = order[: at + 1]
                ready = tracker.add(message)
                assert ready == other.add(message) == (rule.missing(F) == 0)
                # The least number of further messages is the sum of the groups' numbers.
                assert rule.missing(F) == parts.missing(F)
    # A tolerance of missing partitions does not add up over groups.
    part = Grouped([Uncoded(4, tolerance=0.25), Uncoded(4)])
    assert isinstance(part.scheme.rule, Groups)
    assert part.decodable([0, 1, 2, 4, 5, 6, 7])
    assert not part.decodable([0, 1, 2, 3, 4, 5, 6])


def test_roundings_are_those_of_the_longest_messages_and_rings_those_of_groups():
    short, long = Uncoded(2), FractionalRepetition(2, 64, stragglers=1)
    for code in (Grouped([short, long]), Grouped([long, short])):
        assert (
            code.scheme.precision.message_roundings
            == long.scheme.precision.message_roundings
            > short.scheme.precision.message_roundings
        )
    clustered = ReedSolomon(6, stragglers=1, clusters=2)
    rings = [ring.tolist() for ring in Grouped([clustered, Uncoded(3)]).scheme.rings()]
    assert rings == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_best_vector_is_that_of_each_group():
    B = MIXED.matrix()
    for F in ([0, 1, 4, 5, 7], [8], [4, 5], [0, 2, 9]):
        assert not MIXED.decodable(F)
        vector, residual = MIXED.best_vector(F)
        nearest = np.linalg.lstsq(B[F].T, np.ones(9), rcond=None)[0]
        np.testing.assert_allclose(vector, nearest, atol=1e-12)
        expected = np.linalg.norm(nearest @ B[F] - 1) / 3
        assert residual == pytest.approx(expected)


# ---------------------------------------------------------------------------- rounds of groups


@pytest.mark.parametrize(
    "code",
    [
        Grouped([ReedSolomon(3, 4, stragglers=1), BinaryCode(3, stragglers=1)]),
        Grouped([Uncoded(1, 2, load=2), FractionalRepetition(2, stragglers=1), Uncoded(2)]),
        Grouped([LinearCode([[1, 2], [0, 1], [1, 1]]), ReedSolomon(3, stragglers=2)]),
    ],
    ids=repr,
)
def test_every_order_of_messages_of_every_set_of_groups(code):
    """Each group is decodable as soon as its own code is, from the messages so far."""
    partials, messages = sent(code)
    rnd = code.group_round(3)
    senders = [*map(code.scheme.messages.sender, range(code.scheme.messages.count))]
    for size in range(code.groups + 1):
        for groups in itertools.combinations(range(code.groups), size):
            due = [m for m, (worker, _) in enumerate(senders) if code.group_of(worker) in groups]
            for order in itertools.permutations(due):
                rnd.reset(groups)
                assert rnd.groups == list(groups)
                assert rnd.workers == sorted({senders[m][0] for m in due})
                assert rnd.ready == rnd.decodable == (not groups)
                heard = {g: [] for g in groups}
                used = []
                for message in order:
                    worker, index = senders[message]
                    g = code.group_of(worker)
                    wanted = not code.codes[g].decodable(heard[g])
                    assert rnd.wants(worker) == wanted
                    if wanted:
                        heard[g].append(message - code.scheme.cuts[g])
                        used.append(message)
                    ready = rnd.receive(worker, messages[message], index)
                    assert rnd.survivors.tolist() == used
                    all_are = all(code.codes[h].decodable(heard[h]) for h in groups)
                    assert ready == rnd.ready == rnd.decodable == all_are
                for g in groups:
                    np.testing.assert_allclose(
                        rnd.gradient(g), partials[code.partitions_of(g)].sum(axis=0), atol=1e-13
                    )


def test_messages_of_a_group_that_is_ready_are_not_used():
    code = Grouped.repetition(4, 2)
    rnd = begun(code, [0], 2)
    message = np.array([1.0, 2.0])
    assert rnd.receive(1, message)
    assert rnd.receive(0, np.array([np.nan, 5.0]))  # the message is not read
    assert rnd.survivors.tolist() == [1]
    out = np.empty(2)
    assert rnd.gradient(0, out=out) is out
    np.testing.assert_array_equal(out, message)
    message[:] = 7  # the round keeps a reference, not a copy
    np.testing.assert_array_equal(rnd.gradient(0), message)
    # Messages without an index are each worker's in order.
    several = Grouped([Uncoded(1), Uncoded(1, 2, load=2)])
    rnd = begun(several, [1])
    assert not rnd.receive(1, np.array([2.0]))
    assert rnd.receive(1, np.array([3.0]))
    assert rnd.gradient(1) == 5.0


def test_types_of_rounds():
    code = Grouped([ReedSolomon(3, stragglers=1), Uncoded(2)])
    partials = np.random.default_rng(0).standard_normal((code.k, 3)).astype(np.float32)
    rnd = begun(code, [1, 0], 3, dtype=np.float32, message_dtype=np.float16)
    for i in (3, 1, 4, 2):
        held = partials[code.partitions(i)]
        rnd.receive(i, code.encode(i, held, message_dtype=np.float16))
    assert rnd.ready
    for g in (0, 1):
        assert rnd.gradient(g).dtype == np.float32
        exact = partials[code.partitions_of(g)].sum(axis=0)
        np.testing.assert_allclose(rnd.gradient(g), exact, atol=0.02)
    with pytest.raises(TypeError, match="decode to gradients of float32"):
        code.group_round(3, np.float64, np.float16)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([0, 0], ValueError, r"groups must be named once each, not \[0, 0\]"),
        ([0, 2], ValueError, "group 2 does not exist: they are numbered 0 to 1"),
        ([-1], ValueError, "group -1 does not exist"),
        ([0.0], TypeError, "group must be an integer"),
        (np.array([[0], [1]]), TypeError, "group must be an integer"),
    ],
)
def test_reset_refused_changes_nothing(groups, error, message):
    rnd = begun(Grouped.repetition(4, 2), np.array([1]))
    rnd.receive(2, np.ones(1))
    with pytest.raises(error, match=message):
        rnd.reset(groups)
    assert (rnd.groups, rnd.workers, rnd.ready) == ([1], [2, 3], True)
    assert rnd.survivors.tolist() == [2]
    assert rnd.gradient(1) == 1.0


def test_receive_refused_changes_nothing():
    """Errors name workers by their numbers in the whole code."""
    code = Grouped([Uncoded(2), ReedSolomon(3, stragglers=0), Uncoded(1, 2, load=2)])
    rnd = begun(code, [2, 1], 2)
    good = np.ones(2)
    rnd.receive(3, good)
    for worker, message, index, error, says in [
        (0, good, None, ValueError, r"worker 0 is of group 0, which takes no part: \[2, 1\] do"),
        (6, good, None, ValueError, "worker 6 does not exist"),
        (3, good, None, ValueError, "^worker 3 was heard already in this round"),
        (4, good, 1, ValueError, "message of worker 4, which sends 1: index 1 does not exist"),
        (4, np.ones(3), None, ValueError, r"message of worker 4 must have shape \(2,\)"),
        (5, good, 2, ValueError, "message of worker 5, which sends 2: index 2"),
    ]:
        with pytest.raises(error, match=says):
            rnd.receive(worker, message, index)
        assert rnd.survivors.tolist() == [3]
        assert not rnd.ready
    rnd.receive(5, good)
    with pytest.raises(ValueError, match="message 0 of worker 5 was heard already"):
        rnd.receive(5, good, 0)
    for worker in (4, 2):
        assert not rnd.receive(worker, good)
    assert rnd.receive(5, good)
    assert rnd.survivors.tolist() == [3, 5, 4, 2, 6]


def test_gradient_names_workers_by_their_numbers_in_the_whole_code():
    rnd = begun(Grouped([Uncoded(2), ReedSolomon(3, stragglers=0)]), [1], 2)
    for worker in (3, 4, 2):
        rnd.receive(worker, np.full(2, np.inf if worker == 4 else 1.0))
    with pytest.raises(NonFiniteMessageError, match="message of worker 4 is not finite") as caught:
        rnd.gradient(1)
    assert caught.value.worker == 4


def test_groups_that_take_no_part_are_forgotten_too():
    rnd = begun(Grouped.repetition(4, 2), [0, 1])
    rnd.receive(0, np.ones(1))
    rnd.receive(2, np.ones(1))
    rnd.reset([0])
    with pytest.raises(NotDecodableError):
        rnd.gradient(1)


def test_wants_and_gradient_refuse():
    rnd = begun(Grouped.repetition(4, 2), [0])
    for number in (-1, 4):
        with pytest.raises(ValueError, match=f"worker {number} does not exist"):
            rnd.wants(number)
    with pytest.raises(ValueError, match="group 2 does not exist"):
        rnd.gradient(2)
    with pytest.raises(NotDecodableError) as caught:
        rnd.gradient(0)
    assert caught.value.missing == 1
    assert not rnd.wants(2)  # its group takes no part
    rnd.receive(0, np.ones(1))
    with pytest.raises(TypeError, match="out must have dtype"):
        rnd.gradient(0, out=np.empty(1, np.float32))
    assert rnd.of(0).trust().relative_error < 1e-15


def test_require_looks_at_the_groups_that_take_part():
    rnd = begun(MIXED, [1, 2])
    rnd.require([4, 6, 8, 9])
    rnd.require(np.array([9, 4, 7, 6, 0]))
    with pytest.raises(NotDecodableError) as caught:
        rnd.require(np.array([0, 1, 2, 3, 4, 8, 9]))  # lacks one of two of the second group
    assert caught.value.missing == 1
    assert rnd.survivors.size == 0
    with pytest.raises(TypeError, match="messages must be integers"):
        rnd.require([0.0])
    rnd.reset([])
    rnd.require(np.array([], dtype=np.int64))


def test_what_is_left_out_is_that_of_the_whole_sum():
    """This holds by definition for groups of different sizes."""
    code = Grouped([Uncoded(5, tolerance=0.4, rescale=False), ReedSolomon(2, 3, stragglers=1)])
    F = np.array([0, 1, 2, 5])
    vector = code.decoding_vector(F)
    left = np.linalg.norm(vector @ code.matrix()[F] - 1) / np.sqrt(code.k)
    assert left > 0.4
    assert code.scheme.precision.left_out(F, vector) == pytest.approx(left, rel=1e-12)


def test_residual_of_a_round_is_that_of_the_groups_that_take_part():
    """Groups of 2 and of 9 partitions, of which only the larger leaves some out."""
    code = Grouped([Uncoded(2), Uncoded(3, 9, tolerance=0.5, rescale=False)])
    _, messages = sent(code)
    rnd = code.group_round(3)
    assert rnd.residual() == 0.0  # no group takes part
    for groups, heard in (([0, 1], [0, 2, 3, 1]), ([1], [4, 2]), ([0], [1, 0])):
        rnd.reset(groups)
        for worker in heard:
            rnd.receive(worker, messages[worker])
        assert rnd.ready
        held = [j for g in groups for j in code.partitions_of(g)]
        came = {j for worker in heard for j in code.partitions(worker)}
        left = np.sqrt(len(set(held) - came) / len(held))
        assert rnd.residual() == pytest.approx(left, rel=1e-12)
    assert left == 0.0


def test_lapse_ends_every_group():
    rnd = begun(Grouped.repetition(4, 2), [0, 1])
    for worker in (0, 2):
        rnd.receive(worker, np.ones(1))
    rnd.lapse("the next round began")
    for g in (0, 1):
        with pytest.raises(RuntimeError, match="the next round began"):
            rnd.gradient(g)


def test_verified_rounds_of_groups_have_a_limit():
    code = Grouped([FractionalRepetition(3, stragglers=2)] * 2)
    _, messages = sent(code)
    for limit in (1e-3, 1e-20):
        rnd = code.group_round(3, verify=True, limit=limit)
        rnd.reset([0])
        for worker in range(3):
            send(rnd, worker, messages[worker])
        assert rnd.verified == (limit == 1e-3)


def test_verified_rounds_of_groups():
    """A corrupt worker is named by its number in the whole code, and its messages are dropped."""
    code = Grouped(
        [Uncoded(2), ReedSolomon(5, stragglers=3), FractionalRepetition(3, stragglers=2)]
    )
    assert not code.group_round(3).verifies
    with pytest.raises(ValueError, match="verify"):
        code.group_round(3, verify=True)  # a group without spare messages
    code = Grouped(code.codes[1:])
    partials, messages = sent(code)
    rnd = code.group_round(3, verify=True)
    assert rnd.verifies
    rnd.reset([1, 0])
    heard = []
    for worker in (0, 1, 2, 3, 4):
        message = messages[worker] + (worker == 1)
        if rnd.wants(worker):
            send(rnd, worker, message)
            heard.append(worker)
    assert rnd.corrupt == [1]
    assert rnd.survivors.tolist() == [worker for worker in heard if worker != 1]
    assert not rnd.verified  # the other group lacks messages
    for worker, lie in ((7, 0), (6, 5), (5, 0)):
        if rnd.wants(worker):
            send(rnd, worker, messages[worker] + lie)
    assert rnd.ready
    assert rnd.verified
    assert rnd.corrupt == [6, 1]  # in the order of the groups
    for g in (0, 1):
        exact = partials[code.partitions_of(g)].sum(axis=0)
        np.testing.assert_allclose(rnd.gradient(g), exact, atol=1e-9)
    rnd.reset([0])
    assert rnd.corrupt == []


def test_rounds_look_for_lies_once_they_may_be_ready(monkeypatch):
    """And not at each message that comes."""
    looks, look = [], Inspector.inspect
    monkeypatch.setattr(Inspector, "inspect", lambda *given: looks.append(0) or look(*given))
    code = Grouped([BinaryCode(12, stragglers=3)] * 2)
    parts = np.random.default_rng(0).standard_normal((code.k, 10))
    rnd = GroupedRound(code, 10, np.float64, verify=1)
    looks.clear()
    rnd.reset([0, 1])
    for worker in range(code.n):
        if rnd.wants(worker):
            energy = sum(np.sum(parts[j] ** 2) for j in code.partitions(worker))
            rnd.receive(worker, code.encode(worker, parts[code.partitions(worker)]), energy=energy)
    assert rnd.ready
    assert rnd.survivors.size > 12
    assert len(looks) <= 4
