"""Every error a user can meet, as one tree, and the only place where an EACCES is made.

CallgateError
├── PolicyError        (ValueError)       the caller's mistake: the policy is wrong; .problems says where and why
├── PermissionDenied   (PermissionError)  the policy said no; errno 13, .scope .operation .subject .rule
├── ApprovalError                         somebody who was asked did not approve; in bindings/approval_requests.py
├── Unsupported        (RuntimeError)     the host's limits: what is missing and how to get it
└── InternalError      (RuntimeError)     ours: please report it

PolicyWarning          (UserWarning)      the policy is valid, but one of its rules does nothing
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import NamedTuple


class CallgateError(Exception):
    """The base of all errors that callgate raises on purpose."""


class Problem(NamedTuple):
    """One mistake in a policy: its place, such as ``fs.rules[0].operations``, and what to do about it."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PolicyError(CallgateError, ValueError):
    """The policy is not valid; ``problems`` holds every mistake found, in the order of the policy."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(Problem(*problem) for problem in problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return str(self.problems[0])
        return "\n".join([f"{len(self.problems)} mistakes in the policy:", *(f"  {problem}" for problem in self.problems)])


class PolicyWarning(UserWarning):
    """A rule of a valid policy can never match, or can never change a verdict."""


class PermissionDenied(CallgateError, PermissionError):
    """The policy refused an operation (SPEC section 4); ``str()`` is the full message, ``errno`` is 13.

    Made by `denied` and nowhere else. ``rule`` is the index of the deciding rule, or ``"mode"``, ``"default"`` or the
    name of a rule that the kernel added.
    """

    def __init__(self, scope: str, operation: str, subject: str, rule: int | str, message: str) -> None:
        super().__init__(errno.EACCES, message)
        self.scope = scope
        self.operation = operation
        self.subject = subject
        self.rule = rule
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[PermissionDenied], tuple[str, str, str, int | str, str]]:
        return type(self), (self.scope, self.operation, self.subject, self.rule, self.message)


class Unsupported(CallgateError, RuntimeError):
    """This host cannot enforce what was asked for; the message says what is missing and how to get it."""


class InternalError(CallgateError, RuntimeError):
    """A defect of callgate itself; please report it."""


def shown_value(value: object) -> str:
    """A value of the user's as a message about a policy shows it: JSON's quotes for text, and never a page of it."""
    text = f'"{value}"' if isinstance(value, str) and value.isprintable() and '"' not in value else repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"


def escaped(text: str, *, quoted: bool) -> str:
    """Text from a guest, made safe for one line of a message.

    Backslashes and everything unprintable (control characters, line separators, direction marks, bytes that are not
    UTF-8) are written as ``\\n``, ``\\xhh`` or ``\\uhhhh``. What ends the text in its message is escaped as well, a quote
    in quoted text and a space in unquoted text, so no subject can pretend to be the rest of a message.
    """
    stop = "'" if quoted else " "
    if text.isascii() and text.isprintable() and "\\" not in text and stop not in text:
        return text
    return "".join(_escaped_character(character, stop) for character in text)


def _escaped_character(character: str, stop: str) -> str:
    if character == "\\" or (character == stop == "'"):
        return "\\" + character
    if character.isprintable() and character != stop:
        return character
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: one byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def policy_name(scope: str, operation: str, subject: str) -> str:
    """The name a message gives to what decided, such as ``fs.read``, ``process.kill`` or ``binding.invoke``."""
    if scope == "process":
        action = subject.partition(":")[0]
        return f"process.{escaped(action, quoted=False)}"
    return "binding.invoke" if scope == "binding" else f"{scope}.{operation}"


def shown_subject(scope: str, operation: str, subject: str) -> str:
    """The subject as the messages of SPEC section 4 show it."""
    if scope in ("fs", "childProcess"):
        return f"{operation} '{escaped(subject, quoted=True)}'"
    text = escaped(subject, quoted=False)
    return text if scope == "network" else f"{scope}://{text}"


def message(scope: str, operation: str, subject: str) -> str:
    """The message of a refusal (SPEC section 4); one line, whatever bytes the subject holds."""
    what = shown_subject(scope, operation, subject)
    return f"EACCES: permission denied, {what}: blocked by {policy_name(scope, operation, subject)} policy"


def allowed_message(scope: str, operation: str, subject: str) -> str:
    """The counterpart of `message` for an operation that is allowed."""
    return f"{shown_subject(scope, operation, subject)}: allowed by {policy_name(scope, operation, subject)} policy"


def denied(scope: str, operation: str, subject: str, *, rule: int | str, shown: str | None = None) -> PermissionDenied:
    """The one constructor of an EACCES.

    ``shown`` is the subject as the guest wrote it, made absolute; the message shows it in place of the judged subject.
    """
    text = message(scope, operation, subject if shown is None else shown)
    return PermissionDenied(scope, operation, subject, rule, text)
