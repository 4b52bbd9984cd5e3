"""Bindings in real VMs: the scope (AOS-23 to 25, 56, 57), the ways to call, who the caller is, and no other scope in the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Binding, BindingContext, PermissionDenied
from tests.bindings.conftest import SECONDS, Held
from tests.vm_fixtures import callgate

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

NODE_CALL = """
const net = require("net"), socket = net.connect("/run/callgate/host.sock");
const body = Buffer.from(JSON.stringify({id: 1, kind: "call", name: process.argv[1], arguments: JSON.parse(process.argv[2])}));
const head = Buffer.alloc(4);
head.writeUInt32BE(body.length);
socket.write(Buffer.concat([head, body]));
let data = Buffer.alloc(0);
socket.on("data", chunk => {
  data = Buffer.concat([data, chunk]);
  if (data.length >= 4 && data.length >= 4 + data.readUInt32BE(0)) {
    const reply = JSON.parse(data.subarray(4));
    console.log(JSON.stringify(reply.ok ? reply.result : reply.error.code));
    socket.end();
  }
});
"""

PYTHON_CALL = """
import json, sys
from callgate_guest import BindingError, call
try:
    print(json.dumps(call(sys.argv[1], **json.loads(sys.argv[2]))))
except PermissionError as error:
    print(json.dumps("EACCES"), error.errno, error, file=sys.stderr)
    sys.exit(126)
except BindingError as error:
    print(json.dumps(error.code), error, file=sys.stderr)
    sys.exit(1)
"""


class Canary:
    """A host function that notes when it was reached."""

    def __init__(self) -> None:
        self.reached = 0

    def __call__(self, path: str) -> str:
        self.reached += 1
        return f"removed {path}"


def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def by_python(vm: VM, name: str, **arguments: Any) -> Any:
    return vm.run(["python3", "-c", PYTHON_CALL, name, json.dumps(arguments)], timeout=60)


def by_command(vm: VM, name: str, **arguments: Any) -> Any:
    return vm.run(["callgate-bindings", "call", name, "--json", json.dumps(arguments)], timeout=60)


def only(*names: str) -> dict[str, Any]:
    return {"binding": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": list(names)}]}}


# -- the scope -------------------------------------------------------------------------------------


def test_without_bindings_every_name_is_refused(vm_factory: Factory) -> None:
    vm = vm_factory()
    done = by_python(vm, "anything")
    message = "EACCES: permission denied, binding://anything: blocked by binding.invoke policy"
    assert (done.returncode, done.stderr) == (126, f'"EACCES" 13 {message}\n')
    done = by_command(vm, "anything")
    assert (done.returncode, done.stdout, done.stderr) == (126, "", f"callgate-bindings: {message}\n")
    assert [(d.scope, d.operation, d.subject, d.message) for d in done.denials] == [("binding", "*", "anything", message)]
    with pytest.raises(PermissionDenied, match="binding://anything"):
        vm.call("anything")


def test_registering_grants_where_no_policy_says_otherwise(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": add})
    assert by_python(vm, "add", a=2, b=3).stdout == "5\n"
    assert by_command(vm, "add", a=2, b=3).stdout == '{"ok": true, "result": 5}\n'
    assert vm.call("add", 2, 3) == 5
    assert vm.denials == ()


@pytest.mark.parametrize("policy", [only("add"), {"binding": "deny"}])
def test_a_policy_gates_each_binding_and_the_refused_one_is_not_reached(vm_factory: Factory, policy: dict[str, Any]) -> None:
    remove = Canary()
    control = vm_factory(bindings={"add": add, "rm": remove})
    assert by_python(control, "rm", path="/x").stdout == '"removed /x"\n'
    assert remove.reached == 1
    vm = vm_factory(policy, bindings={"add": add, "rm": remove})
    refused = "EACCES: permission denied, binding://rm: blocked by binding.invoke policy"
    for done in (
        by_python(vm, "rm", path="/x"),
        by_command(vm, "rm", path="/x"),
        vm.run(["/run/callgate/bin/rm", "--path", "/x"]),
    ):
        assert done.returncode == 126
        assert refused in done.stderr
        assert [denial.message for denial in done.denials] == [refused]
    with pytest.raises(PermissionDenied, match="binding://rm"):
        vm.call("rm", path="/x")
    assert remove.reached == 1
    assert [denial.message for denial in vm.denials] == [refused] * 4
    assert by_python(vm, "add", a=1, b=1).returncode == (126 if policy == {"binding": "deny"} else 0)


def test_patterns_reach_into_groups(vm_factory: Factory) -> None:
    vm = vm_factory(only("math:*"), bindings={"math": {"add": add, "sub": lambda a, b: a - b}, "add": add})
    assert by_python(vm, "math:sub", a=5, b=3).stdout == "2\n"
    assert by_python(vm, "add", a=5, b=3).returncode == 126
    listed = json.loads(vm.run(["callgate-bindings", "list", "--json"]).stdout)
    assert [tool["name"] for tool in listed] == ["math:add", "math:sub"]


def test_a_refusal_names_its_process_and_stands_in_its_own_run(vm_factory: Factory) -> None:
    vm = vm_factory()
    done = vm.run("callgate-bindings call one; sh -c 'callgate-bindings call two'; true")
    assert [denial.subject for denial in done.denials] == ["one", "two"]
    assert all(denial.pid > 1 for denial in done.denials)
    assert {denial.program for denial in done.denials} == {"/run/callgate/bin/callgate-bindings"}
    assert vm.run(["true"]).denials == ()
    runs: dict[str, Any] = {}

    def run(name: str) -> None:
        runs[name] = vm.run(f"for i in 1 2 3 4 5; do callgate-bindings call {name}; done")

    threads = [threading.Thread(target=run, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, result in runs.items():
        assert [denial.subject for denial in result.denials] == [name] * 5


# -- no other scope is in the way ------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        {"fs": "deny"},
        {"fs": "allow", "network": "deny"},
        {"fs": {"default": "deny", "rules": []}},
        {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/**"]}]}, "network": "allow"},
        {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["write"], "paths": ["/run/**"]}]}},
        {"network": {"default": "deny", "rules": [{"mode": "allow", "operations": ["http"], "patterns": ["localhost"]}]}},
        {"process": "deny"},
        {"env": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["AWS_*"]}]}},
    ],
)
def test_bindings_are_reached_under_any_policy_of_the_other_scopes(vm_factory: Factory, policy: dict[str, Any]) -> None:
    vm = vm_factory(policy, bindings={"add": add}, files={"/home/agentos/secret": "s3cret"})
    everything = {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/**"]}]}
    if policy.get("fs") != everything:  # which forbids even to start a program
        assert by_python(vm, "add", a=2, b=3).stdout == "5\n"
    probe = vm.run(["/run/callgate/bin/add", "--a", "2", "--b", "3"])
    if policy.get("fs") != everything:
        assert probe.stdout == '{"ok": true, "result": 5}\n'


def test_what_lets_guests_reach_the_socket_lets_them_do_nothing_else_there(vm_factory: Factory) -> None:
    vm = vm_factory({"fs": "deny"}, bindings={"add": add})
    script = """
