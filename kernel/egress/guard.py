"""What the supervisor will say of a literal address that the policy allows: the local ones are refused (SPEC 3.2)."""

from __future__ import annotations

from callgate.kernel.egress.addresses import local_kind
from callgate.scopes import Policy
from callgate.scopes.network import names_address
from callgate.scopes.operations import operation_number
from callgate.scopes.request import Request, Verdict
from callgate.scopes.rules import RULE_LOCAL_ADDRESS, rule_name


def with_guard(policy: Policy, scope: str, operation: str, subject: str) -> Verdict:
    """The verdict of *policy*, and where that allows a connection to a local address, whether the guard lets it pass.

    Names are not looked up, and the host's own public addresses not known here. ValueError for an unknown scope or operation.
    """
    verdict = policy.decide(scope, operation, subject)
    if not verdict.allowed or (scope, operation) != ("network", "http"):
        return verdict
    request = Request.canonical(scope, operation, subject)
    if not _is_refused(policy, request.subject):
        return verdict
    return Verdict.on(request, allowed=False, rule=rule_name(RULE_LOCAL_ADDRESS))


def _is_refused(policy: Policy, subject: str) -> bool:
    packed = _packed(subject)
    if packed is None or packed[:1] == b"\x7f" or packed == b"\0" * 15 + b"\1":  # the VM's own loopback
        return False
    kind = local_kind(packed)
    if kind is None:
        return False
    number = operation_number("network", "http")
    for rule in reversed(policy.compiled()["network"].rules):
        naming = [glob for glob in rule.globs if names_address(glob)]
        if naming and type(rule)(rule.allow, rule.operations, rule.rule, tuple(naming)).matches(number, subject):
            return not rule.allow or kind == "a loopback address"
    return True


def _packed(subject: str) -> bytes | None:
    """The address in a canonical subject, if a literal one stands there."""
    from ipaddress import ip_address

    rest = subject.partition("://")[2]
    host = rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]
    try:
        return ip_address(host).packed
    except ValueError:
        return None
