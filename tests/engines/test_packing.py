"""Workers get objects by name, or by value from a session; otherwise an error says why not."""

import importlib.machinery
import pickle
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest

from fastgc import Uncoded
from fastgc.engines import LocalCluster
from fastgc.engines.memory import main_is_importable, packed

STEP = """
import numpy as np
from fastgc import Uncoded
from fastgc.engines import LocalCluster

def step(gradient):
    out = np.zeros(1)
    with LocalCluster(Uncoded(2), [1.0, 2.0], gradient, 1) as cluster:
        cluster.step(np.zeros(1), out)
    print(out)
"""


def ran(source, path=None):
    """Run a program, as a file or in an interactive session."""
    program = STEP + textwrap.dedent(source)
    if path is not None:
        path.write_text(program)
    return subprocess.run(
        [sys.executable, "-P", *(["-i", "-q"] if path is None else [str(path)])],
        input=f"exec({program!r})\n" if path is None else "",
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_cannot_be_pickled_is_said_so():
    with pytest.raises(TypeError, match=r"workers cannot be sent what pickle cannot store \(.*: "):
        LocalCluster(Uncoded(1), [threading.Lock()], np.multiply, 1)


def test_functions_inside_of_functions_go_by_value(monkeypatch):
    pytest.importorskip("cloudpickle")
    factor, out = np.arange(3000.0), np.empty(3000)

    def inside(theta, shard, out):
        out[:] = factor * shard

    shards = [np.full(3000, 2.0), np.ones(3000)]  # pickled out of band, before and after
    with LocalCluster(Uncoded(2), shards, inside, 3000) as cluster:
        cluster.step(np.zeros(3000), out)
    np.testing.assert_array_equal(out, 3 * factor)
    apart = [memoryview(b"before")]
    pickle.loads(packed((factor, inside), apart), buffers=apart[1:])
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    kept = list(apart)
    with pytest.raises(TypeError, match="others they are sent if cloudpickle is installed"):
        packed((factor, inside), apart)
    assert apart == kept


def test_what_stands_under_the_guard_is_told_from_the_rest(tmp_path):
    done = ran(
        """
        def above(theta, shard, out):
            out[:] = shard

        if __name__ == "__main__":
            def below(theta, shard, out):
                out[:] = shard

            step(above)
            step(below)
        """,
        tmp_path / "program.py",
    )
    assert done.stdout == "[3.]\n"
    last = done.stderr.splitlines()[-1]
    assert "Can't get attribute 'below'" in last
    assert last.endswith(
        'cannot import what a script defines under if __name__ == "__main__": define it above that'
    )


def test_a_missing_attribute_elsewhere_has_its_traceback(tmp_path):
    done = ran(
        """
        class Broken:
            def __setstate__(self, state):
                self.nowhere

            def __call__(self, theta, shard, out):
                out[:] = shard

        if __name__ == "__main__":
            broken = Broken()
            broken.here = 1
            step(broken)
        """,
        tmp_path / "program.py",
    )
    assert "in __setstate__" in done.stderr
    assert "cannot import" not in done.stderr


SESSION = """
def own(theta, shard, out):
    out[:] = shard

step(own)
step(lambda theta, shard, out: out.fill(2 * shard))
"""


def test_what_a_session_defines_goes_by_value():
    pytest.importorskip("cloudpickle")
    done = ran(SESSION)
    assert done.stdout.split() == ["[3.]", "[6.]"], done.stderr


def test_a_session_without_cloudpickle():
    hidden = "import sys; sys.modules['cloudpickle'] = None\n"
    done = ran(hidden + SESSION)
    assert done.stdout == ""
    assert "workers cannot import what a program without a file, a session" in done.stderr


WITHOUT_A_FILE = f"""
import sys
{STEP}
class Twice:
    def __init__(self, factor):
        self.factor = factor

def own(theta, shard, out):
    out[:] = TWICE.factor * shard

TWICE = Twice(2.0)

if __name__ == "__main__":
    if sys.argv[1:] == ["deleted"]:
        import os
        os.unlink(__file__)
    step(own)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "arguments",
    [["-"], ["-c", WITHOUT_A_FILE], ["program.py", "deleted"], ["folder"], ["-m", "folder"]],
    ids=["a pipe", "-c", "a deleted script", "a folder", "a package"],
)
def test_what_workers_cannot_import_goes_by_value(tmp_path, arguments):
    pytest.importorskip("cloudpickle")
    (tmp_path / "folder").mkdir()
    (tmp_path / "program.py").write_text(WITHOUT_A_FILE)
    (tmp_path / "folder" / "__main__.py").write_text(WITHOUT_A_FILE)
    done = subprocess.run(
        [sys.executable, *arguments],
        input=WITHOUT_A_FILE,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[6.]\n", "")


def test_a_pipe_without_cloudpickle_is_told_what_is_wrong():
    hidden = "import sys; sys.modules['cloudpickle'] = None\n"
    done = subprocess.run(
        [sys.executable, "-P", "-"], input=hidden + WITHOUT_A_FILE, capture_output=True, text=True
    )
    assert done.stdout == ""
    assert "cannot import what a program without a file, a session" in done.stderr


def test_a_program_whose_module_has_no_spec(monkeypatch):
    """IPython's second %run makes such a module."""
    main = types.ModuleType("__main__")
    del main.__spec__
    monkeypatch.setitem(sys.modules, "__main__", main)
    out = np.zeros(1)
    with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 1) as cluster:
        cluster.step(np.ones(1), out)
    assert out == 3.0


@pytest.mark.parametrize(
    ("name", "file", "importable"),
    [
        (None, __file__, True),
        (None, "nowhere.py", False),
        (None, "<stdin>", False),
        (None, None, False),
        ("package.module", None, True),
        ("package.__main__", __file__, False),
        ("__main__", __file__, False),
    ],
)
def test_which_programs_workers_import(monkeypatch, name, file, importable):
    main = types.ModuleType("__main__")
    main.__spec__ = name and importlib.machinery.ModuleSpec(name, None)
    if file:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert main_is_importable() == importable
