"""The host service of one VM: accepts guests' connections, answers their requests, and bounds what all of them may cost."""

from __future__ import annotations

import math
import resource
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from callgate.bindings.binding import BindingContext
from callgate.bindings.call import DATA, Call
from callgate.bindings.connection import Connection
from callgate.bindings.failure import BUSY, CANCELLED, PROTOCOL, REFUSED, UNKNOWN, Failure, raised, wrong_arguments
from callgate.bindings.form import Mismatch
from callgate.bindings.json_text import JsonError, decode
from callgate.bindings.kinds import HANDLERS, unknown
from callgate.bindings.loop import Loop
from callgate.bindings.registry import BindingRegistry, Registered
from callgate.bindings.replies import CallReplies, Replies, ResultError, encoded
from callgate.bindings.requests import Request, RequestError, parse
from callgate.bindings.turns import Party
from callgate.bindings.workers import Workers

if TYPE_CHECKING:
    from callgate.bindings.event_loop import EventLoop

#: Host functions of one VM that run at once; async ones do not count.
WORKERS_MOST: Final = 16
#: Connections of one VM; further ones are told so and closed.
CONNECTIONS_MOST: Final = 128
#: Bytes of large messages that one VM may be sending and having worked on.
ALLOWANCE: Final = 32 << 20
#: Bytes of replies that may wait for one VM's readers before further calls of it start.
UNSENT_MOST: Final = 64 << 20
_ACCEPT_AGAIN_SECONDS: Final = 0.1
#: A function whose calls took less than this a few times in a row runs on the loop's thread from then on: handing a call to a
#: worker and back costs more than such a function. One that took longer than the other limit goes to workers again.
_QUICK_SECONDS: Final = 0.002
_QUICK_CALLS: Final = 3
_SLOW_SECONDS: Final = 0.02
_SLOW_CALLS: Final = 1000


class Gate(Protocol):
    """The policy, as the service needs it."""

    def allows(self, name: str) -> bool:
        """Whether a binding may be called, without a record."""
        ...

    def has_allowed(self, name: str) -> bool:
        """Whether a call of a binding was allowed before, and would be again."""
        ...

    def refusal(self, scope: str, operation: str, subject: str, sender: int) -> str | None:
        """The message of a refusal, which is then on record; None if the operation is allowed."""
        ...

    def is_deputy(self, sender: int) -> bool:
        """Whether it was the supervisor that wrote a message, for a guest that cannot be told from it."""
        ...

    def identify(self, sender: int) -> tuple[int, str]:
        """Process id in the VM and program of a process of the host's; 0 and "" if it is none of the VM's."""
        ...


