"""Every public function and method gets hostile arguments.

A target makes a right call, to which arguments with defaults are added. Then one or two are
replaced: by the same numbers in another layout, by other numbers, types, shapes or sizes, or by
anything at all. The result must resemble the right call's, or a documented kind of exception with a
text is raised. Arguments stay unchanged, and so do outputs if the call fails.

Arguments that must be objects with methods (codes, models, distributions, functions) are not
replaced by others: these raise whatever Python raises for missing methods.

``FASTGC_FUZZ=5000 pytest tests/test_fuzz.py`` tries new and more examples of each target.
"""

import contextlib
import copy
import faulthandler
import inspect
import os
import pkgutil
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hostile import Changes
from strength import much
from tables import FEATURES, OUTPUTS, SMALL, Job

import fastgc
from fastgc import (
    codes,
    data,
    delays,
    interpolation,
    models,
    optimizers,
    planning,
    sequential,
    simulation,
    stability,
    vandermonde,
)
from fastgc.coding.precision import Precision
from fastgc.coding.scheme import Scheme

MORE = int(os.environ.get("FASTGC_FUZZ") or 0)
FIRST = secrets.randbelow(2**32) if MORE else 0  # seed

DOCUMENTED = (TypeError, ValueError, fastgc.UnstableRoundError, MemoryError)
# These read files from disk, or raise for a coefficient beyond float64.
TARGETS_OF_FILES = {"data.load", "data.read_idx", "Empirical.read"}
OVERFLOWS = {"decoding_vector", "decode", "best_vector", "trust", "gradient", "best", "fill"}


