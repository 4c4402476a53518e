"""Under which backends tests run, and how many of them; and proof of which build is tested.

Kernels, marked ``every_backend``, are tested under each backend, all else under the default one.
Numba compiles for minutes where nothing is cached: what it compiles is tested with ``--backend
numba`` or ``--long`` only. With ``--long`` every test runs under every backend and for every dtype,
and those marked ``long`` run, too.
"""

import functools
import gc
import importlib.util
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

# What Numba has compiled is kept in the checkout, and so outlasts each installation of it: it is
# compiled anew when its sources have changed (fastgc/kernels/numba/njit.py).
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".numba_cache"))
# Two processes test at a time. Threads of BLAS spin while they wait for each other, and where cores
# are taken a small problem takes hundreds of times as long.
for name in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
    os.environ.setdefault(name, "1")
# PyTorch asks the name server for the name of each address that a store's connection has, and waits
# five seconds for each question that gets lost: forty ranks that start at once took 16 s instead of
# 2. All that tests connect to is on this machine.
os.environ.setdefault("RES_OPTIONS", "attempts:0")
# What pytest makes of the tests is kept, even where PYTHONDONTWRITEBYTECODE is set: to make it anew
# takes each process longer than all else before the first test.
sys.dont_write_bytecode = False

import numpy as np
import pytest

import fastgc

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "fastgc"
IMPORTED = Path(fastgc.__file__).resolve().parent


class Beside:
    """Finds what stands beside the tests: pytest's importlib mode leaves them off the path."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        file = HERE / f"{name}.py"
        return importlib.util.spec_from_file_location(name, file) if file.exists() else None


sys.meta_path.insert(0, Beside)
import leftovers
import strength

PIECE = 100  # tests of a file, which one process takes together
# Numba compiles all for every dtype: of two that it treats alike one is enough without --long.
TWINS = {"float32", "complex64", "bfloat16"}
APART = {"test_vandermonde", "test_vandermonde_scales", "test_interpolation", "test_completion"}


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="run all there is, at full strength: every test under every backend, those marked "
        "long, and Hypothesis with as many examples as tests ask for, others each time",
    )
    parser.addoption(
        "--backend", choices=fastgc.backends(), help="run the tests under this backend only"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """The whole suite in two processes, if pytest-xdist is there and -n says nothing else."""
    option = config.option
    whole = config.args_source is config.ArgsSource.TESTPATHS and not option.collectonly
    if whole and "PYTEST_XDIST_WORKER" in os.environ:
        option.loadgroup = True  # is not told of what follows
    elif whole and not option.usepdb and getattr(option, "numprocesses", 0) is None:
        option.numprocesses = 2
        option.dist = "loadgroup"
        option.loadscopereorder = False  # they are in_order


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files by pieces: most tests take less time than to wait for word of what comes next."""
    if config.option.dist != "loadgroup" or config.option.loadscopereorder:
        return None  # some tests only
    from xdist.scheduler import LoadGroupScheduling

    class Pieces(LoadGroupScheduling):
        def __init__(self, *given):
            super().__init__(*given)
            self._of, self._count = {}, Counter()

        def _split_scope(self, nodeid):
            if "@" in nodeid.rpartition("]")[2]:
                return super()._split_scope(nodeid)
            if nodeid not in self._of:
                file = nodeid.partition("::")[0]
                self._of[nodeid] = f"{file} {self._count[file] // PIECE}"
                self._count[file] += 1
            return self._of[nodeid]

    return Pieces(config, log)


def pytest_configure(config):
    for line in (
        "any_backend: does not depend on the backend; runs once, under the default one",
        "every_backend: runs under every backend, not with --long only; under Numba if it is named",
        "numba: has Numba compile; runs with --backend numba or --long only",
        "long: runs with --long only",
        "few(count, *backends): without --long runs for `count` of its sets of parameters, spread "
        "evenly over all of them; under these backends only, if some are named",
    ):
        config.addinivalue_line("markers", line)
    strength.begin(config.getoption("--long"))
    leftovers.begin()
    if os.environ.get("FASTGC_TEST_INSTALLED") == "1" and IMPORTED == SOURCE:
        raise pytest.UsageError(
            f"FASTGC_TEST_INSTALLED=1, but fastgc was imported from the checkout: {fastgc.__file__}"
        )


