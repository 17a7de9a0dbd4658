"""The model seam alone: routes, prepared calls, the openai-chat adapter, assembled replies.

What comes in: a base URL. What goes out: the marks that `benchmarks` compares. It keeps its history
itself, as messages, and calls the same cheap sum; no loop, no log, no policy is there, so the
difference to `product` is what the house above the seam costs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

import trio

from benchmarks.bare_httpx import add
from benchmarks.meter import Meter
from dsh import catalog as ev
from dsh.hooks import Line
from dsh.hooks.live import LlmRequest
from dsh.kernel import Context, open_kernel, plugin
from dsh.llm import LLM, Assembler, LlmRuntime, llm_plugin
from dsh.seams.environ import CREDENTIALS, ENVIRON
from dsh.testing import ManualSignal
from dsh.testing.wires import Variables
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile

if TYPE_CHECKING:
    from dsh.hooks import History

#: The tool of the bare loops, as the seam has it.
SUM: Final = ev.records.ToolSchema(
    name="add",
    description="Add two integers.",
    parameters={
        "type": "object",
        "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
        "required": ["left", "right"],
    },
)
CONFIG: Final = ev.records.LlmCallConfig(provider="bench", model="m")


@plugin(name="no-variables", provides=(ENVIRON, CREDENTIALS))
async def no_variables(ctx: Context) -> None:
    """An environment without variables and keys."""
    ctx.provide(ENVIRON, Variables())
    ctx.provide(CREDENTIALS, Variables())


def said(message_id: str, text: str) -> ev.records.UserMessage:
    """What a person says."""
    return ev.records.UserMessage(
        id=message_id,
        content=(ev.records.TextBlock(text=text),),
        source=ev.records.UserSource(),
    )


def result(call: ev.records.ToolCallBlock) -> ev.records.ToolResultMessage:
    """The tool's answer."""
    return ev.records.ToolResultMessage(
        id=f"r-{call.id}",
        content=(ev.records.TextBlock(text=add(call.arguments)),),
        source=ev.records.ToolSource(call_id=call.id),
        tool_call_id=call.id,
    )


async def one_step(
    llm: LlmRuntime, history: History[ev.records.Message], meter: Meter
) -> list[ev.records.Message]:
    """One request and its tool calls: the messages that it adds; one, when the model is done."""
    signal = ManualSignal()
    call = await llm.prepare_call(CONFIG, signal)
    assembler = Assembler()
    request = LlmRequest(
        provider="bench", model="m", messages=history, tools=(SUM,), session_id="s",
        signal=signal,
    )  # fmt: skip
    async with call.stream(request) as chunks:
        async for chunk in chunks:
            meter.chunk()
            assembler.push(chunk)
    blocks = assembler.blocks()
    reply = ev.records.AssistantMessage(
        id=f"a-{len(history)}",
        content=blocks,
        source=ev.records.ModelSource(provider="bench", model="m"),
    )
    calls = (block for block in blocks if isinstance(block, ev.records.ToolCallBlock))
    return [reply, *map(result, calls)]


async def run(url: str) -> None:
    """Run one conversation and print the marks."""
    meter = Meter()
    async with open_kernel() as kernel:
        await kernel.mount(no_variables).ready()
        await kernel.mount(llm_plugin).ready()
        config = OpenAiChatConfig(providers={"bench": ProviderProfile(base_url=url)})
        await kernel.mount(openai_chat, config).ready()
        llm = kernel.root.require(LLM)
        meter.ready()
        line: Line[ev.records.Message] = Line([said("u", "Add, please.")])
        while True:
            added = await one_step(llm, line.so_far(), meter)
            for message in added:
                line.add(message)
            if len(added) == 1:
                break
            meter.step()
    meter.tell()


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description="the model seam alone")
    parser.add_argument("url")
    trio.run(run, parser.parse_args().url)


if __name__ == "__main__":
    main()
