"""Signals, sudden death and nonsense at any moment: nothing is done twice, nothing leaks (catalogue 43, 114, 116, 121 to 123)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contracts.host_processes import descendants
from tests.escapes.held import gives_back, open_descriptors
from tests.escapes.three_ways import FILES, SECRET
from tests.vm_fixtures import PROGRAMS, as_ordinary_user, deny, judged_but_allowed, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def assert_unharmed(vm: VM, descriptors_before: int) -> None:
    assert vm.run(["echo", "alive"], cwd="/").stdout == "alive\n"
    assert len(descendants(vm.status().supervisor_pid)) == 1
    assert gives_back(vm, descriptors_before)


# -- signals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restart", "plain"])
def test_under_a_storm_of_signals_nothing_is_done_twice_or_not_at_all(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path], host_dir: Path, how: str
) -> None:
    program = compile_c(PROGRAMS / "interrupted.c")
    copied = host_dir / "interrupted"
    copied.write_bytes(program.read_bytes())
    copied.chmod(0o755)
    command = as_ordinary_user([str(copied), how, "500", str(host_dir)])
    on_host = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (on_host.stdout, on_host.stderr) == ("500 0 0 1\n", "")

    vm = vm_factory(permissions=judged_but_allowed(), files={"/opt/interrupted": program.read_bytes()})
    result = vm.run(["/opt/interrupted", how, "500", "/tmp"], timeout=120)
    assert result.stderr == ""
    rounds, interruptions, contradictions, signals = map(int, result.stdout.split())
    assert (rounds, contradictions, signals) == (500, 0, 1)
    if how == "restart":
        assert interruptions == 0


def test_pipelines_survive_a_storm_of_children(vm_factory: Callable[..., VM]) -> None:
    script = (
        "i=0; while [ $i -lt 150 ]; do echo $i | cat | cat; (exit 3); test $? = 3 || echo lost; i=$((i + 1)); done"
        " | sort -n | tail -n 1"
    )
    for permissions in (None, judged_but_allowed()):
        assert vm_factory(permissions=permissions).run(script, timeout=120).stdout == "149\n"


# -- sudden death --------------------------------------------------------------------------------------------------------

KILLED = """
import os, random, signal, time
random.seed(1)
def work():
    while True:
        for n in range(10):
            with open(f"/tmp/f{n}", "w") as file: file.write("x" * 100)
            os.rename(f"/tmp/f{n}", f"/tmp/g{n}"); os.stat(f"/tmp/g{n}"); os.listdir("/tmp")
            try: open("/w/secret")
            except PermissionError: pass
            os.unlink(f"/tmp/g{n}")
for _ in range(300):
    pid = os.fork()
    if pid == 0: work()
    time.sleep(random.random() * 0.003)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
