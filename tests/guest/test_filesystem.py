"""`vm.fs`, over a supervisor that works on the bare host: what each method asks for, and what it makes of the answers."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.guest.filesystem import GuestFiles
from callgate.guest.transfer import _stays_inside
from callgate.kernel.audit import DenialLog
from callgate.kernel.launch import Supervisor
from callgate.scopes import PermissionDenied


@pytest.fixture
def log() -> DenialLog:
    return DenialLog()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def fs(supervisor: Supervisor, home: Path, log: DenialLog) -> GuestFiles:
    return GuestFiles(supervisor, str(home), log.add)


def test_bytes_and_text_are_written_and_read(fs: GuestFiles, home: Path) -> None:
    assert fs.write_bytes("a", b"\xff\0") == 2
    assert fs.read_bytes(home / "a") == b"\xff\0"
    assert fs.write_text("a", "ä\r\n") == 3
    assert (home / "a").read_bytes() == "ä\r\n".encode()
    assert fs.read_text("a") == "ä\r\n"
    assert fs.read_text("a", "latin-1") == "Ã¤\r\n"
    fs.write_bytes("a", b"")
    assert fs.read_bytes("a") == b""


def test_a_file_longer_than_the_limit_is_refused_rather_than_taken_into_memory(fs: GuestFiles, home: Path) -> None:
    (home / "sparse").touch()
    os.truncate(home / "sparse", 1 << 40)
    with pytest.raises(OSError, match="more than 1000 bytes"):
        fs.read_bytes("sparse", limit=1000)
    (home / "exact").write_bytes(b"x" * 1000)
    assert len(fs.read_bytes("exact", limit=1000)) == 1000


@pytest.mark.parametrize("use", [lambda fs: fs.read_bytes("fifo"), lambda fs: fs.write_bytes("fifo", b"x")])
def test_a_fifo_put_there_by_the_guest_does_not_block(fs: GuestFiles, home: Path, use: Callable[[GuestFiles], object]) -> None:
    os.mkfifo(home / "fifo")
    with pytest.raises(OSError, match=r"not a regular file|No such device or address"):
        use(fs)


def test_directories_are_listed_and_walked_without_following_links(fs: GuestFiles, home: Path) -> None:
    (home / "d" / "e").mkdir(parents=True)
    (home / "d" / "f").touch()
    (home / "d" / "e" / "g").touch()
    (home / "d" / "loop").symlink_to("/")
    assert sorted(fs.listdir("d")) == ["e", "f", "loop"]
    walked = [(top, sorted(directories), sorted(files)) for top, directories, files in fs.walk("d")]
    assert walked == [("d", ["e"], ["f", "loop"]), ("d/e", [], ["g"])]


def test_a_walk_leaves_out_what_is_refused_and_says_so_when_asked(fs: GuestFiles, home: Path) -> None:
    (home / "d" / "denied").mkdir(parents=True)
    errors: list[OSError] = []
    assert [top for top, _, _ in fs.walk("d", onerror=errors.append)] == ["d"]
    assert [type(error) for error in errors] == [PermissionDenied]
    assert [top for top, _, _ in fs.walk("absent")] == []


def test_a_tree_deeper_than_python_recurses_can_be_walked_and_removed(fs: GuestFiles, home: Path) -> None:
    here = home / "deep"
    here.mkdir()
    deep = os.open(here, os.O_RDONLY)
    levels = 0
    while levels < 1100 and len(str(home)) + 5 + 2 * levels < 4000:
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep, levels = below, levels + 1
    os.close(deep)
    assert sum(1 for _ in fs.walk("deep")) == levels + 1
    with pytest.raises(OSError, match="nested more than 200 deep"):
        fs.download("deep", home / "copy")
    fs.remove("deep", recursive=True)
    assert not here.exists()


def test_stat_has_the_fields_of_os_stat(fs: GuestFiles, home: Path) -> None:
    (home / "f").write_bytes(b"12345")
    (home / "link").symlink_to("f")
    ours, theirs = fs.stat("link"), (home / "f").stat()
    for name in ("st_mode", "st_ino", "st_dev", "st_nlink", "st_size", "st_mtime", "st_mtime_ns", "st_atime_ns", "st_ctime_ns"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours[stat.ST_MTIME] == theirs[stat.ST_MTIME]
    assert stat.S_ISLNK(fs.stat("link", follow_symlinks=False).st_mode)


def test_exists_is_false_for_what_is_missing_dangling_or_refused(fs: GuestFiles, home: Path) -> None:
    (home / "f").touch()
    (home / "dangling").symlink_to("absent")
    (home / "loop").symlink_to("loop")
    (home / "denied").touch()
    assert [fs.exists(name) for name in ("f", "absent", "f/below", "dangling", "loop", "denied")] == [True] + [False] * 5
    assert fs.unchecked.exists("denied")


def test_directories_are_made_as_pathlib_makes_them(fs: GuestFiles, home: Path) -> None:
    fs.mkdir("a", 0o700)
    assert stat.S_IMODE((home / "a").stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        fs.mkdir("a")
    fs.mkdir("a", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        fs.mkdir("b/c/d")
    fs.mkdir("b/c/d", parents=True)
    assert (home / "b" / "c" / "d").is_dir()
    (home / "file").touch()
    with pytest.raises(FileExistsError):
        fs.mkdir("file", exist_ok=True)


def test_remove_takes_files_links_and_empty_directories_and_more_only_when_told(fs: GuestFiles, home: Path) -> None:
    (home / "d" / "e").mkdir(parents=True)
    (home / "d" / "e" / "f").touch()
    (home / "d" / "link").symlink_to(home / "kept")
    (home / "kept").mkdir()
    (home / "kept" / "precious").touch()
    with pytest.raises(OSError, match="not empty"):
        fs.remove("d")
    fs.remove("d", recursive=True)
    assert not (home / "d").exists()
    assert (home / "kept" / "precious").exists()
    fs.remove("kept/precious")
    fs.remove("kept")
    assert not (home / "kept").exists()


def test_names_and_modes_are_changed(fs: GuestFiles, home: Path) -> None:
    (home / "f").touch()
    fs.rename("f", "g")
    fs.symlink("g", "link")
    assert fs.readlink("link") == "g"
    fs.chmod("g", 0o640)
    assert stat.S_IMODE((home / "g").stat().st_mode) == 0o640
    with pytest.raises(FileNotFoundError) as failure:
        fs.rename("absent", "x")
    assert (failure.value.filename, failure.value.filename2) == (f"{home}/absent", f"{home}/x")


def test_a_refusal_is_raised_and_recorded_and_unchecked_does_without(fs: GuestFiles, home: Path, log: DenialLog) -> None:
    (home / "denied").write_bytes(b"s3cret")
    with pytest.raises(PermissionDenied) as refusal:
        fs.read_bytes("denied")
    assert str(refusal.value) == f"EACCES: permission denied, read '{home}/denied': blocked by fs.read policy"
    assert (refusal.value.errno, refusal.value.rule, refusal.value.scope) == (13, 0, "fs")
    assert [str(denial) for denial in log.latest()] == [str(refusal.value)]
    assert fs.unchecked.read_bytes("denied") == b"s3cret"


@pytest.mark.parametrize(("path", "error"), [("", FileNotFoundError), ("a\0b", ValueError)])
def test_paths_that_cannot_be_are_refused_on_the_host(fs: GuestFiles, path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        fs.stat(path)


# -- whole trees -------------------------------------------------------------------------------------------------------


def make_tree(top: Path) -> None:
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "tool").write_bytes(b"#!/bin/sh\n")
    (top / "sub" / "tool").chmod(0o750)
    (top / "big").write_bytes(os.urandom(1 << 20) * 2 + b"end")
    (top / "link").symlink_to("sub/tool")
    (top / "sub" / "up").symlink_to("../big")


def test_a_tree_survives_the_way_in_and_out(fs: GuestFiles, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("host")
    make_tree(outside / "from")
    fs.upload(outside / "from", "in")
    assert fs.download("in", outside / "to") == []
    for name in ("sub/tool", "big"):
        assert (outside / "to" / name).read_bytes() == (outside / "from" / name).read_bytes()
        assert (outside / "to" / name).stat().st_mode == (outside / "from" / name).stat().st_mode
    assert (outside / "to" / "link").readlink() == Path("sub/tool")
    assert (outside / "to" / "sub" / "up").readlink() == Path("../big")


def test_a_single_file_is_copied_both_ways(fs: GuestFiles, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("host")
    (outside / "f").write_bytes(b"x")
    fs.upload(outside / "f", "g")
    fs.download("g", outside / "h")
    assert (outside / "h").read_bytes() == b"x"


def test_a_download_never_replaces_or_follows_what_is_on_the_host(
    fs: GuestFiles, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("host")
    (home / "f").write_bytes(b"guest's")
    (outside / "precious").write_bytes(b"host's")
    (outside / "link").symlink_to("precious")
    for name in ("precious", "link"):
        with pytest.raises(FileExistsError):
            fs.download("f", outside / name)
    assert (outside / "precious").read_bytes() == b"host's"


def test_links_out_of_the_tree_and_special_files_are_left_out_and_listed(
    fs: GuestFiles, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("host")
    tree = home / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "kept").touch()
    (tree / "absolute").symlink_to("/etc/passwd")
    (tree / "above").symlink_to("../secret")
    (tree / "sub" / "inside").symlink_to("../kept")
    (tree / "sub" / "above").symlink_to("../../secret")
    os.mkfifo(tree / "fifo")
    left_out = fs.download("tree", outside / "copy")
    assert sorted(left_out) == ["tree/above", "tree/absolute", "tree/fifo", "tree/sub/above"]
    assert sorted(path.name for path in (outside / "copy").rglob("*")) == ["inside", "kept", "sub"]


@pytest.mark.parametrize(
    ("target", "depth", "inside"),
    [
        ("a", 1, True),
        ("./a//b", 1, True),
        ("..", 1, False),
        ("../a", 1, False),
        ("../a", 2, True),
        ("../../a", 2, False),
        ("a/../b", 5, False),
        ("a/..", 1, False),
        ("/a", 3, False),
        ("", 1, True),
    ],
)
def test_a_links_text_decides_whether_it_stays_inside(target: str, depth: int, inside: bool) -> None:
    assert _stays_inside(target, depth) is inside
