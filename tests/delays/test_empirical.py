"""Recorded times: their laws, the files that they are read from, and models fitted to them."""

import itertools
import json
import math
import pickle
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

import fastgc
from fastgc.delays import (
    Empirical,
    Exponential,
    Heterogeneous,
    Mixture,
    Pareto,
    ShiftedExponential,
    fit,
    parse,
)
from fastgc.planning.simulation import simulate

TIMES = np.random.default_rng(0).random((7, 4))


def write(path, times, names=None):
    """Write a table in the format of its name's suffix."""
    if path.suffix == ".npy":
        np.save(path, times)
    elif path.suffix == ".npz":
        np.savez(path, seconds=times)
    elif path.suffix == ".json":
        path.write_text(json.dumps(times.tolist()))
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        names = names or [f"w{i}" for i in range(times.shape[1])]
        parquet.write_table(pyarrow.table(dict(zip(names, times.T, strict=True))), path)
    else:
        separator = {".csv": ",", ".tsv": "\t", ".txt": " "}[path.suffix]
        head = "" if names is None else separator.join(names)
        np.savetxt(path, times, delimiter=separator, fmt="%.17g", header=head, comments="")


KINDS = [".csv", ".tsv", ".txt", ".npy", ".npz", ".json", ".parquet"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("unit", "many"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("NS", 1e9)])
def test_read_every_kind_of_file(tmp_path, kind, unit, many):
    path = tmp_path / f"times{kind}"
    write(path, TIMES)
    read = Empirical.read(path, unit)
    assert read == Empirical(TIMES / many)
    assert read.joint
    assert Empirical.read(str(path), per="computation") == Empirical(TIMES, "computation")
    assert parse(f"empirical:{path},unit={unit}") == read


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".txt", ".parquet"])
@pytest.mark.parametrize("first", ["round", "Step", "INDEX", "iteration"])
def test_read_leaves_out_a_column_that_numbers_rounds(tmp_path, kind, first):
    path = tmp_path / f"times{kind}"
    numbered = np.column_stack([np.arange(7), TIMES])
    write(path, numbered, [first, "a", "b", "c", "d"])
    assert Empirical.read(path) == Empirical(TIMES)
    write(path, TIMES, list("abcd"))
    assert Empirical.read(path) == Empirical(TIMES)
    path = tmp_path / f"other{kind}"
    write(path, TIMES, ["w0", first, "w2", "w3"])  # in another column it is an ordinary name
    assert Empirical.read(path) == Empirical(TIMES)


