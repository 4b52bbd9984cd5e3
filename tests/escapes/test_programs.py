"""Other ways to run a denied program: loaders, libraries, scripts, memory, files that change (catalogue 60 to 64, 67)."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable
from errno import EACCES, EFAULT, EINVAL, ELOOP, ENOENT, ENOEXEC, ETXTBSY
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import ORDINARY_USER, Earlier, Probe, Raw, Words, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

LOADER = "/lib64/ld-linux-x86-64.so.2"
AT_EMPTY_PATH, AT_EXECVE_CHECK = 0x1000, 0x10000


def spawning(*rules: tuple[str, str], default: str = "allow") -> dict[str, object]:
    return {"childProcess": {"default": default, "rules": [{"mode": mode, "patterns": [one]} for mode, one in rules]}}


# -- spellings -----------------------------------------------------------------------------------------------------------

SPELLINGS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.chdir("/usr/bin")
folder = os.open("/usr", os.O_PATH)
empty = (ctypes.c_char_p * 1)(None)
argv = (ctypes.c_char_p * 2)(b"id", None)
def run(start):
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)
        try: start()
        except OSError as error: os._exit(error.errno)
        os._exit(ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
paths = ("id", "./id", ".//./id", "../bin/id", "/usr/bin/../bin/id", "//usr//bin/id", "/usr/./bin/id", "/proc/self/cwd/id")
print(*(run(lambda: os.execv(path, ["id"])) for path in paths),
      *(run(lambda: libc.syscall(322, folder, path, argv, empty, 0)) for path in (b"bin/id", b"./bin/../bin/id")),
      run(lambda: os.execvpe("id", ["id"], {"PATH": ""})), run(lambda: os.execvpe("id", ["id"], {"PATH": ".:/nowhere"})))
"""


def test_every_spelling_of_a_path_is_the_same_program(vm_factory: Callable[..., VM]) -> None:
    count = 12
    assert vm_factory().run(["python3", "-c", SPELLINGS]).stdout.split() == ["0"] * count
    for denied in ("id", "/usr/bin/id", "/usr/bin/**"):
        result = vm_factory(permissions=spawning(("deny", denied))).run(["python3", "-c", SPELLINGS])
        assert (denied, result.stdout.split()) == (denied, ["13"] * count)
    for allowed in ("id", "/usr/bin/id"):
        result = vm_factory(permissions=spawning(("allow", allowed), default="deny")).run(["python3", "-c", SPELLINGS])
        by_a_link = "0" if allowed == "id" else "13"  # the name asked for counts too, and it is none of /usr/bin
        assert (allowed, result.stdout.split()) == (allowed, ["0"] * 7 + [by_a_link] + ["0"] * 4)


# -- the dynamic loader --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path(LOADER).exists(), reason="no glibc loader on this host")
@pytest.mark.parametrize("way", ["", "--argv0 x ", "--library-path /tmp ", "--preload '' "])
def test_the_loader_is_no_way_round_a_list(vm_factory: Callable[..., VM], way: str) -> None:
    command = f"{LOADER} {way}/usr/bin/id -u"
    assert subprocess.run(command, shell=True, capture_output=True, check=False).returncode == 0
    assert vm_factory().run(command).returncode == 0
    vm = vm_factory(permissions=spawning(("deny", "id")))
    result = vm.run(command)
    assert (result.returncode, result.stdout) == (126, "")
    assert [denial.rule for denial in result.denials] == ["unsupported"]
    assert "loader" in result.denials[0].reason


@pytest.mark.skipif(not Path(LOADER).exists(), reason="no glibc loader on this host")
def test_a_copy_or_a_link_of_the_loader_is_a_loader_too(vm_factory: Callable[..., VM]) -> None:
    script = (
        f"cp {LOADER} /tmp/harmless; ln -s {LOADER} /tmp/link;"
        " for loader in /tmp/harmless /tmp/link; do $loader /usr/bin/id >/dev/null; echo $?; done"
    )
    assert vm_factory().run(script).stdout == "0\n0\n"
    result = vm_factory(permissions=spawning(("deny", "id"))).run(script)
    assert result.stdout == "126\n126\n"


def test_programs_that_need_no_loader_are_not_taken_for_one(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path]
) -> None:
    source = "int main(void) { return 5; }"
    kinds = [compile_c(source), compile_c(source, static=False), compile_c(source, static=False, flags=("-static-pie",))]
    files = {f"/opt/{number}": program.read_bytes() for number, program in enumerate(kinds)}
    vm = vm_factory(permissions=spawning(("deny", "id")), files=files)
    assert vm.run("; ".join(f"{path}; echo $?" for path in files)).stdout == "5\n" * 3


