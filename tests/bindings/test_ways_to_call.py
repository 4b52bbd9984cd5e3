"""The ways to call bindings in real VMs: the commands, streams, other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from callgate import Binding
from tests.bindings.calling import NODE_CALL, Canary, add, only

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

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


@dataclass
class Line:
    item: str
    count: int = 1


@dataclass
class Order:
    lines: list[Line]
    way: Literal["post", "courier"]
    gift: Line | None = None


def order(order: Order, mode: Literal["x", 1, None] = "x", kinds: list[Literal["p", "q"]] | None = None) -> None:
    """Orders."""


def test_help_of_a_command_shows_the_fields_and_values_that_it_takes(vm_factory: Factory) -> None:
    assert vm_factory(bindings={"order": order}).run("order --help").stdout.splitlines() == [
        "usage: order --order object [...]",
        "",
        "Orders.",
        "",
        "  --order  object  (required)",
        "      lines  array of object  (required)",
        "          item  string  (required)",
        "          count  integer",
        "      way  post|courier  (required)",
        "      gift  object|null",
        "          item  string  (required)",
        "          count  integer",
        '  --mode  x|1|null  (default "x")',
        "  --kinds  array of p|q|null  (default null)",
        "  --json OBJECT, --json-file FILE  all arguments as one JSON object",
    ]


def test_help_follows_references_and_a_schema_that_holds_itself_ends(vm_factory: Factory) -> None:
    node = {
        "type": "object",
        "properties": {"value": {"type": "integer", "description": "what it holds"}, "next": {"$ref": "#/$defs/node"}},
    }
    either = {"anyOf": [{"$ref": "#/$defs/either"}, {"type": "null"}]}
    properties = {"tree": {"$ref": "#/$defs/node"}, "either": {"$ref": "#/$defs/either"}}
    schema = {"type": "object", "properties": properties, "$defs": {"node": node, "either": either}}
    bindings = {"plant": Binding(lambda **_: None, schema=schema)}
    lines = vm_factory(bindings=bindings).run("plant --help").stdout.splitlines()
    at = lines.index("  --tree  object")
    assert lines[at + 1 : at + 3] == ["      value  integer  what it holds", "      next  object"]
    assert len(lines) < 20


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
        "  --tags  array of string|null  (default null)",
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
