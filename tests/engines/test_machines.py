"""Workers dealt out to nodes and zones, so that any domain may be lost."""

import itertools

import numpy as np
import pytest
from strength import much

import fastgc
from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, Grouped, ReedSolomon
from fastgc.coding.rules import Blocks
from fastgc.coding.scheme import Scheme
from fastgc.engines import machines, placement
from fastgc.engines.machines import place


def by_node(nodes, ranks):
    """Return labels in the order in which torchrun numbers ranks."""
    return [i // ranks for i in range(nodes * ranks)]


def survived(code, labels, order=None):
    """Return, by definition, the domains without which the others are decodable."""
    order = range(code.n) if order is None else order
    return [
        label
        for label in dict.fromkeys(labels)
        if code.decodable(
            code.scheme.messages.of([order[i] for i, each in enumerate(labels) if each != label])
        )
    ]


def partitions(sizes, left=None):
    """Yield all ways to deal workers to domains of these sizes."""
    left = tuple(range(sum(sizes))) if left is None else left
    if not sizes:
        yield []
        return
    for chosen in itertools.combinations(left, sizes[0]):
        rest = tuple(i for i in left if i not in chosen)
        for others in partitions(sizes[1:], rest):
            yield [chosen, *others]


def most(rule, sizes):
    """Return, over all orders, the largest number of domains of which any one may be lost."""
    n = sum(sizes)
    known = {}

    def goes(lost):
        if lost not in known:
            known[lost] = not rule.missing(np.setdiff1d(np.arange(n), lost))
        return known[lost]

    return max(sum(map(goes, sets)) for sets in partitions(sizes))


def labels_for(sizes):
    return [d for d, size in enumerate(sizes) for _ in range(size)]


EQUAL = [(n // d, d) for n in range(2, much(65, 33)) for d in range(1, n) if n % d == 0]


def test_numbers_that_will_do_are_left_as_they_are():
    code = FractionalRepetition(8, stragglers=1)
    assert placement(code, by_node(2, 4)) == list(range(8))


@pytest.mark.parametrize("kind", [BinaryCode, FractionalRepetition])
def test_any_of_equal_domains_may_be_lost_at_load_2(kind):
    for nodes, ranks in EQUAL:
        if (nodes * ranks) % 2:
            continue
        labels, code = by_node(nodes, ranks), kind(nodes * ranks, stragglers=1)
        order = placement(code, labels)
        assert sorted(order) == list(range(code.n))
        assert survived(code, labels, order) == list(range(nodes))


def test_an_odd_number_of_workers_has_no_order_of_a_binary_code():
    # One of its two classes has a worker more, so no domains of a size > 1 add up to either.
    for nodes, ranks in EQUAL:
        if (nodes * ranks) % 2 and ranks > 1 and nodes * ranks <= much(63, 21):
            code = BinaryCode(nodes * ranks, stragglers=1)
            assert place(code.scheme, by_node(nodes, ranks))[1]
    assert most(BinaryCode(9, stragglers=1).scheme.rule, [3, 3, 3]) == 2


def test_groups_of_one_worker_a_domain_do_for_any_equal_domains():
    rng = np.random.default_rng(0)
    for nodes, ranks in EQUAL[:: much(1, 5)]:
        labels = by_node(nodes, ranks)
        code = Grouped([CyclicRepetition(nodes, stragglers=1)] * ranks)
        order = placement(code, labels)
        assert code.load == 2
        lost = int(rng.integers(nodes))
        came = [order[i] for i in range(code.n) if labels[i] != lost]
        assert code.residual(came) < 1e-8


def ways_to_add_up(n, largest=None):
    """Yield descending sequences of positive numbers with sum n."""
    if n == 0:
        yield []
    for first in range(min(n, largest or n), 0, -1):
        for rest in ways_to_add_up(n - first, first):
            yield [first, *rest]


FEW = [
    (sizes, held, need)
    for n in range(1, much(6, 5))
    for sizes in ways_to_add_up(n)
    for held in ways_to_add_up(n)
    for need in itertools.product(*(range(count + 1) for count in held))
]


def test_as_many_domains_of_copies_may_be_lost_as_there_are_orders_for():
    for sizes, held, need in FEW[:: much(1, 23)]:
        rng = np.random.default_rng(len(need))
        rule = Blocks(rng.permutation(np.repeat(np.arange(len(held)), held)), np.array(need))
        order, needed = place(OfRule(rule), labels_for(sizes))
        assert sorted(order) == list(range(sum(sizes)))
        if len(sizes) > 1:
            assert len(sizes) - len(needed) == most(rule, sizes)


class OfRule(Scheme):
    """A scheme that defines only its rule."""

    def __init__(self, rule):
        self.n = self.k = rule.block.size
        self._rule = rule

    rule = property(lambda self: self._rule)

    def row(self, worker):
        return [worker], [1.0]


@pytest.mark.parametrize(
    "code",
    [
        BinaryCode(7, stragglers=1),
        BinaryCode(9, stragglers=1),
        BinaryCode(8, stragglers=2),
        BinaryCode(8, 11, stragglers=2),
        ReedSolomon(8, stragglers=2, clusters=2),
        FractionalRepetition(8, stragglers=3),
        CyclicRepetition(6, stragglers=2),
        fastgc.GraphCode(8, 9, degree=3),
        fastgc.CouponCollector(6, load=3, seed=4),
        Grouped([ReedSolomon(4, stragglers=1), BinaryCode(4, stragglers=1)]),
    ],
    ids=repr,
)
def test_no_order_of_few_workers_is_better(code):
    scheme = code.scheme
    for sizes in ([code.n - 2, 2], [code.n - 4, 2, 2], [code.n - 3, 3], [code.n - 3, 1, 2]):
        _, needed = place(scheme, labels_for(sizes))

        class Whole:  # the scheme's rule, for whole workers
            def missing(self, came):
                return scheme.rule.missing(scheme.messages.of(came))

        assert len(sizes) - len(needed) == most(Whole(), sizes), sizes


def test_orders_of_many_workers_are_searched(monkeypatch):
    # Neither in order of numbers nor dealt at any stride.
    rng = np.random.default_rng(5)
    for code, nodes in (
        (BinaryCode(20, stragglers=2), 4),
        (fastgc.GraphCode(20, degree=4, seed=3), 5),
        (fastgc.RandomAssignment(20, load=4, seed=1), 2),  # only after some exchanges
    ):
        labels = rng.permutation(by_node(nodes, 20 // nodes)).tolist()
        order = placement(code, labels)
        assert sorted(survived(code, labels, order)) == list(range(nodes))
        assert order == placement(code, labels)
    monkeypatch.setattr(machines, "IMPROVED", 0)
    assert place(code.scheme, labels)[1]


def test_what_waits_for_some_is_placed_for_exact_rounds():
    waiting = FractionalRepetition(6, stragglers=1, wait=2)
    assert waiting.decodable([1, 2, 4, 5])  # ready with two workers, though block 0 is left out
    assert waiting.residual([1, 2, 4, 5]) > 0.5
    order = placement(waiting, ["a", "b", "c"] * 2)
    assert waiting.residual([order[rank] for rank in (1, 2, 4, 5)]) < 1e-12


@pytest.mark.parametrize(("nodes", "ranks"), [(2, 3), (2, 4), (2, 8), (3, 4), (4, 8), (8, 8)])
def test_placement_lets_any_domain_be_lost(nodes, ranks):
    """As they are numbered, one of both codes cannot lose a domain, unless loads are uneven."""
    in_turn = [i % nodes for i in range(nodes * ranks)]
    before = []
    for kind in (BinaryCode, FractionalRepetition):
        code = kind(nodes * ranks, stragglers=1)
        for labels in (by_node(nodes, ranks), in_turn):
            assert len(survived(code, labels, placement(code, labels))) == nodes
            before.append(len(survived(code, labels, None)))
    assert before == [0, nodes, nodes, nodes if ranks % 2 else 0]


@pytest.mark.parametrize(
    ("code", "domains", "said"),
    [
        (BinaryCode(6, stragglers=1), [0, 0, 0, 0, 1, 1], "loss of domain 0 in any order"),
        (ReedSolomon(8, stragglers=2), by_node(2, 4), "loss of domains 0, 1 in any order"),
        (fastgc.Uncoded(4), by_node(2, 2), "loss of domains 0, 1 in any order"),
        (BinaryCode(4, stragglers=1), ["a"] * 4, "loss of domain a in any order"),
    ],
)
def test_it_is_said_which_domain_cannot_be_lost(code, domains, said):
    with pytest.warns(UserWarning, match=said):
        order = placement(code, domains)
    assert sorted(order) == list(range(code.n))


@pytest.mark.parametrize(
    ("domains", "error", "said"),
    [
        ("host", TypeError, "label for each worker"),
        (3, TypeError, "label for each worker"),
        ([0, 0, 1], ValueError, "a label for each of 4 workers, not 3"),
        ([0, 0, 1, [1]], TypeError, r"domains\[3\] must be a label"),
    ],
)
def test_domains_are_checked(domains, error, said):
    with pytest.raises(error, match=said):
        placement(BinaryCode(4, stragglers=1), domains)


# ---------------------------------------------------------------------------------------- words


def test_dealt_gives_ranks_outages_to_workers():
    code, nodes = BinaryCode(6, stragglers=1), [0, 0, 0, 1, 1, 1]
    model = fastgc.delays.Outages(fastgc.delays.Exponential(1.0), nodes, 0.1, 5.0)
    order = placement(code, nodes)
    dealt = machines.dealt(model, code)
    assert list(dealt.domains) == [nodes[order.index(i)] for i in range(6)]
    for other in (None, fastgc.delays.Exponential(1.0)):
        assert machines.dealt(other, code) is other


def test_members_of_domains():
    assert machines.members_of(["b", "a", "b"]) == {"b": [0, 2], "a": [1]}
