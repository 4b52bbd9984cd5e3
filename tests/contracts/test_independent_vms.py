"""VMs of one process know nothing of each other, and leave nothing behind, however many there are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callgate import VM
from tests.contracts.host_processes import descendants
from tests.vm_fixtures import deny

pytestmark = pytest.mark.vm

SECRET = {"/w/a": b"content of a", "/w/b": b"content of b"}


def test_opposite_policies_at_once_give_opposite_verdicts(vm_factory: Callable[..., VM]) -> None:
    no_a = vm_factory(permissions=deny("/w/a"), files=SECRET)
    no_b = vm_factory(permissions=deny("/w/b"), files=SECRET)

    def ask(vm: VM) -> set[tuple[int, str]]:
        seen = set()
        for _ in range(15):
            result = vm.run("cat /w/a 2>&1; cat /w/b 2>&1")
            seen.add((result.returncode, result.stdout))
        return seen

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, (no_a, no_b, no_a, no_b)))
    without_a = {(0, "cat: /w/a: Permission denied\ncontent of b")}
    without_b = {(1, "content of acat: /w/b: Permission denied\n")}
    assert answers == [without_a, without_b, without_a, without_b]
    assert {denial.subject for denial in no_a.denials} == {"/w/a"}
    assert {denial.subject for denial in no_b.denials} == {"/w/b"}


def test_opposite_modes_at_once_give_opposite_verdicts(vm_factory: Callable[..., VM]) -> None:
    allowing = vm_factory(permissions={"fs": "allow", "network": "allow", "childProcess": "allow"})
    denying = vm_factory(permissions={"fs": "deny", "network": "deny", "childProcess": "deny"})
    program = (
        "import os, socket\n"
        "def attempt(f):\n    try: f()\n    except OSError as error: return error.errno\n    return 0\n"
        "print(attempt(lambda: open('/etc/hostname')), attempt(lambda: socket.socket().bind(('127.0.0.1', 0))),"
        " attempt(lambda: os.posix_spawn('/usr/bin/true', ['true'], {})))\n"
    )
    with ThreadPoolExecutor(8) as pool:
        futures = [(vm, pool.submit(vm.run, ["python3", "-c", program])) for vm in (allowing, denying) * 8]
        answers = [(vm is allowing, future.result().stdout) for vm, future in futures]
    assert set(answers) == {(True, "0 0 0\n"), (False, "13 13 13\n")}


def test_files_processes_and_environment_are_private(vm_factory: Callable[..., VM]) -> None:
    first, second = vm_factory(env={"NAME": "first"}), vm_factory(env={"NAME": "second"})
    first.run("echo $NAME > /tmp/name; sleep 999 > /dev/null 2>&1 &")
    assert second.run("echo $NAME; cat /tmp/name").stdout == "second\n"
    assert first.run("cat /tmp/name").stdout == "first\n"


# Folders of tests and benchmarks that run at the same time.
NOT_THE_PRODUCTS = ("callgate-as-user-", "callgate-bench-", "callgate-fuzz-", "callgate-host-", "callgate-sanitized-")


def names_of_ours() -> set[str]:
    """Entries of the places for temporary files that could be the product's."""
    places = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", "/run"}
    return {
        f"{place}/{name}"
        for place in places
        if os.access(place, os.R_OK)
        for name in os.listdir(place)
        if "callgate" in name and not name.startswith(NOT_THE_PRODUCTS)
    }


def test_fifty_vms_leave_the_process_and_the_host_as_they_were(leaves_nothing: None) -> None:  # noqa: ARG001
    with VM() as vm:  # whatever is loaded or opened once for all VMs is there from now on
        vm.run(["true"])
    before = names_of_ours(), Path("/proc/mounts").read_text(), set(os.listdir("/proc/self/fd"))
    for number in range(50):
        with VM(permissions=deny("/w/**") if number % 2 else None) as vm:
            assert vm.run(["sh", "-c", "echo x > /tmp/y; (sleep 999 &); exit 3"]).returncode == 3
    assert (names_of_ours(), Path("/proc/mounts").read_text(), set(os.listdir("/proc/self/fd"))) == before


def test_fifty_vms_open_at_once_leave_nothing_either(leaves_nothing: None) -> None:  # noqa: ARG001
    vms: list[VM] = []
    try:
        vms += [VM(permissions=deny("/w/**"), files={"/w/n": b""}) for _ in range(50)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda pair: pair[1].run(f"echo {pair[0]}; cat /w/n 2>&1"), enumerate(vms)))
        assert [answer.stdout for answer in answers] == [f"{n}\ncat: /w/n: Permission denied\n" for n in range(50)]
    finally:
        for vm in vms:
            vm.close()


def test_fifty_runs_at_once_in_one_vm_keep_their_results_apart(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    script = "read word; echo out $word; echo err $word >&2; cat /w/$word 2>/dev/null; exit $word"
    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda n: vm.run(script, input=f"{n}\n", timeout=60), range(50)))
    for number, result in enumerate(results):
        assert (result.returncode, result.stdout, result.stderr) == (number, f"out {number}\n", f"err {number}\n")
        assert [denial.subject for denial in result.denials] == [f"/w/{number}"]
    assert len(descendants(vm.status().supervisor_pid)) == 1  # init
