"""Choose which tests run, and prove which build is tested.

``--backend numba`` has fastgc call Numba's kernels where there are any; tests marked
``every_backend`` and ``numba`` are for that. Without a cache, Numba compiles for minutes: tests
that have it compile run only so, or with ``--long``, as do tests that are marked ``long``.
"""

import functools
import gc
import importlib.util
import os
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

# Numba's cache lies in the checkout, so that it outlasts installations of fastgc. A kernel is
# compiled again when its sources have changed (fastgc/kernels/numba/njit.py).
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".numba_cache"))
# Two processes test at a time. BLAS's threads spin while they wait for each other; if other
# processes use the cores, a small problem takes hundreds of times as long.
for name in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
    os.environ.setdefault(name, "1")
# PyTorch asks the name server for the name of each address that a store's connection has, and waits
# five seconds for each lost question: forty ranks that started at once took 16 s instead of 2.
# Tests connect to this machine only.
os.environ.setdefault("RES_OPTIONS", "attempts:0")
# Keep pytest's rewritten tests even if PYTHONDONTWRITEBYTECODE is set: rewriting them takes each
# process longer than everything else before the first test.
sys.dont_write_bytecode = False

import numpy as np
import pytest

import fastgc

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "fastgc"
IMPORTED = Path(fastgc.__file__).resolve().parent


class Beside:
    """Finds modules of this folder, which pytest's importlib mode leaves off the path.

    And the package of papers' figures, a program in benches.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "papers":
            file = HERE.parent / "benches" / "papers" / "__init__.py"
            return importlib.util.spec_from_file_location(
                name, file, submodule_search_locations=[str(file.parent)]
            )
        for file in HERE / f"{name}.py", HERE / name / "__init__.py":
            if file.exists():
                return importlib.util.spec_from_file_location(name, file)
        return None


sys.meta_path.insert(0, Beside)
import floating
import leftovers
import strength

# Numba compiles for each dtype. It treats these like others: without --long, the others suffice.
TWINS = {"float32", "complex64", "bfloat16"}


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="run all there is, at full strength: also tests that are marked long, and Hypothesis "
        "with as many examples as tests ask for, others each time",
    )
    parser.addoption(
        "--backend",
        choices=["c", "numba"],
        default=os.environ.get("FASTGC_BACKEND") or "c",
        help="whose kernels fastgc calls",
    )
    parser.addoption(
        "--floats",
        choices=sorted(floating.MODES),
        help="run each test where NumPy raises if a line of fastgc underflows, or where subnormal "
        "numbers are flushed to zero",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run the whole suite in two processes if pytest-xdist is installed, unless -n is given."""
    option = config.option
    if option.long and option.timeout is None:
        option.timeout = 1200  # seconds, ten times those of pyproject.toml
    whole = config.args_source is config.ArgsSource.TESTPATHS and not option.collectonly
    ours = "PYTEST_XDIST_WORKER" not in os.environ  # else this is one of the two
    if whole and ours and not option.usepdb and getattr(option, "numprocesses", 0) is None:
        option.numprocesses = 2
        option.dist = "worksteal"  # neither waits long for the other at the end


def pytest_configure(config):
    for line in (
        "c_only: compares calls of C with each other; is left out with --backend numba",
        "every_backend: is of kernels that Numba has, too",
        "numba: has Numba compile; runs with --backend numba or --long only",
        "long: runs with --long only",
        "subnormal: fails by nature where subnormal numbers count as zero (--floats flush)",
        "few(count): without --long runs for `count` of its sets of parameters, spread evenly over "
        "all of them",
    ):
        config.addinivalue_line("markers", line)
    os.environ["FASTGC_BACKEND"] = config.getoption("--backend")  # before kernels are loaded
    strength.begin(config.getoption("--long"))
    leftovers.begin()
    if os.environ.get("FASTGC_TEST_INSTALLED") == "1" and IMPORTED == SOURCE:
        raise pytest.UsageError(
            f"FASTGC_TEST_INSTALLED=1, but fastgc was imported from the checkout: {fastgc.__file__}"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Run a test in the mode that ``--floats`` names."""
    with floating.MODES.get(item.config.getoption("--floats"), nullcontext)():
        return (yield)


def pytest_report_header(config):
    from fastgc.kernels import threads
    from fastgc.kernels.c import simd

    kind = "the checkout, or an editable install of it" if IMPORTED == SOURCE else "installed"
    lines = [f"fastgc {fastgc.__version__} from {IMPORTED} ({kind})"]
    lines.append(
        f"kernels: {fastgc.backend()}; simd: {simd()}; threads: {threads.get_num_threads()}"
    )
    return lines


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        leave_out(config, items)


def leave_out(config, items):
    compiling = config.getoption("--backend") == "numba"

    def is_long(item):
        if item.get_closest_marker("long"):
            return True
        if item.get_closest_marker("c_only" if compiling else "numba"):
            return True
        drawn = item.callspec.params if hasattr(item, "callspec") else {}
        return compiling and name_of(drawn.get("half", drawn.get("dtype"))) in TWINS

    def name_of(dtype):
        if isinstance(dtype, str) or dtype is None:
            return dtype
        try:
            return np.dtype(dtype).name
        except TypeError:  # a dtype of PyTorch
            return str(dtype).rpartition(".")[2]

    left_out = [item for item in items if is_long(item)]
    left_out += beyond_a_few([item for item in items if not is_long(item)])
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def beyond_a_few(items):
    """Yield what the mark ``few`` leaves out."""
    alike = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("few"):
            alike[item.parent.nodeid, item.originalname, mark.args[0]].append(item)
    for (*_, count), sets in alike.items():
        step = len(sets) / count
        kept = {int(i * step) for i in range(count)} if step > 1 else range(len(sets))
        yield from (item for i, item in enumerate(sets) if i not in kept)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without garbage collection, which would search them all; none is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def commands_are_built_once():
    """Cache what Typer's test runner builds at every call: that takes 90% of most calls."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("typer"):
            from typer import testing

            if build := getattr(testing, "_get_command", None):
                patch.setattr(testing, "_get_command", functools.cache(build))
        yield


@pytest.fixture(autouse=True)
def registries():
    """Undo a test's registrations of codes and delay models."""
    from fastgc.codes.catalogue import _REGISTRY as CODES
    from fastgc.delays.text import MODELS

    before = [(registry, registry._known) for registry in (CODES, MODELS)]
    for registry, known in before:
        registry._known = dict(known)
    yield
    for registry, known in before:
        registry._known = known


@pytest.fixture
def at_each_level():
    """``for _ in at_each_level():`` selects each available SIMD level."""
    from fastgc.kernels import c as compiled

    before = compiled.simd()
    there = [level for level in ("baseline", "avx2", "avx512") if compiled.select_simd(level)]

    def levels():
        for level in there:
            assert compiled.select_simd(level)
            assert compiled.simd() == level
            yield level

    try:
        assert {"baseline", before} <= set(there)
        yield levels
    finally:
        assert compiled.select_simd(before)


@pytest.fixture
def split_over():
    """``split_over(count)``: until the test ends, C splits even the smallest work over threads."""
    from fastgc.kernels import threads
    from fastgc.kernels.c import set_least

    before = threads.get_num_threads()

    def split(count):
        threads.set_num_threads(count)
        set_least(0)

    yield split
    threads.set_num_threads(before)
    set_least()
