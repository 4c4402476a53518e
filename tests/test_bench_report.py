"""benches/tables.py and benches/report.py: fitted exponents, and the page of results."""

import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import fastgc
from fastgc.cli import app
from fastgc.stability import survey

pytestmark = pytest.mark.any_backend

BENCHES = Path(__file__).parents[1] / "benches"
for name in ("tables", "report"):
    spec = importlib.util.spec_from_file_location(name, BENCHES / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
tables, report = sys.modules["tables"], sys.modules["report"]


class Bench:
    """A benchmark like pytest-benchmark's: a median, and notes beside it."""

    def __init__(self, median, **info):
        self.stats, self.extra_info, self.group = SimpleNamespace(median=median), info, None


def scaling_of(**times):
    return {
        f"{method}-{n}": Bench(seconds, scaling=method, n=n)
        for method, of in times.items()
        for n, seconds in of.items()
    }


ROOFLINE = {
    "a": Bench(0.5, roofline="decode", threads=1, bytes=10**9, read_per_byte=4e-10)
    # read in 0.4 s
}
for bench in ROOFLINE.values():
    bench.extra_info.update(other="matmul", other_seconds=1.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4996e-9, "0.5 ns"),
        (1e-9, "1 ns"),
        (999.4e-9, "999 ns"),
        (999.6e-9, "1 µs"),
        (1e-6, "1 µs"),
        (9.996e-6, "10 µs"),
        (99.96e-6, "100 µs"),
        (999.4e-6, "999 µs"),
        (999.6e-6, "1 ms"),
        (1.234e-3, "1.23 ms"),
        (999.4e-3, "999 ms"),
        (999.6e-3, "1 s"),
        (59.96, "60 s"),
        (999.6, "1000 s"),
        (12345, "12300 s"),
    ],
)
def test_times_have_three_digits_in_the_unit_that_suits(seconds, text):
    assert tables._time(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.416, "0.42×"), (9.94, "9.9×"), (9.96, "10×"), (99.6, "100×")]
)
def test_ratios_are_never_powers_of_ten(ratio, text):
    done = {}
    for way, time in ("computed", ratio), ("a hit", 1):
        done[way] = Bench(time, n=8, s=1, cached=way)
    _, (_, row) = tables._cache(done)
    assert row[2] == f"1 s ({text})"


@pytest.mark.parametrize("exponent", [1, 2, 2.5])
def test_slope_of_a_power_law(exponent):
    times = {n: 3e-9 * n**exponent for n in (16, 64, 1024, 4096)}
    assert tables.slope(times) == pytest.approx(exponent, rel=1e-12)


def test_slope_is_of_the_larger_half():
    """Small sizes cost a call, whatever n is; sizes come in any order."""
    times = {n: 1e-5 if n < 100 else 1e-9 * n**2 for n in (1000, 8, 100, 4, 10, 10**4, 2, 500)}
    assert tables.slope(times) == pytest.approx(2, rel=1e-12)
    assert tables.slope({10: 1, 20: 8}) == pytest.approx(3, rel=1e-12)
    assert tables.slope({10: 1, 100: 5, 200: 10}) == pytest.approx(1, rel=1e-12)


def test_slope_minimises_squares():
    """The normal equations hold for the logarithms of n and time."""
    x, y = [0, 1, 2], [0, 1, 1]
    times = {10**i: 10**j for i, j in zip(x, y, strict=True)}
    assert tables.slope({1e-3: 7, 1e-2: 9, **times}) == pytest.approx(0.5)


def test_slope_of_one_size_is_unknown():
    assert math.isnan(tables.slope({16: 1e-6}))


def test_share_of_the_limit():
    (share,) = tables.roofline(ROOFLINE).values()
    assert share == pytest.approx(0.8)
    _, (head, row) = tables._roofline(ROOFLINE)
    assert row[head.index("of the limit")] == "80%"
    assert row[head.index("ratio")] == "2.0×"
    assert row[head.index("GB/s")] == "2.0"


def test_sizes_that_are_missing_are_dashes():
    done = scaling_of(slow={16: 1e-3, 32: 8e-3}, fast={16: 1e-6, 32: 2e-6, 64: 4e-6})
    _, (head, slow, fast) = tables._scaling(done)
    assert slow[:3] == ["slow", "n^3.00", "32"]
    assert fast[:3] == ["fast", "n^1.00", "64"]
    at = head.index("n = 64")
    assert (slow[at], fast[at]) == ("–", "4 µs")


