"""ptrace and its kin: refused unless a rule names them, and then no way beyond the policy (SPEC 3.4, catalogue 92 and 94)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def rules(*given: tuple[str, str], default: str = "allow") -> dict[str, object]:
    return {"process": {"default": default, "rules": [{"mode": mode, "patterns": [pattern]} for mode, pattern in given]}}


PROGRAM = """
import ctypes, json, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def raw(*arguments):
    result = libc.syscall(*(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
    return result if result >= 0 else -ctypes.get_errno()
PTRACE, TRACEME, CONT, SYSCALL, GETREGS, SETREGS = 101, 0, 7, 24, 12, 13
ATTACH, DETACH, SETOPTIONS, SEIZE = 16, 17, 0x4200, 0x4206
VM_READV, VM_WRITEV, KCMP, PIDFD_GETFD = 310, 311, 312, 438
text = ctypes.create_string_buffer(b"of the parent", 32)
address = ctypes.addressof(text)
reader, writer = os.pipe()
def child(run=lambda: None):
    pid = os.fork()
    if pid == 0:
        try:
            text.value = b"of the child"
            os.write(writer, b"x")
            run()
            while True: time.sleep(60)
        finally: os._exit(0)
    os.read(reader, 1)
    return pid
def copy(number, pid, content=b"", size=12):
    mine = ctypes.create_string_buffer(content, 32)
    here, there = struct.pack("QQ", ctypes.addressof(mine), size), struct.pack("QQ", address, size)
    return raw(number, pid, here, 1, there, 1, 0), mine.value.decode()
def say(**found): print(json.dumps(found), flush=True)
"""

EVERY_WAY = """
first = child()
def look_into(pid):
    return [raw(PTRACE, ATTACH, pid, 0, 0), raw(PIDFD_GETFD, os.pidfd_open(pid), 0, 0), copy(VM_READV, pid)[0]]
say(number=first, read=copy(VM_READV, first), write=copy(VM_WRITEV, first, b"of somebody!")[0],
    compare=min(raw(KCMP, first, os.getpid(), 1, 0, 0), 0), descriptor=min(raw(PIDFD_GETFD, os.pidfd_open(first), writer, 0), 0),
    seize=raw(PTRACE, SEIZE, first, 0, 0), attach=raw(PTRACE, ATTACH, child(), 0, 0),
    init=look_into(1), leader=look_into(os.getppid()),
    itself=copy(VM_READV, os.getpid())[0], asked_for_it=raw(PTRACE, TRACEME, 0, 0, 0))
"""


def ask(vm: VM, question: str, *, timeout: float = 30) -> dict[str, Any]:
    result = vm.run(["python3", "-c", PROGRAM + question], timeout=timeout)
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


WAYS = ("read", "write", "compare", "descriptor", "seize", "attach")
POLICIES_THAT_NAME_NOBODY = {
    "default": None,
    "mode": {"process": "allow"},
    "default-of-rules": rules(("deny", "setsid")),
    "wildcard": rules(("deny", "setsid"), ("allow", "*")),  # all of it has one verdict, so the filter answers
    "wildcard-after-the-name": rules(("deny", "setsid"), ("allow", "ptrace"), ("allow", "p*")),
    "denied": {"process": "deny"},
    "denied-by-name": rules(("allow", "ptrace"), ("deny", "ptrace:*")),
}


@pytest.mark.parametrize("policy", POLICIES_THAT_NAME_NOBODY)
@pytest.mark.filterwarnings("ignore::callgate.PolicyWarning")
def test_nobody_is_traced_unless_a_rule_names_it(vm_factory: Callable[..., VM], policy: str) -> None:
    vm = vm_factory(permissions=POLICIES_THAT_NAME_NOBODY[policy])
    question = EVERY_WAY.replace("os.pidfd_open", "(lambda pid: 99)") if policy == "denied" else EVERY_WAY
    found = ask(vm, question)
    refused = {found[way][0] if isinstance(found[way], list) else found[way] for way in WAYS} | {*found["init"], *found["leader"]}
    assert refused <= ({-13, -9} if policy == "denied" else {-1} if policy in ("default", "mode", "wildcard") else {-13})
    assert not vm.explain("process", "*", "ptrace:42").allowed


def test_a_rule_that_names_it_lets_just_that_through(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=rules(("allow", "ptrace")))
    found = ask(vm, EVERY_WAY)
    assert {way: found[way] for way in WAYS} == {
        "read": [12, "of the child"],
        "write": 12,
        "compare": 0,
        "descriptor": 0,
        "seize": 0,
        "attach": 0,
    }
    assert (found["init"], found["leader"], found["itself"]) == ([-1] * 3, [-1] * 3, 12)
    assert found["asked_for_it"] == -1  # its parent is a process of ours
    assert vm.denials == ()
    assert vm.explain("process", "*", "ptrace:42").allowed
    assert vm.run(["echo", "alive"]).stdout == "alive\n"


def test_a_rule_may_name_one_process(vm_factory: Callable[..., VM]) -> None:
    number = ask(vm_factory(), EVERY_WAY)["number"]
    vm = vm_factory(permissions=rules(("allow", f"ptrace:{number}"), ("allow", "pidfd_open"), default="deny"))
    found = ask(vm, EVERY_WAY)
    assert {way: found[way] for way in WAYS} == {
        "read": [12, "of the child"],
        "write": 12,
        "compare": 0,
        "descriptor": 0,
        "seize": 0,
        "attach": -13,
    }
    assert {denial.subject for denial in vm.denials} == {f"ptrace:{other}" for other in (number + 1, 1, 2)}


#: A tracer stops its child at an open and has it open something else.
REWRITES_A_CALL = """
secret, plain = b"/w/secret", b"/etc/passwd"
def run():
    raw(PTRACE, TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    fd = raw(2, path, 0)
    os._exit(fd if fd >= 0 else -fd)
path = ctypes.create_string_buffer(plain, 64)
traced = child(run)
os.waitpid(traced, 0)
raw(PTRACE, SETOPTIONS, traced, 0, 1)  # PTRACE_O_TRACESYSGOOD
entering, seen = False, []
while True:
    raw(PTRACE, SYSCALL, traced, 0, 0)
    status = os.waitpid(traced, 0)[1]
    if not os.WIFSTOPPED(status): break
    if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80: continue
    entering = not entering
    registers = bytearray(27 * 8)
    view = (ctypes.c_char * len(registers)).from_buffer(registers)
    raw(PTRACE, GETREGS, traced, 0, view)
    number, = struct.unpack_from("q", registers, 15 * 8)
    argument, = struct.unpack_from("Q", registers, 14 * 8)
    if entering and number == 2 and argument == ctypes.addressof(path):
        content = ctypes.create_string_buffer(secret, 32)
        here, there = struct.pack("QQ", ctypes.addressof(content), 16), struct.pack("QQ", argument, 16)
        seen.append(raw(VM_WRITEV, traced, here, 1, there, 1, 0))
        if AS_ANOTHER_CALL:  # openat(AT_FDCWD, path, O_RDONLY): rdx, rsi, rdi and orig_rax follow one another
            struct.pack_into("QQQQ", registers, 12 * 8, 0, argument, 2**64 - 100, 257)
            raw(PTRACE, SETREGS, traced, 0, view)
say(seen=seen, ended=os.waitstatus_to_exitcode(status))
"""
NO_SECRET = {"fs": {"default": "allow", "rules": [{"mode": "deny", "paths": ["/w/secret"]}]}}


@pytest.mark.parametrize("as_another_call", [False, True], ids=["other-memory", "another-call"])
def test_what_a_tracer_changes_at_the_entry_of_a_call_is_judged(vm_factory: Callable[..., VM], as_another_call: bool) -> None:
    question = f"AS_ANOTHER_CALL = {as_another_call}\n" + REWRITES_A_CALL
    free = ask(vm_factory(permissions=rules(("allow", "ptrace")), files={"/w/secret": b"x"}), question)
    assert free["seen"] == [16]
    assert free["ended"] not in (2, 13)  # the control: the tracer does have its tracee open the other file
    vm = vm_factory(permissions={**rules(("allow", "ptrace")), **NO_SECRET}, files={"/w/secret": b"x"})
    assert ask(vm, question) == {"seen": [16], "ended": 13}
    assert {denial.subject for denial in vm.denials} == {"/w/secret"}


EXEC_BY_A_TRACEE = """
def run():
    raw(PTRACE, TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    try: os.execv("/bin/true", ["true"])
    except OSError as error: os._exit(error.errno)
traced = child(run)
os.waitpid(traced, 0)
while True:
    raw(PTRACE, CONT, traced, 0, 0)
    status = os.waitpid(traced, 0)[1]
    if not os.WIFSTOPPED(status): break
say(ended=os.waitstatus_to_exitcode(status))
"""


def test_a_traced_process_executes_nothing_where_that_has_to_be_proved(vm_factory: Callable[..., VM]) -> None:
    """Two cannot trace one process: the proof comes first, and says why."""
    tracing = rules(("allow", "ptrace"))
    assert ask(vm_factory(permissions=tracing), EXEC_BY_A_TRACEE) == {"ended": 0}
    names = {"childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["id"]}]}}
    variables = {"env": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["SECRET"]}]}}
    for judged in (names, variables):
        vm = vm_factory(permissions={**tracing, **judged})
        assert ask(vm, EXEC_BY_A_TRACEE) == {"ended": 13}
        assert ["traces" in denial.reason for denial in vm.denials] == [True]


def test_a_tracer_cannot_switch_the_filter_off(vm_factory: Callable[..., VM]) -> None:
    question = """
first = child()
suspend = 1 << 21
say(seize=raw(PTRACE, SEIZE, first, 0, suspend), plain=raw(PTRACE, SEIZE, first, 0, 0),
    options=raw(PTRACE, SETOPTIONS, first, 0, suspend), filter=raw(PTRACE, 0x420c, first, 0, 0))
"""
    found = ask(vm_factory(permissions=rules(("allow", "ptrace"))), question)
    assert (found["seize"], found["plain"], found["options"]) == (-1, 0, -1)
    assert found["filter"] < 0


def test_a_tracee_whose_own_children_are_not_named_can_only_be_let_go(vm_factory: Callable[..., VM]) -> None:
    """PTRACE_O_TRACEFORK makes tracees of them unasked; each request on one is judged by its own number."""
    question = """
go, told = os.pipe()
def run():
    os.read(go, 1)
    if os.fork() == 0: os._exit(7)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
first = child(run)
raw(PTRACE, SEIZE, first, 0, 2)  # PTRACE_O_TRACEFORK
os.write(told, b"x")
os.waitpid(first, 0)
forked = ctypes.c_ulong()
raw(PTRACE, 0x4201, first, 0, ctypes.byref(forked))
os.waitpid(forked.value, 0x40000000)
registers = (ctypes.c_char * 216)()
answers = [raw(PTRACE, GETREGS, forked.value, 0, registers), raw(PTRACE, DETACH, forked.value, 0, 0)]
raw(PTRACE, DETACH, first, 0, 0)
say(number=first, forked=forked.value - first, answers=answers, ended=os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
"""
    free = ask(vm_factory(permissions=rules(("allow", "ptrace"))), question)
    assert free["answers"] == [0, 0]
    vm = vm_factory(permissions=rules(("allow", f"ptrace:{free['number']}"), default="deny"))
    assert ask(vm, question) == {"number": free["number"], "forked": 1, "answers": [-13, 0], "ended": 7}