@dataclass(frozen=True)
class Call:
    """A right call: the function, its arguments, and which of them it writes.

    ``state()``, if given, returns what must be unchanged if the call fails.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    writes: tuple[str, ...] = ("out",)
    state: Callable[[], Any] | None = None


# ------------------------------------------------------------------------------------- surface

# By reason: names that are not fuzzed.
REASONS = {
    "made by other functions, which check": (
        "BoundDecoder BoundEncoder Decoder Encoder Round GroupedRound VerifiedRound "
        "Choice Simulation SequentialRun Compared History Record"
    ),
    "takes a text, to show it": "Round.lapse GroupedRound.lapse",
    "takes a scheme: tests/coding/test_scheme.py": "Code",
    "of worker processes: tests/sequential": "SequentialCluster SequentialCluster.step",
    "starts worker processes": "fastgc.train",
    "abstract": "SequentialScheme Distribution.tail_indices",
    "for schemes, which know their parts": (
        "SequentialScheme.lacks Scheme.raise_too_few Precision Scheme.waiting"
    ),
    "as Round, and tests/coding/test_reactive.py": "ReactiveRound ReactiveRound.receive",
    "for the whole process: tests/codes, tests/_base, tests/kernels/test_pool.py": (
        "codes.register kernels.threads.set_num_threads"
    ),
    "takes a function": "delays.register StabilityTracker.enough kernels.threads.attach",
    "of histories, which fastgc.train makes: tests/training": (
        "History.loss_at history.round_rows History.seconds_to History.spent "
        "history.equal_error history.equal_loss"
    ),
    "of files, damaged in every way: tests/training": (
        "history.read_json Checkpoint Checkpoint.add Checkpoint.save checkpoint.write "
        "checkpoint.read"
    ),
    "writes a file": "history.write_json stability.write_jsonl",
    "for rounds and decoders, which have checked what they give": "StabilityTracker.record",
    "for what a checkpoint holds: tests/training": "_Descent.restore GCADA.restore",
    "for train, which has checked what it gives": "checkpoint.digest checkpoint.describe",
    "for sequential.compare and Schedule, which check": (
        "_BurstyScheme.choices SequentialScheme.choices SequentialScheme.tasks "
        "SequentialScheme.tolerable Independent.tasks Independent.tolerable MSGC.tasks "
        "MSGC.tolerable SRSGC.tasks SRSGC.tolerable"
    ),
    "for whoever runs a round: tests/coding": (
        "Gathering.begin Gathering.hear Gathering.straggles Gathering.wants "
        "VerifiedRound.require VerifiedRound.wants ReactiveRound.begin ReactiveRound.hear "
        "ReactiveRound.require ReactiveRound.straggles"
    ),
}
LEFT_OUT = {name for names in REASONS.values() for name in names.split()}
# Hooks of schemes: the verbs call them with arguments that they have checked.
SAID = (
    *("row", "vector", "bind_vector", "by_formula", "decoder", "parity", "rings"),
    *("equations", "deviation", "left_out", "typical_error", "computation_roundings"),
    *("vector_errors", "known_residuals"),
    *("partitions", "coefficients", "matrix", "residual"),
)
MODULES_LEFT_OUT = {
    "engines": "start worker processes, and check as the codes do",
    "kernels": "are compared with NumPy's: kernels_fuzz.py",
    "plotting": "draws",
}


def surface():
    """Map names of public functions, constructors, and methods by their class, to what they name.

    What takes no argument, or is abstract, cannot be called wrongly.
    """
    assert set(MODULES_LEFT_OUT) <= set(fastgc._MODULES)
    found = {"fastgc.train": fastgc.train, "engines.placement": fastgc.engines.placement}
    for path in (
        *(name for name in fastgc._MODULES if name not in MODULES_LEFT_OUT),
        "kernels.threads",
    ):
        module = pkgutil.resolve_name(f"fastgc:{path}")
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isclass(thing):
                if callable(thing) and inspect.signature(thing).parameters:
                    found[f"{path}.{name}"] = thing
            elif not issubclass(thing, BaseException) and not getattr(thing, "_is_protocol", False):
                found |= _of_class(name, thing)
    return found


def _of_class(name, kind):
    record = hasattr(kind, "_fields")  # a named tuple that functions return
    found = {} if record or inspect.isabstract(kind) else {name: kind}
    for method in dir(kind):
        owner = next(base for base in kind.__mro__ if method in vars(base))
        member = inspect.unwrap(getattr(vars(owner)[method], "__func__", vars(owner)[method]))
        public = method == "__call__" or not method.startswith("_")
        if issubclass(owner, Scheme | Precision) and method in SAID:
            continue
        if not (public and owner.__module__.startswith("fastgc") and inspect.isfunction(member)):
            continue
        abstract = getattr(member, "__isabstractmethod__", False)
        if len(inspect.signature(member).parameters) > 1 and not abstract:
            found[f"{owner.__name__}.{method}"] = getattr(kind, method)
    return found


SURFACE = surface()

# --------------------------------------------------------------------------------- right calls

TARGETS: dict[str, Callable[[np.random.Generator], Call]] = {}


def target(name):
    """Register a function that makes right calls; it returns what `Call` takes."""

    def register(make):
        TARGETS[name] = lambda rng: Call(*make(rng))
        return make

    return register


@cache
def _job(index):
    return Job(SMALL[index])


def _coded(rng, kind=object):
    """Draw one of the small codes, of this kind."""
    while True:
        job = _job(int(rng.integers(len(SMALL))))
        if isinstance(job.code, kind):
            return job.code, job


def _heard(rng, code):
    return rng.permutation(code.scheme.messages.count)


def _method(code, name):
    return getattr(code if hasattr(code, name) else code.scheme, name)


def _message(rng):
    code, job = _coded(rng)
    number = int(rng.integers(code.scheme.messages.count))
    worker, index = code.scheme.messages.sender(number)
    message = job.messages[number]
    partials = [job.partials[j].copy() for j in code.partitions(worker, index)]
    where = {"worker": worker, "index": index}
    return code, job, partials, where | {"out": np.zeros_like(message)}, message.dtype


@target("Code.encode")
def _encode(rng):
    code, _, partials, arguments, dtype = _message(rng)
    return code.encode, arguments | {"partials": partials, "message_dtype": dtype}


@target("Code.bind_encoder")
def _bind_encoder(rng):
    code, _, partials, arguments, dtype = _message(rng)
    return code.bind_encoder, arguments | {"partials": np.array(partials), "message_dtype": dtype}


@target("Code.encoder")
def _encoder(rng):
    code, job, _, arguments, _ = _message(rng)
    return code.encoder, arguments | {"p": job.p, "dtype": "float64"}


@target("Encoder.add")
def _add(rng):
    code, job, partials, arguments, _ = _message(rng)
    encoder = code.encoder(**arguments, p=job.p)
    partition = int(code.partitions(arguments["worker"], arguments["index"])[0])
    given = {"partition": partition, "g": partials[0]}
    return encoder.add, given, (), lambda: arguments["out"]


def _decoded(rng):
    code, job = _coded(rng)
    survivors = _heard(rng, code)
    messages = [job.messages[m].copy() for m in survivors]
    out = np.zeros(job.p)
    return code, {"survivors": survivors, "messages": messages, "out": out, "p": job.p}


@target("Code.decode")
def _decode(rng):
    code, arguments = _decoded(rng)
    if rng.random() < 0.5:
        arguments["messages"] = np.array(arguments["messages"])
    return code.decode, arguments | {"partial": [None, "best", "unbiased"][rng.integers(3)]}


@target("Code.combine")
def _combine(rng):
    code, arguments = _decoded(rng)
    vector = np.ones_like(code.best_vector(arguments["survivors"])[0])
    return code.combine, {"vector": vector, **arguments}


@target("Code.bind")
def _bind(rng):
    code, job = _coded(rng)
    return code.bind, {"messages": np.array(job.messages), "out": np.zeros(job.p), "p": job.p}


@target("BoundDecoder.__call__")
def _bound_call(rng):
    bind, arguments = _bind(rng)
    bound = bind(**arguments)
    return bound, {"survivors": _heard(rng, bind.__self__)}, (), lambda: bound.gradient


@target("Code.decoding_vector")
def _decoding_vector(rng):
    code, _ = _coded(rng)
    survivors = _heard(rng, code)
    out = np.zeros(survivors.size, complex if code.scheme.is_complex else float)
    return code.decoding_vector, {"survivors": survivors, "out": out}


@target("Code.decoding_vectors")
def _decoding_vectors(rng):
    code, _ = _coded(rng)
    masks = rng.random((3, code.scheme.messages.count)) < 0.9
    masks[0] = True
    return code.decoding_vectors, {"masks": masks, "undecodable": "nan"}


@target("Decoder.__call__")
def _decoder(rng):
    decoder = _coded(rng)[0].decoder()
    return decoder, {"survivors": rng.permutation(decoder.survivors.size)}


@target("Decoder.fill")
def _fill(rng):
    decoder, arguments = _decoder(rng)
    decoder.survivors[:] = arguments["survivors"]
    return decoder.fill, {"f": decoder.survivors.size}


def _round(rng, heard, grouped=False):
    """Return a round that has heard all messages but the first `heard`, and that message."""
    code, job = _coded(rng, fastgc.Grouped if grouped else object)
    numbers = _heard(rng, code)
    rnd = code.group_round(job.p) if grouped else code.round(job.p)
    if grouped:
        rnd.reset(range(code.groups))
    elif rng.integers(2):
        with contextlib.suppress(ValueError):  # the code has no message to spare
            rnd = code.round(job.p, verify=True)
            numbers = _heard(rng, code)
    sent = [(*code.scheme.messages.sender(m), job.messages[m].copy()) for m in numbers]
    for worker, index, message in sent[heard:]:
        rnd.receive(worker, message[: rnd.form.message_size] if grouped else message, index)
    return rnd, dict(zip(("worker", "index", "message"), sent[0], strict=True))


def _of_round(name, grouped=False, heard=0, **arguments):
    """Register a method of a round: `None` stands for what came, a message or an array."""

    @target(f"{'Grouped' * grouped}Round.{name}")
    def make(rng):
        rnd, message = _round(rng, heard, grouped)
        have = {"messages": rnd.survivors, "out": np.zeros(FEATURES * OUTPUTS), **message}
        given = {key: have[key] if each is None else each for key, each in arguments.items()}
        return getattr(rnd, name), given, ("out",), lambda: rnd.survivors


for grouped, of in ((False, {}), (True, {"group": 0})):
    _of_round("receive", grouped, 1, worker=None, message=None, index=None)
    _of_round("gradient", grouped, **of, out=None)
    _of_round("require", grouped, messages=None)
_of_round("best", heard=0, out=None)
_of_round("of", True, 1, group=0)
_of_round("reset", True, 1, groups=[0, 1])
_of_round("wants", True, 1, worker=0)


@target("Code.encode_data")
def _encode_data(rng):
    code, _ = _coded(rng, (fastgc.BinaryCode, fastgc.LagrangeCode))
    X = rng.standard_normal((2 * code.k, FEATURES))
    return code.encode_data, {"X": X, "y": X[:, :OUTPUTS].copy()}


@target("LagrangeCode.compute")
def _compute(rng):
    code, _ = _coded(rng, fastgc.LagrangeCode)
    X = rng.standard_normal((2 * code.k, FEATURES))
    shard = code.encode_data(X, X[:, 0].copy())[0]
    out = np.zeros(FEATURES, code.scheme.format(1, np.float64).partial_dtype)
    return code.compute, {"shard": shard, "theta": np.ones(FEATURES), "out": out}


@target("StabilityTracker.measure")
def _measure(rng):
    code, job = _coded(rng, fastgc.BinaryCode)
    tracker, survivors = stability.StabilityTracker(limit=1e-3), _heard(rng, code)
    code.decode(survivors, [job.messages[m] for m in survivors], tracker=tracker)
    gradient, partials = np.asarray(job.gradient, float), np.array(job.partials)
    return tracker.measure, {"gradient": gradient, "partials": partials}


@target("vandermonde.solve")
def _solve(rng):
    nodes = np.arange(1.0, 6.0) + (1j * (rng.random() < 0.5) or 0.0)
    nodes = nodes if nodes.imag.any() else nodes.real.copy()
    b = rng.standard_normal((5, 2)).astype(nodes.dtype)
    return vandermonde.solve, {
        "nodes": nodes,
        "b": b,
        "transpose": bool(rng.random() < 0.5),
        "order": ["auto", "leja", "given", np.arange(5)[::-1].copy()][rng.integers(4)],
        "refine": int(rng.integers(3)),
        "return_bound": bool(rng.random() < 0.5),
        "out": np.zeros_like(b),
    }


def _of_model(kind, owner, *names):
    """Register methods of a model."""
    for name in names:

        @target(f"{owner}.{name}")
        def make(rng, name=name):
            model, X = kind(FEATURES, 3, l2=0.1), rng.standard_normal((12, FEATURES))
            y = np.arange(12) % 3
            y = rng.standard_normal((12, 3)) if kind is models.LinearRegression else y
            theta = rng.standard_normal(model.size)
            have = {"theta": theta, "X": X, "y": y, "gradient": theta + 1}
            have |= {"out": np.zeros(model.size), "shard": tuple(models.prepared(model, X, y))}
            function = getattr(model, name)
            given = {key: have[key] for key in inspect.signature(function).parameters}
            return function, given, ("out", "gradient")


_of_model(
    *(models.SoftmaxRegression, "SoftmaxRegression"),
    *("learning_rate", "smoothness", "gradient", "loss", "partial_gradient", "probabilities"),
)
_of_model(models.SoftmaxRegression, "_Classifier", "error", "predict")
_of_model(models.LinearRegression, "LinearRegression", "error", "predict")
_of_model(
    *(models.LinearRegression, "_Quadratic"),
    *("prepare", "gradient", "partial_gradient", "optimum"),
)
_of_model(models.LeastSquares, "_Quadratic", "loss")
_of_model(models.LeastSquares, "_Linear", "add_regularisation", "learning_rate", "smoothness")


@target("models.least_squares_gradient")
def _least_squares(rng):
    X, y, theta = (rng.standard_normal(shape) for shape in ((12, FEATURES), (12, 2), 2 * FEATURES))
    given = {"theta": theta, "X": X, "y": y, "out": np.zeros(2 * FEATURES)}
    return models.least_squares_gradient, given


@target("Dataset")
def _dataset(rng):
    X, y = rng.standard_normal((12, FEATURES)), np.arange(12) % 3
    kept = {"X_train": X, "y_train": y, "X_test": X[:3], "y_test": y[:3]}
    return data.Dataset, {"name": "some", **kept}


OPTIMIZERS = {
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.5),
    "AMSGrad": optimizers.AMSGrad,
    "Nesterov": lambda: optimizers.Nesterov(0.1),
    "GCADA": lambda: optimizers.GCADA(groups=3, optimizer=optimizers.SGD(0.1)),
}


def _of_optimizer(target_name, names, groups=0, **arguments):
    """Register a method of optimizers, of which GCADA has heard from so many groups."""

    @target(target_name)
    def make(rng):
        optimizer = OPTIMIZERS[names[rng.integers(len(names))]]()
        optimizer.reset(rng.standard_normal(5))
        for group in range(groups):
            optimizer.receive(group, rng.standard_normal(5))
        method = getattr(optimizer, target_name.rpartition(".")[2])
        return method, _fresh(arguments), ("out",), lambda: optimizer.theta


for name in OPTIMIZERS:
    _of_optimizer(f"{name}.reset", [name], theta0=np.ones(4))
_of_optimizer("_Descent.step", ["SGD", "AMSGrad", "Nesterov"], gradient=np.arange(5.0))
_of_optimizer("GCADA.receive", ["GCADA"], 2, group=2, gradient=np.arange(5.0))
_of_optimizer("GCADA.gradient", ["GCADA"], 3, out=np.zeros(5))
_of_optimizer("GCADA.step", ["GCADA"], 3, gradient=np.ones(5))

MSGC = sequential.MSGC(4, burst=1, window=2, stragglers=1)


def _of_schedule(name, begun=True, **arguments):
    """Register a method of a sequential scheme's run, after its first round."""

    @target(f"Schedule.{name}")
    def make(rng):
        schedule = sequential.Schedule(MSGC)
        schedule.begin()
        schedule.end([0, 1, 2])
        if begun:
            schedule.begin()
        return getattr(schedule, name), _fresh(arguments), (), lambda: schedule._state.copy()


