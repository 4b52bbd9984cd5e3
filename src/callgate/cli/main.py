"""Parses the command line, runs one subcommand and turns every error into one line and an exit code (SPEC section 6).

2    usage: the command line, the policy or a file it names is wrong; nothing was started
125  the VM could not be started; nothing ran unconfined
74, 124, 126, 127 and the program's own code come from `run` (run.py)
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from callgate.cli.messages import CANNOT_START, SIGNALLED, USAGE, StartError, UsageError, complain, write_no_more
from callgate.scopes.errors import InternalError, PermissionDenied, PolicyError, Unsupported

POLICY_HELP: Final = "a file name, inline JSON (starting with '{'), or '-' for standard input"


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see `{self.prog} --help`)")
        raise SystemExit(USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code. `argv` leaves out the program's name."""
    _open_closed_streams()
    arguments = _parser().parse_args(argv)
    try:
        return _carry_out(arguments)
    except UsageError as error:
        complain(str(error))
        return USAGE
    except PolicyError as error:
        for problem in error.problems:
            complain(str(problem))
        return USAGE
    except (StartError, Unsupported, PermissionDenied) as error:
        complain(str(error))
        return CANNOT_START
    except InternalError as error:
        complain(f"internal error, please report it: {error}")
        return CANNOT_START
    except BrokenPipeError:
        write_no_more(1)  # whoever read our output has left
        return SIGNALLED + signal.SIGPIPE
    except OSError as error:  # a full disk
        complain(f"standard output: {error.strerror}")
        write_no_more(1)
        return USAGE
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT


