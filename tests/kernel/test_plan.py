"""The plan: which operations the supervisor is asked about, which rules the kernel adds, and what the launch blob says."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from callgate.kernel.confinement.filter import build_filter
from callgate.kernel.confinement.limit_plan import DEFAULTS, Defaults
from callgate.kernel.confinement.operator_paths import Mount
from callgate.kernel.egress.listeners import DATAGRAMS, STREAMS
from callgate.kernel.launch_blob import Launch, LaunchFlag, Limit, StepKind
from callgate.kernel.plan import Plan, compile_plan
from callgate.scopes import OPERATIONS, PermissionDenied, Policy

FS_TRIGGERS = {f"fs.{name}" for name in OPERATIONS["fs"]} | {"fs.*"}


def plan_of(permissions: dict[str, Any] | None = None, **options: Any) -> Plan:
    return compile_plan(Policy.parse(permissions), **options)


def launch_of(plan: Plan) -> Launch:
    return Launch.decode(plan.blob)


def test_the_secure_default_asks_about_the_network_alone() -> None:
    assert plan_of().notified == {"network"}


# Another process is inspected by paths of /proc.
INSPECTING = set(FS_TRIGGERS) - {"fs.mount_sensitive"} | {"fs.*"}


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ({"network": "allow"}, {"network"}),
        ({"network": "allow", "fs": "deny"}, {*FS_TRIGGERS, "network"}),
        ({"network": "allow", "process": "deny"}, {"network", "process", *INSPECTING}),
        (
            {"network": "allow", "process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["kill"]}]}},
            {"network", "process"},
        ),
        (
            {"network": "allow", "process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["insp*:4"]}]}},
            {"network", "process", *INSPECTING},
        ),
        ({"network": "allow", "childProcess": "deny"}, {"childProcess", "network"}),
        ({"network": "allow", "env": "deny", "binding": "deny"}, {"env", "network"}),
        (
            {"network": "allow", "process": {"default": "allow", "rules": [{"mode": "allow", "patterns": ["ptrace:4"]}]}},
            {"process", "network"},
        ),
        (
            {
                "network": "allow",
                "fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["chmod"], "paths": ["/a"]}]},
            },
            {"fs.*", "fs.chmod", "network"},
        ),
        ({"network": {"default": "allow", "rules": [{"mode": "allow", "patterns": ["a.example"]}]}}, {"network"}),
    ],
)
@pytest.mark.filterwarnings("ignore::callgate.PolicyWarning")
def test_the_network_and_operations_with_more_than_one_verdict_are_asked_about(
    permissions: dict[str, Any], expected: set[str]
) -> None:
    plan = plan_of(permissions)
    assert plan.notified == expected
    assert launch_of(plan).filter == build_filter(frozenset(expected))


@pytest.mark.parametrize("mode", ["allow", "deny"])
def test_the_loopback_is_up_and_leads_to_the_vms_resolver(mode: str) -> None:
    plan = plan_of({"network": mode})
    assert plan.flags & LaunchFlag.LOOPBACK
    assert plan.listeners == (DATAGRAMS, STREAMS) == launch_of(plan).listeners


def test_helpers_are_registered_only_where_they_could_be_taken_for_guests() -> None:
    assert not plan_of({"fs": "deny"}).flags & LaunchFlag.REGISTER
    assert plan_of({"childProcess": "deny"}).flags & LaunchFlag.REGISTER
    assert plan_of({"process": "deny"}).flags & LaunchFlag.REGISTER


# -- rules of the kernel's own -----------------------------------------------------------------------------------------


def verdict(plan: Plan, operation: str, path: str) -> tuple[bool, int | str]:
    decided = plan.policy.decide("fs", operation, path)
    return decided.allowed, decided.rule


def test_the_runtime_image_is_readable_under_a_denied_filesystem_and_nothing_else_is() -> None:
    plan = plan_of({"fs": "deny"})
    for path in ("/usr/lib/libx.so", "/usr/bin/python3", "/etc/ld.so.cache", "/usr/share/zoneinfo/UTC"):
        assert verdict(plan, "read", path) == (True, "runtime image")
        assert verdict(plan, "write", path) == (False, "mode")
    for path in ("/etc/hostname", "/home/agentos", "/usr/share/secret", "/usr/include/stdio.h"):
        assert verdict(plan, "read", path) == (False, "mode")
    assert verdict(plan, "readdir", "/home/agentos") == (False, "mode")


def test_the_way_to_the_image_can_be_walked_but_not_listed() -> None:
    plan = plan_of({"fs": "deny"})
    assert verdict(plan, "stat", "/usr") == (True, "runtime image")
    assert verdict(plan, "readlink", "/usr") == (True, "runtime image")
    assert verdict(plan, "readdir", "/usr") == (False, "mode")
    assert verdict(plan, "readdir", "/") == (False, "mode")
    assert verdict(plan, "stat", "/home") == (False, "mode")


def test_an_explicit_deny_takes_the_image_away_again() -> None:
    rules = [{"mode": "deny", "operations": ["*"], "paths": ["/usr/bin/**"]}]
    plan = plan_of({"fs": {"default": "deny", "rules": rules}})
    assert verdict(plan, "read", "/usr/bin/python3") == (False, 0)
    assert verdict(plan, "read", "/usr/lib/libx.so") == (True, "runtime image")


def test_an_empty_image_switches_it_off_and_a_given_one_replaces_it() -> None:
    assert verdict(plan_of({"fs": "deny"}, runtime_image=()), "read", "/usr/lib/libx.so") == (False, "mode")
    plan = plan_of({"fs": "deny"}, runtime_image=("/opt/tool/**",))
    assert verdict(plan, "read", "/opt/tool/lib") == (True, "runtime image")
    assert verdict(plan, "stat", "/opt") == (True, "runtime image")
    assert verdict(plan, "read", "/usr/lib/libx.so") == (False, "mode")
    assert plan.runtime_image == ("/opt/tool/**",)


def test_a_wrong_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"runtime_image: .*absolute"):
        plan_of(runtime_image=("lib/**",))
    with pytest.raises(TypeError, match="not one string"):
        plan_of(runtime_image="/usr/**")


def test_standard_devices_are_usable_whatever_the_policy_says() -> None:
    rules = [{"mode": "deny", "operations": ["*"], "paths": ["/dev/**"]}]
    for permissions in ({"fs": "deny"}, {"fs": {"default": "allow", "rules": rules}}):
        plan = plan_of(permissions)
        for device in ("null", "zero", "full", "random", "urandom", "tty", "pts/ptmx", "pts/0"):
            for operation in ("read", "write", "stat"):
                assert verdict(plan, operation, f"/dev/{device}") == (True, "device"), (operation, device)
        for operation in ("rm", "rename", "chmod", "create_dir", "symlink", "mount_sensitive"):
            assert not verdict(plan, operation, "/dev/null")[0]
        assert verdict(plan, "readlink", "/dev/stdin") == (True, "device")
        assert not verdict(plan, "read", "/dev/sda")[0]


def test_a_read_only_mount_denies_writes_whatever_the_policy_says(tmp_path: Path) -> None:
    rules = [{"mode": "allow", "operations": ["*"], "paths": ["/work/**"]}]
    permissions = {"network": "allow", "fs": {"default": "deny", "rules": rules}}
    plan = plan_of(permissions, mounts=[Mount("/work", str(tmp_path), True), Mount("/data", str(tmp_path), False)])
    for operation in ("write", "create_dir", "rm", "rename", "symlink", "chmod", "truncate"):
        assert verdict(plan, operation, "/work/x") == (False, "mount")
        assert verdict(plan, operation, "/work") == (False, "mount")
    assert verdict(plan, "read", "/work/x") == (True, 0)
    assert verdict(plan, "write", "/data/x") == (False, "default")
    assert {"fs.write", "fs.truncate", "fs.rm"} <= plan.notified


def test_a_writable_mount_adds_no_rule_and_refuses_set_id_modes_alone(tmp_path: Path) -> None:
    plan = plan_of({"network": "allow"}, mounts=[Mount("/work", str(tmp_path), False)])
    assert plan.notified == {"network", "setid"}
    assert launch_of(plan).filter == build_filter(frozenset({"network", "setid"}))
    assert launch_of(plan).flags & LaunchFlag.NO_SETID
    assert plan.policy.compiled() == plan_of({"network": "allow"}).policy.compiled()


@pytest.mark.parametrize("modes", [(), (True,), (True, True)], ids=["no mount", "one", "two"])
def test_set_id_modes_are_nobodys_business_without_a_writable_mount(tmp_path: Path, modes: tuple[bool, ...]) -> None:
    plan = plan_of(mounts=[Mount(f"/work{number}", str(tmp_path), read_only) for number, read_only in enumerate(modes)])
    assert "setid" not in plan.notified
    assert not launch_of(plan).flags & LaunchFlag.NO_SETID


@pytest.mark.parametrize("fs", ["allow", "deny"])
def test_one_writable_mount_among_others_is_enough(tmp_path: Path, fs: str) -> None:
    mounts = [Mount("/a", str(tmp_path), True), Mount("/b", str(tmp_path), False), Mount("/c", str(tmp_path), True)]
    plan = plan_of({"network": "allow", "fs": fs}, mounts=mounts)
    assert "setid" in plan.notified
    assert launch_of(plan).flags & LaunchFlag.NO_SETID


def test_a_sensitive_mount_needs_the_policys_leave(tmp_path: Path) -> None:
    mount = [Mount("/etc", str(tmp_path), True)]
    assert plan_of({"fs": "allow"}, mounts=mount).mounts[0].destination == "/etc"
    rules = [{"mode": "deny", "operations": ["mount_sensitive"], "paths": ["/etc"]}]
    with pytest.raises(PermissionDenied, match="mount_sensitive '/etc'") as refusal:
        plan_of({"fs": {"default": "allow", "rules": rules}}, mounts=mount)
    assert refusal.value.rule == 0


# -- the blob ----------------------------------------------------------------------------------------------------------


def test_the_blob_names_the_process_whose_death_ends_the_vm() -> None:
    assert launch_of(plan_of()).host_pid == os.getpid()


def test_the_guest_is_an_ordinary_user_unless_the_operator_says_root() -> None:
    launch = launch_of(plan_of())
    assert (launch.guest_uid, launch.workdir) == (1000, b"/home/agentos")
    root = launch_of(plan_of(user="root"))
    assert (root.guest_uid, root.guest_gid, root.workdir) == (0, 0, b"/root")


@pytest.mark.parametrize("user", ["", "Agent", "a b", "a/b", "../x", "x" * 33, "nobody", "a:b", "a\nb"])
def test_a_name_that_would_break_the_account_file_is_refused(user: str) -> None:
    with pytest.raises(ValueError, match="user name"):
        plan_of(user=user)


def test_the_working_directory_is_absolute() -> None:
    assert launch_of(plan_of(cwd="/work//x/")).workdir == b"/work/x"
    with pytest.raises(ValueError, match="cwd 'x' is not absolute"):
        plan_of(cwd="x")


def test_files_are_in_the_blob_and_too_many_bytes_are_refused() -> None:
    launch = launch_of(plan_of(files={"/home/agentos/vault/key": b"s3cret"}))
    assert [step.source for step in launch.setup if step.destination == b"/home/agentos/vault/key"] == [b"s3cret"]
    with pytest.raises(ValueError, match="do not fit"):
        plan_of(files={"/home/agentos/big": b"12345"}, defaults=Defaults(disk_bytes=4))


def test_limits_are_set_below_those_of_this_process() -> None:
    limits = {limit.resource: limit for limit in launch_of(plan_of()).limits}
    # core(5): 1 also stops a piped core handler, which 0 does not.
    assert limits[resource.RLIMIT_CORE] == Limit(resource.RLIMIT_CORE, 1, 1)
    for number, limit in limits.items():
        most = resource.getrlimit(number)[1]
        assert limit.soft <= limit.hard
        assert most == resource.RLIM_INFINITY or limit.hard <= most
    assert limits[resource.RLIMIT_NPROC].hard <= DEFAULTS.processes


def test_a_second_plan_differs_in_nothing() -> None:
    assert plan_of().blob == plan_of().blob


def test_steps_are_few_because_each_costs_start_up_time() -> None:
    steps = launch_of(plan_of()).setup
    mounts = [step for step in steps if step.kind in (StepKind.BIND, StepKind.PROC, StepKind.DEVPTS)]
    assert len(mounts) <= 20
    assert len(steps) <= 80