_of_schedule("begin", begun=False, job=True)
_of_schedule("enough", came=np.array([0, 1, 3]))
_of_schedule("end", came=np.array([True, True, False, True]))

# Methods of codes and functions of a code. What is ... is drawn: the code, or all that it hears.
OF_CODES = {
    "Code.decodable": {"survivors": ...},
    "Code.best_vector": {"survivors": ...},
    "Code.residual": {"survivors": ...},
    "Code.trust": {"survivors": ..., "dtype": "float32"},
    "Code.residuals": {"workers": 1, "sets": 5},
    "Code.round": {"p": 5, "dtype": "float64"},
    "Code.decoder": {},
    "Code.table": {"workers": [0], "digits": 3},
    "Code.partitions": {"worker": 0},
    "Code.coefficients": {"worker": 0},
    "Code.message_size": {"p": 5, "dtype": "float64"},
    "Code.recovery": {"trials": 3, "seed": 0},
    "Scheme.check_survivors": {"survivors": ...},
    "Scheme.format": {"p": 5, "dtype": "float64"},
    "Grouped.group_round": {"p": 5, "dtype": "float64"},
    "Grouped.members": {"group": 1},
    "Grouped.partitions_of": {"group": 1},
    "Grouped.group_of": {"worker": 1},
    "stability.amplification": {"code": ..., "survivors": ...},
    "stability.error_bound": {"code": ..., "survivors": ..., "dtype": "float64"},
    "stability.measured_error": {"code": ..., "survivors": ..., "dtype": "float64", "p": 8},
}


