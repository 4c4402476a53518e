"""What `import fastgc` costs and offers, and how a backend is chosen."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

import fastgc

pytestmark = pytest.mark.any_backend

HEAVY = ("numba", "scipy", "matplotlib", "rich", "typer", "sklearn", "pandas")


def python(program, **environment):
    """Run a program in a fresh interpreter; its output, or its last line of error."""
    kept = {name: value for name, value in os.environ.items() if name != "FASTGC_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


LOADED = f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"


def test_import_is_light():
    assert python(f"import sys, fastgc; {LOADED}") == "[]"
    # that the list would show what is loaded
    assert python(f"import sys, fastgc, numba; {LOADED}").startswith("['numba'")


@pytest.mark.skipif("c" not in fastgc.backends(), reason="no extension in this build")
def test_compiled_backend_needs_no_numba():
    program = f"""
import sys, fastgc
import numpy as np
code = fastgc.ReedSolomon(5, stragglers=1)
g = np.arange(15.0).reshape(5, 3)
messages = [code.encode(i, g[code.partitions(i)]) for i in range(4)]
assert np.allclose(code.decode(range(4), messages, p=3), g.sum(axis=0))
round = code.round(3)
for i in range(4):
    round.receive(i, messages[i])
assert np.allclose(round.gradient(), g.sum(axis=0))
{LOADED}
"""
    assert python(program) == "[]"


@pytest.mark.parametrize("name", fastgc.backends())
def test_environment_forces_a_backend(name):
    program = "import fastgc; print(fastgc.backend(), fastgc.kernels.active.__name__)"
    assert python(program, FASTGC_BACKEND=name) == f"{name} fastgc.kernels.{name}_backend"


def test_default_backend_is_the_best():
    program = "import fastgc; print(fastgc.backend(), fastgc.backends()[0])"
    assert python(program) == f"{fastgc.backends()[0]} {fastgc.backends()[0]}"
    assert python(program, FASTGC_BACKEND="") == f"{fastgc.backends()[0]} {fastgc.backends()[0]}"
    assert fastgc.backends() == tuple(b for b in ("c", "numba", "numpy") if b in fastgc.backends())


def test_unknown_backend():
    says = "ValueError: unknown backend 'fortran': choose one of c, numba, numpy"
    assert python("import fastgc; fastgc.backend()", FASTGC_BACKEND="fortran") == says
    before = fastgc.backend()
    with pytest.raises(ValueError, match="unknown backend 'fortran': choose one of c, numba, nump"):
        fastgc.use_backend("fortran")
    assert fastgc.backend() == before


@pytest.mark.parametrize(
    ("absent", "name", "left"),
    [("fastgc.kernels._cffi", "c", "numba, numpy"), ("numba", "numba", "c, numpy")],
)
def test_a_backend_that_cannot_be_loaded(absent, name, left):
    left = ", ".join(b for b in left.split(", ") if b in fastgc.backends())
    program = f"""
import sys
sys.modules[{absent!r}] = None
import fastgc
print(fastgc.backend(), *fastgc.backends())
"""
    assert python(program) == f"{left.split(', ')[0]} {left.replace(',', '')}"
    program = f"import sys; sys.modules[{absent!r}] = None; import fastgc; fastgc.use_backend('{name}')"
    says = python(program)
    assert says.startswith(f"ImportError: the '{name}' backend cannot be loaded")
    assert says.endswith(f"available: {left}")


@pytest.mark.parametrize("name", [b for b in fastgc.backends() if b != "c"])
def test_without_the_extension(name):
    """Addresses come from cffi where there is one; without it all still works."""
    program = """
import sys
sys.modules["fastgc.kernels._cffi"] = None
import numpy as np, fastgc
code = fastgc.ReedSolomon(7, stragglers=2)
g = np.random.default_rng(0).standard_normal((7, 3))
messages = [code.encode(i, g[code.partitions(i)]) for i in (6, 1, 0, 4, 2)]
for given in (messages, np.array(messages), np.array(messages[::-1])[::-1]):
    assert np.allclose(code.decode((6, 1, 0, 4, 2), given, p=3), g.sum(axis=0))
print(fastgc.backend())
"""
    assert python(program, FASTGC_BACKEND=name) == name


def test_use_backend_for_a_while():
    outside = fastgc.backend()
    for inside in fastgc.backends():
        with fastgc.use_backend(inside):
            assert fastgc.backend() == inside
            with fastgc.use_backend("numpy"):
                assert fastgc.backend() == "numpy"
            assert fastgc.backend() == inside
        assert fastgc.backend() == outside
        with pytest.raises(KeyError), fastgc.use_backend(inside):
            raise KeyError
        assert fastgc.backend() == outside


def test_use_backend_for_good():
    program = "import fastgc; fastgc.use_backend('numpy'); print(fastgc.backend())"
    assert python(program) == "numpy"


def test_public_names():
    for name in fastgc.__all__:
        assert getattr(fastgc, name) is not None
    assert set(fastgc.__all__) <= set(dir(fastgc))
    for module in fastgc._MODULES:
        assert getattr(fastgc, module).__name__ == f"fastgc.{module}"
        # what a module announces, it has
        for name in getattr(getattr(fastgc, module), "__all__", ()):
            assert hasattr(getattr(fastgc, module), name), (module, name)
    with pytest.raises(AttributeError, match="'fastgc' has no attribute 'nonsense'"):
        _ = fastgc.nonsense


def test_names_load_one_by_one():
    """Each public name is the first thing asked for in some program."""
    names = [*fastgc.__all__, *fastgc._MODULES]
    program = f"""
import sys, importlib
for name in {names!r}:
    for loaded in [m for m in sys.modules if m == "fastgc" or m.startswith("fastgc.")]:
        if loaded != "fastgc.kernels._cffi":  # extension modules load once
            del sys.modules[loaded]
    getattr(importlib.import_module("fastgc"), name)
print("all")
"""
    assert python(program) == "all"


def test_version():
    assert importlib.metadata.version("fastgc") == fastgc.__version__
