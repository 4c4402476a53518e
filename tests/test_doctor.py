"""`gradient-coding doctor` finds a distribution with the same files, and other problems.

Tests use an environment of their own, a wheel with some files of fastgc, and a wheel of a foreign
package.
"""

import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import fastgc
import gradient_coding
from gradient_coding.__main__ import main

ensurepip = pytest.importorskip("ensurepip", reason="needs pip in a new environment")
pytestmark = [pytest.mark.any_backend, pytest.mark.xdist_group("doctor")]

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = fastgc.__version__
FOREIGN = {
    "fastgc/__init__.py": "points = 'of a cloud'\n",
    "fastgc/lidar.py": "def main():\n    print('clouds')\n",
}


def wheel(folder, name, version, files, scripts=(), summary=""):
    """Make a wheel of Python files: a zip with a list of its contents."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    commands = "".join(f"{command} = {entry}\n" for command, entry in dict(scripts).items())
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: {summary}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{commands}",
    }
    record = [
        f"{path},sha256={encoded.rstrip(b'=').decode()},{len(content.encode())}"
        for path, content in files.items()
        for encoded in [base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest())]
    ]
    made = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    return made


def our_files():
    """Return the files that the command needs to say what it lacks."""
    return {
        str(path.relative_to(Path(module.__file__).parents[1])): path.read_text(encoding="utf-8")
        for module in (fastgc, gradient_coding)
        for path in Path(module.__file__).parent.rglob("*.py")
        if path.parent.name in {"fastgc", "_base", "gradient_coding"}
    }


def write(folder):
    """Write the same files as a checkout."""
    for name, content in our_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "pyproject.toml").write_text('[project]\nname = "gradient-coding"\n')
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An environment with pip, and a folder of wheels."""
    folder = tmp_path_factory.mktemp("doctor")
    bundled = list(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
    venv.create(folder / "env", with_pip=not bundled, symlinks=True)
    for pip in bundled:  # copied from the bundle, which is faster than pip installing itself
        (site,) = (folder / "env").glob("lib/python*/site-packages")
        zipfile.ZipFile(pip).extractall(site)
    (folder / "wheels").mkdir()
    wheel(folder / "wheels", "gradient-coding", VERSION, our_files(), PROJECT["scripts"])
    theirs = {"fastgc": "fastgc.lidar:main"}
    wheel(folder / "wheels", "fastgc", "0.2.0", FOREIGN, theirs, "Clouds of points")
    return folder


@pytest.fixture
def env(made, tmp_path):
    """The environment, with neither distribution; programs run in a folder without files."""
    root, wheels = made / "env", made / "wheels"
    (site,) = root.glob("lib/python*/site-packages")

    def there():
        commands = (root / "bin" / command for command in ("fastgc", "gradient-coding"))
        yield from filter(Path.exists, commands)
        yield from [*site.glob("*fastgc*"), *site.glob("*gradient_coding*")]

    for left in there():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    (tmp_path / "empty").mkdir()
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    variables |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "1",
    }

    def run(command, cwd=tmp_path / "empty", status=0, **more):
        """Return the output of a command in the environment; it must end with `status`."""
        program, *words = shlex.split(command)
        done = subprocess.run(
            [root / "bin" / program, *words],
            cwd=cwd,
            env={**variables, **more},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    installed = []

    def install(*names):
        """Install wheels in this order; copy the result of an earlier test if there is one."""
        for name in names:
            installed.append(name)
            kept = made / "kept" / " ".join(map(str, installed)).replace("/", "-")
            if kept.exists():
                shutil.copytree(kept, root, dirs_exist_ok=True)
                continue
            run(f"python -m pip install --quiet --no-deps {name}")
            for path in there():
                to = kept / path.relative_to(root)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(path, to) if path.is_dir() else shutil.copy2(path, to)

    def uninstall(name):
        run(f"python -m pip uninstall --quiet --yes {name}")

    def repair(told):
        """Follow the doctor's commands; then everything must be well."""
        commands = told.partition("To repair it:\n")[2].strip().splitlines()
        assert commands
        for command in commands:
            run(command.strip())  # the command names the environment's own Python
        assert run("gradient-coding doctor").splitlines()[1:] == ["Nothing is wrong."]
        assert 'pip install "gradient-coding[cli]"' in run("fastgc", status=1)  # it is ours

    return SimpleNamespace(
        run=run, install=install, uninstall=uninstall, repair=repair, root=root, site=site
    )


def test_all_is_well(env):
    env.install("gradient-coding")
    told = env.run("gradient-coding doctor").splitlines()
    assert told == [
        f"gradient-coding {VERSION} is installed in {env.site}.",
        "Nothing is wrong.",
    ]
    assert env.run("gradient-coding --version").strip() == f"gradient-coding {VERSION}"
    assert "doctor" in env.run("gradient-coding")
    # The command names missing extras by the distribution's name.
    assert 'pip install "gradient-coding[cli]"' in env.run("fastgc", status=1)


def test_a_stranger_that_came_after_ours(env):
    env.install("gradient-coding", "fastgc")
    assert env.run("python -c 'import fastgc; print(fastgc.points)'").strip() == "of a cloud"
    told = env.run("gradient-coding doctor", status=1)
    assert told == env.run("python -m gradient_coding doctor", status=1)
    assert 'fastgc 0.2.0 is installed there, too: "Clouds of points".\n' in told
    assert "Problem: fastgc 0.2.0 and gradient-coding have files of the same names" in told
    (line,) = re.findall("^Problem: 2 files are of fastgc 0.2.0: (.*)$", told, re.M)
    assert {*line.rstrip(".").split(", ")} == {
        str(env.site / "fastgc" / "__init__.py"),
        str(env.root / "bin" / "fastgc"),
    }
    env.repair(told)
    assert not (env.site / "fastgc" / "lidar.py").exists()


def test_a_stranger_that_was_there_before(env):
    env.install("fastgc", "gradient-coding")
    told = env.run("gradient-coding doctor", status=1)
    # No file is overwritten yet, but the next upgrade of either package would do it.
    assert re.findall("^Problem: (.{15})", told, re.M) == ["fastgc 0.2.0 an"]
    env.repair(told)


def test_a_stranger_that_is_gone_again(env):
    env.install("gradient-coding", "fastgc")
    env.uninstall("fastgc")
    env.run("python -c 'import fastgc'")  # it prints nothing
    told = env.run("gradient-coding doctor", status=1)
    (line,) = re.findall("^Problem: (.*)$", told, re.M)
    assert line.startswith("2 files are missing: ")
    assert str(env.site / "fastgc" / "__init__.py") in line
    assert str(env.root / "bin" / "fastgc") in line
    assert "uninstall" not in told
    env.repair(told)


def test_files_that_were_changed(env):
    env.install("gradient-coding")
    for name in ("errors", "guard", "__init__", "__main__"):
        with open(env.site / "fastgc" / f"{name}.py", "a") as file:
            file.write("\n")
    told = env.run("gradient-coding doctor", status=1)
    assert "Problem: 4 files are not as installed: " in told
    assert "and 1 more.\n" in told
    env.repair(told)


def test_another_folder_that_comes_first(env, tmp_path):
    env.install("gradient-coding")
    (tmp_path / "fastgc").mkdir()
    (tmp_path / "fastgc" / "__init__.py").touch()
    told = env.run("python -m gradient_coding doctor", cwd=tmp_path, status=1)
    (line,) = re.findall("^Problem: (.*)$", told, re.M)
    first, ours = tmp_path / "fastgc", env.site / "fastgc"
    assert line == (
        f"Python imports fastgc from {first}, which comes before {ours} on its path. Run Python in "
        "another folder, or with -P."
    )
    assert "To repair it" not in told  # no installed package is wrong
    told = env.run("gradient-coding doctor", status=1, PYTHONPATH=str(tmp_path))
    assert f"Take {tmp_path} out of PYTHONPATH." in told
    env.run("gradient-coding doctor", cwd=tmp_path)  # the command does not import from there
    env.run("python -P -m gradient_coding doctor", cwd=tmp_path)
    # A user's script.
    shutil.rmtree(tmp_path / "fastgc")
    (tmp_path / "fastgc.py").touch()
    told = env.run("python -m gradient_coding doctor", cwd=tmp_path, status=1)
    assert f"imports fastgc from {tmp_path / 'fastgc.py'}, which comes" in told
    assert "Give that file another name." in told


def test_an_editable_install(env, tmp_path):
    checkout = write(tmp_path / "checkout")
    files = {"_gradient_coding.pth": f"{checkout}\n"}
    made = wheel(tmp_path, "gradient-coding", VERSION, files, PROJECT["scripts"])
    env.install(made)
    (info,) = env.site.glob("gradient_coding-*.dist-info")
    origin = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(origin))
    # An installer would have listed the file that this test wrote.
    record = re.sub(r"(direct_url\.json),.*", r"\1,,", (info / "RECORD").read_text())
    (info / "RECORD").write_text(record)
    told = env.run("gradient-coding doctor")
    assert f"It is an editable install of {checkout}.\nNothing is wrong." in told
    env.install("fastgc")
    told = env.run("gradient-coding doctor", status=1)
    assert f"Problem: 1 file is of fastgc 0.2.0: {env.root / 'bin' / 'fastgc'}." in told
    env.uninstall("fastgc")
    told = env.run("gradient-coding doctor", status=1)
    assert f"Problem: 1 file is missing: {env.root / 'bin' / 'fastgc'}." in told
    assert told.rstrip().endswith(f"--force-reinstall --no-deps --editable {checkout}")


