"""The messages of SPEC section 4, word for word, and what guests' bytes may do to them: nothing."""

import errno
import pickle

import pytest

from callgate.scopes import CallgateError, InternalError, PermissionDenied, Unsupported
from callgate.scopes.errors import denied, message


@pytest.mark.parametrize(
    ("scope", "operation", "subject", "expected"),
    [
        (
            "fs",
            "read",
            "/home/agentos/vault/key",
            "EACCES: permission denied, read '/home/agentos/vault/key': blocked by fs.read policy",
        ),
        (
            "network",
            "http",
            "tcp://example.com:80",
            "EACCES: permission denied, tcp://example.com:80: blocked by network.http policy",
        ),
        ("network", "dns", "dns://example.com", "EACCES: permission denied, dns://example.com: blocked by network.dns policy"),
        ("childProcess", "spawn", "curl", "EACCES: permission denied, spawn 'curl': blocked by childProcess.spawn policy"),
        ("process", "*", "kill:42", "EACCES: permission denied, process://kill:42: blocked by process.kill policy"),
        ("process", "*", "setsid", "EACCES: permission denied, process://setsid: blocked by process.setsid policy"),
        ("env", "read", "AWS_SECRET", "EACCES: permission denied, env://AWS_SECRET: blocked by env.read policy"),
        ("binding", "*", "math:add", "EACCES: permission denied, binding://math:add: blocked by binding.invoke policy"),
    ],
)
def test_the_message_of_each_scope(scope: str, operation: str, subject: str, expected: str) -> None:
    assert message(scope, operation, subject) == expected
    assert str(denied(scope, operation, subject, rule=0)) == expected


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a\nb", r"/a\nb"),
        ("/a\r\t", r"/a\r\t"),
        ("/\x1b[31m\x7f", r"/\x1b[31m\x7f"),
        ("/it's", r"/it\'s"),
        ("/back\\slash", r"/back\\slash"),
        (b"/\xff".decode("utf-8", "surrogateescape"), r"/\xff"),
        ("/\u2028\u202e\x85", r"/\u2028\u202e\u0085"),
        ("/\U000e0001", r"/\U000e0001"),
        ("/naïve 名前", "/naïve 名前"),
    ],
)
def test_what_could_break_a_line_or_a_quote_is_escaped(path: str, shown: str) -> None:
    assert message("fs", "stat", path) == f"EACCES: permission denied, stat '{shown}': blocked by fs.stat policy"


FORGERY = "x': blocked by fs.read policy\nEACCES: permission denied, env://y: blocked by env.read policy"


@pytest.mark.parametrize("scope", ["fs", "network", "childProcess", "process", "env", "binding"])
def test_no_subject_can_forge_a_record(scope: str) -> None:
    text = message(scope, "*", FORGERY)
    assert text.splitlines() == [text]
    # What ends a subject, a quote or a colon with a space, occurs unescaped once: at its real end.
    end = "': blocked by" if scope in ("fs", "childProcess") else ": blocked by"
    assert text.replace("\\'", "").count(end) == 1


def test_a_refusal_shows_the_guests_own_words_and_keeps_what_was_judged() -> None:
    error = denied("fs", "read", "/v/key", rule=3, shown="/link/key")
    assert (error.scope, error.operation, error.subject, error.rule) == ("fs", "read", "/v/key", 3)
    assert str(error) == "EACCES: permission denied, read '/link/key': blocked by fs.read policy"


def test_a_refusal_is_a_permission_error_with_errno_13() -> None:
    error = denied("env", "read", "A", rule="mode")
    assert isinstance(error, PermissionError)
    assert isinstance(error, CallgateError)
    assert error.errno == errno.EACCES == 13
    assert error.strerror == str(error)


def test_a_refusal_survives_pickling() -> None:
    error = denied("fs", "read", "/v/key", rule="default", shown="/link/key")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is PermissionDenied
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.errno == 13


@pytest.mark.parametrize("kind", [Unsupported, InternalError])
def test_the_other_errors_carry_their_text_and_survive_pickling(kind: type[CallgateError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("no user namespaces: sysctl ...")))
    assert type(copy) is kind
    assert str(copy) == "no user namespaces: sysctl ..."
