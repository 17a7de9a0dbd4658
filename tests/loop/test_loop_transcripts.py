"""The order in which things happen, as docs/transcripts.md says it: the page is the expectation.

A transcript that is wrong is printed as it should stand there.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.hooks import AnyDurable
from dsh.llm import ScriptEntry
from dsh.session import fork_log
from dsh.testing import LogWriting, MemoryStore, TestHouse, call, calls, open_test_house, says
from dsh.testing import stalls as stalling
from dsh.testing.house import OPTIONS
from dsh.tools import Tool, define_tool
from dsh_plugins.compaction import compaction
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.hooks import Next, live
    from dsh.kernel import Plugin
    from dsh.testing.model import Reply

PAGE = Path(__file__).parents[2] / "docs/transcripts.md"
#: A new line begins with each of these.
BEGINNINGS = (
    "turn/start", "[assemble]", "[pre-step]", "step/start", "system/message", "user/message",
    "(start)", "tool/call", "compaction/start", "compaction/end", "[request-error]", "step/end",
    "turn/end", "[cancel]", "(running)", "[resume]", "[fork]", "spliced+", "session/end-seed",
)  # fmt: skip
#: Stands for a chunk with its frame while runs of them are counted.
CHUNK = "assistant/chunk+frame"
R = TypeVar("R")
Notes: TypeAlias = list[str]


@frozen
class NoArgs:
    pass


def noting(notes: Notes, name: str = "note", *, parallel: bool = False) -> Tool:
    """One that notes its body; a parallel one does not end by itself."""

    async def execute(args: NoArgs, run: live.ToolRun) -> str:
        notes.append("[body]")
        if parallel:
            await trio.sleep_forever()
        return "done"

    return define_tool(
        name=name,
        description="Note.",
        args=NoArgs,
        output=str,
        execute=execute,
        execution_mode="parallel" if parallel else "exclusive",
    )


def transcribe(house: TestHouse) -> Notes:
    """Log events by name, notices in round brackets, answered hooks in square ones."""
    notes: Notes = []
    on = house.ctx.on
    on(ev.session.EVENT)(lambda e: notes.append(described(e.event.data)))
    on(ev.agent.INBOX_INSERTED)(lambda _: notes.append("(inserted)"))
    on(ev.agent.INBOX_CLAIMED)(lambda _: notes.append("(claimed)"))
    on(ev.agent.STATUS)(lambda e: notes.append(f"({e.status})"))
    on(ev.agent.ERROR)(lambda _: notes.append("(error)"))
    on(ev.agent.ASSISTANT_STREAM)(lambda e: notes.append(f"({e.frame.type})"))
    on(ev.tools.RESULT)(lambda _: notes.append("(result)"))

    async def noted(what: str, call_next: Next[R]) -> R:
        notes.append(f"[{what}]")
        return await call_next()

    async def stopping(_stop: ev.agent.TurnStopping) -> None:
        notes.append("[turn-stopping]")

    on(ev.system_prompt.ASSEMBLE, prepend=True)(lambda _, rest: noted("assemble", rest))
    on(ev.agent.PRE_STEP, prepend=True)(lambda _, rest: noted("pre-step", rest))
    on(ev.agent.REQUEST, prepend=True)(lambda _, rest: noted("request", rest))
    on(ev.agent.REQUEST_ERROR, prepend=True)(lambda _, rest: noted("request-error", rest))
    on(ev.tools.PRE_EXECUTE, prepend=True)(lambda _, rest: noted("pre-execute", rest))
    on(ev.tools.POST_EXECUTE, prepend=True)(lambda _, rest: noted("post-execute", rest))
    on(ev.agent.TURN_STOPPING)(stopping)
    return notes


def described(data: object) -> str:
    """An event by its name, and what makes it another event of that name."""
    assert isinstance(data, AnyDurable)
    name = data.TOKEN.name
    match data:
        case ev.agent.InboxSpliced(inserted=inserted):
            return "spliced+" if inserted else "spliced-"
        case ev.turn.End(reason=reason):
            return f"{name} {reason.kind}"
        case ev.request.Header(reason=reason):
            return f"{name} {reason}"
        case ev.assistant.Message(interrupted=True):
            return f"{name} interrupted"
        case ev.tool.Call(call_id=call_id):
            return f"{name} {call_id}"
        case ev.tool.Result(message=message, error=error):
            code = "" if error is None else f" {error.code}"
            return f"{name} {message.tool_call_id}{code}"
        case _:
            return name


def laid_out(notes: Iterable[str]) -> str:
    """As it stands on the page: a line for each thing that begins, runs of chunks as one."""
    words: list[str] = []
    for what, run in groupby(" ".join(notes).replace("assistant/chunk (chunk)", CHUNK).split()):
        count = len(list(run))
        shown = what.replace(CHUNK, "assistant/chunk (chunk)")
        words.append(shown if count == 1 or "/chunk" not in shown else f"{shown} x{count}")
    text = " ".join(words)
    for word in BEGINNINGS:
        text = re.sub(rf"(?<!\S){re.escape(word)}", f"\n{word}", text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def page() -> dict[str, str]:
    """The transcripts of the page by heading."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^## (.+?)\n.*?^```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def compare(heading: str, notes: Iterable[str]) -> None:
    found = laid_out(notes)
    assert found == page().get(heading), f"docs/transcripts.md, ## {heading}:\n{found}"


