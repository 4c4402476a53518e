"""The number of workers to wait for agrees with brute force and Halbawi et al."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgc
from fastgc.delays import Empirical, Exponential, Heterogeneous, Mixture, Pareto, ShiftedExponential
from fastgc.planning import (
    DecodeCost,
    limit_time,
    optimal_fraction,
    optimal_threshold,
    round_time,
)

# Section 6: n = 80 machines, t_0 = 0.001, xi = 1.1; Fig. 3: c_g N = 0.035.
N = 80
DELAYS = Pareto(0.001, 1.1)
WORK = 0.035


def test_decode_cost():
    assert [DecodeCost(2, order)(10, 15) for order in ("f2", "f3", "fs")] == [180, 2000, 100]
    # Leading terms, as in eq. (20).
    for order in ("f2", "f3", "fs"):
        cost = DecodeCost(1e-9, order)
        exact = cost(300_000, 1_000_000)
        assert cost.limit(0.7, 1_000_000) == pytest.approx(exact, rel=1e-5)
    assert DecodeCost(1e-9, "f2").limit(0.2, 80) == pytest.approx(1e-9 * 0.8**2 * 80**2)


def test_round_time_is_equation_17():
    delays, n, k = ShiftedExponential(0.5, 2, per="round"), 7, 10
    for f in range(1, n + 1):
        wait = 0.5 + sum(0.5 / i for i in range(n - f + 1, n + 1))
        load = math.ceil(k * (n - f + 1) / n)
        assert round_time(f, n, delays, 0.3, k) == pytest.approx(wait + 0.3 * load)
        decode = DecodeCost(0.01, "f2")
        total = wait + 0.3 * load + 0.01 * f * (f - 1)
        assert round_time(f, n, delays, 0.3, k, decode) == pytest.approx(total)
        each = ShiftedExponential(0.5, 2)
        assert round_time(f, n, each, 0.3, k) == pytest.approx((wait + 0.3) * load)


@pytest.mark.parametrize("k", [80, 100, 240])
def test_optimal_threshold_has_the_loads_of_the_code(k):
    best = optimal_threshold(N, DELAYS, WORK / k, k)
    code = fastgc.ReedSolomon(N, k, load=best.load)
    assert code.threshold == best.f
    assert code.stragglers == best.stragglers == N - best.f


@pytest.mark.parametrize("seconds", [1.21e-7, 1.24e-7, 1.28e-7])
def test_optimal_threshold_of_halbawi_et_al(seconds):
    # Fig. 2: 68 machines with Algorithm 3, 33 if decoding takes f^3.
    best = optimal_threshold(N, DELAYS, WORK / N, decode=DecodeCost(seconds, "f2"))
    assert (best.f, best.load, best.stragglers) == (68, 13, 12)
    assert optimal_threshold(N, DELAYS, WORK / N, decode=DecodeCost(seconds, "f3")).f == 33


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 12),
    k=st.integers(1, 30),
    cost=st.floats(0, 2),
    delays=st.sampled_from(
        [
            DELAYS,
            Pareto(1, 0.4, per="computation"),
            ShiftedExponential(0.1, 1),
            Empirical([0.1, 0.5, 3]),
            Mixture([Exponential(0.1), Pareto(0.1, 0.8)], [0.9, 0.1]),
        ]
    ),
    room=st.none() | st.integers(0, 30),
    decode=st.sampled_from([None, DecodeCost(1e-2, "fs")]),
)
def test_optimal_threshold_none_that_fits_is_better(n, k, cost, delays, room, decode):
    max_load = None if room is None else -(-k // n) + room
    times = {}
    for f in range(1, n + 1):
        if max_load is None or math.ceil(k * (n - f + 1) / n) <= max_load:
            try:
                times[f] = round_time(f, n, delays, cost, k, decode)
            except ValueError:
                continue
    if not times:
        with pytest.raises(ValueError, match="no mean exists"):
            optimal_threshold(n, delays, cost, k, decode, max_load=max_load)
        return
    best = optimal_threshold(n, delays, cost, k, decode, max_load=max_load)
    assert best.time == min(times.values())
    assert best.f == max(f for f, time in times.items() if time == best.time)
    for f, time in enumerate(best.times, start=1):
        if f in times:
            assert time == times[f]
        elif max_load is not None and math.ceil(k * (n - f + 1) / n) > max_load:
            assert math.isnan(time)
        else:
            assert time == math.inf


def test_optimal_threshold_spares_a_heavy_tail():
    delays = Heterogeneous([Exponential(0.01), Pareto(0.01, 0.5), Exponential(0.01)])
    best = optimal_threshold(3, delays, 1)
    assert best.times[2] == math.inf
    assert (best.f, best.load) == (2, 2)


def test_optimal_threshold_of_equals_is_the_least_load():
    best = optimal_threshold(5, Empirical([1]), 0)
    assert (best.times == 1).all()
    assert (best.f, best.load, best.stragglers) == (5, 1, 0)
    assert optimal_threshold(N, DELAYS, WORK, max_load=1).f == N
    assert optimal_threshold(2, Pareto(1, 1.0), 1).times[1] == math.inf


def test_limit_time_of_proposition_1():
    alpha = 0.3
    errors = []
    for n in (10**3, 10**4, 10**5):
        mean = DELAYS.order_statistic_mean(round((1 - alpha) * n), n)
        errors.append(abs(mean - limit_time(alpha, DELAYS, 0)))
    assert errors[0] < 1e-5
    assert errors[1] < errors[0] / 9
    assert errors[2] < errors[1] / 9


def test_limit_time_is_equations_20_and_21():
    offline = 0.001 * 0.2 ** (-1 / 1.1) + WORK * 0.2
    assert limit_time(0.2, DELAYS, WORK) == pytest.approx(offline, rel=1e-14)
    online = offline + 1e-7 * (1 - 0.2) ** 2 * N**2
    assert limit_time(0.2, DELAYS, WORK, DecodeCost(1e-7), N) == pytest.approx(online, rel=1e-14)


def test_optimal_fraction_of_figure_3():
    assert optimal_fraction(DELAYS, WORK) == pytest.approx(0.1477, abs=5e-5)
    # eq. (18)
    assert math.ceil((1 - optimal_fraction(DELAYS, WORK)) * N) + 1 == 70


@pytest.mark.parametrize("shape", [0.3, 1.1, 4])
@pytest.mark.parametrize(
    "decode",
    [None, DecodeCost(0), DecodeCost(1e-6), DecodeCost(1e-8, "f3"), DecodeCost(1e-6, "fs")],
    ids=repr,
)
def test_optimal_fraction_is_the_best(shape, decode):
    delays = Pareto(0.001, shape)
    best = optimal_fraction(delays, WORK, decode, N)
    least = limit_time(best, delays, WORK, decode, N)
    grid = np.append(np.linspace(0.002, 1, 2000), best * (1 + np.array([-1e-3, 1e-3])))
    assert least <= min(limit_time(a, delays, WORK, decode, N) for a in grid)


@pytest.mark.parametrize("work", [0.0, 0.0005, WORK, 0.3])
@pytest.mark.parametrize("max_load", [1, 12, 40, 79, 200])
@pytest.mark.parametrize(
    "decode",
    [None, DecodeCost(1e-6), DecodeCost(1e-8, "f3"), DecodeCost(1e-4, "fs")],
    ids=repr,
)
def test_optimal_fraction_max_load(work, max_load, decode):
    delays = Pareto(0.01, 1) if decode and decode.order == "fs" else DELAYS
    room = min(max_load / N, 1.0)
    # eq. (20), for many fractions
    alphas = np.linspace(0, room, 50_001)[1:]
    times = delays.scale * alphas ** (-1 / delays.shape) + work * alphas
    if decode is not None:
        f = (1 - alphas) * N
        products = {"f2": f**2, "f3": f**3, "fs": f * (N - f)}[decode.order]
        times += decode.seconds * products
    wanted = float(alphas[np.argmin(times)])
    if wanted == 1:
        with pytest.raises(ValueError, match="compute everything"):
            optimal_fraction(delays, work, decode, N, max_load=max_load)
        return
    found = optimal_fraction(delays, work, decode, N, max_load=max_load)
    assert found <= room
    assert found == pytest.approx(wanted, abs=4e-5)
    if wanted == room:
        assert found == room
    if max_load >= N:
        assert found == optimal_fraction(delays, work, decode, N)
    # Three times as much of everything, in partitions of another size.
    again = optimal_fraction(delays, work, decode, N, max_load=3 * max_load, k=3 * N)
    assert again == pytest.approx(found, rel=1e-15)


def test_optimal_fraction_max_load_without_workers():
    assert optimal_fraction(DELAYS, WORK, max_load=1, k=10) == 0.1
    assert optimal_fraction(DELAYS, WORK, max_load=2, k=10) == optimal_fraction(DELAYS, WORK)


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (ValueError, lambda: DecodeCost(-1), "seconds must .*not -1"),
        (TypeError, lambda: DecodeCost("1"), "seconds must be"),
        (ValueError, lambda: DecodeCost(1, "f4"), "order must .*not 'f4'"),
        (TypeError, lambda: DecodeCost(1.0).limit("half", 4), "alpha must be"),
        (TypeError, lambda: DecodeCost(1.0).limit(0.5, 4.0), "n must be"),
        (ValueError, lambda: round_time(0, 5, DELAYS, 1), "f must .*n = 5, not 0"),
        (ValueError, lambda: round_time(1, 5, DELAYS, 1, 0), "k must .*k=0"),
        (ValueError, lambda: round_time(1, 5, DELAYS, math.inf), "cost must be"),
        (ValueError, lambda: round_time(5, 5, Pareto(1, 1), 1), "does not exist"),
        (ValueError, lambda: round_time(2, 3, DELAYS, 1, decode=lambda f, n: -1), r"e\(2, 3\) m"),
        (TypeError, lambda: round_time(2, 3, DELAYS, 1, decode=lambda f, n: None), r"\(2, 3\) m"),
        (TypeError, lambda: round_time(2, 5, "none", 1), "delays must be"),
        (TypeError, lambda: round_time(2, 5, DELAYS, "3"), "cost must .*not '3'"),
        (ValueError, lambda: optimal_threshold(0, DELAYS, 1), "n and k .*n=0"),
        (ValueError, lambda: optimal_threshold(5, DELAYS, -1), "cost must be"),
        (TypeError, lambda: optimal_threshold(5, None, 1), "delays must be"),
        (ValueError, lambda: optimal_threshold(5, DELAYS, 1, 11, max_load=2), "max_load must be"),
        (ValueError, lambda: optimal_threshold(3, Pareto(1, 0.2), 1), r"t\^-0\.6"),
        (
            ValueError,
            lambda: optimal_threshold(10, Pareto(1, 0.3), 1, max_load=2),
            "max_load=2: it takes a load of 4, with which f = 7",
        ),
        (
            ValueError,
            lambda: optimal_threshold(3, DELAYS, 1, decode=lambda f, n: math.nan),
            r"decode\(1, 3\) must .*nan",
        ),
        (ValueError, lambda: limit_time(1e-300, Pareto(1, 0.01), 1.0), "range of floats, about 1 "),
        (ValueError, lambda: limit_time(0, DELAYS, 1), "alpha must .*not 0"),
        (ValueError, lambda: limit_time(1, DELAYS, -1), "work must be"),
        (ValueError, lambda: limit_time(1, Exponential(1), 1), "Pareto delays"),
        (ValueError, lambda: limit_time(1, Pareto(1, 2, per="computation"), 1), "per round"),
        (ValueError, lambda: limit_time(1, DELAYS, 1, DecodeCost(1)), "workers, not 0"),
        (TypeError, lambda: limit_time(0.5, 3, 1), "delays must be"),
        (ValueError, lambda: optimal_fraction(DELAYS, 0.0009), r"work \* shape = 0\.00099"),
        (ValueError, lambda: optimal_fraction(DELAYS, 0.0009, DecodeCost(1e-6), N), "everything"),
        (ValueError, lambda: optimal_fraction(DELAYS, 1, max_load=0, k=5), "max_load .*not 0"),
        (ValueError, lambda: optimal_fraction(DELAYS, 1, n=2, max_load=2, k=5), "max_load .*3, "),
        (ValueError, lambda: optimal_fraction(DELAYS, 1, max_load=2), "give k, .* not 0"),
        (ValueError, lambda: optimal_fraction(DELAYS, 1, k=5), "k=5 is for max_load"),
        (TypeError, lambda: optimal_fraction(DELAYS, 1, max_load=0.1, k=5), "max_load must be"),
        (TypeError, lambda: optimal_fraction(DELAYS, 1, max_load=1, k=5.0), "k must be"),
        (TypeError, lambda: optimal_fraction(None, 1), "delays must be"),
    ],
)
def test_optimum_refuses(error, call, message):
    with pytest.raises(error, match=message):
        call()
