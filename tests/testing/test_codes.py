"""The checks of a code pass good codes, with counts that are known, and refuse each kind of lie."""

import contextlib
import copy
import math
import os
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fastgc
from fastgc.codes import Code, Scheme
from fastgc.errors import CorruptMessageError, NotDecodableError
from fastgc.testing import codes as checks
from fastgc.testing.codes import Subject, check


class Altered:
    """An object some of whose attributes are others."""

    def __init__(self, of, **others):
        self.__dict__ |= {"of": of, **others}

    def __getattr__(self, name):
        return getattr(self.of, name)


class Graph(Scheme):
    """An approximate code: it holds three neighbours, and waits for n - stragglers workers."""

    def __init__(self, n, *, stragglers=2):
        self.n = self.k = n
        self.stragglers = stragglers
        self.wait = n - stragglers

    def row(self, worker):
        held = np.sort((worker + np.arange(3)) % self.n)
        return held, np.ones(3) / 3


MDS = fastgc.ReedSolomon(6, 5, stragglers=2)  # any four of six decode
REAL = fastgc.CyclicRepetition(6, stragglers=2)  # likewise, and no fewer span the sum
ONE = fastgc.CyclicRepetition(6, stragglers=1)
COPIES = fastgc.FractionalRepetition(6, stragglers=2)
PAIRS = fastgc.FractionalRepetition(6, stragglers=1)  # two copies differ: neither is believed
GRAPH = Code(Graph(7))
CODED = fastgc.LagrangeCode(6, 3, load=1)
SEVERAL = fastgc.Uncoded(3, load=2)  # two messages per worker


@pytest.fixture(scope="module")
def reports():
    """What is said of each code, by check."""

    def of(code):
        said = []
        check(code, engines=["simulated"], report=said.append)
        return dict(line.split(": ", 1) for line in said)

    return {code: of(code) for code in (MDS, REAL, COPIES, PAIRS, GRAPH, CODED, SEVERAL)}


