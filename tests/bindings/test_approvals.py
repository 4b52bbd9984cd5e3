"""Approvals without a VM: what is asked, what answers do, and what a guard keeps of its function."""

from __future__ import annotations

import sys
import threading
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.bindings import approvals
from callgate.bindings.approval_requests import (
    DEFAULT_OPTIONS,
    ApprovalAnswerError,
    ApprovalError,
    ApprovalOption,
    ApprovalRejected,
    ApprovalRequest,
    ApprovalUnsatisfiable,
    Kind,
    preferred,
)
from callgate.bindings.approvals import Approvals
from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.registry import BindingRegistry, Offer
from tests.bindings.approving import Caller, answering, call, eventually, options
from tests.bindings.callable_functions import add
from tests.bindings.calling import Canary
from tests.bindings.conftest import SECONDS

KINDS: tuple[Kind, ...] = get_args(Kind)

# -- policies ----------------------------------------------------------------------------------------------------------


@given(st.sampled_from(["allow_all", "reject_all"]), st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_a_policy_prefers_once_then_always_of_its_own_side(policy: str, kinds: list[Kind]) -> None:
    side = policy.removesuffix("_all")
    offered = options(*kinds)
    wanted = [option for ending in ("once", "always") for option in offered if option.kind == f"{side}_{ending}"]
    if wanted:
        assert preferred(policy, offered, "f") is wanted[0]
    else:
        with pytest.raises(ApprovalUnsatisfiable, match=f"f: the policy {policy} would answer {side}_once or {side}_always"):
            preferred(policy, offered, "f")
    assert preferred("ask", offered, "f") is None


def test_allow_all_is_the_default_and_answers_by_itself() -> None:
    canary, broker = Canary(), Approvals()
    assert broker.policy == "allow_all"
    assert call(broker.guard(canary), path="/x") == "removed /x"
    assert canary.reached == 1
    (record,) = broker.records()
    assert (record.state, record.by, record.option) == ("answered", "policy", DEFAULT_OPTIONS[0])
    assert (record.request.binding, record.request.arguments) == ("rm", {"path": "/x"})
    assert broker.pending() == ()


def test_reject_all_rejects_without_reaching_the_function() -> None:
    canary, broker = Canary(), Approvals("reject_all")
    with pytest.raises(ApprovalRejected, match="rm was rejected: the approvals reject every call") as caught:
        call(broker.guard(canary), path="/x")
    assert not isinstance(caught.value, OSError)  # the policy did not refuse: no EACCES
    assert canary.reached == 0
    assert [(record.by, record.option) for record in broker.records()] == [("policy", DEFAULT_OPTIONS[2])]


def test_options_that_the_policy_cannot_choose_from_are_an_error_where_they_are_offered() -> None:
    with pytest.raises(ApprovalUnsatisfiable, match=r"'add'.* only allow_once, allow_always is offered"):
        Approvals("reject_all").guard(add, options=options("allow_once", "allow_always"))
    with pytest.raises(ApprovalUnsatisfiable, match="only reject_once is offered"):
        Approvals().guard(add, options=options("reject_once"))
    with pytest.raises(ApprovalUnsatisfiable, match="no option is offered"):
        Approvals("ask").guard(add, options=())
    assert issubclass(ApprovalUnsatisfiable, ValueError)


def test_a_policy_is_chosen_once() -> None:
    broker = Approvals("reject_all")
    with pytest.raises(AttributeError):
        broker.policy = "allow_all"  # type: ignore[misc]
    assert broker.policy == "reject_all"
    with pytest.raises(ValueError, match="'deny' is not a policy for approvals; it is one of allow_all, reject_all, ask"):
        Approvals(cast(Any, "deny"))
    with pytest.raises(TypeError, match="on_request must be a function, not str"):
        Approvals("ask", on_request=cast(Any, "me"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"options": ["allow"]}, TypeError, "must be an ApprovalOption, not str"),
        ({"options": options("allow_once") * 2}, ValueError, "two options have the same id"),
        ({"answer_within": 0}, ValueError, "answer_within must be more than 0 seconds"),
    ],
)
def test_what_cannot_be_guarded_is_an_error_at_once(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Approvals("ask").guard(add, **arguments)


def test_functions_that_cannot_be_bindings_cannot_be_guarded_either() -> None:
    with pytest.raises(TypeError, match="which cannot be called"):
        Approvals().guard(cast(Any, 3))
    with pytest.raises(TypeError, match=r"the guarded function .*\*rest would take any number"):
        Approvals().guard(lambda *rest: rest)
    with pytest.raises(ValueError, match="not a kind of option"):
        ApprovalOption("x", cast(Any, "maybe"), "Maybe")
    with pytest.raises(TypeError, match="an option's id is text"):
        ApprovalOption("", "allow_once", "Yes")


# -- what a guard keeps ------------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    y: float = 0.0


def described(point: Point, count: int = 3, *, note: str | None = None) -> list[Any]:
    """Says what it was given."""
    return [point.x, point.y, count, note]


def in_order(a: int, b: int = 4, /, *, c: int = 5) -> list[int]:
    return [a, b, c]


def with_context(context: BindingContext, a: int) -> list[Any]:
    return [context.pid, context.binding, a]


def free(**arguments: Any) -> dict[str, Any]:
    return arguments


OFFERS: dict[str, tuple[Offer, dict[str, Any], Any]] = {
    "plain": (add, {"a": 1, "b": 2}, 3),
    "dataclass": (described, {"point": {"x": 1, "y": 0.0}, "note": "n"}, [1, 0.0, 3, "n"]),
    "positional": (in_order, {"a": 1, "c": 2}, [1, 4, 2]),
    "context": (with_context, {"a": 1}, [0, "f", 1]),
    "object": (Canary(), {"path": "p"}, "removed p"),
    "lambda": (lambda a=1: a, {}, 1),
    "schema": (
        Binding(free, "takes some", {"type": "object", "properties": {"callgate": {"type": "integer"}}}, 7.0, True),
        {"callgate": 1, "more": 2},
        {"callgate": 1, "more": 2},
    ),
}


@pytest.mark.parametrize("kind", OFFERS)
@pytest.mark.parametrize("twice", [False, True])
def test_a_guarded_binding_is_offered_and_called_as_the_plain_one(kind: str, twice: bool) -> None:
    offer, arguments, expected = OFFERS[kind]
    broker = Approvals()
    guarded = broker.guard(broker.guard(offer)) if twice else broker.guard(offer)
    assert isinstance(guarded, Binding)
    plain, ours = BindingRegistry({"f": offer})["f"], BindingRegistry({"f": guarded})["f"]
    assert ours.as_tool() == plain.as_tool()
    assert ours.timeout == plain.timeout
    assert call(offer, "f", **arguments) == expected
    assert call(guarded, "f", **arguments) == expected
    for record in broker.records():
        shown = record.request.arguments
        assert record.request.binding == "f"
        assert {**shown, **arguments} == shown
        assert "callgate:context" not in shown
        assert "context" not in shown
    with pytest.raises(TypeError):
        call(guarded, "f", nonsense=object())


def test_what_is_shown_is_a_copy_of_what_runs() -> None:
    made: list[Approvals] = []

    def meddle(request: ApprovalRequest) -> None:
        request.arguments["point"]["x"] = 99
        with pytest.raises(FrozenInstanceError):
            request.binding = "harmless"  # type: ignore[misc]
        made[0].answer(request.id, "allow_once")

    made.append(Approvals("ask", on_request=meddle))
    assert call(made[0].guard(described), point={"x": 1})[0] == 1


def test_a_request_in_one_line_is_safe_to_print() -> None:
    request = ApprovalRequest(3, "rm", {"path": "\x1b[2J\u202eü\x9b\n", "n": [1]}, 7, "/bin/\x1bsh", DEFAULT_OPTIONS, 0.0)
    shown = str(request)
    assert shown.isprintable()
    assert shown.startswith('request 3: rm {"path": "\\u001b[2J\\u202e')
    assert "ü" in shown
    assert shown.endswith("called by process 7 (/bin/\\u001bsh)")


# -- asking ------------------------------------------------------------------------------------------------------------


def test_a_call_waits_for_its_answer_and_then_runs_once() -> None:
    canary, broker = Canary(), Approvals("ask")
    caller = Caller(broker.guard(canary), path="/x")
    eventually(broker.pending)
    (request,) = broker.pending()
    assert (request.id, request.binding, request.arguments, request.options) == (1, "rm", {"path": "/x"}, DEFAULT_OPTIONS)
    assert (request.pid, request.program) == (0, "")
    assert broker.records()[0].state == "pending"
    assert canary.reached == 0
    broker.answer(request.id, "allow_once")
    assert caller.result() == "removed /x"
    assert canary.reached == 1
    assert broker.pending() == ()
    (record,) = broker.records()
    assert (record.state, record.by, record.option) == ("answered", "answer", DEFAULT_OPTIONS[0])


def test_a_rejected_call_fails_and_its_function_is_not_reached() -> None:
    canary, broker = Canary(), answering("reject_once")
    with pytest.raises(ApprovalRejected, match="rm was rejected, in answer to request 1"):
        call(broker.guard(canary), path="/x")
    assert canary.reached == 0


def test_answers_that_fit_nothing_are_told_apart_and_change_nothing() -> None:
    canary, broker = Canary(), Approvals("ask")
    caller = Caller(broker.guard(canary, options=options("allow_once", "reject_once")), path="/x")
    eventually(broker.pending)
    with pytest.raises(KeyError, match="there is no request 2"):
        broker.answer(2, "o0")
    with pytest.raises(ApprovalAnswerError) as caught:
        broker.answer(1, "allow_once")
    assert str(caught.value) == "request 1 was not offered 'allow_once'; it was offered o0, o1"
    assert len(broker.pending()) == 1
    broker.answer(1, "o1")
    with pytest.raises(ApprovalAnswerError, match="request 1 was answered before, with o1"):
        broker.answer(1, "o0")
    assert isinstance(caller.result(), ApprovalRejected)
    late = Caller(broker.guard(canary), path="/y")
    eventually(broker.pending)
    broker.close()
    assert isinstance(late.result(), ApprovalError)
    with pytest.raises(ApprovalAnswerError, match="request 2 was withdrawn: the approvals were closed"):
        broker.answer(2, "allow_once")
    assert canary.reached == 0


def test_of_many_answers_at_once_one_counts() -> None:
    canary, broker = Canary(), Approvals("ask")
    guarded = broker.guard(canary)
    for number in range(1, 21):
        caller = Caller(guarded, path="/x")
        eventually(broker.pending)
        accepted: list[str] = []
        barrier = threading.Barrier(4)

        def answer(option: str, number: int = number, barrier: Any = barrier, accepted: list[str] = accepted) -> None:
            barrier.wait(SECONDS)
            try:
                broker.answer(number, option)
            except ApprovalAnswerError:
                return
            accepted.append(option)

        threads = [threading.Thread(target=answer, args=(option,)) for option in ("allow_once", "reject_once") * 2]
        before = canary.reached
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        outcome = caller.result()
        assert len(accepted) == 1
        assert (canary.reached - before, outcome == "removed /x") == ((1, True) if accepted == ["allow_once"] else (0, False))


@pytest.mark.parametrize("option", ["allow_always", "reject_always"])
def test_an_answer_that_lasts_answers_later_requests_of_its_binding_only(option: str) -> None:
    asked: list[tuple[int, str]] = []
    made: list[Approvals] = []

    def ask(request: ApprovalRequest) -> None:
        asked.append((request.id, request.binding))
        made[0].answer(request.id, option if request.binding == "rm" else "reject_once")

    made.append(Approvals("ask", on_request=ask))
    broker, canary, namesake = made[0], Canary(), Canary()
    guarded = broker.guard(canary)
    for path in ("/x", "/y"):
        outcome = Caller(guarded, path=path).result()
        assert outcome == f"removed {path}" if option == "allow_always" else isinstance(outcome, ApprovalRejected)
    assert asked == [(1, "rm")]
    assert [(record.by, record.option and record.option.kind) for record in broker.records()] == [
        ("answer", option),
        ("always", option),
    ]
    # Neither the same function under another name, nor another function under the same name, nor another session.
    assert isinstance(Caller(guarded, "rmdir", path="/z").result(), ApprovalRejected)
    Caller(broker.guard(namesake), path="/z").result()
    assert asked == [(1, "rm"), (3, "rmdir"), (4, "rm")]
    with pytest.raises(ApprovalRejected, match="in answer to"):
        call(answering("reject_once").guard(canary), path="/x")


def test_requests_that_wait_already_are_not_answered_by_an_answer_that_lasts() -> None:
    broker, canary = Approvals("ask"), Canary()
    guarded = broker.guard(canary)
    first = Caller(guarded, path="/x")
    eventually(broker.pending)
    second = Caller(guarded, path="/y")
    eventually(lambda: len(broker.pending()) == 2)
    broker.answer(1, "allow_always")
    assert first.result() == "removed /x"
    assert [request.id for request in broker.pending()] == [2]
    broker.answer(2, "reject_once")
    assert isinstance(second.result(), ApprovalRejected)
    assert canary.reached == 1


def test_a_question_that_cannot_be_asked_fails_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error[1]))

    def ask(_: ApprovalRequest) -> None:
        raise OSError("the terminal is gone")

    canary, broker = Canary(), Approvals("ask", on_request=ask)
    with pytest.raises(ApprovalError, match="rm was not approved: request 1 was withdrawn: asking failed with OSError"):
        call(broker.guard(canary), path="/x")
    assert canary.reached == 0
    eventually(lambda: [str(error) for error in shown] == ["the terminal is gone"])


