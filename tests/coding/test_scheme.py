"""Users' codes: one method makes a code for all of fastgc, and wrong codes are found out."""

import copy
import pickle
import sys

import numpy as np
import programs
import pytest
from examples import EXAMPLES

import fastgc
from fastgc import CyclicRepetition
from fastgc.codes import Scheme
from fastgc.coding import scheme
from fastgc.coding.messages import Messages
from fastgc.coding.rules import Span, Waiting
from fastgc.errors import NotDecodableError
from fastgc.testing.codes import check


class Ring(fastgc.Code):
    """An exact code, by rows alone: neighbours on a ring, coefficients of Tandon et al."""

    def __init__(self, n, k=None, *, load=3):
        self.n = n
        self.k = n if k is None else k
        self._matrix = fastgc.CyclicRepetition(n, self.k, stragglers=load - 1).matrix()

    def row(self, worker):
        held = np.flatnonzero(self._matrix[worker])
        return held, self._matrix[worker][held]


class Graph(Ring):
    """An approximate code: the same supports, with coefficients of 1."""

    def __init__(self, n, *, load=3, stragglers=1):
        super().__init__(n, load=load)
        self.stragglers = stragglers

    def row(self, worker):
        held = np.flatnonzero(self._matrix[worker])
        return held, np.ones(held.size) / held.size


class Chunks(Scheme):
    """A scheme with several messages per worker and complex coefficients."""

    def __init__(self, n):
        self.n, self.k = n, 2 * n

    messages = property(lambda self: Messages([2] * self.n))

    def row(self, worker):
        held = (2 * worker + np.arange(4)) % self.k
        return held, np.exp(1j * (1 + held * worker))


def test_only_rows_are_needed():
    code = Ring(8)
    assert (code.load, code.stragglers, code.threshold) == (3, 2, 6)
    assert code.scheme.messages.counts == [1] * 8
    assert not code.scheme.exact
    g = np.random.default_rng(0).standard_normal((8, 5))
    messages = [code.encode(i, g[code.partitions(i)]) for i in range(8)]
    heard = [7, 1, 2, 3, 5, 6]
    np.testing.assert_allclose(code.decode(heard, [messages[i] for i in heard]), g.sum(axis=0))
    assert 0 < code.residual(heard) < 1e-12
    assert 1e-17 < code.trust(heard).relative_error < 1e-12
    with pytest.raises(NotDecodableError, match=r"any 6 of 8 workers suffice"):
        code.decoding_vector(heard[:5])


@pytest.mark.parametrize(
    "code", [Ring(6), Ring(5, 7, load=2), Graph(9), fastgc.Code(Chunks(4))], ids=repr
)
def test_conformance(code):
    check(code, engines=["simulated"], report=lambda line: None)


def test_an_approximate_code_says_so():
    code = Graph(9, stragglers=3)
    heard = [0, 1, 2, 3, 4, 5]
    left = code.residual(heard)
    assert code.decodable(heard)
    assert left > 0.1
    assert code.trust(heard).relative_error == pytest.approx(left)
    B = code.matrix()[heard]
    a = code.decoding_vector(heard)
    np.testing.assert_allclose(a, np.linalg.lstsq(B.T, np.ones(9))[0], atol=1e-12)
    assert not code.decodable(heard[:5])
    assert 1 <= code.scheme.rule.missing(np.array(heard[:4])) <= 2
    received, g = code.round(4), np.random.default_rng(1).standard_normal((9, 4))
    ready = [received.receive(i, code.encode(i, g[code.partitions(i)])) for i in heard]
    assert ready == [False] * 5 + [True]
    assert received.residual() == pytest.approx(left)
    assert received.trust().relative_error > left / 3


def test_rule_of_declared_stragglers():
    """Who declares how many may straggle waits for the others at most; who does not, for a span."""

    class Declared(Chunks):
        stragglers = 1

    ring = Ring(8)
    assert ring.stragglers == 2  # finding it out declares nothing
    assert isinstance(ring.scheme.rule, Span)
    assert isinstance(Chunks(4).rule, Span)
    for waits, awaited in ((Graph(9, stragglers=3).scheme, 6), (Declared(4), 3)):
        assert isinstance(waits.rule, Waiting)
        assert waits.rule.wait == waits.awaited == awaited


def test_ready_when_rows_span_also_before():
    """A round waits for n - s workers at most; fewer may suffice."""
    code = Graph(6, load=2, stragglers=0)  # on an even ring, every other worker suffices
    assert code.decodable([0, 2, 4])
    assert code.residual([0, 2, 4]) < 1e-12
    assert not code.decodable([0, 2, 3])