LIBRARY = """
#include <unistd.h>
static void loaded(void) { if (write(1, "loaded\\n", 7) != 7) _exit(1); }
__attribute__((constructor)) static void start(void) { loaded(); }
unsigned la_version(unsigned version) { loaded(); return version; }
"""


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT"])
def test_a_library_that_may_not_be_read_is_not_loaded(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path], variable: str
) -> None:
    library = compile_c(LIBRARY, static=False, flags=("-shared", "-fPIC"))
    command = f"{variable}=/w/library.so /bin/echo ran"
    assert "loaded" in vm_factory(files={"/w/library.so": library.read_bytes()}).run(command).stdout
    vm = vm_factory(permissions=deny("/w/**", operations=["read"]), files={"/w/library.so": library.read_bytes()})
    result = vm.run(command)
    assert result.stdout == "ran\n"
    assert {(denial.operation, denial.subject) for denial in result.denials} == {("read", "/w/library.so")}


# -- scripts -------------------------------------------------------------------------------------------------------------

SCRIPTS = {
    "plain": b"#!/bin/sh\nexit 7\n",
    "blanks": b"#! \t /bin/sh \t -e \t\nexit 7\n",
    "carriage-return": b"#!/bin/sh\r\nexit 7\r\n",
    "no-newline": b"#!/bin/true",
    "only-blanks": b"#!  \n",
    "empty": b"#!",
    "too-long": b"#!/" + b"x" * 300 + b"\n",
    "exactly-cut": b"#!/bin/true" + b" " * 245 + b"y\n",
    "itself": b"#!/proc/self/exe\n",
    "directory": b"#!/bin\n",
    "relative": b"#!one-interpreter\n",
}


