"""Ctrl-C, kill and coming back: prompt, nothing lost, the next request is one a server accepts."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import orjson
import pytest
import trio

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import Hang, WireReply, delta, open_model_server, sse_reply
from dsh.testing.processes import alive

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine, Ran

LATER = ScriptEntry(text="later")


def stalled(*words: str) -> WireReply:
    """A reply that says these words, and then nothing more."""
    return sse_reply(*(delta(content=word) for word in words), Hang(), done=False)


async def comes_back(cli: CommandLine, *, steps: int = 1) -> None:
    """The session is sound, closed, and goes on."""
    verified = await cli.run("sessions", "verify", "s1")
    assert verified.code == 0, verified
    resumed = await cli.run("run", "--resume", "s1", "go on")
    assert (resumed.code, resumed.out) == (0, "later\n"), resumed
    assert f"resumed after {steps} turn" in resumed.err


def ends(ran: Ran) -> list[object]:
    """The `turn/end` reasons that were printed."""
    events = [orjson.loads(line) for line in ran.lines]
    return [event["data"]["reason"] for event in events if event["type"] == "turn/end"]


STOPPED = {"kind": "aborted", "reason": {"kind": "user"}}


@pytest.mark.holds("CL12")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_in_a_streamed_reply_stops_the_turn(
    cli: CommandLine, number: signal.Signals
) -> None:
    async with open_model_server([stalled("half ", "an answer"), LATER], strict=True) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--json", "--session", "s1", "hi") as run:
            await run.until("an answer")
            run.interrupt(number)
            ran = await run.ended()
        assert ran.code == 128 + number
        assert "Traceback" not in ran.err
        assert ends(ran) == [STOPPED]
        await server.when_open(0)
        await comes_back(here)
    assert b"half an answer" in server.requests[-1].body
    assert server.refusals == []


@pytest.mark.holds("CL12")
async def test_ctrl_c_in_a_stalled_reply_stops_the_turn(cli: CommandLine) -> None:
    async with open_model_server([WireReply(steps=(Hang(),)), LATER], strict=True) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--session", "s1", "hi") as run:
            await server.when_requests(1)
            run.interrupt()
            ran = await run.ended()
        assert (ran.code, ran.out) == (130, "")
        await comes_back(here)


@pytest.mark.holds("CL12")
async def test_ctrl_c_in_a_command_stops_its_children(cli: CommandLine) -> None:
    script = "trap '' HUP; sleep 600 & echo $! > child; wait"
    call = ScriptedCall(name="bash", arguments=orjson.dumps({"command": script}).decode())
    os.mkfifo(cli.workspace / "child")
    async with open_model_server([ScriptEntry(tools=(call,)), LATER], strict=True) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--json", "--yolo", "--session", "s1", "hi") as run:
            child = await said_by(cli.workspace / "child")
            run.interrupt()
            ran = await run.ended()
        assert ran.code == 130
        assert ends(ran) == [STOPPED]
        assert not alive(child)
        kinds = [orjson.loads(line)["type"] for line in ran.lines]
        assert kinds.count("tool/call") == kinds.count("tool/result") == 1
        await comes_back(here)


async def said_by(pipe: Path) -> int:
    """The number that a command writes into this named pipe, as soon as it does."""
    with trio.fail_after(20):
        return int(await trio.to_thread.run_sync(pipe.read_text, abandon_on_cancel=True))


@pytest.mark.holds("CL12")
async def test_a_hangup_that_the_caller_ignores_stays_ignored(cli: CommandLine) -> None:
    async with open_model_server([stalled("half ", "an answer"), LATER]) as server:
        here = cli.talking_to(server)
        was = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            async with here.running("run", "--json", "hi") as run:
                await run.until("an answer")
                run.interrupt(signal.SIGHUP)
                run.interrupt()
                ran = await run.ended()
        finally:
            signal.signal(signal.SIGHUP, was)
    assert ran.code == 130


@pytest.mark.holds("CL13")
async def test_a_second_ctrl_c_leaves_although_something_hangs(cli: CommandLine) -> None:
    command = "trap '' TERM INT; echo $$ > child; while :; do sleep 600; done"
    call = ScriptedCall(name="bash", arguments=orjson.dumps({"command": command}).decode())
    os.mkfifo(cli.workspace / "child")
    async with open_model_server([ScriptEntry(tools=(call,)), LATER], strict=True) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--yolo", "--session", "s1", "hi") as run:
            await said_by(cli.workspace / "child")
            run.interrupt()
            run.interrupt()
            ran = await run.ended()
        assert ran.code == 130
        assert "Traceback" not in ran.err
        await comes_back(here)


@pytest.mark.holds("CL13")
async def test_a_killed_run_is_repaired_by_the_next(cli: CommandLine) -> None:
    async with open_model_server([stalled("half ", "an answer"), LATER], strict=True) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--json", "--session", "s1", "hi") as run:
            await run.until("an answer")
            run.kill()
            assert (await run.ended()).code == -signal.SIGKILL
        resumed = await here.run("run", "--json", "--resume", "s1", "go on")
        assert resumed.code == 0
        assert ends(resumed) == [{"kind": "interrupted"}, {"kind": "completed"}]
    assert b"half an answer" not in server.requests[-1].body


@pytest.mark.holds("CL13")
async def test_what_json_printed_survives_a_kill(cli: CommandLine) -> None:
    async with open_model_server([stalled("half ", "an answer")]) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--json", "--session", "s1", "hi") as run:
            await run.until("an answer")
            run.kill()
            printed = await run.ended()
        shown = await here.run("sessions", "show", "s1")
    assert printed.lines[-1].endswith("}")
    assert f"{len(printed.lines)} events" in shown.out


@pytest.mark.holds("CL12")
async def test_ctrl_c_before_anything_runs_is_no_traceback(cli: CommandLine) -> None:
    async with cli.running("run", "-") as run:
        await run.hears(b"x" * 200_000)
        run.interrupt()
        ran = await run.ended()
    assert (ran.code, ran.out, ran.err) == (-signal.SIGINT, "", "")
