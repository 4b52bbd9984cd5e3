"""name_to_handle_at: no handle is given, and what is denied is refused whether it is there or not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from errno import EACCES, EBADF, EFAULT, ENOENT, EOPNOTSUPP, EPERM
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import AT_FDCWD, Answer, Out, Probe, Raw, call, deny, judged_but_allowed, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

EMPTY_PATH, SYMLINK_FOLLOW = 0x1000, 0x400
FILES = {"/w/file": b"content"}


def handles(top: str) -> list[str]:
    """Every way to ask for a handle."""
    handle, mount = Raw(struct.pack("<Ii", 128, 0) + bytes(128)), Out(4)
    return [
        call("open", f"{top}/file", 0),
        call("name_to_handle_at", AT_FDCWD, f"{top}/file", handle, mount, 0),
        call("name_to_handle_at", AT_FDCWD, f"{top}/file", handle, mount, SYMLINK_FOLLOW),
        call("name_to_handle_at", 3, "", handle, mount, EMPTY_PATH),
        call("name_to_handle_at", AT_FDCWD, f"{top}/absent", handle, mount, 0),
        call("name_to_handle_at", AT_FDCWD, 0, handle, mount, 0),
        call("name_to_handle_at", 77, "file", handle, mount, 0),
    ]


def test_the_bare_host_gives_handles(probe: Probe, host_dir: Path) -> None:
    (host_dir / "file").write_bytes(b"content")
    (host_dir / "file").chmod(0o644)
    answers: list[Answer] = probe.on_host(handles(str(host_dir)), cwd=host_dir)
    if answers[1].result == -EOPNOTSUPP:
        pytest.skip("the host's file system has no handles")
    assert results(answers) == [3, 0, 0, 0, -ENOENT, -EFAULT, -EBADF]


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (None, [3] + [-EPERM] * 6),
        (judged_but_allowed(), [3] + [-EOPNOTSUPP] * 3 + [-ENOENT, -EFAULT, -EBADF]),
        (deny("/w/**", operations=["stat"]), [3] + [-EACCES] * 4 + [-EFAULT, -EBADF]),
    ],
    ids=["default", "judged", "denied"],
)
def test_a_vm_gives_none(
    vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object] | None, expected: list[int]
) -> None:
    vm = vm_factory(permissions=permissions, files=probe.files | FILES)
    before = tree_of(vm, "/w")
    assert results(probe.in_vm(vm, handles("/w"))) == expected
    assert tree_of(vm, "/w") == before
