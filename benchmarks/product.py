"""dsh through its public API: default plugins, a durable JSONL log, the openai-chat adapter.

What comes in: a base URL (or a script) and a number of agents. What goes out: the marks that
`benchmarks` compares, and with `--count` what each step did (counting costs time: never compare
both). The tool is the same cheap sum that the bare loops call; it is allowed by a rule, so the
permissions are on the road as they are for everyone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from benchmarks.counting import Counting
from benchmarks.meter import Meter
from dsh import Context, Logged, define_tool, open_harness, plugin, required, user_message
from dsh import catalog as ev
from dsh.boot import Harness, Row
from dsh.tools import TOOLS, ToolRuntime

if TYPE_CHECKING:
    from dsh.hooks.live import ToolRun
    from dsh.kernel import Plugin


#: In place of a URL: the scripted model, and how many tool steps it asks for.
SCRIPTED: Final = "scripted:"


@frozen(kw_only=True)
class Sum:
    """The tool's parameters."""

    left: int
    right: int


@frozen(kw_only=True)
class Deps:
    """What the plugin needs."""

    tools: ToolRuntime = required(TOOLS)


async def add(args: Sum, _run: ToolRun) -> str:
    """The tool: the sum as text."""
    return str(args.left + args.right)


def measured(meter: Meter) -> Plugin:
    """A plugin that registers the tool and counts steps and chunks."""

    @plugin(name="measured", deps=Deps)
    async def measure(ctx: Context, _config: None, deps: Deps) -> None:
        tool = define_tool(
            name="add",
            description="Add two integers.",
            args=Sum,
            output=str,
            execute=add,
            execution_mode="parallel",
        )
        deps.tools.register(ctx, tool)

        @ctx.on(ev.step.END)
        def count(_event: Logged[ev.step.End]) -> None:
            meter.step()

        @ctx.on(ev.assistant.CHUNK)
        def chunk(_event: Logged[ev.assistant.Chunk]) -> None:
            meter.chunk()

    return measure


def rows(url: str, state: Path) -> tuple[Row, ...]:
    """The headless profile's additions: the model, the log's place, the tool's rule.

    `url` is a server's, or `scripted:N` for a scripted model that asks for N tool steps.
    """
    model = Row(name="openai-chat", config={"providers": {"bench": {"baseUrl": url}}})
    if url.startswith(SCRIPTED):
        calls = ({"name": "add", "arguments": {"left": 1, "right": 2}},)
        steps = int(url.removeprefix(SCRIPTED))
        lines = (*({"text": "Adding.", "tools": calls} for _ in range(steps)), {"text": "Done."})
        model = Row(name="scripted", config={"script": lines})
    return (
        model,
        Row(name="session-jsonl", config={"root": str(state / "sessions")}),
        Row(
            name="permissions",
            config={"ask": "deny", "rules": [{"decision": "allow", "tool": "add"}]},
        ),
        Row(name="measured"),
    )


async def conversation(harness: Harness, provider: str) -> None:
    """One agent's whole conversation."""
    options = ev.records.AgentOptions(provider=provider, model="m")
    handle = await harness.agents.create(options=options)
    outcome = await handle.agent.ask(user_message("Add, please."))
    await handle.aclose()
    if not isinstance(outcome.reason, ev.records.CompletedTurnEnd):
        raise SystemExit(f"the turn ended as {outcome.reason}")


async def run(
    url: str, agents: int, extra: tuple[Row, ...], counting: Counting | None = None
) -> None:
    """Run `agents` conversations at once and print the marks; `extra` rows are mounted, too."""
    meter = Meter(None if counting is None else counting.counts)
    provider = "scripted" if url.startswith(SCRIPTED) else "bench"
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        async with (
            open_harness(
                home=state,
                cwd=state,
                rows=(*rows(url, state), *extra),
                plugins=(measured(meter),),
            ) as harness,
            trio.open_nursery() as nursery,
        ):
            meter.ready()
            for _ in range(agents):
                nursery.start_soon(conversation, harness, provider)
        logged = sum(log.stat().st_size for log in (state / "sessions").rglob("*.jsonl"))
    meter.tell(logBytes=logged)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description="dsh through its public API")
    parser.add_argument("url", help="of a chat-completions server, or scripted:N")
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--invariants", action="store_true", help="watch every law of the log")
    parser.add_argument("--count", action="store_true", help="count what each step does")
    options = parser.parse_args()
    extra = (Row(name="invariants"),) if options.invariants else ()
    if not options.count:
        trio.run(run, options.url, options.agents, extra)
        return
    counting = Counting()
    with counting.installed():
        trio.run(run, options.url, options.agents, extra, counting, instruments=[counting])


if __name__ == "__main__":
    main()
