"""The README's Python runs, and its figures come from a command it names."""

import re
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.any_backend

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


HOT_LOOPS = re.search(r"^## Hot loops$(.*?)^## ", TEXT, re.M | re.S)[1]


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def test_examples_run(capsys):
    names = {}
    blocks = python_blocks(TEXT.replace(HOT_LOOPS, ""))
    assert len(blocks) >= 2
    for block in blocks:
        exec(block, names)
    everything = [np.random.default_rng(j).standard_normal(1000) for j in range(80)]
    np.testing.assert_allclose(names["gradient"], np.sum(everything, axis=0), atol=1e-10)
    assert capsys.readouterr().out.startswith("Trust(relative_error=")


@pytest.mark.xdist_group("numba")
@pytest.mark.parametrize(("at", "needs"), list(enumerate(["numpy", "numba", "torch"])))
def test_hot_loops_run(at, needs, capsys):
    pytest.importorskip(needs)
    blocks = python_blocks(HOT_LOOPS)
    assert len(blocks) == 3
    assert f"import {needs}" in blocks[at]
    exec(blocks[at], {})  # which check what they computed
    if needs == "torch":
        losses = [float(line) for line in capsys.readouterr().out.split()]
        assert losses == pytest.approx([0.2, 0.05], rel=0.3)


def test_quick_start_is_two_commands():
    section = re.search(r"^## Quick start$(.*?)^## ", TEXT, re.M | re.S)[1]
    main, tests = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)
    assert "fastgc train --compare" in main
    assert tests.rstrip().endswith("pytest")