def test_it_is_repaired_from_where_it_came(env, tmp_path):
    env.install("gradient-coding")
    (info,) = env.site.glob("gradient_coding-*.dist-info")
    (env.site / "fastgc" / "__init__.py").unlink()
    url, folder = "https://example.org/x", tmp_path.as_uri()
    for origin, again in (
        ({"url": f"{folder}/x.whl", "archive_info": {}}, f"gradient-coding=={VERSION}"),  # no file
        ({"url": url, "archive_info": {}}, url),
        ({"url": url, "vcs_info": {"vcs": "git", "commit_id": "abc"}}, f"git+{url}@abc"),
        ({"url": folder, "dir_info": {}}, str(tmp_path)),
    ):
        (info / "direct_url.json").write_text(json.dumps(origin))
        told = env.run("gradient-coding doctor", status=1)
        assert shlex.split(told.splitlines()[-1])[-3:] == ["--force-reinstall", "--no-deps", again]
    (info / "INSTALLER").write_text("uv\n")
    command = shlex.split(env.run("gradient-coding doctor", status=1).splitlines()[-1])
    assert command[:4] == ["uv", "pip", "install", "--python"]
    assert Path(command[4]).parent == env.root / "bin"


def test_what_conda_installed(env, tmp_path):
    """It writes commands anew, and changes compiled files, after RECORD was made."""
    env.install("gradient-coding")
    (info,) = env.site.glob("gradient_coding-*.dist-info")
    built = {"url": (tmp_path / "work").as_uri(), "dir_info": {}}
    (info / "direct_url.json").write_text(json.dumps(built))
    (tmp_path / "work").mkdir()
    command = env.root / "bin" / "fastgc"
    command.write_text(command.read_text() + "\n")
    assert f"1 file is not as installed: {command}" in env.run("gradient-coding doctor", status=1)
    (info / "INSTALLER").write_text("conda\n")
    assert "Nothing is wrong." in env.run("gradient-coding doctor")
    command.unlink()
    with open(env.site / "fastgc" / "errors.py", "a") as file:
        file.write("\n")
    told = env.run("gradient-coding doctor", status=1)
    assert f"1 file is missing: {command}." in told
    assert f"1 file is not as installed: {env.site / 'fastgc' / 'errors.py'}." in told
    again = ["--prefix", str(env.root), "--force-reinstall", "--no-deps"]
    told = shlex.split(told.splitlines()[-1])
    assert told == ["conda", "install", *again, f"gradient-coding=={VERSION}"]


