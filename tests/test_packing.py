"""What workers are sent: by name, by value from a session, or a sentence that says why not."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from fastgc import Uncoded
from fastgc.engines import LocalCluster

pytestmark = pytest.mark.any_backend

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
    """A program, as a file, or in an interactive session."""
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


@pytest.mark.parametrize(
    "lost", [lambda theta, shard, out: None, threading.Lock()], ids=["function", "lock"]
)
def test_what_cannot_be_pickled_is_said_so(lost):
    with pytest.raises(TypeError, match=r"workers cannot be sent what pickle cannot store \(.*: "):
        LocalCluster(Uncoded(1), [lost], np.multiply, 1)


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
    assert "workers cannot import what a notebook or session defines: put it" in done.stderr