def test_large_codes_do_not_know_what_they_tolerate():
    code = Ring(40, load=6)
    assert code.stragglers is code.threshold is None
    with pytest.raises(ValueError, match="not known how many stragglers Ring"):
        code.scheme.known_stragglers()
    with pytest.raises(ValueError, match="not known how many stragglers"):
        fastgc.stability.worst_stragglers(code)
    assert code.decodable(range(5, 40))
    assert fastgc.simulation.simulate(code, fastgc.delays.Exponential(1.0), rounds=5).mean > 0


def test_a_code_is_compared_and_copied_by_its_arguments():
    code, own = Ring(6, load=2), fastgc.Code(RingScheme(6, load=2))
    assert repr(code) == "Ring(n=6, load=2)"
    assert repr(own) == "Code(scheme=RingScheme(n=6, load=2))"
    assert code == Ring(6, None, load=2) != Ring(6)
    assert own == fastgc.Code(RingScheme(6, 2)) != fastgc.Code(RingScheme(6))
    assert len({code, own, Ring(6, load=2), Ring(6)}) == 3
    for each in (code, own):
        for again in (pickle.loads(pickle.dumps(each)), copy.copy(each), copy.deepcopy(each)):
            assert again == each
            assert again is not each
    assert copy.deepcopy(own).scheme is not own.scheme
    built_in = fastgc.BinaryCode(6, stragglers=1)
    assert repr(built_in.scheme) == repr(built_in)
    assert pickle.loads(pickle.dumps(built_in.scheme)) == built_in.scheme


class Forgetful(fastgc.Code):
    def __init__(self, n):
        self.n = n

    def row(self, worker):
        return [worker], [1.0]


@pytest.mark.parametrize(
    ("row", "error", "says"),
    [
        (lambda i: ([0, 0], [1.0, 1.0]), ValueError, r"row\(0\) of Wrong names a partition twice"),
        (lambda i: ([4], [1.0]), ValueError, r"names partition 4: they are numbered 0 to 3"),
        (lambda i: ([-1], [1.0]), ValueError, r"names partition -1"),
        (lambda i: ([0, 1], [1.0]), ValueError, r"as many numbers as its 2 partitions"),
        (lambda i: ([0.5], [1.0]), TypeError, "a vector of integers"),
        (lambda i: ([0], ["x"]), ValueError, "must have as many numbers"),
        (lambda i: [1.0] * 4, TypeError, r"row\(0\) of Wrong must be a pair: the partitions"),
        (lambda i: None, TypeError, "must be a pair.*, not None"),
    ],
)
def test_wrong_rows_are_refused(row, error, says):
    class Wrong(fastgc.Code):
        def __init__(self):
            self.n = self.k = 4

        def row(self, worker):
            return row(worker)

    with pytest.raises(error, match=says):
        Wrong().partitions(0)
    with pytest.raises(error, match=says):
        Wrong().encode(0, np.ones((1, 3)))


def test_what_a_scheme_forgets_is_named():
    with pytest.raises(AttributeError, match=r"Forgetful must set self\.k, the number of partitio"):
        Forgetful(3).decodable([0])
    with pytest.raises(TypeError, match="scheme"):
        type("Nothing", (fastgc.Code,), {})()
    with pytest.raises(TypeError, match="not 4: a class with its own row sets n and k instead"):
        type("Eager", (Ring,), {"__init__": fastgc.Code.__init__})(4)
    nothing = type("Nothing", (fastgc.Code,), {"__init__": lambda self: None})()
    with pytest.raises(TypeError, match="Nothing has neither a row nor a scheme"):
        nothing.decodable([0])


@pytest.mark.parametrize("name", ["bind_vector", "rule", "exact", "parity"])
def test_more_than_rows_is_said_by_a_scheme(name):
    says = rf"Eager defines {name}: a subclass of Code writes row.*write a subclass of .*Scheme"
    with pytest.raises(TypeError, match=says):
        type("Eager", (Ring,), {name: property(lambda self: None)})
    code = Ring(4)
    setattr(code, name, None)
    with pytest.raises(TypeError, match=f"Ring sets {name}: "):
        code.decodable([0])
    with pytest.raises(TypeError, match="Both defines row and is made with a scheme"):
        type("Both", (fastgc.Code,), {"row": Ring.row})(RingScheme(4))
    with pytest.raises(TypeError, match=r"scheme must be a fastgc\.codes\.Scheme, not Ring"):
        fastgc.Code(Ring(4))


class RingScheme(Scheme):
    """The scheme of `Ring`."""

    def __init__(self, n, load=3):
        self.n = self.k = n
        self._matrix = Ring(n, load=load)._matrix

    def row(self, worker):
        held = np.flatnonzero(self._matrix[worker])
        return held, self._matrix[worker][held]


