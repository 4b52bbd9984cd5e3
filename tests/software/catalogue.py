"""Which software is put to work, by the shell scripts in programs/, and what each of them may leave differently."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

PROGRAMS: Final = Path(__file__).with_name("programs")
#: Makes a tree of files for the scripts that ask for it: "$MAKE_SRC" in their environment.
MAKE_SRC: Final = (PROGRAMS / "make_src.py").read_text()

VAULT: Final = "/home/agentos/vault"
SECRET: Final = "s3cret-in-the-vault"
#: What lies in the vault: something for each program to want.
VAULT_FILES: Final = {
    "key": SECRET + "\n",
    "header.h": f'#define TEXT "{SECRET}"\n',
    "test_it.py": f"import unittest\n\nclass Test(unittest.TestCase):\n    def test(self):\n        self.fail('{SECRET}')\n",
    "deep/er/note": SECRET + "\n",
}


class Software(NamedTuple):
    """One program at work: programs/NAME.sh is what it does, programs/NAME.reach.sh its attempt at the vault."""

    program: str = "sh"  # must be installed
    files: int = 0  # in the short form
    most_files: int = 0  # and in the long one; 0: there is none
    varying: tuple[str, ...] = ()  # globs of paths whose content differs from run to run on one host as well
    needs: str = ""  # a module of the Python of /usr
    brought: tuple[str, ...] = ()  # distributions of this Python that it is given, in the folder that SITE names


SOFTWARE: Final = {
    "git": Software("git", 250, 2000, ("*/.git", "*/.git/*")),
    "tar": Software("tar", 400, 5000),
    "rsync": Software("rsync", 400, 5000),
    "gcc": Software("gcc"),
    "sqlite": Software(varying=("*/data.db", "*/backup.db"), needs="sqlite3"),
    "pip": Software(needs="pip"),
    "unittest": Software(varying=("*.pyc",)),
    "pytest": Software(varying=("*.pyc",), brought=("pytest", "pluggy", "iniconfig", "packaging", "pygments")),
    "perl": Software("perl", 120),
    "node": Software("node", 120),
    "vim": Software("vim", varying=("*.un~",)),
    "cp": Software("cp", 300, 3000),
    "find": Software("find", 300, 3000),
    "grep": Software("grep", 300, 3000),
}


def script(name: str) -> str:
    """What the software does, for sh -eu in an empty directory."""
    return (PROGRAMS / f"{name}.sh").read_text()


def reach(name: str) -> str:
    """How it goes for the vault; some of its commands fail."""
    return (PROGRAMS / f"{name}.reach.sh").read_text()