@pytest.mark.parametrize(
    "text",
    [
        ",0,1,2\n0,3,4,5\n1,6,7,8\n",  # as pandas writes it
        '# of a cluster\n\n"","a, b",c,d\n0,3,4,5\n\n1,6,7,8\n',
        "3;4;5\n6;7;8",
        "a;b;c\r\n3;4;5\r\n6;7;8\r\n",
        "round,0,1,2\n5,3,4,5\n6,6,7,8\n",
        "\ufeff3, 4, 5\n6, 7, 8\n",
    ],
)
def test_read_lines_as_others_write_them(tmp_path, text):
    path = tmp_path / "times.csv"
    path.write_bytes(text.encode())
    assert Empirical.read(path) == Empirical([[3, 4, 5], [6, 7, 8]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "1,2.5,3"),
        ("a.csv", ",0\n0,1\n1,2.5\n2,3"),
        ("a.txt", "1  2.5 3"),
        ("a.txt", "\n1\n2.5\n\n3\n"),
        ("a.json", "\ufeff[1, 2.5, 3]"),
    ],
)
def test_read_pools_one_line_or_column(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert Empirical.read(tmp_path / name) == Empirical([1, 2.5, 3])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "1,2\n3,\n", r"a\.csv: line 2, column 2: the time is missing;"),
        ("a.csv", "x,y\n1,2\nnan,NA\n", r"line 3, column 1: the time is missing \(and 1 more\)"),
        ("a.csv", "# x\n\nround,x,y\n1,2,3\n2,-4,5\n", "line 5, column 2: the time is negative"),
        ("a.csv", "1,2\n3,inf\n", "line 2, column 2: the time is infinite"),
        ("a.csv", "1,x\n3,4\n", "line 1, column 2: 'x' is no number"),
        ("a.csv", ",2\n3,4\n", "line 1, column 1: the time is missing"),
        ("a.csv", "1,2\n\n3,4,5\n", "line 3 has 3 columns, where line 1 has 2"),
        ("a.csv", "1\n2\n-3\n", "line 3, column 1: the time is negative"),
        ("a.txt", "1 2 -3\n", "line 1, column 3: the time is negative"),
        ("a.csv", "round,worker,seconds\n0,0,1.5\n", "a column 'worker', as a list of single"),
        ("a.csv", "a,b\n", "it holds no times"),
        ("a.csv", "round\n1\n", "it has no column of times"),
        ("a.csv", "# nothing\n", "it holds no times"),
        ("a.json", "[1, 2, -3]", "row 3: the time is negative"),
        ("a.json", f"[1{'0' * 400}]", "a.json: ."),
        ("a.json", "[[1, 2], [3]]", "row 2 is not as long as the first one"),
        ("a.json", "[1, [2]]", "row 2 is not as long as the first one"),
        ("a.json", "7", "it must be a list of times"),
        ("a.json", '{"times": [[1]]}', "it must be a list of times"),
        ("a.pkl", "nothing", r"\.npy, \.npz, \.json, \.csv, \.tsv, \.txt, \.parquet"),
    ],
)
def test_read_refused(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=says):
        Empirical.read(path)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ones((2, 2, 2)), r"this has the shape \(2, 2, 2\)"),
        (np.ones((2, 2), bool), "its entries must .*not bool"),
        (np.array([[1, np.nan]]), "row 1, column 2: the time is missing"),
        (np.empty((0, 3)), "it holds no times"),
    ],
)
def test_read_refuses_arrays(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match=says):
            Empirical.read(tmp_path / name)


def test_read_one_of_several_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", other=np.ones(3), times=TIMES)
    assert Empirical.read(tmp_path / "a.npz") == Empirical(TIMES)
    np.savez(tmp_path / "b.npz", other=np.ones(3), seconds=TIMES)
    with pytest.raises(ValueError, match=r"called times, .* there are other, seconds"):
        Empirical.read(tmp_path / "b.npz")


def test_read_refuses_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    for columns, says in (
        ({"a": [1.0, None], "b": [2.0, 3.0]}, "row 2, column 'a': the time is missing"),
        ({"round": [0, 1], "a": [1, 2], "b": [3, -3]}, "row 2, column 'b': the time is negative"),
        ({"a": ["x", "y"]}, "column 'a': its entries are no real numbers, but string"),
        ({"worker": [0, 1], "seconds": [1.0, 2.0]}, "a column 'worker'"),
        ({"round": [0, 1]}, "it has no column of times"),
        ({}, "it holds no times"),
    ):
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(ValueError, match=says):
            Empirical.read(path)
    path.write_text("nothing")
    with pytest.raises(ValueError, match=r"a\.parquet is no "):
        Empirical.read(path)


def test_read_parquet_without_pyarrow(tmp_path, monkeypatch):

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_text("")
    with pytest.raises(ImportError, match=r'parquet files need PyArrow: pip install ".*parquet\]"'):
        Empirical.read(tmp_path / "a.parquet")


@pytest.mark.parametrize(("unit", "error"), [("day", ValueError), (3, TypeError)])
def test_read_unknown_units(tmp_path, unit, error):
    with pytest.raises(error, match="unit must be"):
        Empirical.read(tmp_path / "nowhere.csv", unit)
    with pytest.raises(ValueError, match=r"per must be .* 'day'"):
        Empirical.read(tmp_path / "nowhere.csv", per="day")


