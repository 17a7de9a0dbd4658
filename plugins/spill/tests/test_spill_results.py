"""Large results: what is spilled, exactly at the bound, between characters; what is left alone."""

from __future__ import annotations

import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from dsh import catalog as ev
from dsh.hooks.live import ToolSuccess
from dsh.testing import always_review, echo_tool, open_tool_room, text_blocks
from dsh_plugins.spill import spill
from dsh_plugins.spill.catalog import SpillConfig
from dsh_plugins.spill.preview import preview

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dsh import Context
    from dsh.hooks import live
    from dsh.testing import EchoArgs, ToolRoom
    from dsh.tools import Finished

LIMIT = 2_048


@attrs.define
class House:
    """A tool room with `spill` and a tool that returns what it is told."""

    room: ToolRoom
    root: Path
    author: Context

    async def run(self, text: str, name: str = "echo", *, parent: object = None) -> Finished:
        async def body(_args: EchoArgs, _run: live.ToolRun) -> str:
            return text

        held = self.room.tools.register(self.author, echo_tool(body, name=name))
        agent = cast(
            "live.Agent",
            SimpleNamespace(
                id="main", scope=self.room.scope, session=SimpleNamespace(id="../evil/s")
            ),
        )
        given = attrs.evolve(self.room.call(name), agent=agent, parent=parent)
        finished = await self.room.tools.execute(given)
        held.dispose()
        return finished

    def files(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.is_file()]


def text_of(finished: Finished) -> str:
    (block,) = finished.result.content
    assert isinstance(block, ev.records.TextBlock)
    return block.text


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    root = tmp_path / "spills"
    async with open_tool_room() as room:
        config = SpillConfig(max_inline_bytes=LIMIT, root=str(root))
        await room.kernel.mount(spill, config, slot=9).ready()
        yield House(room, root, await room.plugin("author"))


async def test_a_result_at_the_bound_stays_and_one_byte_more_is_spilled(house: House) -> None:
    assert text_of(await house.run("x" * LIMIT)) == "x" * LIMIT
    assert house.files() == []
    finished = await house.run("x" * (LIMIT + 1))
    (file,) = house.files()
    assert file.read_text(encoding="utf-8") == "x" * (LIMIT + 1)
    shown = text_of(finished)
    assert str(file) in shown
    assert len(shown.encode()) <= LIMIT
    assert isinstance(finished.result, ToolSuccess)
    assert finished.result.value == "x" * (LIMIT + 1)


@pytest.mark.holds("case-033")
@pytest.mark.parametrize("letter", ["a", "é", "€", "🦉", "👩‍👩‍👧‍👦"])
@pytest.mark.parametrize("shift", range(5))
def test_a_preview_is_bounded_in_bytes_and_cuts_between_characters(letter: str, shift: int) -> None:
    text = "·" * shift + letter * 20_000
    shown = preview(text, "/somewhere", LIMIT)
    assert LIMIT - 16 <= len(shown.encode()) <= LIMIT
    head, _, rest = shown.partition("\n[… ")
    notice, _, tail = rest.partition(" …]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    omitted = int(notice.split()[0])
    assert omitted == len(text.encode()) - len(head.encode()) - len(tail.encode())


async def test_files_are_private_and_their_names_harmless(house: House) -> None:
    await house.run("x" * 9_000)
    (file,) = house.files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.parent.parent == house.root
    assert file.name.endswith("-echo-c1.txt")


@pytest.mark.parametrize("why", ["excluded", "nested", "blocked", "replaced", "several"])
async def test_what_is_left_alone(house: House, why: str) -> None:
    ctx = await house.room.plugin("reviewer", slot=20)
    if why == "blocked":
        always_review(ctx, ev.tools.Block(feedback=text_blocks("y" * 9_000)))
    if why == "replaced":
        always_review(ctx, ev.tools.Accept(value="y" * 9_000))
    if why == "several":
        other = ev.records.ReasoningBlock(text="not plain text")
        always_review(ctx, ev.tools.Accept(content=(*text_blocks("y" * 9_000), other)))
    name = "read_file" if why == "excluded" else "echo"
    finished = await house.run("x" * 9_000, name, parent=object() if why == "nested" else None)
    assert house.files() == []
    assert sum(len(str(block)) for block in finished.result.content) > 9_000


async def test_a_store_that_fails_leaves_the_result_whole(house: House) -> None:
    house.root.write_text("in the way", encoding="utf-8")
    finished = await house.run("x" * 9_000)
    assert text_of(finished) == "x" * 9_000
    assert isinstance(finished.result, ToolSuccess)
