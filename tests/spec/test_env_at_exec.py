"""env: what an exec hands on is settled before the new program's first instruction (SPEC 3.5, A11, AOS-52, AOS-53)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from errno import E2BIG, EACCES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import messages

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def env_rules(*rules: tuple[str, str, str], default: str = "allow") -> dict[str, object]:
    """Rules of (mode, operation, pattern), in order."""
    made = [{"mode": mode, "operations": [operation], "patterns": [pattern]} for mode, operation, pattern in rules]
    return {"env": {"default": default, "rules": made}}


#: Shows its environment, arguments and auxiliary vector.
SHOW = r"""
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
int main(int argc, char **argv, char **envp) {
    printf("argc %d", argc);
    for (int i = 0; i < argc; i++) printf(" %s", argv[i]);
    puts("");
    char **at = envp;
    for (; *at; at++) printf("env %s\n", *at);
    const ElfW(auxv_t) *aux = (const ElfW(auxv_t) *)(at + 1);
    int entries = 0, page = 0, executable = 0;
    for (; aux->a_type != AT_NULL; aux++, entries++) {
        if (aux->a_type == AT_PAGESZ) page = aux->a_un.a_val == getauxval(AT_PAGESZ) && page == 0;
        if (aux->a_type == AT_EXECFN) executable = strcmp((const char *)aux->a_un.a_val, argv[0]) == 0;
    }
    printf("auxiliary %d %d %d\n", entries > 10, page, executable);
    char shown[65536];
    FILE *file = fopen("/proc/self/environ", "r");
    const size_t n = fread(shown, 1, sizeof shown, file);
    for (size_t i = 0; i < n; i += strlen(shown + i) + 1)
        if (shown[i]) printf("shown %s\n", shown + i);
    return 0;
}
"""

#: Executes it with the environment that standard input words, one entry a line.
HANDS_ON = """
import ctypes, os, sys
entries = [line.encode() for line in sys.stdin.read().split("\\n")[:-1]]
argv = (ctypes.c_char_p * 4)(b"/opt/show", b"one", b"two", None)
envp = (ctypes.c_char_p * (len(entries) + 1))(*entries, None)
libc = ctypes.CDLL(None, use_errno=True)
if "execveat" in sys.argv: libc.syscall(322, -100, b"/opt/show", argv, envp, 0)
elif "null" in sys.argv: libc.execve(b"/opt/show", argv, None)
else: libc.execve(b"/opt/show", argv, envp)
print("errno", ctypes.get_errno())
"""


@pytest.fixture
def show(compile_c: Callable[..., Path]) -> Mapping[str, bytes]:
    return {"/opt/show": compile_c(SHOW).read_bytes(), "/opt/hands-on.py": HANDS_ON.encode()}


def hand_on(vm: VM, *entries: str, way: str = "execve", env: Mapping[str, str] | None = None) -> tuple[list[str], list[str], str]:
    """What the new program finds in its environment and in /proc/self/environ, and anything else it says."""
    entered = "".join(f"{entry}\n" for entry in entries)
    result = vm.run(["/usr/bin/python3", "-IS", "/opt/hands-on.py", way], input=entered, env=env)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    found, shown = ([line.removeprefix(word) for line in lines if line.startswith(word)] for word in ("env ", "shown "))
    rest = " | ".join(line for line in lines if not line.startswith(("env ", "shown ")))
    return found, shown, rest


WHOLE = "argc 3 /opt/show one two | auxiliary 1 1 1"


@pytest.mark.parametrize("way", ["execve", "execveat"])
def test_what_may_not_be_read_is_gone_and_everything_else_in_place(
    vm_factory: Callable[..., VM], show: Mapping[str, bytes], way: str
) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "read", "AWS_*")), files=show)
    many = [f"N{number}={'v' * number}" for number in range(40)]
    for entries in (
        ["A=1"],
        ["AWS_X=s3cret"],
        ["AWS_X=1", "A=2", "AWS_Y=3", "B=4", "AWS_"],
        ["A=1", "AWS_=", "B="],
        [*many, "AWS_K=s3cret"],
        [],
    ):
        kept = [entry for entry in entries if not entry.startswith("AWS_")]
        assert hand_on(vm, *entries, way=way) == (kept, kept, WHOLE)
    assert vm.denials == ()


def test_the_same_is_handed_on_where_nothing_is_judged(vm_factory: Callable[..., VM], show: Mapping[str, bytes]) -> None:
    vm = vm_factory(files=show)
    assert hand_on(vm, "AWS_X=1", "A=2") == (["AWS_X=1", "A=2"], ["AWS_X=1", "A=2"], WHOLE)


@pytest.mark.parametrize("value", ["other", "", "orig", "original2", "Original"])
def test_a_name_that_may_not_be_written_keeps_its_value_or_the_exec_fails(
    vm_factory: Callable[..., VM], show: Mapping[str, bytes], value: str
) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "write", "FIX_*")), files=show, env={"FIX_A": "original"})
    assert hand_on(vm, "FIX_A=original", "B=2")[0] == ["FIX_A=original", "B=2"]
    assert hand_on(vm, f"FIX_A={value}", "B=2") == ([], [], f"errno {EACCES}")
    assert [(denial.scope, denial.operation, denial.subject) for denial in vm.denials] == [("env", "write", "FIX_A")]


def test_a_name_that_may_not_be_written_is_not_added(vm_factory: Callable[..., VM], show: Mapping[str, bytes]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "write", "LD_*")), files=show)
    for entry in ("LD_PRELOAD=/tmp/x.so", "LD_PRELOAD=", "LD_PRELOAD"):
        assert hand_on(vm, "A=1", entry) == ([], [], f"errno {EACCES}")
    assert messages(vm.run("LD_PRELOAD=/x /bin/true")) == [
        "EACCES: permission denied, env://LD_PRELOAD: blocked by env.write policy"
    ]
    assert vm.run("export LD_PRELOAD=/x; echo in its own memory it is nobodys business").returncode == 0


def test_a_name_that_may_not_be_written_is_not_lost(vm_factory: Callable[..., VM], show: Mapping[str, bytes]) -> None:
    fixed = {"FIX_A": "original", "FIX_B": "b" * 5000, "FIX_C": ""}
    vm = vm_factory(permissions=env_rules(("deny", "write", "FIX_*")), files=show, env=fixed)
    put_back = [f"{name}={value}" for name, value in fixed.items()]
    for entries in ([], ["A=1"], ["A=1", "FIX_B=" + "b" * 5000], ["FIX_C=", "A=1", "FIX_A=original"]):
        found, shown, rest = hand_on(vm, *entries)
        assert (sorted(found), shown, rest) == (sorted({*entries, *put_back}), entries, WHOLE)
    assert hand_on(vm, way="null")[0] == put_back
    assert vm.run("env -i env | wc -l; env -u FIX_A env | grep -c FIX_A").stdout.split() == ["3", "1"]
    assert vm.denials == ()


def test_removal_and_restoration_in_one_exec(vm_factory: Callable[..., VM], show: Mapping[str, bytes]) -> None:
    policy = env_rules(("deny", "read", "AWS_*"), ("deny", "write", "FIX_*"))
    vm = vm_factory(permissions=policy, files=show, env={"FIX_A": "a", "FIX_B": "b"})
    assert hand_on(vm, "AWS_X=s3cret", "A=1", "FIX_B=b", "AWS_Y=s3cret") == (
        ["A=1", "FIX_B=b", "FIX_A=a"],
        ["A=1", "FIX_B=b"],
        WHOLE,
    )
    assert hand_on(vm, "AWS_X=s3cret") == (["FIX_A=a", "FIX_B=b"], [], WHOLE)


def test_each_run_has_the_values_that_it_was_given(vm_factory: Callable[..., VM], show: Mapping[str, bytes]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "write", "FIX_A")), files=show, env={"FIX_A": "of the vm"})
    assert hand_on(vm, env={"FIX_A": "of this run"})[0] == ["FIX_A=of this run"]
    assert hand_on(vm)[0] == ["FIX_A=of the vm"]
    assert hand_on(vm, "FIX_A=of this run")[2] == f"errno {EACCES}"
    script = (  # by a process whose parents have ended
        "(setsid sh -c 'sleep 0.1; env -i env > /tmp/out; mv /tmp/out /tmp/done' &);"
        " while [ ! -e /tmp/done ]; do sleep 0.02; done; cat /tmp/done"
    )
    assert vm.run(script, env={"FIX_A": "of this run"}).stdout == "FIX_A=of this run\n"


def test_two_runs_at_once_keep_their_own_values(vm_factory: Callable[..., VM]) -> None:
    """Also for processes whose parents end all the time, which are given to the leader of their own run."""
    vm = vm_factory(permissions=env_rules(("deny", "write", "FIX_A")))
    script = (
        "out=/tmp/out.$$; i=0; while [ $i -lt 60 ]; do (env -i printenv FIX_A >> $out &) ; i=$((i + 1)); done;"
        " while [ $(wc -l < $out) -lt 60 ]; do sleep 0.02; done; cat $out"
    )
    with ThreadPoolExecutor(4) as pool:
        values = [f"value {number}" for number in range(4)]
        shown = list(pool.map(lambda value: vm.run(script, env={"FIX_A": value}, timeout=60).stdout, values))
    assert shown == [f"{value}\n" * 60 for value in values]


def test_where_nothing_may_be_written_the_environment_is_handed_on_as_it_is(
    vm_factory: Callable[..., VM], show: Mapping[str, bytes]
) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "write", "**")), files=show, env={"A": "1"})
    assert vm.run(["/usr/bin/env", "/usr/bin/env"]).stdout == vm.run(["/usr/bin/env"]).stdout
    assert hand_on(vm, "NEW=1")[2] == f"errno {EACCES}"


def test_more_than_can_be_put_back_is_too_big(vm_factory: Callable[..., VM], show: Mapping[str, bytes]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "write", "FIX_*")), files=show, env={"FIX_A": "a" * 60_000})
    assert hand_on(vm)[2] == f"errno {E2BIG}"
    assert hand_on(vm, "FIX_A=" + "a" * 60_000)[2] == WHOLE


def test_scripts_and_shells_and_threads_hand_on_the_same(vm_factory: Callable[..., VM]) -> None:
    files = {"/opt/script": b"#!/bin/sh\nenv | sort\n"}
    vm = vm_factory(permissions=env_rules(("deny", "read", "AWS_*"), ("deny", "write", "FIX_A")), files=files, env={"FIX_A": "a"})
    assert "AWS" not in vm.run("AWS_X=1 /opt/script").stdout
    program = (
        "import os, threading\nos.environ.clear(); os.environ['AWS_X'] = '1'\n"
        "threading.Thread(target=lambda: os.execv('/usr/bin/env', ['env'])).start()\nthreading.Event().wait()\n"
    )
    assert vm.run(["python3", "-c", program], timeout=30).stdout == "FIX_A=a\n"


def test_every_environ_in_proc_is_without_what_may_not_be_read(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "read", "AWS_*")), env={"AWS_A": "s3cret"})
    script = (
        "AWS_B=s3cret sleep 5 & AWS_C=s3cret env -i AWS_D=s3cret sleep 5 & sleep 0.3;"
        " cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; kill %1 %2"
    )
    shown = vm.run(["bash", "-c", script], env={"AWS_E": "s3cret"}).stdout
    assert "PATH=" in shown
    assert "s3cret" not in shown


def test_nothing_is_asked_where_no_rule_is_about_the_environment(vm_factory: Callable[..., VM]) -> None:
    for permissions in (None, {"env": "allow"}, {"env": {"default": "allow"}}):
        vm = vm_factory(permissions=permissions)
        before = vm.status().calls_notified
        assert vm.run("env -i true; true").returncode == 0
        assert vm.status().calls_notified == before
        assert "env" not in vm.status().notified


def test_a_stack_as_the_abi_wants_it(vm_factory: Callable[..., VM], compile_c: Callable[..., Path]) -> None:
    """A moved stack stays aligned to 16 bytes, whatever is put back: vector instructions of a C library would fault."""
    source = """
    __asm__(".globl _start\\n_start: mov %rsp, %rdi\\nand $15, %rdi\\nmov $60, %eax\\nsyscall\\n");
    """
    program = compile_c(source, flags=("-nostdlib", "-nostartfiles"))
    for count in range(1, 5):
        fixed = {f"FIX_{number}": "x" * number for number in range(count)}
        vm = vm_factory(
            permissions=env_rules(("deny", "write", "FIX_*")), files={"/opt/aligned": program.read_bytes()}, env=fixed
        )
        assert vm.run("env -i /opt/aligned; echo $?").stdout == "0\n"