import os
for call in ("open('/run/callgate/x', 'w')", "os.unlink('/run/callgate/host.sock')",
             "os.rename('/run/callgate/host.sock', '/run/callgate/y')",
             "os.mkdir('/run/callgate/d')", "os.chmod('/run/callgate/host.sock', 0)", "os.symlink('/', '/run/callgate/l')",
             "open('/run/callgate/bin/callgate-bindings', 'r+')", "os.listdir('/run')"):
    try:
        eval(call)
        print("worked", call)
    except PermissionError:
        pass
"""
    assert vm.run(["python3", "-c", script]).stdout == ""
    assert by_python(vm, "add", a=1, b=1).stdout == "2\n"


def test_the_programs_need_the_permission_to_be_started_like_any_other(vm_factory: Factory) -> None:
    vm = vm_factory({"childProcess": "deny"}, bindings={"add": add})
    done = vm.run("add --a 1 --b 1")
    assert done.returncode == 126
    assert "spawn" in done.denials[0].message
    assert by_python(vm, "add", a=1, b=1).stdout == "2\n"


def test_they_also_work_where_nothing_written_may_be_executed(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": add}, noexec=True)
    assert vm.run("add --a 1 --b 1").stdout == '{"ok": true, "result": 2}\n'


# -- the commands ----------------------------------------------------------------------------------


def search(query: str, limit: int = 10, exact: bool = False, tags: list[str] | None = None) -> dict[str, Any]:
    """Searches the archive.

    Gives back what it was asked.
    """
    return {"query": query, "limit": limit, "exact": exact, "tags": tags}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("search --query 'a b'", {"query": "a b", "limit": 10, "exact": False, "tags": None}),
        ("search --query 5 --limit=3 --exact", {"query": "5", "limit": 3, "exact": True, "tags": None}),
        ("search --query= --no-exact --tags '[\"x\"]'", {"query": "", "limit": 10, "exact": False, "tags": ["x"]}),
        ('search --json \'{"query": "é\\n\\""}\' --limit 4', {"query": 'é\n"', "limit": 4, "exact": False, "tags": None}),
        ('echo \'{"query": "in"}\' > f; search --json-file f', {"query": "in", "limit": 10, "exact": False, "tags": None}),
        ('echo \'{"query": "in"}\' | search --json-file=-', {"query": "in", "limit": 10, "exact": False, "tags": None}),
    ],
)
def test_a_command_takes_its_arguments_as_typed(vm_factory: Factory, line: str, expected: dict[str, Any]) -> None:
    done = vm_factory(bindings={"search": search}).run(line)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"ok": True, "result": expected}


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("search", 1, "search: TypeError: missing: query"),
        ("search --query", 2, "search: --query needs a value"),
        ("search word", 2, "search: 'word' is no option: arguments are given by name, as in --query VALUE"),
        ("search --limit ten --query x", 1, "search: TypeError: limit: must be an integer, not string"),
        (
            "search --query x --color red",
            1,
            "search: TypeError: there is no argument 'color'; it takes query, limit, exact, tags",
        ),
        ("search --json '[1]'", 2, "search: --json: must be one JSON object that holds the arguments"),
        ("search --json '{'", 2, "search: --json: not JSON"),
        ("search --json-file /no/such", 2, "search: /no/such: No such file or directory"),
        ("search --query \"$(printf '\\377')\"", 1, "search: the host refused the request"),
        ("fail", 1, "fail: ValueError: on purpose"),
        ("math", 0, ""),
        ("math nothing --a 1", 1, "math: there is no binding 'math:nothing'"),
        ("math --a 1", 2, "math: a name is expected before --a (see math --help)"),
        ("callgate-bindings frobnicate", 2, "callgate-bindings: list or call is expected"),
    ],
)
def test_a_command_says_what_is_wrong_on_stderr_alone(vm_factory: Factory, line: str, code: int, message: str) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    done = vm_factory(bindings={"search": search, "fail": fail, "math": {"add": add}}).run(line)
    assert done.returncode == code
    assert message in done.stderr
    assert (done.stdout == "") == (code != 0)


def test_commands_explain_themselves(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"search": search, "math": {"add": add}})
    assert vm.run("search --help").stdout.splitlines() == [
        "usage: search --query string [...]",
        "",
        "Searches the archive.",
        "",
        "Gives back what it was asked.",
        "",
        "  --query  string  (required)",
        "  --limit  integer  (default 10)",
        "  --exact  boolean  (default false)",
        "  --tags  array|null  (default null)",
        "  --json OBJECT, --json-file FILE  all arguments as one JSON object",
    ]
    assert vm.run("math --help").stdout.splitlines()[1].split() == ["add", "Adds", "two", "integers."]
    assert vm.run("callgate-bindings list").stdout == "search    Searches the archive.\nmath:add  Adds two integers.\n"
    listed = json.loads(vm.run("callgate-bindings list --json").stdout)
    assert listed == vm.bindings
    assert listed[1]["inputSchema"]["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}


def count(to: int) -> Iterator[int]:
    """Counts."""
    yield from range(to)


def test_streams_come_line_by_line_in_a_command_and_as_an_iterator_in_python(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"count": count})
    lines = [{"ok": True, "item": 0}, {"ok": True, "item": 1}, {"ok": True, "done": True}]
    assert [json.loads(line) for line in vm.run("count --to 2").stdout.splitlines()] == lines
    script = """
