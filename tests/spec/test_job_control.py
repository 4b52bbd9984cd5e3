"""process: shells keep their jobs where signals may be sent, and what a terminal sends is nobody's call (SPEC 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def rules(*given: tuple[str, str], default: str = "allow") -> dict[str, object]:
    return {"process": {"default": default, "rules": [{"mode": mode, "patterns": [pattern]} for mode, pattern in given]}}


ALLOWING = {
    "default": None,
    "another-action": rules(("deny", "prlimit")),
    "another-process": rules(("deny", "kill:999")),
    "list": rules(("allow", "kill"), ("allow", "setpgid"), ("allow", "setsid"), default="deny"),
}

JOBS = """
set -m
sleep 60 & sleep 61 | sleep 62 &
jobs | wc -l
kill -STOP %2; until jobs %2 > /tmp/jobs; grep -q Stopped /tmp/jobs; do sleep 0.02; done; echo 1
kill -CONT %2; kill %2; wait %2; echo $?
kill -INT %1; wait %1; echo $?
(sleep 63 & sleep 64 & wait) & sleep 0.2; kill -TERM -- -$!; wait $!; echo $?
trap 'echo trapped' USR1; kill -USR1 $$; kill -USR1 0 2>/dev/null
exit 5
"""


@pytest.mark.parametrize("policy", ALLOWING)
def test_a_shell_runs_stops_continues_and_ends_its_jobs(vm_factory: Callable[..., VM], policy: str) -> None:
    result = vm_factory(permissions=ALLOWING[policy]).run(["bash", "-c", JOBS], timeout=60)
    assert (result.returncode, result.stdout.split()) == (5, ["2", "1", "143", "130", "143", "trapped", "trapped"])


KEYBOARD = """
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0: os.execvp("bash", ["bash", "--norc", "-i"])
def type_keys(keys, until):
    os.write(terminal, keys)
    seen = b""
    while until not in seen: seen += os.read(terminal, 4096)
    return seen
def until_foreground_is(shell):
    while (os.tcgetpgrp(terminal) == pid) is not shell: time.sleep(0.01)
    time.sleep(0.3)  # the program itself begins after its group has the terminal
type_keys(b"PS1=':'; echo be''gin\\n", b"begin")
os.write(terminal, b"sleep 60\\n")
until_foreground_is(False)
type_keys(b"\\x1a", b"Stopped")
os.write(terminal, b"fg\\n")
until_foreground_is(False)
os.write(terminal, b"\\x03")
until_foreground_is(True)
type_keys(b"echo st''atus $?\\n", b"status 130")
os.write(terminal, b"exit 7\\n")
try:
    while os.read(terminal, 4096): pass
except OSError: pass
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("policy", ALLOWING)
def test_the_keys_of_a_terminal_stop_continue_and_interrupt(vm_factory: Callable[..., VM], policy: str) -> None:
    assert vm_factory(permissions=ALLOWING[policy]).run(["python3", "-c", KEYBOARD], timeout=30).stdout == "7\n"


INTERRUPT = """
import fcntl, os, signal, termios, time
keyboard, terminal = os.openpty()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = os.fork()
if child == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(60)
time.sleep(0.2)
try: os.kill(child, signal.SIGINT)
except OSError as error: print(error.errno)
else: print(0)
os.write(keyboard, b"\\x03")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_terminal_signals_its_own_session_whatever_the_policy_says(vm_factory: Callable[..., VM]) -> None:
    """The kernel's terminal driver sends them, to the foreground group of the session that took the terminal: the operator's ^C
    must arrive under every policy, and a guest's own keyboard reaches nobody beyond its session."""
    assert vm_factory().run(["python3", "-c", INTERRUPT], timeout=30).stdout == "0\n-2\n"
    assert vm_factory(permissions={"process": "deny"}).run(["python3", "-c", INTERRUPT], timeout=30).stdout == "13\n-2\n"


def test_no_new_session_is_made_where_that_is_denied(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os\npid = os.fork()\nif pid == 0:\n    try: os.setsid()\n    except OSError as error: os._exit(error.errno)\n"
        "    os._exit(0)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert vm_factory().run(["python3", "-c", program]).stdout == "0\n"
    for permissions in ({"process": "deny"}, rules(("deny", "setsid"))):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == "13\n"
