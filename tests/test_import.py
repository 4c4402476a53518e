"""The cost and the names of an import, and the choice of kernels."""

import shlex

import programs
import pytest

import fastgc

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
    return programs.run(programs.python("-c", source), status=None, env=environment)


def test_import_is_light():
    loaded = f"import sys, fastgc, fastgc.delays; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(loaded).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        (
            "fastgc.ReedSolomon(8, stragglers=2).decoding_vector(range(7));"
            "print(fastgc.backend(), 'numba' in sys.modules, 'scipy' in sys.modules)",
            "c False False",
        ),
        (
            "kernels = fastgc.kernels; print('numba' in sys.modules, end=' ');"
            "print(kernels.numba.combine_rows.__name__, hasattr(kernels, 'fortran'))",
            "False combine_rows False",
        ),
    ],
)
def test_numba_is_loaded_when_it_is_asked_for(source, printed):
    found = python(f"import sys, fastgc; {source}", FASTGC_BACKEND="c")
    assert found.stdout.strip() == printed


def test_public_names_resolve():
    for name in fastgc.__all__:
        assert getattr(fastgc, name) is not None
        assert name in dir(fastgc)
    for name, module in fastgc._MODULES.items():
        assert getattr(fastgc, name).__name__ == f"fastgc.{module}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fastgc.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["c", "numba"])
def test_environment_chooses_kernels(name):
    source = (
        "import fastgc, sys; print(fastgc.backend(), fastgc.kernels.unchecked.combine.__module__)"
    )
    of = f"fastgc.kernels.{name}.calls"
    assert python(source, FASTGC_BACKEND=name).stdout.split() == [name, of]


def test_unknown_kernels_are_refused():
    result = python("import fastgc; fastgc.backend()", FASTGC_BACKEND="fortran")
    assert "FASTGC_BACKEND must be c or numba, not 'fortran'" in result.stderr


def test_version_in_a_folder_that_was_removed(tmp_path):
    gone = tmp_path / "gone"
    command = shlex.join(programs.python("-m", "fastgc", "--version"))
    go = f"mkdir {gone} && cd {gone} && rmdir {gone} && exec {command}"
    done = programs.run(["/bin/sh", "-c", go])
    assert done.stdout.startswith("fastgc ")
    assert "Traceback" not in done.stderr
