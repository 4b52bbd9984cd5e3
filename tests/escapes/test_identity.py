"""Files a guest makes are its own with its own umask, and other users' files stay closed (catalogue 48 to 51)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.vm_fixtures import Out, Probe, as_ordinary_user, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

MAKE = """
import os, sys
os.chdir(sys.argv[1])
for mask in (0o000, 0o022, 0o027, 0o077, 0o777):
    os.umask(mask)
    os.close(os.open(f"file{mask:o}", os.O_CREAT | os.O_WRONLY, 0o6777))
    os.mkdir(f"dir{mask:o}", 0o1777)
    os.mkfifo(f"fifo{mask:o}", 0o666)
    os.symlink("x", f"link{mask:o}")
os.umask(0o022)
os.mkdir("shared", 0o755)
os.chmod("shared", 0o2775)
os.mkdir("shared/below", 0o755)
os.close(os.open("shared/file", os.O_CREAT | os.O_WRONLY, 0o644))
for folder, folders, files in os.walk("."):
    for name in sorted(folders + files):
        status = os.lstat(os.path.join(folder, name))
        print(os.path.join(folder, name), oct(status.st_mode), status.st_uid == os.geteuid(), status.st_gid == os.getegid())
"""


def test_modes_and_owners_of_what_is_made_are_those_on_the_host(vm_factory: Callable[..., VM], host_dir: Path) -> None:
    command = as_ordinary_user(["/usr/bin/python3", "-c", MAKE, str(host_dir)])
    on_host = sorted(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
    for permissions in (None, judged_but_allowed()):
        vm = vm_factory(permissions=permissions)
        vm.fs.unchecked.mkdir("/tmp/w")
        result = vm.run(["python3", "-c", MAKE, "/tmp/w"])
        assert (sorted(result.stdout.splitlines()), result.stderr) == (on_host, "")


def test_the_umask_of_the_thread_is_used_not_that_of_its_process(
    vm_factory: Callable[..., VM], probe: Probe, host_dir: Path
) -> None:
    def script(top: str) -> list[str]:
        return [call("umask", 0o077), call("mkdir", f"{top}/theirs", 0o777), call("stat", f"{top}/theirs", Out(144))]

    vm = vm_factory(permissions=judged_but_allowed(), files=probe.files)
    for answers in (
        probe.on_host(script(str(host_dir)), caller="lone-fs", cwd=host_dir),
        probe.in_vm(vm, script("/tmp"), caller="lone-fs"),
    ):
        assert results(answers) == [0o022, 0, 0]
        assert int.from_bytes(answers[2].outputs[0][24:28], "little") == 0o40700


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A host directory that anybody may read, with files that only their owner, who is somebody else, may."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    for name, mode in (("private", 0o600), ("group", 0o640), ("public", 0o644)):
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
        if os.geteuid() == 0:
            os.chown(folder / name, 4242, 4242)
    (folder / "closed").mkdir(mode=0o700)
    (folder / "closed/inner").write_text("inner")
    if os.geteuid() == 0:
        os.chown(folder / "closed", 4242, 4242)
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of somebody else's")
@pytest.mark.parametrize("permissions", [None, judged_but_allowed(), deny("/elsewhere/**", operations=["read"])])
def test_a_supervisor_started_by_root_opens_nothing_that_is_somebody_elses(
    vm_factory: Callable[..., VM], others: Path, permissions: dict[str, object] | None
) -> None:
    vm = vm_factory(permissions=permissions, mounts={"/m": HostDir(others, mode="rw")})
    script = (
        "cat /m/public; for f in private group closed/inner; do cat /m/$f 2>&1; done; ls /m/closed 2>&1;"
        " chmod 644 /m/private 2>&1; echo x 2>&1 >> /m/public; echo x > /m/closed/new"
    )
    result = vm.run(script)
    assert result.stdout.startswith("public")
    assert "cat: /m/private: Permission denied" in result.stdout
    assert "cat: /m/group: Permission denied" in result.stdout
    assert "cat: /m/closed/inner: Permission denied" in result.stdout
    assert "chmod: changing permissions of '/m/private': " in result.stdout
    assert (others / "public").read_text() == "public"
    assert sorted(os.listdir(others / "closed")) == ["inner"]
    assert (others / "private").stat().st_mode & 0o777 == 0o600


STICKY = """
import os, sys
top = sys.argv[1]
def attempt(act):
    try: act()
    except OSError as error: return error.errno
    return 0