def _of_code(name):
    arguments, (owner, _, method) = OF_CODES[name], name.partition(".")

    @target(name)
    def make(rng):
        code, _ = _coded(rng, fastgc.Grouped if owner == "Grouped" else object)
        drawn = {"code": code, "survivors": _heard(rng, code)}
        given = {key: drawn[key] if each is ... else each for key, each in arguments.items()}
        return SURFACE[name] if "code" in given else _method(code, method), _fresh(given)


for name in OF_CODES:
    _of_code(name)

PARETO, LATE = delays.Pareto(1.0, 2.5), delays.ShiftedExponential(0.5, 2.0)
SLOW = delays.Exponential(1.5)
TIMES = delays.Empirical([0.5, 1.0, 4.0])
MIXTURE = delays.Mixture([delays.Exponential(1.0), delays.Pareto(1.0, 3.0)], [0.25, 0.75])
SOME = PARETO, LATE, SLOW, TIMES, MIXTURE
OUTAGES = delays.Outages(delays.Pareto(1.0, 2.0), ["a", "a", "b"], 0.5, 60.0)
MIXED = delays.Heterogeneous([delays.ShiftedExponential(0.5, 1.0 + i) for i in range(12)])
PAIR = delays.Heterogeneous([delays.ShiftedExponential(0.5, 1.0 + i) for i in range(2)])
GENERATOR = np.random.default_rng(0)
LINE = np.linspace(-1.0, 1.0, 5)
SHARES = np.array([0.25, 0.75])
INTERPOLATOR, FUNCTIONALS = (
    interpolation.Interpolator(LINE),
    interpolation.Functionals(LINE, LINE / 3),
)
BINARY, CIRCLE = fastgc.BinaryCode(5, stragglers=1), fastgc.ReedSolomon(6, stragglers=2)
ROUNDS = {"cost": np.full(5, 0.1), "receive": 0.01, "overhead": 0.1}
COVERED = {"delays": LATE, "n": 3, "load": 3, "k": 6, "needed": 5, "batch": 1, "cost": 0.1}

