"""Every limit bites where it is reached, lets through what stays below, and leaves the VM usable."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from errno import EAGAIN, EFBIG, EMFILE, ENOSPC
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Limits, Timeout, Unsupported
from callgate.kernel.confinement.cgroup import Cgroup
from tests.contracts.host_processes import descendants, until
from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]
MIB = 1 << 20


@pytest.fixture(params=["default", "judged"])
def permissions(request: pytest.FixtureRequest) -> object:
    return {} if request.param == "default" else deny("/w/**")


@pytest.fixture(params=["cgroup", "best effort"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """What to name as best effort: nothing where the host gives cgroups, all of it where it does not (as if, if it does)."""
    if request.param == "cgroup":
        there = Cgroup.make(memory_bytes=64 * MIB, cpu=True)
        if there is None or not there.bounds_memory or not there.has_cpu_clock:
            if there is not None:
                there.remove()
            pytest.skip("this process may not make cgroups with a memory controller and a clock here")
        there.remove()
        yield ()
        return
    monkeypatch.setattr(Cgroup, "make", lambda **_: None)
    yield ("cgroup",)


def still_works(vm: VM) -> bool:
    """A run that was ended left nothing, and the next one is as good as the first."""
    supervisor = vm.status().supervisor_pid
    return vm.run(["echo", "works"]).stdout == "works\n" and until(lambda: len(descendants(supervisor)) == 1, 10)


def python(*lines: str) -> list[str]:
    return ["python3", "-c", "\n".join(lines)]


# -- time ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script", ["sleep 999", "trap '' TERM; setsid sleep 998 & sleep 999", "kill -STOP $$", "while :; do :; done"]
)
def test_a_run_takes_no_longer_than_it_may(vm_factory: Factory, permissions: object, script: str) -> None:
    vm = vm_factory(permissions=permissions, limits=Limits(wall_seconds=0.5))
    with pytest.raises(Timeout) as caught:
        vm.run(f"echo early; {script}")
    assert (caught.value.output, caught.value.timeout) == ("early\n", 0.5)
    process = vm.spawn(script)
    assert process.wait(30) == -signal.SIGKILL
    assert process.exceeded == ("wall_seconds",)
    process.close()
    assert still_works(vm)
    assert vm_factory().run("sleep 0.7; echo control").stdout == "control\n"


def test_the_clock_of_a_run_starts_with_that_run(vm_factory: Factory) -> None:
    vm = vm_factory(limits=Limits(wall_seconds=1.5))
    for _ in range(3):
        assert vm.run("sleep 0.7; echo done").stdout == "done\n"
    with pytest.raises(Timeout) as sooner:
        vm.run("sleep 999", timeout=0.2)
    assert sooner.value.timeout == 0.2


BURNERS = {
    "one": python("while True: pass"),
    "threads": python(
        "import hashlib, threading",
        "def burn():",
        "    while True: hashlib.sha256(bytes(1 << 20)).digest()",
        "for _ in range(4): threading.Thread(target=burn).start()",
    ),
    "children": python("import os", "for _ in range(8): os.fork()", "while True: pass"),
    "one-after-the-other": python(
        "import os, time", "while True:", "    if os.fork() == 0:", "        t = time.process_time()",
        "        while time.process_time() < t + 0.02: pass", "        os._exit(0)", "    os.wait()",
    ),
    "detached": ["sh", "-c", "setsid sh -c 'while :; do :; done' & sleep 999"],
}  # fmt: skip


@pytest.mark.parametrize("burner", BURNERS.values(), ids=BURNERS.keys())
def test_processor_time_is_counted_over_all_that_a_run_starts(
    vm_factory: Factory, by: tuple[str, ...], burner: list[str]
) -> None:
    vm = vm_factory(limits=Limits(cpu_seconds=0.6), best_effort=by)
    result = vm.run(burner, timeout=60)
    assert result.returncode == -signal.SIGKILL
    assert result.exceeded == ("cpu_seconds",)
    assert bool(vm.status().degradations) is bool(by)
    assert still_works(vm)


#: Each child uses a little time and is never waited for, so that /proc forgets it at once.
UNSEEN = python(
    "import os, signal, time", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "while True:", "    if os.fork() == 0:",
    "        t = time.process_time()", "        while time.process_time() < t + 0.004: pass", "        os._exit(0)",
    "    try: os.waitpid(-1, 0)", "    except ChildProcessError: pass",
)  # fmt: skip


def test_a_cgroups_clock_counts_children_that_nobody_waits_for(vm_factory: Factory, by: tuple[str, ...]) -> None:
    if by:
        pytest.skip("which is what is lost without a cgroup, and said to be")
    vm = vm_factory(limits=Limits(cpu_seconds=1.5, wall_seconds=30), best_effort=by)
    result = vm.run(UNSEEN)
    assert (result.returncode, result.exceeded) == (-signal.SIGKILL, ("cpu_seconds",))
    assert still_works(vm)


def test_one_run_is_not_charged_for_another(vm_factory: Factory, by: tuple[str, ...]) -> None:
    vm = vm_factory(limits=Limits(cpu_seconds=1), best_effort=by)
    idle = vm.spawn("read x; echo done")
    for _ in range(3):
        assert vm.run(python("import time", "while time.process_time() < 0.5: pass")).returncode == 0
    greedy = vm.run(BURNERS["one"], timeout=60)
    assert greedy.exceeded == ("cpu_seconds",)
    assert idle.communicate("\n") == ("done\n", "")
    assert (idle.returncode, idle.exceeded) == (0, ())


# -- memory --------------------------------------------------------------------------------------------------------------

GRABBERS = {
    "one": python("held = []", "while True: held.append(bytearray(1 << 20))"),
    "several": python(
        "import os, time", "for _ in range(7): os.fork()", "held = []",
        "for _ in range(24): held.append(bytearray(os.urandom(1 << 20)))", "time.sleep(999)",
    ),
    "shared": python(
        "import mmap, time", "held = mmap.mmap(-1, 256 << 20)", "for at in range(0, len(held), 4096): held[at] = 1",
        "time.sleep(999)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("grabber", GRABBERS)
def test_memory_is_bounded_in_sum(vm_factory: Factory, by: tuple[str, ...], grabber: str) -> None:
    vm = vm_factory(limits=Limits(memory=128 * MIB, wall_seconds=60), best_effort=by)
    result = vm.run(GRABBERS[grabber])
    if by and grabber == "one":
        assert "MemoryError" in result.stderr or result.exceeded == ("memory",)  # RLIMIT_DATA, or the clock if that is first
    elif by:
        assert (result.returncode, result.exceeded) == (-signal.SIGKILL, ("memory",))
    else:
        assert "memory" in result.exceeded
    assert still_works(vm)


def test_what_sockets_keep_counts(vm_factory: Factory) -> None:
    """Bytes that were sent and nobody reads are kernel memory, which version 1 of cgroups counts in a number of their own."""
    there = Cgroup.make(memory_bytes=64 * MIB, cpu=False)
    if there is None or not there.bounds_memory:
        pytest.skip("this process may not make cgroups with a memory controller here")
    there.remove()
    program = python(
        "import socket",
        "listener, kept, queued = socket.create_server(('127.0.0.1', 0)), [], 0",
        "for _ in range(200):",
        "    sender = socket.create_connection(listener.getsockname())",
        "    kept += [sender, listener.accept()[0]]",
        "    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)",
        "    sender.setblocking(False)",
        "    try:",
        "        while True: queued += sender.send(bytes(65536))",
        "    except BlockingIOError: pass",
        "print(queued >> 20)",
    )
    permissions = {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": ["127.0.0.1"]}]}}
    free = vm_factory(permissions=permissions).run(program, timeout=60)
    assert int(free.stdout) > 192  # the control
    bound = vm_factory(permissions=permissions, limits=Limits(memory=64 * MIB)).run(program, timeout=60)
    assert bound.exceeded == ("memory",) or int(bound.stdout) < 64


def test_memory_below_the_limit_is_given(vm_factory: Factory, by: tuple[str, ...]) -> None:
    vm = vm_factory(limits=Limits(memory=256 * MIB), best_effort=by)
    # What several processes share counts once, as often as they may map it.
    program = python(
        "import os", "held = bytearray(os.urandom(64 << 20))", "pids = [os.fork() for _ in range(1)]", "pids += [os.fork()]",
        "pids += [os.fork()]", "import time; time.sleep(0.5)", "print(len(held) >> 20)",
    )  # fmt: skip
    result = vm.run(program, timeout=60)
    assert (result.returncode, result.exceeded) == (0, ())
    assert result.stdout.startswith("64\n")


@pytest.mark.parametrize("filler", ["head -c 1G /dev/zero > /tmp/big", "cd /tmp; i=0; while touch $i; do i=$((i + 1)); done"])
def test_a_full_disk_leaves_memory_to_remove_what_fills_it(vm_factory: Factory, by: tuple[str, ...], filler: str) -> None:
    vm = vm_factory(limits=Limits(memory=32 * MIB), best_effort=by)
    full = vm.run(filler, timeout=120)
    assert "No space left on device" in full.stderr
    assert vm.run("rm -r /tmp/*; echo removed", timeout=60).stdout == "removed\n"
    assert still_works(vm)


def test_memory_that_no_process_has_mapped_counts_for_a_cgroup(vm_factory: Factory, by: tuple[str, ...]) -> None:
    if by:
        pytest.skip("which is what is lost without a cgroup, and said to be")
    vm = vm_factory(limits=Limits(memory=128 * MIB))
    program = python(
        "import os", "fd = os.memfd_create('x')", "for _ in range(512): os.write(fd, bytes(1 << 20))", "print('wrote')"
    )
    result = vm.run(program, timeout=60)
    assert ("wrote" in result.stdout, "memory" in result.exceeded) == (False, True)
    assert still_works(vm)


@pytest.mark.parametrize("limit", [{"memory": 64 * MIB}, {"cpu_seconds": 5}])
def test_a_limit_that_cannot_be_enforced_starts_nothing(limit: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from callgate import VM

    def unexpected(*_: object, **__: object) -> int:
        raise AssertionError("something was started")

    monkeypatch.setattr(Cgroup, "make", lambda **_: None)
    monkeypatch.setattr(os, "posix_spawn", unexpected)
    with pytest.raises(Unsupported, match=r"best_effort="):
        VM(limits=limit)


def test_no_cgroup_outlives_its_vm(vm_factory: Factory, by: tuple[str, ...]) -> None:
    vm = vm_factory(limits=Limits(memory=64 * MIB, cpu_seconds=60), best_effort=by)
    process = vm.spawn("setsid sleep 999 & setsid sleep 999 & sleep 999")
    made = [directory for cgroup in vm._supervisor._cgroups for directory in cgroup.directories]
    assert bool(made) is not bool(by)
    assert all(directory.is_dir() for directory in made)
    # Nothing in its name is of the host's: a guest can read it.
    assert not [line for line in vm.run(["cat", "/proc/self/cgroup"]).stdout.split() if str(os.getpid()) in line]
    vm.close()
    process.close()
    assert not [directory for directory in made if directory.exists()]


# -- counts and sizes ----------------------------------------------------------------------------------------------------


def test_processes_are_bounded_and_threads_are_processes(vm_factory: Factory, permissions: object) -> None:
    program = (
        "import os, threading, time\nmade = 0\n"
        "try:\n    while made < 100:\n        if os.fork() == 0: time.sleep(999)\n        made += 1\n"
        "except OSError as error: print(error.errno, made)\n"
        "try: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nexcept RuntimeError as error: print(error)\n"
    )
    vm = vm_factory(permissions=permissions, limits=Limits(processes=10))
    assert vm.run(["python3", "-c", program]).stdout == f"{EAGAIN} 9\ncan't start new thread\n"
    assert still_works(vm)
    assert vm_factory().run(["python3", "-c", program]).stdout == ""


def test_open_files_are_bounded(vm_factory: Factory, permissions: object) -> None:
    program = (
        "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "try:\n    while True: last = os.open('/etc/passwd', os.O_RDONLY)\nexcept OSError as error: print(error.errno, last)\n"
    )
    vm = vm_factory(permissions=permissions, limits=Limits(open_files=16))
    assert vm.run(["python3", "-c", program]).stdout == f"(16, 16)\n{EMFILE} 15\n"


@pytest.mark.parametrize("way", ["write", "truncate", "ftruncate", "fallocate"])
def test_file_sizes_are_bounded_whoever_carries_the_call_out(vm_factory: Factory, permissions: object, way: str) -> None:
    grow = {
        "write": "os.lseek(fd, 1000, 0); os.write(fd, b'x')",
        "truncate": "os.truncate('f', 1001)",
        "ftruncate": "os.ftruncate(fd, 1001)",
        "fallocate": "os.posix_fallocate(fd, 0, 1001)",
    }[way]
    program = (
        "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\n"
        f"os.write(fd, bytes(1000))\ntry:\n    {grow}\nexcept OSError as error: print(error.errno)\nprint(os.stat('f').st_size)\n"
    )
    limited = vm_factory(permissions=permissions, limits=Limits(file_size=1000))
    assert limited.run(["python3", "-c", program]).stdout == f"{EFBIG}\n1000\n"
    assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == "1001\n"


def test_a_program_that_writes_too_large_a_file_is_ended_by_the_kernels_signal(vm_factory: Factory) -> None:
    vm = vm_factory(limits=Limits(file_size="4K"))
    result = vm.run(["dd", "if=/dev/zero", "of=f", "bs=1K", "count=100"])
    assert (result.returncode, result.exceeded) == (-signal.SIGXFSZ, ("file_size",))
    assert vm.fs.stat("f").st_size == 4096


def test_the_disk_is_bounded(vm_factory: Factory, permissions: object) -> None:
    program = (
        "import os\nfd = os.open('f', os.O_WRONLY | os.O_CREAT)\nwritten = 0\n"
        "try:\n    while written < 16 << 20: written += os.write(fd, bytes(65536))\n"
        "except OSError as error: print(error.errno, written < 8 << 20)\nelse: print('wrote')\n"
    )
    vm = vm_factory(permissions=permissions, limits=Limits(disk="8M"))
    assert vm.run(["python3", "-c", program]).stdout == f"{ENOSPC} True\n"
    assert vm_factory().run(["python3", "-c", program]).stdout == "wrote\n"
    with pytest.raises(ValueError, match="do not fit"):
        vm_factory(limits=Limits(disk="1M"), files={"/big": bytes(2 * MIB)})


def test_what_is_kept_of_the_output_is_bounded_and_what_is_told_is_not(vm_factory: Factory) -> None:
    vm = vm_factory(limits=Limits(output=1000))
    told: list[int] = []
    result = vm.run(
        "head -c 5000 /dev/zero; head -c 999 /dev/zero >&2", text=False, on_stdout=lambda data: told.append(len(data))
    )
    assert (len(result.stdout), len(result.stderr), result.truncated, sum(told)) == (1000, 999, True, 5000)
    exact = vm.run("head -c 1000 /dev/zero", text=False)
    assert (len(exact.stdout), exact.truncated) == (1000, False)
    with pytest.raises(Timeout) as caught:
        vm.run("yes", timeout=0.3)
    assert caught.value.output == "y\n" * 500


def test_the_status_names_every_limit_and_its_mechanism(vm_factory: Factory) -> None:
    vm = vm_factory(limits={"wall_seconds": 60, "file_size": "1M", "processes": 50})
    status = vm.status()
    assert set(status.limits) == set(status.limits_enforced_by)
    assert {name: status.limits[name] for name in ("wall_seconds", "file_size", "processes")} == {
        "wall_seconds": 60.0,
        "file_size": MIB,
        "processes": 50,
    }
    assert status.limits_enforced_by["file_size"] == "RLIMIT_FSIZE"
    assert status.as_dict()["limits_enforced_by"] == dict(status.limits_enforced_by)


def test_usage_is_of_the_run_alone(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    busy = vm.run(
        python("import os, time", "for _ in range(50): os.path.exists('/w/x')", "while time.process_time() < 0.3: pass")
    )
    assert busy.usage.user_seconds + busy.usage.system_seconds >= 0.3
    assert busy.usage.wall_seconds >= 0.3
    assert busy.usage.notified_calls >= 50
    quiet = vm.run(["/bin/true"])
    assert quiet.usage.notified_calls < 50
    assert quiet.usage.user_seconds + quiet.usage.system_seconds < 0.3
    began = time.monotonic()
    assert vm.run("sleep 0.2").usage.wall_seconds <= time.monotonic() - began
