"""Workers dealt out to nodes and zones: the code stays the same, and any domain may be lost."""

import itertools
import pickle
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from code_table import SMALL, SMALL_IDS
from strength import much

import fastgc
from fastgc import BinaryCode, CyclicRepetition, FractionalRepetition, Grouped, ReedSolomon
from fastgc.codes import Placed
from fastgc.coding.placement import _by_copies, _by_paths, members_of, placement
from fastgc.coding.rules import Blocks, Groups, renumbered, withstands
from fastgc.coding.scheme import Scheme
from fastgc.testing.codes import CHECKS, Subject

pytestmark = pytest.mark.any_backend


def by_node(nodes, ranks):
    """Return labels in the order in which torchrun numbers ranks."""
    return [i // ranks for i in range(nodes * ranks)]


def survived(code, labels):
    """Return, by definition, the domains without which the others are decodable."""
    return [
        label
        for label in dict.fromkeys(labels)
        if code.decodable(
            code.scheme.messages_of([i for i, each in enumerate(labels) if each != label])
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


# ------------------------------------------------------------------------------ it is the same code


@pytest.mark.few(12)
@pytest.mark.parametrize("code", SMALL, ids=SMALL_IDS)
def test_a_placed_code_is_that_code(code):
    order = np.random.default_rng(code.n).permutation(code.n)
    placed = Placed(code, ["all"] * code.n, order)
    subject = Subject(placed, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check in CHECKS:
            check(subject)
    for rank, worker in enumerate(order):
        assert placed.partitions(rank).tolist() == code.partitions(worker).tolist()
        np.testing.assert_array_equal(placed.coefficients(rank), code.coefficients(worker))
    assert placed.scheme.loads.tolist() == code.scheme.loads[order].tolist()


def test_its_order_is_seen_and_kept():
    placed = BinaryCode(6, stragglers=1).placed({"a": [0, 1, 2], "b": [5, 4, 3]})
    assert placed == BinaryCode(6, stragglers=1).placed(["a"] * 3 + ["b"] * 3)
    assert placed != BinaryCode(6, stragglers=1).placed(["a", "b"] * 3)
    again = pickle.loads(pickle.dumps(placed))
    assert (again, again.domains, again.survived) == (placed, placed.domains, ("a", "b"))
    assert placed.domains == {"a": [0, 1, 2], "b": [3, 4, 5]}
    assert repr(placed) == (
        "Placed(code=BinaryCode(n=6, stragglers=1), domains=['a', 'a', 'a', 'b', 'b', 'b'], "
        f"order={placed.order.tolist()})"
    )
    assert placed.losses == "any one of 2 domains may be lost, of 3 workers"
    with pytest.raises(ValueError, match="read-only"):
        placed.order[0] = 1


def test_numbers_that_will_do_are_left_as_they_are():
    placed = FractionalRepetition(8, stragglers=1).placed(by_node(2, 4))
    assert placed.order.tolist() == list(range(8))


def test_errors_name_workers_by_either_number():
    placed = Placed(ReedSolomon(4, stragglers=1), [0, 0, 1, 1], [3, 2, 1, 0])
    with pytest.raises(ValueError, match=r"survivors\[1\] is 4"):
        placed.decoding_vector([0, 4, 1])
    with pytest.raises(ValueError, match="names worker 3 a second time"):
        placed.decoding_vector([3, 2, 3])
    with pytest.raises(fastgc.NotDecodableError, match="at least 1 more message is needed"):
        placed.decoding_vector([3, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fastgc.InstabilityWarning)
        code = ReedSolomon(8192, stragglers=4000, root=1)
    placed = Placed(code, [0] * 8192, np.roll(np.arange(8192), 1))
    with pytest.raises(OverflowError, match=r"numbered as in ReedSolomon\(n=8192"):
        placed.decoding_vector(np.arange(4192), method="locator")


class OfAnotherKind(NamedTuple):
    """A rule that does not know how to be renumbered."""

    rule: Blocks

    def missing(self, survivors):
        return self.rule.missing(survivors)

    def tally(self):
        return self.rule.tally()


@pytest.mark.parametrize("grouped", [True, False])
def test_a_rule_of_another_kind_is_renumbered(grouped):
    code = Grouped([ReedSolomon(3, stragglers=1), BinaryCode(4, 2, stragglers=1)])
    rule, number = code.scheme.rule, np.random.default_rng(2).permutation(7)
    if not grouped:
        rule = OfAnotherKind(Blocks(np.array([0, 0, 0, 1, 1, 1, 1]), np.array([2, 3])))
    other = renumbered(rule, number)
    assert isinstance(other, Groups)
    sender = np.arange(7)
    for f in range(8):
        for came in itertools.combinations(range(7), f):
            came = np.array(came, dtype=np.int64)
            assert other.missing(came) == rule.missing(number[came])
            found = withstands(other, came, sender, 3)
            assert found == withstands(rule, number[came], sender, 3)
    tally, theirs = other.tally(), rule.tally()
    for _ in range(2):
        tally.reset(), theirs.reset()
        for message in (4, 0, 6, 2, 1, 5, 3):
            assert tally.add(message) == theirs.add(int(number[message]))


# -------------------------------------------------------------------------- any one domain may go

EQUAL = [(n // d, d) for n in range(2, 65) for d in range(1, n) if n % d == 0]


@pytest.mark.parametrize("kind", [BinaryCode, FractionalRepetition])
def test_any_of_equal_domains_may_be_lost_at_load_2(kind):
    for nodes, ranks in EQUAL:
        if (nodes * ranks) % 2:
            continue
        labels = by_node(nodes, ranks)
        code = kind(nodes * ranks, stragglers=1).placed(labels, strict=True)
        assert code.load == 2
        assert survived(code, labels) == list(code.survived) == list(range(nodes))


def test_an_odd_number_of_workers_has_no_order_of_a_binary_code():
    # One of its two classes has a worker more, so no domains of a size > 1 add up to either.
    for nodes, ranks in EQUAL:
        if (nodes * ranks) % 2 and ranks > 1 and nodes * ranks <= much(63, 21):
            code = BinaryCode(nodes * ranks, stragglers=1)
            does = rf"Grouped\(\[CyclicRepetition\({nodes}, stragglers=1\)\] \* {ranks}\) does"
            with pytest.raises(ValueError, match=rf"blocks do not fit each other.* {does}"):
                code.placed(by_node(nodes, ranks), strict=True)
    assert most(BinaryCode(9, stragglers=1).scheme.rule, [3, 3, 3]) == 2


def test_groups_of_one_worker_a_domain_do_for_any_equal_domains():
    rng = np.random.default_rng(0)
    for nodes, ranks in EQUAL[:: much(1, 5)]:
        labels = by_node(nodes, ranks)
        code = Grouped([CyclicRepetition(nodes, stragglers=1)] * ranks).placed(labels, strict=True)
        assert code.load == 2
        assert code.k == nodes * ranks
        lost = int(rng.integers(nodes))
        came = [i for i in range(code.n) if labels[i] != lost]
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
    for n in range(1, 6)
    for sizes in ways_to_add_up(n)
    for held in ways_to_add_up(n)
    for need in itertools.product(*(range(count + 1) for count in held))
]


@pytest.mark.parametrize("part", range(4))
def test_dealing_finds_an_order_of_copies_if_there_is_one(part):
    for sizes, held, need in FEW[part::4]:
        check_dealing(sizes, held, need)


def check_dealing(sizes, held, need):
    n, rng = sum(sizes), np.random.default_rng(len(need))
    rule = Blocks(rng.permutation(np.repeat(np.arange(len(held)), held)), np.array(need))
    best = most(rule, sizes)
    sets, why = _by_copies(rule, sizes)
    assert bool(sets) == (not why) == (best == len(sizes))
    if sets:
        assert [len(each) for each in sets] == sizes
        assert not any(rule.missing(np.setdiff1d(np.arange(n), each)) for each in sets)
    found = placement(OfRule(rule), labels_for(sizes))
    assert len(found.survived) == best
    assert bool(found.why) == (best < len(sizes))


@pytest.mark.parametrize("sizes", [[8, 7], [4, 4, 3, 2, 2], [5, 5, 5], [6, 1, 4, 4], [9, 6]])
def test_domains_go_into_one_of_two_paths(sizes):
    code = BinaryCode(15, stragglers=1)
    sets, why = _by_paths(code.scheme.rule, sizes)
    assert (
        bool(sets)
        == (not why)
        == any(sum(some) == 8 for m in range(5) for some in itertools.combinations(sizes, m))
    )
    assert sorted(i for each in sets for i in each) == list(range(15 if sets else 0))
    for each in sets:
        assert code.decodable(np.setdiff1d(np.arange(15), each))
    # Copies, three classes, or blocks that end together: these have other paths.
    for other in (
        BinaryCode(8, stragglers=1),
        BinaryCode(8, stragglers=2),
        FractionalRepetition(6, stragglers=1),
    ):
        assert _by_paths(other.scheme.rule, [other.n]) == ([], "")


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
        found = placement(scheme, labels_for(sizes))

        class Whole:  # the scheme's rule, for whole workers
            def missing(self, came):
                return scheme.rule.missing(scheme.messages_of(came))

        assert len(found.survived) == most(Whole(), sizes), sizes


def test_orders_of_many_workers_are_searched():
    # Neither copies nor two paths; neither in order of numbers nor dealt at any stride.
    rng = np.random.default_rng(5)
    for code, nodes in (
        (BinaryCode(20, stragglers=2), 4),
        (fastgc.GraphCode(20, degree=4, seed=3), 5),
        (fastgc.RandomAssignment(20, load=4, seed=1), 2),  # only after some exchanges
    ):
        labels = rng.permutation(by_node(nodes, 20 // nodes)).tolist()
        placed = code.placed(labels, strict=True)
        assert sorted(survived(placed, labels)) == list(range(nodes))
        assert placed == code.placed(labels)


def test_what_waits_for_some_is_placed_for_exact_rounds():
    waiting = FractionalRepetition(6, stragglers=1, wait=2)
    assert waiting.decodable([1, 2, 4, 5])  # ready with two workers, though block 0 is left out
    assert waiting.residual([1, 2, 4, 5]) > 0.5
    placed = waiting.placed({"a": [0, 3], "b": [1, 4], "c": [2, 5]}, strict=True)
    assert placed.residual([1, 2, 4, 5]) < 1e-12


def test_the_table_of_the_page():
    page = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text("utf-8")
    rows = [row.split(" | ") for row in re.findall(r"^\| (\d+ × \d+ \| .*) \|$", page, re.M)]
    assert len(rows) == 6
    for shape, *told in rows:
        nodes, ranks = map(int, shape.split(" × "))
        in_turn = [i % nodes for i in range(nodes * ranks)]
        found = [
            f"{len(survived(code, labels))} → {len(survived(code.placed(labels), labels))}"
            for kind in (BinaryCode, FractionalRepetition)
            for code in [kind(nodes * ranks, stragglers=1)]
            for labels in (by_node(nodes, ranks), in_turn)
        ]
        assert told == found, shape


# ------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize(
    ("code", "domains", "said"),
    [
        (BinaryCode(6, stragglers=1), [0, 0, 0, 0, 1, 1], "of its workers 3 may be lost together"),
        (ReedSolomon(8, stragglers=2), by_node(2, 4), "of its workers 2 may be lost together"),
        (fastgc.Uncoded(4), by_node(2, 2), "holds something once only"),
        (BinaryCode(4, stragglers=1), ["a"] * 4, "all workers are in one domain; no code does"),
        (
            FractionalRepetition(8, stragglers=3),
            [0] * 7 + [1],
            "of its workers 6 may be lost .* a code that tolerates 7 stragglers does",
        ),
        (
            fastgc.GraphCode(16, degree=2, graph="random"),
            [0] * 13 + [1, 2, 3],
            "a domain has 13 workers, and the others hold",
        ),
        (
            fastgc.RandomAssignment(14, load=4),
            [i // 2 for i in range(14)],
            r"its workers [\d, ]+ cannot be spared even alone",
        ),
    ],
)
def test_it_is_said_why_a_domain_cannot_be_lost(code, domains, said):
    with pytest.raises(ValueError, match=said) as error:
        code.placed(domains, strict=True)
    assert "does not survive the loss of" in str(error.value)
    with pytest.warns(UserWarning, match=said):
        placed = code.placed(domains)
    assert placed.n == code.n
    assert set(placed.survived) < set(members_of(list(domains)))


def test_a_search_in_vain_proves_nothing(monkeypatch):
    monkeypatch.setattr(fastgc.coding.placement, "IMPROVED", 0)
    with pytest.raises(ValueError, match="none was found among 20; Grouped"):
        fastgc.RandomAssignment(20, load=4, seed=1).placed(by_node(2, 10), strict=True)


def test_losses_are_a_sentence():
    code = BinaryCode(6, stragglers=1)
    with pytest.warns(UserWarning, match="loss of domains a in any"):
        placed = code.placed({"a": [0, 1, 2, 3], "b": [4], "c": [5]})
    assert placed.losses == "any one of 2 of 3 domains may be lost, of 1 to 4 workers; not a"
    with pytest.warns(UserWarning, match="loss of every domain in any"):
        alone = fastgc.Uncoded(2).placed([0, 1])
    assert alone.losses == "none of 2 domains may be lost, of 1 worker"


@pytest.mark.parametrize(
    ("domains", "error", "said"),
    [
        ("host", TypeError, "label for each worker"),
        (3, TypeError, "label for each worker"),
        ([0, 0, 1], ValueError, "a label for each of 4 workers, not 3"),
        ([0, 0, 1, [1]], TypeError, r"domains\[3\] must be a label"),
        ({"a": [0, 1], "b": [2]}, ValueError, "3 is in none"),
        ({"a": [0, 1], "b": [1, 2, 3]}, ValueError, "worker 1 must be in one domain"),
        ({"a": [0, 1], "b": [2, 4]}, ValueError, "a worker of domains"),
        ({"a": 0, "b": [1, 2, 3]}, TypeError, "must be the workers of it"),
    ],
)
def test_domains_are_checked(domains, error, said):
    with pytest.raises(error, match=said):
        BinaryCode(4, stragglers=1).placed(domains)


@pytest.mark.parametrize(
    ("order", "error", "said"),
    [
        ([0, 1, 2], ValueError, r"order must have shape \(4,\)"),
        ([0.0, 1, 2, 3], TypeError, "order must be integers"),
        ([0, 1, 2, 2], ValueError, "permutation of 0 to 3: 3 is missing"),
    ],
)
def test_orders_are_checked(order, error, said):
    with pytest.raises(error, match=said):
        Placed(BinaryCode(4, stragglers=1), [0, 0, 1, 1], order)
    with pytest.raises(TypeError, match="code must be a code"):
        Placed(None, [0, 0, 1, 1], [0, 1, 2, 3])
