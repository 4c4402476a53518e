"""Every test under every backend, and proof of which build is tested."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import fastgc

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "fastgc"
IMPORTED = Path(fastgc.__file__).resolve().parent

for name in ("kernel_table", "code_table", "remote"):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def pytest_addoption(parser):
    parser.addoption(
        "--backend", choices=fastgc.backends(), help="run the tests under this backend only"
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "any_backend: does not depend on the backend; runs once, under the default one"
    )
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
    marked = metafunc.definition.get_closest_marker("any_backend")
    only = metafunc.config.getoption("--backend")
    names = [only] if only else list(fastgc.backends())
    metafunc.parametrize("backend", names[:1] if marked else names, indirect=True)


@pytest.fixture(autouse=True)
def backend(request):
    with fastgc.use_backend(request.param):
        yield request.param
