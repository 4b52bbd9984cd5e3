"""What the README shows is what happens."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest


def blocks(project: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (project / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.vm
@pytest.mark.usefixtures("leaves_nothing")
def test_first_example_gives_what_its_comments_say(project: Path) -> None:
    source = blocks(project, "python")[0]
    shown = re.findall(r"^    (r\.\S+|str\(r\.\S+\)) +# (.*)$", source, flags=re.MULTILINE)
    assert len(shown) == 3
    collected: dict[str, object] = {}
    collecting = "".join(f"    collected[{expression!r}] = {expression}\n" for expression, _ in shown)
    exec(compile(source + collecting, "README.md", "exec"), {"collected": collected})
    assert {name: str(value).strip() for name, value in collected.items()} == dict(shown)


def test_second_example_is_python_and_names_what_exists(project: Path) -> None:
    import callgate

    source = blocks(project, "python")[1]
    compile(source, "README.md", "exec")
    for name in set(re.findall(r"\bvm\.([a-z]+)", source)):
        assert hasattr(callgate.VM, name), name


def test_examples_of_running_programs_do_what_they_say(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import callgate

    monkeypatch.chdir(tmp_path)
    python = blocks(project, "python")
    spawning, gathering, limiting = (
        next(block for block in python if word in block) for word in ("vm.spawn(", "asyncio.gather(", "limits=Limits(")
    )
    public = {name: getattr(callgate, name) for name in callgate.__all__}
    with callgate.VM() as vm:
        names: dict[str, object] = {**public, "vm": vm}
        exec(compile(spawning, "README.md", "exec"), names)
    assert (names["echo"], names["answer"]) == ("6\n", "42\n")
    assert '# "6\\n" and "42\\n": ' in spawning
    assert "No targets" in (tmp_path / "build.log").read_text()
    assert "asyncio.gather" in gathering
    compile("async def shown():\n" + "".join(f"    {line}\n" for line in gathering.splitlines()), "README.md", "exec")
    limits = limiting[limiting.index("Limits(") : limiting.rindex(")")]
    assert set(eval(limits, public).given()) == set(callgate.Limits.__dataclass_fields__)


def test_examples_of_running_programs_pass_a_type_checker(project: Path, tmp_path: Path) -> None:
    spawning = next(block for block in blocks(project, "python") if "vm.spawn(" in block)
    shown = tmp_path / "shown.py"
    shown.write_text("from callgate import DEVNULL, STDOUT, VM\n\nvm = VM()\n" + spawning)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from callgate import VM\n\nVM().spawn('true').stdin.write(b'')\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    environment = {"MYPYPATH": str(project / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, str(shown), str(wrong)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # Bytes for a text stream are still found: the streams are not just anything.
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [error.partition(":")[0] for error in errors] == ["wrong.py"], done.stdout + done.stderr


def test_names_that_are_awaited_are_those_it_says(project: Path) -> None:
    import callgate

    said = (project / "README.md").read_text().split("What may take a moment is awaited:")[1].split("`on_stdout=`")[0]
    awaited, plain = said.split("The rest is plain:")

    def names(text: str) -> set[str]:
        return set(re.findall(r"`(\w+)`", text))

    def coroutines(kind: type) -> set[str]:
        return {name for name, value in vars(kind).items() if name[0] != "_" and inspect.iscoroutinefunction(value)}

    kinds = callgate.aio.VM, callgate.aio.Process
    assert names(awaited) - {"fs"} == coroutines(kinds[0]) | coroutines(kinds[1])
    for name in names(plain):
        assert any(hasattr(kind, name) for kind in kinds), name


def test_set_up_is_exactly_two_commands(project: Path) -> None:
    section = (project / "README.md").read_text().split("## Set up")[1].split("\n## ")[0]
    assert re.findall(r"^    (.+)$", section, flags=re.MULTILINE) == ["make demo", "make test"]


def test_every_file_it_links_to_exists(project: Path) -> None:
    for page in (project / "README.md", project / "docs" / "reading-order.md", project / "docs" / "design.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_file_the_reading_order_names_exists(project: Path) -> None:
    text = (project / "docs" / "reading-order.md").read_text()
    names = set(re.findall(r"`([\w./]+(?:\.py|\.c|\.h|\.md|/))`", text))
    assert len(names) > 20
    top = [
        "",
        "kernel",
        "kernel/native",
        "kernel/syscalls",
        "kernel/confinement",
        "kernel/egress",
        "scopes",
        "guest",
        "src/callgate",
    ]
    missing = [name for name in names if not any((project / folder / name).exists() for folder in top)]
    assert not missing
