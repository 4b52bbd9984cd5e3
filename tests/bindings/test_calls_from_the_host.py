"""`vm.call`: a call from the host has the time that a guest's has, and what it runs in does not show."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Binding, BindingContext

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]


def test_a_sync_function_has_the_time_of_its_binding_and_its_result_is_thrown_away(vm_factory: Factory) -> None:
    go_on, seen = threading.Event(), []

    def slow(context: BindingContext) -> str:
        go_on.wait(60)
        seen.append(context.cancelled)
        return "too late"

    vm = vm_factory(bindings={"slow": Binding(slow, timeout=0.2), "quick": Binding(lambda: 1, timeout=0.2)})
    try:
        with pytest.raises(TimeoutError, match=r"slow did not answer within 0\.2 seconds"):
            vm.call("slow")
        assert vm.call("quick") == 1
    finally:
        go_on.set()
    for thread in threading.enumerate():
        if thread.name == "callgate-call":
            thread.join(60)
    assert seen == [True]


def test_each_item_of_a_stream_has_its_time(vm_factory: Factory) -> None:
    go_on, closed = threading.Event(), []

    def stream() -> Iterator[int]:
        try:
            yield 1
            yield 2
            go_on.wait(60)
            yield 3
        finally:
            closed.append(True)

    vm = vm_factory(bindings={"stream": Binding(stream, timeout=0.2)})
    items = vm.call("stream")
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(TimeoutError, match="stream did not answer"):
        next(items)
    assert not closed
    go_on.set()
    left = vm.call("stream")
    assert next(left) == 1
    closed.clear()
    left.close()
    assert closed == [True]
    assert list(vm.call("stream")) == [1, 2, 3]


@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError, KeyboardInterrupt, SystemExit, StopIteration])
def test_what_the_function_raises_is_raised_as_it_is(vm_factory: Factory, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("own words")

    vm = vm_factory(bindings={"fail": fail})
    with pytest.raises(error, match=r"^own words$"):
        vm.call("fail")


def test_a_function_may_call_others_through_the_vm_and_sees_the_callers_context(vm_factory: Factory) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def down(n: int, context: BindingContext) -> int:
        return 0 if n == 0 else 1 + context.vm.call("down", n - 1)

    vm = vm_factory(bindings={"down": down, "variable": lambda: variable.get()})
    assert vm.call("down", 40) == 40
    variable.set("the caller's")
    assert vm.call("variable") == "the caller's"


def test_an_async_function_may_call_a_sync_one_that_calls_back(vm_factory: Factory) -> None:
    async def outer(context: BindingContext) -> Any:
        return context.vm.call("middle")

    def middle(context: BindingContext) -> str:
        try:
            return str(context.vm.call("inner"))
        except RuntimeError as error:
            return str(error)

    async def inner() -> int:
        return 1

    vm = vm_factory(bindings={"outer": outer, "middle": middle, "inner": inner})
    assert "cannot be called from another one" in vm.call("outer")


def test_without_a_timeout_it_runs_in_the_callers_thread(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"where": Binding(threading.get_ident, schema={"type": "object"}, timeout=None)})
    assert vm.call("where") == threading.get_ident()


def test_an_unknown_name_is_told_with_those_there_are(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": lambda a: a, "math": {"mul": lambda a: a}})
    with pytest.raises(KeyError) as unknown:
        vm.call("nope")
    assert unknown.value.args == ("there is no binding 'nope'; there are: add, math:mul",)
    with pytest.raises(TypeError, match="name of a binding must be str, not int"):
        vm.call(3)  # type: ignore[arg-type]