# Methods of one object each, or of one of several, which is drawn.
METHODS = {
    "Functionals.__call__": (FUNCTIONALS, {"chosen": [3, 0, 1]}),
    "Functionals.bind": (FUNCTIONALS, {"chosen": np.array([3, 0, 1]), "out": np.zeros(3)}),
    "Interpolator.__call__": (
        INTERPOLATOR,
        {"values": LINE**2, "points": LINE[:3] / 3, "out": np.zeros(3)},
    ),
    "Interpolator.derivative": (INTERPOLATOR, {"values": LINE**2, "points": LINE[:3] / 3}),
    "SequentialScheme.partitions": (MSGC, {"part": 1}),
    "MiniBatches.__call__": (
        partial(data.MiniBatches(2), (LINE[:, None] * LINE, LINE)),
        {"partition": 3, "round": 4},
    ),
    "Outages.sample": (OUTAGES, {"round": 3, "workers": 3, "seed": 1}),
    "Outages.dealt": (OUTAGES, {"order": [2, 0, 1]}),
    "Outages.draw": (OUTAGES, {"rng": GENERATOR, "rounds": 3, "workers": 3}),
    "Delays.sample": (SOME, {"round": 3, "workers": 4, "seed": 1}),
    "Delays.draw": (
        (PARETO, LATE, SLOW, TIMES, MIXTURE),
        {"rng": GENERATOR, "rounds": 3, "workers": 4},
    ),
    "Delays.order_statistic_mean": (SOME, {"f": 2, "n": 4}),
    **{
        f"{owner}.{name}": (of, {"q" if name == "quantile" else "t": SHARES})
        for owner, of in (
            ("_Continuous", (PARETO, LATE, SLOW)),
            ("Empirical", TIMES),
            ("Mixture", MIXTURE),
        )
        for name in ("cdf", "survival", "quantile")
    },
    **{
        f"{owner}.tail_indices": (of, {"workers": 2})
        for owner, of in (
            *(("Pareto", PARETO), ("Empirical", TIMES), ("Mixture", MIXTURE)),
            *(("Heterogeneous", PAIR), ("_Continuous", LATE)),
        )
    },
    "Outages.tail_indices": (OUTAGES, {"workers": 3}),
    "DecodeCost.__call__": (planning.DecodeCost(1e-6), {"f": 3, "n": 5}),
    "DecodeCost.limit": (planning.DecodeCost(1e-6), {"alpha": 0.5, "n": 5}),
    "Simulation.cdf": (simulation.Simulation(LINE + 2, *[np.ones(5, int)] * 3), {"t": LINE + 2}),
    "Simulation.quantile": (
        simulation.Simulation(LINE + 2, *[np.ones(5, int)] * 3),
        {"q": [0.0, 0.5]},
    ),
    "Grouped.repetition": (fastgc.Grouped, {"n": 6, "groups": 2, "k": 6}),
    "Empirical.read": (delays.Empirical, {"path": "nowhere.csv", "unit": "ms"}),
}