def test_nobody_is_asked_twice_at_once_or_about_calls_that_are_given_up() -> None:
    asked: list[int] = []
    go_on = threading.Event()

    def ask(request: ApprovalRequest) -> None:
        asked.append(request.id)
        assert go_on.wait(SECONDS)
        broker.answer(request.id, "allow_once")

    broker = Approvals("ask", on_request=ask)
    first = Caller(broker.guard(Canary()), path="/x")
    eventually(lambda: asked)
    with pytest.raises(TimeoutError, match=r"nobody answered request 2, for rm, within 0\.05 seconds"):
        call(broker.guard(Canary(), answer_within=0.05), path="/y")
    third = Caller(broker.guard(Canary()), path="/z")
    eventually(lambda: [request.id for request in broker.pending()] == [1, 3])
    assert asked == [1]
    go_on.set()
    assert (first.result(), third.result()) == ("removed /x", "removed /z")
    assert asked == [1, 3]


def test_closed_approvals_approve_nothing() -> None:
    canary = Canary()
    with Approvals() as broker:
        guarded = broker.guard(canary)
    with pytest.raises(ApprovalError, match="the approvals were closed"):
        call(guarded, path="/x")
    broker.close()
    assert canary.reached == 0


def test_records_of_very_many_requests_are_forgotten_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "RECORDS_MOST", 3)
    broker = Approvals()
    guarded = broker.guard(Canary())
    for _ in range(5):
        call(guarded, path="/x")
    assert [record.request.id for record in broker.records()] == [3, 4, 5]
    monkeypatch.setattr(approvals, "RECORD_BYTES_MOST", 100)
    call(guarded, path="/" * 200)
    assert [record.request.id for record in broker.records()] == [6]
