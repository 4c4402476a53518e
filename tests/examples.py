"""Run the examples of the documentation."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import programs

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"


@cache
def example(name):
    """Import an example, of a folder or none, as a module that is importable by its name."""
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(name, *arguments):
    return programs.run(programs.python(EXAMPLES / f"{name}.py", *arguments)).stdout
