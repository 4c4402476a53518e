"""Checks that a code keeps the promises that fastgc makes about any code.

`check` compares a code's claims with linear algebra on its rows, with sums computed without
rounding, and with rounds, engines and simulations that run it. It prints a line for each check that
holds, and raises `AssertionError` at the first that does not.

In a terminal, for a class in an importable module::

    python -m fastgc.testing.codes my_package.my_module:MyCode --arg n=12 load=3
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import inspect
import itertools
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import planning
from .._base.arrays import Array, Floats, Ints, check_word
from .._base.registry import functions_of, load_object, read_value
from ..codes.reed_solomon import ReedSolomon
from ..coding.arguments import arguments_of
from ..coding.code import Code
from ..coding.fingerprint import fingerprint
from ..coding.orders import random_arrivals
from ..coding.rules import Sooner, Span, check_wait
from ..coding.trust import UNSTABLE
from ..delays import Exponential
from ..engines import find_engine
from ..errors import CorruptMessageError, InstabilityWarning, NotDecodableError
from ..numerics.solve import SOLVED, Equations, least_squares
from ..planning.simulation import simulate
from ..stability.precision import Experiment
from ..training.data import Dataset
from ..training.models import LeastSquares, least_squares_gradient
from ..training.train import train

__all__ = ["CHECKS", "ENGINES", "check"]


# Number of sets of messages to check: all sets if there are no more, otherwise random ones.
SETS = 300

# Largest factor between trust and the true error, over the sets that are checked.
OFF = 30.0

P = 37  # elements of a gradient: odd, so that pairs of reals are padded


class Subject:
    """A code, and what its rows alone say about it."""

    def __init__(self, code: Code, seed: int) -> None:
        self.code, self.seed = code, seed

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def sets(self) -> list[Ints]:
        """Sets of messages: all of a small code; otherwise random ones, some just sufficient."""
        count, rng = self.code.scheme.messages.count, self.rng
        if 2**count <= SETS:
            each = (itertools.combinations(range(count), f) for f in range(1, count + 1))
            return [np.array(F) for F in itertools.chain(*each)]
        found = [np.arange(count)]
        for heard in random_arrivals(self.code.scheme, SETS // 3, self.seed):
            found += [np.array(heard), np.array(heard[:-1])]
        while len(found) < SETS:
            found.append(rng.permutation(count)[: rng.integers(1, count + 1)])
        return [F for F in found if F.size]

    @cached_property
    def ready(self) -> list[Ints]:
        """The sets that the code decodes."""
        return [F for F in self.sets if self.code.decodable(F)]

    def some(self, sets: Sequence[Ints], most: int) -> list[Ints]:
        """Return at most `most` of the sets, spread over all."""
        return list(sets[:: max(1, len(sets) // most)])[:most]

    def left(self, survivors: Ints) -> float:
        """Return the share of the gradient that least squares leaves out."""
        if self.code.scheme.data.coded:
            return least_squares(self.code.scheme.equations(survivors))[1]
        real_part = self.code.scheme.layout == "complex"
        return least_squares(Equations(*self._system(survivors), real_part))[1]

    def left_by(self, survivors: Ints, vector: Array) -> float:
        """Return the share of the gradient that a vector leaves out."""
        rows, target = self._system(survivors)
        lacking = rows.T @ vector - target
        if self.code.scheme.layout == "complex":
            lacking = lacking.real
        return float(np.linalg.norm(lacking) / np.linalg.norm(target))

    @cached_property
    def _matrix(self) -> Array:
        return self.code.matrix()

    def _system(self, survivors: Ints) -> tuple[Array, Floats]:
        """Return the rows of messages, and what they are to span."""
        rows = self._matrix[survivors].reshape(survivors.size, -1)
        return rows, np.ones(self.code.k)

    @cached_property
    def work(self) -> tuple[list[Any], list[Array], Array, Array]:
        """Shards, their partial gradients, the gradient, and the parameters."""
        code, rng = self.code, self.rng
        X, y = rng.standard_normal((3 * code.k, P)), rng.standard_normal(3 * code.k)
        theta = rng.standard_normal(P)
        shards = list(code.encode_data(X, y))
        partials = [least_squares_gradient(theta, *shard) for shard in shards]
        return shards, partials, least_squares_gradient(theta, X, y), theta

    @cached_property
    def messages(self) -> list[Array]:
        code, (_, partials, _, _) = self.code, self.work
        return [
            code.encode(worker, [partials[j] for j in code.partitions(worker, index)], index=index)
            for worker, index in map(code.scheme.messages.sender, range(code.scheme.messages.count))
        ]

    def expected(self, survivors: Ints) -> float:
        """Return the relative error that a gradient from these messages may have, by its trust."""
        return OFF * self.code.trust(survivors).relative_error + 1e-12

    def gradients_error(self, gradient: Array) -> float:
        truth = self.work[2]
        return float(np.linalg.norm(gradient - truth) / np.linalg.norm(truth))


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with the text `otherwise`, unless `holds`."""
    if not holds:
        raise AssertionError(otherwise)


