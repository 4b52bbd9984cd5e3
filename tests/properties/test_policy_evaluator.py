"""The evaluator equals a few lines that read the permissions dict afresh for every question (SPEC section 2)."""

import warnings
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from callgate.scopes import OPERATIONS, SCOPES, Policy, PolicyWarning
from callgate.scopes.process import ACTIONS

MODES = st.sampled_from(["allow", "deny"])
NAMES = st.sampled_from(["a", "b", "ab", "A", ".x", "é"])
HOSTS = st.sampled_from(["a.example", "b.a.example", "A.Example.", "10.0.0.1", "10.0.0.2"])
PORTS = st.sampled_from(["80", "443", "8080"])


def joined(parts: st.SearchStrategy[str], separator: str, least: int = 1) -> st.SearchStrategy[str]:
    return st.lists(parts, min_size=least, max_size=4).map(separator.join)


GLOB_NAMES = NAMES | st.sampled_from(["*", "**", "?", "a*", "*b"])
PATTERNS = {
    "fs": joined(GLOB_NAMES, "/").map("/".__add__) | st.sampled_from(["*", "**", "/"]),
    "network": st.one_of(
        HOSTS | st.sampled_from(["*", "*.example", "10.0.0.?"]),
        st.builds("{}:{}".format, HOSTS | st.just("*"), PORTS | st.sampled_from(["80*", "*"])),
        st.builds("tcp://{}:{}".format, HOSTS, PORTS),
        st.builds("dns://{}".format, HOSTS),
    ),
    "childProcess": GLOB_NAMES | joined(GLOB_NAMES, "/").map("/".__add__),
    "process": st.sampled_from([*ACTIONS, "*", "set*", "kill:1", "kill:?", "ptrace:*", "*:2"]),
    "env": GLOB_NAMES,
    "binding": GLOB_NAMES | joined(GLOB_NAMES, ":"),
}
SUBJECTS = {
    "fs": joined(NAMES, "/", 0).map("/".__add__),
    "network": st.builds("{}://{}:{}".format, st.sampled_from(["tcp", "udp"]), HOSTS, PORTS) | HOSTS.map("dns://".__add__),
    "childProcess": joined(NAMES, "/").map("/".__add__),
    "process": st.sampled_from(ACTIONS) | st.builds("{}:{}".format, st.sampled_from(ACTIONS), st.integers(1, 12)),
    "env": NAMES,
    "binding": joined(NAMES, ":"),
}


def rule(scope: str) -> st.SearchStrategy[dict[str, Any]]:
    operations = st.lists(st.sampled_from(["*", *OPERATIONS[scope]]), min_size=1, max_size=3)
    key = "paths" if scope == "fs" else "patterns"
    return st.fixed_dictionaries(
        {"mode": MODES}, optional={"operations": operations, key: st.lists(PATTERNS[scope], min_size=1, max_size=3)}
    )


def scope_value(scope: str) -> st.SearchStrategy[Any]:
    return MODES | st.fixed_dictionaries({}, optional={"default": MODES, "rules": st.lists(rule(scope), max_size=4)})


POLICIES = st.fixed_dictionaries({}, optional={scope: scope_value(scope) for scope in SCOPES})
QUESTIONS = st.sampled_from(SCOPES).flatmap(
    lambda scope: st.tuples(st.just(scope), st.sampled_from(OPERATIONS[scope]), SUBJECTS[scope])
)


def parse(permissions: Any, **options: bool) -> Policy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)
        return Policy.parse(permissions, **options)


def glob(pattern: str, text: str) -> bool:
    """The glob grammar by backtracking."""
    if pattern == "":
        return text == ""
    if pattern.startswith("/**/") and (
        glob(pattern[3:], text) or (text[:1] == "/" and any(glob(pattern[3:], text[i:]) for i in range(1, len(text))))
    ):
        return True
    if pattern == "/**":
        return text == "" or text[0] == "/"
    if pattern.startswith("**"):
        return any(glob(pattern[2:], text[i:]) for i in range(len(text) + 1))
    if pattern[0] == "*":
        return any(glob(pattern[1:], text[i:]) for i in range(len(text) + 1) if "/" not in text[:i])
    return text != "" and (text[0] != "/" if pattern[0] == "?" else text[0] == pattern[0]) and glob(pattern[1:], text[1:])


def matches(scope: str, pattern: str, subject: str) -> bool:
    """What SPEC sections 2 and 3 say about a pattern of each scope, with no detour through globs over subjects."""
    if pattern in ("*", "**"):
        return True
    if scope == "childProcess" and "/" not in pattern:
        return glob(pattern, subject.rpartition("/")[2])
    if scope == "process":
        return glob(pattern, subject) or glob(pattern, subject.partition(":")[0])
    if scope != "network":
        return glob(pattern, subject)
    scheme, _, rest = pattern.rpartition("://")
    host, _, port = rest.partition(":")
    subject_scheme, _, subject_rest = subject.partition("://")
    subject_host, _, subject_port = subject_rest.partition(":")
    return (
        scheme in ("", subject_scheme)
        and glob(host.lower().rstrip("."), subject_host.lower().rstrip("."))
        and (port == "" or subject_scheme == "dns" or glob(port, subject_port))
    )


