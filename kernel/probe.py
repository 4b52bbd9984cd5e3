"""What this host offers a VM, what each missing piece costs and what to do about it; nothing here needs a VM to exist."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Final, Literal, TypedDict

from callgate.kernel.confinement.cgroup import Cgroup

ATTEMPTS: Final = Path(__file__).with_name("probe_attempts.py")
ATTEMPT_SECONDS: Final = 20
OLDEST_KERNEL: Final = (5, 19)
ARCHITECTURES: Final = ("x86_64",)

State = Literal["ok", "missing", "limited"]
"""`missing`: no VM can be started without it. `limited`: VMs enforce everything, and `cost` says what is lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what it is, how it stands, and unless it is fine what that costs and what to do."""

    name: str
    state: State
    found: str
    cost: str = ""
    remedy: str = ""


class Attempts(TypedDict):
    """What probe_attempts.py prints: errnos, 0 for success."""

    ptrace: int
    seccomp_notify: int
    seccomp_listener: int
    landlock_abi: int
    namespaces: dict[str, int]


def probe(executable: Path) -> list[Finding]:
    """Looks at this host; `executable` is the supervisor program. Takes about a tenth of a second, leaves nothing."""
    attempts = _attempts()
    return [
        _kernel(),
        _architecture(),
        _supervisor(executable),
        *_namespaces(attempts),
        _notification(attempts),
        _landlock(attempts),
        _ptrace(attempts),
        _cgroups(),
        _wasmtime(),
    ]


def _attempts() -> Attempts | str:
    """The result of the real attempts, or why there is none."""
    command = [sys.executable, "-I", "-S", str(ATTEMPTS)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ATTEMPT_SECONDS, check=True)
        report: Attempts = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"the attempt did not end within {ATTEMPT_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        return f"the attempt failed: {last}"
    except (OSError, ValueError) as error:
        return f"the attempt failed: {error}"
    return report


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


def _error(number: int) -> str:
    return f"{os.strerror(number)} ({errno.errorcode.get(number, str(number))})"


def _kernel() -> Finding:
    release = os.uname().release
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is not None and (int(match[1]), int(match[2])) >= OLDEST_KERNEL:
        return Finding("kernel", "ok", f"Linux {release}")
    return Finding(
        "kernel", "missing", f"Linux {release}", "calls cannot be judged safely before Linux 5.19", "boot Linux 5.19 or newer"
    )


def _architecture() -> Finding:
    machine = os.uname().machine
    if machine in ARCHITECTURES:
        return Finding("architecture", "ok", machine)
    return Finding("architecture", "missing", machine, "native guests are not built for it yet", "use an x86-64 machine")


def _supervisor(executable: Path) -> Finding:
    if os.access(executable, os.X_OK):
        return Finding("supervisor", "ok", str(executable))
    return Finding(
        "supervisor",
        "missing",
        f"{executable} is not an executable file",
        "no VM can be started",
        "reinstall callgate on a machine with gcc, or run `make native` in a checkout",
    )


def _namespaces(attempts: Attempts | str) -> list[Finding]:
    cost = "a guest cannot be given a filesystem, network and process table of its own"
    if isinstance(attempts, str):
        return [Finding("user namespaces", "missing", attempts, cost)]
    results = attempts["namespaces"]
    if results["user"] != 0:
        return [Finding("user namespaces", "missing", _error(results["user"]), cost, _namespace_remedy())]
    findings = [Finding("user namespaces", "ok", "an unprivileged process can make one")]
    failed = {name: number for name, number in results.items() if number != 0}
    if failed:
        found = ", ".join(f"{name}: {_error(number)}" for name, number in failed.items())
        only_cgroup = set(failed) == {"cgroup"}
        findings.append(
            Finding(
                "other namespaces",
                "limited" if only_cgroup else "missing",
                found,
                "guests see the names of the host's cgroups" if only_cgroup else cost,
                "" if only_cgroup else _namespace_remedy(),
            )
        )
    else:
        findings.append(Finding("other namespaces", "ok", ", ".join(name for name in results if name != "user")))
    return findings


def _namespace_remedy() -> str:
    """The one setting, of those known to stand in the way, that does here."""
    if _sysctl("kernel.unprivileged_userns_clone") == "0":
        return "sysctl kernel.unprivileged_userns_clone=1"
    if _sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for this interpreter"
    if _sysctl("user.max_user_namespaces") == "0":
        return "sysctl user.max_user_namespaces=10000"
    return "in a container, allow unshare, clone, mount and pivot_root (docker run --security-opt seccomp=unconfined)"


def _notification(attempts: Attempts | str) -> Finding:
    name, cost = "seccomp notification", "no system call can be judged"
    if isinstance(attempts, str):
        return Finding(name, "missing", attempts, cost)
    if attempts["seccomp_notify"] != 0:
        return Finding(name, "missing", _error(attempts["seccomp_notify"]), cost, "use a kernel built with CONFIG_SECCOMP_FILTER")
    if attempts["seccomp_listener"] == errno.EBUSY:
        remedy = "run outside the container or agent whose own supervisor listens here; the kernel allows one"
        return Finding(name, "missing", _error(errno.EBUSY), cost, remedy)
    if attempts["seccomp_listener"] != 0:
        return Finding(name, "missing", _error(attempts["seccomp_listener"]), cost, "boot Linux 5.19 or newer")
    return Finding(name, "ok", "a listener with killable waits can be made")


def _landlock(attempts: Attempts | str) -> Finding:
    abi = 0 if isinstance(attempts, str) else attempts["landlock_abi"]
    if abi > 0:
        return Finding("Landlock", "ok", f"ABI {abi}")
    cost = "nothing today: verdicts do not rest on it; it only makes some of them cheaper"
    return Finding("Landlock", "limited", "not available", cost, "boot with lsm=landlock,...")


def _ptrace(attempts: Attempts | str) -> Finding:
    scope = _sysctl("kernel.yama.ptrace_scope")
    found = "a process can trace its child" + (f" (yama ptrace_scope {scope})" if scope is not None else "")
    if not isinstance(attempts, str) and attempts["ptrace"] == 0:
        return Finding("ptrace", "ok", found)
    cost = "the engine for hosts without seccomp notification is not available either"
    shown = attempts if isinstance(attempts, str) else _error(attempts["ptrace"])
    return Finding("ptrace", "limited", shown, cost, "sysctl kernel.yama.ptrace_scope=1" if scope in ("2", "3") else "")


def _cgroups() -> Finding:
    made = Cgroup.make(memory_bytes=1 << 30, cpu=True)
    memory, clock = (made.bounds_memory, made.has_cpu_clock) if made is not None else (False, False)
    version = made.memory_version if made is not None else 0
    if made is not None:
        made.remove()
    if memory and clock:
        return Finding("cgroups", "ok", f"can be made, with memory (version {version}) and a clock")
    lost = [name for name, there in (("memory", memory), ("cpu_seconds", clock)) if not there]
    cost = f"a VM with the limit {' or '.join(lost)} does not start, unless best_effort names it"
    return Finding("cgroups", "limited", "none can be made with " + " or ".join(lost), cost, _CGROUP_REMEDY)


_CGROUP_REMEDY: Final = "systemd-run --user --scope -p Delegate=yes, or run as root where cgroups are writable"


def _wasmtime() -> Finding:
    if util.find_spec("wasmtime") is None:
        return Finding("wasmtime", "limited", "not installed", "WebAssembly guests cannot run", "pip install wasmtime")
    return Finding("wasmtime", "ok", metadata.version("wasmtime"))


def findings_as_json(findings: list[Finding]) -> list[Mapping[str, str]]:
    """The findings as plain data."""
    return [{"name": f.name, "state": f.state, "found": f.found, "cost": f.cost, "remedy": f.remedy} for f in findings]
