"""An address or a socket that changes while the call is judged: who is reached is who was judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.escapes.canaries import Canary
from tests.escapes.races.racing import LENGTHS, Control, Length, assert_never_wrong, free_ports, race_in_vm

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

FLIPPERS = ("thread", "mapped", "sharer")
OPERATIONS = ("connect", "sendto", "sendmsg", "sendmmsg")
FilesOf = dict[str, "bytes | str"]


def loopback_without(pattern: str) -> dict[str, object]:
    rules = [
        {"mode": "allow", "patterns": ["127.0.0.1"]},
        {"mode": "deny", "operations": ["http"], "patterns": [pattern]},
    ]
    return {"network": {"default": "deny", "rules": rules}}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_a_flipped_port_never_reaches_the_denied_one(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, operation: str, length: Length
) -> None:
    vm = vm_factory(permissions=loopback_without("127.0.0.1:8082"), files=race_files)
    assert_never_wrong(race_in_vm(vm, flipper, operation, length, "8081", "8082"))


@pytest.mark.parametrize("operation", ["connect", "sendto"])
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_control_a_flipped_port_does_reach_the_denied_one(control: Control, flipper: str, operation: str) -> None:
    allowed, denied = free_ports(2)
    assert control.race("/nowhere", denied, flipper, operation, str(allowed), str(denied)).wrong > 0


@pytest.mark.parametrize("length", LENGTHS)
def test_a_swapped_socket_is_never_connected_in_place_of_the_judged_one(
    vm_factory: Callable[..., VM], race_files: FilesOf, length: Length
) -> None:
    vm = vm_factory(permissions=loopback_without("udp://127.0.0.1:8081"), files=race_files)
    assert_never_wrong(race_in_vm(vm, "thread", "sockets", length, "8081"))


def test_control_a_swapped_socket_is_connected_in_place_of_the_judged_one(control: Control) -> None:
    (port,) = free_ports(1)
    assert control.race("/nowhere", 0, "thread", "sockets", str(port)).wrong > 0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_a_flipped_port_never_reaches_the_denied_server_of_the_host(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, operation: str, length: Length
) -> None:
    """Outside the VM, where the supervisor dials; the sockets that the program listens with inside are not reached at all."""
    with Canary() as allowed, Canary() as denied:
        vm = vm_factory(
            permissions=loopback_without(f"127.0.0.1:{denied.port}"), files=race_files, host_ports=[allowed.port, denied.port]
        )
        tally = race_in_vm(vm, flipper, operation, length, str(allowed.port), str(denied.port))
        assert_never_wrong(tally)
        assert denied.contacts == 0
        # Of a flood of datagrams a slow server loses some; of connections none.
        assert allowed.contacts == tally.allowed if operation == "connect" else allowed.contacts > 0


@pytest.mark.parametrize("length", LENGTHS)
def test_a_swapped_socket_is_never_sent_outside_in_place_of_the_judged_one(
    vm_factory: Callable[..., VM], race_files: FilesOf, length: Length
) -> None:
    with Canary() as canary:
        policy = loopback_without(f"udp://127.0.0.1:{canary.port}")
        vm = vm_factory(permissions=policy, files=race_files, host_ports=[canary.port])
        tally = race_in_vm(vm, "thread", "sockets", length, str(canary.port))
        assert_never_wrong(tally)
        assert canary.datagrams == 0
        assert canary.connections > 0
