"""``fastgc codes``."""

import re
from itertools import combinations

import commands
import pytest

from fastgc import stability
from fastgc.codes import catalogue
from fastgc.stability import precision


def test_codes_print_what_compare_returns():
    names = ["rs:root=1", "lcc-mmc-2", "fractional:load=4,wait=6", "ignore"]
    sizes = "-n", "10", "-k", "20", "-s", "2", "--trials", "7", "--seed", "3"
    found = commands.figures("codes", *names, *sizes)
    assert list(found) == names
    for name, figures in found.items():
        code = catalogue.make(name, 10, 20, 2, 3)
        how = {"stragglers": 0, "patterns": ["late"], "sets": 7, "p": 32, "seed": 3}
        [row] = stability.compare({name: code}, **how)
        del figures["decode_seconds"]
        worst = row.worst_left_out
        if code.scheme.approximate:
            sets = combinations(range(10), code.threshold)
            worst = max(worst, *(code.residual(each) for each in sets))
        assert figures == {
            "load": row.load,
            "mean_load": row.mean_load,
            "stragglers": code.stragglers,
            "messages": code.scheme.messages.count,
            "threshold": code.threshold,
            "mean_workers": row.workers,
            "mean_messages": row.messages,
            "message_size": row.message_size,
            "communication_load": row.messages * row.message_size,
            "error": row.error,
            "worst_error": row.worst_error,
            "residual": row.left_out,
            "worst_residual": pytest.approx(worst),
            "worst_is_known": True,
        }
    assert found["fractional:load=4,wait=6"]["worst_residual"] > 0.4
    assert found["rs:root=1"]["worst_error"] < 1e-12


def test_codes_table():
    """Codes differ in every column; a load is said where it is not the common one."""
    names = ["rs", "partial-work", "binary:stragglers=4"]
    sizes = "-n", "10", "-k", "20", "-s", "2", "--trials", "9", "--seed", "3"
    held = commands.figures("codes", *names, *sizes)
    shown = commands.done("codes", *names, *sizes, "--markdown").stdout
    title = "n=10 workers, s=2 stragglers, k=20 partitions; 9 rounds, messages in random order"
    assert f"{title}, seed 3" in shown
    head, *rows = commands.table(shown)
    assert head[:4] == ["code", "load, largest", "load, mean", "messages needed, worst case"]
    for row, (name, figures) in zip(rows, held.items(), strict=True):
        del row[7]  # the time to decode
        assert row == [
            catalogue.describe(name),
            str(figures["load"]),
            f"{figures['mean_load']:.3g}",
            f"{figures['threshold']}/{figures['messages']}",
            f"{figures['mean_workers']:.1f}",
            f"{figures['communication_load']:.1f}",
            f"{figures['message_size']:g}",
            f"{figures['error']:.0e}",
            f"{figures['worst_error']:.0e}",
        ]
    assert shown.endswith("\n\nCompared at a load of 6; binary:stragglers=4 at 10.\n")
    assert "Compared" not in commands.done("codes", "rs,partial-work", *sizes).stdout


def test_codes_that_leave_out_part_of_the_gradient_have_a_table():
    """It is as wide as a terminal; codes whose gradients are exact are not in it."""
    names = "fractional:load=2,wait=12,ignore,graph,rs"
    shown = commands.done("codes", names, "-n", "20", "-s", "4", "--trials", "5").stdout
    tables, _, more = shown.partition("Codes whose gradients may be approximations")
    assert max(map(len, tables.split("load: partitions")[0].splitlines())) <= 80
    assert "…" not in tables
    assert re.search(r"\n graph .* ≥ ", more)
    assert re.search(r"\n ignore +1 +16.0 +0.5 +0.5 ", more)
    assert not re.search(r"\n rs ", more)


def test_codes_that_none_names_are_all_that_exist():
    result = commands.done("codes", "-n", "7", "-s", "2", "--trials", "2")
    assert "fractional: fractional repetition needs n to be a multiple" in result.stderr
    shown = set(re.findall(r"^ ([a-z0-9-]+) ", result.stdout, re.MULTILINE))
    refused = {line.partition(":")[0] for line in result.stderr.splitlines()}
    assert shown - {"code"} | refused >= set(catalogue.BUILT_IN) - {"linear"}
    assert not shown & refused
    assert "; 200 rounds," in commands.done("codes", "rs", "-n", "4", "--markdown").stdout
    line = commands.refused("codes", "fractional", "-n", "7", "-s", "2")
    assert line.startswith("fastgc: fractional repetition needs n to be a multiple")
    assert commands.refused("codes", "-k", "0").startswith("fastgc: no code fits: rs, rs-clustered")


def test_codes_of_the_data_that_memory_has_no_room_for(monkeypatch):
    """They are left out, with the reason; one that is asked for ends the command."""
    load = catalogue.make("lcc", 8, stragglers=1).load
    taken = 8 * load * 3 * (8 + 1) * 8  # workers, blocks of 3 samples, features and a label
    said = f"workers of LagrangeCode(n=8, load={load}) hold {load} coded blocks each, 0 GB for all"
    few = "-n", "8", "-s", "1", "--trials", "2"
    for room, status in (taken - 1, 1), (taken, 0):
        monkeypatch.setattr(precision, "half_of_memory", lambda room=room: room)
        of_all, of_one = commands.run("codes", *few), commands.run("codes", "lcc", *few)
        assert (of_all.exit_code, of_one.exit_code) == (0, status)
        assert (f"lcc: too large for memory: {said}" in of_all.stderr) == bool(status)
        assert (f"fastgc: too large for memory: {said}" in of_one.stderr) == bool(status)


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_codes_whose_coefficients_are_beyond_float64_have_no_precision():
    size = "rs:root=1", "-n", "2600", "-s", "1300", "--trials", "1"
    [hopeless] = commands.figures("codes", *size).values()
    assert hopeless["load"] == 1301
    assert hopeless["error"] is hopeless["worst_error"] is None
    assert re.search(r"rs:root=1 .* inf +inf", commands.done("codes", *size).stdout)
