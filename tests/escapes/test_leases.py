"""A lease makes whoever opens a file wait for its holder: a guest takes none, so that neither supervisor nor host waits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.vm_fixtures import ORDINARY_USER, as_ordinary_user, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: Takes leases of both kinds, and then lets another process open the file without waiting for one that is held.
PROGRAM = """
import fcntl, os, signal, sys
path = sys.argv[1]
signal.signal(signal.SIGIO, signal.SIG_IGN)
reading = os.open(path, os.O_RDONLY)
F_SETDELEG = 1040
for command, kind in ((fcntl.F_SETLEASE, fcntl.F_RDLCK), (fcntl.F_SETLEASE, fcntl.F_WRLCK), (F_SETDELEG, fcntl.F_RDLCK)):
    try: print(fcntl.fcntl(reading, command, kind))
    except OSError as error: print(-error.errno)
pid = os.fork()
if pid == 0:
    try: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error: os._exit(error.errno)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
EINVAL, EAGAIN = 22, 11


def test_the_bare_host_gives_a_lease_that_keeps_others_out(host_dir: Path) -> None:
    """The control: a reading lease is given, and a writer would have to wait."""
    (host_dir / "file").write_bytes(b"content")
    if os.geteuid() == 0:
        os.chown(host_dir / "file", ORDINARY_USER, ORDINARY_USER)
    command = as_ordinary_user(["/usr/bin/python3", "-c", PROGRAM, str(host_dir / "file")])
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert shown[0] == "0"
    assert shown[-1] == str(EAGAIN)


@pytest.mark.parametrize(
    "permissions",
    [None, judged_but_allowed(), deny("/m/file", operations=["truncate"])],
    ids=["default", "judged", "partly-denied"],
)
def test_a_guest_takes_no_lease_and_nobody_waits(
    vm_factory: Callable[..., VM], host_dir: Path, permissions: dict[str, object] | None
) -> None:
    (host_dir / "file").write_bytes(b"content")
    if os.geteuid() == 0:
        os.chown(host_dir / "file", ORDINARY_USER, ORDINARY_USER)
    vm = vm_factory(permissions=permissions, mounts={"/m": HostDir(host_dir, mode="rw")})
    result = vm.run(["python3", "-c", PROGRAM, "/m/file"], timeout=60)
    assert (result.stdout.split(), result.stderr) == ([str(-EINVAL)] * 3 + ["0"], "")
    os.close(os.open(host_dir / "file", os.O_RDWR | os.O_NONBLOCK))
    assert vm.fs.unchecked.read_bytes("/m/file") == b"content"
