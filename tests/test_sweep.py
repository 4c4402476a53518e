"""Grids of codes, workers, stragglers and delays: each cell agrees with its own simulation."""

import csv
import json
import math
import re
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import fastgc
from fastgc import delays, planning, simulation
from fastgc.cli import app
from fastgc.planning.sweep import Cell

pytestmark = pytest.mark.any_backend

module = sys.modules[planning.Sweep.__module__]  # a function has the same name

LATE = "exponential:mean=0.01"
SMALL = ("--rounds", "60", "--delays", LATE)


def run(*arguments):
    return CliRunner().invoke(app, ["sweep", *arguments])


def cells_of(text):
    return list(csv.DictReader(text.splitlines()))


# ---------------------------------------------------------------------------------------- python


def test_cells_are_what_simulations_say():
    late = delays.parse(LATE)
    grid = planning.sweep("rs,bcc:load=3", [6, 9], [1, 2], late, work=0.09, rounds=300, seed=4)
    assert len(grid) == 8
    cells = list(grid)
    assert [(c.n, c.code, c.stragglers) for c in cells] == [
        (n, name, s) for n in (6, 9) for name in ("rs", "bcc:load=3") for s in (1, 2)
    ]
    for cell in cells:
        code = fastgc.codes.make(cell.code, cell.n, stragglers=cell.stragglers, seed=4)
        run = simulation.simulate(code, late, cost=0.09 / cell.n, rounds=300, seed=4)
        assert (cell.k, cell.load, cell.tolerated) == (code.k, code.load, code.stragglers)
        assert cell.seconds == run.mean
        assert cell.seconds_high - cell.seconds == pytest.approx(
            1.96 * run.standard_error, rel=1e-4
        )
        assert cell.seconds - cell.seconds_low == pytest.approx(1.96 * run.standard_error, rel=1e-4)
        assert (cell.median, cell.late) == tuple(run.quantile([0.5, 0.99]))
        assert (cell.workers, cell.messages) == (run.mean_workers, run.mean_messages)
        assert (cell.gradients, cell.computations) == (
            run.communication_load,
            run.mean_computations,
        )
        heard = [r.received for r in simulation.follow(code, late, cost=0.09 / cell.n, rounds=20,
                                                       seed=4).rounds]  # fmt: skip
        residuals = [code.residual(each) for each in heard]
        assert cell.residual == pytest.approx(np.sqrt(np.mean(np.square(residuals))), rel=1e-12)
        assert cell.largest_residual == max(residuals)
        assert cell.largest_error == max(code.trust(each).relative_error for each in heard)
        assert math.isnan(cell.measured)
        assert not cell.reason
    assert list(grid) == cells  # a second pass gives the same


def test_intervals_hold_the_mean_as_often_as_they_say():
    """With exponential delays and one worker, the mean is known."""
    inside = 0
    for seed in range(200):
        (cell,) = planning.sweep("uncoded", 1, 0, LATE, rounds=400, sets=1, seed=seed)
        inside += cell.seconds_low <= 0.01 <= cell.seconds_high
    assert 180 <= inside <= 199  # binomial: 190 expected, with a deviation of 3


def test_what_is_left_out_is_told():
    (cell,) = planning.sweep("ignore", 10, 3, LATE, rounds=50, seed=1)
    assert cell.residual == pytest.approx(math.sqrt(3 / 7))  # seven of ten, scaled up by 10/7
    assert cell.largest_error >= 0.5


def test_what_cannot_be_has_a_reason():
    found = list(planning.sweep("fractional", 6, [2, 3, 6], LATE, rounds=10))
    assert not found[0].reason
    assert "multiple of s + 1 = 4" in found[1].reason
    assert "stragglers must be in 0 .. n-1 = 5, not 6" in found[2].reason
    for cell in found[1:]:
        assert math.isnan(cell.seconds)
        assert cell.load == 0
        assert cell.reason in repr(cell)
    heavy = planning.sweep("uncoded,rs", 4, 3, "pareto:scale=1,shape=0.5", rounds=10)
    first, second = heavy
    assert "mean time of a round does not exist" in first.reason
    assert not second.reason
    assert second.mean_exists
    unlike = "2 of exponential:mean=1; 2 of exponential:mean=2"
    four, five = planning.sweep("rs", [4, 5], 1, unlike, rounds=10)
    assert not four.reason
    assert "the times of 4 workers, not of 5" in five.reason


def test_the_same_code_is_simulated_once(monkeypatch):
    made = []
    monkeypatch.setattr(
        module,
        "simulate",
        lambda code, *a, **k: made.append(code) or simulation.simulate(code, *a, **k),
    )
    cells = list(planning.sweep("uncoded", 5, range(4), [LATE, None], rounds=10))
    assert len(cells) == 8
    assert len(made) == 2
    assert {c.seconds for c in cells[:4]} == {cells[0].seconds}
    assert [c.stragglers for c in cells] == [0, 1, 2, 3] * 2


