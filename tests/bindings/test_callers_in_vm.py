"""Who calls, what becomes of calls when guests and VMs end, and registering while a VM runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Binding, BindingContext
from tests.bindings.calling import add, by_command, by_python
from tests.bindings.conftest import SECONDS, Held
from tests.vm_fixtures import callgate

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

# -- who calls -------------------------------------------------------------------------------------


def test_a_function_that_asks_learns_who_calls(vm_factory: Factory) -> None:
    seen: list[BindingContext] = []

    def whoami(context: BindingContext) -> list[Any]:
        seen.append(context)
        return [context.pid, context.program]

    vm = vm_factory(bindings={"whoami": whoami})
    assert "context" not in json.dumps(vm.bindings)
    script = (
        "import os; from callgate_guest import call; print(call('whoami') == [os.getpid(), os.path.realpath('/proc/self/exe')])"
    )
    assert vm.run(["python3", "-c", script]).stdout == "True\n"
    assert seen[-1].vm is vm
    assert vm.call("whoami") == [0, ""]
    # Where the supervisor connects on the guest's behalf, the message is still the guest's own.
    judged = vm_factory(
        {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/vault/**"]}]}},
        bindings={"whoami": whoami},
    )
    assert judged.run(["python3", "-c", script]).stdout == "True\n"


def test_nobody_can_pass_for_another_process(vm_factory: Factory) -> None:
    seen: list[int] = []

    def whoami(context: BindingContext) -> int:
        seen.append(context.pid)
        return context.pid

    forging = """
import json, os, socket, struct, subprocess, sys
other = subprocess.Popen(["sleep", "60"])
body = json.dumps({"id": 1, "kind": "call", "name": "whoami"}).encode()
message = len(body).to_bytes(4, "big") + body
s = socket.socket(socket.AF_UNIX)
s.connect("/run/callgate/host.sock")
try:
    s.sendmsg([message], [(socket.SOL_SOCKET, 2, struct.pack("3i", other.pid, os.getuid(), os.getgid()))])  # SCM_CREDENTIALS
    print("sent")
except PermissionError:
    print("refused")
s.sendall(message)
print(json.loads(s.recv(1000)[4:])["result"] == os.getpid())
other.kill()
"""
    # The supervisor refuses credentials altogether: on behalf they would be its own.
    vm = vm_factory({"network": "allow"}, bindings={"whoami": whoami})
    assert vm.run(["python3", "-c", forging]).stdout == "refused\nTrue\n"
    assert len(seen) == 1


def test_nobody_calls_without_a_name(vm_factory: Factory) -> None:
    """What the supervisor sends on behalf would be its own: a call as if from the host, and a refusal in no run."""
    reached: list[int] = []
    nameless = """
import json, os, socket
body = json.dumps({"id": 1, "kind": "call", "name": "whoami"}).encode()
message = len(body).to_bytes(4, "big") + body
s = socket.socket(socket.AF_UNIX)
s.connect("/run/callgate/host.sock")
for cut in (0, 10):
    s.sendall(message[:cut])
    s.sendmsg([message[cut:]])
    print(json.loads(s.recv(1000)[4:])["error"]["code"])
