"""Every public function and method gets hostile arguments.

A target makes a right call. Then one or two of its arguments are replaced: by the same numbers in
another layout, by other numbers, types, shapes or sizes, or by anything at all. The result must
resemble the right call's, or a documented kind of exception with a text is raised. Arguments stay
unchanged, and so do outputs if the call fails.

Arguments that must be objects with methods (codes, models, distributions, functions) are not
replaced by others: these raise whatever Python raises for missing methods.

``FASTGC_FUZZ=5000 pytest tests/test_fuzz.py`` tries new and more examples of each target.
"""

import contextlib
import faulthandler
import inspect
import os
import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
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

EXAMPLES = os.environ.get("FASTGC_FUZZ")
FUZZ = settings(
    max_examples=int(EXAMPLES or much(8, 5)),
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

DOCUMENTED = (TypeError, ValueError, fastgc.UnstableRoundError, MemoryError)
# These read files from disk, or raise for a coefficient beyond float64.
TARGETS_OF_FILES = {"data.load", "data.read_idx", "Recording.read", "Empirical.read"}
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


# --------------------------------------------------------------------------------- right calls


@cache
def _job(index):
    return Job(SMALL[index])


def _coded(rng, kind=None, least=1):
    """Draw one of the small codes, of this kind, with at least `least` workers."""
    while True:
        job = _job(int(rng.integers(len(SMALL))))
        if (kind is None or isinstance(job.code, kind)) and job.code.n >= least:
            return job.code, job


def _heard(rng, code):
    return rng.permutation(code.scheme.messages.count)


def _encode(rng, streaming=False):
    code, job = _coded(rng)
    number = int(rng.integers(code.scheme.messages.count))
    worker, index = code.scheme.messages.sender(number)
    message = job.messages[number]
    arguments = {"worker": worker, "index": index, "out": np.zeros_like(message)}
    if streaming:
        return code.encoder, arguments | {"p": job.p, "dtype": "float64", "message_dtype": None}
    partials = [job.partials[j].copy() for j in code.partitions(worker, index)]
    return code.encode, arguments | {"partials": partials, "message_dtype": message.dtype}


def _bind_encoder(rng):
    encode, arguments = _encode(rng)
    arguments["partials"] = np.array(arguments["partials"])
    return Call(encode.__self__.bind_encoder, arguments)


def _decode(rng):
    code, job = _coded(rng)
    survivors = _heard(rng, code)
    messages = [job.messages[m].copy() for m in survivors]
    if rng.random() < 0.5:
        messages = np.array(messages)
    return Call(
        code.decode,
        {
            "survivors": survivors,
            "messages": messages,
            "out": np.zeros(job.p),
            "p": job.p,
            "method": "auto",
            "partial": [None, "best", "unbiased"][rng.integers(3)],
            "check_finite": True,
        },
    )


def _bind(rng):
    code, job = _coded(rng)
    messages = np.array(job.messages)
    return code, {"messages": messages, "out": np.zeros(job.p), "p": job.p, "check_finite": True}


def _bound_call(rng):
    code, arguments = _bind(rng)
    bound = code.bind(**arguments)
    arguments = {"survivors": _heard(rng, code), "method": "auto"}
    return Call(bound, arguments, state=lambda: bound.gradient)


def _encoder(rng):
    function, arguments = _encode(rng, streaming=True)
    code = function.__self__
    parts = code.partitions(arguments["worker"], arguments["index"])
    partials = [_job(SMALL.index(code)).partials[j].copy() for j in parts]
    return function(**arguments), parts, partials


def _add(rng):
    encoder, parts, partials = _encoder(rng)
    arguments = {"partition": int(parts[0]), "g": partials[0]}
    return Call(encoder.add, arguments, state=lambda: encoder._out)


def _round(rng, full=True, least=1):
    code, job = _coded(rng, least=least)
    numbers = _heard(rng, code)
    rnd = code.round(job.p)
    if least == 1 and rng.integers(2):
        with contextlib.suppress(ValueError):  # the code has no message to spare
            rnd = code.round(job.p, verify=True)
            numbers = rng.permutation(code.scheme.messages.count)
    for m in numbers if full else numbers[1:]:
        worker, index = code.scheme.messages.sender(m)
        rnd.receive(worker, job.messages[m], index)
    return rnd, job, int(numbers[0])


def _receive(rng):
    rnd, job, number = _round(rng, full=False)
    worker, index = rnd.code.scheme.messages.sender(number)
    message = job.messages[number].copy()
    return Call(
        rnd.receive,
        {"worker": worker, "message": message, "index": index},
        state=lambda: rnd.survivors,
    )


def _grouped(rng, part=True):
    code, job = _coded(rng, fastgc.Grouped)
    rnd = code.group_round(job.p)
    rnd.reset(range(code.groups))
    numbers = rng.permutation(code.scheme.messages.count)
    for m in numbers[1:] if part else numbers:
        worker, index = code.scheme.messages.sender(m)
        rnd.receive(worker, job.messages[m][: rnd.form.message_size], index)
    return code, job, rnd, int(numbers[0])


def _group_receive(rng):
    code, job, rnd, number = _grouped(rng)
    worker, index = code.scheme.messages.sender(number)
    arguments = {"worker": worker, "message": job.messages[number].copy(), "index": index}
    return Call(rnd.receive, arguments, state=lambda: rnd.survivors)


def _distribution(rng):
    return [
        delays.Pareto(1.0, 2.5),
        delays.ShiftedExponential(0.5, 2.0),
        delays.Exponential(1.5),
        delays.Empirical([0.5, 1.0, 4.0]),
        delays.Mixture([delays.Exponential(1.0), delays.Pareto(1.0, 3.0)], [0.25, 0.75]),
    ][rng.integers(5)]


def _of_distribution(name, argument, value):
    def make(rng):
        return Call(getattr(_distribution(rng), name), {argument: np.array(value)})

    return make


def _of_kind(kind, name, **arguments):
    models_ = {
        "Pareto": delays.Pareto(1.0, 2.5),
        "ShiftedExponential": delays.ShiftedExponential(0.5, 2.0),
        "Exponential": delays.Exponential(1.5),
        "Empirical": delays.Empirical([0.5, 1.0, 4.0]),
        "Mixture": delays.Mixture([delays.Exponential(1.0), delays.Pareto(1.0, 3.0)], [0.25, 0.75]),
        "Heterogeneous": delays.Heterogeneous([delays.Exponential(1.0), delays.Exponential(2.0)]),
    }
    return _plain(getattr(models_[kind], name), **arguments)


def _plain(function, **arguments):
    """Return a target whose right call is always the same."""
    return lambda rng: Call(function, _fresh(arguments))


def _samples(rng, outputs=0):
    X = rng.standard_normal((12, FEATURES))
    y = rng.standard_normal((12, outputs)) if outputs else np.arange(12) % 3
    return X, y


def _model(kind, name, prepared=False):
    def make(rng):
        model = kind(FEATURES, 3, l2=0.1)
        X, y = _samples(rng, 3 if kind is models.LinearRegression else 0)
        theta = rng.standard_normal(model.size)
        have = {"theta": theta, "X": X, "y": y, "out": np.zeros(model.size), "gradient": theta + 1}
        have["shard"] = tuple(models.prepared(model, X, y))
        function = getattr(model, name)
        arguments = {key: have[key] for key in inspect.signature(function).parameters}
        return Call(function, arguments, ("out", "gradient"))

    return make


def _dataset(rng):
    X, y = _samples(rng)
    return {"name": "some", "X_train": X, "y_train": y, "X_test": X[:3], "y_test": y[:3]}


def _optimizer(kind, **numbers):
    def make(rng):
        optimizer = kind(**numbers)
        optimizer.reset(rng.standard_normal(5))
        return optimizer

    return make


def _reset(make_optimizer):
    def make(rng):
        optimizer = make_optimizer(rng)
        return Call(optimizer.reset, {"theta0": np.ones(4)}, state=lambda: optimizer.theta)

    return make


def _step(rng):
    kinds = [(optimizers.SGD, {"lr": 0.1, "momentum": 0.5}), (optimizers.AMSGrad, {})]
    kind, numbers = [*kinds, (optimizers.Nesterov, {"lr": 0.1})][rng.integers(3)]
    optimizer = _optimizer(kind, **numbers)(rng)
    return Call(optimizer.step, {"gradient": rng.standard_normal(5)}, state=lambda: optimizer.theta)


def _gcada(rng):
    optimizer = _optimizer(optimizers.GCADA, groups=3, optimizer=optimizers.SGD(0.1))(rng)
    for group in range(2):
        optimizer.receive(group, rng.standard_normal(5))
    return optimizer


def _gcada_receive(rng):
    optimizer = _gcada(rng)
    arguments = {"group": 2, "gradient": rng.standard_normal(5)}
    return Call(optimizer.receive, arguments, state=lambda: optimizer.theta)


def _gcada_full(name, argument, value):
    def make(rng):
        optimizer = _gcada(rng)
        optimizer.receive(2, np.ones(5))
        return Call(
            getattr(optimizer, name), {argument: value.copy()}, state=lambda: optimizer.theta
        )

    return make


def _combine(rng):
    code, job = _coded(rng)
    survivors = _heard(rng, code)
    return Call(
        code.combine,
        {
            "vector": np.ones_like(code.best_vector(survivors)[0]),
            "survivors": survivors,
            "messages": [job.messages[m].copy() for m in survivors],
            "out": np.zeros(job.p),
            "p": job.p,
            "check_finite": True,
        },
    )


def _of_code(name, kind=None, least=1, **arguments):
    """Return a target: a method of any code or scheme, with arguments that all codes take."""
    return lambda rng: Call(_method(_coded(rng, kind, least)[0], name), _fresh(arguments))


def _method(code, name):
    return getattr(code if hasattr(code, name) else code.scheme, name)


def _sequential():
    return sequential.MSGC(4, burst=1, window=2, stragglers=1)


def _of_schedule(name, begun=True, **arguments):
    """Return a target: a method of a sequential scheme's run, after its first round."""

    def make(rng):
        schedule = sequential.Schedule(_sequential())
        schedule.begin()
        schedule.end([0, 1, 2])
        if begun:
            schedule.begin()
        return Call(
            getattr(schedule, name), _fresh(arguments), state=lambda: schedule._state.copy()
        )

    return make


def _of_survivors(name, **more):
    def make(rng):
        code, _ = _coded(rng)
        return Call(_method(code, name), {"survivors": _heard(rng, code), **_fresh(more)})

    return make


def _with_code(function, **more):
    def make(rng):
        code, _ = _coded(rng)
        survivors = _heard(rng, code)
        return Call(partial(function, code), {"survivors": survivors, **_fresh(more)})

    return make


def _decoding_vector(rng):
    code, _ = _coded(rng)
    survivors = _heard(rng, code)
    out = np.zeros(survivors.size, complex if code.scheme.is_complex else float)
    return Call(code.decoding_vector, {"survivors": survivors, "method": "auto", "out": out})


def _decoding_vectors(rng):
    code, _ = _coded(rng)
    masks = rng.random((3, code.scheme.messages.count)) < 0.9
    masks[0] = True
    return Call(code.decoding_vectors, {"masks": masks, "method": "auto", "undecodable": "nan"})


def _decoder(rng):
    return _coded(rng)[0].decoder()


def _fill(rng):
    decoder = _decoder(rng)
    decoder.survivors[:] = rng.permutation(decoder.survivors.size)
    return Call(decoder.fill, {"f": decoder.survivors.size, "method": "auto"})


def _encode_data():
    def make(rng):
        code, _ = _coded(rng, [fastgc.BinaryCode, fastgc.LagrangeCode][rng.integers(2)])
        X = rng.standard_normal((2 * code.k, FEATURES))
        return Call(code.encode_data, {"X": X, "y": X[:, :OUTPUTS].copy()})

    return make


def _compute(rng):
    code, _ = _coded(rng, fastgc.LagrangeCode)
    X = rng.standard_normal((2 * code.k, FEATURES))
    shard = code.encode_data(X, X[:, 0].copy())[0]
    out = np.zeros(FEATURES, code.scheme.format(1, np.float64).partial_dtype)
    return Call(code.compute, {"shard": shard, "theta": np.ones(FEATURES), "out": out})


def _tracked(rng):
    code, job = _coded(rng, fastgc.BinaryCode)
    tracker = stability.StabilityTracker(limit=1e-3)
    survivors = _heard(rng, code)
    messages = [job.messages[m] for m in survivors]
    code.decode(survivors, messages, tracker=tracker)
    return tracker, code, job, survivors


def _measure(rng):
    tracker, _, job, _ = _tracked(rng)
    arguments = {"gradient": np.asarray(job.gradient, float), "partials": np.array(job.partials)}
    return Call(tracker.measure, arguments)


def _solve(rng):
    nodes = np.arange(1.0, 6.0) + (1j * (rng.random() < 0.5) or 0.0)
    nodes = nodes if nodes.imag.any() else nodes.real.copy()
    b = rng.standard_normal((5, 2)).astype(nodes.dtype)
    return Call(
        vandermonde.solve,
        {
            "nodes": nodes,
            "b": b,
            "transpose": bool(rng.random() < 0.5),
            "order": ["auto", "leja", "given", np.arange(5)[::-1].copy()][rng.integers(4)],
            "refine": int(rng.integers(3)),
            "return_bound": bool(rng.random() < 0.5),
            "out": np.zeros_like(b),
        },
    )


PARETO, LATE = delays.Pareto(1.0, 2.5), delays.ShiftedExponential(0.5, 2.0)
OUTAGES = delays.Outages(delays.Pareto(1.0, 2.0), ["a", "a", "b"], 0.5, 60.0)
MIXED = delays.Heterogeneous([delays.ShiftedExponential(0.5, 1.0 + i) for i in range(12)])
PAIR = delays.Heterogeneous([delays.ShiftedExponential(0.5, 1.0 + i) for i in range(2)])
LINE = np.linspace(-1.0, 1.0, 5)

NEEDS_BACKEND: dict[str, Callable[[np.random.Generator], Call]] = {
    "Code.encode": lambda rng: Call(*_encode(rng)),
    "Code.encoder": lambda rng: Call(*_encode(rng, streaming=True)),
    "Code.bind_encoder": _bind_encoder,
    "Code.decode": _decode,
    "Code.bind": lambda rng: (lambda code, given: Call(code.bind, given))(*_bind(rng)),
    "Code.decodable": _of_survivors("decodable"),
    "Code.decoding_vector": _decoding_vector,
    "Code.decoding_vectors": _decoding_vectors,
    "Code.best_vector": _of_survivors("best_vector", partial="best"),
    "Code.residuals": _of_code("residuals", least=3, workers=3, sets=5, seed=0),
    "Code.trust": _of_survivors("trust", dtype="float32", message_dtype=None),
    "Code.round": _of_code("round", p=5, dtype="float64", message_dtype=None),
    "Code.decoder": _of_code("decoder"),
    "BoundDecoder.__call__": _bound_call,
    "Decoder.__call__": lambda rng: (
        lambda d: Call(d, {"survivors": rng.permutation(d.survivors.size), "method": "auto"})
    )(_decoder(rng)),
    "Decoder.fill": _fill,
    "Encoder.add": _add,
    "Round.receive": _receive,
    "Round.gradient": lambda rng: Call(
        _round(rng)[0].gradient, {"out": np.zeros(FEATURES * OUTPUTS), "method": "auto"}
    ),
    "Round.best": lambda rng: Call(
        _round(rng, full=False, least=2)[0].best, {"out": np.zeros(FEATURES * OUTPUTS)}
    ),
    "Round.require": lambda rng: (lambda rnd: Call(rnd.require, {"messages": rnd.survivors}))(
        _round(rng)[0]
    ),
    "Grouped.group_round": _of_code(
        "group_round", fastgc.Grouped, p=5, dtype="float64", message_dtype=None
    ),
    "GroupedRound.receive": _group_receive,
    "GroupedRound.gradient": lambda rng: Call(
        _grouped(rng, part=False)[2].gradient, {"group": 0, "out": np.zeros(FEATURES * OUTPUTS)}
    ),
    "GroupedRound.of": lambda rng: Call(_grouped(rng)[2].of, {"group": 0}),
    "GroupedRound.reset": lambda rng: Call(_grouped(rng)[2].reset, {"groups": [0, 1]}),
    "GroupedRound.wants": lambda rng: Call(_grouped(rng)[2].wants, {"worker": 0}),
    "GroupedRound.require": lambda rng: (
        lambda rnd: Call(rnd.require, {"messages": rnd.survivors})
    )(_grouped(rng, part=False)[2]),
    "LagrangeCode.compute": _compute,
    "GCADA.receive": _gcada_receive,
    "GCADA.gradient": _gcada_full("gradient", "out", np.zeros(5)),
    "GCADA.step": _gcada_full("step", "gradient", np.ones(5)),
    "GCADA.reset": _reset(_gcada),
    "SGD.reset": _reset(_optimizer(optimizers.SGD, lr=0.1)),
    "AMSGrad.reset": _reset(_optimizer(optimizers.AMSGrad)),
    "Nesterov.reset": _reset(_optimizer(optimizers.Nesterov, lr=0.1)),
    "_Descent.step": _step,
    "StabilityTracker.measure": _measure,
    "vandermonde.solve": _solve,
    "vandermonde.leja_order": _plain(vandermonde.leja_order, nodes=LINE),
    "vandermonde.roots_order": _plain(
        vandermonde.roots_order, n=8, exponents=np.array([0, 5, 2, 7])
    ),
    "interpolation.basis": _plain(
        interpolation.basis, nodes=LINE, points=LINE[:3] / 3, out=np.zeros((3, 5))
    ),
    "Functionals": _plain(interpolation.Functionals, nodes=LINE, points=LINE / 3),
    "Functionals.__call__": _plain(interpolation.Functionals(LINE, LINE / 3), chosen=[3, 0, 1]),
    "Functionals.bind": _plain(
        interpolation.Functionals(LINE, LINE / 3).bind, chosen=np.array([3, 0, 1]), out=np.zeros(3)
    ),
    "Interpolator": _plain(interpolation.Interpolator, nodes=LINE),
    "Interpolator.__call__": _plain(
        interpolation.Interpolator(LINE), values=LINE**2, points=LINE[:3] / 3, out=np.zeros(3)
    ),
    "Interpolator.derivative": _plain(
        interpolation.Interpolator(LINE).derivative, values=LINE**2, points=LINE[:3] / 3, der=1
    ),
    "Interpolator.at": _plain(interpolation.Interpolator(LINE).at, points=LINE[:3] / 3),
    "Evaluator.__call__": _plain(
        interpolation.Interpolator(LINE).at(LINE[:3] / 3), values=LINE**2, out=np.zeros(3)
    ),
    "interpolation.functional": _plain(
        interpolation.functional, nodes=LINE, points=LINE / 3, out=np.zeros(5)
    ),
    "interpolation.weights": _plain(interpolation.weights, nodes=LINE, out=np.zeros(5)),
    "Code.table": _of_code("table", least=2, workers=[0, 1], digits=3),
    "simulation.follow": _plain(
        partial(simulation.follow, fastgc.BinaryCode(5, stragglers=1), LATE),
        cost=np.full(5, 0.1),
        receive=0.01,
        overhead=0.1,
        rounds=3,
        seed=0,
        interrupted=True,
    ),
    "simulation.simulate": _plain(
        partial(simulation.simulate, fastgc.BinaryCode(5, stragglers=1), LATE),
        cost=np.full(5, 0.1),
        receive=0.01,
        overhead=0.1,
        rounds=20,
        seed=0,
        interrupted=True,
        method="auto",
        request=0.0,
    ),
    "sequential.simulate_sequential": _plain(
        partial(sequential.simulate_sequential, scheme=_sequential()),
        times=np.full((4, 4), 2.0),
        mu=1.0,
        load_slope=np.full(4, 0.1),
        at_load=1.0,
        interrupted=True,
    ),
    "sequential.compare": _plain(
        partial(sequential.compare, names=["m-sgc", "uncoded"], models=2),
        times=np.full((8, 4), 2.0),
        mu=1.0,
        load_slope=np.full(4, 0.1),
        at_load=1.0,
        interrupted=True,
        probe=4,
        seed=0,
    ),
    "sequential.make": _plain(sequential.make, text="binary", n=4, stragglers=1, seed=0),
    "MSGC": _plain(sequential.MSGC, n=6, burst=1, window=2, stragglers=2, code=None),
    "SRSGC": _plain(sequential.SRSGC, n=6, burst=1, window=2, stragglers=3, code=None),
    "Independent": _plain(sequential.Independent, code=fastgc.BinaryCode(5, stragglers=1)),
    "SequentialScheme.partitions": _plain(_sequential().partitions, part=1),
    "Schedule": _plain(sequential.Schedule, scheme=_sequential()),
    "Schedule.begin": _of_schedule("begin", begun=False, job=True),
    "Schedule.enough": _of_schedule("enough", came=np.array([0, 1, 3])),
    "Schedule.end": _of_schedule("end", came=np.array([True, True, False, True])),
    "stability.amplification": _with_code(stability.amplification),
    "stability.error_bound": _with_code(
        stability.error_bound, dtype="float64", streaming=False, terms=0
    ),
    "stability.measured_error": _with_code(
        stability.measured_error, dtype="float64", p=8, seed=0, method="auto"
    ),
}

REST: dict[str, Callable[[np.random.Generator], Call]] = {
    "BinaryCode": _plain(
        fastgc.BinaryCode,
        n=7,
        k=9,
        stragglers=2,
        speeds=[1.0, 2, 3, 1, 1, 5, 2],
        assignment="aligned",
    ),
    "CouponCollector": _plain(
        fastgc.CouponCollector, n=8, k=8, load=3, loads=None, send="each", seed=2
    ),
    "CyclicRepetition": _plain(
        fastgc.CyclicRepetition, n=6, k=8, stragglers=3, seed=1, strict=False
    ),
    "FractionalRepetition": _plain(fastgc.FractionalRepetition, n=6, k=7, stragglers=1),
    "GraphCode": _plain(fastgc.GraphCode, n=12, k=12, degree=4, wait=9, seed=1),
    "Grouped": _plain(
        fastgc.Grouped,
        codes=[fastgc.BinaryCode(4, stragglers=1), fastgc.BinaryCode(3, stragglers=1)],
    ),
    "LagrangeCode": _plain(
        fastgc.LagrangeCode,
        n=4,
        k=4,
        load=2,
        messages=1,
        nodes=([0, 1], [2, 3, -1, -2]),
        strict=False,
    ),
    "LinearCode": _plain(
        fastgc.LinearCode, B=np.vander(LINE, 3), stragglers=1, packed=True, strict=False
    ),
    "PartialWork": _plain(
        fastgc.PartialWork,
        n=3,
        k=4,
        load=None,
        assignment=[[0, 1, 3], [2, 1], [3, 2, 0]],
        ordered=True,
    ),
    "Reactive": _plain(fastgc.Reactive, n=4, k=6, holders=3, deadline=0.5),
    "RandomAssignment": _plain(
        fastgc.RandomAssignment, n=3, k=5, load=[3, 4, 1], send="together", seed=4
    ),
    "ReedSolomon": _plain(
        fastgc.ReedSolomon,
        n=6,
        k=8,
        stragglers=1,
        load=None,
        root="stable",
        packed=True,
        clusters=1,
        speeds=[1.0, 2, 3, 1, 1, 5],
        strict=False,
    ),
    "Uncoded": _plain(fastgc.Uncoded, n=4, k=8, load=2, tolerance=0.25, rescale=True),
    "Grouped.repetition": _plain(fastgc.Grouped.repetition, n=6, groups=2, k=6),
    "Grouped.members": _of_code("members", fastgc.Grouped, group=1),
    "Grouped.partitions_of": _of_code("partitions_of", fastgc.Grouped, group=1),
    "Grouped.group_of": _of_code("group_of", fastgc.Grouped, worker=1),
    "engines.placement": _plain(
        fastgc.engines.placement, code=fastgc.BinaryCode(4, stragglers=1), domains=[0, 1, 0, 1]
    ),
    "Scheme.check_survivors": _of_survivors("check_survivors"),
    "Code.residual": _of_survivors("residual"),
    "Scheme.format": _of_code("format", p=5, dtype="float64", message_dtype=None),
    "Code.combine": _combine,
    "codes.make": lambda rng: Call(
        codes.make, {"text": "rs:root=1", "n": 6, "k": 7, "stragglers": 2, "seed": 0}
    ),
    "Code.partitions": _of_code("partitions", worker=0, index=0),
    "Code.coefficients": _of_code("coefficients", worker=0, index=0),
    "Code.encode_data": _encode_data(),
    "Code.message_size": _of_code("message_size", p=5, dtype="float64"),
    "Code.recovery": _of_code("recovery", trials=3, seed=0),
    "Dataset": lambda rng: Call(data.Dataset, _dataset(rng)),
    "MiniBatches": _plain(data.MiniBatches, size=3, seed=1),
    "MiniBatches.__call__": _plain(
        partial(data.MiniBatches(2), (LINE[:, None] * LINE, LINE)), partition=3, round=4
    ),
    "data.load": _plain(data.load, source="nowhere.npz", test_fraction=0.2, seed=0, task="auto"),
    "data.read_idx": _plain(data.read_idx, path="nowhere"),
    "data.partition": _plain(data.partition, X=np.ones((7, 2)), y=np.arange(7), k=3),
    "Exponential": _plain(delays.Exponential, mean=2.0, per="round"),
    "Pareto": _plain(delays.Pareto, scale=1.0, shape=2.0, per="round"),
    "ShiftedExponential": _plain(delays.ShiftedExponential, shift=1.0, rate=2.0, per="round"),
    "Empirical": _plain(delays.Empirical, samples=np.ones((3, 2)), per="round"),
    "Heterogeneous": _plain(delays.Heterogeneous, models=[PARETO, PARETO]),
    "Mixture": _plain(delays.Mixture, models=[PARETO, PARETO], weights=[0.25, 0.75]),
    "Outages": _plain(
        delays.Outages, model=None, domains=["a", "a", "b"], probability=0.5, seconds=60.0
    ),
    "Outages.sample": _plain(OUTAGES.sample, round=3, workers=3, seed=1),
    "Outages.dealt": _plain(OUTAGES.dealt, order=[2, 0, 1]),
    "Outages.draw": lambda rng: Call(
        partial(OUTAGES.draw, np.random.default_rng(0)), {"rounds": 3, "workers": 3}
    ),
    "Outages.tail_indices": _plain(OUTAGES.tail_indices, workers=3),
    "Delays.sample": lambda rng: Call(
        _distribution(rng).sample, {"round": 3, "workers": 4, "seed": 1}
    ),
    "Delays.draw": lambda rng: Call(
        partial(_distribution(rng).draw, np.random.default_rng(0)), {"rounds": 3, "workers": 4}
    ),
    "Delays.order_statistic_mean": lambda rng: Call(
        _distribution(rng).order_statistic_mean, {"f": 2, "n": 4}
    ),
    "_Continuous.cdf": _of_distribution("cdf", "t", [0.5, 1.0]),
    "_Continuous.survival": _of_distribution("survival", "t", [0.5, 1.0]),
    "_Continuous.quantile": _of_distribution("quantile", "q", [0.25, 0.5]),
    **{
        f"{kind}.{name}": _of_kind(kind, name, **{argument: np.array([0.25, 0.75])})
        for kind in ("Empirical", "Mixture")
        for name, argument in (("cdf", "t"), ("survival", "t"), ("quantile", "q"))
    },
    **{
        f"{kind}.tail_indices": _of_kind(kind, "tail_indices", workers=2)
        for kind in ("Pareto", "Empirical", "Mixture", "Heterogeneous")
    },
    "_Continuous.tail_indices": _of_kind("ShiftedExponential", "tail_indices", workers=2),
    "delays.fit": _plain(
        delays.fit,
        times=np.array([1.0, 1.5, 2.25, 4.0, 1.25]),
        kinds=("pareto", "exponential"),
        loads=None,
        draws=3,
        seed=0,
    ),
    "delays.parse": _plain(delays.parse, text="pareto:scale=1,shape=2.5"),
    "interpolation.chebyshev": _plain(interpolation.chebyshev, m=5),
    "interpolation.roots_of_unity": _plain(interpolation.roots_of_unity, m=5, offset=0.5),
    **{
        f"SoftmaxRegression.{name}": _model(models.SoftmaxRegression, name)
        for name in ("learning_rate", "smoothness")
    },
    **{
        f"LinearRegression.{name}": _model(models.LinearRegression, name)
        for name in ("error", "predict")
    },
    "_Quadratic.loss": _model(models.LeastSquares, "loss"),
    "_Quadratic.prepare": _model(models.LinearRegression, "prepare"),
    "_Quadratic.gradient": _model(models.LinearRegression, "gradient"),
    "_Quadratic.partial_gradient": _model(models.LinearRegression, "partial_gradient"),
    "_Quadratic.optimum": _model(models.LinearRegression, "optimum"),
    **{
        f"_Linear.{name}": _model(models.LeastSquares, name)
        for name in ("add_regularisation", "learning_rate", "smoothness")
    },
    **{
        f"_Classifier.{name}": _model(models.SoftmaxRegression, name)
        for name in ("error", "predict")
    },
    **{
        f"_CrossEntropy.{name}": _model(models.MLP, name)
        for name in ("gradient", "loss", "partial_gradient", "probabilities")
    },
    "MLP": _plain(models.MLP, features=3, classes=2, hidden=[4, 5], activation="relu", l2=0.5),
    "MLP.add_regularisation": _model(models.MLP, "add_regularisation"),
    "MLP.initial": _plain(models.MLP(3, 2).initial, rng=7),
    "MLP.layers": _model(models.MLP, "layers"),
    "MLP.learning_rate": _model(models.MLP, "learning_rate"),
    "LeastSquares": _plain(models.LeastSquares, features=3, classes=2, l2=0.5, bias=True),
    "LinearRegression": _plain(models.LinearRegression, features=3, outputs=2, l2=0.5, bias=True),
    "SoftmaxRegression": _plain(models.SoftmaxRegression, features=3, classes=2, l2=0.5, bias=True),
    "models.least_squares_gradient": lambda rng: (
        lambda X, y: Call(
            models.least_squares_gradient,
            {"theta": np.ones(2 * FEATURES), "X": X, "y": y, "out": np.zeros(2 * FEATURES)},
        )
    )(*_samples(rng, 2)),
    "CADA": _plain(optimizers.CADA, workers=3, c=0.3, max_age=4, smoothness=None, relative=True),
    "GCADA": _plain(
        optimizers.GCADA, groups=3, c=0.3, max_age=4, smoothness=[1.0, 2, 3], relative=True
    ),
    "SGD": _plain(optimizers.SGD, lr=0.1, momentum=0.5),
    "Nesterov": _plain(optimizers.Nesterov, lr=0.1, momentum=0.5),
    "AMSGrad": _plain(optimizers.AMSGrad, lr=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8),
    "DecodeCost": _plain(planning.DecodeCost, seconds=1e-6, order="f2"),
    "DecodeCost.__call__": _plain(planning.DecodeCost(1e-6), f=3, n=5),
    "DecodeCost.limit": _plain(planning.DecodeCost(1e-6).limit, alpha=0.5, n=5),
    "Recording": _plain(
        planning.Recording, times=np.ones((3, 2)), cost=0.25, source="x", per="round"
    ),
    "Recording.read": _plain(
        planning.Recording.read, path="nowhere.json", cost=0.1, unit="ms", per="round"
    ),
    "Empirical.read": _plain(delays.Empirical.read, path="nowhere.csv", unit="ms", per="round"),
    "planning.equal_time_loads": _plain(
        planning.equal_time_loads, times=[1.0, 2.0, 3.0], k=7, stragglers=1
    ),
    "planning.coverage_bounds": _plain(partial(planning.coverage_bounds, delays=MIXED), k=6),
    "planning.generalised_bcc": _plain(
        partial(planning.generalised_bcc, delays=MIXED), k=6, needed=None, limit=None
    ),
    "planning.least_time_loads": _plain(
        partial(planning.least_time_loads, delays=PAIR), needed=3, limit=None
    ),
    "planning.optimal_loads": _plain(
        planning.optimal_loads, needed=5, shifts=[0.5, 1.0], rates=[1.0, 2.0], limit=None
    ),
    "planning.limit_time": _plain(
        partial(planning.limit_time, delays=PARETO), alpha=0.5, work=1.0, n=0
    ),
    "planning.code_parameters": _plain(planning.code_parameters, alpha=0.5, n=6, k=9),
    "planning.optimal_fraction": _plain(
        partial(planning.optimal_fraction, PARETO), work=1.0, n=6, max_load=4, k=9
    ),
    "planning.optimal_threshold": _plain(
        partial(planning.optimal_threshold, delays=PARETO), n=6, cost=0.1, k=6, max_load=4
    ),
    "planning.round_time": _plain(
        partial(planning.round_time, delays=PARETO), f=4, n=6, cost=0.1, k=6
    ),
    "planning.plan": _plain(
        partial(planning.plan, delays=LATE),
        speeds=None,
        n=4,
        cost=0.1,
        k=4,
        p=10,
        bandwidth=1e6,
        memory=None,
        codes=("binary", "uncoded"),
        overhead=0.0,
        rounds=3,
        seed=0,
        interrupted=True,
    ),
    **{
        f"Simulation.{name}": _plain(
            getattr(simulation.Simulation(LINE + 2, *[np.ones(5, int)] * 3), name), **arguments
        )
        for name, arguments in (("cdf", {"t": LINE + 2}), ("quantile", {"q": [0.0, 0.5]}))
    },
    "simulation.adaptive_loads": _plain(simulation.adaptive_loads, selected=3.0, size=2, batch=5),
    "simulation.completions_pmf": _plain(
        partial(simulation.completions_pmf, delays=LATE), t=LINE + 2, load=3, batch=1, cost=0.1
    ),
    "simulation.coupon_tail_bound": _plain(simulation.coupon_tail_bound, k=6, excess=0.5),
    "simulation.coverage_probability": _plain(
        simulation.coverage_probability, loads=[2, 3, 1, 4], k=6
    ),
    "simulation.coupon_mean": _plain(simulation.coupon_mean, k=6, load=2, n=12),
    **{
        f"simulation.{name}": _plain(
            partial(getattr(simulation, name), delays=LATE),
            **{"n": 3, "load": 3, "k": 6, "needed": 5, "batch": 1, "cost": 0.1} | more,
        )
        for name, more in (
            ("covered_cdf", {"t": LINE + 2}),
            ("covered_mean", {}),
            ("covered_messages", {}),
        )
    },
    "simulation.fastest_of_groups_mean": _plain(
        partial(simulation.fastest_of_groups_mean, delays=LATE), groups=3, size=2
    ),
    **{
        f"simulation.{name}": _plain(getattr(simulation, name), k=6, load=2)
        for name in ("coupon_threshold", "least_threshold", "mds_threshold", "random_threshold")
        if hasattr(simulation, name)
    },
    "simulation.random_communication_load": _plain(simulation.random_communication_load, k=6),
    "simulation.received_cdf": _plain(
        partial(simulation.received_cdf, delays=LATE), t=LINE + 2, loads=[1, 2], needed=2, cost=0.1
    ),
    "simulation.received_mean": _plain(
        partial(simulation.received_mean, delays=LATE), loads=[1, 2], needed=2, cost=0.1
    ),
    "simulation.selected_mean": _plain(
        simulation.selected_mean, smoothness=[1.0, 2.0], c=0.3, max_age=4, scale=None
    ),
    "simulation.threshold_cdf": _plain(
        partial(simulation.threshold_cdf, delays=LATE),
        t=LINE + 2,
        n=4,
        threshold=3,
        load=2,
        cost=0.1,
    ),
    "simulation.threshold_mean": _plain(
        partial(simulation.threshold_mean, delays=LATE), n=4, threshold=3, load=2, cost=0.1
    ),
    "simulation.total_cdf": _plain(
        partial(simulation.total_cdf, delays=LATE),
        t=LINE + 2,
        n=3,
        load=2,
        threshold=4,
        batch=1,
        cost=0.1,
    ),
    "simulation.total_mean": _plain(
        partial(simulation.total_mean, delays=LATE), n=3, load=2, threshold=4, batch=1, cost=0.1
    ),
    "StabilityTracker": _plain(
        stability.StabilityTracker, limit=1e-3, action="warn", measure_every=2
    ),
    "stability.matched": _plain(
        partial(stability.matched, lambda s: fastgc.BinaryCode(5, stragglers=s)),
        reference=fastgc.BinaryCode(5, stragglers=1),
        stragglers=1,
    ),
    "stability.compare": _plain(
        partial(stability.compare, {"b": fastgc.BinaryCode(5, stragglers=1)}),
        stragglers=1,
        patterns=("random",),
        dtypes=("float64",),
        sets=2,
        p=4,
        seed=0,
    ),
    "stability.circle_values": _plain(
        partial(stability.circle_values, fastgc.ReedSolomon(6, stragglers=2)),
        stragglers=[1, 4],
        dtype="float64",
    ),
    "stability.worst_stragglers": _plain(
        partial(stability.worst_stragglers, fastgc.ReedSolomon(6, stragglers=2)),
        stragglers=2,
        method="auto",
        dtype="float64",
        trials=3,
        seed=0,
    ),
}
TARGETS = NEEDS_BACKEND | REST

# By reason: names that are not fuzzed.
REASONS = {
    "as of Round": "GroupedRound.lapse",
    "takes a text, to show it": "Round.lapse",
    "made by Code.bind": "BoundDecoder",
    "made by Code.bind_encoder": "BoundEncoder",
    "made by Code.decoder": "Decoder",
    "made by Interpolator.at": "Evaluator",
    "made by Code.encoder": "Encoder",
    "takes a scheme: tests/coding/test_scheme.py": "Code",
    "made by Code.round": "Round",
    "made by Grouped.group_round": "GroupedRound",
    "made by planning.plan": "Choice",
    "made by simulation.simulate": "Simulation",
    "starts worker processes, or what an engine does": "SequentialCluster",
    "of worker processes: tests/sequential": "SequentialCluster.step",
    "starts workers; checks: tests/sequential": "sequential.train_models",
    "made by sequential.simulate_sequential": "SequentialRun",
    "made by sequential.compare": "Compared",
    "abstract": "SequentialScheme Distribution.tail_indices",
    "for schemes, which know their parts": "SequentialScheme.lacks",
    "for schemes, which raise by it": "Scheme.raise_too_few",
    "for schemes, which give it themselves": "Precision",
    "for schemes, whose rules it completes": "Scheme.waiting",
    "made by Code.round: tests/coding/test_verify.py": "VerifiedRound",
    "as Round, and tests/coding/test_reactive.py": "ReactiveRound",
    "as Round.receive": "ReactiveRound.receive",
    "for the whole process: tests/codes, tests/_base": "codes.register",
    "takes a function: tests/delays": "delays.register",
    "made by fastgc.train": "History Record",
    "of histories, which fastgc.train makes: tests/training": (
        "History.loss_at history.round_rows History.seconds_to History.spent "
        "history.equal_error history.equal_loss"
    ),
    "of files, damaged or not: tests/training": "history.read_json",
    "writes a file": "history.write_json StabilityTracker.write_jsonl stability.write_jsonl",
    "takes a function": "StabilityTracker.enough kernels.threads.attach",
    "for rounds and decoders, which have checked what they give": "StabilityTracker.record",
    "for what a checkpoint holds: tests/training": "_Descent.restore GCADA.restore",
    "a number, for the whole process: tests/kernels/test_pool.py": "kernels.threads.set_spin",
    "of files, damaged in every way: tests/training": (
        "Checkpoint Checkpoint.add Checkpoint.save checkpoint.write checkpoint.read"
    ),
    "for train, which has checked what it gives": "checkpoint.digest checkpoint.describe",
    "starts worker processes": "fastgc.train",
    "an integer, for the whole process: tests/kernels/test_pool.py": (
        "kernels.threads.set_num_threads"
    ),
    "for sequential.compare, which checks": "_BurstyScheme.choices SequentialScheme.choices",
    "for Schedule, which checks": (
        "SequentialScheme.tasks SequentialScheme.tolerable Independent.tasks "
        "Independent.tolerable MSGC.tasks MSGC.tolerable SRSGC.tasks SRSGC.tolerable"
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
    """Return the names of public functions and constructors, and of methods by their class.

    What takes no argument, or is abstract, cannot be called wrongly.
    """
    assert set(MODULES_LEFT_OUT) <= set(fastgc._MODULES)
    names = {"fastgc.train", "engines.placement"}
    for path in (
        *(name for name in fastgc._MODULES if name not in MODULES_LEFT_OUT),
        "kernels.threads",
    ):
        module = pkgutil.resolve_name(f"fastgc:{path}")
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isclass(thing):
                takes = callable(thing) and inspect.signature(thing).parameters
                names |= {f"{path}.{name}"} if takes else set()
            elif not issubclass(thing, BaseException) and not getattr(thing, "_is_protocol", False):
                names |= _of_class(name, thing)
    return names


def _of_class(name, kind):
    record = hasattr(kind, "_fields")  # a named tuple that functions return
    names = set() if record or inspect.isabstract(kind) else {name}
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
            names.add(f"{owner.__name__}.{method}")
    return names


def test_all_that_is_public_is_fuzzed_or_has_a_reason():
    assert not TARGETS.keys() & LEFT_OUT
    assert surface() == TARGETS.keys() | LEFT_OUT


# ------------------------------------------------------------------------------------- mutations

DTYPES = [
    *("?", "i1", "u8", "e", "f", "d", "g", "F", "D", "G", "O", "S3", "U3", "M8[s]", "m8[s]"),
    *(">f8", ">i8", ml_dtypes.bfloat16, [("a", "f8"), ("b", "i4")]),
]
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 5e-324, -1.0, 0.5, 1e308, 2.0**63, 1e-320]
STRANGE = [
    None,
    True,
    "x",
    "",
    b"x",
    1 + 1j,
    float("nan"),
    float("inf"),
    -0.0,
    5e-324,
    1e308,
    -1,
    0,
    2.5,
    Fraction(7, 2),
    np.float64(2.0),
    np.bool_(True),
    (),
    [],
    [[]],
    [[1.0], [1.0, 2.0]],
    [None],
    ["1"],
    {},
    {1, 2},
    range(3),
    object(),
    Ellipsis,
    np.array(3),
    np.array("x"),
    np.array(None),
    np.array([1.0, np.nan]),
    np.zeros(0),
    np.zeros((0, 3)),
    np.zeros((2, 0)),
    np.broadcast_to(1.0, 1 << 44),
    np.broadcast_to(1, (1 << 44, 1)),
    memoryview(b"abcd"),
    bytearray(8),
    np.dtype("f8"),
]
# Arguments that are numbers of things, and may be huge. Numbers that things are made of are tried
# up to a few dozen only, as cost grows with them.
INDICES = {"worker", "index", "number", "partition", "group", "round", "seed", "root", "g"}
# Iterables that are read item by item, which takes as long as there are items.
ONE_BY_ONE = {"t", "q", "loads", "workers", "groups", "kinds", "models", "codes", "patterns"}
ONE_BY_ONE |= {"dtypes"}
HUGE = [2**31, 2**63, -(2**63), 10**30, np.uint64(2**64 - 1)]


def _relaid(array, how):
    """Return the same numbers in another layout."""
    if how == 0:
        return array[::-1].copy()[::-1] if array.ndim else array
    if how == 1:
        wide = np.zeros((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        return wide[..., 0]
    if how == 2:
        raw = np.zeros(array.nbytes + 1, np.uint8)
        moved = raw[1:].view(array.dtype).reshape(array.shape)
        moved[...] = array
        return moved
    if how == 3:
        return np.asfortranarray(array)
    if how == 4:
        array = array.copy()
        array.flags.writeable = False
        return array
    if how == 5:
        return memoryview(np.ascontiguousarray(array))
    if how == 6:
        return array.tolist()
    return array.astype(array.dtype.newbyteorder(">"))


def _reshaped(array, how):
    """Return an array in another shape."""
    return [
        lambda: array[:0],
        lambda: array[:-1],
        lambda: np.concatenate([array, array]),
        lambda: array[None],
        lambda: array[..., None],
        lambda: array.reshape(-1),
        lambda: np.broadcast_to(array[:1], (1 << 44, *array.shape[1:])),
        lambda: array[..., :0],
    ][how]()


def _other_array(data_, array):
    """Draw an array to take another's place; return it, and whether its numbers are the same."""
    kind = data_.draw(st.sampled_from(["layout", "type", "shape", "numbers"]))
    how = data_.draw(st.integers(0, 7))
    if kind == "layout":
        return _relaid(array, how), True
    if kind == "shape" and array.ndim:
        return _reshaped(array, how), False
    if kind == "numbers" and array.size and array.dtype.kind in "iufc":
        array = array.copy()
        value = data_.draw(st.sampled_from(SPECIAL if array.dtype.kind in "fc" else [-1, 0, 2**62]))
        with np.errstate(all="ignore"):
            array.flat[data_.draw(st.integers(0, array.size - 1))] = value
        return array, False
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype(data_.draw(st.sampled_from(DTYPES))), False
    except (TypeError, ValueError):  # a plain array does not become a structured one
        return np.zeros(array.shape, DTYPES[-1]), False


def _other_number(data_, name, number):
    forms = [np.int8, np.uint64, np.array, Fraction] if isinstance(number, int) else [np.array]
    if data_.draw(st.booleans()):
        if isinstance(number, bool):
            return np.bool_(number), True
        form = data_.draw(st.sampled_from([*forms, np.float64]))
        # A float is no count, even if it is whole.
        return form(number), not isinstance(number, int) or form in (np.int8, np.uint64)
    more = HUGE if name in INDICES else []
    return data_.draw(st.sampled_from([number + 1, -number, number * 3, *more])), False


def _other(data_, name, value):
    """Draw something to take an argument's place; return it, and whether it means the same."""
    if data_.draw(st.integers(0, 2)) == 0:
        return data_.draw(st.sampled_from(STRANGE)), False
    if isinstance(value, np.ndarray):
        return _other_array(data_, value)
    if isinstance(value, bool | int | float):
        return _other_number(data_, name, value)
    if name.endswith("dtype"):
        return data_.draw(st.sampled_from([*DTYPES, float, "nonsense", int])), False
    if isinstance(value, list | tuple) and value:
        if isinstance(value[0], int | float) and data_.draw(st.booleans()):
            return _other_array(data_, np.array(value))
        at = data_.draw(st.integers(0, len(value) - 1))
        kind = data_.draw(st.sampled_from(["one", "fewer", "more", "others", "generator"]))
        if kind == "one":
            one, same = _other(data_, name, value[at])
            return type(value)([*value[:at], one, *value[at + 1 :]]), same
        if kind == "generator":
            return (each for each in value), False
        return {"fewer": value[:at], "more": (*value, value[at]), "others": list(value)}[
            kind
        ], False
    return data_.draw(st.sampled_from(STRANGE)), False


# ------------------------------------------------------------------------------------ properties


def _fresh(arguments):
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value
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
    return type(one) is type(other) and _alike_objects(one, other)


def _alike_objects(one, other):
    if isinstance(one, codes.Code):
        return repr(one) == repr(other) and _alike(one.matrix(), other.matrix())
    return True


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


def _check(name, make, data_):
    seed = data_.draw(st.integers(0, 2**32 - 1))
    call = make(np.random.default_rng(seed))
    arguments, same = call.arguments, True
    for which in data_.draw(st.permutations(sorted(arguments)))[: data_.draw(st.integers(1, 2))]:
        other, still = _other(data_, which, arguments[which])
        if which in ONE_BY_ONE and _is_huge(other):
            continue
        arguments[which] = other
        same = same and still and which not in call.writes
    before = {key: _memory(value) for key, value in arguments.items()}
    state = _memory(call.state()) if call.state else None
    try:
        with _in_time(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", fastgc.InstabilityWarning)
            # A documented warning, with a result of Inf or NaN.
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
        right = make(np.random.default_rng(seed))
        expected = right.function(**right.arguments)
        assert _alike(expected, result), (expected, result)


@pytest.mark.few(48)
@pytest.mark.parametrize("name", NEEDS_BACKEND)
@FUZZ
@given(data_=st.data())
def test_arithmetic(name, data_):
    _check(name, TARGETS[name], data_)


@pytest.mark.few(84)
@pytest.mark.parametrize("name", REST)
@FUZZ
@given(data_=st.data())
def test_the_rest(name, data_):
    _check(name, TARGETS[name], data_)


@pytest.mark.few(132)
@pytest.mark.parametrize("name", TARGETS)
def test_right_calls_are_right(name):
    """Each target's call succeeds, unless it reads a file that does not exist."""
    for seed in range(5):
        call = TARGETS[name](np.random.default_rng(seed))
        expected = contextlib.nullcontext()
        if name in TARGETS_OF_FILES:
            expected = pytest.raises(OSError, match="nowhere")
        with expected:
            call.function(**call.arguments)
