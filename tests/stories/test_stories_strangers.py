"""Plugins of strangers: installed beside ours, and every way in which they can be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.llm.scripted import ScriptEntry
from dsh.testing.command_line import CommandLine, refused
from dsh.testing.model_server import open_model_server

if TYPE_CHECKING:
    from pathlib import Path

PLUGINS = """\
from dsh import Context, catalog as ev, plugin

@plugin(name="acme.notice")
async def notice(ctx: Context) -> None:
    @ctx.on(ev.turn.START)
    def deaf(event: object) -> None:
        raise ValueError("cannot hear \\x1b[2J")

@plugin(name="acme.guard")
async def guard(ctx: Context) -> None:
    @ctx.on(ev.agent.PRE_STEP)
    async def refuse(step, call_next):
        raise KeyError("nobody caught me")

@plugin(name="acme.answer")
async def answer(ctx: Context) -> None:
    @ctx.on(ev.agent.PRE_STEP)
    async def refuse(step, call_next):
        return 5

@plugin(name="acme.start")
async def start(ctx: Context) -> None:
    raise OSError("no such thing")

@plugin(name="acme.unused")
async def unused(ctx: Context) -> None:
    ctx.on(ev.turn.START)
"""

ENTRY_POINTS = "[dsh.plugins]\n" + "".join(
    f"acme.{name} = acme_plugins:{name}\n"
    for name in ("notice", "guard", "answer", "start", "unused")
)


@pytest.fixture
def having(cli: CommandLine, tmp_path: Path) -> CommandLine:
    """The command with a stranger's distribution installed."""
    site = tmp_path / "site"
    info = site / "acme_plugins-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: acme-plugins\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (site / "acme_plugins.py").write_text(PLUGINS, encoding="utf-8")
    path = cli.environment().get("PYTHONPATH", "")
    return cli.having(PYTHONPATH=f"{path}:{site}")


def using(cli: CommandLine, name: str) -> list[str]:
    (cli.workspace / "c.yml").write_text(f"- name: {name}\n", encoding="utf-8")
    return ["run", "--config", "c.yml", "hi"]


@pytest.mark.holds("CL17")
async def test_a_contained_failure_is_one_line_and_the_run_goes_on(having: CommandLine) -> None:
    async with open_model_server([ScriptEntry(text="fine")]) as server:
        ran = await having.talking_to(server).run(*using(having, "acme.notice"))
    assert (ran.code, ran.out) == (0, "fine\n")
    (warning,) = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
    for word in ("acme.notice", "turn/start", "acme_plugins.py:5", "cannot hear \\x1b[2J"):
        assert word in warning
    assert "Traceback" not in ran.err


@pytest.mark.holds("CL17")
async def test_debug_shows_the_traceback_of_a_contained_failure(having: CommandLine) -> None:
    async with open_model_server([ScriptEntry(text="fine")]) as server:
        command = [*using(having, "acme.notice"), "--debug"]
        ran = await having.talking_to(server).run(*command)
    assert ran.code == 0
    assert "ValueError: cannot hear \\x1b[2J" in ran.err
    assert "Traceback" in ran.err


@pytest.mark.holds("CL17")
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("acme.guard", 1, ("nobody caught me", "plugin 'acme.guard', in refuse at", "py:13")),
        ("acme.answer", 1, ("'acme.answer' answered int to 'agent/pre-step'", "Enter or Reject")),
        ("acme.start", 2, ("c.yml:1:3: plugin 'acme.start' failed: ", ": no such thing")),
        ("acme.unused", 2, ("acme.unused", "py:27", "listener")),
    ],
)
async def test_a_plugin_that_ends_the_run_is_named_with_its_line(
    having: CommandLine, name: str, code: int, words: tuple[str, ...]
) -> None:
    async with open_model_server([ScriptEntry(text="fine")]) as server:
        ran = await having.talking_to(server).run(*using(having, name))
    refused(ran, *words, code=code)
