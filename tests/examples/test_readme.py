"""What the README shows is what happens."""

from __future__ import annotations

import re
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
        exec(compile(spawning, "README.md", "exec"), {**public, "vm": vm})
    assert "No targets" in (tmp_path / "build.log").read_text()
    assert "asyncio.gather" in gathering
    compile("async def shown():\n" + "".join(f"    {line}\n" for line in gathering.splitlines()), "README.md", "exec")
    limits = limiting[limiting.index("Limits(") : limiting.rindex(")")]
    assert set(eval(limits, public).given()) == set(callgate.Limits.__dataclass_fields__)


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
