"""Terminals opened on behalf: /dev/tty is the caller's own, the pseudo-terminals are the VM's."""

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

#: Without a terminal, on one of its own, in a thread of that process, in a child of it, and after it has given it up.
PROGRAM: Final = """
import fcntl, os, pty, termios, threading
def attempt(name, flags=os.O_RDWR):
    try: fd = os.open(name, flags)
    except OSError as error: return error.errno
    shown = os.isatty(fd), fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_NONBLOCK), os.get_inheritable(fd)
    if flags & os.O_ACCMODE != os.O_RDONLY: os.write(fd, b"[written]")
    os.close(fd)
    return shown
def say(*words): os.write(1, (" ".join(map(str, words)) + "|").encode())
if os.getsid(0) != os.getpid(): os.setsid()
print(attempt("/dev/tty"))
for _ in range(2):  # a second one has another number
    pid, master = pty.fork()
    if pid == 0:
        say(attempt("/dev/tty"), attempt("/dev/tty", os.O_RDONLY | os.O_NONBLOCK), attempt("/dev/tty", os.O_WRONLY | os.O_NOCTTY))
        say(attempt(os.ttyname(0)), os.stat("/dev/tty").st_rdev, attempt("/dev/tty/"), attempt("/dev/tty", os.O_DIRECTORY))
        thread = threading.Thread(target=lambda: say(attempt("/dev/tty"))); thread.start(); thread.join()
        inner = os.fork()
        if inner == 0: say(attempt("/dev/tty")); os._exit(0)
        os.waitpid(inner, 0)
        if os.fork() == 0:
            os.setsid(); say(attempt("/dev/tty"))
            os._exit(0)
        os.wait()
        os._exit(0)
    shown = b""
    while True:
        try: more = os.read(master, 1000)
        except OSError: break
        if not more: break
        shown += more
    os.waitpid(pid, 0)
    print(shown.decode())
print(attempt("/dev/ptmx"), attempt("/dev/tty"))
"""


def test_they_are_what_they_are_on_the_bare_host(vm_factory: Callable[..., VM], host_dir: Path) -> None:
    command = as_ordinary_user(["/usr/bin/python3", "-c", PROGRAM])
    on_host = subprocess.run(command, capture_output=True, text=True, check=True, cwd=host_dir).stdout
    assert "[written](True, 2, False)" in on_host
    for permissions in (None, judged_but_allowed(), deny("/home/**"), {"fs": "deny"}):
        result = vm_factory(permissions=permissions).run(["python3", "-c", PROGRAM], timeout=30)
        assert (result.stdout, result.stderr) == (on_host, "")