def test_own_codes_and_delays(tmp_path, monkeypatch):
    (tmp_path / "swept.py").write_text(
        "import numpy as np, fastgc\n"
        "class Ring(fastgc.Code):\n"
        "    def __init__(self, n, *, load):\n"
        "        self.n, self.k, self._load = n, n, load\n"
        "    def row(self, worker):\n"
        "        return (worker + np.arange(self._load)) % self.n, np.ones(self._load)\n"
        "class Late:\n"
        "    def __init__(self, mean): self.mean = mean\n"
        "    def sample(self, round, workers, seed):\n"
        "        return np.random.default_rng([seed, round]).exponential(self.mean, workers)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = run("--code", "swept:Ring", "-n", "6", "-s", "1:2", "--delays",
                 "swept:Late:mean=0.1", "--rounds", "50", "--csv", "-")  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = cells_of(result.stdout)
    assert [row["load"] for row in rows] == ["2", "3"]
    assert all(0.01 < float(row["seconds"]) < 1 for row in rows)


def test_arguments_that_fit_no_cell():
    for given, says in [
        ({"codes": []}, "name at least one code"),
        ({"codes": "turbo"}, "unknown code 'turbo'"),
        ({"n": 0}, "n must be at least 1, not 0"),
        ({"n": []}, "n must be one integer or several"),
        ({"stragglers": -1}, "stragglers must be at least 0, not -1"),
        ({"delays": "gauss:1"}, "unknown delay model"),
        ({"delays": []}, "not an empty sequence"),
        ({"cost": 1.0, "work": 1.0}, "exclude each other"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"live": -1}, "live must be at least 0"),
    ]:
        arguments = {"codes": "rs", "n": 4, "stragglers": 1} | given
        with pytest.raises(ValueError, match=says):
            planning.sweep(**arguments)


def cell(code, n, s, seconds, told="a", **more):
    given = {"seconds_low": seconds - 1, "seconds_high": seconds + 1, "largest_error": 1e-15}
    return Cell(code, n, n, s, told, 1, s, seconds, **(given | more))


def drawn(cells):
    """Return a sweep's axes, and for each the lines of measured points, or of joined ones."""
    plotting = pytest.importorskip("fastgc.plotting")
    rc_context = pytest.importorskip("matplotlib").rc_context
    with rc_context(plotting.style()):
        return plotting.sweep_curves(cells).figure.axes


def test_curves_join_neighbours_only():
    missing = Cell("binary", 8, 8, 1, "a", reason="no")
    cells = [cell("binary", 8, 0, 5.0), missing, cell("binary", 8, 2, 3.0, measured=4.0,
             measured_low=3.0, measured_high=5.0), cell("rs", 8, 0, 7.0, "b")]  # fmt: skip
    time, error, other, _ = drawn(cells)
    joined, points = time.lines
    np.testing.assert_array_equal(joined.get_xydata(), [[0, 5], [1, np.nan], [2, 3]])
    simulated, measured = time.collections
    np.testing.assert_array_equal(simulated.get_segments()[0], [[0, 4], [0, 6]])
    np.testing.assert_array_equal(measured.get_segments()[-1], [[2, 3], [2, 5]])
    assert joined.get_color() == points.get_color()  # the label tells them apart
    assert (joined.get_marker(), points.get_marker()) == ("None", "o")
    np.testing.assert_array_equal(points.get_ydata(), [np.nan, np.nan, 4])
    assert time.get_ylabel() == "time of a round (s; points: measured)"
    assert [ax.get_title() for ax in (time, error, other)] == [
        "fastest: binary, s=2: 3 s",
        "worst: binary, s=0: 1e-15",
        "fastest: rs, s=0: 7 s",
    ]
    assert [ax.get_xlabel() for ax in (time, error, other)] == [
        f"stragglers tolerated s\n{told}" for told in "aab"
    ]
    assert [line.get_label() for line in other.lines] == ["rs (Reed-Solomon)"]
    assert error.lines[0].get_ydata()[0] == 1e-15


