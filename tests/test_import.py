"""The cost and the names of an import, and the choice of a backend."""

import subprocess
import sys

import pytest
from strength import much

import fastgc

pytestmark = pytest.mark.any_backend

HEAVY = (
    "numba",
    "scipy",
    "matplotlib",
    "ml_dtypes",
    "sklearn",
    "rich",
    "typer",
    "multiprocessing",
)


def python(source, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-P", "-c", source],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_import_is_light():
    loaded = f"import sys, fastgc, fastgc.delays; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(loaded).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "source", "printed"),
    [
        (
            "c",
            "fastgc.ReedSolomon(8, stragglers=2).decoding_vector(range(7));"
            "print(fastgc.backend(), 'numba' in sys.modules, 'scipy' in sys.modules)",
            "c False False",
        ),
        (
            "numba",
            "kernels = fastgc.kernels; print('numba' in sys.modules, end=' ');"
            "print(kernels.numba.combine_rows.__name__, hasattr(kernels, 'fortran'))",
            "False combine_rows False",
        ),
    ],
)
def test_numba_is_loaded_when_it_is_asked_for(name, source, printed):
    if name in fastgc.backends():
        assert python(f"import sys, fastgc; {source}").stdout.strip() == printed


def test_public_names_resolve():
    for name in fastgc.__all__:
        assert getattr(fastgc, name) is not None
        assert name in dir(fastgc)
    for name, module in fastgc._MODULES.items():
        assert getattr(fastgc, name).__name__ == f"fastgc.{module}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fastgc.nothing  # noqa: B018


def test_dir_shows_what_users_want_and_nothing_else():
    assert sorted(dir(fastgc)) == sorted([*fastgc.__all__, *fastgc._MODULES, "__version__"])
    met = {"Code", "Round", "Trust", "History", "Record", "LocalCluster", "ReedSolomon", "train"}
    assert met <= set(dir(fastgc))
    fastgc.codes  # noqa: B018  (what was loaded since changes nothing)
    assert not {"annotations", "Any", "TYPE_CHECKING", "importlib", "errors"} & set(dir(fastgc))
    reached = {"kernels": {"c", "numba", "numpy"}}
    for name in fastgc._MODULES:
        module = getattr(fastgc, name)
        assert set(dir(module)) == {*module.__all__, *reached.get(name, ())}


@pytest.mark.parametrize("name", much(fastgc.backends(), fastgc.backends()[1:]))
def test_environment_forces_a_backend(name):
    assert (
        python("import fastgc; print(fastgc.backend())", FASTGC_BACKEND=name).stdout.strip() == name
    )


def test_unknown_backends_are_refused():
    result = python("import fastgc; fastgc.backend()", FASTGC_BACKEND="fortran")
    assert "unknown backend 'fortran': choose one of c, numba, numpy" in result.stderr
    before = fastgc.backend()
    with pytest.raises(ValueError, match="unknown backend"):
        fastgc.use_backend("fortran")
    assert fastgc.backend() == before


def test_use_backend_holds_and_restores():
    before = fastgc.backend()
    with fastgc.use_backend("numpy"):
        assert fastgc.backend() == "numpy"
        with fastgc.use_backend(before):
            assert fastgc.backend() == before
        assert fastgc.backend() == "numpy"
    assert fastgc.backend() == before
    try:
        fastgc.use_backend("numpy")
        assert fastgc.backend() == "numpy"
    finally:
        fastgc.use_backend(before)


@pytest.mark.numba
def test_codes_follow_the_backend_in_use():
    code = fastgc.ReedSolomon(8, stragglers=2)
    vectors = []
    for name in (*fastgc.backends(), *fastgc.backends()):
        with fastgc.use_backend(name):
            vectors.append(code.decoding_vector(range(7)))
    assert all(abs(v - vectors[0]).max() < 1e-15 for v in vectors)
