"""``fastgc simulate`` and ``fastgc sequential``."""

import csv
import math

import commands
import numpy as np
import pytest
from commands import RECORDED, done, figures, refused
from pictures import legend_of

from fastgc import delays, sequential, simulation
from fastgc.codes import catalogue
from fastgc.delays import Exponential
from fastgc.sequential import compare, make, simulate_sequential

HEAVY = "pareto:scale=1,shape=0.9"


def of(code, found):
    """Return the figures of simulated rounds that ``fastgc simulate`` prints."""
    median, late = found.quantile([0.5, 0.99])
    return {
        "load": code.load,
        "mean": found.mean,
        "standard_error": found.standard_error,
        "median": median,
        "99%": late,
        "workers": found.mean_workers,
        "messages": found.mean_messages,
        "communication_load": found.communication_load,
        "computations": found.mean_computations,
        "residual": None if math.isnan(found.residual) else found.residual,
        "mean_exists": found.mean_exists,
    }


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), {"interrupted": True}),
        (("--finish", "--receive", "0.02"), {"interrupted": False, "receive": 0.02}),
        (("--request", "0.25"), {"interrupted": True, "request": 0.25}),
    ],
    ids=["plain", "finish", "request"],
)
def test_simulate_prints_what_simulate_returns(options, settings):
    names = ["bcc:load=6", "reactive", "ignore"]
    sizes = "-n", "6", "-k", "12", "-s", "2", "--rounds", "90", "--cost", "0.01", "--seed", "3"
    found = figures("simulate", *names, *sizes, "--delays", "exponential:mean=0.5", *options)
    for name in names:
        code = catalogue.make(name, 6, 12, 2, 3)
        settings |= {"cost": 0.01, "seed": 3, "rounds": 90}
        assert found[name] == of(code, simulation.simulate(code, Exponential(0.5), **settings))
    assert list(found) == names


def test_simulate_table(drawn):
    sizes = "-n", "8", "-k", "16", "-s", "1", "--rounds", "60", "--cost", "0.001", "--seed", "3"
    held = figures("simulate", "rs,bcc:load=4", *sizes)
    shown = done("simulate", "rs,bcc:load=4", *sizes, "--markdown", "--request", "0.5").stdout
    title = "n=8 workers, s=1 stragglers, k=16 partitions; pareto:scale=0.005,shape=1.5, 0.001 s "
    assert f"{title}per partition; 60 rounds, seed 3; 0.5 s to ask a worker" in shown
    head, *rows = commands.table(shown)
    assert head[2] == "mean time, ms"
    for row, (name, found) in zip(rows, held.items(), strict=True):
        keys = "mean", "standard_error", "median", "99%"
        assert row[:2] == [catalogue.describe(name), str(found["load"])]
        assert [float(cell) for cell in row[2:6]] == pytest.approx(
            [1e3 * found[key] for key in keys], rel=5e-3
        )
        keys = "workers", "communication_load", "computations"
        assert row[6:] == [f"{found[key]:.1f}" for key in keys]
    lines = done(
        "simulate", "rs,bcc:load=4", *sizes, "--csv", "--plot", "a.svg"
    ).stdout.splitlines()
    for row, figure in zip(csv.DictReader(lines), held.values(), strict=True):
        assert row.pop("residual") == ""  # not computed: both codes decode only exactly
        assert row.pop("mean_exists") == "True"
        assert row.pop("code") in held
        assert {key: float(row[key]) for key in row} == {key: figure[key] for key in row}
    assert list(drawn) == ["a.svg"]


def test_simulate_tells_what_approximate_codes_leave_out(drawn):
    """All codes wait for 8 of 10 workers: their lines coincide, but their gradients differ."""
    asked = "simulate", "rs,rs:root=1,ignore", "-n", "10", "-s", "2", "--rounds", "200"
    found = figures(*asked)
    assert len({each["mean"] for each in found.values()}) == 1
    left = 100 * found["ignore"]["residual"]
    assert left > 1
    shown = done(*asked, "--plot", "rounds.svg").stdout
    assert "left: part of the gradient" in shown
    assert "median" not in shown
    said = " ".join(" ".join(legend_of(drawn["rounds.svg"].get_figure())).split())
    assert f"ignore (uncoded, ignores stragglers): off by {left:.2g}%" in said
    assert "rs (Reed-Solomon) = rs:root=1 (Reed-Solomon)" in said


