"""Put faults into the code, and see whether the tests find them.

    python -m tests.faults --random 20      # faults drawn at random in fastgc/
    python -m tests.faults --table 8        # faults of C drawn from faults.txt; 0: all of them
    python -m tests.faults c1 pool3         # these faults of the table

Each fault goes into a copy of the checkout; the checkout itself is not written to. A fault of
Python stands at a place drawn by syntax, all places alike: an operator, a condition, a number or a
dropped call. The tests of its area run: first the file named for its module, then the folder that
mirrors the module's. So the share found is an estimate that no list of known faults can give.
Survivors are printed with what was changed: read each, as some faults change nothing. ``--seed``
repeats a draw, ``--least 0.8`` fails if fewer are found, and ``--whole`` gives what survives to the
whole suite.

Faults of C stand in a table, since one character of C often does not compile or reads what is not
there. A fault is located by its text, so that code may move. If a fault's text is no longer there,
write down a fault that is as bad. These need a C compiler, ninja, and cmake from 3.26 on.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Seconds after which tests count as hung: of one file or folder, and of the whole suite.
TIMEOUTS = 300.0, 1200.0
SILENCE = 100.0  # seconds without the end of a test: several times what the longest takes
# Kernels for AVX-512 run where the processor has it. Faults in these have it in their names.
CPU = Path("/proc/cpuinfo")
HAS_AVX512 = not CPU.exists() or "avx512vl" in CPU.read_text()
# Numba's functions run in CI's part of this name only, and take minutes to compile.
LEFT_OUT = "fastgc/kernels/numba/"

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
}


@dataclass(frozen=True)
class Fault:
    """The text `after` in place of ``text[begin:end]`` of a file, in bytes."""

    name: str
    path: str
    begin: int
    end: int
    before: str
    after: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}: {' '.join(self.before.split())} -> {' '.join(self.after.split())}"


# ---------------------------------------------------------------------------- faults of the table


def table() -> list[Fault]:
    """Return the faults of faults.txt: for each a head, lines that begin with -, and with +."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted((ROOT / "csrc").iterdir())
        if path.suffix in {".c", ".h", ".inc", ".def"}
    }
    heads, lines = [], {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"(\w+): ([\w/ ]+?)(?: in (\S+))?", line):
            heads.append(match.groups(""))
        elif line[:2] in ("- ", "+ ", "-", "+"):
            lines.setdefault((heads[-1][0], line[0]), []).append(line[2:].replace("␠", " "))
    found = []
    for name, tests, where in heads:
        before, after = ("\n".join(lines.get((name, mark), [""])) for mark in "-+")
        places = [path for path, text in texts.items() if before in text and where in path]
        if len(places) != 1 or texts[places[0]].count(before) != 1:
            raise SystemExit(f"{name}: its text stands in {places or 'no file'}, not once in one")
        begin = len(texts[places[0]].partition(before)[0].encode())
        end = begin + len(before.encode())
        files = (re.sub(r"(\w+)$", r"test_\1.py", f"tests/{each}") for each in tests.split())
        found.append(Fault(name, places[0], begin, end, before, after, tuple(files)))
    if len({fault.name for fault in found}) < len(found):
        raise SystemExit("two faults have one name")
    return found


# ----------------------------------------------------------------------------- faults at random


def changes(node: ast.AST, text) -> tuple[ast.AST, str] | None:
    """Return what of a node to replace, and by what; None if it stays."""
    match node:
        case ast.Compare(left, [operator], [right]):
            return node, f"{text(left)} {COMPARISONS[type(operator)]} {text(right)}"
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            return node, f"({text(left)}) {OPERATORS[type(operator)]} ({text(right)})"
        case ast.BoolOp(operator, values):
            other = " or " if isinstance(operator, ast.And) else " and "
            return node, "(" + other.join(f"({text(each)})" for each in values) + ")"
        case ast.Constant(bool(value)):
            return node, str(not value)
        case ast.Constant(int(value)):
            return node, str(value + 1)
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            return test, f"(not ({text(test)}))"
        case ast.Expr(ast.Call()):
            return node, "pass"
    return None


def silent(node: ast.AST) -> bool:
    """Whether a fault in a node is in what people read, or in what only type checkers do."""
    match node:
        case ast.Raise() | ast.JoinedStr():
            return True
        case ast.FunctionDef(name):
            return name in ("__repr__", "_repr_html_")
        case ast.If(test):
            return "TYPE_CHECKING" in ast.dump(test)
    return False


