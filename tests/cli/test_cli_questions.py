"""The question about a call: which of several it is, whose, and how wide the terminal is now."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.cli.run.approving import Approver, terminal
from dsh.cli.screen.outlet import Outlet
from dsh.cli.screen.outputs import Screen
from dsh.testing import always_pre, call, calls, open_test_house, says
from dsh_plugins.approval import approval
from dsh_plugins.approval.catalog import ApprovalConfig

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.tools import Tool


@frozen
class Nothing:
    """No arguments."""


def work() -> Tool:
    async def works(_args: Nothing, _run: live.ToolRun) -> str:
        return "done"

    return define_tool(name="work", description="Works", args=Nothing, output=str, execute=works)


class Answers:
    """A person who reads for as long as the gate is shut, and allows everything."""

    def __init__(self) -> None:
        self.gate = trio.Event()

    async def line(self, prompt: str) -> str | None:
        await self.gate.wait()
        return "y"


async def shown() -> None:
    await trio.lowlevel.checkpoint()


def screen(width: int | None, fd: int = 2) -> Screen:
    return Screen(Outlet(fd, "x"), Outlet(fd, "x"), colored=False, width=width)


@pytest.mark.holds("CL23")
async def test_a_question_says_which_it_is_of_several_and_whose() -> None:
    said: list[str] = []
    person = Answers()
    approver = Approver(screen(100), said.append, person, shown=shown, mine=lambda: "main")
    async with open_test_house(tools=[work()]) as house:
        await house.kernel.mount(approval, ApprovalConfig(policy="ask")).ready()
        always_pre(house.ctx, ev.tools.Ask(reason="it may hurt"))
        await house.kernel.mount(terminal(approver)).ready()
        twice = calls(call("work", call_id="a"), call("work", call_id="b"))
        house.model.replies.extend([twice, calls(call("work")), says("done"), says("done")])
        async with trio.open_nursery() as nursery:
            for name in ("main", "helper"):
                handle = await house.agent(name)
                nursery.start_soon(handle.agent.ask, user_message("go"))
                await trio.testing.wait_all_tasks_blocked()
            person.gate.set()
    heads = [text.split("   ")[0] for text in said]
    assert sorted(heads) == [
        "  work of agent helper allowed once by you\n",
        "approve work?  2 of 3  for agent helper",
        "approve work?  3 of 3  call 2 of 2",
        "approve work?  call 1 of 2",
    ]


@pytest.mark.holds("CL36")
def test_the_screen_is_as_wide_as_the_terminal_is_now() -> None:
    leader, follower = pty.openpty()
    try:
        widths: list[int] = []
        here = screen(None, follower)
        for columns in (100, 41, 7):
            size = struct.pack("HHHH", 30, columns, 0, 0)
            fcntl.ioctl(follower, termios.TIOCSWINSZ, size)
            widths.append(here.width)
        assert widths == [100, 41, 30]
    finally:
        os.close(leader)
        os.close(follower)
    reader, writer = os.pipe()
    try:
        assert screen(None, writer).width == 80
    finally:
        os.close(reader)
        os.close(writer)
