"""Put the one-line faults of mutants.txt into the code, and see whether the tests find them.

``python -m tests.mutants`` puts one fault after another into a copy of the checkout, runs the tests
on it, and prints which faults they found. The test files that should find a fault run first; if
they miss it, the whole suite runs. ``python -m tests.mutants c1-c9 opt3`` tries some faults,
``--list`` lists them with their places, ``--sample 20`` draws 20. Arguments after ``--`` go to
pytest: ``-- --long`` runs all tests.

A fault is located by its text, so that code may move; if the same text stands in several files, a
part of the file's path tells which is meant. If a fault's text is no longer there, write down a
fault that is as bad.

The checkout itself is not written to. This needs a C compiler, ninja, and cmake from 3.26 on: ``pip
install cmake ninja``.
"""

from __future__ import annotations

import argparse
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("fastgc", "csrc")
SOURCES = {".py", ".c", ".h", ".inc", ".def", ".cdef"}
# Seconds after which tests count as hung: of the files that run first, and of the whole suite.
TIMEOUTS = 300.0, 1200.0
SILENCE = 100.0  # seconds without the end of a test: several times what the longest takes


@dataclass(frozen=True)
class Mutant:
    """A fault: the text `after` in place of the text `before`.

    `tests` are the test files to run first, as `file_of` reads them; `where` is a part of the
    path, needed if the text stands in several files.
    """

    name: str
    tests: str
    before: str
    after: str
    where: str = ""


def read(path):
    """Return the faults of a table: for each a head, lines that begin with -, and with +."""
    found, texts = [], {"-": [], "+": []}

    def end():
        if head:
            name, tests, where = re.fullmatch(r"(\w+): ([\w/ ]+?)(?: in (\S+))?", head).groups("")
            before, after = ("\n".join(texts[mark]) for mark in "-+")
            found.append(Mutant(name, tests, before, after, where))
            texts["-"].clear()
            texts["+"].clear()

    head = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:1] in texts and line[1:2] in ("", " "):
            text = line[2:]
            texts[line[0]].append(text[:-1] + " " if text.endswith("␠") else text)
        elif line and not line.startswith("#"):
            end()
            head = line
    end()
    return found


def file_of(name):
    """Return the test file of a name: codes/binary is tests/codes/test_binary.py."""
    folder, _, stem = name.rpartition("/")
    return str(Path("tests", folder, f"test_{stem}.py"))


MUTANTS = read(Path(__file__).with_suffix(".txt"))


def sources(tree):
    """Map the path of each file that may hold a fault, below `tree`, to its text."""
    return {
        str(path.relative_to(tree)): path.read_text()
        for place in PLACES
        for path in sorted((tree / place).rglob("*"))
        if path.suffix in SOURCES
    }