def test_times_by_set_of_stragglers():
    done = {
        kind: Bench(1e-5, set=kind, n=2048, s=256, p99=1e-4, worst=2e-3, pairs=2.2)
        for kind in ("random", "neighbouring", "best-spread")
    }
    title, (head, row) = tables._by_set(done)
    assert "median, 99th" in title
    assert head[1:] == list(done)
    assert row == ["2,048, 256", *["10 µs, 100 µs, 2 ms (2)"] * 3]
    assert "stragglers that are spread best" in tables._scaling(scaling_of(fast={16: 1, 32: 2}))[0]


def test_tables_and_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    done = {**scaling_of(fast={16: 1e-6, 32: 2e-6}), **ROOFLINE}
    found = [table for make in tables.TABLES if (table := make(done))]
    text = report.markdown(found)
    assert "| fast | n^1.00 | 32 |" in text
    assert text.count("| decode | 1 |") == 1
    where = tmp_path / "new" / "folder"
    report.draw(where, done)
    for picture in ("scaling.png", "roofline.png"):
        assert (where / picture).read_bytes().startswith(b"\x89PNG")


def test_without_such_benchmarks_there_are_no_pictures(tmp_path):
    report.draw(tmp_path, {})
    assert not list(tmp_path.iterdir())
    text = report.markdown([("Title", [["a", "b"], ["1", "2"]])])
    assert "Title\n\n| a | b |\n|---|---:|\n| 1 | 2 |" in text


def test_every_benchmark_with_a_table_is_in_a_section():
    named = set(re.findall(r"benches/(\w+)\.py", " ".join(s.command for s in report.SECTIONS)))
    there = {path.stem for path in BENCHES.glob("test_*.py")}
    there |= {
        "assignments",
        "calls",
        "glance",
        "graphs",
        "jitted_loop",
        "li_experiment",
        "near_exact",
        "no_loss",
        "partial_work",
        "scale",
        "torch_audit",
        "torch_deaths",
        "torch_loop",
        "vandermonde_orders",
        "vectors_by_code",
    }
    assert named == there - {"test_kernels"}  # it makes no table


def test_times_of_verbs_by_number_of_workers():
    command = [sys.executable, str(BENCHES / "scale.py"), "binary,nosuch", "--sizes", "20,40"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.strip("| ").split(" | ") for line in ran.stdout.splitlines() if "|" in line]
    assert rows[0][:3] == ["code", "n", "make, s"]
    assert [row[:2] for row in rows[2:4]] == [["binary", "20"], ["binary", "40"]]
    assert all(0 < float(cell) < 10 for row in rows[2:4] for cell in row[2:9])
    assert set(rows[5][2:]) == {"–"}
    assert "nosuch, n = 20: ValueError: unknown code 'nosuch'" in ran.stderr