def counts(text):
    return [int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", text)]


def test_check_counts_sets_of_a_code_of_which_any_four_decode(reports):
    for code in (MDS, REAL):
        said = reports[code]
        assert len(said) == len(checks.CHECKS) + 1
        assert said["rows are whole"] == f"n=6, k={code.k}, load 3, 6 messages"
        assert counts(said["too few are refused"]) == [63 - 22]
        assert "approximate" not in said["residuals are true"]
        assert counts(said["verbs agree"]) == [22, code.message_size(37), 37]
        assert counts(said["rounds are ready in time"]) == [20 * 4, 20]
        assert "no `wait`" in said["waiting ends in time"]
        assert said["corrupt messages are found"] == "6 of 6 corrupt workers named or refused"
        assert said["copies are the same"] == repr(code)
        assert said["simulation is its rounds"].startswith("4.0 messages")
        assert said["engines run it"] == "simulated; messages of 1 gradients"
        assert said["decodable is what spans"] == "22 of 63 sets of messages suffice"


def test_check_says_of_an_approximate_code_what_it_leaves_out(reports):
    said = reports[GRAPH]
    assert "of them for an approximation" in said["decodable is what spans"]
    assert said["residuals are true"].endswith(": an approximate code")
    assert said["waiting ends in time"].startswith("for 5 of 7 workers; at most 0.")
    left = float(said["waiting ends in time"].split()[7])
    away = [np.delete(np.arange(7), [i, j]) for i in range(7) for j in range(i)]
    assert left == pytest.approx(max(map(GRAPH.residual, away)), rel=0.05)
    assert float(said["training goes as without code"].split()[4]) > 0.01


def test_subject_takes_all_sets_of_a_small_code():
    subject = Subject(MDS, 0)
    assert len({tuple(F) for F in map(np.sort, subject.sets)}) == len(subject.sets) == 63
    large = Subject(fastgc.ReedSolomon(13, stragglers=4), 0)
    assert len(large.sets) == checks.SETS
    sizes = np.array([F.size for F in large.sets])
    assert (sizes == 13).any()
    assert min((sizes == 9).sum(), (sizes == 8).sum()) > 90  # just sufficient, and one less
    assert len(large.ready) == (sizes >= 9).sum()
    assert [len(large.some(large.sets, most)) for most in (1, 7, 299, 1000)] == [1, 7, 299, 300]
    spread = large.some(range(300), 3)
    assert spread == [0, 100, 200]
    assert CODED.scheme.data.coded
    assert Subject(CODED, 0).left(np.arange(6)) < 1e-12
    assert Subject(CODED, 0).left(np.arange(2)) > 0.1
    assert Subject(MDS, 0).left(np.arange(3)) > 0.1


@pytest.mark.parametrize(
    ("check", "found", "expected", "slack", "holds"),
    [
        (checks.close, 1.0, 1.0 + 9e-7, 0.0, True),
        (checks.close, 0.0, 9e-10, 0.0, True),
        (checks.close, 1.0, 1.4, 0.5, True),
        (checks.close, 1.0, 1.0 + 3e-6, 0.0, False),
        (checks.close, 0.0, 3e-9, 0.0, False),
        (checks.close, 1.0, 1.6, 0.5, False),
        (checks.alike, np.ones(4), np.ones(4) + 1e-9, 1e-8, True),
        (checks.alike, np.zeros(4), np.zeros(4), 0.0, True),
        (checks.alike, np.ones(4), np.full(4, 1.1), 0.05, False),
        (checks.alike, np.ones(4), np.zeros(4), 1.0, False),
    ],
)
def test_close_and_alike_compare_with_what_is_allowed(check, found, expected, slack, holds):
    with contextlib.nullcontext() if holds else pytest.raises(AssertionError, match=r"^x"):
        check(found, expected, "x", slack)


def test_raises_wants_the_error_and_a_word():
    with checks.raises(KeyError, "x") as caught:
        raise KeyError("told")
    assert caught[0].args == ("told",)
    with pytest.raises(AssertionError, match="x raises no KeyError"), checks.raises(KeyError, "x"):
        pass
    with (
        pytest.raises(AssertionError, match="x raises KeyError without a word"),
        checks.raises(KeyError, "x"),
    ):
        raise KeyError
    with pytest.raises(ZeroDivisionError), checks.raises(KeyError, "x"):
        raise ZeroDivisionError


# ---------------------------------------------------------------------------------------- lies


def altered(code, scheme=(), **others):
    """Return the code with some verbs replaced, or, by ``a.b`` in `scheme`, parts of its scheme."""
    if scheme:
        others["scheme"] = code.scheme
        for path, value in dict(scheme).items():
            first, _, rest = path.partition(".")
            held = Altered(getattr(others["scheme"], first), **{rest: value}) if rest else value
            others["scheme"] = Altered(others["scheme"], **{first: held})
    return Altered(code, **others)


def scaled(call, by):
    """Return a function whose result is multiplied."""
    return lambda *given, **options: call(*given, **options) * by


class Blind(Scheme):
    """Nobody holds the last partition."""

    def __init__(self, n):
        self.n = self.k = n

    def row(self, worker):
        return [worker % (self.n - 1)], [1.0]


def without(error, code):
    """Return a decoding function that raises `error` for sets that do not suffice."""

    def vector(F):
        try:
            return code.decoding_vector(F)
        except NotDecodableError:
            raise error from None

    return vector


def off(code, verb, by=1.01):
    """Return the code, or round, with a verb whose result is multiplied."""
    return altered(code, **{verb: scaled(getattr(code, verb), by)})


def disorderly(F, rows, **options):
    return MDS.decode(F, rows, **options) * (1 + 1e-5 * (type(rows) is not list))


# For each check: codes that lie, and what it says of them.
LIES = {
    "rows_are_whole": [
        (Code(Blind(4)), "nobody holds partition 3:"),
        (altered(MDS, load=4), "load is 4, but a worker holds 3"),
        (altered(MDS, {"loads": np.full(6, 2)}), r"loads are \[2, 2, .*not \[3, 3"),
        (altered(MDS, {"messages.counts": [1] * 5}), r"not \[1, 1, 1, 1, 1\]"),
        (altered(MDS, {"messages.counts": [1] * 5 + [0]}), "at least 1"),
        (altered(MDS, {"messages.counts": [1] * 5 + [2]}), "worker 5 holds 3 .* 2 m"),
    ],
    "decodable_is_what_spans": [
        (altered(COPIES, decodable=lambda F: len(F) > 1), "said to be exact"),
        (altered(ONE, decodable=lambda F: len(F) > 3), "declares stragglers=1, .* wait=5 if"),
        (altered(fastgc.LinearCode(np.eye(3)), decodable=lambda F: False), "span the gradient"),
    ],
    "too_few_are_refused": [
        (altered(MDS, decoding_vector=lambda F: np.ones(len(F))), "raises no NotDecodableError"),
        (altered(MDS, decoding_vector=without(NotDecodableError("few", 0), MDS)), "0 are said to"),
        (altered(MDS, decoding_vector=without(NotDecodableError("", 1), MDS)), "without a word"),
        (altered(MDS, best_vector=lambda F: (MDS.best_vector(F)[0], 0.5)), "residual of the best"),
    ],
    "residuals_are_true": [
        (off(GRAPH, "residual"), "residual from"),
        (altered(MDS, residual=lambda F: 1e-6), "residual from"),
        (altered(GRAPH, {"precision.left_out": lambda F, a: 0.4 * GRAPH.residual(F)}), "but trust"),
    ],
    "verbs_agree": [
        (off(MDS, "encode", 1 + 1e-6), "the streamed message 0 is off by 1e-06"),
        (altered(MDS, message_size=lambda p: p), "messages must have 37 elements"),
        (off(MDS, "decode"), "gradient is off by 0.01"),
        (altered(MDS, decoder=lambda: scaled(MDS.decoder(), 1.01)), "prepared vector"),
        (altered(MDS, bind=lambda *g, **o: scaled(MDS.bind(*g, **o), 1.01)), "gradient by bind"),
        (altered(MDS, decode=disorderly), "in another order"),
        (altered(MDS, round=lambda p: Altered(MDS.round(p), decodable=False)), "cannot be decoded"),
        (altered(MDS, round=lambda p: off(MDS.round(p), "gradient")), "a round's gradient"),
        (off(MDS, "decoding_vectors"), "vectors of many rounds"),
    ],
    "rounds_are_ready_in_time": [
        (altered(MDS, decodable=lambda F: len(F) > 4), "a round is ready"),
        (altered(MDS, decodable=lambda F: len(F) > 2), "is not ready"),
    ],
    "waiting_ends_in_time": [
        (altered(GRAPH, {"exact": True}), "cannot be exact"),
        (altered(GRAPH, {"wait": 4}), "waits for 4 workers, but .* not suff"),
        (altered(GRAPH, {"vector": scaled(GRAPH.scheme.vector, 1.01)}), "by least squares"),
    ],
}


@pytest.mark.parametrize(
    ("name", "code", "says"), [(name, *lie) for name, lies in LIES.items() for lie in lies]
)
def test_checks_refuse_lies(name, code, says):
    with pytest.raises(AssertionError, match=says):
        getattr(checks, name)(Subject(code, 0))


def test_decoded_is_the_sum_wants_errors_below_the_bound(monkeypatch):
    monkeypatch.setattr(checks.Experiment, "bound", lambda *given: 1e-17)
    with pytest.raises(AssertionError, match=r"beyond the bound 1e-17"):
        checks.decoded_is_the_sum(Subject(MDS, 0))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_decoded_is_the_sum_wants_trust_that_is_no_guess(factor, monkeypatch):
    trust = checks.Experiment.trust
    monkeypatch.setattr(checks.Experiment, "trust", lambda *given: factor * trust(*given))
    with pytest.raises(AssertionError, match="more than 30 times apart"):
        checks.decoded_is_the_sum(Subject(MDS, 0))


class Deaf:
    """A round that says all is verified, and never who is corrupt."""

    def __init__(self, code, p):
        self.rnd, self.corrupt, self.verified = code.round(p), [], True

    def __getattr__(self, name):
        return getattr(self.rnd, name)


class Alarmed(Deaf):
    def gradient(self):
        raise CorruptMessageError("all are", [0])


class Vague(Deaf):
    """Names everybody once a message is wrong."""

    resets = 0

    def reset(self):
        self.resets += 1
        self.corrupt = list(range(6)) if self.resets > 1 else []
        self.rnd.reset()


def test_corrupt_messages_are_found_refuses_rounds_that_are_deaf_or_alarmed():
    accusing, vague = Deaf(COPIES, 37), Vague(COPIES, 37)
    accusing.corrupt = [0]
    for rnd, says in [
        (Deaf(COPIES, 37), "passed as verified"),
        (Alarmed(COPIES, 37), "good messages are called corrupt: all are"),
        (accusing, r"good messages are called corrupt: \[0\]"),
        (vague, r"\[0, 1, 2, 3, 4, 5\] are named, not"),
    ]:
        lying = altered(COPIES, round=lambda p, verify, rnd=rnd: rnd)
        with pytest.raises(AssertionError, match=says):
            checks.corrupt_messages_are_found(Subject(lying, 0))
    assert "verif" in checks.corrupt_messages_are_found(Subject(GRAPH, 0))


class Moody(fastgc.Code):
    """A code whose copies differ in what `mood` says."""

    def __init__(self, n, mood=""):
        self.n = self.k = n
        self.mood = mood

    def row(self, worker):
        return [worker], [1.0]


class Twin(Altered):
    """What says that it equals a code."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(self.of)

    def __repr__(self):
        return self.shown


SHOWN, SENDS = repr(Moody(3)), fastgc.Uncoded(3, load=2).scheme


@pytest.mark.parametrize(
    ("verb", "copied", "says"),
    [
        ("copy", fastgc.Uncoded(3), "a copy of .* is not equal"),
        ("deepcopy", fastgc.Uncoded(3), "a deep copy of .* is not equal"),
        ("copy", Twin(Moody(3), shown="Moody(n=4)"), r"is shown as Moody\(n=4\)"),
        ("copy", Twin(Moody(3), shown=SHOWN, scheme=SENDS), "sends otherwise"),
    ],
)
def test_copies_are_the_same_refuses_copies_that_differ(verb, copied, says, monkeypatch):
    subject = Subject(Moody(3), 0)
    assert checks.copies_are_the_same(subject) == repr(subject.code)
    monkeypatch.setattr(checks.copy, verb, lambda code: copied)
    with pytest.raises(AssertionError, match=says):
        checks.copies_are_the_same(subject)


@pytest.mark.parametrize("name", ["times", "messages"])
def test_simulation_is_its_rounds_compares_times_and_messages(name, monkeypatch):
    simulate = checks.simulate

    def wrong(*given, method, **options):
        found = simulate(*given, method=method, **options)
        more = {} if method == "round" else {name: getattr(found, name) + 1}
        return Altered(found, **more)

    monkeypatch.setattr(checks, "simulate", wrong)
    with pytest.raises(AssertionError, match=r"not equal"):
        checks.simulation_is_its_rounds(Subject(MDS, 0))


def test_planning_takes_it_wants_the_code_once(monkeypatch):
    plan = checks.planning.plan

    def wrong(*given, codes, **options):
        return plan(*given, codes=[fastgc.Uncoded(6)], **options)

    monkeypatch.setattr(checks.planning, "plan", wrong)
    with pytest.raises(AssertionError, match="knows 0 choices"):
        checks.planning_takes_it(Subject(REAL, 0))


def test_training_goes_as_without_code_compares_parameters(monkeypatch):
    train = checks.train

    def wrong(code, **options):
        history = copy.copy(train(code, **options))
        if isinstance(code, fastgc.FractionalRepetition):
            history.theta = history.theta * 1.001
        return history

    monkeypatch.setattr(checks, "train", wrong)
    with pytest.raises(AssertionError, match=r"after three steps is off by 0\.001"):
        checks.training_goes_as_without_code(Subject(COPIES, 0))

    def unknown(code, **options):
        history = train(code, **options)
        history.rounds = [Altered(each, residual=math.nan) for each in history.rounds]
        return history

    monkeypatch.setattr(checks, "train", unknown)
    with pytest.raises(AssertionError, match="training records nan"):
        checks.training_goes_as_without_code(Subject(fastgc.ReedSolomon(4, stragglers=1), 0))


def replacing(**changed):
    return lambda report, out: report._replace(**changed)


def test_engines_run_it_refuses_engines_that_lie(monkeypatch):
    engine = fastgc.engines.SimulatedCluster

    def lying(change):
        class Lying(engine):
            def step(self, theta, out):
                report = super().step(theta, out)
                return change(report, out)

        return Lying

    def off(report, out):
        out *= 1.001
        return report

    lies = [
        (off, "Lying: from .* the gradient is off by 0.001"),
        (replacing(received=np.arange(2)), "which do not suffice"),
        (replacing(residual=0.1), "reports 0.1 as left out, not"),
    ]
    for change, says in lies:
        monkeypatch.setattr(checks, "find_engine", lambda name, change=change: lying(change))
        with pytest.raises(AssertionError, match=says):
            checks.engines_run_it(Subject(MDS, 0), ["simulated"])


def test_engines_run_it_names_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    said = checks.engines_run_it(Subject(MDS, 0), ["simulated", "mpi", "ray"])
    assert said.startswith("simulated; ")
    assert "; not mpi (mpi4py is not installed), ray (ray is not installed)" in said
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(checks.sys, "executable", "/nowhere/python")
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    assert "; not mpi (there is no mpiexec)" in checks.engines_run_it(Subject(MDS, 0), ["mpi"])


def test_engines_run_it_as_ranks_of_a_job(monkeypatch):
    """A job of a rank for each worker and the master, whose program has the code and the seed."""
    jobs = []

    def run(command, env, **options):
        jobs.append(command)
        [path] = re.findall(r"rank_of\('(.*)'\)", command[-1])
        assert pickle.loads(Path(path).read_bytes()) == (REAL, 3)
        assert env["PYTHONPATH"].split(os.pathsep) == [each for each in checks.sys.path if each]
        return SimpleNamespace(returncode=status, stdout="told", stderr="wrong")

    monkeypatch.setattr(checks.subprocess, "run", run)
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/{name}")
    monkeypatch.setattr(checks.sys, "executable", "/nowhere/python")
    status = 0
    assert checks.engines_run_it(Subject(REAL, 3), ["mpi"]).startswith("mpi; ")
    assert jobs[0][:4] == ["/mpiexec", "-n", "7", "/nowhere/python"]
    status = 1
    with pytest.raises(AssertionError, match="under mpiexec: toldwrong"):
        checks.engines_run_it(Subject(REAL, 3), ["mpi"])


def test_check_refuses_what_is_no_code_or_engine():
    with pytest.raises(TypeError, match="'rs'"):
        check("rs")
    with pytest.raises(ValueError, match=r"engine must be .*, not 'dask'"):
        check(MDS, engines=["simulated", "dask"])


def test_main_checks_the_code_that_is_named(monkeypatch, capsys):
    words = ["fastgc.codes:ReedSolomon", "--arg", "n=4", "stragglers=1", "--engines", "simulated"]
    monkeypatch.setattr(checks.sys, "path", list(checks.sys.path))
    checks.main(words)
    assert capsys.readouterr().out.count("\n") == len(checks.CHECKS) + 1
    for wrong, says in (
        ([*words, "--arg", "colour=3"], "TypeError: .*colour"),
        ([*words, "--arg", "colour"], "expected key=value, not 'colour'"),
        (["fastgc.codes:Nothing"], "Nothing"),
    ):
        with pytest.raises(SystemExit, match=says):
            checks.main(wrong)