def area(path: str) -> tuple[str, ...]:
    """Return the tests of a module: the file of its name, then the folder that mirrors its own."""
    here = Path("tests", *Path(path).parts[1:])
    own = here.with_name(f"test_{here.name}")
    while not any((ROOT / here.parent).glob("test_*.py")):
        here = here.parent
    folder = here.parent if here.parent != Path("tests") else Path("tests/test_import.py")
    return tuple(str(each) for each in (own, folder) if (ROOT / each).exists())


def places(path: Path) -> list[Fault]:
    """Return all faults of a module of Python."""
    raw, name = path.read_bytes(), str(path.relative_to(ROOT))
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tests, found = area(name), []

    def span(node):
        first = starts[node.lineno - 1] + node.col_offset
        return first, starts[node.end_lineno - 1] + node.end_col_offset

    def text(node):
        begin, end = span(node)
        return raw[begin:end].decode()

    def walk(node, function):
        if silent(node):
            return
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        if function and (change := changes(node, text)):
            whole, after = change
            where = f"{name}:{whole.lineno} {function}"
            found.append(Fault(where, name, *span(whole), text(whole), after, tests))
        below = node.body if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node)
        for child in below:
            walk(child, inside)

    walk(ast.parse(raw), None)
    return found


def drawn(count: int, seed: int) -> list[Fault]:
    """Return faults drawn at random, all places of fastgc alike."""
    files = sorted((ROOT / "fastgc").rglob("*.py"))
    kept = [path for path in files if LEFT_OUT not in f"{path.relative_to(ROOT)}"]
    everywhere = [fault for path in kept for fault in places(path)]
    rng, found = random.Random(seed), []
    while len(found) < count:
        fault = rng.choice(everywhere)
        raw = (ROOT / fault.path).read_bytes()
        with contextlib.suppress(SyntaxError):
            compile(raw[: fault.begin] + fault.after.encode() + raw[fault.end :], "", "exec")
            found.append(fault)
    return found


# ------------------------------------------------------------------------------------- the trial


def patient(process, output, limit):
    """Return the exit status of tests, or "time out" if all of them or one takes too long."""
    size, heard = 0, time.monotonic()
    end = heard + limit
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
        now, before = time.monotonic(), size
        size = os.fstat(output.fileno()).st_size  # it grows with each test that ends
        heard = now if size > before else heard
        if now > min(end, heard + SILENCE):
            return "time out"


