"""The kinds of requests of the host-service protocol, each with what answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from callgate.bindings.failure import CANCELLED, REFUSED, Failure
from callgate.bindings.replies import CallReplies, ResultError, encoded
from callgate.bindings.requests import Request, RequestError

if TYPE_CHECKING:
    from callgate.bindings.call import Call
    from callgate.bindings.connection import Connection
    from callgate.bindings.service import HostService

#: The only operations that a guest may ask about, for the fetch program in the VM.
_ASKABLE: Final = frozenset(("fetch", "http"))
_SUBJECT_MAX: Final = 4096

#: Answers a request: at once through `Connection.send`, or with a call to be run.
Handler: TypeAlias = "Callable[[HostService, Connection, Request], Call | None]"


def _call(service: HostService, connection: Connection, request: Request) -> Call | None:
    name = request.get("name", "string")
    positional = request.get("positional", "array", [])
    named = request.get("arguments", "object", {})
    return service.prepare(connection, request, name, positional, named, CallReplies(request.number))


def _list(service: HostService, connection: Connection, request: Request) -> None:
    tools = [binding.as_tool() for name, binding in service.registry.items() if service.gate.allows(name)]
    replies = CallReplies(request.number)
    try:
        body = replies.result(encoded(tools))
    except ResultError as error:
        body = replies.failure(error.failure)
    connection.send(body)


def _cancel(service: HostService, connection: Connection, request: Request) -> None:  # noqa: ARG001 - the shape of a handler
    call = connection.calls.get(request.number)
    if call is not None:
        call.abandon(Failure(CANCELLED, f"{call.binding.name} was cancelled"))


def _authorize(service: HostService, connection: Connection, request: Request) -> None:
    scope, operation = request.get("scope", "string"), request.get("operation", "string")
    subject = request.get("subject", "string")
    if scope != "network" or operation not in _ASKABLE or len(subject) > _SUBJECT_MAX:
        raise RequestError(request.number, "only network.fetch and network.http can be asked about, for one host and port")
    message = service.gate.refusal(scope, operation, subject, request.sender)
    replies = CallReplies(request.number)
    if message is None:
        connection.send(replies.result(b"true"))
    else:
        connection.send(replies.failure(Failure(REFUSED, message, "PermissionError")))


def _command(service: HostService, connection: Connection, request: Request) -> Call | None:
    from callgate.bindings.command_line import run_command

    return run_command(service, connection, request)


def unknown(service: HostService, connection: Connection, request: Request) -> Call | None:  # noqa: ARG001
    raise RequestError(request.number, f"{request.kind[:100]!r} is not a kind of request")


#: What is answered, by kind; `add_kind` adds to it.
HANDLERS: dict[str, Handler] = {
    "call": _call,
    "list": _list,
    "cancel": _cancel,
    "authorize": _authorize,
    "command": _command,
}


def add_kind(kind: str, handler: Handler) -> None:
    """Have requests of another kind answered, in every VM. A handler runs on threads that others wait for: it must not block."""
    if kind in HANDLERS:
        raise ValueError(f"requests of kind {kind!r} are answered already")
    HANDLERS[kind] = handler