def test_folders_of_packages(env, tmp_path):
    """`pip install --target` lists its commands in another folder than it installs them to."""
    env.run(f"python -m pip install --quiet --no-deps --target {tmp_path / 'to'} gradient-coding")
    told = env.run("python -m gradient_coding doctor", PYTHONPATH=str(tmp_path / "to"))
    assert "Nothing is wrong." in told
    (tmp_path / "to" / "bin" / "fastgc").write_text("another")
    told = env.run("python -m gradient_coding doctor", PYTHONPATH=str(tmp_path / "to"), status=1)
    assert f"1 file is not as installed: {tmp_path / 'to' / 'bin' / 'fastgc'}" in told


def test_a_checkout_that_is_not_installed(env, tmp_path):
    write(tmp_path)
    assert env.run("python -m gradient_coding doctor", cwd=tmp_path).splitlines() == [
        "gradient-coding is not installed.",
        f"Python imports fastgc from the checkout {tmp_path}.",
        "Nothing is wrong.",
    ]
    assert "not installed" in env.run("python -m gradient_coding --version", cwd=tmp_path)
    env.install("fastgc")
    told = env.run("python -m gradient_coding doctor", cwd=tmp_path, status=1)
    assert "Problem: The command fastgc is that of fastgc 0.2.0." in told
    (tmp_path / "pyproject.toml").unlink()
    told = env.run("python -m gradient_coding doctor", cwd=tmp_path, status=1)
    assert f"The package fastgc in {tmp_path / 'fastgc'} is not that of gradient-coding" in told
    shutil.rmtree(tmp_path / "fastgc")
    env.uninstall("fastgc")
    told = env.run("python -m gradient_coding doctor", cwd=tmp_path, status=1)
    assert "Problem: Python finds no package fastgc." in told
    assert told.rstrip().endswith("-m pip install gradient-coding")


def test_it_needs_nothing_and_imports_little():
    source = (
        "import sys; before = {*sys.modules}; import gradient_coding;"
        "print(sorted({*sys.modules} - before));"
        "import gradient_coding.__main__; print('fastgc' in sys.modules, 'numpy' in sys.modules)"
    )
    # -S: site imports modules of its own to find editable installations.
    command = [sys.executable, "-S", "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["['gradient_coding']", "False False"]


def test_status_in_this_very_environment(capsys):
    status = main(["doctor"])
    assert status == ("Problem: " in (told := capsys.readouterr().out))
    assert ("Nothing is wrong." in told) != status