def test_read_keeps_whole_rounds(tmp_path):
    """One of two workers is always late, in turns; drawn independently, both often would be."""
    path = tmp_path / "times.csv"
    path.write_text("1,9\n9,1\n" * 5)
    model = parse(f"empirical:{path}")
    code = fastgc.FractionalRepetition(2, stragglers=1)
    assert simulate(code, model, rounds=200).times == pytest.approx(1)
    assert all(model.sample(r, 2, 0).sum() == 10 for r in range(20))


# All kinds of smoothness: kinks, steps, tails of powers and lighter ones.
RECORDED = [0.3, 0.1, 0.2, 0.1, 2.5]


@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 3), (2, 3), (3, 3), (2, 5), (5, 5)])
def test_order_statistic_mean_against_every_tuple(f, n, bare):
    tuples = np.sort(list(itertools.product(RECORDED, repeat=n)), axis=1)
    model = Empirical(RECORDED)
    assert model.order_statistic_mean(f, n) == pytest.approx(tuples[:, f - 1].mean(), rel=1e-12)
    # The same law by quadrature of its steps: alone, mixed with itself, and for each worker.
    for same in (Mixture([model, model], [0.25, 0.75]), bare(model), Heterogeneous([model] * n)):
        if not isinstance(same, bare):  # `bare` does not know where the steps are
            expected = pytest.approx(tuples[:, f - 1].mean(), rel=1e-12)
            assert same.order_statistic_mean(f, n) == expected


def test_empirical_has_no_negative_zeros():
    model = Empirical([-0.0, 1.0])
    assert not np.signbit(model.samples).any()
    assert Mixture([model, Exponential(1)], [0.5, 0.5]).quantile([0.1, 0.25]).tolist() == [0, 0]


def test_empirical_of_rounds(refuse_other_numbers):
    rounds = np.array([[1.0, 2, 3], [4, 6, 5]])
    model = Empirical(rounds)
    assert [model.order_statistic_mean(f, 3) for f in (1, 2, 3)] == [2.5, 3.5, 4.5]
    assert Empirical(rounds.ravel()).order_statistic_mean(1, 3) != 2.5
    drawn = model.draw(np.random.default_rng(0), 400, 3)
    firsts = drawn[:, 0] == 1
    np.testing.assert_array_equal(drawn[firsts], np.broadcast_to(rounds[0], drawn[firsts].shape))
    np.testing.assert_array_equal(drawn[~firsts], np.broadcast_to(rounds[1], drawn[~firsts].shape))
    assert abs(firsts.sum() - 200) < 40
    assert {tuple(model.sample(r, 3, seed=1)) for r in range(30)} == set(map(tuple, rounds))
    assert model.mean() == 3.5
    assert model.cdf(3) == 0.5
    assert model.quantile(0.5) == 3
    refuse_other_numbers(model, "of 3 workers, not of [24]: pool the samples")


def test_empirical_keeps_its_samples():
    given = np.array([3, 1, 2])
    model = Empirical(given)
    given[0] = 7
    assert model.samples.tolist() == [3, 1, 2]
    assert model.samples.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        model.samples[0] = 1
    assert model == Empirical([3.0, 1.0, 2.0])
    assert hash(model) == hash(Empirical([3.0, 1.0, 2.0]))
    assert model != Empirical([1, 2, 3])
    assert model != Empirical([3, 1, 2], per="computation")
    assert model != Empirical([[3, 1, 2]])
    assert model != 3
    assert repr(model) == "Empirical(3 samples, mean 2, per='round')"
    assert (
        repr(Empirical(np.ones((4, 2)))) == "Empirical(4 rounds of 2 workers, mean 1, per='round')"
    )


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([[[1.0]]], ValueError, r"samples must .*not \(1, 1, 1\)"),
        (1.0, ValueError, r"samples must .*not \(\)"),
        ([1, -2], ValueError, "samples must .*got -2"),
        ([[1, math.inf]], ValueError, r"samples\[0, 1\] is inf"),
        ([1j], TypeError, "samples must be real"),
    ],
)
def test_empirical_refused(samples, error, message):
    with pytest.raises(error, match=message):
        Empirical(samples)
    with pytest.raises(ValueError, match="per must be"):
        Empirical([1], "day")


