"""What enforces a VM's policy on this host, and how the VM fares: the answer of `vm.status()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from callgate.kernel.plan import Plan
from callgate.kernel.protocol import Feature
from callgate.scopes import SCOPES


@dataclass(frozen=True, slots=True)
class Status:
    """A snapshot; `as_dict` gives plain data."""

    engine: str
    guest: str
    enforcement: Mapping[str, str]  # scope -> what enforces it
    limits: Mapping[str, int | float]  # bytes, counts, or seconds
    limits_enforced_by: Mapping[str, str]  # limit -> what enforces it
    degradations: tuple[str, ...]  # what was given up, by the operator's choice only
    notified: tuple[str, ...]  # operations that the supervisor decides call by call
    features: tuple[str, ...]  # of the kernel's user notification, beyond what is required
    supervisor_pid: int
    calls_notified: int
    programs_running: int
    denials: int
    denials_dropped: int  # counted, but no longer or never listed in vm.denials

    def as_dict(self) -> dict[str, object]:
        """The same as a dict of plain data, which json can write."""
        plain: dict[str, object] = {}
        for name in self.__match_args__:
            value = getattr(self, name)
            plain[name] = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
        return plain


_STRUCTURE = "every subject has the same verdict, so namespaces and the system call filter enforce it"
_NOTIFIED = "the supervisor judges each call and carries it out"


def enforcement(plan: Plan) -> dict[str, str]:
    """Scope by scope, what makes the policy true."""
    texts = dict.fromkeys(SCOPES, _STRUCTURE)
    for scope in ("fs", "childProcess", "process"):
        if any(trigger.partition(".")[0] == scope for trigger in plan.notified):
            texts[scope] = _NOTIFIED
    texts["network"] = (
        "a namespace of loopback alone; the supervisor judges and makes what leaves it, the VM's resolver judges names"
    )
    if "env" in plan.notified:
        texts["env"] = (
            "programs start without what they may not read; the supervisor settles what each exec hands on; vm.env is judged"
        )
    texts["binding"] = "the host judges each call, a guest's and that of vm.call, before the function is reached"
    return texts


def feature_names(features: Feature) -> tuple[str, ...]:
    """The names of the set bits."""
    return tuple(str(feature.name).lower() for feature in Feature if feature in features)