def close(found: float, expected: float, what: str, slack: float = 0.0) -> None:
    """Require two numbers to be equal up to rounding."""
    require(
        abs(found - expected) <= 1e-9 + slack + 1e-6 * expected,
        f"{what} is said to be {found:.3g}, but is {expected:.3g}",
    )


def alike(found: Array, expected: Array, what: str, tolerance: float) -> None:
    """Require two arrays to be equal up to `tolerance` times the norm."""
    size = float(np.linalg.norm(expected)) or 1.0
    off = float(np.linalg.norm(found - expected)) / size
    require(off <= tolerance, f"{what} is off by {off:.2g}")


@contextmanager
def raises(kind: type[Exception], what: str) -> Iterator[list[Any]]:
    """Expect an error of a kind, which has a message; the list then holds it."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        require(bool(str(error)), f"{what} raises {kind.__name__} without a word")
        caught.append(error)
    require(bool(caught), f"{what} raises no {kind.__name__}")


ENGINES = ("simulated", "local", "mpi", "ray")


def engines_run_it(subject: Subject, engines: Sequence[str]) -> str:
    """Every installed engine decodes the gradient."""
    code = subject.code
    ran, left_out = [], []
    for name in engines:
        missing = _missing(name)
        if missing:
            left_out.append(f"{name} ({missing})")
            continue
        if name == "mpi":
            _under_mpiexec(subject)
        else:
            _run(subject, find_engine(name))
        ran.append(name)
    said = f"{', '.join(ran)}; messages of {code.scheme.message_weight:g} gradients"
    return said + (f"; not {', '.join(left_out)}" if left_out else "")


def _missing(engine: str) -> str:
    """Return what an engine lacks, or an empty text."""
    if engine == "mpi":
        if importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed"
        return "" if _mpiexec() else "there is no mpiexec"
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        return "ray is not installed"
    return ""


def _mpiexec() -> str | None:
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _gradient(theta: Array, shard: Any, out: Array) -> None:
    out[:] = least_squares_gradient(theta, *shard)


def _run(subject: Subject, engine: Callable[..., Any]) -> None:
    code, (shards, _, _, theta) = subject.code, subject.work
    out = np.empty(P)
    delays = Exponential(0.001)
    with engine(code, shards, _gradient, P, delays=delays) as cluster:
        for _ in range(3):
            report = cluster.step(theta, out)
            received = report.received
            require(
                code.decodable(received),
                f"{engine.__name__} decoded from {received.tolist()}, which do not suffice",
            )
            error, left = subject.gradients_error(out), code.residual(received)
            require(
                error <= subject.expected(received) or left > UNSTABLE,
                f"{engine.__name__}: from {received.tolist()} the gradient is off by {error:.2g}",
            )
            told = 0.0 if code.scheme.exact else report.residual  # formulas leave out nothing
            require(
                abs(told - left) <= 0.1 * left + UNSTABLE,
                f"{engine.__name__} reports {report.residual:.2g} as left out, not {left:.2g}",
            )


def _under_mpiexec(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.pickle"
        path.write_bytes(pickle.dumps((subject.code, subject.seed)))
        command = [str(_mpiexec()), "-n", str(subject.code.n + 1), sys.executable, "-c"]
        # by name: in `python -m fastgc.testing.codes` this module is __main__, which ranks lack
        program = f"from fastgc.testing.codes import rank_of; rank_of({str(path)!r})"
        paths = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [*command, program],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=300,
        )
    require(done.returncode == 0, f"under mpiexec: {done.stdout[-800:]}{done.stderr[-800:]}")


def rank_of(path: str) -> None:
    """Run the code in a file as a rank of a job under mpiexec."""
    from ..engines.mpi import MPICluster

    if not MPICluster.serve():
        code, seed = pickle.loads(Path(path).read_bytes())
        _run(Subject(code, seed), MPICluster)


def rows_are_whole(subject: Subject) -> str:
    """Rows name existing partitions, each partition has a worker, and loads match the rows."""
    code = subject.code
    held = [code.partitions(worker) for worker in range(code.n)]
    everybody = np.unique(np.concatenate(held))
    missing = np.setdiff1d(np.arange(code.scheme.data.shards), everybody)
    nobody = ", ".join(map(str, missing.tolist()))
    require(not missing.size, f"nobody holds partition {nobody}: the sum can never be had")
    sizes = [each.size for each in held]
    require(code.load == max(sizes), f"load is {code.load}, but a worker holds {max(sizes)}")
    require(
        code.scheme.loads.tolist() == sizes, f"loads are {code.scheme.loads.tolist()}, not {sizes}"
    )
    counts = code.scheme.messages.counts
    require(
        len(counts) == code.n and min(counts) >= 1,
        f"messages.counts must have an entry of at least 1 for each worker, not {list(counts)}",
    )
    for worker, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        require(
            size % count == 0,
            f"worker {worker} holds {size} partitions, which {count} messages cannot share evenly",
        )
    return f"n={code.n}, k={code.k}, load {code.load}, {code.scheme.messages.count} messages"


def decodable_is_what_spans(subject: Subject) -> str:
    """Sets that span the sum are decodable; others only if the code says it is approximate."""
    code, later = subject.code, 0
    approximate: list[tuple[float, list[int]]] = []
    for F in subject.sets:
        left, decodable = subject.left(F), code.decodable(F)
        if decodable and left > 10 * SOLVED:
            approximate.append((left, F.tolist()))
        elif not decodable and left < SOLVED / 10:
            require(
                not isinstance(code.scheme.rule, Span),
                f"messages {F.tolist()} span the gradient, but are said not to suffice",
            )
            later += 1
    if approximate and (code.scheme.exact or code.scheme.wait is None):
        left, heard = max(approximate)
        s = code.stragglers
        raise AssertionError(
            f"messages {heard} are said to suffice, but {left:.2g} of the gradient is not in what "
            "they span, and the code "
            + (
                "is said to be exact"
                if code.scheme.exact or s is None
                else f"declares stragglers={s}, which does not hold: declare fewer, or set "
                f"wait={code.n - s} if gradients may be approximate"
            )
        )
    said = f"{len(subject.ready)} of {len(subject.sets)} sets of messages suffice"
    if approximate:
        said += f", {len(approximate)} of them for an approximation"
    if later:
        said += f"; the rule waits for more in {later} that would"
    return said


def too_few_are_refused(subject: Subject) -> str:
    """Too few messages, wrong numbers and messages named twice raise clear errors."""
    code, refused = subject.code, 0
    for F in subject.some([F for F in subject.sets if not code.decodable(F)], 50):
        with raises(NotDecodableError, f"decoding from {F.tolist()}") as caught:
            code.decoding_vector(F)
        missing = caught[0].missing
        require(missing >= 1, f"{F.tolist()} do not suffice, but {missing} are said to be missing")
        refused += 1
        near, residual = code.best_vector(F)
        if not code.scheme.data.coded:
            close(residual, subject.left_by(F, near), f"the residual of the best from {F}")
    for wrong in ([code.scheme.messages.count], [-1], [0, 0]):
        with raises(ValueError, f"decoding from messages {wrong}"):
            code.decoding_vector(wrong)
    return f"{refused} sets, each with the number of messages missing"


def residuals_are_true(subject: Subject) -> str:
    """The residual is what a vector leaves out; exact codes leave out nothing."""
    code, largest = subject.code, 0.0
    for F in subject.some(subject.ready, 60):
        vector = code.decoding_vector(F)
        residual = code.residual(F)
        largest = max(largest, residual)
        if not code.scheme.data.coded:
            size = float(np.abs(vector).max()) * float(code.scheme.precision.row_sums[F].max())
            close(residual, subject.left_by(F, vector), f"the residual from {F}", 1e-13 * size)
        said = code.scheme.precision.left_out(F, vector)
        if residual > UNSTABLE:
            require(
                said > residual / 2,
                f"from {F.tolist()} {residual:.2g} of the gradient is left out, but trust counts "
                f"{said:.2g}",
            )
    return f"at most {largest:.1e}" + ("" if largest < UNSTABLE else ": an approximate code")


def decoded_is_the_sum(subject: Subject) -> str:
    """Decoded gradients are right within the bound of rounding, and as precise as trust says."""
    code = subject.code
    experiment = Experiment(code, p=P, seed=subject.seed)
    errors, trusted = [], []
    for F in subject.some(subject.ready, 60):
        vector = code.decoding_vector(F)
        error, bound = experiment.error(F, vector).relative, experiment.bound(F, vector)
        require(
            error <= bound,
            f"from {F.tolist()} the gradient is off by {error:.2g}, beyond the bound {bound:.2g}",
        )
        errors.append(error)
        trusted.append(experiment.trust(F, vector))
    error, trust = (float(np.sqrt(np.mean(np.square(each)))) for each in (errors, trusted))
    require(
        error <= OFF * trust and trust <= OFF * max(error, 2.0**-53),
        f"gradients are off by {error:.2g} (root mean square), but trust says {trust:.2g}: more "
        f"than {OFF:g} times apart",
    )
    return f"off by {error:.1e}, trusted to {trust:.1e}"


def verbs_agree(subject: Subject) -> str:
    """All verbs give the same gradient: decode, round, bind, streams, prepared decoders."""
    code, (_, partials, _, _) = subject.code, subject.work
    for number, message in enumerate(subject.messages):
        worker, index = code.scheme.messages.sender(number)
        encoder = code.encoder(worker, P, index=index)
        for j in code.partitions(worker, index).tolist():
            encoder.add(j, partials[j])
        alike(encoder.message(), message, f"the streamed message {number}", 1e-12)
    size = code.message_size(P)
    require(
        all(message.shape == (size,) for message in subject.messages),
        f"messages must have {size} elements",
    )
    table = np.array(subject.messages)
    bound, decoder, received = code.bind(table, p=P), code.decoder(), code.round(P)
    chosen = subject.some(subject.ready, 40)
    for F in chosen:
        vector = code.decoding_vector(F)
        gradient = code.decode(F, [subject.messages[m] for m in F], p=P)
        error = subject.gradients_error(gradient)
        require(
            error <= subject.expected(F) or bool(code.residual(F) > UNSTABLE),
            f"from {F.tolist()} least squares' gradient is off by {error:.2g}",
        )
        alike(decoder(F), vector, f"the prepared vector of {F}", 1e-9)
        alike(bound(F), gradient, f"the gradient by bind from {F}", subject.expected(F))
        alike(code.decode(F[::-1], table[F[::-1]], p=P), gradient, "in another order", 1e-6)
        received.reset()
        for number in F.tolist():
            worker, index = code.scheme.messages.sender(number)
            received.receive(worker, subject.messages[number], index)
        require(received.decodable, f"a round that received {F.tolist()} cannot be decoded")
        alike(received.gradient(), gradient, f"a round's gradient from {F}", subject.expected(F))
    masks = np.zeros((len(chosen), code.scheme.messages.count), dtype=bool)
    for mask, F in zip(masks, chosen, strict=True):
        mask[F] = True
    for mask, vector in zip(masks, code.decoding_vectors(masks), strict=True):
        came = np.flatnonzero(mask)
        alike(vector[came], code.decoding_vector(came), "vectors of many rounds at once", 1e-9)
    return f"{len(chosen)} sets, messages of {size} elements for gradients of {P}"


def rounds_are_ready_in_time(subject: Subject) -> str:
    """A round becomes ready with the message that makes the set decodable."""
    code, rng, counted = subject.code, subject.rng, 0
    received = code.round(P)
    senders = np.repeat(np.arange(code.n), code.scheme.messages.counts)
    for _ in range(20):
        received.reset()
        heard: list[int] = []
        due = list(code.scheme.messages.first[:-1])
        for worker in rng.permutation(senders).tolist():
            heard.append(due[worker])
            due[worker] += 1
            ready = received.receive(worker, subject.messages[heard[-1]])
            decodable = code.decodable(heard)
            # Rounds do not wait for all sets that suffice.
            sooner = decodable and isinstance(code.scheme.rule, Sooner)
            require(
                ready == decodable or sooner,
                f"with messages {heard} a round is{'' if ready else ' not'} ready, but they are"
                f"{'' if decodable else ' not'} decodable",
            )
            counted += 1
            if ready:
                break
    return f"{counted} messages in 20 orders"


def waiting_ends_in_time(subject: Subject) -> str:
    """Codes that wait for f workers decode from any f, and always as well as least squares."""
    code = subject.code
    if code.scheme.wait is None:
        return "it does not give up exactness: it has no `wait`"
    f, rng = check_wait(code.scheme.wait, code.n), subject.rng
    require(
        not code.scheme.exact,
        f"it waits for {f} workers at most, and cannot be exact in every round",
    )
    for _ in range(30):
        F = code.scheme.messages.of(rng.permutation(code.n)[:f])
        require(code.decodable(F), f"it waits for {f} workers, but {F.tolist()} do not suffice")
    largest = 0.0
    for F in subject.some(subject.sets, 60):
        left, best = subject.left_by(F, code.scheme.vector(F)), subject.left(F)
        close(
            left, best, f"what the vector leaves of messages {F.tolist()}, by least squares", 1e-7
        )
        if len({code.scheme.messages.sender(m)[0] for m in F.tolist()}) >= f:
            largest = max(largest, left)
    return f"for {f} of {code.n} workers; at most {largest:.2g} is left out then"


def corrupt_messages_are_found(subject: Subject) -> str:
    """With all messages, no corrupt one passes as verified, and good ones cause no alarm."""
    code, rng, found = subject.code, subject.rng, 0
    try:
        received = code.round(P, verify=True)
    except ValueError as refusal:  # the code cannot verify
        return str(refusal)
    for worker in [None, *rng.permutation(code.n)[:8].tolist()]:
        received.reset()
        for number, message in enumerate(subject.messages):
            sender, index = code.scheme.messages.sender(number)
            energy = float(np.linalg.norm(message) ** 2)  # as of random partial gradients
            if sender == worker:
                message = message + (1 + rng.standard_normal(message.size)) * np.abs(message).max()
            if received.wants(sender):
                received.receive(sender, message, index, energy=energy)
        if worker is None:
            try:
                received.gradient()
            except CorruptMessageError as alarm:
                raise AssertionError(f"good messages are called corrupt: {alarm}") from None
            require(not received.corrupt, f"good messages are called corrupt: {received.corrupt}")
            continue
        if worker in received.corrupt:
            require(received.corrupt == [worker], f"{received.corrupt} are named, not {worker}")
            found += 1
            continue
        try:
            gradient = received.gradient()
        except (CorruptMessageError, NotDecodableError):
            found += 1
            continue
        error = subject.gradients_error(gradient)
        require(
            not received.verified or error <= 1e-6 or code.residual(received.survivors) > UNSTABLE,
            f"a corrupt message of worker {worker} passed as verified",
        )
    return f"{found} of {min(code.n, 8)} corrupt workers named or refused"


def copies_are_the_same(subject: Subject) -> str:
    """Pickles, copies and codes of the same arguments are equal, and send the same messages."""
    code = subject.code
    kind = type(code)
    make: Callable[..., Code] = kind
    made_of = inspect.BoundArguments(inspect.signature(kind), arguments_of(code))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        again = make(*made_of.args, **made_of.kwargs)
    for what, other in (
        ("a pickle", pickle.loads(pickle.dumps(code))),
        ("a copy", copy.copy(code)),
        ("a deep copy", copy.deepcopy(code)),
        ("one made of the same arguments", again),
    ):
        require(other == code and hash(other) == hash(code), f"{what} of {code!r} is not equal")
        require(repr(other) == repr(code), f"{what} is shown as {other!r}, not {code!r}")
        require(
            fingerprint(other.scheme) == fingerprint(code.scheme),
            f"{what} of {code!r} sends otherwise",
        )
    require(kind.__name__ in repr(code), f"{code!r} does not name its class")
    return repr(code)


def simulation_is_its_rounds(subject: Subject) -> str:
    """Simulated rounds end when the code's own rounds do."""
    code = subject.code
    run = partial(simulate, code, Exponential(1.0), cost=0.01, rounds=60, seed=subject.seed)
    asks = code.scheme.holders.stand_ins  # "auto" would ask, which rounds do not
    found, by_round = run(method="kernel" if asks else "auto"), run(method="round")
    np.testing.assert_array_equal(found.times, by_round.times)
    np.testing.assert_array_equal(found.messages, by_round.messages)
    return f"{found.messages.mean():.1f} messages on average"


