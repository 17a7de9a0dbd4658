"""A real MCP server of the official package serves tools to a scripted conversation."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

import pytest
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

pytestmark = pytest.mark.skipif(
    find_spec("mcp") is None, reason="the package mcp is not installed; nox -s stories installs it"
)

SERVER = r"""
import socket, sys
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("numbers")

@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@server.tool()
def fails() -> str:
    "Always fails."
    raise ValueError("no such city")

@server.tool()
def picture() -> Image:
    "A small picture."
    return Image(data=b"\x89PNG", format="png")

if sys.argv[1:] == ["http"]:
    import uvicorn
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listener])
else:
    print("Starting the server of numbers", flush=True)
    server.run("stdio")
"""

SCRIPT = """
- tools:
    - {name: mcp__numbers__add, arguments: {a: 2, b: 40}}
    - {name: mcp__numbers__fails, arguments: {}}
    - {name: mcp__numbers__picture, arguments: {}}
    - {name: mcp__numbers__add, arguments: {a: two}}
- text: The sum is 42.
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The server as a file."""
    path = tmp_path / "server_of_numbers.py"
    path.write_text(SERVER, encoding="utf-8")
    return path


@asynccontextmanager
async def over_http(program: Path) -> AsyncGenerator[str, None]:
    """The server behind an address."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(program), "http"], stdout=PIPE, stderr=DEVNULL
    )
    assert process.stdout is not None
    try:
        said = b""
        with trio.fail_after(30):
            while b"\n" not in said:
                piece = await process.stdout.receive_some()
                assert piece, "the server ended"
                said += piece
        yield f"http://127.0.0.1:{int(said)}/mcp"
    finally:
        process.kill()
        await process.wait()


def composition(cli: CommandLine, server: str) -> str:
    (cli.workspace / "play.yml").write_text(SCRIPT, encoding="utf-8")
    (cli.workspace / "my.yml").write_text(
        "- {name: scripted, config: {file: play.yml}}\n"
        f"- {{name: mcp, config: {{waitMs: 20000, servers: {{numbers: {server}}}}}}}\n",
        encoding="utf-8",
    )
    return "my.yml"


async def talked(cli: CommandLine, config: str) -> tuple[list[str], str]:
    """The results of the calls, and what was said on standard error."""
    ran = await cli.run(
        "run", "--json", "--config", config, "--provider", "scripted",
        "--allow", "mcp__numbers__add", "--allow", "mcp__numbers__fails",
        "--allow", "mcp__numbers__picture", "go",
    )  # fmt: skip
    assert ran.code == 0, ran
    events = [json.loads(line) for line in ran.lines]
    results = [event["data"]["message"] for event in events if event["type"] == "tool/result"]
    return [block["text"] for result in results for block in result["content"]], ran.err


def check(texts: list[str]) -> None:
    added, failed, picture, misfit = texts
    assert added == "42"
    assert failed.startswith("Error: ")
    assert "fails" in failed
    assert picture.startswith("[image, image/png, 4 bytes, kept in /")
    assert "'two'" in misfit or "integer" in misfit


@pytest.mark.holds("MC1", "MC7")
async def test_a_real_server_over_its_standard_streams(cli: CommandLine, program: Path) -> None:
    server = f"{{command: {sys.executable}, args: [{program}]}}"
    texts, err = await talked(cli, composition(cli, server))
    check(texts)
    assert "Starting the server of numbers" in err
    assert "such lines are skipped" in err


@pytest.mark.holds("MC9")
async def test_a_real_server_over_http(cli: CommandLine, program: Path) -> None:
    async with over_http(program) as url:
        texts, err = await talked(cli, composition(cli, f"{{url: '{url}'}}"))
    check(texts)
    assert "mcp" not in err


@pytest.mark.holds("MC3")
async def test_doctor_tells_which_server_does_not_start(cli: CommandLine) -> None:
    args = "[-c, 'raise SystemExit(\"no key\")']"
    server = f"{{command: {sys.executable}, restarts: 0, args: {args}}}"
    ran = await cli.run("doctor", "--config", composition(cli, server))
    at = ran.lines.index("warn  plugin     mcp: MCP server 'numbers' exited with status 1")
    assert ran.lines[at + 1].strip() == "no key"