def test_curves_of_several_sizes():
    by_workers, _ = drawn([cell("rs", n, 1, 0.1 * n) for n in (3, 2)])
    assert by_workers.get_xlabel() == "workers n"
    np.testing.assert_allclose(by_workers.lines[0].get_xydata(), [[2, 200], [3, 300]])
    assert by_workers.get_ylabel() == "time of a round (ms)"
    cells = [cell(code, n, s, 1.0 + n) for code in ("rs", "binary") for n in (3, 4) for s in (0, 1)]
    later = [1e-15 * (each.code == "rs") for each in cells]
    both, _ = drawn(
        [
            each._replace(seconds=each.seconds + 1e15 * late, largest_error=1e-15 + late)
            for each, late in zip(cells, later, strict=True)
        ]
    )
    # Colours stand for codes, dashes for numbers of workers.
    looks = [(line.get_color(), line.get_linestyle()) for line in both.lines]
    assert len({colour for colour, _ in looks}) == 2
    assert [colour for colour, _ in looks[::2]] == [colour for colour, _ in looks[1::2]]
    assert [dash for _, dash in looks] == ["-", "--"] * 2
    (legend,) = both.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("rs (Reed-Solomon)", "binary", "n = 3", "n = 4"),
    ]
    assert both.get_title() == "fastest: binary, n=3, s=0: 4 s"
    with pytest.raises(ValueError, match="no cell was computed"):
        drawn([Cell("binary", 8, 8, 1, "a", reason="no")])


def test_cells_are_measured_on_processes():
    (cell,) = planning.sweep("fractional", 2, 1, LATE, rounds=10, live=3)
    assert 0 < cell.measured_low < cell.measured < cell.measured_high or cell.measured_low <= 0
    assert cell.measured > 0
    (coded,) = planning.sweep("lcc", 2, 1, LATE, rounds=10, live=3)
    assert coded.reason.startswith("not measured: ")
    assert coded.seconds > 0
    assert math.isnan(coded.measured)


# --------------------------------------------------------------------------------------- command


def test_table_csv_json_and_plot(tmp_path):
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("out.csv", "out.json", "out.svg")]
    written = ("--csv", str(files[0]), "--json", str(files[1]), "--plot", str(files[2]))
    grid = ("--code", "rs,fractional", "--n", "6,8", "--s", "0:2", "--seed", "3")
    result = run(*grid, *SMALL, *written)
    assert result.exit_code == 0, result.output
    rows, held = cells_of(files[0].read_text()), json.loads(files[1].read_text())
    cells = list(planning.sweep("rs,fractional", [6, 8], [0, 1, 2], LATE, rounds=60, seed=3))
    assert len(rows) == len(held) == len(cells) == 12
    for row, each, cell in zip(rows, held, cells, strict=True):
        assert tuple(row) == tuple(each) == Cell._fields
        for name, value in cell._asdict().items():
            unknown = value is None or (isinstance(value, float) and math.isnan(value))
            assert each[name] == (None if unknown else value)
            assert row[name] == ("" if unknown else str(value))
    assert "multiple of s + 1 = 3, not 8" in rows[-1]["reason"]
    assert "fractional 8/2: fractional repetition needs" in result.stderr
    assert f"12 of 12 cells written to {files[0]}" in result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    for cell in cells[:-1]:
        begin = [cell.code, str(cell.n), str(cell.stragglers), str(cell.load)]
        assert [*begin, f"{1e3 * cell.seconds:.3g}"] in [line[:5] for line in lines]
    assert files[2].read_text().startswith("<?xml")


def test_printed_in_place_of_a_table():
    small = ("--code", "rs", "-n", "4", "-s", "1", *SMALL)
    (row,) = cells_of(run(*small, "--csv").stdout)
    (held,) = json.loads(run(*small, "--json", "-").stdout)
    assert float(row["seconds"]) == held["seconds"] > 0
    assert "| rs (Reed-Solomon) | 4 | 1 |" in run(*small, "--markdown").stdout
    several = run(*small, "--delays", "none").stdout
    assert f"{LATE}; 60 rounds each, seed 0" in several
    assert "none; 60 rounds each, seed 0" in several
    assert several.count("\n rs ") == 2


