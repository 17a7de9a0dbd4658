"""`docs/first-plugin.md`, done: made, type-checked, tested, broken on purpose, seen at work."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.cli.plugins.template import Names, files_of
from dsh.testing.command_line import refused
from dsh.testing.talking import talking

if TYPE_CHECKING:
    from dsh.testing.command_line import CommandLine

PAGE = Path(__file__).parents[2] / "docs" / "first-plugin.md"
PATIENCE = 240.0


def blocks(language: str) -> list[str]:
    """The page's blocks in one language."""
    page = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def test_the_page_shows_exactly_what_is_made() -> None:
    files = files_of(Names("token-guard"))
    shown = blocks("python") + blocks("yaml")
    made = ("src/dsh_token_guard/plugin.py", "tests/test_plugin.py", "dsh.yml")
    assert shown == [files[path] for path in made]


@pytest.mark.holds("CL33")
async def test_a_new_plugin_is_green_and_a_misspelt_hook_is_red(cli: CommandLine) -> None:
    command = [sys.executable, "-m", "dsh.cli", "plugin", "new", "token-guard"]
    with trio.fail_after(PATIENCE):
        made = await trio.run_process(
            command, cwd=cli.workspace, env=cli.environment(), capture_stdout=True,
            capture_stderr=True, check=False,
        )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, b"")
    said = made.stdout.decode()
    assert f"$ dsh plugin new token-guard\n{said}" in blocks("console")
    place = cli.workspace / "token-guard"
    refused(await cli.run("plugin", "new", "token-guard"), "is not empty", code=2)
    source = place / "src" / "dsh_token_guard" / "plugin.py"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("PRE_STEP)", "PRE_STPE)"), encoding="utf-8")
    mypy = partial(trio.run_process, [sys.executable, "-m", "mypy"], capture_stdout=True)
    with trio.fail_after(PATIENCE):
        checked = await mypy(cwd=place, env=cli.environment(), check=False)
    assert checked.returncode == 1
    assert blocks("text")[0].strip() in checked.stdout.decode()


async def installed(cli: CommandLine) -> tuple[Path, CommandLine]:
    """The plugin, made and visible to dsh as an installed one is."""
    made = await cli.run("plugin", "new", "token-guard", "--no-check")
    assert made.code == 0
    place = cli.workspace / "token-guard"
    info = place / "src" / "dsh_token_guard-0.1.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: dsh-token-guard\nVersion: 0.1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = "[dsh.plugins]\ntoken-guard = dsh_token_guard.plugin:token_guard\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    path = cli.environment().get("PYTHONPATH", "")
    return place, cli.having(PYTHONPATH=f"{path}:{place / 'src'}")


@pytest.mark.holds("CL33")
async def test_the_new_plugin_decides_in_the_demo(cli: CommandLine) -> None:
    place, here = await installed(cli)
    ran = await here.run("run", "--profile", "demo", "--config", str(place / "dsh.yml"))
    assert ran.code == 3
    assert "blocked by token-guard: the limit of 2 is reached" in ran.err


@pytest.mark.holds("CL35")
async def test_it_is_followed_while_somebody_talks(cli: CommandLine) -> None:
    place, here = await installed(cli)
    source = place / "src" / "dsh_token_guard" / "plugin.py"
    text = source.read_text(encoding="utf-8")
    arguments = ("--profile", "demo", "--config", str(place / "dsh.yml"))
    async with talking(here, *arguments) as person:
        source.write_text(text.replace("the limit of", "no more than"), encoding="utf-8")
        await person.sees("-- 'token-guard' reloaded --")
        source.write_text(text.replace("async def guard(", "async def guard(("), encoding="utf-8")
        await person.sees("'token-guard' not reloaded, what ran before runs on")
        await person.sees("plugin.py:")
        await person.sends("go")
        await person.sees("turn 1 blocked by token-guard: no more than 2 is reached")
        await person.presses("\x04")
        assert await person.ended() == 0
        assert "Traceback" not in person.shown


@pytest.mark.holds("CL33")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Token_Guard", ["did you mean 'token-guard'?"]),
        ("shell", ["taken by"]),
        ("tools", ["one of dsh's own"]),
        ("lambda", ["a word of Python"]),
        ("-x", ["NAME", "dsh plugin new --help"]),
    ],
)
async def test_a_name_that_cannot_be_is_refused(
    cli: CommandLine, name: str, words: list[str]
) -> None:
    refused(await cli.run("plugin", "new", name), *words, code=2)
    assert list(cli.workspace.iterdir()) == []