def _carry_out(arguments: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = arguments.command_function
    code = command(arguments)
    if sys.stdout is not None:
        sys.stdout.flush()  # here, where it can still be told that nobody takes it
    return code


def _open_closed_streams() -> None:
    """Puts /dev/null where the caller closed 0, 1 or 2: the next descriptor opened would otherwise take its place.

    Who writes to one that was closed is told so (EBADF) as if it still were: nothing is lost in silence.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # open(2) takes the lowest number that is free, which is this one. Child processes have theirs too.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
            if fd == 1:
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it is as standard as the others


def _parser() -> Parser:
    parser = Parser(prog="callgate", description="Runs untrusted programs in a private VM, under a permission policy.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(command_function=_version_or_help(parser))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a program in a fresh VM",
        usage="callgate run [options] [--] PROGRAM [ARGUMENT ...]",
        description="Runs PROGRAM in a fresh VM. Its exit code is passed on (128 + N when signal N ended it) and so are its "
        "standard streams; what was refused is summed up on stderr afterwards.",
        epilog="exit codes: the program's own; 2 wrong usage or policy; 74 the program succeeded, but its output could not be "
        "written; 124 timeout; 125 the VM could not be started; 126 the "
        "program cannot be executed; 127 there is no such program",
    )
    _add_vm_options(run)
    _add_run_options(run)
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT ...]")
    run.set_defaults(command_function=_run)

    shell = commands.add_parser(
        "shell", help="an interactive shell in a fresh VM", description="As run, with /bin/sh as PROGRAM."
    )
    _add_vm_options(shell)
    _add_run_options(shell)
    shell.set_defaults(command_function=_shell)

    serve = commands.add_parser(
        "mcp",
        help="serve a VM to an MCP client",
        description="Serves one VM over standard input and output as an MCP server with the tools run, read_file, write_file, "
        "list_dir, fetch_port and explain, all judged by the policy, the program that run is told to start too. Ends with the "
        "client's standard input, or by SIGINT, SIGTERM or SIGHUP. Needs the package mcp: pip install 'callgate[mcp]'",
        epilog="exit codes: 0 the client has left; 128 + N signal N came; 2 wrong usage or policy; 125 the VM could not be "
        "started",
    )
    _add_vm_options(serve)
    serve.set_defaults(command_function=_mcp)

    check = commands.add_parser(
        "check", help="validate a policy", description="Prints the effective policy as JSON, or each mistake with its place."
    )
    check.add_argument("policy", metavar="POLICY", help=POLICY_HELP)
    check.set_defaults(command_function=_check)

    explain = commands.add_parser(
        "explain",
        help="say what a policy decides and why",
        description="Prints the verdict, what decided it and why. Only the policy is asked: links are not followed and names not "
        "looked up, so give the path that a link leads to. Exit code 0: allowed; 1: denied; 2: error",
    )
    explain.add_argument("policy", metavar="POLICY", help=POLICY_HELP)
    explain.add_argument("scope", metavar="SCOPE", help="fs, network, childProcess, process, env or binding")
    explain.add_argument("operation", metavar="OPERATION", help="one of the scope's operations; '*' in process and binding")
    explain.add_argument(
        "subject",
        metavar="SUBJECT",
        help="an absolute path without '..', host:port (for dns a host), command, action:pid, variable or binding",
    )
    explain.set_defaults(command_function=_explain)

    schema = commands.add_parser("schema", help="print the JSON Schema of a policy")
    schema.set_defaults(command_function=_schema)

    doctor = commands.add_parser(
        "doctor",
        help="say what this host can enforce",
        description="Looks at the kernel, then proves enforcement in real VMs. Exit code 0: everything is enforced; 1: it is not",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    doctor.set_defaults(command_function=_doctor)
    return parser


def _add_vm_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--policy", metavar="POLICY", help=f"{POLICY_HELP}; without it the secure default")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="H", help="let the guest reach this host or host:port (repeatable)"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME=ADDRESS[:PORT]",
        help="make a name stand for an endpoint, a local one too; the policy still judges the name (repeatable)",
    )
    parser.add_argument(
        "--host-port",
        action="append",
        default=[],
        metavar="N",
        help="show this port of the host's loopback as the guest's own; the policy still judges it (repeatable)",
    )
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="SRC:DST[:ro|rw|cow]",
        help="show the host folder SRC at DST in the VM, read-only unless :rw is given; cow is not built yet (repeatable)",
    )
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="set a variable of the guest (repeatable)")
    parser.add_argument("--cwd", metavar="D", help="working directory in the VM")
    parser.add_argument("--noexec", action="store_true", help="nothing that the guest can write is executed")
    parser.add_argument(
        "--guest", default="native", choices=["native", "wasm"], help="kind of guest (default: native); wasm is not built yet"
    )
    parser.add_argument("--engine", default="auto", metavar="E", help="what enforces the policy (default: auto)")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=N",
        help="bound what the guest may use (repeatable): memory, disk, file_size (512M), processes, open_files, cpu_seconds",
    )
    parser.add_argument(
        "--best-effort",
        action="append",
        default=[],
        metavar="NAME",
        help="start although this limit (memory, cpu_seconds, or cgroup for both) cannot be enforced fully here (repeatable)",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """What concerns the one program that is run."""
    parser.add_argument("--timeout", metavar="SECONDS", help="end everything after this time and exit with 124")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on stderr in place of the summary: returncode, timed_out, duration (seconds), error, exceeded "
        "(limits), denials and dropped_denials (how many have no record)",
    )
    parser.add_argument("--audit", metavar="FILE", help="append every refusal to FILE, one JSON object a line")


def _version_or_help(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def show(arguments: argparse.Namespace) -> int:
        if not arguments.version:
            complain("which command? (see `callgate --help`)")
            return USAGE
        from callgate import __version__

        print(f"{parser.prog} {__version__}")
        return 0

    return show


# Each subcommand loads its own part of the package: start-up time is part of the product.


def _run(arguments: argparse.Namespace) -> int:
    from callgate.cli.run import run

    argv = arguments.program
    return run(arguments, argv[1:] if argv[:1] == ["--"] else argv)


def _shell(arguments: argparse.Namespace) -> int:
    from callgate.cli.run import run

    return run(arguments, ["/bin/sh", "-i"] if sys.stdin is not None and sys.stdin.isatty() else ["/bin/sh"])


def _mcp(arguments: argparse.Namespace) -> int:
    from callgate.cli.mcp import mcp

    return mcp(arguments)


def _check(arguments: argparse.Namespace) -> int:
    from callgate.cli.policy import check

    return check(arguments.policy)


def _explain(arguments: argparse.Namespace) -> int:
    from callgate.cli.policy import explain

    return explain(arguments.policy, arguments.scope, arguments.operation, arguments.subject)


def _schema(_: argparse.Namespace) -> int:
    from callgate.cli.policy import schema

    return schema()


def _doctor(arguments: argparse.Namespace) -> int:
    from callgate.cli.doctor import doctor

    return doctor(as_json=arguments.json)