def test_simulate_of_all_codes_leaves_out_what_does_not_exist():
    """Codes that do not exist are left out unless they are named; all numbers are readable."""
    result = done("simulate", ",", "-n", "6", "--rounds", "50", "--delays", HEAVY)
    refusals = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert refusals == ["bcc", "random", "uncoded", "lcc-mmc"]
    assert "…" not in result.stdout
    assert max(map(len, result.stdout.split("mean, 99%: ")[0].splitlines())) <= 80
    found = figures("simulate", "-n", "6", "--rounds", "50", "--delays", HEAVY)
    assert set(found) == set(catalogue.names()) - set(refusals)
    assert "no code fits: rs, rs-clustered, " in refused("simulate", "-k", "0")
    assert "10000 rounds" in done("simulate", "uncoded", "-n", "3", "-s", "0").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["turbo"], "unknown code 'turbo': choose among rs, rs-clustered"),
        (["--delays", "3 of exponential:mean=1"], "the times of 3 workers, not of 20"),
        (["--plot", "rounds.bmp"], "must end in .png"),
    ],
)
def test_simulate_refuses_its_options(arguments, says):
    assert says in refused("simulate", *arguments, "--rounds", "10")


# -------------------------------------------------------------------------------- fastgc sequential

M = "m-sgc:burst=1,window=2,stragglers=1"


def test_sequential_prints_what_compare_returns(tmp_path, drawn):
    times = 1.0 + np.random.default_rng(5).exponential(0.1, (40, 6))
    times[3, 2] = 0.5  # a time is at least as long as its computation
    path = tmp_path / "times.csv"
    np.savetxt(path, 1e3 * times, delimiter=",")
    asked = f"{M},sr-sgc,uncoded", "--recorded", path, "--unit", "ms", "--cost", "0.8"
    asked += "--models", "3", "--mu", "0/0.5", "--probe", "15", "--finish"
    printed = figures("sequential", *asked, "--plot", "a.svg")
    times = np.maximum(times, 0.8)
    settings = {"models": 3, "mu": [0, 0.5], "probe": 15, "interrupted": False, "load_slope": 0.8}
    truth = compare(times, [M, "sr-sgc", "uncoded"], **settings)
    for row, each in zip(printed, truth, strict=True):
        run = each.run
        assert row == {
            "scheme": each.text,
            "load": pytest.approx(each.scheme.load),
            "delay": each.scheme.delay,
            "mu": each.mu,
            "seconds_per_gradient": pytest.approx(run.seconds_per_job, rel=1e-9),
            "standard_error": pytest.approx(run.standard_error, rel=1e-6),
            "waited": run.waited.mean() if each.mu else None,
            "stragglers": run.stragglers.mean(),
            "rounds": 25,
            "gradients": run.done.size,
            "tried": len(each.tried),
        }
    assert list(drawn) == ["a.svg"]
    shown = done("sequential", *asked, "--markdown").stdout
    title = "n=6 workers, 3 models; 40 rounds of 6 workers, times.csv; 0.8 s per partition; 25 "
    assert f"{title}rounds, after those that chose parameters" in " ".join(shown.split())
    head, *rows = commands.table(shown)
    assert head[2] == "done after rounds"
    for row, told, each in zip(rows, printed, truth, strict=True):
        assert row[0] == sequential.catalogue.describe(each.text)
        assert row[1:4] == [
            f"{told['load']:.3g}",
            str(told["delay"]),
            f"{told['mu']:g}" if told["delay"] else "–",
        ]
        assert row[6] == ("–" if told["waited"] is None else f"{told['waited']:.0%}")
    assert "\nSchemes: uncoded (waits for all), m-sgc" in done("sequential", *asked).stdout


def test_sequential_draws_times_of_rounds_and_of_computations():
    """A worker's computation takes its cost; nothing is waited for where no round ends early."""
    asked = "sequential", "binary:stragglers=1", "-n", "4", "--rounds", "50", "--seed", "3"
    asked += "--cost", "0.25", "--delays"
    scheme = make("binary:stragglers=1", 4)
    for text in "exponential:mean=0.5", "exponential:mean=0.5,per=computation":
        law = delays.parse(text)
        drawn = np.array([delays.interface.sample(law, r, 4, 3) for r in range(50)])
        each = drawn + 0.25 * 2 if law.per == "round" else 2 * (drawn + 0.25)
        [found] = figures(*asked, text)
        truth = simulate_sequential(each, scheme, mu=0).seconds_per_job
        assert found["seconds_per_gradient"] == pytest.approx(truth)
        assert found["waited"] is None
    [nothing] = figures(*asked, "none")
    assert nothing["seconds_per_gradient"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mu", "a"], "--mu must be a number"),
        (["-n", "6/2"], "--workers: '6/2' is neither a number"),
        (["m-sgc", "--models", "1"], "none is such"),
        (["m-sgc", "-n", "4", "--rounds", "5"], "too few"),
        (["--recorded", RECORDED, "--rounds", "5"], "--rounds and --recorded exclude each other"),
    ],
)
def test_sequential_refuses_its_options(arguments, says):
    assert says in refused("sequential", *arguments)