def write(path):
    with open(path, "a") as file: file.write("mine")
acts = {
    "remove": lambda: os.unlink(f"{top}/theirs"),
    "rename": lambda: os.rename(f"{top}/theirs", f"{top}/renamed"),
    "replace": lambda: os.rename(f"{top}/plain", f"{top}/theirs"),
    "rmdir": lambda: os.rmdir(f"{top}/folder"),
    "chmod": lambda: os.chmod(f"{top}/theirs", 0o600),
    "utime": lambda: os.utime(f"{top}/theirs", (1, 1)),
    "read": lambda: open(f"{top}/theirs").close(),
    "write": lambda: write(f"{top}/theirs"),
    "create": lambda: write(f"{top}/new"),
}
print(*(attempt(act) for act in acts.values()))
"""


@pytest.fixture
def sticky(host_dir: Path) -> Path:
    """A directory as /tmp is, in which everybody's files are safe from others, with somebody else's things in it."""
    top = host_dir / "sticky"
    top.mkdir()
    (top / "theirs").write_text("theirs")
    (top / "plain").write_text("theirs too")
    (top / "folder").mkdir()
    for path in (top / "theirs", top / "plain"):
        path.chmod(0o666)
        os.chown(path, 4242, 4242)
    os.chown(top / "folder", 4242, 4242)
    os.chown(top, 4243, 4243)
    top.chmod(0o1777)
    return top


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of somebody else's")
def test_in_a_sticky_directory_nothing_of_somebody_elses_is_removed(vm_factory: Callable[..., VM], sticky: Path) -> None:
    """As on the host, whether or not the calls are judged."""
    command = as_ordinary_user(["/usr/bin/python3", "-c", STICKY, str(sticky)])
    on_host = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert on_host == ["1", "1", "1", "1", "1", "1", "0", "0", "0"]
    (sticky / "new").unlink()
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_uid) for path in sticky.iterdir()}
    answers = []
    for permissions in (None, judged_but_allowed()):
        vm = vm_factory(permissions=permissions, mounts={"/m": HostDir(sticky.parent, mode="rw")})
        result = vm.run(["python3", "-c", STICKY, f"/m/{sticky.name}"])
        answers.append((result.stdout.split(), result.stderr))
        (sticky / "new").unlink(missing_ok=True)  # the next VM is another user
        assert {path.name: (path.stat().st_mtime_ns, path.stat().st_uid) for path in sticky.iterdir()} == before
    assert answers[0] == answers[1]
    assert "0" not in answers[0][0][:6]


def test_the_same_files_are_open_to_their_owner(others: Path) -> None:
    """The control: it is the owner that decides."""
    command = ["cat", str(others / "private")]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", "--", "sh", "-c", "cat < /proc/self/fd/0"]
        with (others / "private").open() as file:
            assert subprocess.run(["cat"], stdin=file, capture_output=True, text=True, check=True).stdout == "private"
        return
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "private"


def test_the_limit_on_file_sizes_holds_for_files_opened_on_behalf(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os, resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "fd = os.open('/tmp/x', os.O_CREAT | os.O_WRONLY)\nprint(os.write(fd, bytes(2000)), flush=True)\nos.write(fd, b'x')\n"
    )
    for permissions in (None, judged_but_allowed()):
        result = vm_factory(permissions=permissions).run(["python3", "-c", program])
        assert result.stdout == "1000\n"
        assert result.returncode in (1, -signal.SIGXFSZ)


def test_no_privilege_comes_from_a_set_user_id_program(vm_factory: Callable[..., VM]) -> None:
    program = "cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id; /tmp/id -u; grep -h '^Cap\\|^NoNew' /proc/self/status"
    for user, uid in (("agentos", 1000), ("root", 0)):
        lines = vm_factory(user=user, permissions=judged_but_allowed()).run(program).stdout.splitlines()
        assert lines[0] == str(uid)
        assert {line.split()[1] for line in lines[1:] if line.startswith("Cap")} == {"0" * 16}
        assert [line.split()[1] for line in lines if line.startswith("NoNewPrivs")] == ["1"]
