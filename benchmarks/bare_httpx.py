"""The yardstick: a loop on bare httpx and trio that does the same wire work as dsh, and no more.

What comes in: a base URL and sizes. What goes out: CPU seconds and the marks that `benchmarks`
compares. It keeps the whole history, sends it with every request, reads the stream line by line
and calls one cheap function per tool call; it logs nothing and has no plugins.
"""

from __future__ import annotations

import argparse
import json

import httpx
import trio

from benchmarks.meter import Meter

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two integers.",
        "parameters": {
            "type": "object",
            "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
            "required": ["left", "right"],
        },
    },
}


def add(arguments: str) -> str:
    """The tool: the sum as text."""
    values = json.loads(arguments)
    return str(values["left"] + values["right"])


async def one_step(
    client: httpx.AsyncClient, url: str, messages: list[dict[str, object]], meter: Meter
) -> bool:
    """One request and its tool calls; True while the model wants another step."""
    body = {
        "model": "m",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [TOOL],
    }
    text: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    async with client.stream("POST", url, json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            meter.chunk()
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    text.append(delta["content"])
                for part in delta.get("tool_calls", ()):
                    call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                    call["id"] = part.get("id") or call["id"]
                    call["name"] = part["function"].get("name") or call["name"]
                    call["arguments"] += part["function"].get("arguments", "")
    message: dict[str, object] = {"role": "assistant", "content": "".join(text)}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls.values()
        ]
    messages.append(message)
    for call in calls.values():
        content = add(call["arguments"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return bool(calls)


async def conversation(client: httpx.AsyncClient, url: str, meter: Meter) -> None:
    """One agent's whole conversation."""
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "You add numbers."},
        {"role": "user", "content": "Add, please."},
    ]
    while await one_step(client, url, messages, meter):
        meter.step()


async def run(url: str, agents: int) -> None:
    """Run `agents` conversations at once and print the marks."""
    meter = Meter()
    async with (
        # Without the bound of 100 connections, at which 128 agents would wait for each other.
        httpx.AsyncClient(
            trust_env=False, timeout=60, limits=httpx.Limits(max_connections=None)
        ) as client,
        trio.open_nursery() as nursery,
    ):
        meter.ready()
        for _ in range(agents):
            nursery.start_soon(conversation, client, url + "/chat/completions", meter)
    meter.tell()


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description="a bare httpx+trio loop")
    parser.add_argument("url")
    parser.add_argument("--agents", type=int, default=1)
    options = parser.parse_args()
    trio.run(run, options.url, options.agents)


if __name__ == "__main__":
    main()