def test_ctrl_c_leaves_what_was_computed(tmp_path, monkeypatch):
    csv_file, json_file = tmp_path / "out.csv", tmp_path / "out.json"
    seen = []

    def interrupted(code, *rest, **more):
        if len(seen) == 2:
            # Earlier cells are in the file at this point, not only at the end.
            assert len(cells_of(csv_file.read_text())) == 2
            raise KeyboardInterrupt
        seen.append(code)
        return simulation.simulate(code, *rest, **more)

    monkeypatch.setattr(module, "simulate", interrupted)
    result = run("--code", "rs", "-n", "6", "-s", "0:5", *SMALL, "--csv", str(csv_file), "--json",
                 str(json_file))  # fmt: skip
    assert result.exit_code == 130
    assert f"2 of 6 cells written to {csv_file}" in result.stderr
    assert [row["stragglers"] for row in cells_of(csv_file.read_text())] == ["0", "1"]
    assert [each["stragglers"] for each in json.loads(json_file.read_text())] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--code", "turbo"], "unknown code 'turbo'"),
        (["-n", "ten"], "--workers: 'ten' is neither a number nor a range such as 0:8"),
        (["-s", "8:0"], "--stragglers: '8:0' has its larger end first"),
        (["-s", "0:8:0"], "'0:8:0' is neither"),
        (["-s", ","], "--stragglers must name a number"),
        (["-n", "0"], "--workers: there must be at least one worker, not '0'"),
        (["--delays", "gauss:1"], "unknown delay model"),
        (["--cost", "1", "--work", "1"], "exclude each other"),
        (["--csv", "out.txt"], "a file's name must end in .csv"),
        (["--json", "no/such/folder/out.json"], "there is no folder"),
        (["--plot", "out.bmp"], "must end in .png"),
        (["-n", "3", "-s", "5"], "no cell of the grid can be: rs 3/5, binary 3/5"),
    ],
)
def test_errors_are_one_line(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, "--rounds", "10")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert says in line
    assert not result.stdout
    assert not any(tmp_path.iterdir())


def test_ranges_end_with_their_last():
    from fastgc.cli.options import counts

    assert counts("-s", "0:8:2, 3,10:11") == [0, 2, 4, 6, 8, 3, 10, 11]
    assert counts("-s", "0:7:3") == [0, 3, 6]


def test_panels_of_approximate_codes_show_what_is_left_out():
    """Rounding errors and residuals do not share an axis."""
    cells = list(
        planning.sweep(
            ["graph:degree=2", "uncoded"], 8, [0, 2, 4], delays.Exponential(0.01), rounds=40
        )
    )
    _, left = drawn(cells)
    assert left.get_ylabel() == "left out, root mean square"
    assert left.get_yscale() == "linear"
    graph, whole = left.lines
    np.testing.assert_array_equal(graph.get_ydata(), [cell.residual for cell in cells[:3]])
    assert graph.get_ydata()[2] > 0.1
    assert ": leaves out " in graph.get_label().replace("\n", " ")
    assert left.get_title().startswith("worst: graph:degree…, s=4: leaves out ")
    np.testing.assert_array_equal(whole.get_ydata(), 0)
    _, exact = drawn(cells[3:])
    assert exact.get_ylabel() == "largest relative error"


def test_sizes_may_be_pairs_and_delays_may_have_names():
    law = delays.Exponential(0.01)
    grid = planning.sweep("rs,binary", [(6, 1), (6, 2), (8, 3)], None, [("mine", law)], rounds=10)
    cells = list(grid)
    assert len(grid) == len(cells) == 6
    assert {(cell.n, cell.stragglers) for cell in cells} == {(6, 1), (6, 2), (8, 3)}
    assert {cell.delays for cell in cells} == {"mine"}
    (one,) = planning.sweep("rs", 6, 2, law, rounds=10)
    assert one.seconds == next(
        cell.seconds for cell in cells if (cell.code, cell.n, cell.stragglers) == ("rs", 6, 2)
    )
    for n, says in (
        ([6, 8], "must be pairs"),
        ([], "one pair"),
        ([(0, 0)], "n must be at least 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            planning.sweep("rs", n)
    for named in (("mine", 3), ("mine", law, 2), (3, law)):
        with pytest.raises((TypeError, ValueError)):
            planning.sweep("rs", 6, 1, [named])


def test_workers_of_a_grid_differ_and_share_processors():
    from fastgc import simulation

    code, law = fastgc.ReedSolomon(6, stragglers=2), delays.Exponential(0.01)
    cost = np.linspace(0.01, 0.06, 6)
    for how in ({"cost": cost}, {"cost": 0.05, "processors": 2}, {"work": 6 * cost}):
        (cell,) = planning.sweep("rs", 6, 2, law, rounds=40, **how)
        same = {"cost": cost} if "work" in how else how
        assert cell.seconds == simulation.simulate(code, law, rounds=40, **same).mean
    with pytest.raises(ValueError, match="cost"):
        planning.sweep("rs", [6, 7], 2, law, cost=cost)


def test_a_sweep_tells_how_far_it_is(monkeypatch):
    told = []
    list(planning.sweep("rs", 6, 2, rounds=30, sets=4, progress=lambda *at: told.append(at)))
    assert {total for _, total in told} == {3}
    done = [at for at, _ in told]
    assert done == sorted(done)
    assert done[-1] == 3
    assert len(done) >= 9  # after each round that is followed, and each set that is decoded
    monkeypatch.setattr("fastgc._base.progress.PATIENCE", -1.0)
    said = run("rs", "-n", "6", "-s", "2", *SMALL).stderr
    assert re.match(r"sweeping: \d+% after 0 s$", said.strip())