#: Executes each by a child, whose exit code is the answer.
RUNS = """
import os, sys
for path in sys.stdin.read().split():
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3): os.dup2(null, fd)
        try: os.execv(path, ["x", "argument"])
        except OSError as error: os._exit(100 + error.errno)
    print(path.rpartition("/")[2], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_scripts_are_read_as_the_kernel_reads_them(vm_factory: Callable[..., VM], host_dir: Path) -> None:
    nested = {f"nested-{depth}": f"#!{host_dir}/nested-{depth - 1}\n".encode() for depth in range(1, 7)}
    scripts = SCRIPTS | {"nested-0": b"#!/bin/true\n"} | nested
    for name, content in scripts.items():
        (host_dir / name).write_bytes(content)
        (host_dir / name).chmod(0o755)
        if os.geteuid() == 0:
            os.chown(host_dir / name, ORDINARY_USER, ORDINARY_USER)
    paths = "\n".join(f"{host_dir}/{name}" for name in scripts)
    on_host = subprocess.run(
        ["/usr/bin/python3", "-c", RUNS], input=paths, capture_output=True, text=True, check=True, cwd=host_dir
    ).stdout
    found = dict(line.split() for line in on_host.splitlines())
    assert found["plain"] == found["blanks"] == "7"
    assert found["carriage-return"] == found["relative"] == str(100 + ENOENT)
    assert found["too-long"] == found["only-blanks"] == str(100 + ENOEXEC)
    assert found["directory"] == found["empty"] == str(100 + EACCES)
    assert (found["nested-4"], found["nested-6"]) == ("0", str(100 + ELOOP))
    vm = vm_factory(permissions=spawning(("deny", "nothing-of-that-name")))
    files = vm.fs.unchecked
    files.mkdir(str(host_dir), parents=True)
    for name, content in scripts.items():
        files.write_bytes(str(host_dir / name), content)
        files.chmod(str(host_dir / name), 0o755)
    assert vm.run(["/usr/bin/python3", "-c", RUNS], input=paths, cwd=str(host_dir)).stdout == on_host
    assert vm.denials == ()


def test_a_denied_interpreter_or_script_in_the_middle_of_a_chain_is_refused(vm_factory: Callable[..., VM]) -> None:
    files = {"/w/a": b"#!/bin/sh\n", "/w/b": b"#!/w/a\n", "/w/c": b"#!/w/b\n"}
    assert vm_factory(files=files).run(["/w/c"]).returncode == 0
    for denied in ("/w/a", "/w/b", "sh", "/usr/bin/dash"):
        result = vm_factory(permissions=spawning(("deny", denied)), files=files).run("/w/c; echo $?")
        assert (denied, result.stdout) == (denied, "126\n")


def test_a_script_in_memory_is_judged_with_its_interpreter(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os\nfd = os.memfd_create('script', 0)\nos.write(fd, b'#!/usr/bin/id\\n')\npid = os.fork()\n"
        "if pid == 0:\n    try: os.execve(fd, ['x'], {})\n    except OSError as error: os._exit(error.errno)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert (
        vm_factory(permissions=spawning(("deny", "true"))).run(["python3", "-c", program]).stdout[-2:] == "1\n"
    )  # id has no such operand
    assert vm_factory(permissions=spawning(("deny", "id"))).run(["python3", "-c", program]).stdout == f"{EACCES}\n"


# -- descriptors, memory, removed files ------------------------------------------------------------------------------------

IN_MEMORY = """
import ctypes, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
content = open("/usr/bin/true", "rb").read()
def run(fd, *, empty=True):
    pid = os.fork()
    if pid == 0:
        argv = (ctypes.c_char_p * 2)(b"x", None)
        if empty: libc.syscall(322, fd, b"", argv, (ctypes.c_char_p * 1)(None), 0x1000)
        else: libc.execv(f"/proc/self/fd/{fd}".encode(), argv)
        os._exit(ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sealed = os.memfd_create("true", os.MFD_ALLOW_SEALING)
os.write(sealed, content)
fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
open_memory = os.memfd_create("true"); os.write(open_memory, content)
with open("/tmp/true", "wb") as file: file.write(content)
os.chmod("/tmp/true", 0o755)
gone, path_only = os.open("/tmp/true", os.O_RDONLY), os.open("/usr/bin/true", os.O_PATH)
os.unlink("/tmp/true")
print(*(run(fd, empty=empty) for fd in (sealed, open_memory, gone, path_only) for empty in (True, False)))
"""


def test_descriptors_memory_and_removed_files_are_judged(vm_factory: Callable[..., VM]) -> None:
    assert vm_factory().run(["python3", "-c", IN_MEMORY]).stdout == "0 0 0 0 0 0 0 0\n"
    assert (
        vm_factory(permissions={"childProcess": "deny"}).run(["python3", "-c", IN_MEMORY]).stdout == " ".join(["13"] * 8) + "\n"
    )
    only_python = spawning(("allow", "python3*"), default="deny")
    assert vm_factory(permissions=only_python).run(["python3", "-c", IN_MEMORY]).stdout == " ".join(["13"] * 8) + "\n"
    by_name = vm_factory(permissions=spawning(("deny", "true"))).run(["python3", "-c", IN_MEMORY]).stdout.split()
    assert by_name[-4:] == ["13"] * 4  # the removed file by the name it had, and the one on disk


# -- files that change -----------------------------------------------------------------------------------------------------


def test_a_program_that_was_replaced_is_judged_anew(vm_factory: Callable[..., VM]) -> None:
    script = (
        "printf '#!/bin/sh\\necho ran\\n' > /tmp/p; chmod +x /tmp/p; /tmp/p; printf '#!/usr/bin/id\\n' > /tmp/p; /tmp/p; echo $?;"
        " rm /tmp/p; ln -s /usr/bin/id /tmp/p; /tmp/p; echo $?"
    )
    result = vm_factory(permissions=spawning(("deny", "id"))).run(script)
    assert result.stdout == "ran\n126\n126\n"


def test_a_program_that_is_open_for_writing_is_busy_and_a_running_one_is_not_written(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os, shutil\nshutil.copy('/bin/sleep', '/tmp/p')\n"
        "def run():\n    pid = os.fork()\n    if pid == 0:\n        try: os.execv('/tmp/p', ['p', '30'])\n"
        "        except OSError as error: os._exit(error.errno)\n    return pid\n"
        "writer = os.open('/tmp/p', os.O_WRONLY)\nprint(os.waitstatus_to_exitcode(os.waitpid(run(), 0)[1]))\nos.close(writer)\n"
        "pid = run()\n"
        "while not os.readlink(f'/proc/{pid}/exe').endswith('/p'): pass\n"
        "try: os.open('/tmp/p', os.O_WRONLY)\nexcept OSError as error: print(error.errno)\n"
        "os.kill(pid, 9)\n"
    )
    for permissions in (None, spawning(("deny", "id")), {**spawning(("deny", "id")), **deny("/nobody/**")}):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == f"{ETXTBSY}\n" * 2


# -- asking whether a file could be executed ---------------------------------------------------------------------------------


def test_the_question_whether_a_file_may_be_executed_is_answered_as_an_exec_would_be(
    vm_factory: Callable[..., VM], probe: Probe, host_dir: Path
) -> None:
    none = Words((0,))

    def asking(name: str) -> str:
        return call("execveat", -100, name, none, none, AT_EXECVE_CHECK)

    lines = [asking(name) for name in ("/bin/true", "/etc/passwd", "/no/such/file", "/tmp")]
    lines += [
        call("open", "/bin/true", os.O_RDONLY),
        call("execveat", Earlier(4), "", none, none, AT_EMPTY_PATH | AT_EXECVE_CHECK),
    ]
    on_host = results(probe.on_host(lines, cwd=host_dir))
    assert on_host in ([0, -EACCES, -ENOENT, -EACCES, 3, 0], [-EINVAL] * 4 + [3, -EINVAL])  # Linux 6.14 brought it
    for permissions in (None, spawning(("deny", "id")), {"env": "deny"}):
        assert results(probe.in_vm(vm_factory(permissions=permissions, files=probe.files), lines)) == on_host
    vm = vm_factory(permissions=spawning(("deny", "true"), ("deny", "file")), files=probe.files)
    assert results(probe.in_vm(vm, lines))[::2] == [-EACCES, -EACCES, 3]


def test_bad_pointers_are_efault_and_nothing_is_executed(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
    bad = 0x10
    lines = [
        call("execve", bad, Words((0,)), Words((0,))),
        call("execve", "/bin/true", bad, Words((0,))),
        call("execve", "/bin/true", Words((0,)), bad),
        call("execve", "/bin/true", Words((bad, 0)), Words((0,))),
        call("execve", "/bin/true", Words(("x", 0)), Words((bad, 0))),
        call("execve", "/bin/true", Words(("x", 0)), Raw(struct.pack("<Q", bad))),
    ]
    expected = [-EFAULT] * 6
    assert results(probe.on_host(lines, cwd=host_dir)) == expected
    judged = {**spawning(("deny", "id")), "env": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["SECRET"]}]}}
    for permissions in (None, judged):
        assert results(probe.in_vm(vm_factory(permissions=permissions, files=probe.files), lines)) == expected


# -- many at once -----------------------------------------------------------------------------------------------------------

VFORK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int status, good = 0;
    for (int round = 0; round < 20; round++) {
        pid_t pid = vfork();
        if (pid == 0) {
            for (int i = 0; i < 50; i++) close(open("/etc/passwd", O_RDONLY)); /* judged, while the parent is suspended */
            execl("/bin/true", "true", (char *)0);
            _exit(99);
        }
        good += waitpid(pid, &status, 0) == pid && status == 0;
    }
    printf("%d\\n", good);
    return 0;
}
"""


def test_a_child_that_shares_its_suspended_parents_memory_is_judged_without_it(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path]
) -> None:
    files = {"/opt/vforks": compile_c(VFORK).read_bytes()}
    vm = vm_factory(permissions={**spawning(("deny", "id")), **deny("/nobody/**")}, files=files)
    assert vm.run(["/opt/vforks"], timeout=60).stdout == "20\n"