def find(mutant, texts):
    """Return the path of the only file with a mutant's text; raise ValueError if there is none."""
    found = [path for path, text in texts.items() if mutant.before in text]
    if len(found) > 1 and mutant.where:
        found = [path for path in found if mutant.where in path]
    if not found:
        raise ValueError("its text is nowhere")
    if len(found) > 1 or texts[found[0]].count(mutant.before) > 1:
        raise ValueError(f"its text is more than once in {', '.join(found)}")
    return found[0]


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
    """A copy of the checkout, with a Python that imports it and the extension built in it."""

    def __init__(self, folder):
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
        for folder in ("bin", "lib"):
            for each in Path(sys.prefix, folder).iterdir():
                with contextlib.suppress(FileExistsError):
                    (environment / folder / each.name).symlink_to(each)
        self._python = environment / "bin" / "python"
        self._running, self._changed = None, False
        self._sound = set()  # tests known to pass without a fault
        self._under = []  # options of the tests that ran last
        lists = self.tree / "csrc" / "CMakeLists.txt"  # -O1 compiles in an eighth of the time
        lists.write_text(lists.read_text().replace("set(optimise -O3)", "set(optimise -O1)"))
        configure = ["cmake", "-G", "Ninja", "-S", self.tree / "csrc", "-B", self._build]
        configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={self._python}"]
        configure += [f"-DPython_ROOT_DIR={environment}", "-DPython_FIND_VIRTUALENV=ONLY"]
        self._must(configure)
        self.build()
        if self.test([file_of("numerics/vandermonde")], ["--backend", "c"], None)[0]:
            raise SystemExit(f"the tests fail in {self.tree} without any fault")

    def _must(self, command):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        found = shutil.which(command[0], path=path) or command[0]
        run = subprocess.run([found, *command[1:]], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{run.stdout}{run.stderr}")

    def build(self):
        """Build what has changed in the extension."""
        self._must(["cmake", "--build", self._build])
        [built] = self._build.glob("_cffi*.so")
        shutil.copy2(built, self.tree / "fastgc" / "kernels")

    def test(self, files, options, cache):
        """Run these test files, or all; return exit status, first failure and output."""
        chosen = [name for name in files if (self.tree / name.partition("::")[0]).is_file()]
        if files and not chosen:
            return 0, "", ""
        command = [self._python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        environment = os.environ | {"FASTGC_SHRINK": "0", "PYTHONUNBUFFERED": "1"}
        if cache is not None:
            environment["NUMBA_CACHE_DIR"] = cache
        environment.pop("FASTGC_TEST_INSTALLED", None)
        environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryFile("w+") as output:
            process = self._running = subprocess.Popen(
                [*command, *options, *chosen],
                cwd=self.tree,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = patient(process, output, TIMEOUTS[not files])
            finally:
                self.stop()
                process.wait()
            output.seek(0)
            text = output.read()
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
        return status, failed[1] if failed else str(status), text

    def stop(self):
        """Kill the running tests."""
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def judge(self, mutant, options, whole):
        """Test one fault; return the verdict and the test that found it.

        A test that fails without the fault, too, has found nothing.
        """
        verdict, by = self._judge(mutant, options, whole)
        if verdict == "killed" and "::" in by and by not in self._sound:
            if self._changed:
                self.build()
                self._changed = False
            if self.test([by], [*self._under, *options], None)[0]:
                return "unknown: this test fails without the fault, too", by
            self._sound.add(by)
        return verdict, by

    def _judge(self, mutant, options, whole):
        try:
            path = find(mutant, sources(self.tree))
        except ValueError as error:
            return "not found", str(error)
        file, compiled = self.tree / path, path.startswith("csrc")
        before, times = file.read_text(), file.stat()
        with tempfile.TemporaryDirectory() as empty:
            # Numba's cache misses a change of a function that is compiled into another.
            cache = empty if "numba" in path else None
            try:
                file.write_text(before.replace(mutant.before, mutant.after))
                if compiled or self._changed:
                    self.build()
                    self._changed = compiled
                first = [file_of(name) for name in mutant.tests.split()]
                of_kernel = re.match(r"fastgc/kernels/(c|numba)\b|(csrc)", path)
                name = (of_kernel[1] or "c") if of_kernel else None
                under = ["--backend", name] if name else []
                for files in [first, []] if whole else [first]:
                    self._under = under if files else []
                    status, failed, text = self.test(files, [*self._under, *options], cache)
                    if status == 5:
                        raise SystemExit(f"{mutant.name}: no test was chosen\n{text}")
                    if status:
                        return "killed", failed
                return "survived", "" if whole else "of these files"
            except RuntimeError as error:
                return "not built", str(error)[-500:]
            finally:
                file.write_text(before)
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
                if compiled:  # the new time has the next build compile this file again
                    os.utime(file)


def chosen(wanted):
    """Return mutants by names and ranges such as c3-c9; all if none is named."""
    names = [mutant.name for mutant in MUTANTS]
    if len(set(names)) < len(names):
        raise SystemExit("two mutants have one name")
    picked = set()
    for part in wanted:
        first, _, last = part.partition("-")
        try:
            picked.update(names[names.index(first) : names.index(last or first) + 1])
        except ValueError:
            raise SystemExit(f"there is no mutant {part}") from None
    return [mutant for mutant in MUTANTS if not wanted or mutant.name in picked]


def main(arguments=None):
    own = sys.argv[1:] if arguments is None else arguments
    cut = own.index("--") if "--" in own else len(own)
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [names] -- ...")
    parser.add_argument("names", nargs="*", help="of mutants, or ranges such as c1-c9; all if none")
    parser.add_argument("--list", action="store_true", help="where they are, and no more")
    parser.add_argument("--sample", type=int, help="so many of these, drawn at random")
    parser.add_argument("--seed", type=int, help="draw those that were drawn with this seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--first", action="store_true", help="the first files only")
    parser.add_argument("--folder", type=Path, help="where copies are left for the next time")
    parser.add_argument("--table", type=Path, help="a file to write the table to, too")
    given, options = parser.parse_args(own[:cut]), own[cut + 1 :]
    mutants = chosen(given.names)
    if given.sample:
        seed = random.randrange(10**6) if given.seed is None else given.seed
        print(f"{given.sample} of {len(mutants)} faults, --seed {seed}", flush=True)
        mutants = random.Random(seed).sample(mutants, min(given.sample, len(mutants)))
    if given.list:
        texts, lost = sources(ROOT), 0
        for mutant in mutants:
            try:
                where = find(mutant, texts)
            except ValueError as error:
                where = f"NOT FOUND: {error}"
                lost += 1
            print(f"{mutant.name:10} {where}: {mutant.before!r} -> {mutant.after!r}")
        sys.exit(lost > 0)

    def ask(mutant):
        with lock:
            copy = free.pop()
        begin = time.monotonic()
        try:
            verdict, by = copy.judge(mutant, options, not given.first)
        finally:
            with lock:
                free.append(copy)
        line = f"| {mutant.name} | {verdict} | {by} | {time.monotonic() - begin:.0f} |"
        print(line, flush=True)
        if given.table:
            with lock, given.table.open("a") as file:
                file.write(line + "\n")
        return verdict

    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        folder = given.folder or folder
        copies = [Copy(Path(folder) / str(job)) for job in range(given.jobs)]
        free = copies.copy()
        print("| fault | verdict | by | s |\n|---|---|---|---|", flush=True)
        pool = ThreadPoolExecutor(given.jobs)
        try:
            verdicts = list(pool.map(ask, mutants))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()
            raise
        finally:
            pool.shutdown()
    print(", ".join(f"{verdicts.count(each)} {each}" for each in sorted(set(verdicts))))
    sys.exit(verdicts.count("killed") < len(verdicts))


if __name__ == "__main__":
    main()
