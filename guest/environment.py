"""The VM's environment as a mapping on the host (`vm.env`): reading and changing it is judged like a guest's own access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

from callgate.kernel.confinement.environment import checked, visible


class GuestEnvironment(MutableMapping[str, str]):
    """Variables that programs started from now on begin with.

    Names whose `read` is denied are left out of the listing; asking for one, or changing one whose `write` is denied, raises
    `PermissionDenied`.
    """

    def __init__(self, values: Mapping[str, str], authorize: Callable[[str, str], None], may_read: Callable[[str], bool]) -> None:
        self._values = dict(values)
        self._authorize = authorize  # (operation, name): raises and records a refusal
        self._may_read = may_read

    def __getitem__(self, name: str) -> str:
        if not name:
            raise KeyError(name)
        self._authorize("read", name)
        return self._values[name]

    def __setitem__(self, name: str, value: str) -> None:
        checked({name: value})
        self._authorize("write", name)
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        if not name:
            raise KeyError(name)
        self._authorize("write", name)
        del self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values and isinstance(name, str) and self._may_read(name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._values.copy() if self._may_read(name)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.for_program()}>"

    def for_program(self, overlay: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a program starts with: these variables under *overlay*, the operator's own words, without unreadable names."""
        return visible({**self._values.copy(), **checked({} if overlay is None else overlay)}, self._may_read)