# Functions and classes.
FUNCTIONS = {
    "vandermonde.leja_order": {"nodes": LINE},
    "vandermonde.roots_order": {"n": 8, "exponents": np.array([0, 5, 2, 7])},
    "interpolation.evaluate": {"nodes": LINE, "values": LINE**2, "points": LINE[:3] / 3},
    "interpolation.basis": {"nodes": LINE, "points": LINE[:3] / 3, "out": np.zeros((3, 5))},
    "interpolation.functional": {"nodes": LINE, "points": LINE / 3, "out": np.zeros(5)},
    "interpolation.weights": {"nodes": LINE, "out": np.zeros(5)},
    "interpolation.chebyshev": {"m": 5},
    "interpolation.roots_of_unity": {"m": 5, "offset": 0.5},
    "Functionals": {"nodes": LINE, "points": LINE / 3},
    "Interpolator": {"nodes": LINE},
    "simulation.simulate": {"code": BINARY, "delays": LATE, **ROUNDS, "rounds": 20},
    "sequential.simulate_sequential": {
        "scheme": MSGC,
        "times": np.full((4, 4), 2.0),
        "load_slope": np.full(4, 0.1),
        "at_load": 1.0,
    },
    "sequential.compare": {
        "names": ["m-sgc", "uncoded"],
        "times": np.full((8, 4), 2.0),
        "load_slope": np.full(4, 0.1),
        "at_load": 1.0,
        "probe": 4,
        "models": 2,
    },
    "sequential.make": {"text": "binary", "n": 4, "stragglers": 1, "seed": 0},
    "MSGC": {"n": 6, "burst": 1, "window": 2, "stragglers": 2},
    "SRSGC": {"n": 6, "burst": 1, "window": 2, "stragglers": 3},
    "Independent": {"code": BINARY},
    "Schedule": {"scheme": MSGC},
    "BinaryCode": {"n": 7, "k": 9, "stragglers": 2, "speeds": [1.0, 2.0, 3.0, 1.0, 1.0, 5.0, 2.0]},
    "CouponCollector": {"n": 8, "k": 8, "load": 3, "send": "each", "seed": 2},
    "CyclicRepetition": {"n": 6, "k": 8, "stragglers": 3, "seed": 1},
    "FractionalRepetition": {"n": 6, "k": 7, "stragglers": 1},
    "GraphCode": {"n": 12, "k": 12, "degree": 4, "wait": 9, "seed": 1},
    "Grouped": {"codes": [fastgc.BinaryCode(n, stragglers=1) for n in (4, 3)]},
    "LagrangeCode": {"n": 4, "k": 4, "load": 2, "nodes": ([0, 1], [2, 3, -1, -2])},
    "LinearCode": {"B": np.vander(LINE, 3), "stragglers": 1},
    "PartialWork": {"n": 3, "k": 4, "assignment": [[0, 1, 3], [2, 1], [3, 2, 0]]},
    "Reactive": {"n": 4, "k": 6, "holders": 3, "deadline": 0.5},
    "RandomAssignment": {"n": 3, "k": 5, "load": [3, 4, 1], "send": "together", "seed": 4},
    "ReedSolomon": {"n": 6, "k": 8, "stragglers": 1, "speeds": [1.0, 2.0, 3.0, 1.0, 1.0, 5.0]},
    "Uncoded": {"n": 4, "k": 8, "load": 2, "tolerance": 0.25},
    "engines.placement": {"code": fastgc.BinaryCode(4, stragglers=1), "domains": [0, 1, 0, 1]},
    "codes.make": {"text": "rs:root=1", "n": 6, "k": 7, "stragglers": 2},
    "MiniBatches": {"size": 3, "seed": 1},
    "data.load": {"source": "nowhere.npz", "test_fraction": 0.2, "seed": 0, "task": "auto"},
    "data.read_idx": {"path": "nowhere"},
    "data.partition": {"X": np.ones((7, 2)), "y": np.arange(7), "k": 3},
    "Exponential": {"mean": 2.0},
    "Pareto": {"scale": 1.0, "shape": 2.0},
    "ShiftedExponential": {"shift": 1.0, "rate": 2.0},
    "Empirical": {"samples": np.ones((3, 2))},
    "Heterogeneous": {"models": [PARETO, PARETO]},
    "Mixture": {"models": [PARETO, PARETO], "weights": [0.25, 0.75]},
    "Outages": {"model": None, "domains": ["a", "a", "b"], "probability": 0.5, "seconds": 60.0},
    "delays.fit": {
        "times": np.array([1.0, 1.5, 2.25, 4.0, 1.25]),
        "kinds": ("pareto", "exponential"),
        "draws": 3,
    },
    "delays.parse": {"text": "pareto:scale=1,shape=2.5"},
    "LeastSquares": {"features": 3, "classes": 2, "l2": 0.5},
    "LinearRegression": {"features": 3, "outputs": 2, "l2": 0.5},
    "SoftmaxRegression": {"features": 3, "classes": 2, "l2": 0.5},
    "CADA": {"groups": 3},
    "GCADA": {"groups": 3, "smoothness": [1.0, 2, 3]},
    "SGD": {"lr": 0.1, "momentum": 0.5},
    "Nesterov": {"lr": 0.1, "momentum": 0.5},
    "AMSGrad": {"lr": 0.1},
    "DecodeCost": {"seconds": 1e-6, "order": "f2"},
    "planning.equal_time_loads": {"times": [1.0, 2.0, 3.0], "k": 7, "stragglers": 1},
    "planning.coverage_bounds": {"delays": MIXED, "k": 6},
    "planning.generalised_bcc": {"delays": MIXED, "k": 6},
    "planning.optimal_loads": {"needed": 5, "shifts": [0.5, 1.0], "rates": [1.0, 2.0]},
    "planning.limit_time": {"delays": PARETO, "alpha": 0.5, "work": 1.0},
    "planning.optimal_fraction": {"delays": PARETO, "work": 1.0, "n": 6, "max_load": 4, "k": 9},
    "planning.optimal_threshold": {"delays": PARETO, "n": 6, "cost": 0.1, "k": 6, "max_load": 4},
    "planning.round_time": {"delays": PARETO, "f": 4, "n": 6, "cost": 0.1, "k": 6},
    "planning.plan": {
        "delays": LATE,
        "n": 4,
        "cost": 0.1,
        "k": 4,
        "p": 10,
        "bandwidth": 1e6,
        "codes": ("binary", "uncoded"),
        "rounds": 3,
    },
    "simulation.adaptive_loads": {"selected": 3.0, "size": 2, "batch": 5},
    "simulation.completions_pmf": {"delays": LATE, "t": LINE + 2, "load": 3, "cost": 0.1},
    "simulation.coverage_probability": {"loads": [2, 3, 1, 4], "k": 6},
    "simulation.covered_cdf": COVERED | {"t": LINE + 2},
    "simulation.covered_mean": COVERED,
    "simulation.covered_messages": COVERED,
    "simulation.fastest_of_groups_mean": {"delays": LATE, "groups": 3, "size": 2},
    **{
        f"simulation.{name}_threshold": {"k": 6, "load": 2}
        for name in ("coupon", "least", "mds", "random")
        if f"simulation.{name}_threshold" in SURFACE
    },
    "simulation.received_cdf": {"delays": LATE, "t": LINE + 2, "loads": [1, 2], "needed": 2},
    "simulation.received_mean": {"delays": LATE, "loads": [1, 2], "needed": 2, "cost": 0.1},
    "simulation.selected_mean": {"smoothness": [1.0, 2.0], "c": 0.3, "max_age": 4},
    "simulation.threshold_cdf": {
        "delays": LATE,
        "t": LINE + 2,
        "n": 4,
        "threshold": 3,
        "load": 2,
        "cost": 0.1,
    },
    "simulation.threshold_mean": {"delays": LATE, "n": 4, "threshold": 3, "load": 2, "cost": 0.1},
    "simulation.total_cdf": {"delays": LATE, "t": LINE + 2, "n": 3, "load": 2, "threshold": 4},
    "simulation.total_mean": {"delays": LATE, "n": 3, "load": 2, "threshold": 4, "cost": 0.1},
    "StabilityTracker": {"limit": 1e-3, "action": "warn", "measure_every": 2},
    "stability.compare": {
        "codes": {"b": BINARY},
        "stragglers": 1,
        "patterns": ("random",),
        "dtypes": ("float64",),
        "sets": 2,
        "p": 4,
    },
    "stability.worst_stragglers": {
        "code": CIRCLE,
        "stragglers": 2,
        "trials": 3,
        "dtype": "float64",
    },
}


