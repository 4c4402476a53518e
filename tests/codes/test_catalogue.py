"""Codes by name: what each name makes, arguments in texts, and codes of one's own."""

import itertools
import sys
import types

import numpy as np
import pytest

from fastgc import (
    BinaryCode,
    CouponCollector,
    CyclicRepetition,
    FractionalRepetition,
    GraphCode,
    LagrangeCode,
    LinearCode,
    PartialWork,
    RandomAssignment,
    Reactive,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes import catalogue
from fastgc.codes.catalogue import make

# What each name makes for 12 workers, seed 3, and 2 stragglers, for which a load of 3 is needed.
MADE = {
    "rs": ReedSolomon(12, stragglers=2),
    "rs-clustered": ReedSolomon(12, stragglers=2, clusters="auto"),
    "binary": BinaryCode(12, stragglers=2),
    "fractional": FractionalRepetition(12, stragglers=2),
    "cyclic": CyclicRepetition(12, stragglers=2, seed=3),
    "bcc": CouponCollector(12, load=3, seed=3),
    "random": RandomAssignment(12, load=3, seed=3),
    "uncoded": Uncoded(12),
    "ignore": Uncoded(12, tolerance=2 / 12),
    "uc-mmc": Uncoded(12, load=3),
    "partial-work": PartialWork(12, load=3),
    "reactive": Reactive(12, holders=3),
    "uc-mmc-pg": Uncoded(12, load=3, tolerance=0.05),
    "lcc": LagrangeCode(12, load=3),
    "lcc-mmc": LagrangeCode(12, load=3, messages=3),
    "lcc-mmc-2": LagrangeCode(12, load=4, messages=2),
    "graph": GraphCode(12, degree=3, wait=10, seed=3),
}


@pytest.mark.parametrize("name", catalogue.BUILT_IN)
def test_make_every_name(name):
    assert set(MADE) == set(catalogue.BUILT_IN) - {"linear"}
    if name == "linear":
        with pytest.raises(ValueError, match="linear:B="):
            make(name, 12)
        return
    assert make(name, 12, stragglers=2, seed=3) == MADE[name]
    assert (name in catalogue.names()) == (name != "linear")


@pytest.mark.parametrize(
    ("text", "given", "code"),
    [
        ("rs", (10, 14, 1), ReedSolomon(10, 14, stragglers=1)),
        ("uncoded", (7, 9), Uncoded(7, 9)),
        ("bcc", (10, 14, 1), CouponCollector(10, 14, load=3)),  # of 2.8
        ("lcc-mmc-2", (10, 14, 1), LagrangeCode(10, 14, load=4, messages=2)),
        ("partial-work", (4, 6, 3), PartialWork(4, 6, load=6)),
        ("reactive", (7, 7, 0), Reactive(7, 7, holders=2)),
        ("graph", (7,), GraphCode(7, degree=2, wait=7)),
        ("graph", (6, None, 4), GraphCode(6, degree=3, wait=2)),  # the largest degree
        ("rs:root=1", (6, None, 2), ReedSolomon(6, stragglers=2, root=1)),
        ("rs:load=3", (6, None, 4), ReedSolomon(6, load=3)),
        (
            "binary:speeds=3/1/1.5,stragglers=0",
            (3, 11),
            BinaryCode(3, 11, stragglers=0, speeds=[3, 1, 1.5]),
        ),
        ("bcc:loads=2/2/2,seed=4", (3, 2), CouponCollector(3, 2, loads=[2, 2, 2], seed=4)),
        ("uncoded:tolerance=0.5,rescale=false", (4,), Uncoded(4, tolerance=0.5, rescale=False)),
        ("uncoded:tolerance=0.5,rescale=no", (4,), Uncoded(4, tolerance=0.5, rescale=False)),
        ("graph:degree=4", (10, None, 2), GraphCode(10, degree=4, wait=8)),
        ("fastgc:FractionalRepetition:load=2", (6,), FractionalRepetition(6, load=2)),
    ],
)
def test_make_arguments(text, given, code):
    assert make(text, *given) == code


def test_make_ignoring_loses_as_many_workers_as_are_said():
    """Also if workers hold shares of different sizes."""
    for n, more, s in itertools.product(range(1, 9), range(5), range(4)):
        if s < n:
            assert make("ignore", n, n + more, s).stragglers == s


def test_make_graph_for_every_n():
    for n, s in itertools.product(range(3, 40, 4), (0, 1, 3, 9)):
        if s < n:
            code = make("graph", n, stragglers=s)
            assert code.scheme.wait == n - s
            assert code.load <= max(2 * (s + 1), 4)


@pytest.mark.parametrize("name", ["bcc", "random"])
def test_make_takes_the_next_seed_that_covers(name):
    """A seed in the text is taken as it is, or refused."""
    kind = {"bcc": CouponCollector, "random": RandomAssignment}[name]
    moved = 0
    for seed in range(6):
        try:
            code = kind(6, 9, load=3, seed=seed)
        except ValueError as error:
            moved += 1
            with pytest.raises(ValueError, match=f"seed={seed}"):
                make(f"{name}:seed={seed}", 6, 9, 1)
            code = kind(6, 9, load=3, seed=error.seed)
        assert make(name, 6, 9, 1, seed) == code
    assert moved
    with pytest.raises(ValueError, match="seed=1"):  # no seed covers
        make(name, 7, 7, 0, 1)


def test_make_linear(tmp_path):
    B = BinaryCode(4, stragglers=1).matrix()
    np.save(tmp_path / "B.npy", B)
    text = f"linear:B={tmp_path / 'B.npy'}"
    assert make(text, 4, 4, 1) == LinearCode(B)
    with pytest.raises(ValueError, match="4 rows, but there are 5 workers"):
        make(text, 5)
    assert make(f"{text},wait=3", 4) == LinearCode(B, wait=3)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (("turbo", 4), ValueError, "turbo"),
        (("rs:turbo=1", 4), ValueError, "turbo=1"),
        (("rs:k=5", 4), ValueError, "k=5"),
        (("rs", 0), ValueError, "n must be at least 1, not 0"),
        (("rs", 4, 0), ValueError, "k must be at least 1, not 0"),
        (("reactive", 4, 3, 1), ValueError, "k must be at least n=4, not 3"),
        (("rs", 4, 4, 4), ValueError, "stragglers must be in 0 .* not 4"),
        (("rs", 4, 4, 1, 0.5), TypeError, "seed must be an integer"),
    ],
)
def test_make_refuses(given, error, says):
    with pytest.raises(error, match=says):
        make(*given)


