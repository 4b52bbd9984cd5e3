"""What is asked, what may be answered, what became of it, and the errors of asking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from callgate.scopes.errors import CallgateError

Kind: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
ApprovalPolicy: TypeAlias = Literal["allow_all", "reject_all", "ask"]

_PREFERRED: Final[Mapping[str, tuple[Kind, Kind]]] = {
    "allow_all": ("allow_once", "allow_always"),
    "reject_all": ("reject_once", "reject_always"),
}


class ApprovalError(CallgateError):
    """A call did not get its approval, or approvals were used wrongly; in the call's case the function was not reached."""


class ApprovalRejected(ApprovalError):
    """The call was rejected: by an answer, by an earlier one for all such calls, or by the policy of the approvals."""


class ApprovalUnsatisfiable(ApprovalError, ValueError):
    """The options offered hold none that the policy of the approvals could choose."""


class ApprovalAnswerError(ApprovalError, KeyError):
    """There is no such request, it was answered or withdrawn before, or the option was not offered; nothing was changed."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show it in quotes


class ApprovalJournalError(ApprovalError, RuntimeError):
    """The journal of approvals cannot be opened, read or written; what was to be recorded has not happened."""


@dataclass(frozen=True)
class ApprovalOption:
    """One of the answers offered: *id* is what `Approvals.answer` is given, *label* what a person is shown."""

    id: str
    kind: Kind
    label: str

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id or not isinstance(self.label, str):
            raise TypeError("an option's id is text that is not empty, and so is its label")
        if self.kind not in get_args(Kind):
            raise ValueError(f"{self.kind!r} is not a kind of option; it is one of {', '.join(get_args(Kind))}")

    @property
    def allows(self) -> bool:
        """Whether the call goes on."""
        return self.kind.startswith("allow")

    @property
    def lasts(self) -> bool:
        """Whether later requests of the same binding are answered the same, unasked."""
        return self.kind.endswith("always")


DEFAULT_OPTIONS: Final = (
    ApprovalOption("allow_once", "allow_once", "Allow this call"),
    ApprovalOption("allow_always", "allow_always", "Allow every call of it in this session"),
    ApprovalOption("reject_once", "reject_once", "Reject this call"),
    ApprovalOption("reject_always", "reject_always", "Reject every call of it in this session"),
)


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that asks for approval. *binding* is the name that the binding scope judged, *time* in seconds since the epoch.

    *arguments* is a copy of what the function would be given, as JSON data: the words of untrusted code. *pid* and *program*
    are the caller's as in `BindingContext`. ``str()`` is one line that is safe to print, whatever the arguments hold.
    """

    id: int
    binding: str
    arguments: dict[str, Any]
    pid: int
    program: str
    options: tuple[ApprovalOption, ...]
    time: float

    def __str__(self) -> str:
        caller = f", called by process {self.pid} ({self.program})" if self.pid else ""
        return _printable(f"request {self.id}: {self.binding} {json.dumps(self.arguments, ensure_ascii=False)}{caller}")

    def as_entry(self) -> dict[str, Any]:
        """The request as the journal has it."""
        return {"event": "request", **asdict(self)}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> ApprovalRequest:
        """The request that `as_entry` gave; `KeyError`, `TypeError` or `ValueError` for another."""
        options = tuple(ApprovalOption(**option) for option in entry["options"])
        return cls(
            entry["id"],
            entry["binding"],
            dict(entry["arguments"]),
            entry["pid"],
            entry["program"],
            options,
            float(entry["time"]),
        )

    def option(self, option_id: object) -> ApprovalOption | None:
        """The option of this id, if it was offered."""
        return next((option for option in self.options if option.id == option_id), None)


@dataclass(frozen=True)
class ApprovalRecord:
    """What became of a request: it is `pending`, `answered` with *option*, or `withdrawn` because of *why*.

    *by* tells what answered: an `answer` to this request, an earlier one that lasts (`always`), or the `policy`. *time* is when,
    in seconds since the epoch; None while it is pending. An answer that allows is no proof that the function ran.
    """

    request: ApprovalRequest
    state: Literal["pending", "answered", "withdrawn"] = "pending"
    option: ApprovalOption | None = None
    by: Literal["", "answer", "always", "policy"] = ""
    why: str = ""
    time: float | None = None

    def as_entry(self) -> dict[str, Any]:
        """The decision as the journal has it."""
        if self.option is not None:
            return {"event": "answer", "id": self.request.id, "option": self.option.id, "by": self.by, "time": self.time}
        return {"event": "withdrawal", "id": self.request.id, "why": self.why, "time": self.time}

    @classmethod
    def from_entry(cls, request: ApprovalRequest, entry: Mapping[str, Any]) -> ApprovalRecord:
        """The record that `as_entry` gave; `KeyError`, `TypeError` or `ValueError` for another."""
        if entry["event"] == "withdrawal":
            return cls(request, "withdrawn", why=entry["why"], time=float(entry["time"]))
        option = request.option(entry["option"])
        if option is None:
            raise ValueError(f"{entry['option']!r} was not offered")
        return cls(request, "answered", option, entry["by"], time=float(entry["time"]))


def check_options(options: Sequence[ApprovalOption], what: str) -> tuple[ApprovalOption, ...]:
    """The options as a tuple; `TypeError` or `ValueError`, naming *what* they are for, unless each can be told by its id."""
    given = tuple(options)
    for option in given:
        if not isinstance(option, ApprovalOption):
            raise TypeError(f"{what}: an option must be an ApprovalOption, not {type(option).__name__}")
    if not given:
        raise ApprovalUnsatisfiable(f"{what}: no option is offered, so nothing could be answered")
    if len({option.id for option in given}) < len(given):
        raise ValueError(f"{what}: two options have the same id")
    return given


def preferred(policy: str, options: Sequence[ApprovalOption], what: str) -> ApprovalOption | None:
    """What the policy answers by itself: an option for this once if there is one, else one that lasts. None: it asks."""
    if policy == "ask":
        return None
    for kind in _PREFERRED[policy]:
        for option in options:
            if option.kind == kind:
                return option
    wanted, offered = " or ".join(_PREFERRED[policy]), ", ".join(option.kind for option in options)
    raise ApprovalUnsatisfiable(f"{what}: the policy {policy} would answer {wanted}, and only {offered} is offered")


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
