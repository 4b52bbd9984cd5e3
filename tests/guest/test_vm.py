"""The VM as its user sees it, for real: arguments, programs, files, environment, bindings, status and its end."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import callgate
from callgate import HostDir, PermissionDenied, PolicyError, Timeout, Unsupported

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

VAULT = {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/home/agentos/vault/**"]}]}}
SECRETS = {"env": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["AWS_*"]}]}}


# -- programs ----------------------------------------------------------------------------------------------------------


def test_the_first_example_of_the_contract(vm_factory: Factory) -> None:
    files = {"/home/agentos/vault/key": b"s3cret", "/home/agentos/a.txt": "hello"}
    vm = vm_factory(permissions={"network": "deny", **VAULT}, files=files)
    refused = vm.run(["cat", "/home/agentos/vault/key"])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "cat: /home/agentos/vault/key: Permission denied\n"
    assert str(refused.denials[0]) == "EACCES: permission denied, read '/home/agentos/vault/key': blocked by fs.read policy"
    assert (refused.denials[0].program, refused.denials[0].rule) != ("", "mode")
    assert vm.run(["cat", "a.txt"]).stdout == "hello"
    assert [denial.message for denial in vm.denials] == [str(refused.denials[0])]


def test_a_program_starts_at_home_with_the_vms_environment_and_an_empty_input(vm_factory: Factory) -> None:
    result = vm_factory().run("pwd; cat; id -un; echo $HOME $USER $LOGNAME $TMPDIR $LANG")
    assert result.stdout == "/home/agentos\nagentos\n/home/agentos agentos agentos /tmp C.UTF-8\n"
    assert result.stderr == ""


def test_input_goes_in_as_text_or_bytes_and_output_comes_out_as_asked(vm_factory: Factory) -> None:
    vm = vm_factory()
    assert vm.run(["cat"], input="ä").stdout == "ä"
    assert vm.run(["cat"], input=b"\xff", text=False).stdout == b"\xff"
    big = os.urandom(3 << 20)
    assert vm.run(["cat"], input=big, text=False).stdout == big


def test_the_working_directory_may_be_relative_and_must_exist(vm_factory: Factory) -> None:
    vm = vm_factory(cwd="/srv", files={"/srv/sub/f": b""})
    assert vm.run("pwd").stdout == "/srv\n"
    assert vm.run("pwd", cwd="sub").stdout == "/srv/sub\n"
    assert vm.run("pwd", cwd=Path("/tmp")).stdout == "/tmp\n"
    with pytest.raises(FileNotFoundError) as failure:
        vm.run("pwd", cwd="absent")
    assert failure.value.filename == "/srv/absent"


def test_check_raises_with_the_output(vm_factory: Factory) -> None:
    vm = vm_factory()
    assert vm.run("exit 3").returncode == 3
    with pytest.raises(subprocess.CalledProcessError) as failure:
        vm.run("echo out; exit 3", check=True)
    assert (failure.value.returncode, failure.value.output) == (3, "out\n")
    refusing = vm_factory(permissions=VAULT, files={"/home/agentos/vault/key": b""})
    with pytest.raises(callgate.CalledProcessError) as refused:
        refusing.run(["cat", "vault/key"], check=True)
    assert [denial.subject for denial in refused.value.denials] == ["/home/agentos/vault/key"]
    assert repr(refusing.run(["cat", "vault/key"])).endswith(", 1 denial)")


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        (["no-such-program"], 127, "callgate: no-such-program: command not found\n"),
        (["/no/such/program"], 127, "callgate: /no/such/program: No such file or directory\n"),
        (["/etc/passwd"], 126, "callgate: /etc/passwd: permission denied\n"),
        (["/home/agentos/garbage"], 126, "callgate: /home/agentos/garbage: exec format error\n"),
    ],
)
def test_a_program_that_cannot_start_gives_the_codes_of_a_shell(
    vm_factory: Factory, argv: list[str], code: int, line: str
) -> None:
    result = vm_factory(files={"/home/agentos/garbage": b"\x7fELF and no more"}).run(argv)
    assert (result.returncode, result.stderr) == (code, line)


def test_a_time_limit_kills_everything_that_was_started(vm_factory: Factory) -> None:
    vm = vm_factory()
    with pytest.raises(Timeout) as expired:
        vm.run("echo early; (trap '' TERM; setsid sleep 61) & setsid sleep 62 & sleep 63", timeout=1)
    assert expired.value.output == "early\n"
    assert "sleep" not in vm.run("cat /proc/[0-9]*/comm").stdout


def test_a_signal_is_a_negative_return_code_and_usage_is_told(vm_factory: Factory) -> None:
    vm = vm_factory()
    result = vm.run("kill -SEGV $$")
    assert result.returncode == -11
    busy = vm.run(["python3", "-c", "x = bytearray(32 << 20); sum(range(1000000))"])
    assert busy.usage.user_seconds > 0
    assert busy.usage.max_rss_bytes > 32 << 20


def test_a_program_may_open_its_own_standard_streams_by_name(vm_factory: Factory) -> None:
    for permissions in ({}, VAULT):
        result = vm_factory(permissions=permissions).run("cat /dev/stdin > /dev/stdout; echo e > /dev/stderr", input="i")
        assert (result.stdout, result.stderr, result.returncode) == ("i", "e\n", 0)


def test_arguments_and_environment_far_longer_than_a_packet_arrive(vm_factory: Factory) -> None:
    words = ["x" * 100_000, "y" * 100_000]
    result = vm_factory().run(["sh", "-c", "printf %s $0$1$LONG | wc -c", *words], env={"LONG": "z" * 100_000})
    assert result.stdout.strip() == "300000"


def test_programs_run_at_once_in_one_vm(vm_factory: Factory) -> None:
    vm = vm_factory()
    outputs: dict[int, str] = {}

    def one(number: int) -> None:
        outputs[number] = vm.run(["sh", "-c", f"sleep 0.1; echo {number}"]).stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"{number}\n" for number in range(8)}


def test_root_in_the_vm_is_root_of_nothing_else(vm_factory: Factory) -> None:
    result = vm_factory(user="root").run(
        "id -u; echo $HOME; for c in 'mknod /tmp/d b 8 0' 'chown 12 /tmp' 'mount -t tmpfs x /mnt'; do $c || echo no; done"
    )
    assert result.stdout == "0\n/root\nno\nno\nno\n"


# -- environment -------------------------------------------------------------------------------------------------------


def test_the_hosts_environment_does_not_reach_the_guest(vm_factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret")
    vm = vm_factory(env={"OWN": "1"})
    assert "HOST_SECRET" not in vm.run(["env"]).stdout
    assert "OWN=1\n" in vm.run(["env"]).stdout


def test_a_name_that_may_not_be_read_is_absent_wherever_it_came_from(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=SECRETS, env={"AWS_KEY": "a", "KEPT": "b"})
    lines = vm.run(["env"], env={"AWS_OTHER": "c", "ALSO": "d"}).stdout.splitlines()
    assert {"KEPT=b", "ALSO=d"} <= set(lines)
    assert not [line for line in lines if line.startswith("AWS_")]
    assert "AWS" not in vm.run("cat /proc/self/environ").stdout


def test_the_environment_is_a_judged_mapping(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=SECRETS, env={"AWS_KEY": "a", "KEPT": "b"})
    with pytest.raises(PermissionDenied) as refusal:
        vm.env["AWS_KEY"]
    assert str(refusal.value) == "EACCES: permission denied, env://AWS_KEY: blocked by env.read policy"
    with pytest.raises(PermissionDenied, match=r"env\.write"):
        vm.env["AWS_NEW"] = "x"
    with pytest.raises(PermissionDenied):
        del vm.env["AWS_KEY"]
    assert [denial.operation for denial in vm.denials] == ["read", "write", "write"]
    assert "AWS_KEY" not in vm.env
    assert "AWS_KEY" not in list(vm.env)
    vm.env["KEPT"] = "changed"
    del vm.env["TERM"]
    assert vm.run("echo $KEPT$TERM").stdout == "changed\n"
    with pytest.raises(ValueError, match="NUL"):
        vm.env["X"] = "a\0b"


# -- files and mounts --------------------------------------------------------------------------------------------------


def test_seeded_files_belong_to_the_guest_and_scripts_run(vm_factory: Factory) -> None:
    files = {"/home/agentos/tool": "#!/bin/sh\necho ran\n", "/etc/app/conf": b"x", "/etc/hosts": "127.0.0.1 me\n"}
    vm = vm_factory(files=files)
    assert vm.run(["./tool"]).stdout == "ran\n"
    assert vm.run("stat -c '%U %a' /etc/app/conf tool; cat /etc/hosts").stdout == "agentos 644\nagentos 755\n127.0.0.1 me\n"
    assert vm.run("echo more >> /etc/app/conf").returncode == 0


@pytest.mark.parametrize("permissions", [{}, VAULT])
def test_the_filesystem_is_the_guests_own(vm_factory: Factory, permissions: Any, tmp_path: Path) -> None:
    vm = vm_factory(permissions=permissions)
    vm.fs.mkdir("d/e", parents=True)
    vm.fs.write_text("d/e/f", "content")
    assert vm.run("cat d/e/f; stat -c %U d/e/f").stdout == "contentagentos\n"
    vm.run("ln -s e d/link; mkfifo d/fifo; echo x > d/g; chmod 600 d/g")
    assert sorted(vm.fs.listdir("d")) == ["e", "fifo", "g", "link"]
    assert vm.fs.readlink("d/link") == "e"
    assert vm.fs.read_text("d/link/f") == "content"
    found = vm.fs.stat("d/g")
    assert (found.st_mode, found.st_size, found.st_uid) == (0o100600, 2, 1000)
    vm.fs.chmod("d/g", 0o444)
    vm.fs.rename("d/g", "d/h")
    vm.fs.symlink("h", "d/i")
    assert vm.run("stat -c %a d/h; readlink d/i").stdout == "444\nh\n"
    assert [vm.fs.exists(path) for path in ("d/h", "/etc/passwd", "d/absent")] == [True, True, False]
    assert sorted(vm.fs.download("d", tmp_path / "copy")) == ["d/fifo"]
    assert (tmp_path / "copy" / "e" / "f").read_text() == "content"
    vm.fs.remove("d", recursive=True)
    vm.fs.upload(tmp_path / "copy", "back")
    assert vm.run("cat back/e/f; readlink back/i; ls d").stdout == "contenth\n"


def test_the_filesystem_is_judged_like_the_guest_and_unchecked_is_not(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=VAULT, files={"/home/agentos/vault/key": b"s3cret"})
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: vm.fs.read_bytes("vault/key"), "read"),
        (lambda: vm.fs.write_bytes("vault/key", b""), "write"),
        (lambda: vm.fs.write_bytes("vault/new", b""), "write"),
        (lambda: vm.fs.listdir("vault"), "readdir"),
        (lambda: vm.fs.stat("vault/key"), "stat"),
        (lambda: vm.fs.stat("vault/absent"), "stat"),
        (lambda: vm.fs.mkdir("vault/d"), "create_dir"),
        (lambda: vm.fs.rename("vault/key", "key"), "rename"),
        (lambda: vm.fs.symlink("x", "vault/l"), "symlink"),
        (lambda: vm.fs.readlink("vault/key"), "readlink"),
        (lambda: vm.fs.chmod("vault/key", 0o777), "chmod"),
    ]
    for attempt, operation in attempts:
        with pytest.raises(PermissionDenied) as refusal:
            attempt()
        assert (refusal.value.scope, refusal.value.operation, refusal.value.rule) == ("fs", operation, 0), operation
        assert refusal.value.subject.startswith("/home/agentos/vault")
    assert [denial.operation for denial in vm.denials] == [operation for _, operation in attempts]
    vm.run("ln -s vault/key alias")
    with pytest.raises(PermissionDenied) as alias:
        vm.fs.read_bytes("alias")
    assert (alias.value.subject, str(alias.value).split("'")[1]) == ("/home/agentos/vault/key", "/home/agentos/alias")
    assert not vm.fs.exists("vault/key")
    assert vm.fs.unchecked.read_bytes("vault/key") == b"s3cret"
    assert vm.fs.unchecked.listdir("vault") == ["key"]


def test_a_fifo_of_the_guests_does_not_stop_the_host(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=VAULT)
    vm.run(["mkfifo", "pipe"])
    with pytest.raises(OSError, match="not a regular file"):
        vm.fs.read_bytes("pipe")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kept").write_text("host")
    return folder


def test_a_read_only_mount_can_be_read_and_refuses_writers_with_eacces(vm_factory: Factory, project: Path) -> None:
    vm = vm_factory(mounts={"/work": HostDir(project)})
    assert vm.run(["cat", "/work/kept"]).stdout == "host"
    for attempt in (
        "echo x > /work/kept",
        "echo x > /work/new",
        "mkdir /work/d",
        "rm /work/kept",
        "chmod 777 /work/kept",
        "ln -s a /work/l",
    ):
        refused = vm.run(attempt)
        assert refused.returncode != 0, attempt
        assert "Permission denied" in refused.stderr, attempt
        assert refused.denials[0].rule == "mount"
    assert {path.name: path.read_text() for path in project.iterdir()} == {"kept": "host"}


def test_a_writable_mount_changes_the_host_with_the_operators_owner(vm_factory: Factory, project: Path) -> None:
    vm = vm_factory(mounts={"/work": HostDir(project, "rw")}, cwd="/work")
    result = vm.run("echo guest > new && echo more >> kept && mkdir d && stat -c %U . new")
    assert (result.stdout, result.stderr) == ("agentos\nagentos\n", "")
    assert (project / "new").read_text() == "guest\n"
    assert (project / "new").stat().st_uid == project.stat().st_uid
    assert (project / "d").is_dir()


def test_the_policy_applies_to_the_vms_paths_of_a_mount(vm_factory: Factory, project: Path) -> None:
    rules = [{"mode": "deny", "operations": ["*"], "paths": ["/work/kept"]}]
    vm = vm_factory(permissions={"fs": {"default": "allow", "rules": rules}}, mounts={"/work": HostDir(project, "rw")})
    refused = vm.run(["cat", "/work/kept"])
    assert (refused.returncode, refused.stdout, refused.denials[0].subject) == (1, "", "/work/kept")
    assert vm.run("echo x > /work/other").returncode == 0


def test_nothing_else_of_the_host_can_be_seen(vm_factory: Factory, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("host")
    vm = vm_factory()
    assert vm.run(["cat", str(tmp_path / "canary")]).returncode == 1
    assert vm.run(["ls", "/tmp"]).stdout == ""
    assert not vm.fs.exists(tmp_path / "canary")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: HostDir("/no/such/directory"), FileNotFoundError),
        (lambda: HostDir("/etc/passwd"), NotADirectoryError),
        (lambda: HostDir("/", "wr"), ValueError),  # type: ignore[arg-type]
        (lambda: HostDir("/", "cow"), Unsupported),
    ],
)
def test_a_wrong_host_directory_is_refused_at_once(make: Callable[[], HostDir], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_a_sensitive_mount_needs_the_policys_leave(vm_factory: Factory, project: Path) -> None:
    with pytest.raises(PermissionDenied, match="mount_sensitive '/etc'"):
        vm_factory(permissions={"fs": "deny"}, mounts={"/etc": HostDir(project)})
    assert vm_factory(mounts={"/etc": HostDir(project)}).run(["cat", "/etc/kept"]).stdout == "host"


# -- bindings, explanations, status ----------------------------------------------------------------------------------------


def test_bindings_are_granted_by_registering_them_and_judged_by_name(vm_factory: Factory) -> None:
    bindings = {"add": lambda a, b: a + b, "math": {"double": lambda x: 2 * x}}
    vm = vm_factory(bindings=bindings)
    assert vm.call("add", 2, b=3) == 5
    assert vm.call("math:double", 4) == 8
    with pytest.raises(KeyError):
        vm.call("absent")
    rules = [{"mode": "allow", "patterns": ["math:*"]}]
    strict = vm_factory(permissions={"binding": {"default": "deny", "rules": rules}}, bindings=bindings)
    assert strict.call("math:double", 1) == 2
    with pytest.raises(PermissionDenied) as refusal:
        strict.call("add", 1, 2)
    assert str(refusal.value) == "EACCES: permission denied, binding://add: blocked by binding.invoke policy"
    assert [denial.subject for denial in strict.denials] == ["add"]


@pytest.mark.parametrize(
    ("bindings", "error"),
    [
        ({"a": 1}, TypeError),
        ({"": print}, ValueError),
        ({"a:b": print}, ValueError),
        ({"g": {"x": 1}}, TypeError),
        ({1: print}, TypeError),
    ],
)
def test_wrong_bindings_are_refused(bindings: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        callgate.VM(bindings=bindings)


def test_explanations_follow_the_rules_that_are_enforced(vm_factory: Factory, project: Path) -> None:
    vm = vm_factory(permissions={"fs": "deny"}, mounts={"/work": HostDir(project)})
    for operation, path, allowed, rule in (
        ("read", "/usr/bin/env", True, "runtime image"),
        ("read", "/etc/hostname", False, "mode"),
        ("write", "/dev/null", True, "device"),
        ("write", "/work/x", False, "mount"),
    ):
        verdict = vm.explain("fs", operation, path)
        assert (verdict.allowed, verdict.rule) == (allowed, rule), path
    assert vm.explain("network", "http", "tcp://example.com:80").message == (
        "EACCES: permission denied, tcp://example.com:80: blocked by network.http policy"
    )
    with pytest.raises(ValueError, match=r"did you mean .childProcess"):
        vm.explain("child_process", "spawn", "sh")
    assert vm.denials == ()


def test_the_policy_is_complete_and_a_copy(vm_factory: Factory) -> None:
    permissions: dict[str, Any] = {"fs": {"default": "allow", "rules": [{"mode": "deny", "paths": ["/a"]}]}}
    vm = vm_factory(permissions=permissions)
    permissions["fs"]["rules"].clear()
    assert vm.policy.as_dict()["fs"]["rules"][0]["paths"] == ["/a"]
    assert vm.policy.as_dict()["network"] == "deny"


def test_the_status_says_what_enforces_and_what_is_asked(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=VAULT)
    vm.run("cat vault/x")
    status = vm.status()
    assert (status.engine, status.guest, status.degradations) == ("notify", "native", ())
    assert set(status.enforcement) == {"fs", "network", "childProcess", "process", "env", "binding"}
    assert "fs.read" in status.notified
    assert status.denials == len(vm.denials) > 0
    assert status.calls_notified > 0
    assert status.programs_running == 0
    assert status.as_dict()["supervisor_pid"] == status.supervisor_pid
    assert status.limits["disk"] == 1 << 30


def test_without_a_runtime_image_a_denied_filesystem_starts_nothing(vm_factory: Factory) -> None:
    vm = vm_factory(permissions={"fs": "deny"}, runtime_image=())
    assert vm.runtime_image == ()
    assert vm.run(["/bin/cat", "/dev/null"]).returncode != 0
    assert vm_factory(permissions={"fs": "deny"}).run(["/bin/cat", "/dev/null"]).returncode == 0


# -- construction and end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"guest": "wasm"},
        {"engine": "ptrace"},
        {"audit": object()},
    ],
)
def test_what_is_not_built_yet_is_refused_rather_than_ignored(arguments: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="not yet supported"):
        callgate.VM(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"permissions": {"child_process": "deny"}}, PolicyError),
        ({"guest": "docker"}, ValueError),
        ({"engine": "magic"}, ValueError),
        ({"files": {"x": b""}}, ValueError),
        ({"files": {"/x": 7}}, TypeError),
        ({"env": {"A": 1}}, TypeError),
        ({"env": {"A=B": "x"}}, ValueError),
        ({"cwd": "relative"}, ValueError),
        ({"user": "../x"}, ValueError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    arguments: dict[str, Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*_: object, **__: object) -> int:
        raise AssertionError("something was started")

    monkeypatch.setattr(os, "posix_spawn", unexpected)
    with pytest.raises(error):
        callgate.VM(**arguments)


def test_a_warning_points_at_the_line_that_made_the_vm() -> None:
    import inspect
    import warnings

    policy = {"fs": {"default": "allow", "rules": [{"mode": "allow", "paths": ["/a"]}]}}

    class Own(callgate.VM):
        def __init__(self) -> None:
            super().__init__(permissions=policy)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = [callgate.VM(permissions=policy), callgate.agentos(permissions=policy)]
        here = inspect.currentframe()
        assert here is not None
        line = here.f_lineno - 3
        made.append(Own())
    for vm in made:
        vm.close()
    assert [warning.category for warning in caught] == [callgate.PolicyWarning] * 3
    assert [warning.filename for warning in caught] == [__file__] * 3
    assert [warning.lineno for warning in caught][:2] == [line, line]


def test_a_closed_vm_refuses_everything_but_closing(vm_factory: Factory) -> None:
    vm = vm_factory()
    with vm as same:
        assert same is vm
    assert vm.closed
    vm.close()
    for use in (lambda: vm.run("true"), lambda: vm.fs.listdir("/"), vm.status):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_registry_starts_and_stops_its_vms(vm_factory: Factory) -> None:
    vm = vm_factory()
    registry = callgate.setup(use={"vm": vm})
    assert registry.start().start()["vm"].run(["echo", "x"]).stdout == "x\n"
    registry.stop()
    registry.stop()
    assert vm.closed
    with pytest.raises(ValueError, match="'vm' is closed"):
        registry.start()
    with pytest.raises(TypeError):
        callgate.setup(use={"vm": object()})  # type: ignore[dict-item]


def test_the_other_name_makes_the_same_vm(leaves_nothing: None) -> None:  # noqa: ARG001
    with callgate.agentos(permissions={"network": "deny"}) as vm:
        assert isinstance(vm, callgate.VM)
        assert vm.run(["echo", "x"]).stdout == "x\n"
