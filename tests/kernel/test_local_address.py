"""The supervisor's table of local addresses, and what its policy says of addresses, against the Python ones."""

from __future__ import annotations

import warnings
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate.kernel.egress.addresses import local_kind
from callgate.kernel.native import _core
from callgate.kernel.policy_blob import policy_blob
from callgate.scopes import Policy
from callgate.scopes.network import names_address

LIB, FFI = cast("Any", _core).lib, cast("Any", _core).ffi

HEADS = [
    b"\0" * 12,
    b"\0" * 10 + b"\xff\xff",
    b"\0" * 8 + b"\xff\xff\0\0",
    bytes.fromhex("0064ff9b") + b"\0" * 8,
    bytes.fromhex("0064ff9b0001"),
]
HEADS += [
    bytes.fromhex(text)
    for text in ("2002", "20010000", "fc", "fd00", "fe80", "febf", "fec0", "ff02", "fd000ec2", "fd2000ce", "2001")
]
FIRST = st.sampled_from([0, 1, 9, 10, 11, 100, 127, 128, 168, 169, 172, 192, 198, 223, 224, 240, 255])
SECOND = st.sampled_from([0, 15, 16, 18, 31, 32, 63, 64, 100, 127, 128, 168, 254])
FOUR = st.one_of(
    st.tuples(FIRST, SECOND, st.integers(0, 255), st.integers(0, 255)).map(bytes),
    st.sampled_from([bytes([169, 254, 169, 254]), bytes([168, 63, 129, 16]), bytes([100, 100, 100, 200])]),
)
SIXTEEN = st.builds(lambda head, rest: (head + rest)[:16], st.sampled_from(HEADS), st.binary(min_size=16, max_size=16))
EMBEDDED = st.builds(lambda head, four: (head + four + bytes(16))[:16], st.sampled_from(HEADS), FOUR)


@settings(max_examples=2000)
@given(st.one_of(FOUR, SIXTEEN, EMBEDDED, st.binary(min_size=16, max_size=16)))
@example(bytes(15) + b"\1")
@example(bytes([127, 0, 0, 1]))
def test_both_tables_say_the_same(address: bytes) -> None:
    kind = LIB.cg_local_kind(address, len(address))
    assert (FFI.string(kind).decode() if kind else None) == local_kind(address)
    assert bool(LIB.cg_is_loopback(address, len(address))) == (local_kind(address) == "a loopback address")


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("10.0.0.1", True), ("10.*", True), ("10.0.0.?", True), ("*.254", True), ("[fd00::1]", True), ("[fd00::*]:80", True),
        ("tcp://10.0.0.1:25", True), ("localhost", True), ("*", False), ("**", False), ("*:80", False), ("*.*", False),
        ("?.?.?.?", False), ("example.com", False), ("*.example.com", False), ("10.example.com", False),
        ("dns://10.0.0.1", False), ("[*:*]", False),
    ],
)  # fmt: skip
def test_a_pattern_names_an_address_or_does_not(pattern: str, named: bool) -> None:
    rule = {"mode": "allow", "operations": ["http"] if "dns" not in pattern else ["dns"], "patterns": [pattern]}
    (compiled,) = Policy.parse({"network": {"rules": [rule]}}).compiled()["network"].rules
    assert any(map(names_address, compiled.globs)) is named


PATTERNS = st.sampled_from(
    ["10.0.0.1", "10.*", "*", "*:25", "host.example", "10.0.0.1:25", "tcp://10.0.0.1", "[fd00::*]", "192.0.2.9"]
)
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "mode": st.sampled_from(["allow", "deny"]),
            "operations": st.sampled_from([["*"], ["http"], ["listen"], ["dns", "http"]]),
            "patterns": st.lists(PATTERNS, min_size=1, max_size=3),
        }
    ),
    max_size=5,
)


@settings(max_examples=300)
@given(
    RULES,
    st.sampled_from(["tcp://10.0.0.1:25", "tcp://10.0.0.1:80", "udp://10.9.9.9:25", "tcp://[fd00::7]:25", "tcp://192.0.2.9:1"]),
)
def test_the_last_rule_that_names_the_address_speaks_of_it(rules: list[dict[str, Any]], subject: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = Policy.parse({"network": {"default": "deny", "rules": rules}}).compiled()
    wanted = (-1, 0)
    for rule in compiled["network"].rules:
        naming = tuple(filter(names_address, rule.globs))
        if naming and type(rule)(rule.allow, rule.operations, rule.rule, naming).matches(1, subject):
            wanted = (int(rule.allow), rule.rule)
    blob, out, number = policy_blob(compiled), FFI.new("struct cg_policy **"), FFI.new("int32_t *")
    assert LIB.cg_policy_load(blob, len(blob), out) == 0
    said = LIB.cg_policy_names_address(out[0], 1, subject.encode(), len(subject), number)
    LIB.cg_policy_free(out[0])
    assert (said, number[0]) == wanted
