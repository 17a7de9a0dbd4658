"""Hostile tools and policies in the whole harness, before a strict server: the turn ends lawfully.

Each fault runs beside a well-behaved sibling in one message. Whatever it does, both calls get their
one result, the next request is one that a strict server takes, and the turn completes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh import user_message
from dsh.catalog import records
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.session import SESSIONS
from dsh.testing import broken_laws
from dsh.testing.hostile_tools import FAULTS, hostile_house, hostile_tool
from dsh.testing.model_server import open_model_server

if TYPE_CHECKING:
    from pathlib import Path

    from dsh import Context
    from dsh.hooks.live import ToolRun
    from dsh.session import Session
    from dsh.testing.hostile_tools import Args, Body
    from dsh.tools import ToolRuntime


OPTIONS = records.AgentOptions(provider="deepseek", model="deepseek-chat")


def both() -> ScriptEntry:
    """A message with the bad call between two good ones."""
    names = ("good", "bad", "good")
    return ScriptEntry(tools=tuple(ScriptedCall(name=name, arguments="{}") for name in names))


def texts(session: Session) -> list[str]:
    return [
        "".join(b.text for b in event.data.message.content if isinstance(b, records.TextBlock))
        for event in session.events
        if isinstance(event.data, ev.tool.Result)
    ]


@pytest.mark.holds("case-057", "case-064", "XT69", "XT74", "XT75", "XT76")
@pytest.mark.parametrize("name", FAULTS)
async def test_a_hostile_tool_ends_lawfully_and_harms_no_sibling(name: str, tmp_path: Path) -> None:
    replies = [both(), ScriptEntry(text="ready")]
    async with (
        open_model_server(replies, strict=True) as server,
        hostile_house(FAULTS[name], server, tmp_path) as harness,
    ):
        handle = await harness.agents.create("s", options=OPTIONS, cwd=str(tmp_path / "workspace"))
        with trio.fail_after(10):
            outcome = await handle.agent.ask(user_message("go"))
        session = harness.service(SESSIONS).get("s")
        assert session is not None
        assert (outcome.reason, outcome.text) == (records.CompletedTurnEnd(), "ready")
        assert broken_laws(session) == []
        first, bad, last = texts(session)
        assert (first, last) == ("fine", "fine")
        assert bad
        print(f"{name}: turn {outcome.reason.kind}; {bad.splitlines()[0]:.100}")  # noqa: T201 - corpus and outcomes, for `pytest -s`
        await handle.aclose()
    assert server.refusals == []
    assert len(server.requests) == 2


# --- bodies that do not want to end ---------------------------------------------------------------


async def swallows(_args: Args, _run: ToolRun) -> object:
    for _ in range(3):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            await trio.lowlevel.cancel_shielded_checkpoint()
    return "I do as I like"


async def raises_instead(_args: Args, _run: ToolRun) -> object:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise ValueError("cancelled? never") from None


async def lingers(_args: Args, _run: ToolRun) -> object:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.2)


async def in_a_thread(_args: Args, run: ToolRun) -> object:
    await trio.to_thread.run_sync(time.sleep, 0.3)
    return run.call_id


async def group_of_cancelled(_args: Args, _run: ToolRun) -> object:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)
    return None


@pytest.mark.holds("case-072", "XT58", "XT59")
@pytest.mark.parametrize(
    "body", [swallows, raises_instead, lingers, in_a_thread, group_of_cancelled]
)
async def test_a_body_that_does_not_want_to_end_is_waited_for_and_the_next_turn_works(
    body: Body, tmp_path: Path
) -> None:
    running = trio.Event()

    async def noting(args: Args, run: ToolRun) -> object:
        running.set()
        return await body(args, run)

    def fault(ctx: Context, tools: ToolRuntime) -> None:
        tools.register(ctx, hostile_tool(noting))

    async with (
        open_model_server([both(), ScriptEntry(text="later")], strict=True) as server,
        hostile_house(fault, server, tmp_path) as harness,
    ):
        handle = await harness.agents.create("s", options=OPTIONS, cwd=str(tmp_path / "workspace"))
        outcomes: list[object] = []

        async def first() -> None:
            outcomes.append((await handle.agent.ask(user_message("go"))).reason)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first)
                await running.wait()
                handle.agent.cancel(records.UserCause())
            assert outcomes == [records.AbortedTurnEnd(reason=records.UserCause())]
            assert (await handle.agent.ask(user_message("again"))).text == "later"
        session = harness.service(SESSIONS).get("s")
        assert session is not None
        assert broken_laws(session) == []
        assert len(texts(session)) == 3
        await handle.aclose()
    assert server.refusals == []
