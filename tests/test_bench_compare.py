"""benches/compare.py, on files as pytest-benchmark writes them."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytestmark = pytest.mark.any_backend

SCRIPT = Path(__file__).parents[1] / "benches" / "compare.py"
spec = importlib.util.spec_from_file_location("compare", SCRIPT)
sys.modules["compare"] = compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)


@pytest.fixture
def against(tmp_path):
    """Compare benchmarks, given as ``{name: (median, extra_info)}``."""

    def against(old, new, *options, node="here"):
        files = []
        for age, run, where in (("old", old, "here"), ("new", new, node)):
            saved = {
                "machine_info": {
                    "node": where,
                    "processor": "",
                    "machine": "x86_64",
                    "cpu": {"brand_raw": "Abacus 3000", "count": 2},
                },
                "commit_info": {"id": f"{age}0123456789abcdef", "dirty": age == "new"},
                "benchmarks": [
                    {"fullname": name, "stats": {"median": median}, "extra_info": info}
                    for name, (median, info) in run.items()
                ],
            }
            files.append(tmp_path / f"{age}.json")
            files[-1].write_text(json.dumps(saved))
        return CliRunner().invoke(compare.app, [*map(str, files), *options])

    return against


BEFORE = {
    "b.py::test_solve[locator-16]": (2e-6, {"error": 1e-14, "n": 16}),
    "b.py::test_root[1]": (3e-6, {"median_error": 1e-9, "worst_error": 1e-7}),
    "b.py::test_start": (0.1, {"what": "import"}),
}
SOLVE, ROOT, START = BEFORE


def changed(name, median=None, **info):
    """Return BEFORE with one benchmark changed."""
    before, infos = BEFORE[name]
    return {**BEFORE, name: (median or before, {**infos, **info})}


def test_equal_files_pass(against):
    result = against(BEFORE, BEFORE)
    assert result.exit_code == 0, result.output
    assert "benchmarks compared: 3, worse: 0" in result.output
    assert "old0123456," in result.output
    assert "new0123456 with changes, here, 2 × Abacus 3000" in result.output
    assert "warning" not in result.output


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (changed(SOLVE, 2.8e-6), f"{SOLVE}: time 2.8 µs, was 2 µs (1.4 times)"),
        (changed(START, 0.2), f"{START}: time 200000 µs, was 100000 µs (2 times)"),
        (changed(SOLVE, error=4e-14), f"{SOLVE}: error 4e-14, was 1e-14 (4 times)"),
        (changed(SOLVE, error=-4e-14), f"{SOLVE}: error -4e-14, was 1e-14 (4 times)"),
        (changed(ROOT, worst_error=1e-6), f"{ROOT}: worst_error 1e-06, was 1e-07 (10 times)"),
        (changed(SOLVE, error=math.nan), f"{SOLVE}: error nan, was 1e-14\n"),
        (changed(SOLVE, error=math.inf), f"{SOLVE}: error inf, was 1e-14\n"),
        (
            {**BEFORE, ROOT: (3e-6, {"median_error": 1e-9})},
            f"{ROOT}: worst_error no longer measured, was 1e-07",
        ),
        ({**BEFORE, SOLVE: (2e-6, {})}, f"{SOLVE}: error no longer measured, was 1e-14"),
    ],
)
def test_worse_fails(against, new, says):
    result = against(BEFORE, new)
    assert result.exit_code == 1, result.output
    assert f"worse: {says}" in result.output
    assert result.output.count("\nworse: ") == 1
    assert "benchmarks compared: 3, worse: 1 " in result.output


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BEFORE, changed(SOLVE, 2.5e-6)),
        (BEFORE, changed(SOLVE, 1e-9, error=0)),
        (BEFORE, changed(SOLVE, error=2e-14)),
        (changed(SOLVE, error=2e-16), changed(SOLVE, error=6e-16)),
        (changed(SOLVE, error=0), changed(SOLVE, error=2e-15)),
        (changed(SOLVE, error=math.nan), changed(SOLVE, error=math.nan)),
        (changed(SOLVE, error=math.nan), BEFORE),
        (changed(SOLVE, error=math.inf), changed(SOLVE, error=1e300)),
        (BEFORE, changed(START, error=1)),  # measured for the first time
    ],
)
def test_better_or_as_good_passes(against, old, new):
    result = against(old, new)
    assert result.exit_code == 0, result.output


def test_limits_are_options(against):
    slower, looser = changed(SOLVE, 5e-6), changed(SOLVE, error=9e-14)
    assert against(BEFORE, slower, "--time", "3").exit_code == 0
    assert against(BEFORE, slower, "--time", "2").exit_code == 1
    assert against(BEFORE, looser, "--error", "10").exit_code == 0
    assert against(BEFORE, looser, "--error-floor", "1e-13").exit_code == 0
    assert against(BEFORE, looser, "--error-floor", "2e-14").exit_code == 1
    assert against(BEFORE, BEFORE, "--error-floor", "0").exit_code == 2


def test_new_and_removed_are_named(against):
    one = {SOLVE: BEFORE[SOLVE]}
    more = against(one, BEFORE)
    assert more.exit_code == 0
    assert f"new: {ROOT}\nnew: {START}\nbenchmarks compared: 1, worse: 0" in more.output
    fewer = against(BEFORE, one)
    assert fewer.exit_code == 0
    assert f"no longer there: {ROOT}\nno longer there: {START}\n" in fewer.output


def test_worst_first(against):
    """A benchmark that fails comes before one that grew more but may."""
    new = {SOLVE: (5e-6, {"error": 1e-14}), ROOT: (3e-6, {"median_error": 2.9e-9})}
    old = {ROOT: (3e-6, {"median_error": 1e-9}), START: (1, {}), SOLVE: BEFORE[SOLVE]}
    result = against(old, {START: (1, {}), **new}, "--markdown")
    assert result.exit_code == 1
    assert result.output.splitlines()[5:] == [
        f"| `{SOLVE}` | 2 | 5 | 2.5 | 1e-14 | 1e-14 | 1 |",
        f"| `{ROOT}` | 3 | 3 | 1 | 1e-09 | 3e-09 | 2.9 |",
        f"| `{START}` | 1000000 | 1000000 | 1 | – | – | – |",
        "",
        f"- worse: {SOLVE}: time 5 µs, was 2 µs (2.5 times)",
        "- benchmarks compared: 3, worse: 1 (over 1.3 times as long, or 3 times the error)",
    ]


def test_names_are_whole_in_a_narrow_terminal(against, monkeypatch):
    """Names have parameters in brackets, which rich would take for markup."""
    monkeypatch.setenv("COLUMNS", "80")
    name = f"benches/test_x.py::test_{'long_' * 12}[bold-:cross:]"
    output = against({name: (1, {})}, {name: (1, {})}).output
    assert max(map(len, output.splitlines()[2:])) <= 80
    cells = [line[: line.index("  ")] for line in output.splitlines() if "  " in line.lstrip()]
    assert name in "".join(map(str.strip, cells))


def test_json(against):
    result = against(BEFORE, changed(SOLVE, error=math.nan), "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["worse"] == [f"{SOLVE}: error nan, was 1e-14"]
    time, error = report["benchmarks"][SOLVE]
    assert time == {"figure": "time", "old": 2e-6, "new": 2e-6, "ratio": 1, "worse": False}
    assert error == {"figure": "error", "old": 1e-14, "new": None, "ratio": None, "worse": True}
    assert next(iter(report["benchmarks"])) == SOLVE
    assert report["runs"]["old"]["commit"] == "commit old0123456"


def test_warns_of_another_machine(against):
    result = against(BEFORE, BEFORE, "--json", node="elsewhere")
    assert result.exit_code == 0
    assert "measured on two machines" in result.stderr
    json.loads(result.stdout)


def test_nothing_in_common(against):
    result = against({SOLVE: BEFORE[SOLVE]}, {ROOT: BEFORE[ROOT]})
    assert result.exit_code == 2
    assert "none in common" in result.output
    assert against({}, {}).exit_code == 2


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ('{"benchmarks": [{"fullname"', "not JSON, or not all of it"),
        ("", "not JSON"),
        ("[]", "was not written by pytest-benchmark"),
        ("null", "was not written by pytest-benchmark"),
        ('{"benchmarks": []}', "was not written by pytest-benchmark"),
        (None, "No such file"),
    ],
)
def test_bad_files_are_one_line(against, tmp_path, new, says):
    against(BEFORE, BEFORE)
    old, bad = tmp_path / "old.json", tmp_path / "bad.json"
    if new is not None:
        bad.write_text(new)
    for files in ([old, bad], [bad, old]):
        result = CliRunner().invoke(compare.app, list(map(str, files)))
        assert result.exit_code == 2
        assert says in result.output
        assert "bad.json" in result.output
        assert result.output.count("\n") == 1


@pytest.mark.parametrize("error", ["1e-15", None, True, [1e-15]])
def test_an_error_is_a_number(against, error):
    result = against(BEFORE, changed(SOLVE, error=error))
    assert result.exit_code == 2
    assert f"{SOLVE}: error is not a number but {error!r}" in result.output


def test_a_time_is_positive(against):
    result = against(changed(SOLVE, math.nan), BEFORE)
    assert result.exit_code == 2
    assert f"{SOLVE} took nan s" in result.output


def test_real_file(tmp_path):
    pytest.importorskip("pytest_benchmark")
    (tmp_path / "test_tiny.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_sum(benchmark, n):\n"
        "    benchmark.pedantic(sum, ([0.1] * 10**n,), rounds=5, iterations=100)\n"
        "    benchmark.extra_info.update(error=float('nan') if n == 1 else 1e-16)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_benchmark.plugin"]
    command += ["--benchmark-json", "run.json"]
    # In one of several processes, pytest-benchmark measures nothing.
    alone = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    alone["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=alone)
    file = str(tmp_path / "run.json")
    done = subprocess.run(
        [sys.executable, SCRIPT, file, file], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert "benchmarks compared: 2, worse: 0" in done.stdout
    run = compare.read(Path(file))
    assert list(run.benchmarks) == ["test_tiny.py::test_sum[1]", "test_tiny.py::test_sum[2]"]
    assert math.isnan(run.benchmarks["test_tiny.py::test_sum[1]"]["error"])
    assert set(run.benchmarks["test_tiny.py::test_sum[2]"]) == {"time", "error"}
