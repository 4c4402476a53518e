"""Files are replaced as a whole, or not at all, and probes leave no trace."""

import errno
import fcntl
import os
import re
import socket
import stat
import threading

import pytest

from fastgc._base.writing import probe, write_file


def listed(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_write_file_replaces_the_whole_file(tmp_path):
    path = tmp_path / "a.txt"
    write_file(path, b"one", memoryview(b" and two"))
    assert path.read_bytes() == b"one and two"
    usual = os.umask(0)
    os.umask(usual)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~usual
    path.chmod(0o640)
    held = path.open("rb")
    write_file(str(path), b"three")
    assert held.read() == b"one and two"  # whoever reads it meanwhile has the old content
    held.close()
    assert path.read_bytes() == b"three"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_file(path)
    assert path.read_bytes() == b""
    assert listed(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_write_file_keeps_the_owner(tmp_path):
    path = tmp_path / "a.txt"
    path.touch()
    os.chown(path, 1234, 2345)
    write_file(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_write_file_follows_links_but_replaces_those_in_its_own_folder(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    for content in b"new", b"newer":  # first there is nothing at the link's end
        probe(link)
        write_file(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    write_file(link, b"own", own=True)
    assert not link.is_symlink()
    assert target.read_bytes() == b"newer"


def test_write_file_gives_devices_and_pipes_what_they_keep(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    probe(pipe)
    write_file(pipe, b"a", b"b")
    reader.join(10)
    assert got == [b"ab"]
    (tmp_path / "full").symlink_to("/dev/full")
    probe(tmp_path / "full")
    with pytest.raises(OSError, match="No space left") as failed:
        write_file(tmp_path / "full", b"a")
    assert failed.value.filename == str(tmp_path / "full")
    assert listed(tmp_path) == ["full", "pipe"]


OPERATIONS = ("open", "fchmod", "write", "fsync", "replace")


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, None])
def test_write_file_fails_at_every_touch(name, own, code, tmp_path, monkeypatch):
    """The old content stays, nothing is beside it, and the error names the file; or Ctrl-C ends."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    opened = len(os.listdir("/proc/self/fd"))

    def fail(*_, **__):
        raise KeyboardInterrupt if code is None else OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, name, fail)
        if own and name == "fchmod":
            return
        with pytest.raises(KeyboardInterrupt if code is None else OSError) as failed:
            write_file(path, b"new", own=own)
    if code is not None:
        assert (failed.value.errno, failed.value.filename) == (code, str(path))
    assert path.read_bytes() == b"old"
    assert listed(tmp_path) == ["a.txt"]
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.parametrize("own", [False, True])
def test_write_file_removes_what_killed_processes_left(own, tmp_path):
    """In its folder, but not what another process writes at this time."""
    (tmp_path / ".fastgc-0.part").write_bytes(b"torn")
    os.mkfifo(tmp_path / ".fastgc-1.part")
    (tmp_path / ".fastgc-2.part").symlink_to("mine")
    with (tmp_path / ".fastgc-3.part").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        write_file(tmp_path / "a", b"whole", own=own)
    assert listed(tmp_path) == [".fastgc-2.part", ".fastgc-3.part", "a"]
    probe(tmp_path / "a")
    assert listed(tmp_path) == [".fastgc-2.part", "a"]


@pytest.mark.parametrize("removed", [True, False])
def test_write_file_of_a_part_that_another_process_removes(removed, tmp_path, monkeypatch):
    """It found the part before that was locked, and has removed it, or is about to."""
    lock, found = fcntl.flock, []

    def late(file, operation):
        if not found:
            found[:] = tmp_path.glob(".fastgc-*")
            found[0].unlink()
            if not removed:
                raise BlockingIOError
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write_file(tmp_path / "a", b"whole")
    assert listed(tmp_path) == ["a"]


def test_write_file_where_nothing_can_be_locked(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    (tmp_path / ".fastgc-0.part").touch()
    write_file(tmp_path / "a", b"whole")
    assert listed(tmp_path) == [".fastgc-0.part", "a"]


def test_probe_leaves_everything_as_it_is(tmp_path):
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_bytes(b"old")
    before = old.stat()
    for path in old, new, tmp_path / "x" / ".." / "new.txt", tmp_path / ("n" * 250):
        (tmp_path / "x").mkdir(exist_ok=True)
        probe(path)
    assert listed(tmp_path) == ["old.txt", "x"]
    assert old.stat() == before


@pytest.mark.parametrize("check", [probe, write_file])
@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("folder", ValueError, "folder is a folder: name a file"),
        ("nowhere/a.txt", ValueError, "there is no folder .*nowhere to write a.txt to"),
        ("file/a.txt", ValueError, "there is no folder .*file to write a.txt to"),
        ("dangling", ValueError, "dangling is a link to .*nowhere/b, whose folder is not there"),
        ("socket", ValueError, "socket is a socket: name a file"),
        ("loop", OSError, "symbolic links: .*loop"),
        ("n" * 300, OSError, "name too long: .*nnn"),
        ("readonly", PermissionError, "Permission denied: .*readonly"),
    ],
)
def test_probe_says_what_is_wrong_with_a_path(check, name, error, says, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "readonly").touch()
    (tmp_path / "dangling").symlink_to("nowhere/b")
    (tmp_path / "loop").symlink_to("loop")
    access = os.access  # root may do everything
    monkeypatch.setattr(
        os, "access", lambda path, mode: path.name != "readonly" and access(path, mode)
    )
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        before = listed(tmp_path)
        with pytest.raises(error, match=f"(?i){says}"):
            check(tmp_path / name)
    assert listed(tmp_path) == before


@pytest.mark.parametrize(("name", "code"), [("open", errno.EROFS), ("write", errno.ENOSPC)])
def test_probe_finds_disks_that_are_full_or_read_only(name, code, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, name, fail)
        with pytest.raises(OSError, match="; name a file in another folder") as failed:
            probe(tmp_path / "a.txt")
    assert failed.value.filename == str(tmp_path / "a.txt")
    assert re.search(os.strerror(code), str(failed.value))
    assert listed(tmp_path) == []
