"""What a pattern of each scope covers (SPEC section 3), seen through the verdicts of a policy of one rule."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.scopes import Policy, fs
from callgate.scopes.address import canonical_address
from callgate.scopes.network import canonical_host, canonical_subject


def covers(scope: str, pattern: str, operation: str, subject: str) -> bool:
    key = "paths" if scope == "fs" else "patterns"
    policy = Policy.parse({scope: {"default": "deny", "rules": [{"mode": "allow", key: [pattern]}]}})
    return policy.decide(scope, operation, subject).allowed


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("/a//b/./c/", "/a/b/c", True),
        ("/a/b/.", "/a/b", True),
        ("/a/.hidden", "/a/.hidden", True),
        ("/", "/", True),
        ("//", "/", True),
        ("/", "/a", False),
        ("/a/**/", "/a/b/c", True),
        ("*", "/a/b", True),
        ("**", "/a/b", True),
        ("/a/*", "/a/b/c", False),
    ],
)
def test_fs_paths_are_normalised(pattern: str, subject: str, expected: bool) -> None:
    assert covers("fs", pattern, "read", subject) is expected


def test_fs_subjects_are_normalised() -> None:
    assert covers("fs", "/a/b", "read", "/a//./b/")


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("git", "/usr/bin/git", True),
        ("git", "/usr/bin/git-lfs", False),
        ("git", "git", True),
        ("git", "/git/x", False),
        ("git*", "/usr/bin/git-lfs", True),
        ("git**", "/usr/git/bin/sh", False),
        ("*", "/usr/bin/git", True),
        ("/usr/bin/*", "/usr/bin/git", True),
        ("/usr/bin/*", "/usr/bin/x/git", False),
        ("/usr//bin/./git", "/usr/bin/git", True),
        ("**/bin/git", "/usr/bin/git", True),
    ],
)
def test_a_command_pattern_is_a_path_with_a_slash_and_a_basename_without(pattern: str, subject: str, expected: bool) -> None:
    assert covers("childProcess", pattern, "spawn", subject) is expected


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("kill", "kill", True),
        ("kill", "kill:42", True),
        ("kill:42", "kill:42", True),
        ("kill:42", "kill:421", False),
        ("kill:42", "kill", False),
        ("ptrace:*", "ptrace:7", True),
        ("ptrace:*", "ptrace", False),
        ("set*", "setpriority:1", True),
        ("*:42", "kill:42", True),
        ("*", "inspect:1", True),
    ],
)
def test_an_action_covers_every_pid(pattern: str, subject: str, expected: bool) -> None:
    assert covers("process", pattern, "*", subject) is expected


@pytest.mark.parametrize(
    ("scope", "pattern", "operation", "subject", "expected"),
    [
        ("env", "AWS_*", "read", "AWS_", True),
        ("env", "AWS_*", "read", "aws_x", False),
        ("env", "?", "write", "A", True),
        ("binding", "math:*", "*", "math:add", True),
        ("binding", "math.*", "*", "math.add", True),
        ("binding", "add", "*", "Add", False),
    ],
)
def test_names_are_compared_case_and_all(scope: str, pattern: str, operation: str, subject: str, expected: bool) -> None:
    assert covers(scope, pattern, operation, subject) is expected


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("api.example.com", "tcp://api.example.com:443", True),
        ("api.example.com", "udp://api.example.com:53", True),
        ("api.example.com", "dns://api.example.com", True),
        ("api.example.com", "tcp://x.api.example.com:443", False),
        ("api.example.com", "tcp://api.example.com.evil.example:443", False),
        ("api.example.com:443", "tcp://api.example.com:443", True),
        ("api.example.com:443", "tcp://api.example.com:4430", False),
        ("api.example.com:443", "dns://api.example.com", True),
        ("api.example.com:0443", "tcp://api.example.com:443", True),
        ("api.example.com:80*", "tcp://api.example.com:8080", True),
        ("*.example.com", "tcp://a.b.example.com:1", True),
        ("*.example.com", "dns://example.com", False),
        ("API.Example.com.", "tcp://api.example.COM.:443", True),
        ("api.example.com.:443", "tcp://api.example.com:443", True),
        ("*", "tcp://[::1]:80", True),
        ("**", "dns://x", True),
        ("*:80", "tcp://x.example:80", True),
        ("*:80", "tcp://[2001:db8::1]:80", True),
        ("*:80", "tcp://x.example:8080", False),
        ("tcp://h.example:80", "tcp://h.example:80", True),
        ("tcp://h.example:80", "udp://h.example:80", False),
        ("tcp://h.example:80", "dns://h.example", False),
        ("TCP://h.example", "tcp://h.example:1", True),
        ("udp://**", "udp://1.2.3.4:53", True),
        ("dns://h.example", "dns://h.example", True),
        ("dns://h.example", "tcp://h.example:80", False),
        ("127.0.0.1", "tcp://127.0.0.1:80", True),
        ("127.1", "tcp://127.0.0.1:80", True),
        ("0x7f.1", "tcp://127.0.0.1:80", True),
        ("127.0.0.1", "tcp://2130706433:80", True),
        ("10.0.0.?", "tcp://10.0.0.7:1", True),
        ("10.0.0.?", "tcp://10.0.0.77:1", False),
        ("::1", "tcp://[::1]:80", True),
        ("[::1]", "tcp://[0:0:0:0:0:0:0:1]:80", True),
        ("[2001:DB8::0:1]:80", "tcp://[2001:db8::1]:80", True),
        ("[2001:db8::1]:80", "tcp://[2001:db8::1]:81", False),
        ("[2001:db8:*]", "tcp://[2001:db8::1]:80", True),
        ("2001:db8:*", "udp://[2001:db8:1::]:80", True),
        ("[::ffff:10.0.0.1]:80", "tcp://10.0.0.1:80", True),
        ("10.0.0.1", "tcp://[::ffff:10.0.0.1]:80", True),
        ("10.0.0.1", "tcp://[::ffff:a00:1]:80", True),
        ("h.example", "h.example:80", True),
    ],
)
def test_a_host_pattern_covers_every_spelling_of_that_host_and_no_other(pattern: str, subject: str, expected: bool) -> None:
    assert covers("network", pattern, "dns" if subject.startswith("dns:") else "http", subject) is expected


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("Example.COM.", "example.com"),
        ("[::1]", "::1"),
        ("::FFFF:1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "fe80::1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("1.2.3", "1.2.0.3"),
        ("256.1.1.1", "256.1.1.1"),
        ("0x", "0x"),
        ("a.b", "a.b"),
        ("::102:304", "::1.2.3.4"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_a_host_has_one_spelling(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


@pytest.mark.parametrize("subject", ["", "tcp://", "tcp://[::1", "tcp://[::1]x", "://", "dns://a:b:c", "x://[", "tcp://a:b:c:d"])
def test_a_malformed_subject_is_no_error(subject: str) -> None:
    assert canonical_subject(canonical_subject(subject, "http"), "http") == canonical_subject(subject, "http")


@given(st.binary(min_size=16, max_size=16) | st.builds(lambda tail: bytes(12) + tail, st.binary(min_size=4, max_size=4)))
def test_ipv6_is_spelled_as_inet_ntop_does(packed: bytes) -> None:
    expected = socket.inet_ntop(socket.AF_INET6, packed)
    if packed[:12] == bytes(10) + b"\xff\xff":
        expected = socket.inet_ntop(socket.AF_INET, packed[12:])
    assert canonical_address(expected) == expected
    groups = [packed[i : i + 2].hex().upper() for i in range(0, 16, 2)]
    assert canonical_address(":".join(groups)) == expected


@given(st.text(alphabet="0123456789.xXabf", max_size=18))
def test_ipv4_is_read_as_inet_aton_does(text: str) -> None:
    try:
        expected = socket.inet_ntoa(socket.inet_aton(text))
    except OSError:
        expected = None
    assert canonical_address(text) == expected


def test_literal_paths_become_globs_of_themselves_or_are_refused() -> None:
    assert fs.exactly("/usr//lib/") == "/usr/lib"
    assert fs.subtree("/usr/lib") == "/usr/lib/**"
    assert fs.subtree("/") == "/**"
    for path in ("/a*", "/a?", "relative"):
        with pytest.raises(ValueError, match="cannot be written"):
            fs.exactly(path)


@pytest.mark.parametrize("subject", ["tcp://127.0.0.1:80", "udp://[::1]:53", "dns://localhost", "tcp://localhost:1"])
def test_localhost_is_also_the_addresses_the_vm_gives_it(subject: str) -> None:
    operation = "dns" if subject.startswith("dns") else "http"
    assert covers("network", "localhost", operation, subject)
    assert not covers("network", "localhost", "http", "tcp://127.0.0.2:80")
    assert not covers("network", "localhost:81", "http", "tcp://127.0.0.1:80")