print("done")
"""


def test_callers_killed_at_any_moment_leave_nothing_in_the_supervisor(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files={"/w/secret": SECRET})
    vm.run("true; cat /w/secret")
    before = open_descriptors(vm)
    assert vm.run(["python3", "-c", KILLED], timeout=120).stdout == "done\n"
    assert_unharmed(vm, before)
    assert vm.fs.unchecked.read_bytes("/w/secret") == SECRET


def test_callers_that_block_and_are_killed_give_their_workers_back(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    vm.run(["true"])
    before = open_descriptors(vm)
    program = (
        "import os, signal, time\nos.mkfifo('/tmp/fifo')\n"
        "for _ in range(10):\n    pids = []\n    for _ in range(30):\n        pid = os.fork()\n"
        "        if pid == 0: os.open('/tmp/fifo', os.O_RDONLY); os._exit(0)\n        pids.append(pid)\n"
        "    time.sleep(0.05)\n    for pid in pids: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)\n"
        "print(sum(os.path.exists('/etc/passwd') for _ in range(100)))\n"
    )
    assert vm.run(["python3", "-c", program], timeout=120).stdout == "100\n"
    assert_unharmed(vm, before)


def test_a_blocked_open_of_a_fifo_ends_by_the_other_end_or_by_a_signal(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os, signal, threading\nos.mkfifo('/tmp/fifo')\n"
        "reader = threading.Thread(target=lambda: print(open('/tmp/fifo').read()))\nreader.start()\n"
        "print(sum(os.path.exists('/etc/passwd') for _ in range(500)))\n"
        "with open('/tmp/fifo', 'w') as file: file.write('through')\nreader.join()\n"
        "class Alarm(Exception): pass\ndef ring(*_): raise Alarm\n"
        "pid = os.fork()\nif pid == 0: os.open('/tmp/fifo', os.O_RDONLY)\n"
        "os.kill(pid, signal.SIGTERM); print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    for permissions in (None, judged_but_allowed()):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program], timeout=60).stdout == "500\nthrough\n-15\n"


# -- nonsense ------------------------------------------------------------------------------------------------------------

POLICIES = {
    "judged": deny("/w/secret", "/w/vault/**"),
    "all-judged": deny(
        "/w/secret",
        "/w/vault/**",
        childProcess={"default": "allow", "rules": [{"mode": "deny", "patterns": ["nothing"]}]},
        process={"default": "allow", "rules": [{"mode": "deny", "patterns": ["kill:1"]}]},
        network={"default": "deny", "rules": [{"mode": "allow", "patterns": ["127.0.0.1"]}]},
        env={"default": "allow", "rules": [{"mode": "deny", "operations": ["write"], "patterns": ["LD_*"]}]},
    ),
    "denied": {"fs": "deny", "network": "deny", "childProcess": "deny", "process": "deny"},
    "default": None,
}
CHILDREN, CALLS = 40, 2000


@pytest.mark.parametrize("length", [1, pytest.param(10, marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.parametrize("policy", POLICIES)
def test_random_calls_with_hostile_arguments_harm_nobody(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path], policy: str, length: int
) -> None:
    program = compile_c(PROGRAMS / "callfuzz.c").read_bytes()
    files = {f"/w/{name}": content for name, content in FILES.items()}
    vm = vm_factory(permissions=POLICIES[policy], files=files | {"/opt/callfuzz": program})
    vm.fs.unchecked.symlink("secret", "/w/link")
    vm.run(["true"])
    before = open_descriptors(vm)
    host = Path("/proc/self/mountinfo").read_text(), sorted(os.listdir("/"))
    denied = {**tree_of(vm, "/w/secret"), **tree_of(vm, "/w/vault")}
    result = vm.run(["/opt/callfuzz", str(length), str(CHILDREN * length), str(CALLS), "/w"], cwd="/w", timeout=600, text=False)
    assert result.returncode == 0
    assert int(result.stdout.split()[-2]) == CHILDREN * length * CALLS
    assert_unharmed(vm, before)
    assert (Path("/proc/self/mountinfo").read_text(), sorted(os.listdir("/"))) == host
    if policy != "default":
        vm.fs.unchecked.chmod("/w", 0o755)  # the guest's own, which it may have closed
        assert {**tree_of(vm, "/w/secret"), **tree_of(vm, "/w/vault")} == denied


def test_the_fuzzer_does_reach_files_where_nothing_is_judged(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path]
) -> None:
    """The control: under the default policy its calls change the tree."""
    program = compile_c(PROGRAMS / "callfuzz.c").read_bytes()
    files = {f"/w/{name}": content for name, content in FILES.items()}
    vm = vm_factory(files=files | {"/opt/callfuzz": program})
    before = tree_of(vm, "/w")
    vm.run(["/opt/callfuzz", "1", str(CHILDREN), str(CALLS), "/w"], timeout=600, text=False)
    assert tree_of(vm, "/w") != before


REMAPPED = """
import ctypes, mmap, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
stop = False
def remap():
    while not stop:
        libc.munmap(page, 4096)
        libc.mmap(page, 4096, 3, 0x32, -1, 0)
        ctypes.memmove(page, b"/w/plain\\0", 9)
seen = set()
thread = threading.Thread(target=remap)
thread.start()
end = time.monotonic() + 1
while time.monotonic() < end:
    fd = libc.open(ctypes.c_void_p(page), 0)
    seen.add(ctypes.get_errno() if fd < 0 else 0)
    if fd >= 0: os.close(fd)
stop = True
thread.join()
print(*sorted(seen))
"""


def test_a_path_whose_memory_comes_and_goes_is_read_or_efault(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed(), files={"/w/plain": b"plain"})
    # A child: the program's own libraries may stumble over the hole it makes.
    seen = set(map(int, vm.run(["python3", "-c", REMAPPED], timeout=60).stdout.split()))
    assert seen <= {0, 2, 14}
    assert 14 in seen
    assert_unharmed(vm, 1 << 20)
