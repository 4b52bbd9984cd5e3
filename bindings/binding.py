"""A host function as the operator registers it, and what it may learn of its caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

#: A host function, sync or async; a generator function streams its results. Its arguments come from untrusted code.
HostFunction: TypeAlias = Callable[..., Any]

#: How long a call may take unless its binding says otherwise, in seconds.
CALL_SECONDS = 30.0


@dataclass(frozen=True)
class Binding:
    """A host function with what cannot be read off the function itself.

    *description* and *schema* (a JSON Schema of type object) replace the docstring and the annotations. *timeout* is in
    seconds, for each item where the function is a generator; None waits for ever. *external* says that what the function
    does happens outside the VM and outside this process.
    """

    function: HostFunction
    description: str | None = None
    schema: Mapping[str, Any] | None = None
    timeout: float | None = CALL_SECONDS
    external: bool = False


class BindingContext:
    """Who calls: given to a host function that has a parameter with this annotation.

    *binding* is the full name that was called. *pid* is the caller's process id in the VM and *program* the path of what it
    runs there, as the kernel tells them of whoever wrote the call; 0 and "" for calls made from the host and where the caller
    is gone or cannot be told.
    """

    def __init__(
        self,
        vm: Callable[[], Any] = lambda: None,
        identify: Callable[[], tuple[int, str]] = lambda: (0, ""),
        cancelled: Callable[[], bool] = lambda: False,
        binding: str = "",
    ) -> None:
        self.binding = binding
        self._vm = vm
        self._identify = identify
        self._identity: tuple[int, str] | None = None
        self._cancelled = cancelled

    @property
    def vm(self) -> Any:
        """The VM that the call came from; None once it is gone."""
        return self._vm()

    @property
    def pid(self) -> int:
        return self._caller()[0]

    @property
    def program(self) -> str:
        return self._caller()[1]

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the time is up, the caller gave up or died, or the VM is closed."""
        return self._cancelled()

    def _caller(self) -> tuple[int, str]:
        if self._identity is None:
            self._identity = self._identify()
        return self._identity
