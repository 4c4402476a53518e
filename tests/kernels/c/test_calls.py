"""Calls of C from Python, and levels of SIMD instructions."""

import inspect
import platform
import re
import sys
from pathlib import Path

import numpy as np
import programs
import pytest

from fastgc import kernels
from fastgc.kernels import c as compiled
from fastgc.kernels.c import calls


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_select_simd_each_level(level):
    """A skipped test reports each level that this machine cannot test."""
    before = compiled.simd()
    if not compiled.select_simd(level):
        pytest.skip(f"this build or processor has no {level}")
    assert compiled.simd() == level
    assert compiled.select_simd(before)
    assert compiled.simd() == before


FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c"},
}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
)
def test_simd_levels_of_the_processor():
    """The operating system lists the features that the processor has and that it saves."""
    has = set(re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    expected = [level for level, needed in FLAGS.items() if needed <= has]
    assert programs.printed("from fastgc.kernels.c import simd; print(simd())") == expected[-1]
    before = compiled.simd()
    try:
        assert [level for level in FLAGS if compiled.select_simd(level)] == expected
    finally:
        assert compiled.select_simd(before)


def test_select_simd_of_an_unknown_level():
    before = compiled.simd()
    assert not compiled.select_simd("mmx")
    assert compiled.simd() == before


def test_made_by_a_kernels_line():
    """Lengths and dtypes are found from arrays, NULL stands for None, a status is an answer."""
    taken = {
        name: [*inspect.signature(calls.made(name)).parameters] for name in ("sgd", "cauchy_ridge")
    }
    assert taken["sgd"] == ["theta", "velocity", "gradient", "lr", "momentum"]
    assert taken["cauchy_ridge"] == ["x", "y", "g", "h", "b", "unit", "size", "out"]
    assert calls.made("nothing") is None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kernels.unchecked.nothing  # noqa: B018
    nodes, out = np.arange(3.0), np.empty(3)
    solve = calls.made("solve_vandermonde")
    assert solve(nodes, nodes, None, False, out, None, True, False) is True
    assert solve(np.zeros(3), nodes, None, False, out, None, True, False) is False
    with pytest.raises(KeyError):
        kernels.unchecked.square_sum(np.arange(3))
