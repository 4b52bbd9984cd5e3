"""The JSON Schema accepts exactly the policies that parse accepts."""

import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from callgate.scopes import Policy, PolicyError
from callgate.scopes.schema import policy_schema

CORPUS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "conformance" / "decisions.json").read_text())


def rule(scope: str, **keys: Any) -> dict[str, Any]:
    return {scope: {"rules": [{"mode": "deny", **keys}]}}


def paths(*items: Any) -> dict[str, Any]:
    return rule("fs", paths=list(items))


def hosts(*items: Any) -> dict[str, Any]:
    return rule("network", patterns=list(items))


ACCEPTED: list[Any] = [
    *CORPUS["policies"].values(),
    {"fs": "deny", "network": "allow", "childProcess": "deny", "process": "deny", "env": "deny", "binding": "allow"},
    {"fs": {"rules": []}},
    paths("/", "*", "**", "/a/..b/...", "/a b", "/\n", "/a/..\n"),
    rule("env", patterns=["x" * 4096, "é"]),
    hosts("a", "A.b.", "a_b", "*.x", "**", "*", "a:80", "a:0", "a:65535", "a:*", "a:8?", "x:00080"),
    hosts(
        "tcp://a:1", "UDP://a", "dns://a.b", "tcp://*:80", "udp://**", "[::1]", "[::1]:80", "::1", "2001:db8:*", "tcp://[::1]:1"
    ),
    hosts("1.2.3.4", "[2001:db8:*]:443", "dns://::1", "dns://[::1]"),
    rule("process", operations=["*", "*"], patterns=["kill:1"]),
]

REFUSED: list[Any] = [
    [],
    "deny",
    {"fs": True},
    {"fs": None},
    {"fs": []},
    {"fs": "ask"},
    {"Fs": "deny"},
    {"child_process": "deny"},
    {"fs": {"default": "ask"}},
    {"fs": {"rules": None}},
    {"fs": {"rules": ["deny"]}},
    {"fs": {"rules": [{}]}},
    {"fs": {"rule": []}},
    {"env": {"rules": [{"mode": "deny", "paths": ["/a"]}]}},
    rule("fs", patterns=["/a"]),
    rule("fs", operations=[]),
    rule("fs", operations=["open"]),
    rule("fs", operations="read"),
    rule("process", operations=["kill"]),
    rule("env", patterns=[]),
    rule("env", patterns=[""]),
    rule("env", patterns=["x" * 4097]),
    rule("env", patterns=["a\0"]),
    rule("env", patterns=[".."]),
    rule("env", patterns=["a/.."]),
    *(paths(item) for item in ("a", "**/a", "***", "~/a", "/a/../b", "/..", "/a\0", "", 3, None, "*\n")),
    *(hosts(item) for item in ("https://a", "a/b", ":80", "a:", "a:http", "a:65536", "a:99999", "a:000080", ".a", "a..b", "a b")),
    *(
        hosts(item)
        for item in ("bücher", "[::1", "[::1]80", "[a]", "[::1]:x", "dns://a:53", "[fe80::1%1]", "a\n", "tcp://", ".", "g::*")
    ),
]


def parses(permissions: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Policy.parse(permissions)
        except PolicyError:
            return False
    return True


def conforms(permissions: Any) -> bool:
    return jsonschema.Draft202012Validator(policy_schema()).is_valid(permissions)


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(policy_schema())
    assert json.loads(json.dumps(policy_schema())) == policy_schema()


@pytest.mark.parametrize("permissions", ACCEPTED, ids=repr)
def test_both_accept(permissions: Any) -> None:
    assert (parses(permissions), conforms(permissions)) == (True, True)


@pytest.mark.parametrize("permissions", REFUSED, ids=repr)
def test_both_refuse(permissions: Any) -> None:
    assert (parses(permissions), conforms(permissions)) == (False, False)