PARETO = Pareto(0.005, 1.3)


SHIFTED = ShiftedExponential(0.2, 10, per="round")


EXPONENTIAL = Exponential(0.03)
FAMILIES = {"pareto": PARETO, "shifted-exponential": SHIFTED, "exponential": EXPONENTIAL}
KIND_OF = {type(model): kind for kind, model in FAMILIES.items()}


def recorded(model, n, seed=0):
    return model.draw(np.random.default_rng(seed), 1, n)[0]


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_fit_against_scipy(model):
    """Also the likelihood: it is the largest nearby."""
    stats = pytest.importorskip("scipy.stats")
    times = recorded(model, 300)
    near = 0.97, 1, 1.03
    for kind, count in ((Pareto, 2), (ShiftedExponential, 2), (Exponential, 1)):
        [each] = fit(times, [KIND_OF[kind]], draws=19)
        assert type(each.model) is kind
        if kind is Pareto:
            laws = [
                stats.pareto(b=each.model.shape * a, scale=each.model.scale * b)
                for a, b in itertools.product(near, near)
            ]
        else:
            shift = getattr(each.model, "shift", 0)
            mean = each.model.mean() - shift
            laws = [stats.expon(shift * a, mean * b) for a, b in itertools.product(near, near)]
        best = laws[4]
        assert each.log_likelihood == pytest.approx(best.logpdf(times).sum(), rel=1e-9)
        assert each.aic == pytest.approx(2 * count - 2 * each.log_likelihood, rel=1e-12)
        assert each.ks == pytest.approx(stats.kstest(times, best.cdf).statistic, rel=1e-9)
        assert each.model.per == "round"
        for law in laws:
            assert law.logpdf(times).sum() <= each.log_likelihood + 1e-9 * times.size


@pytest.mark.parametrize("seed", range(5))
def test_fit_finds_the_family(seed):
    for kind, model in FAMILIES.items():
        fits = fit(recorded(model, 500, seed))
        assert [each.aic for each in fits] == sorted(each.aic for each in fits)
        alike = 2 if kind == "exponential" else 1  # a shift may be nearly 0
        assert type(model) in [type(each.model) for each in fits[:alike]]
        for at, each in enumerate(fits):
            assert each.p_value > 0.01 if at < alike else 1 / 200 <= each.p_value < 0.05


@pytest.mark.parametrize("kind", FAMILIES)
def test_fit_p_values_are_uniform(kind):
    stats = pytest.importorskip("scipy.stats")
    values = [
        fit(recorded(FAMILIES[kind], 25, seed), [kind], draws=99, seed=seed)[0].p_value
        for seed in range(much(300, 100))
    ]
    # Multiples of 1/100, equally likely, are spread evenly over the hundredth below.
    spread = np.array(values) - np.random.default_rng(0).random(len(values)) / 100
    assert stats.kstest(spread, "uniform").pvalue > 1e-4


def test_fit_p_values_depend_on_seed_not_scale():
    times = recorded(SHIFTED, 60)
    for one, other in zip(fit(times), fit(1000 * times), strict=True):
        assert type(one.model) is type(other.model)
        assert one.ks == pytest.approx(other.ks, rel=1e-9)
        assert one.p_value == pytest.approx(other.p_value, abs=0.011)
    assert fit(times) == fit(times)
    assert fit(times, seed=1) != fit(times)


def test_fit_progress(monkeypatch):
    """The bar ends when all samples of all kinds are drawn."""
    done = []

    @contextmanager
    def bar(name, total):
        yield lambda: done.append(total)

    monkeypatch.setattr("fastgc._base.progress.task_bar", bar)
    fit([1.0, 2.0, 4.0], draws=19)
    assert done == []
    fit([1.0, 2.0, 4.0], draws=19, progress=True)
    assert done == [3 * 19] * 57


