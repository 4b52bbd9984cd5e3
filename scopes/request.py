"""What a guest asks for and what it is answered: a request to one scope, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from callgate.scopes import errors, fs, network
from callgate.scopes.dialects import DIALECTS
from callgate.scopes.operations import operation_number

_FORMS: Final = {
    "fs": "an absolute path",
    "network": "host:port, or for dns a host",
    "childProcess": "the name or the path of a program",
    "process": "an action, or action:pid",
    "env": "the name of a variable",
    "binding": "the name of a binding",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One operation on one subject, in the subject form of SPEC section 3."""

    scope: str
    operation: str
    subject: str

    @classmethod
    def canonical(cls, scope: str, operation: str, subject: str) -> Request:
        """The request with its subject in the one spelling that is judged; ValueError for an unknown scope or operation."""
        operation_number(scope, operation)
        return cls(scope, operation, DIALECTS[scope].canonical_subject(subject, operation))

    @classmethod
    def asked(cls, scope: str, operation: str, subject: str) -> Request:
        """`canonical`, for a subject that a person wrote: ValueError also for one that no operation could have.

        A verdict on it would be a wrong answer. What the kernel or a guest names is judged as it is.
        """
        operation_number(scope, operation)
        problem = None
        if not subject:
            problem = f"the subject is empty; it is {_FORMS[scope]}"
        elif scope == "fs":
            problem = fs.unclear(subject)
        elif scope == "network":
            problem = network.unclear(subject, operation)
        if problem is not None:
            raise ValueError(problem)
        return cls.canonical(scope, operation, subject)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a request.

    ``rule`` is the index of the deciding rule, ``"default"`` when none matched, ``"mode"`` when the scope is a bare mode, or
    the name of a rule that the kernel added. ``message`` is the text of the refusal, or a sentence that it is allowed.
    """

    allowed: bool
    rule: int | str
    message: str

    @classmethod
    def on(cls, request: Request, *, allowed: bool, rule: int | str) -> Verdict:
        """The verdict with the message that belongs to it."""
        parts = (request.scope, request.operation, request.subject)
        return cls(allowed, rule, errors.allowed_message(*parts) if allowed else errors.message(*parts))
