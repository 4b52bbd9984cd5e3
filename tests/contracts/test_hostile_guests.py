"""A guest that floods, crashes, detaches, refuses to end or fills what it can harms only itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from errno import EAGAIN, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import Timeout
from tests.contracts.host_processes import descendants
from tests.vm_fixtures import PROGRAMS, callgate, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
CAPTURED = 64 << 20


@pytest.fixture(params=["default", "judged"])
def vm(request: pytest.FixtureRequest, vm_factory: Callable[..., VM]) -> VM:
    return vm_factory(permissions=None if request.param == "default" else deny("/w/**"))


def assert_nothing_is_left(vm: VM) -> None:
    """No process but init, once it has reaped what has ended, and the VM still works."""
    supervisor, deadline = vm.status().supervisor_pid, time.monotonic() + 5
    while len(descendants(supervisor)) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(descendants(supervisor)) == 1
    assert vm.run(["echo", "still here"]).stdout == "still here\n"


# -- floods ------------------------------------------------------------------------------------------------------------


def test_output_beyond_what_is_kept_is_cut_and_said_to_be(vm: VM) -> None:
    result = vm.run(f"head -c {CAPTURED + 1} /dev/zero; head -c 9 /dev/zero >&2", text=False)
    assert (result.returncode, len(result.stdout), len(result.stderr), result.truncated) == (0, CAPTURED, 9, True)
    assert_nothing_is_left(vm)


def test_a_flood_without_end_is_ended_by_the_timeout(vm: VM) -> None:
    with pytest.raises(Timeout) as caught:
        vm.run(["yes"], timeout=0.5)
    assert caught.value.output is not None
    assert caught.value.output.startswith("y\ny\n")
    assert_nothing_is_left(vm)


def test_a_guest_that_never_reads_its_input_ends_all_the_same(vm: VM) -> None:
    assert vm.run(["true"], input=b"x" * (8 << 20)).returncode == 0
    assert_nothing_is_left(vm)


def test_a_flood_of_denials_is_counted_and_does_not_grow_without_bound(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    asked = 30_000
    result = vm.run(["python3", "-c", f"import os\nfor _ in range({asked}): os.path.exists('/w/x')"])
    assert result.returncode == 0
    assert len(result.denials) + result.denials_dropped == asked
    assert len(result.denials) <= 10_000
    status = vm.status()
    assert (status.denials, len(vm.denials) + status.denials_dropped) == (asked, asked)
    assert_nothing_is_left(vm)


# -- crashes -----------------------------------------------------------------------------------------------------------

CRASH = "import os, signal; os.chdir('/tmp'); os.kill(os.getpid(), signal.SIGSEGV)"


def test_a_crash_is_a_negative_return_code_and_leaves_no_core_file(vm: VM, tmp_path: Path) -> None:
    before = set(os.listdir(Path.cwd())), os.listdir(tmp_path)
    result = vm.run(["python3", "-c", f"import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))\n{CRASH}"], cwd="/tmp")
    assert (result.returncode, result.stderr) == (-signal.SIGSEGV, "")
    # Not 0: under a limit of 0 the kernel still runs a piped core handler, as root on the host (core(5)).
    assert vm.run("python3 -c 'import resource; print(resource.getrlimit(4))'").stdout == "(1, 1)\n"
    assert vm.fs.unchecked.listdir("/tmp") == []
    assert (set(os.listdir(Path.cwd())), os.listdir(tmp_path)) == before
    assert_nothing_is_left(vm)


@pytest.mark.skipif(CORE_PATTERN.read_text().strip() not in ("core", "core.%p"), reason="crashes of this host go elsewhere")
def test_the_same_crash_on_the_bare_host_leaves_a_core_file(host_dir: Path) -> None:
    """The control: without the limit there is something to find."""
    import resource

    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("this process may not make core files")
    command = f"ulimit -c unlimited; exec python3 -c \"import os; os.chdir('{host_dir}'); os.abort()\""
    subprocess.run(["sh", "-c", command], check=False)
    assert any(name.startswith("core") for name in os.listdir(host_dir))


# -- what does not want to end -------------------------------------------------------------------------------------------

STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)"
SURVIVORS = {
    "background": "sleep 999 &",
    "holds-the-output": "sleep 999 & echo $!",
    "nohup": "nohup sleep 999 > /dev/null 2>&1 &",
    "setsid": "setsid sh -c 'trap \"\" TERM HUP INT; sleep 999; sleep 999' < /dev/null > /dev/null 2>&1 &",
    "double-fork": f'python3 -c "import os, signal, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  {STUBBORN}\n'
    '  os.closerange(0, 3)\n  time.sleep(999)\n os._exit(0)\nos.wait()"',
    "many": "for i in $(seq 50); do setsid sleep 999 & done",
    "stopped": "sleep 999 & kill -STOP $!",
    "forks-on": 'python3 -c "import os, time\nif os.fork() == 0:\n for _ in range(100000):\n  if os.fork(): os._exit(0)" &',
}


@pytest.mark.parametrize("script", SURVIVORS.values(), ids=SURVIVORS.keys())
def test_nothing_a_run_started_outlives_it(vm: VM, script: str) -> None:
    result = vm.run(f"{script}\nexit 7", timeout=30)
    assert result.returncode == 7
    assert_nothing_is_left(vm)


@pytest.mark.parametrize("script", SURVIVORS.values(), ids=SURVIVORS.keys())
def test_nothing_a_run_started_outlives_its_timeout(vm: VM, script: str) -> None:
    with pytest.raises(Timeout) as caught:
        vm.run(f"echo begun; trap '' TERM INT HUP; {script}\nsleep 999; sleep 999", timeout=0.7)
    assert isinstance(caught.value, subprocess.TimeoutExpired)
    assert isinstance(caught.value, TimeoutError)
    assert str(caught.value.output).startswith("begun\n")
    assert_nothing_is_left(vm)


def test_a_timeout_does_not_touch_another_run(vm: VM) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(vm.run, "sleep 1.5; echo done")
        with pytest.raises(Timeout):
            vm.run("setsid sleep 999", timeout=0.3)
        assert other.result().stdout == "done\n"


def test_the_command_line_ends_everything_at_its_timeout_with_124() -> None:
    done = callgate("run", "--timeout", "0.5", "--", "sh", "-c", "trap '' TERM; echo begun; setsid sleep 999; sleep 999")
    assert (done.returncode, done.stdout) == (124, "begun\n")


# -- against the VM's own processes -----------------------------------------------------------------------------------------


def test_a_guest_that_kills_its_leader_ends_itself(vm: VM) -> None:
    for _ in range(30):  # what it leaves changes parents at a moment of its own
        result = vm.run("setsid sleep 999 & kill -KILL $PPID; sleep 999", timeout=30)
        assert result.returncode == -signal.SIGKILL
        assert_nothing_is_left(vm)


@pytest.mark.parametrize("signals", ["STOP", "STOP STOP STOP", "TSTP TTIN TTOU STOP"])
def test_a_guest_that_stops_its_leader_ends_as_if_it_had_not(vm: VM, signals: str) -> None:
    for _ in range(20):  # before, while and after the leader says hello
        result = vm.run(f"for s in {signals}; do kill -$s $PPID; done; setsid sleep 999 & exit 7", timeout=30)
        assert result.returncode == 7
    assert_nothing_is_left(vm)


def test_a_guest_that_goes_on_stopping_its_leader_is_ended_by_the_timeout(vm: VM) -> None:
    with pytest.raises(Timeout):
        vm.run("while :; do kill -STOP $PPID; done", timeout=0.5)
    assert_nothing_is_left(vm)


def test_a_guest_that_signals_everybody_hits_neither_init_nor_the_host(vm: VM) -> None:
    bystander = subprocess.Popen(["sleep", "999"])
    try:
        result = vm.run("kill -KILL -1; kill -KILL 1; sleep 999", timeout=30)
        assert result.returncode == -signal.SIGKILL
        assert_nothing_is_left(vm)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_init_cannot_be_killed_or_stopped_from_inside(vm: VM) -> None:
    result = vm.run("for s in KILL STOP TERM SEGV INT HUP; do kill -$s 1; done; echo alive")
    assert result.stdout == "alive\n"
    assert_nothing_is_left(vm)


# -- its standard streams --------------------------------------------------------------------------------------------------


def test_a_guest_that_closes_its_streams_is_still_waited_for(vm: VM) -> None:
    assert vm.run("exec 0<&- 1>&- 2>&-; sleep 0.3; exit 7").returncode == 7
    assert_nothing_is_left(vm)


def test_a_guest_that_replaces_its_streams_harms_nobody(vm: VM) -> None:
    program = "import os\nr, w = os.pipe()\nfor n in range(3): os.dup2(r, n)\nos.closerange(3, 100)\nos._exit(5)"
    assert vm.run(["python3", "-c", program]).returncode == 5
    assert_nothing_is_left(vm)


def test_a_reader_that_goes_away_does_not_harm_the_caller() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m callgate run -- yes | head -n 1', sys.executable],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "y\n"
    assert "Traceback" not in done.stderr


# -- what can be filled ----------------------------------------------------------------------------------------------------


def test_a_full_disk_is_enospc_inside_and_empty_again_when_it_is_removed(vm: VM) -> None:
    program = (
        "import os\nfd = os.open('/tmp/big', os.O_WRONLY | os.O_CREAT)\nblock = bytes(1 << 22)\nwritten = 0\n"
        "try:\n    while written < 1 << 33: written += os.write(fd, block)\n"
        "except OSError as error: print(error.errno, written >> 20)\n"
    )
    number, megabytes = vm.run(["python3", "-c", program], timeout=120).stdout.split()
    assert (int(number), 0 < int(megabytes) <= 1024) == (ENOSPC, True)
    assert vm.run("rm /tmp/big; echo free > /tmp/small; cat /tmp/small").stdout == "free\n"
    assert_nothing_is_left(vm)


def test_the_number_of_files_is_bounded(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory()
    program = (
        "import os\nos.mkdir('/tmp/many'); os.chdir('/tmp/many'); made = 0\n"
        "try:\n    while made < 1 << 20: os.close(os.open(str(made), os.O_CREAT)); made += 1\n"
        "except OSError as error: print(error.errno, made)\n"
    )
    number, made = vm.run(["python3", "-c", program], timeout=120).stdout.split()
    assert (int(number), 0 < int(made) <= 1 << 18) == (ENOSPC, True)


def test_a_fork_bomb_meets_a_limit_and_is_gone_with_its_run(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path]
) -> None:
    bomb = compile_c(PROGRAMS / "forkbomb.c").read_bytes()
    vm = vm_factory(permissions=judged_but_allowed(), files={"/opt/bomb": bomb})
    made, error = map(int, vm.run(["/opt/bomb", "20000", "100"], timeout=120).stdout.split())
    assert (0 < made <= 4096, error) == (True, EAGAIN)
    assert_nothing_is_left(vm)


def test_the_fork_bomb_goes_on_where_there_is_no_limit(compile_c: Callable[..., Path]) -> None:
    """The control: it is not the program that stops."""
    command = [str(compile_c(PROGRAMS / "forkbomb.c")), "50", "1"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "50 0\n"


def test_more_blocked_calls_than_workers_block_only_their_own_vm(vm_factory: Callable[..., VM]) -> None:
    blocked, other = vm_factory(permissions=deny("/w/**")), vm_factory(permissions=deny("/w/**"))
    with pytest.raises(Timeout):
        blocked.run("mkfifo /tmp/f; for i in $(seq 200); do cat /tmp/f & done; wait", timeout=2)
    assert other.run("cat /w/x").returncode == 1
    assert_nothing_is_left(blocked)
    assert_nothing_is_left(other)


def test_descriptors_are_bounded_and_their_end_is_emfile(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    program = (
        "import os, resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard))\n"
        "fds = []\ntry:\n    while True: fds.append(os.open('/etc/passwd', os.O_RDONLY))\n"
        "except OSError as error: print(error.errno, max(fds))\nfor fd in fds: os.close(fd)\n"
        "print(len(open('/etc/passwd').read()) > 0)\n"
    )
    assert vm.run(["python3", "-c", program]).stdout == "24 19\nTrue\n"


def test_ten_thousand_opens_at_the_descriptor_limit_leak_nothing_in_the_supervisor(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    vm.run(["true"])
    supervisor = vm.status().supervisor_pid

    def open_in_supervisor() -> int:
        # Not readable for anybody but root: the number of descriptors is in the size of the directory (Linux 6.2).
        return os.stat(f"/proc/{supervisor}/fd").st_size

    before = open_in_supervisor()
    program = (
        "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nfailed = 0\n"
        "for _ in range(10000):\n    try: os.open('/etc/passwd', os.O_RDONLY)\n    except OSError: failed += 1\n"
        "os.write(1, str(failed).encode())\n"
    )
    assert vm.run(["python3", "-c", program], timeout=120).stdout == "10000"
    deadline = time.monotonic() + 10
    while open_in_supervisor() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_in_supervisor() <= before
