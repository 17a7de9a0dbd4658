"""The floor: the same conversation on bare h11 over a trio socket, one kept-alive connection.

What comes in: a base URL and a number of agents. What goes out: the marks that `benchmarks`
compares. Shown beside bare httpx to tell what the HTTP library costs.
"""

from __future__ import annotations

import argparse
import json
from urllib.parse import urlsplit

import h11
import trio

from benchmarks.bare_httpx import TOOL, add
from benchmarks.meter import Meter


class Connection:
    """One kept-alive connection. Closed by leaving `async with connection.stream`."""

    def __init__(self, stream: trio.SocketStream, host: str, path: str) -> None:
        self.stream = stream
        self.host = host
        self.path = path
        self.http = h11.Connection(our_role=h11.CLIENT)

    async def post(self, body: bytes) -> list[bytes]:
        """Send one request; the reply's body in the pieces in which it arrived."""
        head = h11.Request(
            method="POST",
            target=self.path,
            headers=[
                ("host", self.host),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
            ],
        )
        sent = (self.http.send(head), self.http.send(h11.Data(data=body)))
        end = self.http.send(h11.EndOfMessage())
        await self.stream.send_all(b"".join(part for part in (*sent, end) if part))
        pieces: list[bytes] = []
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                self.http.receive_data(await self.stream.receive_some(65536))
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self.http.start_next_cycle()
                return pieces


async def one_step(connection: Connection, messages: list[dict[str, object]], meter: Meter) -> bool:
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
    for line in b"".join(await connection.post(json.dumps(body).encode())).splitlines():
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
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
                "id": c["id"],
                "type": "function",
                "function": {"name": c["name"], "arguments": c["arguments"]},
            }
            for c in calls.values()
        ]
    messages.append(message)
    for call in calls.values():
        content = add(call["arguments"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return bool(calls)


async def conversation(url: str, meter: Meter) -> None:
    """One agent's whole conversation on a connection of its own."""
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    stream = await trio.open_tcp_stream(host, parts.port or 80)
    async with stream:
        connection = Connection(stream, host, parts.path + "/chat/completions")
        messages: list[dict[str, object]] = [
            {"role": "system", "content": "You add numbers."},
            {"role": "user", "content": "Add, please."},
        ]
        while await one_step(connection, messages, meter):
            meter.step()


async def run(url: str, agents: int) -> None:
    """Run `agents` conversations at once and print the marks."""
    meter = Meter()
    meter.ready()
    async with trio.open_nursery() as nursery:
        for _ in range(agents):
            nursery.start_soon(conversation, url, meter)
    meter.tell()


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description="a bare h11+trio loop")
    parser.add_argument("url")
    parser.add_argument("--agents", type=int, default=1)
    options = parser.parse_args()
    trio.run(run, options.url, options.agents)


if __name__ == "__main__":
    main()