def _plain(name, of=(None,), arguments=None):
    @target(name)
    def make(rng):
        thing = of[rng.integers(len(of))]
        method = SURFACE[name] if thing is None else getattr(thing, name.rpartition(".")[2])
        return method, _fresh(arguments)


for name, (of, arguments) in METHODS.items():
    _plain(name, of if isinstance(of, tuple) else (of,), arguments)
for name, arguments in FUNCTIONS.items():
    _plain(name, arguments=arguments)

# Arguments with a default that are not replaced: objects with methods, and a number of a master's.
OBJECTS = {"tracker", "progress", "optimizer", "decode", "cancelled"}


def test_all_that_is_public_is_fuzzed_or_has_a_reason():
    assert not TARGETS.keys() & LEFT_OUT
    assert SURFACE.keys() == TARGETS.keys() | LEFT_OUT


# ------------------------------------------------------------------------------------- mutations

# Arguments that are numbers of things, and may be huge. Numbers that things are made of are tried
# up to a few dozen only, as cost grows with them.
INDICES = {"worker", "index", "number", "partition", "group", "round", "seed", "root", "g"}
# Iterables that are read item by item, which takes as long as there are items.
ONE_BY_ONE = {"t", "q", "loads", "workers", "groups", "kinds", "models", "codes", "patterns"}
ONE_BY_ONE |= {"dtypes", "hidden"}


class Other(Changes):
    """What takes the place of a right argument of any function."""

    often = 1 / 3
    dtypes = (*Changes.dtypes, "i1", "e", "G", "U3", "M8[s]", "m8[s]", [("a", "f8"), ("b", "i4")])
    ways = (*Changes.ways, "huge")
    strange = (
        *Changes.strange,
        *(True, "x", "", 1 + 1j, float("inf"), -0.0, 5e-324, 1e308, Fraction(7, 2), np.bool_(True)),
        *([[]], [[1.0], [1.0, 2.0]], [None], ["1"], {1, 2}, range(3), Ellipsis, np.dtype("f8")),
        *map(np.array, (3, "x", None, [1.0, np.nan], np.zeros(0), np.zeros((0, 3)), [[], []])),
        *(np.broadcast_to(1.0, 1 << 44), np.broadcast_to(1, (1 << 44, 1)), bytearray(8)),
    )

    def numbers(self, name, value):
        alike, others = super().numbers(name, value)
        if isinstance(value, int) and not isinstance(value, bool) and name in INDICES:
            others += [2**31, 2**63, -(2**63), 10**30, np.uint64(2**64 - 1)]
        return alike, others

    def by_huge(self, value):
        return np.broadcast_to(value[:1], (1 << 44, *value.shape[1:])) if value.ndim else value

    def other(self, name, value):
        if name.endswith("dtype") and self.rng.random() < 0.5:
            return self.taken([*self.dtypes, float, "nonsense", int])
        if not (isinstance(value, list | tuple) and value) or self.rng.random() < self.often:
            return super().other(name, value)
        if isinstance(value[0], int | float) and self.rng.random() < 0.5:
            return self.other_array(np.array(value))
        at, how = int(self.rng.integers(len(value))), self.rng.integers(4)
        self.said.append(f"item {at}")
        if how == 0:
            return type(value)([*value[:at], self.other(name, value[at]), *value[at + 1 :]])
        self.same = False
        return [value[:at], (*value, value[at]), (each for each in value)][how - 1]