from callgate_guest import call
it = call("count", 10**9)
print(next(it), next(it))
it.close()
print(list(call("count", 0)), list(call("count", 3)))
"""
    done = vm.run(["python3", "-c", script])
    assert (done.stdout, done.stderr) == ("0 1\n[] [0, 1, 2]\n", "")
    assert list(vm.call("count", to=3)) == [0, 1, 2]


# -- other languages -------------------------------------------------------------------------------


def test_a_node_script_speaks_the_plain_protocol(vm_factory: Factory) -> None:
    vm = vm_factory(only("add"), bindings={"add": add, "rm": Canary()})
    assert vm.run(["node", "-e", NODE_CALL, "add", '{"a": 2, "b": 3}']).stdout == "5\n"
    refused = vm.run(["node", "-e", NODE_CALL, "rm", '{"path": "/"}'])
    assert (refused.stdout, [denial.subject for denial in refused.denials]) == ('"EACCES"\n', ["rm"])


def test_a_shell_script_uses_the_commands_without_any_interpreter(vm_factory: Factory) -> None:
    vm = vm_factory(
        {"fs": {"default": "deny", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/usr/**/python3*"]}]}},
        bindings={"add": add},
    )
    assert vm.run(["sh", "-c", 'total=$(add --a 2 --b 3) && echo "$total"']).stdout == '{"ok": true, "result": 5}\n'


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
    assert vm.closed
