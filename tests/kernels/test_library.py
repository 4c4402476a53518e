"""Programs in C get a header, and a library that needs no Python."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import numpy as np
import pytest
from pages import ROOT

import fastgc
from fastgc.kernels.cyclic import PAD, cyclic_tables

pytest.importorskip("fastgc.kernels._cffi", reason="a build without the extension")
try:
    fastgc.get_library()
except FileNotFoundError:
    if os.environ.get("FASTGC_TEST_INSTALLED") == "1":
        raise
    pytest.skip("a copy of the sources, without the library", allow_module_level=True)

needs = {
    name: pytest.mark.skipif(which(name) is None, reason=f"there is no {name}")
    for name in ("cc", "c++", "nm")
}


def run(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(command, source, folder, *options, suffix="c"):
    """Compile a program against the library, and return its file."""
    (folder / f"program.{suffix}").write_text(source)
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", fastgc.get_include()]
    libraries = [fastgc.get_library(), "-lm", "-pthread"]
    program = folder / "program"
    source = folder / f"program.{suffix}"
    run(command, *options, *warnings, source, "-o", program, *libraries)
    return program


@needs["cc"]
def test_the_program_of_the_page_runs(tmp_path):
    """It runs as a reader would run it, and prints what NumPy computes."""
    pytest.importorskip("markdown_it")
    text = (ROOT / "docs" / "kernels_only.md").read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(text.partition("\n## From C\n")[2], encoding="utf-8")
    assert "```c\n/* round.c */" in page.read_text()
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-P", ROOT / "tests" / "pages.py", page, "--folder", folder]
    shown = run(*command, cwd=tmp_path)
    assert "\ngradient: " in shown
    assert (folder / "round.txt").exists()


CPLUSPLUS = """
#include <complex>
#include <vector>
#include "fastgc.h"

int main()
{
    const std::complex<double> nodes[3] = {{1, 0}, {0, 1}, {-1, 0}};
    std::vector<int64_t> order(3);
    const double *pairs = reinterpret_cast<const double *>(nodes);
    return fgc_leja_order(pairs, 3, 1, order.data()) != FGC_OK || order[0] != 0 || order[1] != 2;
}
"""


@needs["c++"]
def test_from_c_plus_plus(tmp_path):
    run(compiled("c++", CPLUSPLUS, tmp_path, "-std=c++14", suffix="cc"))


@needs["cc"]
@needs["nm"]
@pytest.mark.skipif(sys.platform != "linux", reason="names of symbols are those of Linux")
def test_a_library_made_of_it_exports_its_own_names_only(tmp_path):
    """The header works with complex.h, whose `complex` is a macro; the library has no Python."""
    source = "#include <complex.h>\n#include <fastgc.h>\nint own(void);\n"
    source += "int own(void) { return fgc_simd() != 0 && fgc_leja_order(0, 0, 0, 0) == FGC_OK; }\n"
    library = compiled("cc", source, tmp_path, "-std=c11", "-shared", "-fPIC")
    header = (Path(fastgc.get_include()) / "fastgc.h").read_text("utf-8")
    # GCC takes `int complex` for a type of its own without a word.
    assert not re.search(r"\bcomplex\b", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL))
    names = run("nm", "-D", "--defined-only", library).split()
    assert [name for name in names if name.startswith(("fgc_", "own"))] == ["own"]
    for line in run("nm", "-g", fastgc.get_library()).splitlines():
        words = line.split()
        if len(words) == 3:  # address, kind, name: a symbol that is defined
            assert words[2].startswith("fgc_")
        elif len(words) == 2:
            assert not words[1].startswith(("Py", "_Py"))


@pytest.mark.parametrize(("m", "q"), [(1, 1), (2, 1), (3, 2), (7, 3), (64, 33), (1000, 1001)])
def test_tables_are_those_of_python(m, q):
    from fastgc.kernels._cffi import ffi, lib

    tables = cyclic_tables([(m, q, 1)])
    made = [np.full(size + 1, 9.0) for size in (2 * m + PAD, 2 * m + PAD, 4 * m)]
    lib.fgc_cyclic_tables(m, q, *(ffi.from_buffer("double[]", each) for each in made))
    for found, wanted in zip(made, (tables.sine, tables.cosecant, tables.phase), strict=True):
        np.testing.assert_array_equal(found[:-1], wanted)
        np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(wanted))
        assert found[-1] == 9  # nothing beyond the results is written


def test_where_they_are_is_known_without_loading_anything():
    source = "import sys, fastgc; fastgc.get_include(); fastgc.get_library()\n"
    source += "print({'numba', 'numpy', 'cffi'} & {*sys.modules})"
    assert run(sys.executable, "-P", "-c", source).strip() == "set()"
    assert Path(fastgc.get_library()).is_file()
    assert (Path(fastgc.get_include()) / "fastgc.h").is_file()


def test_a_build_without_them_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(fastgc, "__path__", [str(tmp_path)])
    with pytest.raises(FileNotFoundError, match=r"no include/fastgc\.h, .* looked in .*; install"):
        fastgc.get_include()
    with pytest.raises(FileNotFoundError, match=r"no lib/libfastgc\.a"):
        fastgc.get_library()


@needs["cc"]
@pytest.mark.parametrize(("option", "status"), [("-ffast-math", 1), ("-O2", 0)])
def test_kernels_are_not_compiled_with_fast_math(option, status):
    """By which NaN and Inf would pass every check."""
    check = ["cc", option, "-fsyntax-only", "-DFGC_LEVEL=x", "-I", ROOT / "csrc"]
    done = subprocess.run(
        [*map(str, check), str(ROOT / "csrc" / "fixed.c")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert ("NaN and Inf" in done.stderr) == bool(status)


def test_sources_without_the_extension_say_where_to_start_python():
    """Python prefers the folder in which it starts, as a checkout, where nothing is compiled."""
    program = "import sys; sys.modules['fastgc.kernels._cffi'] = None; import fastgc; "
    program += "fastgc.BinaryCode(4, stragglers=1).encode(0, [[1.0], [2.0]])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: fastgc's compiled kernels are not in this folder" in done.stderr
