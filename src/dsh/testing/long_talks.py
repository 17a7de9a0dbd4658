"""Conversations that grow long: a tool of any size, a token meter, and who shortens them.

What comes in: a `Talker` that plays the model, and the plugins under test. What goes out: a running
house for agents on `ROUTE`, and short ways to look at what a compaction did. The house is that of
`open_test_house`; nothing of the plugins is replaced.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from attrs import frozen

from dsh.catalog import records
from dsh.seams.compaction import COMPACTION, CompactionEngine
from dsh.testing.house import TestHouse, open_test_house
from dsh.testing.model import call, calls, says
from dsh.testing.talker import Talker
from dsh.tools import define_tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.agent import AgentHandle
    from dsh.hooks import live
    from dsh.kernel import Fiber, Plugin
    from dsh.llm import ScriptEntry
    from dsh.testing.memory_store import MemoryStore
    from dsh.testing.talker import Answer
    from dsh.tools import Tool

__all__ = [
    "ROUTE",
    "SUMMARY",
    "LongTalks",
    "OpenTalks",
    "open_long_talks",
    "reads",
    "talker",
    "texts",
]

#: The route of the talker.
ROUTE: Final = records.AgentOptions(provider="m", model="m-1")
#: What the talker answers to a request for a summary, unless told otherwise.
SUMMARY: Final = says("They asked for work. It is half done.")


@frozen
class Size:
    """How many characters the tool answers."""

    size: int


async def _read(args: Size, _run: live.ToolRun) -> str:
    return "x" * args.size


def _reader() -> Tool:
    return define_tool(name="read", description="Reads", args=Size, output=str, execute=_read)


def reads(size: int = 2000) -> ScriptEntry:
    """A reply that calls the tool for a result of this many characters."""
    return calls(call("read", f'{{"size": {size}}}'))


def talker(
    *replies: Answer, window: int | None = 4000, summaries: tuple[Answer, ...] = (SUMMARY,)
) -> Talker:
    """A model with a small context."""
    return Talker(*replies, window=window, summaries=summaries)


def texts(request: live.LlmRequest) -> str:
    """All text of a request's messages."""
    return "\n".join(
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, records.TextBlock)
    )


@frozen(kw_only=True, eq=False)
class LongTalks:
    """A running house whose agents are shortened; `row` is the mounted plugin that does it."""

    house: TestHouse
    row: Fiber

    @property
    def engine(self) -> CompactionEngine:
        """The service, as it is now."""
        return self.house.ctx.require(COMPACTION)

    async def agent(self) -> AgentHandle:
        """A new agent on the talker's route, with the session `s`."""
        return await self.house.agent(options=ROUTE)

    async def resume(self) -> AgentHandle:
        """The agent of the session `s` again, from its log."""
        return await self.house.agents.resume("s", options=ROUTE)


@asynccontextmanager
async def open_long_talks(
    meter: Plugin,
    shortener: Plugin,
    model: Talker,
    config: object = None,
    *,
    store: MemoryStore | None = None,
) -> AsyncGenerator[LongTalks, None]:
    """Run a house with both plugins, whose provider `m` is `model`.

    `config` is that of `shortener`, None for its defaults; sessions are kept in `store`.
    """
    async with open_test_house(plugins=[meter], tools=[_reader()], store=store) as house:
        house.llm.register(house.ctx, model, ("m",))
        row = house.kernel.mount(shortener, config, slot=7)
        await row.ready()
        yield LongTalks(house=house, row=row)


class OpenTalks(Protocol):
    """The type of a fixture: `open_long_talks` with the plugins given."""

    def __call__(
        self, model: Talker, config: object = None, *, store: MemoryStore | None = None
    ) -> AbstractAsyncContextManager[LongTalks]:
        """Run a house with the plugins under test."""
        ...
