"""/proc as a way round: descriptor links, other processes' entries, and whose entries they are (catalogue 22 to 28)."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, EBADF, ENOENT, EROFS
from typing import TYPE_CHECKING

import pytest

from tests.escapes.three_ways import SECRET, ThreeWays
from tests.vm_fixtures import AT_FDCWD, Out, Probe, call, callgate, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
ROOTS = ("/proc/self/root", "/proc/thread-self/root", "/proc/self/task/../root", "/proc/self/cwd/..", "/proc/./self/../self/root")


@pytest.mark.parametrize("root", ROOTS)
def test_the_root_and_the_working_directory_lead_nowhere_new(three_ways: ThreeWays, root: str) -> None:
    def script(top: str) -> list[str]:
        down = top if root.endswith("root") else "/secret"
        path = f"{root}{down}/secret" if root.endswith("root") else f"{root}{down}"
        return [call("chdir", f"{top}/open"), call("open", path, R), call("newfstatat", AT_FDCWD, path, Out(144), 0)]

    three_ways.works(script, [0, 3, 0])
    three_ways.refused(script, [0, -EACCES, -EACCES], "secret")


@pytest.mark.parametrize("entry", ["root", "cwd", "exe", "fd/0", "ns/user", "map_files"])
def test_the_links_of_init_and_of_others_are_not_followed(vm_factory: Callable[..., VM], probe: Probe, entry: str) -> None:
    vm = vm_factory(permissions=deny("/w/secret"), files=probe.files | {"/w/secret": SECRET})
    others = [call("open", f"/proc/{pid}/{entry}", R) for pid in (1, 2)]
    below = [call("open", f"/proc/{pid}/{entry}/w/secret", R) for pid in (1, 2)]
    for answer in results(probe.in_vm(vm, [*others, *below])):
        assert answer in (-EACCES, -ENOENT)


def test_a_childs_root_is_not_followed(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/secret"), files={"/w/secret": SECRET, "/w/plain": b"plain"})
    program = (
        "import os, time\nchild = os.fork()\nif child == 0: time.sleep(60)\n"
        "for name in ('secret', 'plain'):\n"
        "    for entry in ('root/w', 'cwd'):\n"
        "        try: print(len(os.read(os.open(f'/proc/{child}/{entry}/{name}', os.O_RDONLY), 99)))\n"
        "        except OSError as error: print(-error.errno)\n"
    )
    assert vm.run(["python3", "-c", program], cwd="/w").stdout.split() == ["-13"] * 4


def test_a_descriptor_is_not_reopened_for_more_than_its_path_allows(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        again = [call("open", path, flags) for path in ("/proc/self/fd/3", "/dev/fd/3") for flags in (RW, W, W | os.O_TRUNC, R)]
        return [call("open", f"{top}/secret", R), *again]

    three_ways.works(script, list(range(3, 12)))
    refused = [-EACCES] * 3
    three_ways.refused(script, [3, *refused, 4, *refused, 5], "secret", operations=["write", "truncate"])


def test_standard_input_by_its_device_name_is_only_itself(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files={"/w/secret": SECRET})
    assert vm.run("cat /dev/stdin /proc/self/fd/0", input="mine").stdout == "mine"
    assert vm.run("cat < /w/secret; cat /dev/fd/9 9< /w/secret").stdout == ""


def test_its_own_program_cannot_be_written(three_ways: ThreeWays, probe: Probe) -> None:
    vm = three_ways.vm(deny("/opt/**", operations=["write", "truncate"]))
    lines = [call("open", "/proc/self/exe", RW), call("open", "/proc/self/exe", R), call("truncate", "/proc/self/exe", 0)]
    assert results(probe.in_vm(vm, lines)) == [-EACCES, 3, -EACCES]


def test_self_is_the_guest(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed(), env={"MARK": "of the guest"})
    program = (
        "import os, threading\n"
        "print(os.readlink('/proc/self') == str(os.getpid()))\n"
        "print(f'Pid:\\t{os.getpid()}\\n' in open('/proc/self/status').read())\n"
        "print('MARK=of the guest' in open('/proc/self/environ').read())\n"
        "print(open('/proc/self/comm').read().strip() in os.path.realpath('/proc/self/exe'))\n"
        "seen = []\n"
        "def look(): seen.append(os.readlink('/proc/thread-self') == f'{os.getpid()}/task/{threading.get_native_id()}')\n"
        "thread = threading.Thread(target=look); thread.start(); thread.join(); print(seen == [True])\n"
        "os.chdir('/tmp'); print(os.readlink('/proc/self/cwd'), os.readlink('/proc/self/root'))\n"
    )
    assert vm.run(["python3", "-c", program]).stdout.splitlines() == ["True"] * 5 + ["/tmp /"]


def test_no_entry_of_proc_shows_the_environment_of_the_host(
    vm_factory: Callable[..., VM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "of-the-host")
    for permissions in (None, judged_but_allowed()):
        vm = vm_factory(permissions=permissions)
        shown = vm.run("cat /proc/self/environ /proc/*/environ /proc/thread-self/environ 2>/dev/null; env", text=False).stdout
        assert b"CANARY" not in shown
        assert b"of-the-host" not in shown
    assert "of-the-host" not in callgate("run", "--", "env").stdout


def test_only_the_processes_of_the_vm_are_there(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    pids = [int(name) for name in vm.run(["ls", "/proc"]).stdout.split() if name.isdigit()]
    assert 1 in pids
    assert max(pids) < 20
    assert vm.run(["cat", f"/proc/{os.getpid()}/status"]).returncode != 0


def test_init_shows_nothing_of_itself(vm_factory: Callable[..., VM], probe: Probe) -> None:
    for permissions in (None, judged_but_allowed()):
        vm = vm_factory(permissions=permissions, files=probe.files)
        lines = [call("open", f"/proc/1/{entry}", R) for entry in ("mem", "environ", "maps", "fd", "fdinfo", "auxv", "stack")]
        assert set(results(probe.in_vm(vm, lines))) == {-EACCES}


def test_memory_is_not_written_through_proc(vm_factory: Callable[..., VM], probe: Probe) -> None:
    """It would write to pages that are only for reading or executing. The VM's /proc is mounted read-only."""
    for permissions in (None, judged_but_allowed()):
        vm = vm_factory(permissions=permissions, files=probe.files)
        answers = results(probe.in_vm(vm, [call("open", "/proc/self/mem", W), call("open", "/proc/self/mem", RW)]))
        assert answers == [-EROFS, -EROFS]


def test_descriptors_that_are_none_are_none(three_ways: ThreeWays, probe: Probe) -> None:
    vm = three_ways.vm(deny("/w/secret"))
    lines = [call("open", f"/proc/self/fd/{number}", R) for number in (3, 99, 4096)]
    assert results(probe.in_vm(vm, lines)) == [-ENOENT] * 3
    assert results(probe.in_vm(vm, [call("newfstatat", 99, "", Out(144), 0x1000)])) == [-EBADF]