# ------------------------------------------------------------------------------- of one's own


@pytest.fixture
def mine(monkeypatch):
    """A module of factories that a text can name."""
    module = types.ModuleType("mine")

    def all_of_it(n, k, stragglers, load, seed):
        return "all", n, k, stragglers, load, seed

    def by_load(n, k=None, *, load=5, seed=1):
        return "by load", n, k, load, seed

    def either(n, stragglers=1, load=7):
        return "either", n, stragglers, load

    def nothing(stragglers):
        return None

    for each in (all_of_it, by_load, either, nothing):
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, "mine", module)


@pytest.mark.parametrize(
    ("text", "given", "called"),
    [
        ("all_of_it", (6, None, 2, 4), ("all", 6, 6, 2, 3, 4)),  # k is required
        ("all_of_it:load=4", (6, 12, 2, 4), ("all", 6, 12, 2, 4, 4)),
        ("by_load", (6, None, 2, 4), ("by load", 6, None, 3, 4)),  # nothing else says a load
        ("by_load", (6, 12, 2, 4), ("by load", 6, 12, 6, 4)),
        ("either", (6, None, 2), ("either", 6, 2, 7)),  # the stragglers say a load
        ("either", (6, 6, 2), ("either", 6, 2, 7)),
        ("either:load=4", (6, 6, 2), ("either", 6, 1, 4)),
        ("either:load=4,stragglers=0", (6, 6, 2), ("either", 6, 0, 4)),
    ],
)
def test_make_fits_arguments_to_a_factory(mine, text, given, called):
    """The error tells what the factory made, which is no code."""
    with pytest.raises(TypeError) as caught:
        make(f"mine:{text}", *given)
    assert repr(called) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [("either", (6, 7), "k=7 is impossible"), ("nothing", (6,), "no parameter n")],
)
def test_make_does_not_fit(mine, text, given, says):
    with pytest.raises(ValueError, match=says):
        make(f"mine:{text}", *given)


def test_register_with_defaults():
    asked = []

    def defaults(**known):
        asked.append(known)
        return {"stragglers": known["s"], "root": 1}

    catalogue.register("papers-root", ReedSolomon, "root 1", defaults=defaults, replace=True)
    assert make("papers-root", 9, 12, 2, 5) == ReedSolomon(9, 12, stragglers=2, root=1)
    assert asked == [{"n": 9, "k": 12, "s": 2, "load": 4, "seed": 5}]
    assert make("papers-root:root=2", 9, 9, 2) == ReedSolomon(9, 9, stragglers=2, root=2)
    assert make("papers-root", 9, None, 2) == ReedSolomon(9, stragglers=2, root=1)
    catalogue.register("papers-root", ReedSolomon, replace=True)  # the defaults are gone, too
    assert make("papers-root", 9, None, 2) == ReedSolomon(9, stragglers=2)
    assert len(asked) == 3


# ---------------------------------------------------------------------------------- for readers


def test_split_at_commas_between_codes():
    assert catalogue.split("rs:clusters=auto,root=1, bcc,lcc:load=4,messages=2,") == [
        "rs:clusters=auto,root=1",
        "bcc",
        "lcc:load=4,messages=2",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rs:root=1", "rs:root=1 (Reed-Solomon)"),
        ("rs@solve", "rs@solve (Reed-Solomon, by LU)"),
        ("rs@near-exact", "rs@near-exact (Reed-Solomon, near-exact vectors)"),
        ("rs@fft", "rs@fft (Reed-Solomon, by fft)"),
        ("binary", "binary"),
        ("binary@auto", "binary@auto (by auto)"),
        ("fastgc:Uncoded:load=2", "fastgc:Uncoded:load=2"),
    ],
)
def test_describe(text, said):
    assert catalogue.describe(text) == said


def test_remark_on_clusters_that_are_one():
    for code, remarked in [
        (ReedSolomon(12, stragglers=6, clusters="auto"), True),
        (ReedSolomon(12, stragglers=5, clusters="auto"), False),
        (ReedSolomon(12, stragglers=6), False),
        (Uncoded(4), False),
    ]:
        said = catalogue.remark("rs-clustered", code)
        assert (said is not None) == remarked
        assert not remarked or said.startswith("rs-clustered, n=12, s=6: one cluster")


def test_methods_of_names(mine):
    assert catalogue.methods("rs:root=1") == ReedSolomon(3, stragglers=1).scheme.methods
    assert catalogue.methods("uncoded") == Uncoded(3).scheme.methods
    assert catalogue.methods("mine:either") is None
    assert catalogue.factory("rs:root=1") is ReedSolomon
    catalogue.check_name("rs:nonsense=1")
    for verb in (catalogue.check_name, catalogue.factory, catalogue.methods):
        with pytest.raises(ValueError, match="turbo"):
            verb("turbo")
