"""check, explain and schema: what they print, where errors go, and how they exit."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

DENY_VAULT = '{"fs": {"default": "allow", "rules": [{"mode": "deny", "paths": ["/home/agentos/vault/**"]}]}}'


def callgate(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "callgate", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an error; nothing may be on stdout beside it."""
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("callgate: ")
    return lines[0]


def test_check_prints_the_effective_policy_complete() -> None:
    done = callgate("check", DENY_VAULT)
    assert (done.returncode, done.stderr) == (0, "")
    policy = json.loads(done.stdout)
    assert policy["fs"]["rules"] == [{"mode": "deny", "operations": ["*"], "paths": ["/home/agentos/vault/**"]}]
    assert {scope: policy[scope] for scope in ("network", "childProcess", "process", "env", "binding")} == {
        "network": "deny", "childProcess": "allow", "process": "allow", "env": "allow", "binding": "deny",
    }  # fmt: skip


def test_check_accepts_what_it_printed() -> None:
    printed = callgate("check", DENY_VAULT).stdout
    assert callgate("check", "-", stdin=printed).stdout == printed


def test_check_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text('\ufeff{"network": "allow"}', encoding="utf-8")
    assert json.loads(callgate("check", str(tmp_path / "policy.json")).stdout)["network"] == "allow"


def test_check_gives_each_mistake_a_line_with_its_place() -> None:
    done = callgate("check", '{"child_process": "deny", "fs": {"rules": [{"mode": "deny", "operations": []}]}}')
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("callgate: child_process: ")
    assert 'did you mean "childProcess"?' in lines[0]
    assert lines[1].startswith("callgate: fs.rules[0].operations: ")


def test_check_warns_of_a_rule_that_does_nothing_and_succeeds() -> None:
    rules = [{"mode": "deny", "paths": ["/a"]}, {"mode": "allow", "paths": ["**"]}]
    done = callgate("check", json.dumps({"fs": {"default": "allow", "rules": rules}}))
    assert done.returncode == 0
    assert "callgate: warning: fs.rules[" in done.stderr
    json.loads(done.stdout)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ('{"fs": ', "line 1, column"),
        ('{"fs": "deny", "fs": "allow"}', '"fs" is given twice'),
        ("/nonexistent/policy.json", "No such file or directory"),
        ("/", "Is a directory"),
        ('{"a":' * 20_000, "nested too deeply"),
        ('{"fs": %s}' % ("9" * 5000), "too many digits"),
        ("{}" + "x", "Extra data"),
    ],
)
def test_unreadable_policy_is_one_line(policy: str, says: str) -> None:
    done = callgate("check", policy)
    assert done.returncode == 2
    assert says in only_line(done)


def test_policy_that_is_no_object_is_refused() -> None:
    done = callgate("check", "-", stdin='["fs"]')
    assert done.returncode == 2
    assert "JSON object" in only_line(done)


def test_policy_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_bytes(b'{"fs": "\xff"}')
    done = callgate("check", str(tmp_path / "policy.json"))
    assert done.returncode == 2
    assert "not UTF-8" in only_line(done)


