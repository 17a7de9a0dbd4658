"""Spans of real turns, as a collector gets them: parallel tools, a retry, a cancelled stream."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias, cast

import pytest
import trio
from attrs import evolve, field, frozen
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.catalog import records
from dsh.testing import (
    HttpAnswer,
    HttpAsked,
    HttpStub,
    MemoryStore,
    ScriptedReplies,
    ScriptEntry,
    TestHouse,
    call,
    calls,
    open_http_stub,
    open_test_house,
    says,
    stalls,
)
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.telemetry import telemetry
from dsh_plugins.telemetry.catalog import TelemetryConfig

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from dsh.hooks.live import ToolRun
    from dsh.kernel import Fiber
    from dsh.testing.model import Reply
    from dsh.tools import Tool

Json: TypeAlias = "dict[str, object]"

PATIENCE = 20
KEY = "sk-canary-key"
USAGE = records.Usage(input_tokens=10, output_tokens=5, cache_read_tokens=30, reasoning_tokens=2)


def accepted(_asked: HttpAsked) -> HttpAnswer:
    return HttpAnswer(body=b"{}")


def items(holder: object, *path: str) -> list[Json]:
    """The objects of the lists of lists that OTLP is made of."""
    found = [cast("Json", holder)]
    for name in path:
        found = [inner for one in found for inner in cast("list[Json]", one.get(name, []))]
    return found


def attributes(holder: Json) -> dict[str, object]:
    """Attributes as a plain mapping; texts of numbers as numbers."""
    found: dict[str, object] = {}
    for one in items(holder, "attributes"):
        ((kind, value),) = cast("Json", one["value"]).items()
        found[str(one["key"])] = int(cast("str", value)) if kind == "intValue" else value
    return found


@frozen
class Seen:
    """A span as it arrived. Times in ms."""

    name: str
    trace: str
    id: str
    parent: str | None
    start: int
    end: int
    failed: bool
    given: Mapping[str, object]
    raw: Json = field(repr=False)


def seen(raw: Json) -> Seen:
    return Seen(
        name=str(raw["name"]),
        trace=str(raw["traceId"]),
        id=str(raw["spanId"]),
        parent=cast("str | None", raw.get("parentSpanId")),
        start=int(cast("str", raw["startTimeUnixNano"])) // 1_000_000,
        end=int(cast("str", raw["endTimeUnixNano"])) // 1_000_000,
        failed=cast("Json", raw.get("status", {})).get("code") == 2,
        given=attributes(raw),
        raw=raw,
    )


@frozen
class Desk:
    """A house with the plugin, and the collector it sends to."""

    house: TestHouse
    fiber: Fiber
    collector: HttpStub

    async def sent(self) -> None:
        """Unload the plugin: what is left is sent."""
        with trio.fail_after(PATIENCE):
            await self.fiber.dispose()

    def bodies(self, signal: str) -> list[Json]:
        wanted = f"/v1/{signal}"
        found = [one for one in self.collector.asked if one.target == wanted]
        return [cast("Json", json.loads(one.body)) for one in found]

    def spans(self) -> list[Seen]:
        path = ("resourceSpans", "scopeSpans", "spans")
        return [seen(raw) for body in self.bodies("traces") for raw in items(body, *path)]

    def named(self, name: str) -> list[Seen]:
        return sorted((one for one in self.spans() if one.name == name), key=lambda one: one.start)

    def logs(self) -> list[Json]:
        path = ("resourceLogs", "scopeLogs", "logRecords")
        return [raw for body in self.bodies("logs") for raw in items(body, *path)]

    def points(self, metric: str) -> list[Json]:
        path = ("resourceMetrics", "scopeMetrics", "metrics")
        found = [raw for body in self.bodies("metrics") for raw in items(body, *path)]
        shapes = [raw.get("histogram", raw.get("sum")) for raw in found if raw["name"] == metric]
        return [point for shape in shapes for point in items(shape, "dataPoints")]

    def text(self) -> str:
        return "\n".join(one.body.decode() for one in self.collector.asked)


QUIET = TelemetryConfig(interval_ms=3_600_000, shutdown_ms=5_000)


@asynccontextmanager
async def open_desk(
    *,
    replies: Sequence[Reply] = (),
    model: ScriptedReplies | None = None,
    tools: Sequence[Tool] = (),
    config: TelemetryConfig = QUIET,
    store: MemoryStore | None = None,
    answer: Callable[[HttpAsked], HttpAnswer] = accepted,
) -> AsyncGenerator[Desk, None]:
    environ = ProcessEnviron({"SERVICE_API_KEY": KEY, "COLLECTOR": "abc-collector"})
    around = environ_plugin(environ, EnvironCredentials(environ))
    async with (
        open_http_stub(answer) as collector,
        open_test_house(
            replies=replies, model=model, tools=tools, store=store, plugins=[around, llm_retry]
        ) as house,
    ):
        given = evolve(config, endpoint=config.endpoint or collector.origin)
        fiber = house.kernel.mount(telemetry, given, slot=9)
        await fiber.ready()
        yield Desk(house, fiber, collector)


@frozen
class NoArgs:
    """Nothing."""


def meeting(name: str, mine: trio.Event, other: trio.Event) -> Tool:
    """A tool whose body ends only when another one runs."""

    async def execute(_args: NoArgs, _run: ToolRun) -> str:
        mine.set()
        await other.wait()
        return "met"

    return define_tool(
        name=name, description="", args=NoArgs, output=str, execute=execute,
        execution_mode="parallel",
    )  # fmt: skip


@pytest.mark.holds("TE1")
async def test_tools_side_by_side() -> None:
    left, right = trio.Event(), trio.Event()
    tools = [meeting("left", left, right), meeting("right", right, left)]
    first = evolve(calls(call("left"), call("right"), call("nobody")), usage=USAGE)
    async with open_desk(replies=[first, says("done")], tools=tools) as desk:
        handle = await desk.house.agent()
        await handle.agent.ask(user_message("go"))
        await desk.sent()
        spans = desk.spans()
        (turn,) = desk.named("invoke_agent dsh")
        first_step, second_step = desk.named("step")
        asked, answered = desk.named("chat model-1")
        (one,), (two,) = desk.named("execute_tool left"), desk.named("execute_tool right")
        (unknown,) = desk.named("execute_tool nobody")
    assert len(spans) == 8
    assert {span.trace for span in spans} == {turn.trace}
    assert len({span.id for span in spans}) == 8
    assert (len(turn.trace), len(turn.id)) == (32, 16)
    assert turn.parent is None
    assert {first_step.parent, second_step.parent} == {turn.id}
    assert {asked.parent, one.parent, two.parent, unknown.parent} == {first_step.id}
    assert answered.parent == second_step.id
    # Bodies overlap, and each span lies within its parent.
    assert max(one.start, two.start) < min(one.end, two.end)
    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span.start <= span.end
        if span.parent is not None:
            assert by_id[span.parent].start <= span.start
            assert span.end <= by_id[span.parent].end
    assert [span.name for span in spans if span.failed] == ["execute_tool nobody"]
    assert unknown.given["error.type"] == "UNKNOWN_TOOL"
    assert unknown.given["dsh.tool.ran"] is False
    assert turn.given["dsh.turn.end"] == "completed"
    assert {span.given["gen_ai.conversation.id"] for span in spans} == {"s"}
    assert asked.raw["kind"] == 3
    assert asked.given.items() >= {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "test",
        "gen_ai.request.model": "model-1",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "dsh.outcome": "committed",
    }.items()  # fmt: skip
    assert one.given["gen_ai.tool.name"] == "left"


def failing(code: str) -> ScriptEntry:
    return ScriptEntry(error=records.LlmFailure(message="canary words", code=code, status=429))


@pytest.mark.holds("TE1")
async def test_a_retry() -> None:
    policy = records.NormalRetryPolicy(
        max_retries=2, retryable_codes=("RATE_LIMIT",), initial_delay_ms=1, max_delay_ms=1,
        jitter_ratio=0,
    )  # fmt: skip
    model = ScriptedReplies([failing("RATE_LIMIT"), says("whole")], policy=policy)
    async with open_desk(model=model) as desk:
        handle = await desk.house.agent()
        await handle.agent.ask(user_message("go"))
        await desk.sent()
        failed, again = desk.named("chat model-1")
        (step,) = desk.named("step")
        (counted,) = desk.points("dsh.llm.retries")
        durations = desk.points("gen_ai.client.operation.duration")
        retry = [one for one in desk.logs() if one["eventName"] == "llm/retry"]
    assert failed.failed
    assert failed.given["error.type"] == "RATE_LIMIT"
    assert failed.given["http.response.status_code"] == 429
    assert failed.given["dsh.outcome"] == "failed"
    assert "dsh.retry" not in failed.given
    assert not again.failed
    assert again.given["dsh.retry"] == 1
    assert failed.end <= again.start
    assert failed.parent == again.parent == step.id
    (mark,) = items(step.raw, "events")
    assert mark["name"] == "llm/retry"
    assert attributes(mark)["error.type"] == "RATE_LIMIT"
    assert counted["asDouble"] == 1
    assert sorted(str(attributes(one).get("error.type")) for one in durations) == [
        "None",
        "RATE_LIMIT",
    ]
    assert [one["severityText"] for one in retry] == ["WARN"]
    assert retry[0]["spanId"] == step.id


@pytest.mark.holds("TE1")
async def test_a_cancelled_stream() -> None:
    chunk = records.TextDeltaChunk(index=0, text="half a th")
    async with open_desk(replies=[stalls(chunk)]) as desk:
        handle = await desk.house.agent()

        @desk.house.ctx.on(ev.agent.ASSISTANT_STREAM)
        def stop(event: ev.agent.AssistantStream) -> None:
            frame = event.frame
            if isinstance(frame, records.ChunkFrame) and frame.chunk == chunk:
                handle.agent.cancel(records.UserCause())

        await handle.agent.ask(user_message("go"))
        await desk.sent()
        (attempt,) = desk.named("chat model-1")
        (turn,) = desk.named("invoke_agent dsh")
        spans = desk.spans()
    assert attempt.given["dsh.outcome"] == "interrupted"
    assert "gen_ai.response.finish_reasons" not in attempt.given
    assert (turn.given["dsh.turn.end"], turn.given["dsh.turn.cause"]) == ("aborted", "user")
    assert len(spans) == 3
    assert not any(span.failed for span in spans)
    assert all(span.end <= turn.end for span in spans)


async def test_what_is_open_when_the_plugin_is_unloaded() -> None:
    async with open_desk(replies=[stalls()]) as desk:
        handle = await desk.house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        await desk.sent()
        assert {span.name for span in desk.spans()} == {"invoke_agent dsh", "step", "chat model-1"}
        assert {span.given["dsh.unfinished"] for span in desk.spans()} == {True}


@pytest.mark.holds("TE2")
async def test_a_resumed_session_links_to_the_turn_before() -> None:
    store = MemoryStore()
    found: list[Seen] = []
    for number in (1, 2):
        async with open_desk(replies=[says("yes")], store=store) as desk:
            agents = desk.house.agents
            handle = await (desk.house.agent() if number == 1 else agents.resume("s"))
            await handle.agent.ask(user_message("go"))
            await handle.aclose()
            await desk.sent()
            found += desk.named("invoke_agent dsh")
    first, second = found
    assert first.trace != second.trace
    assert "links" not in first.raw
    assert second.raw["links"] == [{"traceId": first.trace, "spanId": first.id}]


async def test_a_delegated_turn_links_to_the_one_above() -> None:
    async with open_desk(replies=[stalls(), says("child")]) as desk:
        parent = await desk.house.agent("parent")
        parent.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        child = await desk.house.agent("child", parent=parent.agent)
        await child.agent.ask(user_message("help"))
        await desk.sent()
        spans = desk.spans()
    (step,) = [
        s for s in spans if s.name == "step" and s.given["gen_ai.conversation.id"] == "parent"
    ]
    (turn,) = [s for s in spans if s.given.get("gen_ai.agent.id") == "child"]
    assert turn.raw["links"] == [{"traceId": step.trace, "spanId": step.id}]


@pytest.mark.holds("TE3")
async def test_without_content_no_text_leaves() -> None:
    async def execute(_args: NoArgs, _run: ToolRun) -> str:
        raise ValueError("canary-error")

    tool = define_tool(name="work", description="", args=NoArgs, output=str, execute=execute)
    first = calls(call("work", '{"canary-argument": 1}'), call("work"), text="canary-reply")
    replies = [first, failing("AUTH")]
    async with open_desk(replies=replies, tools=[tool]) as desk:
        handle = await desk.house.agent()
        await handle.agent.ask(user_message(f"canary-prompt {KEY}"))
        await desk.sent()
        assert len(desk.spans()) == 7
        assert len(desk.logs()) > 10
        assert desk.points("gen_ai.execute_tool.duration") != []
        assert "canary" not in desk.text()


@pytest.mark.holds("TE3")
async def test_with_content_texts_leave_but_keys_and_patterns_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    config = evolve(
        QUIET, content=True, redact=("private-[0-9]+",), header_env={"X-Auth": "COLLECTOR"}
    )
    reply = says(f"the reply, {KEY}, private-77, abc-collector")
    async with open_desk(replies=[reply], config=config) as desk:
        handle = await desk.house.agent()
        await handle.agent.ask(user_message(f"the prompt with {KEY}"))
        await desk.sent()
        text = desk.text()
        (attempt,) = desk.named("chat model-1")
        headers = [one.headers["x-auth"] for one in desk.collector.asked]
    assert "the prompt with [redacted]" in text
    assert "the reply, [redacted], [redacted], [redacted]" in text
    (message,) = json.loads(str(attempt.given["gen_ai.output.messages"]))
    assert (message["role"], message["finish_reason"]) == ("assistant", "stop")
    assert [part["type"] for part in message["parts"]] == ["text"]
    assert KEY not in text
    assert "private-77" not in text
    assert headers == ["abc-collector"] * 3
    assert "abc-collector" not in caplog.text