def reference(permissions: Any, scope: str, operation: str, subject: str) -> tuple[bool, int | str]:
    baseline = "deny" if scope in ("network", "binding") else "allow"
    value = permissions.get(scope, baseline)
    if isinstance(value, str):
        return value == "allow", "mode"
    verdict: tuple[bool, int | str] = value.get("default") == "allow", "default"
    for index, written in enumerate(value.get("rules", [])):
        operations = written.get("operations", ["*"])
        patterns = written.get("paths" if scope == "fs" else "patterns", ["**"])
        if ("*" in operations or operation in operations) and any(matches(scope, pattern, subject) for pattern in patterns):
            verdict = written["mode"] == "allow", index
    return verdict


@given(POLICIES, QUESTIONS)
def test_the_evaluator_gives_the_verdict_and_the_rule_of_the_reference(permissions: Any, question: tuple[str, str, str]) -> None:
    verdict = parse(permissions).judge(*question)
    assert (verdict.allowed, verdict.rule) == reference(permissions, *question)


@given(POLICIES, QUESTIONS)
def test_a_constant_verdict_is_the_verdict_on_every_subject(permissions: Any, question: tuple[str, str, str]) -> None:
    policy = parse(permissions)
    assert policy.compiled()[question[0]].constant(question[1]) in (None, policy.judge(*question).allowed)


@given(POLICIES, QUESTIONS)
def test_the_explanation_agrees_with_the_verdict(permissions: Any, question: tuple[str, str, str]) -> None:
    scope, operation, subject = question
    assume(scope != "network" or (operation == "dns") == subject.startswith("dns://"))  # the others cannot be asked for
    policy = parse(permissions)
    outcome = " is allowed by " if policy.decide(*question).allowed else " is denied by "
    assert outcome in policy.explain(*question)


@given(POLICIES, st.sampled_from(SCOPES), st.data())
def test_changing_one_scope_changes_no_verdict_in_another(permissions: Any, changed: str, data: st.DataObject) -> None:
    scope, operation, subject = data.draw(QUESTIONS.filter(lambda question: question[0] != changed))
    other = {**permissions, changed: data.draw(scope_value(changed))}
    assert parse(permissions).judge(scope, operation, subject) == parse(other).judge(scope, operation, subject)


@given(QUESTIONS, st.text())
def test_a_mode_decides_everything_in_its_scope(question: tuple[str, str, str], text: str) -> None:
    scope, operation, subject = question
    for any_subject in (subject, text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")):
        assert Policy.parse({scope: "allow"}).judge(scope, operation, any_subject).allowed
        assert not Policy.parse({scope: "deny"}).judge(scope, operation, any_subject).allowed


@given(QUESTIONS, st.text())
def test_what_is_asked_gets_the_verdict_that_a_guest_gets_or_none(question: tuple[str, str, str], text: str) -> None:
    scope, operation, subject = question
    policy = Policy.parse({scope: "allow"})
    for any_subject in (subject, subject + text, text):
        try:
            asked = policy.decide(scope, operation, any_subject)
        except ValueError:
            assert scope in ("fs", "network") or not any_subject
            continue
        assert any_subject
        assert asked == policy.judge(scope, operation, any_subject)


@given(st.sampled_from(SCOPES).flatmap(lambda scope: st.tuples(st.just(scope), rule(scope), SUBJECTS[scope])))
def test_the_wildcard_operation_is_all_of_them(drawn: tuple[str, dict[str, Any], str]) -> None:
    scope, written, subject = drawn
    wildcard = parse({scope: {"rules": [{**written, "operations": ["*"]}]}})
    listed = parse({scope: {"rules": [{**written, "operations": list(OPERATIONS[scope])}]}})
    for operation in OPERATIONS[scope]:
        assert wildcard.judge(scope, operation, subject) == listed.judge(scope, operation, subject)


@given(POLICIES, st.booleans())
def test_the_effective_policy_is_complete_and_parses_to_itself(permissions: Any, has_bindings: bool) -> None:
    policy = parse(permissions, has_bindings=has_bindings)
    assert tuple(policy.as_dict()) == SCOPES
    assert parse(policy.as_dict()) == policy


@given(
    st.sampled_from(SCOPES).flatmap(
        lambda scope: st.tuples(st.just(scope), MODES, st.lists(rule(scope), min_size=1, max_size=4), SUBJECTS[scope])
    )
)
def test_dropping_a_rule_that_can_never_matter_changes_no_verdict(drawn: tuple[str, str, list[Any], str]) -> None:
    scope, default, rules, subject = drawn
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policy = Policy.parse({scope: {"default": default, "rules": rules}})
    dead = {i for i in range(len(rules)) for warning in caught if f"{scope}.rules[{i}]: can never matter" in str(warning.message)}
    # Each on its own: of two rules that cover each other only one is idle.
    for index in dead:
        without = parse({scope: {"default": default, "rules": rules[:index] + rules[index + 1 :]}})
        for operation in OPERATIONS[scope]:
            expected = policy.judge(scope, operation, subject).allowed
            assert without.judge(scope, operation, subject).allowed == expected