def planning_takes_it(subject: Subject) -> str:
    """Planning ranks the code beside others by the expected time of a round."""
    code = subject.code
    options: dict[str, Any] = {"codes": [code], "p": P, "rounds": 50}
    ranked = planning.plan(code.n, Exponential(1.0), 0.01, code.k, **options)
    mine = [choice for choice in ranked.choices if choice.code == code]
    require(len(mine) == 1, f"planning knows {len(mine)} choices of this code, not one")
    return f"{mine[0].time:.3g} s a round"


def training_goes_as_without_code(subject: Subject) -> str:
    """Training takes the same steps as without a code, and records what gradients left out."""
    code, rng = subject.code, subject.rng
    X, y = rng.standard_normal((4 * code.k, 3)), np.arange(4 * code.k) % 2
    data = Dataset("random numbers", X, y, X, y)
    run: Any = partial(train, data=data, model=LeastSquares(3, 2), rounds=3, engine="simulated")
    history, plain = run(code), run(ReedSolomon(code.n, code.k, load=-(-code.k // code.n)))
    left = max(record.residual for record in history.rounds)
    require(
        code.scheme.exact or math.isfinite(left), f"training records {left} as what is left out"
    )
    if not left >= UNSTABLE:
        alike(history.theta, plain.theta, "parameters after three steps", 1e-6)
    return "3 rounds" if code.scheme.exact else f"3 rounds, at most {left:.1e} left out"


# All checks above, except of engines.
CHECKS: list[Callable[[Subject], str]] = functions_of("subject", globals())


def check(
    code: Code,
    *,
    engines: Sequence[str] | None = None,
    seed: int = 0,
    report: Callable[[str], object] = print,
) -> None:
    """Check that a code keeps the promises of any code; raise at the first that it breaks.

    Parameters
    ----------
    code : Code
        A code for up to about 60 workers: it runs with as many processes. A small code is checked
        with every set of messages.
    engines : sequence of str, optional
        The engines of `ENGINES` to run it on. Default: all that are installed.
    seed : int
        Seed of the data, orders and sets.
    report : callable
        Gets a line for each check that holds.

    Raises
    ------
    AssertionError
        At the first check that fails; the error says what is wrong, and for which messages.
    TypeError
        If it is no code.
    """
    if not isinstance(code, Code):
        raise TypeError(f"what is checked must be a fastgc.Code, not {code!r}")
    subject = Subject(code, seed)
    chosen = ENGINES if engines is None else tuple(engines)
    for name in chosen:
        check_word("engine", name, *ENGINES)
    for each in CHECKS:
        report(f"{each.__name__.replace('_', ' ')}: {each(subject)}")
    report(f"engines run it: {engines_run_it(subject, chosen)}")


def _arguments(listed: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for item in listed:
        key, equals, value = item.partition("=")
        if not equals:
            raise SystemExit(f"expected key=value, not {item!r}")
        yield key, read_value(value)


def main(words: Sequence[str] | None = None) -> None:
    """Check the code that the command line names."""
    said = str(__doc__).partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m fastgc.testing.codes", description=said)
    parser.add_argument("code", help="module:Class")
    parser.add_argument("--arg", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    parser.add_argument("--engines", help="a list such as simulated,local (default: all there are)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    sys.path.insert(0, os.getcwd())
    try:
        code = load_object(given.code)(**dict(_arguments(given.arg)))
        engines = given.engines.split(",") if given.engines else None
        check(code, engines=engines, seed=given.seed)
    except (AssertionError, ValueError, TypeError, ImportError) as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None


if __name__ == "__main__":
    main()
