"""Several VMs started and stopped together: `setup(use={"vm": vm})`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from callgate.vm import VM


class Registry(Mapping[str, VM]):
    """VMs by name. A VM runs from its construction on; `start` only checks that all still do, and `stop` closes them."""

    def __init__(self, use: Mapping[str, VM]) -> None:
        for name, vm in use.items():
            if not isinstance(vm, VM):
                raise TypeError(f"use[{name!r}] is {type(vm).__name__}, not VM")
        self._vms = dict(use)

    def __getitem__(self, name: str) -> VM:
        return self._vms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._vms)

    def __len__(self) -> int:
        return len(self._vms)

    def start(self) -> Self:
        """Make sure that every VM runs; `ValueError` if one was closed. Calling it again does nothing more."""
        for name, vm in self._vms.items():
            if vm.closed:
                raise ValueError(f"VM {name!r} is closed and cannot be started again")
        return self

    def stop(self) -> None:
        """Close every VM, also when closing one fails. Calling it again does nothing more."""
        with ExitStack() as stack:
            for vm in self._vms.values():
                stack.callback(vm.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()


def setup(use: Mapping[str, VM]) -> Registry:
    """A registry of *use*, VMs by name."""
    return Registry(use)
