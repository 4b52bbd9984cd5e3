"""Opening a fifo waits for the other end as on the bare host: a quick or a silent one is not missed (catalogue 43)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.vm_fixtures import as_ordinary_user, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

PROGRAM: Final = """
import errno, os, signal, sys, threading, time
path, rounds = os.path.join(sys.argv[1], "fifo"), int(sys.argv[2])
os.mkfifo(path)
def in_thread(work):
    thread = threading.Thread(target=work); thread.start()
    return thread
def quick(): os.close(os.open(path, os.O_WRONLY))
def quick_to_read(): os.close(os.open(path, os.O_RDONLY))
for _ in range(rounds):  # gone again at once
    thread = in_thread(quick)
    fd = os.open(path, os.O_RDONLY); assert os.read(fd, 1) == b""; os.close(fd); thread.join()
for _ in range(rounds):
    thread = in_thread(quick_to_read)
    os.close(os.open(path, os.O_WRONLY)); thread.join()
go = threading.Event()
def silent():  # says nothing until the reader has it open
    fd = os.open(path, os.O_WRONLY); go.wait(); os.write(fd, b"after"); os.close(fd)
for name in (path, "/proc/self/root" + path, os.path.relpath(path)):
    go.clear(); thread = in_thread(silent)
    fd = os.open(name, os.O_RDONLY); go.set(); print(os.read(fd, 9), os.get_blocking(fd), os.read(fd, 9))
    os.close(fd); thread.join()
fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK); print(os.read(fd, 1), os.get_blocking(fd)); os.close(fd)
try: os.open(path, os.O_WRONLY | os.O_NONBLOCK)
except OSError as error: print(errno.errorcode[error.errno])
kept = os.open(path, os.O_RDWR)  # there before
os.write(kept, b"waiting"); fd = os.open(path, os.O_RDONLY); print(os.read(fd, 7)); os.close(fd); os.close(kept)
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGALRM, ring)
for flags in (os.O_RDONLY, os.O_WRONLY):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try: os.open(path, flags)
    except Alarm: print("interrupted")
for flags in (os.O_RDONLY, os.O_WRONLY):
    pid = os.fork()
    if pid == 0: os.open(path, flags)
    time.sleep(0.02); os.kill(pid, signal.SIGKILL); print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
reader = os.fork()
if reader == 0: fd = os.open(path, os.O_RDONLY); os._exit(len(os.read(fd, 10)))
fd = os.open(path, os.O_WRONLY); os.write(fd, b"four"); os.close(fd); print(os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]))
"""


@pytest.mark.parametrize("rounds", ["300", pytest.param("20000", marks=pytest.mark.slow)])
def test_a_fifo_is_opened_as_on_the_bare_host(vm_factory: Callable[..., VM], host_dir: Path, rounds: str) -> None:
    command = as_ordinary_user(["/usr/bin/python3", "-c", PROGRAM, str(host_dir), rounds])
    on_host = subprocess.run(command, capture_output=True, text=True, check=True, cwd=host_dir, timeout=300).stdout
    assert "b'after' True b''" in on_host
    for permissions in (None, judged_but_allowed(), deny("/tmp/other", operations=["read"])):
        vm = vm_factory(permissions=permissions)
        result = vm.run(["python3", "-c", PROGRAM, "/tmp", rounds], cwd="/tmp", timeout=300)
        assert (result.stdout, result.stderr) == (on_host, "")


def test_where_a_fifo_is_denied_its_writer_is_not_let_in(vm_factory: Callable[..., VM]) -> None:
    """Nobody is told that somebody tried to read: the writer goes on waiting."""
    program = (
        "import os, threading, time\nopened = []\n"
        "def write(): opened.append(os.open('/w/fifo', os.O_WRONLY))\n"
        "thread = threading.Thread(target=write, daemon=True); thread.start(); time.sleep(0.1)\n"
        "for flags in (os.O_RDONLY, os.O_RDONLY | os.O_NONBLOCK, os.O_RDWR):\n"
        "    try: os.open('/w/fifo', flags)\n    except OSError as error: print(error.errno)\n"
        "time.sleep(0.1); print(len(opened), flush=True); os._exit(0)\n"
    )
    vm = vm_factory(permissions=deny("/w/fifo", operations=["read"]), files={"/w/file": b""})
    assert vm.run("mkfifo /w/fifo").returncode == 0
    assert vm.run(["python3", "-c", program], timeout=60).stdout.split() == ["13", "13", "13", "0"]
