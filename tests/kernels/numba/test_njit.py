"""Compiled code is kept on disk, until its sources change."""

import pickle
import textwrap

import programs
import pytest

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = pytest.mark.numba


def test_kept_code_is_outdated_by_a_change_of_any_file(tmp_path):
    """Numba checks a function's own file, but functions compiled into it may lie in others."""
    compiling = pytest.importorskip("fastgc.kernels.numba.njit")
    (tmp_path / "one.py").write_text("1")
    before = compiling._digest(tmp_path)
    (tmp_path / "other.py").write_text("2")
    assert compiling._digest(tmp_path) != before
    kept = nb.combine_rows._cache._cache_file
    assert kept._source_stamp == compiling._SOURCES

    def names_what_has_moved():
        return pickle.loads(b"cfastgc.kernels.nowhere\nPlan\n.")

    assert compiling._or_empty(names_what_has_moved)() == {}


USERS = """
import sys
import numba
import numpy as np
from fastgc import interpolation
from fastgc.kernels import numba as nb


@numba.njit(cache=True, fastmath=True)
def run(nodes, points, chosen, b):
    weights, x = np.empty(chosen.size), np.empty(b.size)
    status = nb.lagrange_functional(nodes, points, chosen, weights)
    solved = nb.solve_vandermonde(nodes, b, None, True, x)
    order = np.empty(nodes.size, np.int64)
    nb.leja_order(nodes, order)
    return status, solved, weights, x, order


nodes, points = interpolation.chebyshev(6), np.array([0.1, -0.4])
status, solved, weights, x, order = run(nodes, points, np.array([5, 0, 2]), np.ones(6))
assert status == 0 and solved
np.testing.assert_allclose(weights, interpolation.functional(nodes[[5, 0, 2]], points))
print(sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values()))
"""


@pytest.mark.long
def test_what_users_compile_is_kept_on_disk(tmp_path):
    """A second process compiles nothing."""
    (tmp_path / "users.py").write_text(USERS)
    for kept in ("0 1", "1 0"):
        done = programs.run(programs.python("-W", "error", tmp_path / "users.py"))
        assert done.stdout.strip() == kept


def test_without_compilation_calls_say_so():
    source = """
        import numpy as np
        from fastgc.kernels import numba as nb
        for call in (
            lambda: nb.solve_vandermonde(np.ones(3), np.ones(3), None, False, np.empty(3)),
            lambda: nb.combine_rows(np.ones(1), np.ones((1, 2)), np.empty(2), np.zeros(1, int)),
        ):
            try:
                call()
            except RuntimeError as error:
                assert "NUMBA_DISABLE_JIT" in str(error)
            else:
                raise AssertionError
    """
    programs.run(programs.python("-c", textwrap.dedent(source)), env={"NUMBA_DISABLE_JIT": "1"})


@pytest.mark.long
def test_the_module_s_example_compiles():
    example = nb.__doc__.partition("::\n\n")[2]
    assert "@numba.njit" in example
    exec(textwrap.dedent(example), {})  # it checks its results
