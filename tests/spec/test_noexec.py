"""noexec: what guests can write cannot be executed, by any name and from any descriptor."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_NOEXEC_SEAL, MFD_EXEC = 1, 2, 8, 16
LOADER = "/lib64/ld-linux-x86-64.so.2"

MEMORY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
content = open("/bin/true", "rb").read()
def attempt(flags):
    fd = libc.syscall(319, b"name", flags)
    if fd < 0: return -ctypes.get_errno()
    os.write(fd, content)
    try: os.fchmod(fd, 0o755)
    except OSError: pass
    pid = os.fork()
    if pid == 0:
        try: os.execve(fd, ["x"], {})
        except OSError as error: os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert os.readlink(f"/proc/self/fd/{fd}") == "/memfd:name (deleted)" and os.pread(fd, 4, 0) == b"\\x7fELF"
    assert os.get_inheritable(fd) == (not flags & 1)
    os.close(fd)
    return code
print(*(attempt(flags) for flags in (0, 1, 2, 3, 8, 16)))
"""

PLACES = ("/tmp", "/home/agentos", "/dev/shm", "/var/tmp", "/opt", "/work")
FILES = """
cp /bin/true {place}/copy && chmod 755 {place}/copy || exit 99
{place}/copy; echo $?
ln -s copy {place}/link; {place}/link; echo $?
{loader} {place}/copy 2>/dev/null; echo $?
python3 -c 'import os; os.execve(os.open("{place}/copy", os.O_RDONLY), ["x"], {{}})' 2>/dev/null; echo $?
"""


@pytest.fixture
def host_folder(tmp_path: Path) -> HostDir:
    folder = tmp_path / "work"
    folder.mkdir()
    folder.chmod(0o777)
    return HostDir(str(folder), mode="rw")


def kernel_knows_noexec_memory() -> bool:
    fd = int(ctypes.CDLL(None).syscall(319, b"probe", MFD_NOEXEC_SEAL))
    if fd >= 0:
        os.close(fd)
    return fd >= 0


@pytest.mark.parametrize("permissions", [None, deny("/nobody/**")], ids=["default", "judged"])
def test_files_that_guests_wrote_are_not_executed(
    vm_factory: Callable[..., VM], host_folder: HostDir, permissions: dict[str, object] | None
) -> None:
    for noexec, expected in ((False, "0 0 0 0"), (True, "126 126 127 1")):
        vm = vm_factory(permissions=permissions, noexec=noexec, mounts={"/work": host_folder})
        for place in PLACES:
            result = vm.run(FILES.format(place=place, loader=LOADER))
            assert (place, result.stdout.split()) == (place, expected.split())
        vm.run("rm -f /work/copy /work/link", check=True)


@pytest.mark.skipif(not kernel_knows_noexec_memory(), reason="Linux before 6.3 has no memory file that cannot be executed")
def test_memory_files_are_not_executed(vm_factory: Callable[..., VM]) -> None:
    assert vm_factory().run(["python3", "-c", MEMORY]).stdout == "0 0 0 0 13 0\n"
    vm = vm_factory(noexec=True)
    result = vm.run(["python3", "-c", MEMORY])
    assert (result.stdout, result.stderr) == ("13 13 13 13 13 -13\n", "")


def test_programs_of_the_system_and_read_only_folders_run(vm_factory: Callable[..., VM], tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o755)
    tmp_path.chmod(0o755)
    vm = vm_factory(noexec=True, mounts={"/tools": HostDir(str(tmp_path), mode="ro")})
    assert vm.run("/tools/tool; python3 -c 'print(1)' | cat; sh -c 'echo shell'").stdout == "tool\n1\nshell\n"


def test_seeded_files_are_read_and_not_executed(vm_factory: Callable[..., VM]) -> None:
    files = {"/opt/script": b"#!/bin/sh\necho ran\n"}
    assert vm_factory(files=files).run(["/opt/script"]).stdout == "ran\n"
    vm = vm_factory(files=files, noexec=True)
    assert vm.run(["/opt/script"]).returncode == 126
    assert vm.run("/opt/script; echo $?").stdout == "126\n"
    assert vm.run(["sh", "/opt/script"]).stdout == "ran\n"  # an interpreter runs what it reads


def test_nothing_written_is_mapped_as_code(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import mmap, os, sys\nfd = os.open('/tmp/code', os.O_CREAT | os.O_RDWR)\nos.write(fd, bytes(4096))\n"
        "try: mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)\n"
        "except OSError as error: print(error.errno)\n"
        "else: print(0)\n"
    )
    assert vm_factory().run(["python3", "-c", program]).stdout == "0\n"
    assert vm_factory(noexec=True).run(["python3", "-c", program]).stdout == "1\n"


def test_it_is_part_of_the_status(vm_factory: Callable[..., VM]) -> None:
    assert "noexec" in vm_factory(noexec=True).status().notified
    assert "noexec" not in vm_factory().status().notified
