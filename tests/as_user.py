"""Runs a command as uid 65534 from a root shell, with everything the command needs within that user's reach.

    python tests/as_user.py COMMAND...

The interpreter, the environment and the clone may lie below a folder that only root may enter (an interpreter in root's
home is common). In a mount namespace of its own, each such folder is covered by an empty one that anybody may enter,
and the parts that are needed are bound back at their old places. The host's own view does not change.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

UID = 65534
PROJECT = Path(__file__).resolve().parents[1]


def barrier(path: Path) -> Path | None:
    """The outermost folder on the way to `path` that other users may not enter."""
    for folder in [*reversed(path.parents), path]:
        if not folder.stat().st_mode & 0o001:
            return folder
    return None


def needed() -> set[Path]:
    return {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), PROJECT}


def open_the_way(paths: Iterable[Path]) -> None:
    """Covers every barrier and binds the paths below it back. Must run in a private mount namespace."""
    blocked: dict[Path, list[tuple[Path, int]]] = {}
    for path in sorted(paths):
        if (wall := barrier(path)) is None:
            continue
        if wall == path:
            raise SystemExit(f"as_user: {path} itself is closed to other users: chmod o+rx it")
        blocked.setdefault(wall, []).append((path, os.open(path, os.O_PATH | os.O_DIRECTORY)))
    for wall, held in blocked.items():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "callgate-as-user", wall], check=True)
        for path, fd in held:
            path.mkdir(parents=True, exist_ok=True)
            # The descriptor still leads below the cover; mount must not spell it out as a path, which would not.
            source = f"/proc/self/fd/{fd}"
            subprocess.run(["mount", "--no-canonicalize", "--bind", source, path], check=True, pass_fds=[fd])
            os.close(fd)


def inside(home: Path, command: list[str]) -> None:
    open_the_way(needed())
    os.environ.update(HOME=str(home), TMPDIR=str(home), USER="nobody", LOGNAME="nobody")
    identity = ["--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
    os.chdir(PROJECT)
    os.execvp("setpriv", ["setpriv", *identity, *command])


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--inside"]:
        inside(Path(arguments[1]), arguments[2:])
    if not arguments or os.geteuid() != 0:
        print("as_user: needs root and a command", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="callgate-as-user-") as home:
        os.chown(home, UID, UID)
        private = ["unshare", "--mount", "--propagation", "private"]
        return subprocess.run([*private, sys.executable, __file__, "--inside", home, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
