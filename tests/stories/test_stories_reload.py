"""A session in which a tool's source is edited three times while it goes on: good, broken, raising.

The house, the model seam, the log and the watcher are the real ones; the model is scripted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh.agent import AgentHandle, user_message
from dsh.boot import Harness, News, ProcessEnviron, Row, open_harness, watching
from dsh.catalog import records
from dsh.kernel import Plugin
from dsh.session import SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = '''
from attrs import frozen
from dsh import Context, plugin, define_tool
from dsh.kernel import required
from dsh.hooks.live import ToolRun
from dsh.tools import TOOLS, ToolRuntime

GREETING = "{greeting}"


@frozen
class Deps:
    tools: ToolRuntime = required(TOOLS)


@frozen
class Greet:
    """Whom to greet."""

    name: str


async def greet(args: Greet, run: ToolRun) -> str:
    {inside}
    return f"{{GREETING}}, {{args.name}}"


@plugin(name="greeter", deps=Deps)
async def greeter(ctx: Context, config: None, deps: Deps) -> None:
    {first}
    deps.tools.register(
        ctx, define_tool(name="greet", description="Greets.", args=Greet, output=str, execute=greet)
    )
'''
CALL = {"text": "I greet.", "tools": ({"name": "greet", "arguments": {"name": "Ines"}},)}
ROWS = (
    Row(name="scripted", config={"script": (CALL, {"text": "Done."}) * 4}),
    Row(name="permissions", config={"rules": ({"decision": "allow", "tool": "greet"},)}),
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "plugins" / "story_greeter"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))  # pyright: ignore[reportUnknownMemberType]
    yield folder
    sys.modules.pop("story_greeter", None)


def edit(package: Path, greeting: str, first: str = "pass", inside: str = "pass") -> None:
    text = SOURCE.format(greeting=greeting, first=first, inside=inside)
    (package / "__init__.py").write_text(text, encoding="utf-8")


async def greeted(harness: Harness, handle: AgentHandle) -> str:
    """One turn; what the tool said in it."""
    outcome = await handle.agent.ask(user_message("Greet Ines"))
    assert outcome.reason == records.CompletedTurnEnd()
    session = harness.service(SESSIONS).get("chat")
    assert session is not None
    results = [event.data for event in session.events if isinstance(event.data, ev.tool.Result)]
    (block,) = results[-1].message.content
    assert isinstance(block, records.TextBlock)
    return block.text


@pytest.mark.holds("BO15", "BO16", "BO21")
async def test_the_next_step_uses_the_good_edit_and_the_broken_ones_change_nothing(
    tmp_path: Path, package: Path
) -> None:
    edit(package, "Hello")
    plugin: object = import_module("story_greeter").greeter
    assert isinstance(plugin, Plugin)
    send, told = trio.open_memory_channel[News](10)
    with trio.fail_after(90):
        async with open_harness(
            profile="demo",
            rows=ROWS,
            home=tmp_path / "home",
            cwd=tmp_path,
            environ=ProcessEnviron({}),
            plugins=[plugin],
        ) as harness:
            harness.live.tell = send.send_nowait
            options = records.AgentOptions(provider="scripted", model="scripted")
            handle = await harness.agents.create("chat", options=options, cwd=str(tmp_path))
            async with watching(harness):
                assert await greeted(harness, handle) == "Hello, Ines"
                edit(package, "Salut")
                assert await told.receive() == News("reloaded", "'greeter' reloaded")
                assert await greeted(harness, handle) == "Salut, Ines"
                edit(package, 'Moin"')
                broken = await told.receive()
                assert broken.kind == "kept"
                assert "what ran before runs on" in broken.text
                assert "story_greeter/__init__.py:8: SyntaxError" in broken.text
                assert await greeted(harness, handle) == "Salut, Ines"
                edit(package, "Ahoi", "raise RuntimeError('no port')")
                raising = await told.receive()
                assert raising.kind == "kept"
                assert "what ran before runs again" in raising.text
                assert "story_greeter/__init__.py:30: RuntimeError: no port" in raising.text
                assert await greeted(harness, handle) == "Salut, Ines"
            assert harness.agents.get("chat") is handle.agent


class Gate:
    """Holds a tool's body, and knows that it is there."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.open = trio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.open.wait()


@pytest.mark.holds("BO15", "case-069")
async def test_a_call_that_runs_while_its_plugin_is_exchanged_ends_with_its_own_result(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(trio, "story_gate", gate, raising=False)
    edit(package, "Hello", inside="import trio; await trio.story_gate.wait()")
    plugin: object = import_module("story_greeter").greeter
    assert isinstance(plugin, Plugin)
    with trio.fail_after(90):
        async with open_harness(
            profile="demo",
            rows=ROWS,
            home=tmp_path / "home",
            cwd=tmp_path,
            environ=ProcessEnviron({}),
            plugins=[plugin],
        ) as harness:
            options = records.AgentOptions(provider="scripted", model="scripted")
            handle = await harness.agents.create("chat", options=options, cwd=str(tmp_path))
            said: list[str] = []

            async def turn() -> None:
                said.append(await greeted(harness, handle))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(turn)
                await gate.reached.wait()
                edit(package, "Salut")
                news = await harness.live.reload("story_greeter")
                assert news == News("reloaded", "'greeter' reloaded")
                gate.open.set()
            assert said == ["Hello, Ines"]
            assert await greeted(harness, handle) == "Salut, Ines"
