"""What the supervisor will say of a literal address that the policy allows: local ones, and any for the loopback (SPEC 3.2)."""

from __future__ import annotations

from callgate.kernel.egress.addresses import local_kind
from callgate.scopes import CompiledRule, Policy
from callgate.scopes.network import names_address
from callgate.scopes.operations import operation_number
from callgate.scopes.request import Request, Verdict
from callgate.scopes.rules import RULE_LOCAL_ADDRESS, rule_name


def with_guard(policy: Policy, scope: str, operation: str, subject: str) -> Verdict:
    """The verdict of *policy*, and where that allows a connection to a local address, whether the guard lets it pass; where it
    allows a server at any address, whether a rule denies one at the loopback.

    Names are not looked up, and the host's own public addresses not known here. ValueError as `Policy.decide`.
    """
    verdict = policy.decide(scope, operation, subject)
    if not verdict.allowed or scope != "network" or operation not in ("http", "listen"):
        return verdict
    request = Request.canonical(scope, operation, subject)
    if operation == "listen":
        rule = _denied_loopback(policy, request.subject)
        return verdict if rule is None else Verdict.on(request, allowed=False, rule=rule_name(rule))
    if not _is_refused(policy, request.subject):
        return verdict
    return Verdict.on(request, allowed=False, rule=rule_name(RULE_LOCAL_ADDRESS))


def _denied_loopback(policy: Policy, subject: str) -> int | None:
    """The rule that denies a server at "any" address because it is one at the loopback too, or None."""
    packed = _packed(subject)
    if packed is None or any(packed) or _naming(policy, "listen", subject) is not None:
        return None
    any_text = "0.0.0.0" if len(packed) == 4 else "[::]"
    for loopback in ("127.0.0.1",) if len(packed) == 4 else ("127.0.0.1", "[::1]"):
        rule = _naming(policy, "listen", subject.replace(any_text, loopback, 1))
        if rule is not None and not rule.allow:
            return rule.rule
    return None


def _naming(policy: Policy, operation: str, subject: str) -> CompiledRule | None:
    """The last rule that speaks of the address in *subject* as an address."""
    number = operation_number("network", operation)
    for rule in reversed(policy.compiled()["network"].rules):
        naming = tuple(glob for glob in rule.globs if names_address(glob))
        if naming and type(rule)(rule.allow, rule.operations, rule.rule, naming).matches(number, subject):
            return rule
    return None


def _is_refused(policy: Policy, subject: str) -> bool:
    packed = _packed(subject)
    if packed is None or packed[:1] == b"\x7f" or packed == b"\0" * 15 + b"\1":  # the VM's own loopback
        return False
    kind = local_kind(packed)
    if kind is None:
        return False
    rule = _naming(policy, "http", subject)
    return rule is None or not rule.allow or kind == "a loopback address"


def _packed(subject: str) -> bytes | None:
    """The address in a canonical subject, if a literal one stands there."""
    from ipaddress import ip_address

    rest = subject.partition("://")[2]
    host = rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]
    try:
        return ip_address(host).packed
    except ValueError:
        return None
