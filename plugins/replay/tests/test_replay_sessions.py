"""A recorded session played again: the same, or the first difference and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve, field, frozen
from attrs.validators import matches_re

from dsh import catalog as ev
from dsh import define_tool, plugin
from dsh.agent import CreateAgent, user_message
from dsh.catalog import records
from dsh.kernel import open_kernel
from dsh.session import RecordedTurn, Recording, sessions_plugin
from dsh.testing import OPTIONS, MemoryStore, call, calls, open_test_house, says, stalls
from dsh.wire import encode_header, encode_rows
from dsh_plugins.replay import replay
from dsh_plugins.replay.catalog import ReplayConfig

if TYPE_CHECKING:
    from pathlib import Path

    from dsh import Context, Next
    from dsh.hooks.live import ToolRun
    from dsh.testing import TestHouse
    from dsh.tools import Tool
    from dsh.wire import StoredEvent, StoredLog


@frozen(kw_only=True)
class Look:
    """Where to look."""

    path: str = "."


def looking(seen: list[str], description: str = "look around") -> Tool:
    async def execute(args: Look, run: ToolRun) -> str:
        seen.append(args.path)
        return f"found {args.path} {len(seen)}"

    return define_tool(name="look", description=description, args=Look, output=str, execute=execute)


async def not_run(args: object, run: ToolRun) -> str:
    raise AssertionError(f"{run.name} ran with {args}")


LOOKS = calls(call("look", '{"path": "a"}'), call("look", '{"path": "b"}'), text="I look")


async def recorded(store: MemoryStore) -> StoredLog:
    """Two turns: one with tool calls and an injected message, one of text alone."""
    seen: list[str] = []
    replies = [LOOKS, says("two things are there"), says("you are welcome")]
    async with open_test_house(replies=replies, tools=[looking(seen)], store=store) as house:
        handle = await house.agent("s")
        await handle.agent.ask(user_message("what is there?"))
        handle.agent.inject(user_message("by the way"))
        await handle.agent.ask(user_message("thanks"))
        await handle.aclose()
    assert seen == ["a", "b"]
    return await store.read("s")


def saved(log: StoredLog, folder: Path) -> ReplayConfig:
    path = folder / "session.jsonl"
    path.write_bytes(encode_header(log.header) + b"\n" + encode_rows(log.events))
    return ReplayConfig(log=str(path))


async def again(house: TestHouse, log: StoredLog, turn: RecordedTurn, prompt: str) -> str:
    """Replay one turn in the house; how it ended."""
    handle = await house.agents.make(
        CreateAgent(
            session_id=f"again-{turn.number}",
            options=OPTIONS,
            cwd="/work",
            seed=log.events[: turn.start],
            parent_session="s",
        )
    )
    outcome = await handle.agent.ask(user_message(prompt))
    session = house.session(handle)
    await handle.aclose()
    if isinstance(outcome.reason, records.ErrorTurnEnd):
        return f"{outcome.reason.error.code}: {outcome.reason.error.message}"
    assert isinstance(outcome.reason, records.CompletedTurnEnd)
    chunks = [e.data.chunk for e in session.events if isinstance(e.data, ev.assistant.Chunk)]
    then = [e.data.chunk for e in log.events if isinstance(e.data, ev.assistant.Chunk)]
    assert chunks == then[: len(chunks)]
    return outcome.text


async def replayed(
    log: StoredLog, folder: Path, *tools: Tool, prompts: tuple[str, str]
) -> tuple[str, str]:
    """Both turns, in a house whose own model would fail every request."""
    recording = Recording(log.events)
    async with open_test_house(tools=tools) as house:
        fiber = house.kernel.mount(replay, saved(log, folder), slot=9)
        await fiber.ready()
        one = await again(house, log, recording.turns[1], prompts[0])
        two = await again(house, log, recording.turns[2], prompts[1])
        assert not house.model.requests
    return one, two


PROMPTS = ("what is there?", "thanks")


async def test_the_same_code_makes_the_same_requests(tmp_path: Path) -> None:
    log = await recorded(MemoryStore())
    seen: list[str] = []
    told = await replayed(log, tmp_path, looking(seen), prompts=PROMPTS)
    assert told == ("two things are there", "you are welcome")
    assert seen == [], "no body ran"


async def test_the_first_difference_is_named_with_its_place(tmp_path: Path) -> None:
    log = await recorded(MemoryStore())
    changed = looking([], "look around twice")
    told = await replayed(log, tmp_path, changed, prompts=PROMPTS)
    for number, text in enumerate(told, start=1):
        assert text == (
            f"REPLAY_DIFFERS: turn {number}, step 1: tools[0].description: "
            "'look around' was recorded, 'look around twice' now"
        )
    told = await replayed(log, tmp_path, prompts=PROMPTS)
    assert "tools: 1 were recorded, there are 0 now" in told[0]


async def test_a_tool_whose_code_changed_is_found_where_the_code_runs(tmp_path: Path) -> None:
    """Its schema is that of then. The body does not run, but what stands around it does."""
    log = await recorded(MemoryStore())

    @frozen(kw_only=True)
    class Strict:
        """Where to look."""

        path: str = field(default=".", validator=matches_re("a"))

    refusing = define_tool(
        name="look", description="look around", args=Strict, output=str, execute=not_run
    )
    told = await replayed(log, tmp_path, refusing, prompts=PROMPTS)
    assert told[0].startswith(
        "REPLAY_DIFFERS: turn 1, step 2: messages[3].content[0].text: 'found b 2' was recorded, "
    )
    ending = define_tool(
        name="look",
        description="look around",
        args=Look,
        output=str,
        execute=not_run,
        finalize_content=lambda _call, result: (*result.content, records.TextBlock(text="end")),
    )
    told = await replayed(log, tmp_path, ending, prompts=PROMPTS)
    assert told[0].startswith("REPLAY_DIFFERS: turn 1, step 2: messages[2].content: 1 were")


async def test_a_changed_prompt_is_found_in_the_messages(tmp_path: Path) -> None:
    log = await recorded(MemoryStore())

    @plugin(name="meddler")
    async def meddler(ctx: Context) -> None:
        @ctx.on(ev.agent.PRE_STEP, prepend=True)
        async def add(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decided = await call_next()
            assert isinstance(decided, ev.agent.Enter)
            return ev.agent.Enter(messages=(*decided.messages, user_message("and more")))

    recording = Recording(log.events)
    async with open_test_house(tools=[looking([])]) as house:
        await house.kernel.mount(replay, saved(log, tmp_path), slot=8).ready()
        await house.kernel.mount(meddler, slot=9).ready()
        told = await again(house, log, recording.turns[2], "thanks")
    assert "turn 2, step 1: messages: 7 were recorded, there are 8 now" in told


async def test_where_the_recording_was_cut_the_replay_ends(tmp_path: Path) -> None:
    store = MemoryStore()
    text = records.TextDeltaChunk(index=0, text="half ")
    async with open_test_house(replies=[stalls(text)], store=store) as house:
        handle = await house.agent("s")
        house.ctx.on(ev.assistant.CHUNK)(lambda event: handle.agent.cancel(records.UserCause()))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.AbortedTurnEnd)
        await handle.aclose()
    log = await store.read("s")
    async with open_test_house() as house:
        await house.kernel.mount(replay, saved(log, tmp_path), slot=9).ready()
        told = await again(house, log, Recording(log.events).turns[1], "go")
    assert told == "REPLAY_ENDED: turn 1, step 1: the recorded stream was cut here"


async def test_requests_of_strangers_do_not_leave(tmp_path: Path) -> None:
    log = await recorded(MemoryStore())
    async with open_test_house() as house:
        await house.kernel.mount(replay, saved(log, tmp_path), slot=9).ready()
        handle = await house.agent("other")
        await handle.agent.ask(user_message("hello"))
        await handle.agent.ask(user_message("hello"))
        outcome = await handle.agent.ask(user_message("hello"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "REPLAY_DIFFERS"
        assert "turn 3, step 1: no such request" in outcome.reason.error.message
        await handle.aclose()
        assert not house.model.requests


@pytest.mark.parametrize("content", [b"", b"nonsense\n", None])
async def test_a_log_that_cannot_be_read_fails_the_row(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_bytes(content)
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        kernel.mount(replay, ReplayConfig(log=str(path)))
        await kernel.settled()
        (problem,) = kernel.audit()
        assert "x.jsonl cannot be read" in problem.reason


async def test_a_result_that_only_failed_otherwise_is_a_difference(tmp_path: Path) -> None:
    """The text is the same: a success that says `Error: …` then, a denial now."""
    store = MemoryStore()

    async def execute(args: Look, run: ToolRun) -> str:
        return f"Error: {args.path} is closed to {run.name}"

    look = define_tool(name="look", description="look", args=Look, output=str, execute=execute)
    replies = [calls(call("look", '{"path": "a"}')), says("I see")]
    async with open_test_house(replies=replies, tools=[look], store=store) as house:
        handle = await house.agent("s")
        await handle.agent.ask(user_message("go"))
        await handle.aclose()
    log = await store.read("s")
    turn = Recording(log.events).turns[1]

    async def told(reason: str | None) -> str:
        async with open_test_house(tools=[look]) as house:
            await house.kernel.mount(replay, saved(log, tmp_path), slot=9).ready()
            if reason is not None:
                house.tools.guard(house.ctx, lambda _call: reason)
            return await again(house, log, turn, "go")

    assert await told(None) == "I see"
    place = "REPLAY_DIFFERS: turn 1, step 2: messages[2]"
    assert await told("a is closed to look") == (f"{place}.isError is there now, not recorded")
    assert await told("another") == (
        f"{place}.content[0].text: 'Error: a is closed to look' was recorded, 'Error: another' now"
    )


async def test_a_last_reply_that_is_put_together_otherwise_is_a_difference(tmp_path: Path) -> None:
    """No later request of the turn would show it."""
    log = await recorded(MemoryStore())

    def other(event: StoredEvent) -> StoredEvent:
        if not isinstance(event.data, ev.assistant.Message) or event.data.turn != 2:
            return event
        message = evolve(event.data.message, content=(records.TextBlock(text="welcome"),))
        return evolve(event, data=evolve(event.data, message=message))

    log = evolve(log, events=tuple(map(other, log.events)))
    told = await replayed(log, tmp_path, looking([]), prompts=PROMPTS)
    assert told[0] == "two things are there"
    assert told[1] == (
        "REPLAY_DIFFERS: turn 2, at its end: messages[7].content[0].text: "
        "'welcome' was recorded, 'you are welcome' now"
    )
