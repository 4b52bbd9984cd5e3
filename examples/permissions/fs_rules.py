"""Rules over paths: everything but one folder, and nothing but one folder."""

from __future__ import annotations

from callgate import VM
from callgate.scopes import Permissions
from examples import report

DENY_VAULT: Permissions = {
    "fs": {
        "default": "allow",
        "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/home/agentos/vault/**"]}],
    },
}

ALLOW_ONLY_DATA: Permissions = {
    "fs": {
        "default": "deny",
        "rules": [{"mode": "allow", "operations": ["read", "readdir", "stat"], "paths": ["/home/agentos/data/**"]}],
    },
}


def main() -> None:
    report.title("Everything but the vault:", DENY_VAULT)
    files = {"/home/agentos/vault/key": "s3cret", "/home/agentos/notes.txt": "remember the milk"}
    with VM(DENY_VAULT, files=files) as vm:
        report.run(vm, ["cat", "/home/agentos/notes.txt"])
        report.run(vm, ["cat", "/home/agentos/vault/key"])
        report.run(vm, ["ls", "/home/agentos/vault"])
        report.run(vm, ["mv", "/home/agentos/vault", "/home/agentos/open"])
        report.run(vm, "ln -s vault/key alias; cat alias")
        report.run(vm, "cp notes.txt copy.txt && cat copy.txt")

    report.title("Nothing but reading the data:", ALLOW_ONLY_DATA)
    files = {"/home/agentos/data/table.csv": "a,b\n1,2\n", "/home/agentos/notes.txt": "remember the milk"}
    with VM(ALLOW_ONLY_DATA, files=files) as vm:
        report.run(vm, ["cat", "/home/agentos/data/table.csv"])
        report.run(vm, ["ls", "/home/agentos/data"])
        report.run(vm, ["cat", "/home/agentos/notes.txt"])
        report.run(vm, ["rm", "-f", "/home/agentos/data/table.csv"])
        report.run(vm, ["sh", "-c", "echo 3,4 >> /home/agentos/data/table.csv"])


if __name__ == "__main__":
    report.show(main)
