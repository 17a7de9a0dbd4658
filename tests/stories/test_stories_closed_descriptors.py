"""A tool that closes descriptors which are not its own: what is said, and what is in the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import open_model_server

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

PLUGIN = """
import os
import attrs
from dsh import Context, define_tool, plugin
from dsh.kernel import required
from dsh.tools import TOOLS, ToolRuntime

kept = []

def ours(word):
    for name in os.listdir("/proc/self/fd"):
        try:
            if word in os.readlink(f"/proc/self/fd/{name}"):
                yield int(name)
        except OSError:
            pass

@attrs.frozen
class Args:
    what: str

@attrs.frozen
class Deps:
    tools: ToolRuntime = required(TOOLS)

async def closes(args, run):
    match args.what:
        case "1" | "2":
            os.close(int(args.what))
        case "0 to 2":
            os.closerange(0, 3)
        case "1 and 2, taken again":
            os.closerange(1, 3)
            kept.extend([open("one", "w"), open("two", "w")])
        case "log" | "log, taken again" | "lock":
            for fd in list(ours("session.jsonl" if "log" in args.what else ".lock")):
                os.close(fd)
                if "taken" in args.what:
                    kept.append(open("one", "w"))
        case "3 and up":
            os.closerange(3, 1000)
        case _:
            os.closerange(0, 1000)
    return "closed"

@plugin(name="closer", deps=Deps)
async def closer(ctx: Context, config: None, deps: Deps) -> None:
    deps.tools.register(
        ctx, define_tool(name="bad", description="", args=Args, output=str, execute=closes)
    )
"""
CONFIG = """
- {name: closer}
- {name: permissions, config: {rules: [{decision: allow, tool: '*'}]}}
"""
ANSWER = "The answer.\n"


@frozen
class End:
    """How the run ends: its code, what it prints, a word of what it says."""

    code: int
    out: str
    says: str


#: What a tool closes, and the lawful end of that.
ENDS = {
    "1": End(0, ANSWER, "standard output was closed while bad ran"),
    "2": End(0, ANSWER, "standard error was closed while bad ran"),
    "0 to 2": End(0, ANSWER, "standard input and standard output and standard error"),
    "1 and 2, taken again": End(0, ANSWER, ""),
    "lock": End(0, ANSWER, "s1.lock: its descriptor was closed by something else"),
    "log": End(1, "", "write failed: Bad file descriptor; what was acknowledged before is safe"),
    "log, taken again": End(2, "", "somebody else changed it while session 's1' was open here"),
    "3 and up": End(1, "", "the event loop lost its descriptors"),
    "all": End(1, "", ""),
}


@pytest.mark.holds("TP2")
@pytest.mark.parametrize("what", ENDS)
async def test_a_tool_that_closes_descriptors_ends_lawfully(
    cli: CommandLine, tmp_path: Path, what: str
) -> None:
    folder = tmp_path / "installed"
    meta = folder / "closer-1.0.dist-info"
    meta.mkdir(parents=True)
    (folder / "closer_plugin.py").write_text(PLUGIN, encoding="utf-8")
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: closer\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dsh.plugins]\ncloser = closer_plugin:closer\n")
    (tmp_path / "my.yml").write_text(CONFIG, encoding="utf-8")
    path = f"{folder}:{cli.environment().get('PYTHONPATH', '')}"
    calls = (
        ScriptedCall(name="bad", arguments=json.dumps({"what": what})),
        ScriptedCall(name="bash", arguments='{"command": "echo on"}'),
    )
    replies = [ScriptEntry(tools=calls), ScriptEntry(text="The answer."), ScriptEntry(text="more")]
    async with open_model_server(replies, strict=True) as server:
        here = cli.having(PYTHONPATH=path).talking_to(server)
        ran = await here.run("run", "--config", str(tmp_path / "my.yml"), "--session", "s1", "go")
        end = ENDS[what]
        said = ran.err.strip().splitlines()[-1]
        print(f"closes {what}: exit {ran.code}, {ran.out!r}, {said:.90}")  # noqa: T201 - the list, for `pytest -s`
        assert (ran.code, ran.out) == (end.code, end.out)
        assert end.says in ran.err
        assert "Traceback" not in ran.err
        assert all(not taken.read_bytes() for taken in cli.workspace.iterdir())
        verified = await here.run("sessions", "verify", "s1")
        assert (verified.code, verified.out[:6]) == (0, "ok s1:")
        # The log has whole events: the next run repairs what was cut, and a strict server takes it.
        resumed = await here.run("run", "--resume", "s1", "go on")
        assert resumed.code == 0
    assert server.refusals == []