def pytest_report_header(config):
    from fastgc.kernels import threads

    kind = "the checkout, or an editable install of it" if IMPORTED == SOURCE else "installed"
    lines = [f"fastgc {fastgc.__version__} from {IMPORTED} ({kind})"]
    simd = "no extension"
    if "c" in fastgc.backends():
        from fastgc.kernels.c import simd as level

        simd = level()
    lines.append(
        f"backends: {', '.join(fastgc.backends())}; simd: {simd}; "
        f"threads: {threads.get_num_threads()}"
    )
    return lines


def pytest_generate_tests(metafunc):
    def marked(name):
        return metafunc.definition.get_closest_marker(name)

    def under(name):
        # where nothing is cached yet one process compiles what has to do with nodes or with times,
        # which is apart from all else, and another one the rest
        of = "numba, apart" if metafunc.definition.path.stem in APART else "numba"
        compiles = name == "numba" or marked("numba")
        return pytest.param(name, marks=pytest.mark.xdist_group(of) if compiles else ())

    names = fastgc.backends()
    if only := metafunc.config.getoption("--backend"):
        names = [only]
    elif marked("any_backend") or not (strength.LONG or marked("every_backend")):
        names = names[:1]
    elif not strength.LONG:
        names = [name for name in names if name != "numba" or name == names[0]]
    metafunc.parametrize("backend", [under(name) for name in names], indirect=True)


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        leave_out(config, items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        in_order(items)


def in_order(items):
    """What may take long comes first: all of Numba, then files of few tests, which start programs.

    Pieces of the large files are short, and none waits long for the last of them.
    """
    tests = Counter(item.path for item in items)

    def when(item):
        return item.get_closest_marker("xdist_group") is None, tests[item.path], item.path

    items.sort(key=when)


def leave_out(config, items):
    compiling = (config.getoption("--backend") or fastgc.backends()[0]) == "numba"

    def is_long(item):
        if item.get_closest_marker("long"):
            return True
        if item.get_closest_marker("numba") and not compiling:
            return True
        drawn = item.callspec.params if hasattr(item, "callspec") else {}
        return (
            drawn.get("backend") == "numba"
            and name_of(drawn.get("half", drawn.get("dtype"))) in TWINS
        )

    def name_of(dtype):
        if isinstance(dtype, str) or dtype is None:
            return dtype
        try:
            return np.dtype(dtype).name
        except TypeError:  # PyTorch's
            return str(dtype).rpartition(".")[2]

    left_out = [item for item in items if is_long(item)]
    left_out += beyond_a_few([item for item in items if not is_long(item)])
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def beyond_a_few(items):
    """What the mark ``few`` leaves out: other sets of parameters under another backend."""
    alike = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("few"):
            count, *backends = mark.args
            backend = item.callspec.params["backend"]
            if not backends or backend in backends:
                alike[item.parent.nodeid, item.originalname, backend, count].append(item)
    for (*_, backend, count), sets in alike.items():
        step = len(sets) / count
        begin = {"c": 0.0, "numba": 0.5, "numpy": 0.99}[backend] * step
        kept = {int(begin + i * step) for i in range(count)} if step > 1 else range(len(sets))
        yield from (item for i, item in enumerate(sets) if i not in kept)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """The tests themselves are never garbage; to look through them takes longer than most run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def backend(request):
    with fastgc.use_backend(request.param):
        yield request.param


@pytest.fixture(autouse=True, scope="session")
def commands_are_built_once():
    """Typer's test runner builds all commands at every call, which takes nine tenths of most."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("typer"):
            from typer import testing

            if build := getattr(testing, "_get_command", None):
                patch.setattr(testing, "_get_command", functools.cache(build))
        yield


@pytest.fixture(autouse=True)
def registries():
    """Codes and delay models that a test registers are unknown to the next."""
    from fastgc.codes.catalogue import _REGISTRY as CODES
    from fastgc.delays.text import MODELS

    before = [(registry, registry._known) for registry in (CODES, MODELS)]
    for registry, known in before:
        registry._known = dict(known)
    yield
    for registry, known in before:
        registry._known = known


@pytest.fixture
def at_each_level(backend):
    """``for _ in at_each_level():`` goes through the SIMD levels that there are; only C has any."""
    if backend != "c":
        yield lambda: ["none"]
        return
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
    """``split_over(count)`` has C split what can be split, however short it takes; undone after."""
    from fastgc.kernels import threads

    before, told = threads.get_num_threads(), []

    def split(count):
        threads.set_num_threads(count)
        if "c" in fastgc.backends():
            from fastgc.kernels.c import set_least

            told[:] = [set_least]
            set_least(0)

    yield split
    threads.set_num_threads(before)
    for set_least in told:
        set_least()
