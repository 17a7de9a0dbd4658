"""What a request was made of: equal to what the model got, and compared with another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.cli.sessions.story import trajectory_of
from dsh.llm import ScriptEntry
from dsh.session import message_of
from dsh.testing import Talker, call, calls, open_test_house, says
from dsh.testing.trajectory_samples import compacted_log, parallel_log
from dsh.view import Trajectory, compared, sent_at
from dsh_plugins.compaction import compaction
from dsh_plugins.compaction.catalog import CompactionConfig
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from dsh.catalog.records import Message
    from dsh.hooks import live
    from dsh.wire import StoredEvent

BUSY = ScriptEntry(text="half", error=records.LlmFailure(message="busy", code="SERVER", status=503))
TOO_LONG = ScriptEntry(error=records.LlmFailure(message="too long", code="CONTEXT_WINDOW_EXCEEDED"))
ROUTE = records.AgentOptions(provider="m", model="m-1")


@frozen
class Size:
    """How much the tool answers."""

    size: int = 2000


async def read(args: Size, _run: live.ToolRun) -> str:
    """A tool with long output."""
    return "x" * args.size


READ = define_tool(name="read", description="Reads", args=Size, output=str, execute=read)


def shown(trajectory: Trajectory, events: Sequence[StoredEvent], place: int) -> list[Message]:
    """The messages of a request, as the trajectory folds them."""
    known = {event.seq: event for event in events}
    sent = sent_at(trajectory.tables.ops, trajectory.tables.requests[place], known)
    found = [message_of(known[seq]) for seq in sent.nodes]
    return [message for message in found if message is not None]


@pytest.mark.holds("P3")
async def test_every_request_is_what_the_model_got(autojump_clock: MockClock) -> None:
    """Tries, a tool, steering, pressure and overflow: all that changes what is sent."""
    model = Talker(
        BUSY, calls(call("read"), text="reading"), says("one"), calls(call("read")), TOO_LONG,
        says("two"), calls(call("read")), calls(call("read")), says("three"),
        window=4000, summaries=(says("Half is done."),) * 6,
    )  # fmt: skip
    async with open_test_house(plugins=[token_meter, llm_retry], tools=[READ]) as house:
        house.llm.register(house.ctx, model, ("m",))
        await house.kernel.mount(compaction, CompactionConfig(), slot=7).ready()
        handle = await house.agent(options=ROUTE)
        steered = False

        @house.ctx.on(ev.tool.RESULT)
        def steer(_event: object) -> None:
            nonlocal steered
            if not steered:
                steered = True
                handle.agent.steer(user_message("and the docs"))

        for prompt in ("first " * 200, "second", "third"):
            await handle.agent.ask(user_message(prompt))
        events = list(house.session(handle).events)
        await handle.aclose()
    told = trajectory_of(events)
    assert steered
    assert {row.kind for row in told.tables.rows} >= {"try", "compaction", "tool", "user"}
    asked = [request.messages for request in model.asked]
    assert len(told.tables.requests) == len(asked)
    for place, messages in enumerate(asked):
        assert shown(told, events, place) == list(messages), place


def changes(trajectory: Trajectory, now: int, before: int) -> list[tuple[str, int]]:
    tables = trajectory.tables
    sent = [sent_at(tables.ops, tables.requests[place]) for place in (now, before)]
    return [(change.what, change.seq) for change in compared(tables.ops, *sent)]


@pytest.mark.holds("P3")
def test_a_request_that_goes_on_adds_and_changes_nothing() -> None:
    told = trajectory_of(parallel_log().session.events)
    fates = [what for what, _ in changes(told, 1, 0)]
    assert fates == ["unchanged"] * 2 + ["added"] * 6
    backwards = [what for what, _ in changes(told, 0, 1)]
    assert backwards == ["unchanged"] * 2 + ["removed"] * 6


@pytest.mark.holds("P3")
def test_a_compaction_shows_what_its_summary_took_the_place_of() -> None:
    told = trajectory_of(compacted_log().session.events)
    (row,) = [row for row in told.tables.rows if row.kind == "compaction"]
    at = next(n for n, one in enumerate(told.tables.requests) if one.step == 13)
    found = changes(told, at, at - 1)
    replaced = [seq for what, seq in found if what == "replaced"]
    assert replaced == row.hidden
    place = [seq for _, seq in found].index(row.node or 0)
    assert [what for what, _ in found[: place + 1]] == (
        ["unchanged"] + ["replaced"] * len(replaced) + ["added"]
    )