@pytest.mark.parametrize("command", ["simulate", "train"])
def test_command_line_takes_any_class(command):
    """A class in the folder where the command runs."""
    words = ["own_approximation:Permuted:load=4,wait=9", "-n", "12", "--rounds", "3"]
    words += ["--delays", "own_approximation:Weibull:shape=0.9"]
    done = programs.run([sys.executable, "-m", "fastgc", command, *words], folder=EXAMPLES)
    assert "Permuted" in done.stdout


class Named(fastgc.Code):
    def __init__(self, n):
        self.n = self.k = n
        self._rows = self._row = self._matrix = self._load = self._solve = self._key = [n]
        self._entries = self._errors = self._own = self._formats = self._dense = "mine"

    def row(self, worker):
        return (worker + np.arange(3)) % self.n, np.ones(3)


def test_names_of_ones_own_are_free():
    """Names that users are likely to choose for attributes do not collide with the base's."""
    code = Named(6)
    assert check(code, engines=()) is None
    assert code._rows == [6]
    assert code._own == "mine"


@pytest.mark.parametrize(
    "plain",
    [
        fastgc.BinaryCode(9, stragglers=2),
        fastgc.FractionalRepetition(9, stragglers=2),
        fastgc.LagrangeCode(9, load=3),
        fastgc.ReedSolomon(9, stragglers=2),
        fastgc.CyclicRepetition(9, stragglers=2),
    ],
    ids=lambda code: type(code).__name__,
)
def test_bind_vector_said_anew_is_what_all_decode_by(plain):
    """A subclass inherits none of its base's faster paths: its vectors are twice as long."""

    class Doubled(type(plain.scheme)):
        def bind_vector(self, survivors, vector, unit=2.0**-53):
            fill = super().bind_vector(survivors, vector, unit)

            def twice(f, method):
                fill(f, method)
                vector[:f] *= 2

            return twice

    scheme = copy.copy(plain.scheme)
    scheme.__class__ = Doubled
    code, survivors = fastgc.Code(scheme), np.array([8, 0, 3, 4, 5, 6, 7])
    mask = np.isin(np.arange(9), survivors)
    found = code.decoding_vector(survivors)
    assert code.residual(survivors, found / 2) < 1e-9
    np.testing.assert_array_equal(code.decoder()(survivors), found)
    many = code.decoding_vectors(mask[None])[0][mask]
    assert code.residual(np.sort(survivors), many / 2) < 1e-9
    messages = np.random.default_rng(0).standard_normal((9, 4))
    wanted = code.combine(found, survivors, messages[survivors])
    for gradient in (code.decode(survivors, messages[survivors]), code.bind(messages)(survivors)):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12)


def test_names_of_a_schemes_objects_are_free():
    """A code of one's own may keep its data by this name: no scheme reads it."""

    class Keeps(fastgc.Code):
        def __init__(self, n):
            self.n = self.k = n
            self.data, self.messages = [1.0] * n, "none"

        def row(self, worker):
            return [worker], [1.0]

    code = Keeps(3)
    np.testing.assert_array_equal(code.decoding_vector([0, 1, 2]), np.ones(3))
    assert code.scheme.messages.count == 3


# ---------------------------------------------------------------------------- vectors that are kept


def test_cache_is_bounded_and_keeps_the_last_used(monkeypatch):
    monkeypatch.setattr(scheme, "SOLUTIONS_BYTES", 3 * (32 * 8 + 500))
    code = CyclicRepetition(8, stragglers=2)
    solved = []
    kind = type(code.scheme)
    solve = kind._solve
    monkeypatch.setattr(
        kind,
        "_solve",
        lambda self, F, unit: solved.append(tuple(F)) or solve(self, F, unit),
    )
    sets = [(0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), (2, 3, 4, 5, 6, 7), (0, 2, 3, 4, 5, 6)]
    first = code.decoding_vector(sets[0])
    backwards = code.decoding_vector(sets[0][::-1])  # the same set in another order
    np.testing.assert_array_equal(first, backwards[::-1])
    assert solved == sets[:1]
    for F in (sets[1], sets[2], sets[0], sets[3]):  # the last one evicts sets[1]
        code.decoding_vector(F)
    assert solved == [sets[0], sets[1], sets[2], sets[3]]
    code.decoding_vector(sets[0])
    assert len(solved) == 4
    code.decoding_vector(sets[1])
    assert solved[4:] == [sets[1]]
    first[:] = 0  # callers get copies
    assert code.decoding_vector(sets[0]).any()
    code.decoding_vector(sets[1], message_dtype=np.float32)
    assert solved[5:] == [sets[1]]  # another vector, if it is near-exact