class Copy:
    """A copy of the checkout, with a Python that imports it."""

    def __init__(self, folder: Path):
        self.tree, self._build = folder / "tree", folder / "build"
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        # A Python with this one's packages, but without editable installs: Python does not read the
        # .pth files in a folder that a .pth file names.
        environment = folder / "venv"
        command = [sys.executable, "-m", "venv", "--without-pip", environment]
        if not environment.exists():
            subprocess.run(command, check=True)
        packages = next((environment / "lib").glob("python*/site-packages"))
        ours = [path for path in sys.path if path.endswith("-packages")]
        (packages / "tree.pth").write_text("\n".join([str(self.tree), *ours]) + "\n")
        # Tests run MPI's programs, and mpi4py looks for its libraries beside its Python. All but
        # Python's own folder, which the environment has, is linked.
        for each in [*Path(sys.prefix, "bin").iterdir(), *Path(sys.prefix, "lib").iterdir()]:
            with contextlib.suppress(FileExistsError):
                (environment / each.parent.name / each.name).symlink_to(each)
        self._python = environment / "bin" / "python"
        self._running, self._changed = None, False
        self._sound = set()  # tests known to pass without a fault
        # The extension of the fastgc that is installed: a checkout may have none.
        asked = [sys.executable, "-P", "-c", "import fastgc.kernels._cffi as c; print(c.__file__)"]
        built = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        shutil.copy2(built, self.tree / "fastgc" / "kernels")
        if self.test("tests/test_import.py")[0]:
            raise SystemExit(f"the tests fail in {self.tree} without any fault")

    def _must(self, *command):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        found = shutil.which(command[0], path=path) or command[0]
        run = subprocess.run([found, *command[1:]], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{run.stdout}{run.stderr}"[-500:])

    def build(self):
        """Build what has changed in the extension; -O1 compiles in an eighth of the time."""
        if not self._build.exists():
            lists = self.tree / "csrc" / "CMakeLists.txt"
            lists.write_text(lists.read_text().replace("set(optimise -O3)", "set(optimise -O1)"))
            here = ["-S", self.tree / "csrc", "-B", self._build, "-DCMAKE_BUILD_TYPE=Release"]
            python = [f"-DPython_EXECUTABLE={self._python}", "-DPython_FIND_VIRTUALENV=ONLY"]
            python += [f"-DPython_ROOT_DIR={self._python.parents[1]}"]
            self._must("cmake", "-G", "Ninja", *here, *python)
        self._must("cmake", "--build", self._build)
        [built] = self._build.glob("_cffi*.so")
        shutil.copy2(built, self.tree / "fastgc" / "kernels")

    def test(self, *chosen):
        """Run these tests, or all; return the exit status and the first test that failed."""
        command = [self._python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["-n", "0"] if chosen else []
        environment = os.environ | {"FASTGC_SHRINK": "0", "PYTHONUNBUFFERED": "1"}
        environment.pop("FASTGC_TEST_INSTALLED", None)
        environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryFile("w+") as output:
            process = self._running = subprocess.Popen(
                [*command, *chosen],
                cwd=self.tree,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = patient(process, output, TIMEOUTS[not chosen])
            finally:
                self.stop()
                process.wait()
            output.seek(0)
            text = output.read()
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
        return status, failed[1] if failed else str(status)

    def stop(self):
        """Kill the running tests."""
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def judge(self, fault: Fault, whole: bool) -> tuple[str, str]:
        """Test one fault; return the verdict and the test that found it.

        A test that fails without the fault, too, has found nothing.
        """
        file, compiled = self.tree / fault.path, fault.path.startswith("csrc")
        raw, times = file.read_bytes(), file.stat()
        status, by = 0, ""
        try:
            file.write_bytes(raw[: fault.begin] + fault.after.encode() + raw[fault.end :])
            if compiled or self._changed:
                self.build()
                self._changed = compiled
            for tests in [*([each] for each in fault.tests), *([[]] if whole else [])]:
                status, by = self.test(*tests)
                if status == 5:  # no test was chosen: all of a file may be long
                    status = 0
                if status:
                    break
        except RuntimeError as error:
            return "not built", str(error)
        finally:
            file.write_bytes(raw)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            if compiled:  # the new time has the next build compile this file again
                os.utime(file)
        if not status:
            return "SURVIVED", ""
        if "::" in by and by not in self._sound:
            if self._changed:
                self.build()
                self._changed = False
            if self.test(by)[0]:
                return "unknown: this test fails without the fault, too", by
            self._sound.add(by)
        return "found", by


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="faults of the table")
    parser.add_argument("--table", type=int, metavar="N", help="draw N of the table; 0: all")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw N at random")
    parser.add_argument("--seed", type=int, help="draw those that were drawn with this seed")
    parser.add_argument("--least", type=float, default=1.0, help="the share that must be found")
    parser.add_argument("--whole", action="store_true", help="then run the whole suite")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    given = parser.parse_args()
    known = {fault.name: fault for fault in table()}
    seed = random.randrange(10**6) if given.seed is None else given.seed
    try:
        faults = [known[name] for name in given.names]
    except KeyError as missing:
        raise SystemExit(f"faults.txt has no fault {missing}") from None
    if given.table is not None:
        here = [fault for fault in known.values() if HAS_AVX512 or "avx512" not in fault.name]
        faults += random.Random(seed).sample(here, given.table or len(here))
    faults += drawn(given.random, seed)
    print(f"{len(faults)} faults, --seed {seed}", flush=True)

    def ask(fault):
        with lock:
            copy = free.pop()
        begin = time.monotonic()
        try:
            verdict, by = copy.judge(fault, given.whole)
        finally:
            with lock:
                free.append(copy)
        print(
            f"{verdict} {time.monotonic() - begin:.0f} s: {fault.name}: {fault} | {by}", flush=True
        )
        return verdict

    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copies = [Copy(Path(folder, str(job))) for job in range(given.jobs)]
        free = copies.copy()
        pool = ThreadPoolExecutor(given.jobs)
        try:
            verdicts = Counter(pool.map(ask, faults))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()
            raise
        pool.shutdown()
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    sys.exit(verdicts["found"] < given.least * len(faults))


if __name__ == "__main__":
    main()
