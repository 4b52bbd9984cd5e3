"""childProcess: `spawn` is judged at exec, on the name as asked for and on the image that would run (SPEC 3.3)."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from errno import E2BIG, EACCES, EFAULT, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import ORDINARY_USER, Earlier, Probe, Raw, Words, call, judged_but_allowed, messages, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def spawning(*rules: tuple[str, str], default: str = "allow") -> dict[str, object]:
    """Rules of (mode, pattern), in order."""
    return {"childProcess": {"default": default, "rules": [{"mode": mode, "patterns": [one]} for mode, one in rules]}}


#: Prints the errno of every way to start a program that this interpreter has, and 0 for those that work.
WAYS = """
import ctypes, os, subprocess, sys
program = sys.argv[1]
def attempt(start):
    try: code = start()
    except OSError as error: return error.errno
    return 0 if code in (0, None) else code
def forked(execute):
    pid = os.fork()
    if pid == 0:
        try: execute()
        except OSError as error: os._exit(error.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
fd = os.open(program, os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
def execveat():
    argv = (ctypes.c_char_p * 2)(b"x", None)
    libc.syscall(322, fd, b"", argv, (ctypes.c_char_p * 1)(None), 0x1000)
    os._exit(ctypes.get_errno())
ways = {
    "subprocess": lambda: subprocess.call([program]),
    "posix_spawn": lambda: os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(program, ["x"], {}), 0)[1]),
    "execv": lambda: forked(lambda: os.execv(program, ["another name"])),
    "fexecve": lambda: forked(lambda: os.execve(fd, ["x"], {})),
    "execveat": lambda: forked(execveat),
    "descriptor": lambda: forked(lambda: os.execv(f"/proc/self/fd/{fd}", ["x"])),
}
print(*(f"{name}={attempt(way)}" for name, way in ways.items()))
"""
NAMES = ("subprocess", "posix_spawn", "execv", "fexecve", "execveat", "descriptor")


def ways(vm: VM, program: str) -> dict[str, int]:
    result = vm.run(["python3", "-c", WAYS, program])
    assert result.stderr == ""
    return {name: int(code) for name, code in (word.split("=") for word in result.stdout.split())}


@pytest.mark.parametrize(
    "permissions",
    [
        {"childProcess": "deny"},
        spawning(("deny", "true")),
        spawning(("deny", "/usr/bin/true")),
        spawning(("allow", "/usr/bin/id"), default="deny"),
    ],
    ids=["all", "by-name", "by-path", "not-on-the-list"],
)
def test_every_way_to_start_a_denied_program_is_refused(vm_factory: Callable[..., VM], permissions: dict[str, object]) -> None:
    vm = vm_factory(permissions=permissions)
    assert ways(vm, "/usr/bin/true") == dict.fromkeys(NAMES, EACCES)
    assert {denial.scope for denial in vm.denials} == {"childProcess"}
    assert len(vm.denials) == len(NAMES)


@pytest.mark.parametrize(
    "permissions",
    [None, judged_but_allowed(), spawning(("deny", "false"))],
    ids=["default", "judged-files", "another-denied"],
)
def test_every_way_to_start_an_allowed_program_works(
    vm_factory: Callable[..., VM], permissions: dict[str, object] | None
) -> None:
    vm = vm_factory(permissions=permissions)
    assert ways(vm, "/usr/bin/true") == dict.fromkeys(NAMES, 0)
    assert vm.denials == ()


def test_a_list_of_allowed_programs_must_allow_the_name_that_was_asked_for_too(vm_factory: Callable[..., VM]) -> None:
    """By way of a descriptor's path the name asked for is a number."""
    vm = vm_factory(permissions=spawning(("allow", "true"), default="deny"))
    assert ways(vm, "/usr/bin/true") == {**dict.fromkeys(NAMES, 0), "descriptor": EACCES}


def test_the_message_names_the_command(vm_factory: Callable[..., VM]) -> None:
    result = vm_factory(permissions={"childProcess": "deny"}).run("/usr/bin/true; echo $?; echo shell")
    assert result.stdout == "126\nshell\n"
    assert messages(result) == ["EACCES: permission denied, spawn '/usr/bin/true': blocked by childProcess.spawn policy"]
    assert result.denials[0].rule == "mode"


def test_the_first_program_is_the_operators_and_forking_is_no_spawn(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions={"childProcess": "deny"})
    program = "import os\npid = os.fork()\nif pid == 0: os._exit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    assert vm.run(["python3", "-c", program]).stdout == "7\n"
    assert vm.run("(echo subshell); x=$(echo substitution); echo $x").stdout == "subshell\nsubstitution\n"


def test_either_name_can_deny(vm_factory: Callable[..., VM]) -> None:
    """A link is judged by the name asked for and by what it leads to."""
    script = "ln -s /usr/bin/true /tmp/harmless; /tmp/harmless; echo $?"
    assert vm_factory().run(script).stdout == "0\n"
    for pattern in ("true", "/usr/bin/true", "harmless", "/tmp/harmless", "/tmp/**"):
        result = vm_factory(permissions=spawning(("deny", pattern))).run(script)
        assert (pattern, result.stdout) == (pattern, "126\n")


