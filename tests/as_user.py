"""Runs a command as uid 65534 from a root shell, with everything the command needs within that user's reach.

    python tests/as_user.py COMMAND...

The interpreter, the environment and the clone may lie below a folder that only root may enter (an interpreter in root's
home is common). In a mount namespace of its own, each such folder is covered by an empty one that anybody may enter,
and the parts that are needed are bound back at their old places; a clone that is itself closed to others is copied
there. The host's own view does not change.
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
    """The outermost folder above `path` that other users may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def is_closed(folder: Path) -> bool:
    """Whether other users cannot read what is in `folder`: by its own mode, or by the umask it was filled under."""
    looked_at = [folder, *(entry for entry in folder.iterdir() if not entry.is_symlink())]
    return any(not entry.stat().st_mode & 0o004 for entry in looked_at)


def needed() -> list[Path]:
    """Outer folders first, so that what lies inside another is found in its place."""
    paths = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), PROJECT}
    return sorted(path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths))


def open_the_way(paths: Iterable[Path]) -> None:
    """Covers every barrier and puts the paths below it back. Must run in a private mount namespace."""
    held = [(path, barrier(path), is_closed(path), os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in paths]
    for folder in dict.fromkeys(wall for _, wall, _, _ in held if wall is not None):
        cover(folder)
    for path, wall, closed, fd in held:
        # The descriptor still leads below the cover; mount must not spell it out as a path, which would not.
        source = f"/proc/self/fd/{fd}"
        if wall is not None:
            path.mkdir(parents=True, exist_ok=True)
        if closed:
            cover(path)
            subprocess.run(["cp", "-a", f"{source}/.", path], check=True, pass_fds=[fd])
            subprocess.run(["chmod", "-R", "a+rX", path], check=True)
        elif wall is not None:
            subprocess.run(["mount", "--no-canonicalize", "--bind", source, path], check=True, pass_fds=[fd])
        os.close(fd)


def cover(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "callgate-as-user", folder], check=True)


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