def until_idle(notes: Notes) -> Notes:
    return notes[: notes.index("(idle)") + 1]


def failing(code: str) -> ScriptEntry:
    return ScriptEntry(text="ha", error=records.LlmFailure(message="no", code=code))


@pytest.mark.holds("C26", "NEW-8", "LP06", "LP31", "IN21")
@pytest.mark.parametrize(
    ("heading", "replies", "plugins"),
    [
        ("A plain turn", [says("yes")], []),
        ("A turn with a tool", [calls(call("note", call_id="a")), says("yes")], []),
        (
            "A request that is tried again",
            [
                ScriptEntry(text="ha", error=records.LlmFailure(message="x", code="SERVER")),
                says("y"),
            ],
            [llm_retry],
        ),
    ],
    ids=["plain", "tool", "retry"],
)
async def test_the_order_of_a_turn(
    heading: str, replies: list[Reply], plugins: list[Plugin], autojump_clock: MockClock
) -> None:
    async with open_test_house(replies=replies, plugins=plugins) as house:
        handle = await house.agent()
        notes = transcribe(house)
        house.tools.register(house.ctx, noting(notes))
        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        compare(heading, until_idle(notes))


@pytest.mark.holds("C26", "E6", "G6")
async def test_the_order_of_a_cancelled_stream() -> None:
    begun = stalling(
        records.TextDeltaChunk(index=0, text="half "), records.TextDeltaChunk(index=0, text="a")
    )
    async with open_test_house(replies=[begun]) as house:
        handle = await house.agent()
        notes = transcribe(house)
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        notes.append("[cancel]")
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        compare("A cancelled stream", notes)


@pytest.mark.holds("C26", "F8", "F14")
async def test_the_order_of_a_cancelled_tool() -> None:
    asked = [call("slow", call_id=name) for name in "ab"] + [call("note", call_id="c")]
    async with open_test_house(replies=[calls(*asked)]) as house:
        handle = await house.agent()
        notes = transcribe(house)
        house.tools.register(house.ctx, noting(notes, "slow", parallel=True))
        house.tools.register(house.ctx, noting(notes))
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        notes.append("[cancel]")
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        compare("A cancelled tool", notes)


def long_talk() -> LogWriting:
    log = LogWriting()
    for number in range(4):
        log.whole_turn(f"question {number} " + "why " * 500, "because " * 500)
    return log


async def stored(log: LogWriting) -> MemoryStore:
    store = MemoryStore()
    handle = await store.create(log.session.header)
    await handle.append(tuple(log.session.events))
    await handle.aclose()
    return store


@pytest.mark.holds("C26", "C13")
async def test_the_order_of_an_overflow() -> None:
    full = ScriptEntry(error=records.LlmFailure(message="too long", code="CONTEXT_WINDOW_EXCEEDED"))
    async with open_test_house(
        replies=[full, says("They talked."), says("on")],
        plugins=[token_meter, compaction],
        store=await stored(long_talk()),
    ) as house:
        handle = await house.agents.resume("s", options=OPTIONS)
        notes = transcribe(house)
        await handle.agent.ask(user_message("go on"))
        compare("A history that is too long", until_idle(notes))


async def one_turn() -> tuple[MemoryStore, list[str]]:
    """A stored turn with two calls, and its events as they are described."""
    store = MemoryStore()
    asked = calls(call("note", call_id="a"), call("note", call_id="b"))
    async with open_test_house(replies=[asked, says("so")], store=store) as house:
        house.tools.register(house.ctx, noting([]))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
    return store, [described(event.data) for event in (await store.read("s")).events]


@pytest.mark.holds("C26", "I2", "I9")
async def test_the_order_of_a_resumed_crash() -> None:
    whole, names = await one_turn()
    left = names[: names.index("tool/call a") + 1]
    log = await whole.read("s")
    store = MemoryStore()
    crashed = await store.create(log.header)
    await crashed.append(log.events[: len(left)])
    await crashed.aclose()
    async with open_test_house(replies=[says("well")], store=store) as house:
        handle = await house.agents.resume("s", options=OPTIONS)
        found = [described(event.data) for event in house.session(handle).events]
        assert found[: len(left)] == left
        notes = transcribe(house)
        await handle.agent.ask(user_message("and now?"))
        compare(
            "A crash, and what resuming makes of it",
            [*left, "[resume]", *found[len(left) :], *until_idle(notes)],
        )


@pytest.mark.holds("C26", "B3", "I8")
async def test_the_order_of_a_fork() -> None:
    store, names = await one_turn()
    await fork_log(store, await store.read("s"), child_id="child", now_ms=1)
    async with open_test_house(replies=[says("well")], store=store) as house:
        handle = await house.agents.resume("child", options=OPTIONS)
        found = [described(event.data) for event in house.session(handle).events]
        assert found[: len(names)] == names
        notes = transcribe(house)
        await handle.agent.ask(user_message("another way"))
        first = names.index("turn/end completed")
        compare(
            "A fork",
            ["…", names[first], "[fork]", *found[len(names) :], *until_idle(notes)],
        )
        assert handle.agent.turn == 2


def test_every_transcript_of_the_page_has_its_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert len(page()) == 8
    assert [heading for heading in page() if f'"{heading}"' not in text] == []