# ------------------------------------------------------------------------------------ properties


def _fresh(arguments):
    return {
        name: copy.deepcopy(value) if isinstance(value, np.ndarray | np.random.Generator) else value
        for name, value in arguments.items()
    }


def _memory(value):
    """Return what an argument holds, for a later comparison; None if it is no array."""
    if isinstance(value, list | tuple):
        return [_memory(each) for each in value]
    if not isinstance(value, np.ndarray) or value.size > 1 << 20:
        return None
    return value.tolist() if value.dtype.kind == "O" else value.tobytes()


def _is_huge(value):
    return isinstance(value, np.ndarray) and value.size > 1 << 40


def _alike(one, other):
    """Whether results agree to a few digits; of objects, whether they have one type."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, np.ndarray | np.number | int | float | str | None):
        if isinstance(one, str | None):
            return one == other
        one, other = np.asarray(one), np.asarray(other)
        if one.dtype != other.dtype.newbyteorder("=") or one.shape != other.shape:
            return False
        if one.dtype.kind not in "fc":
            return bool((one == other).all())
        wide = np.result_type(one, np.float64)
        return np.allclose(one.astype(wide), other.astype(wide), 1e-4, 1e-4, equal_nan=True)
    code = isinstance(one, codes.Code)
    return type(one) is type(other) and (not code or _alike(one.matrix(), other.matrix()))


def _read_properties(thing):
    for name in dir(type(thing)):
        if not name.startswith("_") and isinstance(getattr(type(thing), name), property):
            getattr(thing, name)


@contextlib.contextmanager
def _in_time(seconds=120):
    """End the whole run if the body does not end in time; ``pytest -s`` shows where it hung."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _is_plain(value):
    """Whether an argument is no object with methods, such as a code or a model."""
    if isinstance(value, list | tuple):
        return True
    plain = np.ndarray | np.generic | bool | int | float | str | bytes | None
    return isinstance(value, plain)


def _right(name, seed):
    """Return the right call of a target, with defaults."""
    call = TARGETS[name](np.random.default_rng(seed))
    for each in inspect.signature(call.function).parameters.values():
        if _is_plain(each.default) and each.name not in OBJECTS:
            call.arguments.setdefault(each.name, each.default)
    return call


def _check(name, seed):
    call, changes = _right(name, seed), Other(np.random.default_rng([seed, 1]))
    arguments = call.arguments
    chosen = changes.rng.permutation(sorted(filter(lambda n: _is_plain(arguments[n]), arguments)))
    chosen = chosen[: changes.rng.integers(1, 3)].tolist()
    for which in chosen:
        other = changes.changed(which, arguments[which])
        if not (which in ONE_BY_ONE and _is_huge(other)):
            arguments[which] = other
    try:
        _call(name, seed, call, changes.same and not set(chosen) & set(call.writes))
    except BaseException as error:
        error.add_note(f"{name}, seed {seed}: {changes}")
        raise


def _call(name, seed, call, same):
    arguments = call.arguments
    before = {key: _memory(value) for key, value in arguments.items()}
    state = _memory(call.state()) if call.state else None
    try:
        with _in_time(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", fastgc.InstabilityWarning)
            # Documented warnings.
            warnings.filterwarnings("ignore", ".*does not survive the loss", UserWarning)
            warnings.filterwarnings("ignore", "overflow in solving a Vandermonde", RuntimeWarning)
            result = call.function(**arguments)
            if inspect.isclass(call.function):
                with contextlib.suppress(RuntimeError):  # the optimizer has not begun
                    _read_properties(result)
    except Exception as error:
        allowed = DOCUMENTED
        if name in TARGETS_OF_FILES:
            allowed += (OSError,)
        if name.rpartition(".")[2] in OVERFLOWS:
            allowed += (OverflowError,)
        if type(error) is MemoryError:
            assert any(map(_is_huge, arguments.values())), arguments
        if not isinstance(error, allowed) or not (str(error).strip() or type(error) is MemoryError):
            raise
        failed, result = True, None
        if call.state:
            assert _memory(call.state()) == state, "the call failed, and left something behind"
    else:
        failed = False
    for key, value in arguments.items():
        if failed or key not in call.writes:
            assert _memory(value) == before[key], f"{key} was changed"
    if same and not failed:
        right = _right(name, seed)
        expected = right.function(**right.arguments)
        assert _alike(expected, result), (expected, result)


@pytest.mark.few(132)
@pytest.mark.parametrize("name", TARGETS)
def test_hostile_arguments(name):
    """After a right call, which succeeds unless it reads a file that does not exist."""
    for seed in range(FIRST, FIRST + (MORE or much(16, 8))):
        call, expected = _right(name, seed), contextlib.nullcontext()
        if name in TARGETS_OF_FILES:
            expected = pytest.raises(OSError, match="nowhere")
        with expected:
            call.function(**call.arguments)
        _check(name, seed)
