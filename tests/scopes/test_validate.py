"""A wrong policy is refused with every mistake, its exact place, and what to write instead."""

import pickle
from typing import Any

import pytest

from callgate.scopes import CallgateError, Policy, PolicyError, Problem


def problems_of(permissions: Any) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(permissions)
    return caught.value.problems


def rule(scope: str, **keys: Any) -> dict[str, Any]:
    return {scope: {"rules": [{"mode": "deny", **keys}]}}


@pytest.mark.parametrize(
    ("permissions", "place", "message"),
    [
        # The policy and its scopes
        ([], "permissions", "must map scopes"),
        ("deny", "permissions", "must map scopes"),
        ({"child_process": "deny"}, "child_process", 'did you mean "childProcess"?'),
        ({"bindings": "deny"}, "bindings", 'did you mean "binding"?'),
        ({"xyz": "deny"}, "xyz", "it can be fs, network, childProcess, process, env or binding"),
        ({"a b": "deny"}, '["a b"]', "unknown scope"),
        ({3: "deny"}, "[3]", "unknown scope 3"),
        # A scope's value (AOS-5)
        ({"fs": True}, "fs", 'must be "allow", "deny" or a rule set'),
        ({"fs": None}, "fs", "must be"),
        ({"fs": []}, "fs", "must be"),
        ({"fs": "Allow"}, "fs", 'did you mean "allow"?'),
        ({"fs": {"defualt": "deny"}}, "fs.defualt", 'did you mean "default"?'),
        ({"fs": {"default": "no"}}, "fs.default", 'must be "allow" or "deny", not "no"'),
        ({"env": {"default": None}}, "env.default", "must be"),
        ({"fs": {"rules": {}}}, "fs.rules", "must be a list of rules"),
        ({"fs": {"rules": "deny"}}, "fs.rules", "must be a list of rules"),
        ({"fs": {"rules": ["deny"]}}, "fs.rules[0]", "must be a rule such as"),
        # "ask", in each of its three positions (AOS-35, AOS-36)
        ({"fs": "ask"}, "fs", 'approvals, the layer above; to block at this level use "deny"'),
        ({"fs": {"default": "ask"}}, "fs.default", "approvals"),
        ({"fs": {"rules": [{"mode": "ask"}]}}, "fs.rules[0].mode", "approvals"),
        # A rule's keys (AOS-38)
        ({"fs": {"rules": [{"paths": ["/a"]}]}}, "fs.rules[0].mode", "is missing"),
        (rule("fs", patterns=["/a"]), "fs.rules[0].patterns", "rules of fs select by 'paths'"),
        (rule("env", paths=["A"]), "env.rules[0].paths", "rules of env select by 'patterns'"),
        (rule("fs", path=["/a"]), "fs.rules[0].path", 'did you mean "paths"?'),
        (rule("fs", operation=["read"]), "fs.rules[0].operation", 'did you mean "operations"?'),
        # Operations
        (rule("fs", operations=["raed"]), "fs.rules[0].operations[0]", 'did you mean "read"?'),
        (rule("fs", operations=["read", "READ"]), "fs.rules[0].operations[1]", 'did you mean "read"?'),
        (rule("fs", operations=["createDir"]), "fs.rules[0].operations[0]", 'did you mean "create_dir"?'),
        (rule("network", operations=["connect"]), "network.rules[0].operations[0]", "it can be *, fetch, http, dns or listen"),
        (rule("childProcess", operations=["exec"]), "childProcess.rules[0].operations[0]", "unknown operation"),
        (rule("process", operations=["kill"]), "process.rules[0].operations[0]", "select by pattern"),
        (rule("binding", operations=["invoke"]), "binding.rules[0].operations[0]", "select by pattern"),
        (rule("fs", operations=[]), "fs.rules[0].operations", 'must not be empty; use ["*"] for wildcard'),
        (rule("fs", operations="read"), "fs.rules[0].operations", 'write ["read"]'),
        (rule("fs", operations=[1]), "fs.rules[0].operations[0]", "must be a string, not 1"),
        # Patterns of every scope
        (rule("fs", paths=[]), "fs.rules[0].paths", 'must not be empty; use ["*"] for wildcard'),
        (rule("env", patterns=[]), "env.rules[0].patterns", "must not be empty"),
        (rule("env", patterns="A"), "env.rules[0].patterns", 'write ["A"]'),
        (rule("env", patterns=["A", None]), "env.rules[0].patterns[1]", "must be a string"),
        (rule("env", patterns=[""]), "env.rules[0].patterns[0]", "must not be empty"),
        (rule("env", patterns=["A\0"]), "env.rules[0].patterns[0]", "NUL"),
        (rule("env", patterns=["\ud800"]), "env.rules[0].patterns[0]", "code point"),
        (rule("env", patterns=["A" * 4097]), "env.rules[0].patterns[0]", "at most 4096"),
        (rule("fs", paths=["/a/../b"]), "fs.rules[0].paths[0]", "'..' component"),
        (rule("fs", paths=["/a/.."]), "fs.rules[0].paths[0]", "'..' component"),
        (rule("childProcess", patterns=["../git"]), "childProcess.rules[0].patterns[0]", "'..' component"),
        (rule("fs", paths=["/a\0"]), "fs.rules[0].paths[0]", "NUL"),
        # fs paths
        (rule("fs", paths=["/ok", "a/b"]), "fs.rules[0].paths[1]", 'write "/**/a/b"'),
        (rule("fs", paths=["**/x"]), "fs.rules[0].paths[0]", 'write "/**/x"'),
        (rule("fs", paths=["./x"]), "fs.rules[0].paths[0]", 'write "/**/x"'),
        (rule("fs", paths=["~/x"]), "fs.rules[0].paths[0]", "'~' is not expanded"),
        (rule("fs", paths=["***"]), "fs.rules[0].paths[0]", "neither an absolute path"),
        # network patterns
        (rule("network", patterns=["https://api.example.com/v1"]), "network.rules[0].patterns[0]", 'write "api.example.com"'),
        (rule("network", patterns=["10.0.0.0/8"]), "network.rules[0].patterns[0]", "wildcards"),
        (rule("network", patterns=["example.com/x"]), "network.rules[0].patterns[0]", "a host has no path"),
        (rule("network", patterns=[":80"]), "network.rules[0].patterns[0]", 'for every host write "*"'),
        (rule("network", patterns=["example.com:"]), "network.rules[0].patterns[0]", "is not a port"),
        (rule("network", patterns=["example.com:http"]), "network.rules[0].patterns[0]", '"http" is not a port'),
        (rule("network", patterns=["example.com:65536"]), "network.rules[0].patterns[0]", "greater than 65535"),
        (rule("network", patterns=["example.com:1-2"]), "network.rules[0].patterns[0]", "is not a port"),
        (rule("network", patterns=["dns://example.com:53"]), "network.rules[0].patterns[0]", "a name lookup has no port"),
        (rule("network", patterns=[".example.com"]), "network.rules[0].patterns[0]", 'write "*.example.com"'),
        (rule("network", patterns=["a..b"]), "network.rules[0].patterns[0]", "an empty label"),
        (rule("network", patterns=["a b"]), "network.rules[0].patterns[0]", "holds no ' '"),
        (rule("network", patterns=["bücher.example"]), "network.rules[0].patterns[0]", "xn--"),
        (rule("network", patterns=["\N{KELVIN SIGN}.example"]), "network.rules[0].patterns[0]", "xn--"),
        (rule("network", patterns=["10.0.0.256"]), "network.rules[0].patterns[0]", "not an IPv4 address"),
        (rule("network", patterns=["2001:db8::1::2"]), "network.rules[0].patterns[0]", "not an IPv6 address"),
        (rule("network", patterns=["[::1"]), "network.rules[0].patterns[0]", '"[address]:port"'),
        (rule("network", patterns=["[::1]80"]), "network.rules[0].patterns[0]", '"[address]:port"'),
        (rule("network", patterns=["[1.2.3.4]"]), "network.rules[0].patterns[0]", "not an IPv6 address"),
        (rule("network", patterns=["[fe80::1%eth0]:80"]), "network.rules[0].patterns[0]", "zone id"),
        (rule("network", patterns=["[::ffff:10.0.0.*]"]), "network.rules[0].patterns[0]", "IPv4-mapped"),
        (rule("network", patterns=["[g::*]"]), "network.rules[0].patterns[0]", "not an IPv6 address"),
    ],
)
def test_each_mistake_has_its_place_and_a_remedy(permissions: Any, place: str, message: str) -> None:
    (problem,) = problems_of(permissions)
    assert problem.place == place
    assert message in problem.message
    assert str(problem) == f"{place}: {problem.message}"


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_policy() -> None:
    problems = problems_of(
        {
            "fs": {"rules": [{"mode": "no", "operations": ["x", "read", "y"], "paths": ["a", 1]}, 5]},
            "env": "ask",
            "binding": {"default": "maybe"},
        }
    )
    assert [problem.place for problem in problems] == [
        "fs.rules[0].mode",
        "fs.rules[0].operations[0]",
        "fs.rules[0].operations[2]",
        "fs.rules[0].paths[0]",
        "fs.rules[0].paths[1]",
        "fs.rules[1]",
        "env",
        "binding.default",
    ]


def test_one_mistake_reads_as_one_line_and_several_as_a_list() -> None:
    one = PolicyError([Problem("fs", "wrong")])
    assert str(one) == "fs: wrong"
    assert (
        str(PolicyError([Problem("fs", "wrong"), Problem("env", "bad")])) == "2 mistakes in the policy:\n  fs: wrong\n  env: bad"
    )
    assert isinstance(one, CallgateError)
    assert isinstance(one, ValueError)


def test_a_policy_error_survives_pickling() -> None:
    error = PolicyError([Problem("fs", "wrong"), Problem("env", "bad")])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.problems == error.problems
    assert str(copy) == str(error)


def test_a_huge_value_is_not_repeated_in_full() -> None:
    (problem,) = problems_of({"fs": "x" * 100_000})
    assert len(problem.message) < 300
