"""What each layer below a request costs: h11 alone, httpcore, httpx's transport, its client, ours.

What comes in: a number of requests. What goes out: for each layer the CPU microseconds of one
request with its streamed reply, whose bytes are read and not looked at, over a kept connection. The
layers take turns, so that noise hits all of them alike.

    python -m benchmarks.layers [--requests 2000] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import httpcore
import httpx
import trio

from benchmarks.bare_h11 import Connection
from benchmarks.running import ROOT, environment, serving
from dsh.kernel import SystemClock
from dsh.llm import http
from dsh.testing.wires import Variables

if TYPE_CHECKING:
    from collections import deque

    from dsh.catalog.records import StreamChunk
    from dsh.hooks import JsonValue

__all__ = ["LAYERS", "layer_rows"]

BODY: Final = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user"}]}).encode()
HEADERS: Final = {"Content-Type": "application/json"}
Ask: TypeAlias = Callable[[], Awaitable[object]]


@asynccontextmanager
async def over_h11(url: httpx.URL) -> AsyncGenerator[Ask, None]:
    """The floor: one request written and its reply read."""
    async with await trio.open_tcp_stream(url.host, url.port or 80) as stream:
        connection = Connection(stream, url.host, url.path)
        yield lambda: connection.post(BODY)


@asynccontextmanager
async def over_httpcore(url: httpx.URL) -> AsyncGenerator[Ask, None]:
    """The pool below httpx."""
    async with httpcore.AsyncConnectionPool() as pool:
        target, pairs = httpcore.URL(str(url)), [*HEADERS.items()]

        async def ask() -> None:
            async with pool.stream("POST", target, headers=pairs, content=BODY) as response:
                async for _ in response.aiter_stream():
                    pass

        yield ask


@asynccontextmanager
async def over_transport(url: httpx.URL) -> AsyncGenerator[Ask, None]:
    """Httpx without its client, as dsh uses it: headers merged once."""
    headers = httpx.Headers(HEADERS)
    async with httpx.AsyncHTTPTransport(trust_env=False) as transport:

        async def ask() -> None:
            request = httpx.Request("POST", url, content=BODY, headers=headers)
            response = await transport.handle_async_request(request)
            async for _ in response.aiter_raw():
                pass
            await response.aclose()

        yield ask


@asynccontextmanager
async def over_client(url: httpx.URL) -> AsyncGenerator[Ask, None]:
    """Httpx's client, raw bytes."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def ask() -> None:
            async with client.stream("POST", url, content=BODY, headers=HEADERS) as response:
                async for _ in response.aiter_raw():
                    pass

        yield ask


@asynccontextmanager
async def over_lines(url: httpx.URL) -> AsyncGenerator[Ask, None]:
    """Httpx's client, line by line: the usual loop."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def ask() -> None:
            async with client.stream("POST", url, content=BODY, headers=HEADERS) as response:
                async for _ in response.aiter_lines():
                    pass

        yield ask


class Nothing:
    """A decoder that looks at nothing but the end."""

    def __init__(self, queue: deque[StreamChunk], hide: Callable[[str], str]) -> None:
        del queue, hide
        self.done = False

    def decode(self, data: bytes) -> None:
        """Note the end."""
        self.done = data == b"[DONE]"

    def take_whole(self, value: JsonValue) -> bool:
        """No reply is one JSON value."""
        del value
        return False

    def complete_at(self, tail: bytes) -> bool:
        """No reply is whole without its end."""
        del tail
        return False

    def finish(self) -> None:
        """Nothing is left to say."""


@asynccontextmanager
async def over_dsh(url: httpx.URL) -> AsyncGenerator[Ask, None]:
    """`dsh.llm.http`: framed, bounded, with every failure classified."""
    connections = http.Connections(Variables(), SystemClock())

    async def ask() -> None:
        stream = connections.stream(
            url,
            BODY,
            headers=HEADERS,
            secret=None,
            connect_timeout_ms=10_000,
            idle_timeout_ms=300_000,
            decoder=Nothing,
        )
        async with stream as chunks:
            async for _ in chunks:
                pass

    yield ask
    await connections.aclose()


LAYERS: Final = {
    "h11": over_h11,
    "httpcore": over_httpcore,
    "httpx transport": over_transport,
    "httpx client": over_client,
    "httpx lines": over_lines,
    "dsh.llm.http": over_dsh,
}


async def spent(layer: str, url: str, requests: int) -> float:
    """CPU microseconds of one request, after some to warm up."""
    async with LAYERS[layer](httpx.URL(url)) as ask:
        for _ in range(requests // 10 + 1):
            await ask()
        start = time.process_time()
        for _ in range(requests):
            await ask()
        return 1e6 * (time.process_time() - start) / requests


def layer_rows(*, requests: int, repeats: int) -> list[dict[str, object]]:
    """One row for each layer, with what it costs beside h11 and beside httpx's client."""
    figures: dict[str, list[float]] = {layer: [] for layer in LAYERS}
    with serving(steps=0, chunks=20) as server:
        url = f"{server.url}/chat/completions"
        for _ in range(repeats):
            for layer, found in figures.items():
                command = [sys.executable, "-m", "benchmarks.layers", "--one", layer, url]
                command += ["--requests", str(requests)]
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True, env=environment(),
                    cwd=ROOT,
                )  # fmt: skip
                found.append(float(done.stdout))
    medians = {layer: statistics.median(found) for layer, found in figures.items()}
    return [
        {
            "row": f"a request over {layer}",
            "unit": "us CPU",
            "spent": round(cost),
            "toHttpx": round(cost / medians["httpx lines"], 2),
            "toH11": round(cost / medians["h11"], 2),
        }
        for layer, cost in medians.items()
    ]


def main() -> None:
    """Measure one layer, or all of them in processes of their own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--one", nargs=2, metavar=("LAYER", "URL"), help="one layer, in here")
    options = parser.parse_args()
    if options.one is not None:
        layer, url = options.one
        sys.stdout.write(f"{trio.run(spent, layer, url, options.requests)}\n")
        return
    for row in layer_rows(requests=options.requests, repeats=options.repeats):
        cells = "  ".join(f"{key} {value}" for key, value in row.items() if key != "row")
        line = json.dumps(row) if options.json else f"{row['row']!s:<36}{cells}"
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