@pytest.mark.parametrize(
    "times", [[1, 1 + 2.0**-52], [1e-150, 2e-150], [1e-150, 1e150], [1e149, 1e149 * (1 + 2.0**-52)]]
)
def test_fit_of_times_next_to_each_other_or_far_apart(times):
    # The distance of two times from a fit is the same for any two, but with exponentials.
    plain = {type(each.model): each for each in fit([1, 2])}
    for each in fit(times):
        assert math.isfinite(each.aic)
        if not isinstance(each.model, Exponential):
            assert each.ks == pytest.approx(plain[type(each.model)].ks, rel=1e-9)
            assert each.p_value == pytest.approx(plain[type(each.model)].p_value, abs=0.011)


def test_fit_loads():
    loads = np.array([1, 2, 5, 10])
    single = SHIFTED.draw(np.random.default_rng(4), 50, 4)
    fits, expected = fit(single * loads, loads=loads), fit(single)
    for each, plain in zip(fits, expected, strict=True):
        assert each.model.per == "computation"
        assert each.model.mean() == pytest.approx(plain.model.mean(), rel=1e-12)
        assert each.ks == pytest.approx(plain.ks, rel=1e-9)
    assert fit(3 * single, loads=3)[0].model.mean() == pytest.approx(fits[0].model.mean())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=30).filter(lambda t: min(t) < max(t)))
def test_fit_of_any_times(times):
    for each in fit(times, draws=3):
        assert 0 < each.ks <= 1
        assert each.p_value in (0.25, 0.5, 0.75, 1)
        assert math.isfinite(each.aic)


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        ([1], {}, "got 1 from 1.0 to 1.0"),
        ([2, 2, 2], {}, "got 3 from 2.0 to 2.0"),
        ([0, 1], {}, "got 2 from 0.0"),
        ([1, -1], {}, "times must not be negative, got -1.0"),
        ([1, 2], {"kinds": ["gauss"]}, "'gauss': choose from pareto, "),
        ([1, 2], {"loads": [1, 2, 3]}, r"loads of shape \(3,\) do not fit times of shape \(2,\)"),
        ([1, 2], {"loads": [1, 0]}, "loads must be positive, got 0.0"),
        ([1, 2], {"loads": [1, math.nan]}, r"loads\[1\] is nan"),
        ([1, 2], {"draws": 0}, "draws must .*not 0"),
        ([1, 2], {"seed": -1}, "seed must .*not -1"),
        ([1, 2], {"kinds": ()}, "kinds must name a model"),
        pytest.param([1, 1e-310], {}, "got 1e-310 to 1.0", marks=pytest.mark.subnormal),
        ([1, 1e308], {}, "got 1.0 to 1e.308"),
        ([1, 1e308], {"loads": [1, 1e-9]}, "got 1.0 to inf"),
    ],
)
def test_fit_refused(times, options, message):
    with pytest.raises(ValueError, match=message):
        fit(times, **options)


@pytest.mark.parametrize("file", ["times.csv", Path("times.csv")])
@pytest.mark.parametrize("take", [fit, Empirical])
def test_times_refuse_a_file_and_say_how_to_read_it(take, file):
    with pytest.raises(TypeError, match=r"'times\.csv'\)?: Empirical\.read\(path\)\.samples "):
        take(file)


def test_use_leaves_the_pickle_as_it_was():
    trace = Empirical(np.random.default_rng(0).random((50, 20)), per="computation")
    before = pickle.dumps(trace)
    trace.cdf([0.5]), trace.quantile([0.5]), trace.mean()
    assert len(pickle.dumps(trace)) == len(before)
    again = pickle.loads(pickle.dumps(trace))
    assert again.quantile([0.5]) == trace.quantile([0.5])
    assert again.per == "computation"
