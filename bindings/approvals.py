"""Asks a person, or the host application, before certain bindings run.

The layer above the policy: the binding scope judges a call first, and what it refuses never gets here. What is approved here is
one call of one host function, or all of them in this session; nothing that a VM may do by itself.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, get_args

from callgate.bindings.approval_journal import Journal
from callgate.bindings.approval_requests import (
    DEFAULT_OPTIONS,
    ApprovalAnswerError,
    ApprovalError,
    ApprovalJournalError,
    ApprovalOption,
    ApprovalPolicy,
    ApprovalRecord,
    ApprovalRejected,
    ApprovalRequest,
    check_options,
    preferred,
)
from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.errands import Errands
from callgate.bindings.json_text import JsonError, decode, encode
from callgate.bindings.pause import Pause
from callgate.bindings.registry import Offer, Prepared, prepare

#: Decided requests that `records` remembers: this many, and not more than these bytes of arguments. The journal has all.
RECORDS_MOST: Final = 10_000
RECORD_BYTES_MOST: Final = 32 << 20

#: The name under which a guard is given the BindingContext if its function takes none; no parameter can be called so.
_CONTEXT: Final = "callgate:context"


class Approvals:
    """Who approves calls in one session, and what was answered.

    *policy*, which cannot be changed: `allow_all` and `reject_all` answer every request themselves; `ask` holds each call until
    `answer` is called with its request's id. *journal* is a file that records every step before it takes effect; it is made if
    there is none, continued if there is one, and locked. *on_request* is called with each `ApprovalRequest` that asks, in a
    thread of its own and one after the other: it may answer, or wait for somebody who does. If it raises, the call fails.

    `ApprovalJournalError` if the journal cannot be used. Close it after the VMs that use it.
    """

    def __init__(
        self,
        policy: ApprovalPolicy = "allow_all",
        *,
        journal: str | os.PathLike[str] | None = None,
        on_request: Callable[[ApprovalRequest], object] | None = None,
    ) -> None:
        if policy not in get_args(ApprovalPolicy):
            raise ValueError(f"{policy!r} is not a policy for approvals; it is one of {', '.join(get_args(ApprovalPolicy))}")
        if on_request is not None and not callable(on_request):
            raise TypeError(f"on_request must be a function, not {type(on_request).__name__}")
        self._policy: ApprovalPolicy = policy
        self._on_request = on_request
        self._lock = threading.Lock()  # of everything below, and of the order in the journal
        self._next = 1
        self._open: dict[int, _Asked] = {}
        self._decided: deque[tuple[ApprovalRecord, int]] = deque()  # each with the bytes of its arguments
        self._decided_bytes = 0
        self._always: dict[tuple[_Guard, str], ApprovalOption] = {}
        self._closed = False
        self._notices = Errands("callgate-approvals-ask")
        self._withdrawals = Errands("callgate-approvals")
        self._journal = None if journal is None else Journal(journal)
        if self._journal is not None:
            try:
                self._read(self._journal)
            except BaseException:
                self._journal.close()
                raise

    @property
    def policy(self) -> ApprovalPolicy:
        """What was chosen when this was made."""
        return self._policy

    def guard(
        self, offer: Offer, /, *, options: Sequence[ApprovalOption] = DEFAULT_OPTIONS, answer_within: float | None = None
    ) -> Binding:
        """A binding that asks before its function runs, for `VM(bindings=)`; otherwise the same as *offer*.

        While it waits for an answer a call holds no thread. It waits for *answer_within* seconds, or as long as a call of the
        binding may take; once it is allowed, the function has the time of the binding to itself.

        `ApprovalUnsatisfiable` if the policy could choose none of *options*; `TypeError` and `ValueError` for what cannot be a
        binding, and for options that cannot be told apart.
        """
        function = offer.function if isinstance(offer, Binding) else offer
        name = str(getattr(function, "__name__", type(function).__name__))
        what = f"the guarded function {name!r}"
        inner = prepare(offer, what)
        if answer_within is not None and not answer_within > 0:
            raise ValueError(f"{what}: answer_within must be more than 0 seconds, or None")
        given = check_options(options, what)
        guarded = _Guard(self, inner, name, given, preferred(self._policy, given, what), answer_within)
        own = inner.parameters.context
        return replace(inner, function=guarded, parameters=inner.parameters if own else inner.parameters.with_context(_CONTEXT))

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The requests that wait for an answer, the oldest first."""
        with self._lock:
            return tuple(asked.request for asked in self._open.values() if asked.given_up is None)

    def records(self) -> tuple[ApprovalRecord, ...]:
        """What became of every request, those of the journal's earlier sessions included, by id; of very many, the last."""
        with self._lock:
            found = [record for record, _ in self._decided] + [ApprovalRecord(asked.request) for asked in self._open.values()]
        return tuple(sorted(found, key=lambda record: record.request.id))

    def answer(self, request_id: int, option_id: str) -> None:
        """Answer a request with one of its options; from any thread.

        `ApprovalAnswerError` (a KeyError) if there is no such request, it was answered or withdrawn before, or the option was not
        offered. `ApprovalJournalError` if the answer cannot be recorded: it was not given then, and the request still waits.
        """
        with self._lock:
            asked = self._open.get(request_id)
            if asked is None or asked.given_up is not None:
                raise ApprovalAnswerError(self._why_not(request_id, asked))
            request = asked.request
            option = request.option(option_id)
            if option is None:
                offered = ", ".join(each.id for each in request.options)
                raise ApprovalAnswerError(f"request {request_id} was not offered {option_id!r}; it was offered {offered}")
            record = ApprovalRecord(request, "answered", option, "answer", time=time.time())
            self._write(record.as_entry())
            if option.lasts:
                self._always[asked.guard, request.binding] = option
            callbacks = self._decide(asked, record)
        for callback in callbacks:
            callback()

    def close(self) -> None:
        """Withdraw what is pending, whose calls fail, and let go of the journal; later calls fail too. Again: nothing."""
        with self._lock:
            self._closed = True
            left = list(self._open.values())
        for asked in left:
            self._withdraw(asked, "the approvals were closed")
        with self._lock:
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    # -- asking ------------------------------------------------------------------------------------------------------------

    def _ask(self, guard: _Guard, context: BindingContext, arguments: dict[str, Any], go: Callable[[], Any]) -> Any:
        """What *go* gives if the call is allowed at once, or the pause until it is; `ApprovalRejected` if it is not."""
        name = context.binding or guard.name
        try:
            text = encode(arguments)
        except JsonError as error:
            raise ApprovalError(f"{name}: nobody can be asked, because its arguments cannot be shown as JSON: {error}") from None
        program = context.program.encode("utf-8", "backslashreplace").decode()
        asked: _Asked | None = None
        with self._lock:
            if self._closed:
                raise ApprovalError(f"{name}: nobody can be asked, because the approvals were closed")
            request = ApprovalRequest(self._next, name, decode(text), context.pid, program, guard.options, time.time())
            earlier = self._always.get((guard, name))
            option = guard.chosen or earlier
            if option is None:
                self._write(request.as_entry())
                asked = self._open[request.id] = _Asked(self, guard, request, go, len(text))
            else:
                record = ApprovalRecord(request, "answered", option, "policy" if guard.chosen else "always", time=request.time)
                self._write(request.as_entry(), record.as_entry())
                self._keep(record, len(text))
            self._next += 1
        if asked is not None:
            if self._on_request is not None:
                self._notices.add(partial(self._notify, asked, self._on_request))
            return asked
        if option is not None and not option.allows:
            why = "the approvals reject every call" if guard.chosen else "an earlier answer was for every call of it"
            raise ApprovalRejected(f"{name} was rejected: {why}")
        return go()

    def _notify(self, asked: _Asked, on_request: Callable[[ApprovalRequest], object]) -> None:
        if asked.given_up is not None or asked.record is not None:
            return
        try:
            on_request(asked.request)
        except BaseException as error:
            self._withdraw(asked, f"asking failed with {type(error).__name__}")
            raise

    def _withdraw(self, asked: _Asked, why: str) -> None:
        """Take a request back, unless it is decided."""
        with self._lock:
            if asked.record is not None:
                return
            record = ApprovalRecord(asked.request, "withdrawn", why=asked.given_up or why, time=time.time())
            try:
                self._write(record.as_entry())
            except ApprovalJournalError as error:
                # It takes effect all the same: nobody waits. A request without an answer is read as withdrawn anyway.
                record = replace(record, why=f"{record.why} (which is not on record: {error})")
            callbacks = self._decide(asked, record)
        for callback in callbacks:
            callback()

    # -- under the lock ----------------------------------------------------------------------------------------------------

    def _decide(self, asked: _Asked, record: ApprovalRecord) -> list[Callable[[], object]]:
        """Make a decision known; gives what is to be called without the lock."""
        asked.record = record
        del self._open[record.request.id]
        self._keep(record, asked.size)
        callbacks, asked.callbacks = asked.callbacks, []
        return callbacks

    def _keep(self, record: ApprovalRecord, size: int) -> None:
        self._decided.append((record, size))
        self._decided_bytes += size
        while len(self._decided) > RECORDS_MOST or (self._decided_bytes > RECORD_BYTES_MOST and len(self._decided) > 1):
            self._decided_bytes -= self._decided.popleft()[1]

    def _why_not(self, request_id: int, asked: _Asked | None) -> str:
        """Why a request cannot be answered."""
        if asked is not None:
            return f"request {request_id} was withdrawn: {asked.given_up}"
        for record, _ in self._decided:
            if record.request.id == request_id:
                if record.option is not None:
                    return f"request {request_id} was answered before, with {record.option.id}"
                return f"request {request_id} was withdrawn: {record.why}"
        return f"there is no request {request_id!r}, or none that is remembered"

    def _write(self, *entries: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(*entries)

    # -- the journal of earlier sessions -------------------------------------------------------------------------------------

    def _read(self, journal: Journal) -> None:
        unanswered: dict[int, ApprovalRequest] = {}
        for entry in journal.entries():
            if entry["event"] == "torn":
                continue
            try:
                self._read_entry(entry, unanswered)
            except (KeyError, TypeError, ValueError) as error:
                raise ApprovalJournalError(
                    f"{journal.path} is no journal of approvals, or something else has written to it: the {entry['event']} of id "
                    f"{entry['id']} is not as it is written here ({error!r}); move it away"
                ) from error
        now = time.time()
        for request in unanswered.values():
            record = ApprovalRecord(request, "withdrawn", why="the session that asked has ended", time=now)
            journal.append(record.as_entry())
            self._keep(record, len(encode(request.arguments)))
        if journal.torn:
            warnings.warn(
                f"the journal of approvals {journal.path} ended in half a line, as a crash leaves it. That step had "
                "not taken effect; the text now stands there in an event of its own",
                RuntimeWarning,
                stacklevel=3,
            )

    def _read_entry(self, entry: dict[str, Any], unanswered: dict[int, ApprovalRequest]) -> None:
        number = entry["id"]
        if entry["event"] != "request":
            record = ApprovalRecord.from_entry(unanswered.pop(number), entry)
            self._keep(record, len(encode(record.request.arguments)))
        elif number < self._next:
            raise ValueError("its number was used before")
        else:
            unanswered[number] = ApprovalRequest.from_entry(entry)
            self._next = number + 1


class _Guard:
    """The function of a guarded binding."""

    def __init__(
        self,
        approvals: Approvals,
        inner: Prepared,
        name: str,
        options: tuple[ApprovalOption, ...],
        chosen: ApprovalOption | None,
        seconds: float | None,
    ) -> None:
        self._approvals = approvals
        self._inner = inner
        self.name = name  # where nobody says which name was called
        self.options = options
        self.chosen = chosen  # by the policy
        self.seconds = seconds
        self.limit = inner.timeout if seconds is None else seconds

    def __call__(self, /, *positional: Any, **named: Any) -> Any:
        parameters = self._inner.parameters
        shown = {**dict(zip(parameters.positional_only, positional, strict=False)), **named}
        context = shown.pop(parameters.context or _CONTEXT, None)
        if parameters.context is None:
            named.pop(_CONTEXT, None)
        go = partial(self._inner.function, *positional, **named)
        return self._approvals._ask(self, context or BindingContext(), shown, go)


class _Asked(Pause):
    """A call that waits for an answer."""

    def __init__(self, approvals: Approvals, guard: _Guard, request: ApprovalRequest, go: Callable[[], Any], size: int) -> None:
        self._approvals = approvals
        self._go = go
        self.guard = guard
        self.request = request
        self.size = size  # of the arguments, in bytes
        self.seconds = guard.seconds
        self.given_up: str | None = None  # why nobody waits any more; the withdrawal is then on its way
        self.record: ApprovalRecord | None = None  # once it is decided
        self.callbacks: list[Callable[[], object]] = []

    def when_over(self, callback: Callable[[], object]) -> None:
        with self._approvals._lock:
            if self.record is None:
                self.callbacks.append(callback)
                return
        callback()

    def go_on(self) -> Any:
        record = self.record
        if record is None:
            raise RuntimeError("the pause is not over")
        if record.option is None:
            raise ApprovalError(f"{self.request.binding} was not approved: request {self.request.id} was withdrawn: {record.why}")
        if not record.option.allows:
            raise ApprovalRejected(f"{self.request.binding} was rejected, in answer to request {self.request.id}")
        return self._go()

    def give_up(self, why: str) -> None:
        if self.record is None and self.given_up is None:
            self.given_up = why
            # Recorded elsewhere: a thread that others wait for must not wait for the disk.
            self._approvals._withdrawals.add(partial(self._approvals._withdraw, self, why))

    def out_of_time(self) -> str:
        within = "in time" if self.guard.limit is None else f"within {self.guard.limit:g} seconds"
        return f"nobody answered request {self.request.id}, for {self.request.binding}, {within}"