@pytest.mark.parametrize(
    ("arguments", "code", "verdict", "rule"),
    [
        (("fs", "read", "/home/agentos/vault/key"), 1, "denied", "fs.rules[0]"),
        (("fs", "read", "/home/agentos/a.txt"), 0, "allowed", "default"),
        (("network", "http", "tcp://example.com:80"), 1, "denied", "mode"),
        (("process", "*", "kill:42"), 0, "allowed", "mode"),
    ],
)
def test_explain_tells_the_verdict_the_rule_and_why(arguments: tuple[str, str, str], code: int, verdict: str, rule: str) -> None:
    done = callgate("explain", DENY_VAULT, *arguments)
    assert (done.returncode, done.stderr) == (code, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [verdict, f"rule: {rule}"]
    assert lines[2].startswith("why: ")
    if code:
        assert lines[3].startswith("message: EACCES: permission denied, ")


def test_explain_knows_the_runtime_image_as_a_vm_does() -> None:
    done = callgate("explain", '{"fs": "deny"}', "fs", "read", "/usr/lib/os-release")
    assert done.stdout.splitlines()[:2] == ["allowed", "rule: runtime image"]
    assert callgate("explain", '{"fs": "deny"}', "fs", "write", "/usr/lib/os-release").returncode == 1


@pytest.mark.parametrize(
    ("policy", "arguments", "rule"),
    [
        ({"network": "allow"}, ("network", "http", "169.254.169.254:80"), "local address"),
        ({}, ("process", "*", "ptrace:42"), "unsupported"),
        ({"process": {"default": "allow"}}, ("process", "*", "ptrace"), "unsupported"),
    ],
)
def test_explain_knows_what_no_bare_allow_opens(policy: dict[str, object], arguments: tuple[str, str, str], rule: str) -> None:
    done = callgate("explain", json.dumps(policy), *arguments)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[:2] == ["denied", f"rule: {rule}"]


@pytest.mark.parametrize("arguments", [("check", "{}"), ("explain", "{}", "fs", "read", "/"), ("schema",), ("--version",)])
def test_output_that_cannot_be_written_is_one_line(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "callgate", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "callgate: standard output: No space left on device\n")


def test_output_that_is_closed_is_one_line() -> None:
    command = f"{sys.executable} -m callgate check '{{}}' >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "callgate: standard output: Bad file descriptor\n")


def test_a_mistake_in_an_inline_policy_is_called_that_once() -> None:
    assert only_line(callgate("check", '{"fs": ')).startswith("callgate: inline policy: line 1, column")
    assert only_line(callgate("check", "-", stdin="{")).startswith("callgate: policy on standard input: line 1, column")


@pytest.mark.parametrize("loaded", ["callgate.cli.main", "argparse"])
def test_an_interrupt_while_the_command_is_loaded_is_no_traceback(loaded: str) -> None:
    script = (
        "import runpy, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {loaded!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.modules.pop('argparse', None)\n"
        "runpy.run_module('callgate', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_console_script_begins_with_what_catches_it(project: Path) -> None:
    scripts = tomllib.loads((project / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"callgate": "callgate.__main__:main"}


@pytest.mark.parametrize("command", ["run", "shell", "mcp"])
def test_help_says_what_is_not_built_yet(command: str) -> None:
    text = " ".join(callgate(command, "--help").stdout.split())
    assert "wasm is not built yet" in text
    assert "cow is not built yet" in text


@pytest.mark.parametrize("arguments", [("fsx", "read", "/"), ("fs", "raed", "/")])
def test_explain_of_an_unknown_name_hints_at_the_right_one(arguments: tuple[str, str, str]) -> None:
    done = callgate("explain", "{}", *arguments)
    assert done.returncode == 2
    assert "did you mean" in only_line(done)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fs", "read", "vault/key"), "absolute path"),
        (("fs", "read", "/home/agentos/x/../vault/key"), "'..'"),
        (("network", "http", "example.com"), "host:port, for example"),
        (("network", "http", "https://example.com/"), "host:port, for example"),
        (("env", "read", ""), "the subject is empty"),
    ],
)
def test_explain_of_what_is_no_subject_is_an_error(arguments: tuple[str, str, str], says: str) -> None:
    done = callgate("explain", DENY_VAULT, *arguments)
    assert done.returncode == 2
    assert says in only_line(done)


def test_schema_accepts_a_good_policy_and_refuses_a_bad_one() -> None:
    done = callgate("schema")
    assert (done.returncode, done.stderr) == (0, "")
    validator = jsonschema.Draft202012Validator(json.loads(done.stdout))
    assert validator.is_valid(json.loads(DENY_VAULT))
    assert not validator.is_valid({"child_process": "deny"})
    assert not validator.is_valid({"fs": "ask"})


@pytest.mark.parametrize(
    "arguments", [(), ("bogus",), ("check",), ("explain", "{}", "fs"), ("doctor", "extra"), ("run", "--bogus")]
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    done = callgate(*arguments)
    assert done.returncode == 2
    only_line(done)


@pytest.mark.parametrize(
    "arguments", ["--help", "run --help", "shell --help", "check --help", "explain --help", "schema --help", "--version"]
)
def test_help_and_version_go_to_stdout(arguments: str) -> None:
    done = callgate(*arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert "callgate" in done.stdout


def test_reader_that_leaves_is_no_traceback() -> None:
    command = f"{sys.executable} -m callgate schema | true"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
