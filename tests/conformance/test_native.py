"""The C evaluator equals the Python one: on decisions.json, on random policies and subjects, and on malformed input."""

import errno
import json
import os
import re
import struct
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cffi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.kernel.policy_blob import policy_blob
from callgate.kernel.protocol import RuleOrigin
from callgate.scopes import OPERATIONS, SCOPES, CompiledRule, CompiledScope, Policy
from callgate.scopes.glob import compile_glob
from callgate.scopes.rules import RULE_DEFAULT, RULE_MODE, RULE_UNSUPPORTED, rule_name
from callgate.scopes.widening import may_widen

NATIVE = Path(__file__).parents[2] / "kernel" / "native"
CORPUS: dict[str, Any] = json.loads(Path(__file__).with_name("decisions.json").read_text())


class Native:
    """The C functions, called through cffi."""

    def __init__(self, folder: Path) -> None:
        library = folder / "policy.so"
        sources = [str(NATIVE / f"{part}.c") for part in ("bytes", "glob", "policy")]
        # Undefined behaviour ends the test run at once; the trap needs no run-time library.
        checks = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        if extra := os.environ.get("CALLGATE_SANITIZE"):
            checks = [f"-fsanitize={extra}", "-fno-sanitize-recover=all"]
        flags = [
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Werror",
            "-fPIC",
            "-shared",
            *checks,
        ]
        subprocess.run(["gcc", *flags, "-o", str(library), *sources], check=True)
        self.ffi: Any = cffi.FFI()
        for part in ("bytes", "glob", "policy"):
            self.ffi.cdef(re.sub(r"^#.*$", "", (NATIVE / f"{part}.h").read_text(), flags=re.MULTILINE))
        self.lib: Any = self.ffi.dlopen(str(library))

    def load(self, blob: bytes) -> Any:
        """The policy, or the negative errno."""
        out = self.ffi.new("struct cg_policy **")
        error = self.lib.cg_policy_load(blob, len(blob), out)
        assert (out[0] == self.ffi.NULL) == (error != 0)
        return error or self.ffi.gc(out[0], self.lib.cg_policy_free)

    def decide(self, policy: Any, scope: str, operation: int, subject: bytes) -> tuple[bool, int]:
        rule = self.ffi.new("int32_t *")
        allowed = self.lib.cg_policy_decide(policy, SCOPES.index(scope), operation, subject, len(subject), rule)
        return bool(allowed), rule[0]

    def glob_matches(self, pattern: bytes, subject: bytes) -> bool:
        out = self.ffi.new("struct cg_glob **")
        assert self.lib.cg_glob_compile(pattern, len(pattern), out) == 0
        matched = self.lib.cg_glob_match(out[0], subject, len(subject))
        self.lib.cg_glob_free(out[0])
        return bool(matched)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(tmp_path_factory.mktemp("native"))


def text(subject: bytes) -> str:
    return subject.decode("utf-8", "surrogateescape")


PIECES = [
    b"/",
    b"*",
    b"**",
    b"?",
    b"a",
    b"B",
    b".",
    "é".encode(),
    b"\xc3",
    b"\xa9",
    b"\xff",
    b"/**/",
    b"/**",
    "😀".encode(),
    b"\xed\xa0\x80",
]
LETTERS = [
    b"/",
    b"/",
    b"a",
    b"B",
    b".",
    "é".encode(),
    b"\xc3",
    b"\xa9",
    b"\xff",
    "😀".encode(),
    b"\xf0\x9f",
    b"\xed\xa0\x80",
    b"\xe2\x82",
]
GLOBS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map(b"".join)
SUBJECTS = st.lists(st.sampled_from(LETTERS), max_size=10).map(b"".join)
LONG_GLOBS = st.lists(st.sampled_from(PIECES), min_size=60, max_size=150).map(b"".join)