def test_a_name_in_argv_is_never_trusted(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os\nfor name in ('id', '/usr/bin/id', ''):\n    pid = os.fork()\n    if pid == 0:\n"
        "        try: os.execv('/usr/bin/true', [name or 'id', 'x'])\n        except OSError as error: os._exit(error.errno)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    vm = vm_factory(permissions=spawning(("allow", "id"), default="deny"))
    assert vm.run(["python3", "-c", program]).stdout.split() == ["13"] * 3


@pytest.mark.skipif(shutil.which("git", path="/usr/bin") is None, reason="git is not installed")
def test_a_list_of_one_command_lets_just_that_through(vm_factory: Callable[..., VM]) -> None:
    """AOS-54, with a canary that the other command would leave (A8: the command is its name as asked for and as resolved)."""
    script = "git init -q . && git status --short && echo 0; touch canary; echo $?; test -e canary; echo $?"
    free = vm_factory().run(["bash", "-c", script])
    assert free.stdout.split() == ["0", "0", "0"]
    only_git = {"childProcess": {"default": "deny", "rules": [{"mode": "allow", "operations": ["spawn"], "patterns": ["git"]}]}}
    result = vm_factory(permissions=only_git).run(["bash", "-c", script])
    assert result.stdout.split() == ["0", "126", "1"]
    assert {denial.subject.rpartition("/")[2] for denial in result.denials} == {"touch"}


SCRIPT = b"#!/usr/bin/env -S sh\necho ran\n"


@pytest.mark.parametrize("denied", ["hello", "/opt/hello", "env", "/usr/bin/env", "sh", "dash"])
def test_of_a_script_the_script_and_every_interpreter_are_judged(vm_factory: Callable[..., VM], denied: str) -> None:
    script = "/opt/hello 2>/dev/null; echo $?"
    assert vm_factory(files={"/opt/hello": SCRIPT}).run(script).stdout == "ran\n0\n"
    result = vm_factory(permissions=spawning(("deny", denied)), files={"/opt/hello": SCRIPT}).run(script)
    assert result.stdout == "126\n"
    assert result.denials


def test_an_interpreter_that_is_a_script_is_judged_too(vm_factory: Callable[..., VM]) -> None:
    files = {"/opt/inner": b"#!/usr/bin/perl\nprint qq(ran\\n);\n", "/opt/outer": b"#!/opt/inner\n"}
    script = "/opt/outer 2>/dev/null; echo $?"
    assert (
        vm_factory(files=files, permissions=spawning(("deny", "nothing"))).run(script).stdout
        == vm_factory(files=files).run(script).stdout
    )
    for denied in ("perl", "inner", "outer"):
        assert vm_factory(permissions=spawning(("deny", denied)), files=files).run(script).stdout == "126\n"


def test_memory_is_no_way_round_the_list(vm_factory: Callable[..., VM]) -> None:
    """A program in a memfd, or one that was removed, has no path that a rule could name."""
    program = (
        "import os\ncontent = open('/usr/bin/true', 'rb').read()\n"
        "memory = os.memfd_create('true'); os.write(memory, content)\n"
        "gone = os.open('/tmp/gone', os.O_CREAT | os.O_RDWR, 0o755); os.write(gone, content); os.close(gone)\n"
        "gone = os.open('/tmp/gone', os.O_RDONLY); os.unlink('/tmp/gone')\n"
        "for fd in (memory, gone):\n    pid = os.fork()\n    if pid == 0:\n"
        "        try: os.execve(fd, ['true'], {})\n        except OSError as error: os._exit(error.errno)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert vm_factory().run(["python3", "-c", program]).stdout == "0\n0\n"
    assert vm_factory(permissions={"childProcess": "deny"}).run(["python3", "-c", program]).stdout == "13\n13\n"
    listed = vm_factory(permissions=spawning(("allow", "/usr/bin/*"), default="deny")).run(["python3", "-c", program])
    assert listed.stdout == "13\n13\n"


def test_a_copy_of_a_denied_program_is_another_path(vm_factory: Callable[..., VM]) -> None:
    """What a list of denied names is worth: a list of allowed ones is the boundary."""
    script = "cp /usr/bin/true /tmp/copy; /tmp/copy; echo $?"
    assert vm_factory(permissions=spawning(("deny", "/usr/bin/true"))).run(script).stdout == "0\n"
    assert vm_factory(permissions=spawning(("allow", "/usr/bin/*"), default="deny")).run(script).stdout == "126\n"


def failing(top: str) -> list[str]:
    """Executing what cannot be executed, in each of the ways that have an errno of their own."""
    argv, none = Words(("x", 0)), Words((0,))
    huge = Words(("x" * 140_000, 0))
    return [
        *(
            call("execve", f"{top}/{name}", argv, none)
            for name in ("absent", "plain", "folder", "plain/x", "loop", "strange", "n" * 256)
        ),
        call("execve", f"{top}/strange", huge, none),
        call("execve", 0, argv, none),
        call("execve", "", argv, none),
        call("execve", f"{top}/no-interpreter", argv, none),
        call("execve", f"{top}/closed-interpreter", argv, none),
        call("execve", f"{top}/script-loop", argv, none),
        call("open", f"{top}/strange", os.O_WRONLY),
        call("execve", f"{top}/strange", argv, none),
        call("execveat", Earlier(13), "", argv, none, 0),
        call("execveat", -100, f"{top}/loop", argv, none, 0x100),
        call("execve", f"{top}/strange", Raw(b"\1\2\3\4\5\6\7\x10"), none),
    ]


FILES = {
    "plain": (b"content", 0o644),
    "strange": (b"\x7fELF and nothing more", 0o755),
    "no-interpreter": (b"#!/no/such/interpreter\n", 0o755),
    "closed-interpreter": (b"#!/etc/passwd\n", 0o755),
    "script-loop": (b"#!%s/script-loop\n", 0o755),
}


@pytest.mark.parametrize(
    "permissions", [None, spawning(("deny", "nothing-of-that-name")), judged_but_allowed()], ids=["default", "judged", "files"]
)
def test_an_exec_fails_as_it_does_on_the_host(
    vm_factory: Callable[..., VM], probe: Probe, host_dir: Path, permissions: dict[str, object] | None
) -> None:
    for name, (content, mode) in FILES.items():
        path = host_dir / name
        path.write_bytes(content % os.fsencode(host_dir) if b"%s" in content else content)
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, ORDINARY_USER, ORDINARY_USER)
    (host_dir / "folder").mkdir()
    (host_dir / "loop").symlink_to("loop")
    on_host = results(probe.on_host(failing(str(host_dir)), cwd=host_dir))
    assert on_host[:7] == [-ENOENT, -EACCES, -EACCES, -ENOTDIR, -ELOOP, -ENOEXEC, -ENAMETOOLONG]
    assert on_host[7:10] == [-E2BIG, -EFAULT, -ENOENT]

    vm = vm_factory(permissions=permissions, files=probe.files)
    files = vm.fs.unchecked
    files.mkdir(str(host_dir), parents=True)
    for name in FILES:
        files.write_bytes(str(host_dir / name), (host_dir / name).read_bytes())
        files.chmod(str(host_dir / name), stat.S_IMODE((host_dir / name).stat().st_mode))
    files.mkdir(str(host_dir / "folder"))
    files.symlink("loop", str(host_dir / "loop"))
    assert results(probe.in_vm(vm, failing(str(host_dir)))) == on_host


def test_many_programs_start_at_once_from_many_threads(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import concurrent.futures, os, subprocess\n"
        "def spawn(n):\n    pid = os.posix_spawn('/bin/sh', ['sh', '-c', f'exit {n % 7}'], {})\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == n % 7\n"
        "def call(n): return subprocess.run(['sh', '-c', f'echo {n}'], capture_output=True).stdout == b'%d\\n' % n\n"
        "with concurrent.futures.ThreadPoolExecutor(8) as pool:\n"
        "    print(sum(pool.map(spawn, range(100))), sum(pool.map(call, range(100))))\n"
    )
    for permissions in (
        spawning(("deny", "nothing")),
        judged_but_allowed(),
        {**spawning(("deny", "nothing")), **judged_but_allowed()},
    ):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program], timeout=120).stdout == "100 100\n"


def test_a_thread_that_executes_ends_its_fifty_siblings(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os, threading, time\n"
        "def work():\n    while True: os.path.exists('/etc/passwd')\n"
        "for _ in range(50): threading.Thread(target=work, daemon=True).start()\n"
        "threading.Thread(target=lambda: os.execv('/bin/echo', ['echo', 'replaced'])).start()\ntime.sleep(60)\n"
    )
    for permissions in (spawning(("deny", "nothing")), {**spawning(("deny", "nothing")), **judged_but_allowed()}):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program], timeout=60).stdout == "replaced\n"


def test_descriptors_survive_an_exec_or_do_not_as_they_were_opened(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os, subprocess\n"
        "kept = os.open('/etc/passwd', os.O_RDONLY); os.set_inheritable(kept, True)\n"
        "lost = os.open('/etc/passwd', os.O_RDONLY | os.O_CLOEXEC)\n"
        "script = f'test -e /proc/self/fd/{kept} && echo kept; test -e /proc/self/fd/{lost} || echo lost'\n"
        "subprocess.run(['sh', '-c', script], close_fds=False)\n"
    )
    for permissions in (None, {**spawning(("deny", "nothing")), **judged_but_allowed()}):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == "kept\nlost\n"