s.sendall(message)
print(json.loads(s.recv(1000)[4:])["result"] == os.getpid())
"""

    def whoami(context: BindingContext) -> int:
        reached.append(context.pid)
        return context.pid

    vm = vm_factory(bindings={"whoami": whoami})
    assert vm.run(["python3", "-c", nameless]).stdout == "protocol\nprotocol\nTrue\n"
    assert 0 not in reached
    assert len(reached) == 1


# -- the end of callers and of VMs -----------------------------------------------------------------


def test_the_call_of_a_killed_guest_is_cancelled(vm_factory: Factory) -> None:
    reached, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        reached.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    vm = vm_factory(bindings={"wait": wait})
    with pytest.raises(TimeoutError):
        vm.run(["wait"], timeout=2)
    assert reached.is_set()
    assert cancelled.wait(SECONDS)


def test_a_function_that_takes_too_long_fails_in_every_way_to_call(vm_factory: Factory) -> None:
    async def wait() -> None:
        await asyncio.sleep(3600)

    vm = vm_factory(bindings={"wait": Binding(wait, timeout=0.2)})
    assert by_python(vm, "wait").stderr == '"timeout" wait did not answer within 0.2 seconds\n'
    done = by_command(vm, "wait")
    assert (done.returncode, done.stderr) == (1, "callgate-bindings: TimeoutError: wait did not answer within 0.2 seconds\n")
    with pytest.raises(TimeoutError, match="did not answer within"):
        vm.call("wait")


def test_closing_a_vm_waits_for_no_function_for_long(vm_factory: Factory, held: Held) -> None:
    vm = vm_factory(bindings={"slow": held})
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(vm.run(["slow"])))
    thread.start()
    assert held.reached.wait(SECONDS)
    before = time.monotonic()
    vm.close()
    assert time.monotonic() - before < SECONDS
    held.released.set()
    thread.join()
    assert "the VM is being closed" in results[0].stderr


def test_a_forgotten_vm_ends_though_its_service_was_used(vm_factory: Factory) -> None:  # noqa: ARG001 - looks for leftovers
    import gc

    from callgate import VM

    vm = VM(bindings={"add": add})
    assert by_command(vm, "add", a=1, b=1).returncode == 0
    del vm
    gc.collect()


def test_calls_of_many_processes_do_not_mix_and_vms_are_independent(vm_factory: Factory) -> None:
    vms = [vm_factory(bindings={"who": lambda n=n: n}) for n in range(3)]
    script = "from callgate_guest import call; print({call('who') for _ in range(20)})"
    for n, vm in enumerate(vms):
        done = vm.run(f'for i in 1 2 3 4 5 6; do python3 -c "{script}" & done; wait')
        assert done.stdout == f"{{{n}}}\n" * 6


def test_a_forked_guest_and_its_threads_call_at_once(vm_factory: Factory) -> None:
    script = """
import os, threading
from callgate_guest import call
assert call("add", 1, 1) == 2
def many(base):
    for n in range(100):
        assert call("add", base, n) == base + n
children = []
for k in range(3):
    pid = os.fork()
    if pid == 0:
        many(k * 1000)
        os._exit(0)
    children.append(pid)