@st.composite
def globs_and_subjects(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A long glob and a subject made from it, so that matches across word boundaries of the automaton are common."""
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=30, max_size=150))
    fills = {
        b"*": st.sampled_from([b"", b"a", b"aB"]),
        b"**": st.sampled_from([b"", b"a/B", b"/"]),
        b"?": st.sampled_from([b"a", b"\xff"]),
    }
    fills |= {b"/**/": st.sampled_from([b"/", b"/a/", b"/a/B/"]), b"/**": st.sampled_from([b"", b"/a", b"/"])}
    return b"".join(pieces), b"".join(draw(fills[piece]) if piece in fills else piece for piece in pieces)


@settings(max_examples=1000)
@given(GLOBS, SUBJECTS)
def test_globs_match_alike_on_any_bytes(native: Native, pattern: bytes, subject: bytes) -> None:
    assert native.glob_matches(pattern, subject) == compile_glob(text(pattern)).matches(text(subject))


@settings(max_examples=300)
@given(globs_and_subjects())
def test_long_globs_match_alike(native: Native, drawn: tuple[bytes, bytes]) -> None:
    pattern, subject = drawn
    assert native.glob_matches(pattern, subject) == compile_glob(text(pattern)).matches(text(subject))


@pytest.mark.parametrize("pattern", [b"*a" * 2048, b"?" * 4096, b"/**/a" * 800, "é?".encode() * 2048, b"**a" * 1365])
def test_the_longest_patterns_are_matched(native: Native, pattern: bytes) -> None:
    for subject in (b"a" * 4096, b"/a" * 2048, "éx".encode() * 2048):
        assert native.glob_matches(pattern, subject) == compile_glob(text(pattern)).matches(text(subject))


@pytest.mark.parametrize("wildcard", [b"/**/b", b"*b", b"**b", b"?b", b"/**"])
def test_wildcards_work_on_every_side_of_a_word_boundary(native: Native, wildcard: bytes) -> None:
    for before in (*range(56, 70), *range(120, 134)):
        pattern, subject = b"?" * before + wildcard, b"a" * before
        for tail in (b"", b"/", b"b", b"/b", b"xb", b"/xb", b"x/b", b"/x/b", b"/x/y/b"):
            assert native.glob_matches(pattern, subject + tail) == compile_glob(text(pattern)).matches(text(subject + tail)), (
                before
            )


@pytest.mark.parametrize("pattern", [b"", b"a" * 5000, b"a" * 100_000])
def test_a_glob_that_is_empty_or_too_long_is_refused(native: Native, pattern: bytes) -> None:
    out = native.ffi.new("struct cg_glob **")
    assert native.lib.cg_glob_compile(pattern, len(pattern), out) == -errno.EINVAL
    assert out[0] == native.ffi.NULL


@pytest.mark.parametrize("name", CORPUS["policies"])
def test_every_case_has_its_verdict_and_its_rule(native: Native, name: str) -> None:
    policy = native.load(policy_blob(Policy.parse(CORPUS["policies"][name]).compiled()))
    wrong = []
    for case in CORPUS["cases"]:
        if case["policy"] == name:
            number = OPERATIONS[case["scope"]].index(case["operation"])
            allowed, rule = native.decide(policy, case["scope"], number, case["subject"].encode())
            if (allowed, rule_name(rule)) != (case["allowed"], case["rule"]):
                wrong.append((case, allowed, rule))
    assert not wrong


def compiled_rules(scope: str) -> st.SearchStrategy[CompiledRule]:
    prefixes = st.sampled_from(["tcp://", "dns://", "udp://", ""] if scope == "network" else [""])
    suffixes = st.sampled_from([":80", ".", ":*", ""] if scope == "network" else [""])
    globs = st.builds(lambda a, b, c: a + text(b).lower() + c, prefixes, GLOBS, suffixes)
    return st.builds(
        CompiledRule,
        allow=st.booleans(),
        operations=st.integers(1, (1 << len(OPERATIONS[scope])) - 1),
        rule=st.integers(0, 2**31 - 1) | st.integers(-8, -3),
        globs=st.lists(globs | GLOBS.map(text), min_size=1, max_size=3).map(tuple),
    )


def compiled_scope(scope: str) -> st.SearchStrategy[CompiledScope]:
    return st.builds(
        CompiledScope,
        default_allow=st.booleans(),
        default_rule=st.sampled_from([RULE_DEFAULT, RULE_MODE]),
        fold_case=st.just(scope == "network"),
        rules=st.lists(compiled_rules(scope), max_size=4).map(tuple),
        operations=st.just(OPERATIONS[scope]),
    )


POLICIES = st.fixed_dictionaries({scope: compiled_scope(scope) for scope in SCOPES})
HOST_SUBJECTS = st.builds(
    lambda a, b, c: a + b + c,
    st.sampled_from([b"tcp://", b"DNS://", b""]),
    SUBJECTS,
    st.sampled_from([b"", b".", b":80", b".:80", b":", b".."]),
)


@settings(max_examples=150)
@given(POLICIES, SUBJECTS, HOST_SUBJECTS)
def test_policies_decide_alike_on_any_bytes(
    native: Native, compiled: dict[str, CompiledScope], subject: bytes, host: bytes
) -> None:
    policy = native.load(policy_blob(compiled))
    for scope in SCOPES:
        judged = host if scope == "network" else subject
        for number, operation in enumerate(OPERATIONS[scope]):
            assert native.decide(policy, scope, number, judged) == compiled[scope].judge(number, text(judged))
            constant = native.lib.cg_policy_constant(policy, SCOPES.index(scope), number)
            assert {1: True, 0: False, -1: None}[constant] is compiled[scope].constant(operation)


PLAIN_PATHS = st.lists(st.sampled_from([b"a", b"B", b".", "é".encode(), b"\xff"]), max_size=3).map(
    lambda names: b"/" + b"/".join(names)
)


@settings(max_examples=500)
@given(compiled_scope("fs"), PLAIN_PATHS, PLAIN_PATHS, st.booleans())
def test_widening_is_judged_alike(native: Native, fs: CompiledScope, source: bytes, target: bytes, is_directory: bool) -> None:
    policy = native.load(policy_blob({**Policy.parse().compiled(), "fs": fs}))
    differs = native.lib.cg_policy_subtree_differs(policy, source, len(source), target, len(target), is_directory)
    assert bool(differs) == may_widen(fs, text(source), text(target), is_directory=is_directory)


@pytest.mark.parametrize("length", [1023, 1024, 1025, 100_000])
def test_a_network_subject_longer_than_any_name_is_denied(native: Native, length: int) -> None:
    compiled = Policy.parse({"network": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["x.example"]}]}}).compiled()
    subject = b"dns://" + b"a" * (length - 6)
    expected = (length <= 1024, RULE_DEFAULT)
    assert native.decide(native.load(policy_blob(compiled)), "network", 2, subject) == expected
    assert compiled["network"].judge(2, subject.decode()) == expected


def test_an_unknown_scope_or_operation_is_denied(native: Native) -> None:
    policy = native.load(policy_blob(Policy.parse().compiled()))
    rule = native.ffi.new("int32_t *")
    for scope, operation in ((6, 0), (0, 12), (0, 31), (0, 4_000_000_000), (3, 1), (4_000_000_000, 0)):
        rule[0] = 0
        assert native.lib.cg_policy_decide(policy, scope, operation, b"/", 1, rule) == 0
        assert rule[0] == RULE_UNSUPPORTED
        assert native.lib.cg_policy_constant(policy, scope, operation) == 0
    assert native.lib.cg_policy_decide(policy, 0, 0, b"/", 1, native.ffi.NULL) == 1


def sample_blob() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return policy_blob(
            Policy.parse(CORPUS["policies"]["last-wins"] | CORPUS["policies"]["ports"] | CORPUS["policies"]["env"]).compiled()
        )


def test_a_blob_cut_short_or_with_bytes_left_over_is_refused(native: Native) -> None:
    blob = sample_blob()
    assert not isinstance(native.load(blob), int)
    for length in range(len(blob)):
        assert native.load(blob[:length]) == -errno.EBADMSG, length
    assert native.load(blob + b"\0") == -errno.EBADMSG


def test_no_damaged_blob_is_read_out_of_bounds(native: Native) -> None:
    blob = sample_blob()
    for at in range(len(blob)):
        for value in (0, 1, 0x7F, 0xFF):
            loaded = native.load(blob[:at] + bytes([value]) + blob[at + 1 :])
            if not isinstance(loaded, int):
                native.decide(loaded, "fs", 0, b"/w/lock/tmp/x")


def blob_of_one_rule(
    head: tuple[int, int, int], rule: tuple[int, int, int], globs: list[bytes], scope: int = 0, naming: int = 0
) -> bytes:
    scopes = [struct.pack("<IiII", 1, RULE_MODE, 0, 0)] * len(SCOPES)
    body = struct.pack("<IIiI", *rule, len(globs)) + b"".join(struct.pack("<I", len(glob)) + glob for glob in globs)
    scopes[scope] = struct.pack("<IiII", *head, 1) + body + struct.pack("<I", naming)
    return struct.pack("<I", 0x31504743) + b"".join(scopes)


def malformed() -> Iterator[tuple[str, bytes]]:
    head, rule, globs = (1, RULE_DEFAULT, 0), (0, 1, 0), [b"/a"]
    yield "default is not a boolean", blob_of_one_rule((2, RULE_DEFAULT, 0), rule, globs)
    yield "default rule is a user's rule", blob_of_one_rule((1, 0, 0), rule, globs)
    yield "fold is not a boolean", blob_of_one_rule((1, RULE_DEFAULT, 7), rule, globs)
    yield "allow is not a boolean", blob_of_one_rule(head, (2, 1, 0), globs)
    yield "no operation", blob_of_one_rule(head, (0, 0, 0), globs)
    yield "an operation that fs does not have", blob_of_one_rule(head, (0, 1 << 12, 0), globs)
    yield "an operation that env does not have", blob_of_one_rule(head, (0, 4, 0), globs, scope=4)
    yield "a rule that calls itself the default", blob_of_one_rule(head, (0, 1, RULE_DEFAULT), globs)
    yield "a rule number that means nothing", blob_of_one_rule(head, (0, 1, min(RuleOrigin) - 1), globs)
    yield "more globs that name an address than globs", blob_of_one_rule(head, rule, globs, naming=2)
    yield "no glob", blob_of_one_rule(head, rule, [])
    yield "an empty glob", blob_of_one_rule(head, rule, [b""])
    yield "a glob with a NUL", blob_of_one_rule(head, rule, [b"/a\0b"])
    yield "a glob that is too long", blob_of_one_rule(head, rule, [b"a" * 5000])
    yield "another magic number", b"CGP0" + blob_of_one_rule(head, rule, globs)[4:]
    yield "a count far beyond the blob", struct.pack("<IIiII", 0x31504743, 1, RULE_MODE, 0, 0xFFFFFFFF)


@pytest.mark.parametrize("blob", [pytest.param(blob, id=what) for what, blob in malformed()])
def test_a_malformed_blob_is_refused(native: Native, blob: bytes) -> None:
    assert native.load(blob) == -errno.EBADMSG


def test_a_rule_on_its_own_is_well_formed(native: Native) -> None:
    # The control for the cases above.
    assert not isinstance(native.load(blob_of_one_rule((1, RULE_DEFAULT, 0), (0, 1, 0), [b"/a"])), int)


def test_what_the_writer_writes_the_reader_reads(native: Native) -> None:
    ffi, lib = native.ffi, native.lib
    buffer, writer, reader = ffi.new("uint8_t[64]"), ffi.new("struct cg_writer *"), ffi.new("struct cg_reader *")
    lib.cg_writer_init(writer, buffer, 64)
    lib.cg_write_u8(writer, 0xFE)
    lib.cg_write_u16(writer, 0xFEDC)
    lib.cg_write_u32(writer, 0xFEDCBA98)
    lib.cg_write_u64(writer, 0xFEDCBA9876543210)
    lib.cg_write_i32(writer, -2)
    lib.cg_write_bytes(writer, b"a\0b", 3)
    size = lib.cg_writer_size(writer)
    assert bytes(buffer[0:size]) == struct.pack("<BHIQi", 0xFE, 0xFEDC, 0xFEDCBA98, 0xFEDCBA9876543210, -2) + b"\x03\0\0\0a\0b"
    lib.cg_reader_init(reader, buffer, size)
    assert lib.cg_read_u8(reader) == 0xFE
    assert lib.cg_read_u16(reader) == 0xFEDC
    assert lib.cg_read_u32(reader) == 0xFEDCBA98
    assert lib.cg_read_u64(reader) == 0xFEDCBA9876543210
    assert lib.cg_read_i32(reader) == -2
    assert not lib.cg_reader_done(reader)
    length = ffi.new("uint32_t *")
    data = lib.cg_read_bytes(reader, length)
    assert bytes(ffi.buffer(data, length[0])) == b"a\0b"
    assert lib.cg_reader_done(reader)
    assert lib.cg_read_u8(reader) == 0
    assert reader.failed
    assert not lib.cg_reader_done(reader)


def test_a_writer_without_room_fails_for_good(native: Native) -> None:
    buffer, writer = native.ffi.new("uint8_t[8]"), native.ffi.new("struct cg_writer *")
    native.lib.cg_writer_init(writer, buffer, 6)
    native.lib.cg_write_u32(writer, 1)
    native.lib.cg_write_u32(writer, 2)
    native.lib.cg_write_u8(writer, 3)
    assert writer.failed
    assert native.lib.cg_writer_size(writer) == 0
    assert bytes(buffer[4:8]) == bytes(4)


def test_a_count_that_cannot_fit_is_refused(native: Native) -> None:
    reader = native.ffi.new("struct cg_reader *")
    data = struct.pack("<I", 3) + bytes(11)
    native.lib.cg_reader_init(reader, data, len(data))
    assert native.lib.cg_read_count(reader, 4) == 0
    assert reader.failed
    native.lib.cg_reader_init(reader, data, len(data))
    assert native.lib.cg_read_count(reader, 3) == 3