class HostService:
    """Serves one listening socket until it is closed. Everything that changes the connections happens on the loop's thread."""

    def __init__(self, listener: socket.socket, registry: BindingRegistry, gate: Gate, vm: Callable[[], Any]) -> None:
        self.registry = registry
        self.gate = gate
        self._vm = vm  # a weak reference: the loop holds the service, and a VM nobody holds should end
        self.party = Party()
        self._listener = listener
        self._workers = Workers(WORKERS_MOST)
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._calls: set[Call] = set()
        self._allowance = ALLOWANCE
        self._waiting: deque[tuple[Connection, int]] = deque()
        self._unsent = 0
        # By name: how many quick calls in a row. A slow one has to be made good by many.
        self._pace: dict[str, int] = {}
        self._held: deque[Call] = deque()  # calls that wait until readers have caught up
        self._async: EventLoop | None = None
        self._closing = False
        self._accepts_at = math.inf  # when accepting goes on, after the host ran out of descriptors
        listener.setblocking(False)
        self._loop = Loop.join()
        self._loop.run_soon(self._begin)

    # -- connections ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._loop.add_clock(self._expire)
        self._loop.watch(self.party, self._listener.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, _: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is free, say: whoever connects waits
            self._loop.rearm(self._listener.fileno(), 0)
            self._accepts_at = time.monotonic() + _ACCEPT_AGAIN_SECONDS
            self._loop.due(self._accepts_at)
            return
        self._admit(sock)

    def attach(self, sock: socket.socket) -> None:
        """Serve a guest that did not come over the listener: it has the other end of *sock*, which is the service's from now on.

        From any thread. Without `SO_PASSCRED` on *sock* nobody is the sender of its messages: process id 0. Once the service ends
        the socket is closed, which is what the guest is told.
        """
        with self._lock:
            if not self._closing:
                self._loop.run_soon(lambda: self._admit(sock))  # before `_end`, or after it on the way out: the loop runs it
                return
        sock.close()

    def _admit(self, sock: socket.socket) -> None:
        if self._closing:
            sock.close()
            return
        if len(self._connections) < CONNECTIONS_MOST and self._loop.guests < _descriptor_share():
            self._loop.guests += 1
            self._connections.add(Connection(self, self._loop, sock))
            return
        with sock, suppress(OSError):  # whoever connected may be gone already
            failure = Failure(BUSY, f"the VM has {len(self._connections)} connections to its host service, which is the most")
            body = CallReplies(None).failure(failure)
            sock.setblocking(False)
            sock.send(len(body).to_bytes(4, "big") + body, socket.MSG_NOSIGNAL)

    def forget(self, connection: Connection, reserved: int) -> None:
        """A connection has ended: nobody is left to hear of its calls."""
        self._connections.discard(connection)
        self._loop.guests -= 1
        with self._lock:
            calls = list(connection.calls.values())
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not connection)
        for call in calls:
            call.abandon(None)
        if reserved:
            self.release(reserved)

    # -- requests ------------------------------------------------------------------------------------------------------------

    def receive(self, connection: Connection, body: bytes, sender: int, reserved: int) -> Call | None:
        """Answer one message, or give the call that answers it. *reserved* bytes of the allowance are the message's."""
        call: Call | None = None
        try:
            request = parse(body, sender) if not self.gate.is_deputy(sender) else _refuse_nameless()
            call = HANDLERS.get(request.kind, unknown)(self, connection, request)
        except RequestError as error:
            connection.send(CallReplies(error.number).failure(Failure(PROTOCOL, str(error))))
        if call is not None and self._book(connection, call, reserved):
            return call
        if reserved:
            self.release(reserved)
        return None

    def complain(self, connection: Connection, text: str) -> None:
        """Tell of a stream that is no sequence of messages."""
        connection.send(CallReplies(None).failure(Failure(PROTOCOL, text)))

    def prepare(
        self,
        connection: Connection,
        request: Request,
        name: str,
        positional: list[Any],
        named: dict[str, Any],
        replies: Replies,
    ) -> Call | None:
        """The call of a binding, judged, and with its arguments checked; None if that was answered with a failure."""
        failure: Failure
        message = self.gate.refusal("binding", "*", name, request.sender)
        if message is not None:
            failure = Failure(REFUSED, message, "PermissionError")
        elif (binding := self.registry.get(name)) is None:
            failure = Failure(UNKNOWN, f"there is no binding {name!r}")
        else:
            try:
                arguments, keywords = binding.parameters.bind(positional, named)
            except Mismatch as error:
                failure = wrong_arguments(error)
            else:
                call = Call(self, connection, request.number, binding, arguments, keywords, replies)
                if binding.parameters.context is not None:
                    keywords[binding.parameters.context] = BindingContext(
                        self._vm, lambda: self.gate.identify(request.sender), lambda: call.over, name
                    )
                return call
        connection.send(replies.failure(failure))
        return None

    def _book(self, connection: Connection, call: Call, reserved: int) -> bool:
        number = call.number
        with self._lock:
            duplicate = number in connection.calls
            if not duplicate and not self._closing and not connection.closed:
                connection.calls[number] = call
                self._calls.add(call)
                call.reserved = reserved
                call.extend()
                return True
        if duplicate:
            connection.send(CallReplies(None).failure(Failure(PROTOCOL, f"the id {number} is that of a call that still runs")))
        return False

    # -- calls ---------------------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Have the call run in a worker."""
        self._workers.submit(lambda: self._work(call))

    def settle(self, call: Call) -> bool:
        """Take a call off the books; False if that happened before."""
        with self._lock:
            if call.over:
                return False
            call.over = True
            self._calls.discard(call)
            call.caller.calls.pop(call.number, None)
        if call.reserved:
            self.release(call.reserved)
        return True

    def due(self, when: float) -> None:
        """Look at the deadlines at *when* at the latest."""
        self._loop.due(when)

    def event_loop(self) -> EventLoop:
        """The loop of async functions."""
        with self._lock:
            if self._async is None:
                from callgate.bindings.event_loop import EventLoop

                self._async = EventLoop.join()
            return self._async

    def answer_here(self, connection: Connection, body: bytes) -> bool:
        """On the loop's thread: answer one message at once, if it calls a function that is known to be quick.

        Handing a call to a worker and back costs more than such a function. False: nothing was done, it is a message like others.
        Nothing may be done after True: by then another thread may be the loop's.
        """
        try:
            fields = decode(body)
            number, name = fields["id"], fields["name"]
            if self._pace.get(name, 0) < _QUICK_CALLS or fields["kind"] != "call" or self._unsent > UNSENT_MOST:
                return False
            if type(number) is not int or number in connection.calls or not self.gate.has_allowed(name):
                return False
            binding = self.registry[name]
            if binding.parameters.context is not None:
                return False  # a context tells of the call, which is made only if the function turns out slow
            arguments, keywords = binding.parameters.bind(fields.get("positional", ()), fields.get("arguments", {}))
        except (JsonError, LookupError, TypeError):
            return False  # whatever is wrong is found, and told, on the usual way
        value, failure = None, None
        adopted: list[Call] = []
        adopt = partial(self._adopt, adopted, connection, number, binding, arguments, keywords)
        before = time.monotonic()
        self._loop.begin_here(adopt)
        try:
            value = binding.function(*arguments, **keywords)
        except BaseException as error:  # noqa: BLE001 - whatever the operator's function raises is the answer to this call, no more
            failure = raised(error)
        here = self._loop.end_here(adopt)
        took = time.monotonic() - before
        if took > _QUICK_SECONDS:
            self._learn(name, took)
        if here and failure is None and type(value) in DATA:
            try:
                reply = b'{"id":%d,"ok":true,"result":%b}' % (number, encoded(value))
            except ResultError as error:
                reply = CallReplies(number).failure(error.failure)
            connection.send(reply)
        elif here and failure is not None:
            connection.send(CallReplies(number).failure(failure))
        elif here:  # a stream, or a coroutine: what is still to be done is a worker's
            self._pace[name] = -_SLOW_CALLS
            adopt()
            for each in adopted:
                self._workers.submit(lambda each=each: each.take(value))  # type: ignore[misc]
        for each in () if here else adopted:
            each.take(value) if failure is None else each.fail(failure)
        return True

    def _adopt(
        self,
        adopted: list[Call],
        connection: Connection,
        number: int,
        binding: Registered,
        arguments: list[Any],
        keywords: dict[str, Any],
    ) -> None:
        """Make a call of what runs on the loop's thread, and will be answered by whoever that thread is then."""
        made = Call(self, connection, number, binding, arguments, keywords, CallReplies(number))
        if self._book(connection, made, 0):
            adopted.append(made)

    def _learn(self, name: str, took: float) -> None:
        """Learn how quick a function is."""
        if took > _SLOW_SECONDS:
            self._pace[name] = -_SLOW_CALLS
        elif took < _QUICK_SECONDS:
            self._pace[name] = self._pace.get(name, 0) + 1

    def _work(self, call: Call) -> None:
        """In a worker."""
        if self._unsent > UNSENT_MOST and self._hold(call):
            return
        before = time.monotonic()
        call.run()
        self._learn(call.binding.name, time.monotonic() - before)

    def _hold(self, call: Call) -> bool:
        with self._lock:
            if self._unsent <= UNSENT_MOST:
                return False
            self._held.append(call)
            return True

    def _expire(self, now: float) -> float:
        with self._lock:
            late = [call for call in self._calls if call.deadline <= now]
            following = min((call.deadline for call in self._calls if call.deadline > now), default=math.inf)
        for call in late:
            call.abandon(call.out_of_time())
        if self._accepts_at <= now:
            self._accepts_at = math.inf
            self._loop.rearm(self._listener.fileno(), select.EPOLLIN)
        return min(following, self._accepts_at)

    # -- what is kept for a VM -----------------------------------------------------------------------------------------------

    def reserve(self, connection: Connection, size: int) -> bool:
        """Take *size* bytes of the allowance for the message that a connection begins; False: it is told when there are."""
        with self._lock:
            if self._waiting or self._allowance < size:
                self._waiting.append((connection, size))
                return False
            self._allowance -= size
            connection.reserved = size
            return True

    def release(self, size: int) -> None:
        """Give bytes of the allowance back."""
        served: list[Connection] = []
        with self._lock:
            self._allowance += size
            while self._waiting and self._allowance >= self._waiting[0][1]:
                connection, wanted = self._waiting.popleft()
                self._allowance -= wanted
                connection.reserved = wanted
                served.append(connection)
        for connection in served:
            self._loop.run_soon(connection.allow)

    def add_unsent(self, size: int) -> None:
        """Count replies that wait for their readers."""
        resumed: list[Call] = []
        with self._lock:
            self._unsent += size
            if self._held and self._unsent <= UNSENT_MOST:
                resumed, self._held = list(self._held), deque()
        for call in resumed:
            self.submit(call)

    # -- the end -------------------------------------------------------------------------------------------------------------

    def end(self) -> threading.Event:
        """Begin to end; the event is set once no connection is left. A finalizer may call it."""
        done = threading.Event()
        self._loop.run_soon(lambda: self._end(done))
        return done

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one that the end would have to wait for."""
        return self._loop.is_here or (self._async is not None and self._async.is_here)

    def wait(self, seconds: float) -> None:
        """Wait for host functions that still run, *seconds* at most."""
        self._workers.wait(seconds)
        if self._async is not None:
            self._async.wait_if_over(seconds)

    def _end(self, done: threading.Event) -> None:
        with self._lock:
            self._closing = True
            calls = list(self._calls)
        self._loop.remove_clock(self._expire)
        self._loop.forget(self._listener.fileno())
        self._listener.close()
        failure = Failure(CANCELLED, "the VM is being closed")
        for call in calls:
            call.abandon(failure)
        for connection in list(self._connections):
            connection.close()
        self._workers.stop()
        if self._async is not None:
            self._async.leave()
        self._loop.leave(done)


def _refuse_nameless() -> NoReturn:
    raise RequestError(None, "a message must be written with write, writev or send: sendmsg does not tell who sent it")


def _descriptor_share() -> int:
    """How many descriptors of this process's limit the connections of all guests may take: a quarter."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 4, 8) if soft != resource.RLIM_INFINITY else sys.maxsize