@pytest.fixture(scope="module")
def no_loss():
    spec = importlib.util.spec_from_file_location("no_loss", BENCHES / "no_loss.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_calls_beside_others_are_the_same_sums(capsys, monkeypatch, no_loss):
    for make in (no_loss.decode, no_loss.encode):
        for packed in (True, False):
            calls, others = make(packed, 4, 10, np.float64)
            results = [call().copy() for call in calls.values()]
            for other in others:
                found = np.asarray(other()).view(results[0].dtype)
                for mine in results:
                    np.testing.assert_allclose(found, mine, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(no_loss, "TURN", 0.0)
    monkeypatch.setattr(no_loss, "REST", 0.0)
    no_loss.main(["--rows", "2", "--sizes", "10", "--what", "decode,rounds"])
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| rows")]
    assert heads == ["| rows | threads | f | p = 10 |"] * 3


def test_red_cells_are_summed_up_by_what_they_share(no_loss):
    cells = {}
    for count, mine, best, share in (
        (1, 2e-6, 1e-6, 0.1),  # a call
        (2, 1e-3, 8e-4, 0.9),  # the limit
        (1, 1e-3, 1e-3, 0.4),
        (2, 1e-3, 5e-4, 0.4),  # threads
        (1, 1e-3, 7e-4, 0.4),  # arithmetic
    ):
        cell = no_loss.Cell("real, float32", count, mine, best, share, 1e-6)
        cells[count, "bind", share if share > 0.3 else 0, mine if best == 7e-4 else 0] = cell
    assert str(cells[2, "bind", 0.4, 0]) == "**0.50** (40%)"
    assert str(cells[1, "bind", 0.4, 0]) == "1.00 (40%)"
    said = no_loss.causes(cells)
    assert said.startswith("Of 5 cells 4 are red")
    for why in ("for p = 10): 1 cells", "no more: 1", "evenly: 1", "caches: 1"):
        assert why in said
    assert no_loss.causes({}) == "No cell is red."


def test_gains_are_of_processes_of_their_own(capsys, monkeypatch, no_loss):
    monkeypatch.setattr(no_loss, "CORES", 2)
    monkeypatch.setattr(no_loss, "GAINS", ((2, 10, "float32"),))
    monkeypatch.setattr(no_loss, "GAIN_TURNS", 1)
    no_loss.gains()
    last = capsys.readouterr().out.splitlines()[-2]
    assert last.startswith("| 2 × 10 float32 |")
    assert last.count(" / ") == 2


def test_less_memory_is_read_no_slower(no_loss, monkeypatch):
    monkeypatch.setattr(no_loss, "_READ", {1: {1 << 20: 1e30}})
    assert no_loss.bandwidth(1 << 10, 1) == 1e30
    assert no_loss.bandwidth(1 << 21, 1) < 1e30


def test_sections_by_words():
    assert report.chosen([]) == list(report.SECTIONS)
    (codes,) = report.chosen(["Fastgc Codes"])
    assert codes.command == "fastgc codes -n 24 -s 5 --markdown"
    assert report.chosen(["test_engines", "fastgc codes"])[0] is codes
    with pytest.raises(ValueError, match="nosuch"):
        report.chosen(["nosuch"])


def test_codes_are_compared_at_one_load(monkeypatch):
    """A table has all codes that exist at the least common load, and names the others."""
    monkeypatch.setattr(survey, "_left_out", lambda code, *rest: (0.0, 0.0, True))
    (section,) = report.chosen(["fastgc codes"])
    result = CliRunner().invoke(app, [*section.command.split()[1:], "--trials", "1"])
    assert "\nCompared at a load of 6; uncoded, ignore, reactive at 1.\n" in result.stdout
    assert "lcc-mmc-2" in result.stdout


def test_results_are_written_by_one_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    quick = [
        report.Section("Codes", "fastgc codes binary -n 6 -s 1 --trials 3 --markdown", "A note."),
        report.Section("Versions", "fastgc info"),
        report.Section("Nothing", "fastgc codes nosuch"),
    ]
    monkeypatch.setattr(report, "SECTIONS", quick[:2])
    target = tmp_path / "RESULTS.md"
    assert report.main(["--out", str(target)]) == 0
    page = target.read_text(encoding="utf-8")
    head, codes, versions = page.split("\n## ")
    assert re.search(r"on \d{4}-\d\d-\d\d\. Measured on: fastgc .* NumPy", head)
    assert codes.startswith(f"Codes\n\n```sh\n{quick[0].command}\n```\n\nn=6 workers")
    assert "| binary | 2 |" in codes
    assert codes.endswith("\n\nA note.\n")
    assert "```text\nversion " in versions
    capsys.readouterr()
    monkeypatch.setattr(report, "SECTIONS", quick)
    assert report.main(["nothing"]) == 1  # a command fails
    out, err = capsys.readouterr()
    assert "Failed." in out
    assert "unknown code 'nosuch'" in err
    assert report.main(["codes", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Codes: {quick[0].command}"


def test_a_checkout_without_kernels_is_not_measured(monkeypatch):
    """It would hide an installed package from ``python -m pytest``, and run without C."""
    spec = importlib.util.spec_from_file_location("of_benches", BENCHES / "conftest.py")
    spec.loader.exec_module(conftest := importlib.util.module_from_spec(spec))
    source = BENCHES.parent / "fastgc" / "__init__.py"
    for backends, file, stops in (
        (["numba", "numpy"], source, True),
        (["c", "numpy"], source, False),
        (["numba", "numpy"], "/elsewhere/fastgc/__init__.py", False),
    ):
        monkeypatch.setattr(fastgc, "backends", lambda backends=backends: backends)
        monkeypatch.setattr(fastgc, "__file__", str(file))
        if stops:
            with pytest.raises(pytest.UsageError, match=r"no compiled kernels.*pip install -e"):
                conftest.pytest_configure(None)
        else:
            conftest.pytest_configure(None)