threads = [threading.Thread(target=many, args=(k * 100,)) for k in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print([os.waitpid(pid, 0)[1] for pid in children])
"""
    done = vm_factory(bindings={"add": add}).run(["python3", "-c", script])
    assert (done.stdout, done.stderr) == ("[0, 0, 0]\n", "")


# -- registering and calling from the host ---------------------------------------------------------


def test_a_decorator_registers_while_the_vm_runs(vm_factory: Factory) -> None:
    vm = vm_factory()
    assert by_python(vm, "late").returncode == 126

    @vm.binding
    def late(n: int) -> int:
        """Doubles."""
        return 2 * n

    @vm.binding(name="tools:slow", timeout=0.2)
    async def slow() -> None:
        await asyncio.sleep(3600)

    assert late(2) == 4
    assert vm.run("late --n 4").stdout == '{"ok": true, "result": 8}\n'
    assert "TimeoutError" in vm.run("tools slow").stderr
    assert vm.explain("binding", "*", "late").allowed
    assert vm.policy.decide("binding", "*", "late").allowed
    assert [tool["name"] for tool in vm.bindings] == ["late", "tools:slow"]
    with pytest.raises(ValueError, match="'late' is given twice"):
        vm.binding(late)
    strict = vm_factory({"binding": "deny"})
    strict.binding(late)
    assert by_python(strict, "late", n=1).returncode == 126


def test_a_call_from_the_host_meets_the_same_checks(vm_factory: Factory) -> None:
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    vm = vm_factory(bindings={"add": add, "later": later, "bad": lambda: {1}, "pair": lambda: (1, 2)})
    assert vm.call("later", 1) == 2
    assert vm.call("pair") == [1, 2]
    with pytest.raises(TypeError, match="b: must be an integer, not string"):
        vm.call("add", 1, b="2")
    with pytest.raises(TypeError, match="not JSON data"):
        vm.call("bad")
    with pytest.raises(KeyError):
        vm.call("unknown")


@pytest.mark.parametrize(
    ("bindings", "error", "message"),
    [
        ({"a b": add}, ValueError, "'a b' cannot name a binding: 1 to 64 of the letters"),
        ({"x" * 65: add}, ValueError, "cannot name a binding"),
        ({"..": add}, ValueError, "cannot name a binding"),
        ({"a/b": add}, ValueError, "cannot name a binding"),
        ({"g": {"h": {"i": add}}}, TypeError, "binding 'g:h' is dict, which cannot be called"),
        ({"f": Binding(add, timeout=0)}, ValueError, "the timeout must be more than 0"),
        (["add"], TypeError, "bindings must map names to functions"),
    ],
)
def test_bindings_that_cannot_be_are_refused_before_anything_starts(
    vm_factory: Factory, bindings: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        vm_factory(bindings=bindings)


@pytest.mark.parametrize("arguments", [{"files": {"/run/callgate/x": "y"}}, {"files": {"/run/callgate": "y"}}])
def test_nothing_of_the_operators_takes_the_place_of_the_service(vm_factory: Factory, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="/run/callgate"):
        vm_factory(**arguments)


def test_no_mount_covers_the_service(vm_factory: Factory, host_dir: Any) -> None:
    from callgate import HostDir

    for place in ("/run", "/run/callgate", "/run/callgate/bin"):
        with pytest.raises(ValueError, match="is the VM's own and cannot be covered"):
            vm_factory(mounts={place: HostDir(host_dir, mode="rw")})
    assert not list(host_dir.iterdir())


def test_the_command_line_tells_of_what_the_host_refused() -> None:
    done = callgate("run", "--", "sh", "-c", "callgate-bindings call nothing; cat /etc/none 2>/dev/null; true")
    assert (done.returncode, done.stdout) == (0, "")
    message = "EACCES: permission denied, binding://nothing: blocked by binding.invoke policy"
    assert done.stderr == f"callgate-bindings: {message}\ncallgate: 1 operation refused\ncallgate:   {message}\n"


def test_a_forked_copy_of_the_host_leaves_the_service_to_its_owner(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": add})
    assert by_command(vm, "add", a=1, b=1).returncode == 0
    child = os.fork()
    if child == 0:
        vm.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert by_command(vm, "add", a=1, b=2).stdout == '{"ok": true, "result": 3}\n'


def test_a_function_may_use_its_own_vm(vm_factory: Factory) -> None:
    def nested(context: BindingContext, depth: int) -> str:
        if depth == 0:
            return "bottom"
        done = context.vm.run(["callgate-bindings", "call", "nested", "--depth", str(depth - 1)])
        return str(json.loads(done.stdout)["result"])

    vm = vm_factory(bindings={"nested": nested})
    for _ in range(4):  # quick at depth 0, so that the deeper ones begin on the serving thread
        assert vm.run("nested --depth 0").stdout == '{"ok": true, "result": "bottom"}\n'
    assert vm.run("nested --depth 3").stdout == '{"ok": true, "result": "bottom"}\n'


def test_a_function_may_close_its_own_vm(vm_factory: Factory) -> None:
    def stop(context: BindingContext) -> None:
        context.vm.close()

    vm = vm_factory(bindings={"stop": stop})
    with contextlib.suppress(Exception):  # the run, and with it the VM, ends in the middle
        vm.run("stop")
    deadline = time.monotonic() + SECONDS
    while not vm.closed and time.monotonic() < deadline:  # the guest may hear of the end before all of it is over
        time.sleep(0.01)
    assert vm.closed