def test_threads_that_execute_at_once_end_in_one_program(vm_factory: Callable[..., VM]) -> None:
    """Whichever comes first ends the others, the first thread too, in the middle of their own."""
    program = (
        "import os, sys, threading\n"
        "for round in range(40):\n    pid = os.fork()\n    if pid == 0:\n        gate = threading.Barrier(6)\n"
        "        def work():\n            gate.wait()\n            os.execv('/bin/true', ['true'])\n"
        "        for _ in range(5): threading.Thread(target=work, daemon=True).start()\n        work()\n"
        "    if os.waitpid(pid, 0)[1]: sys.exit('no program')\n"
        "print('done')\n"
    )
    variables = {"env": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["SECRET"]}]}}
    for permissions in (None, spawning(("deny", "id")) | variables):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program], timeout=60).stdout == "done\n"


def test_two_hundred_programs_are_spawned_from_eight_threads(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import concurrent.futures, os\n"
        "def spawn(n):\n    pid = os.posix_spawn('/bin/sh', ['sh', '-c', f'exit {n % 7}'], {'N': str(n)})\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == n % 7\n"
        "with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(spawn, range(200))))\n"
    )
    policies = (spawning(("deny", "id")), {"env": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["SECRET"]}]}})
    for permissions in (*policies, policies[0] | policies[1]):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program], timeout=120).stdout == "200\n"


@pytest.mark.parametrize(
    "permissions",
    [
        None,
        judged_but_allowed(),
        spawning(("deny", "nothing")),
        {"env": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["SECRET"]}]}},
    ],
    ids=["default", "fs", "childProcess", "env"],
)
def test_a_program_that_may_be_executed_and_not_read_runs(
    vm_factory: Callable[..., VM], permissions: dict[str, object] | None
) -> None:
    """The kernel then hides its process from all but root (proc(5), dumpable), and its calls are to be judged all the same."""
    vm = vm_factory(permissions=permissions)
    result = vm.run("cp /bin/sh own && chmod 0111 own && ./own -c 'echo $0 && test -e /etc/passwd && exec env' name")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == "name"
    assert "HOME=/home/agentos" in result.stdout.splitlines()
