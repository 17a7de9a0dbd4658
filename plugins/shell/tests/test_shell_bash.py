"""`bash`: what the model reads, what a command may see, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import attrs
import orjson
import pytest
import trio
from typing_extensions import override

from dsh import Context, plugin
from dsh.hooks.live import ToolSuccess
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ, Secret
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh.testing.processes import alive, all_gone
from dsh_plugins.shell import shell
from dsh_plugins.shell_local import shell_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path


class Variables(Environ):
    """The test's own environment."""

    values: Mapping[str, str] = {
        "PATH": os.defpath,
        "HOME": "/nowhere",
        "DEEPSEEK_API_KEY": "k1",
        "GITHUB_TOKEN": "k2",
        "client_secret": "k3",
        "ACME_KEY": "k4",
        "KEYBOARD": "qwertz",
    }

    @override
    def get(self, name: str) -> str | None:
        return self.values.get(name)

    @override
    def variables(self) -> Mapping[str, str]:
        return self.values


class Keys(Credentials):
    """A provider named ACME_KEY as its key."""

    @override
    def resolve(self, name: str) -> Secret:
        raise NotImplementedError

    @override
    def reserve(self, names: Iterable[str]) -> None:
        raise NotImplementedError

    @override
    def secret_names(self) -> frozenset[str]:
        return frozenset({"ACME_KEY"})


@plugin(name="surroundings", provides=(ENVIRON, CREDENTIALS))
async def surroundings(ctx: Context) -> None:
    """Boot's part in a test."""
    ctx.provide(ENVIRON, Variables())
    ctx.provide(CREDENTIALS, Keys())


@attrs.define
class Terminal:
    """Runs commands through the tool."""

    room: ToolRoom
    path: Path

    async def call(self, command: str, **more: object) -> Committed:
        given = self.room.call("bash", {"command": command, **more})
        given = attrs.evolve(given, cwd=str(self.path))
        finished = await self.room.tools.execute(given)
        return Committed("c1", 0, finished.result, finished.decided_by)

    async def text(self, command: str, **more: object) -> str:
        return (await self.call(command, **more)).text


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with open_tool_room() as room:
        await room.kernel.mount(surroundings).ready()
        await room.kernel.mount(shell_local).ready()
        await room.kernel.mount(shell).ready()
        yield Terminal(room, tmp_path)


async def test_output_and_exit_status_are_told(terminal: Terminal) -> None:
    assert await terminal.text("echo out; echo err >&2") == "out\nerr"
    assert await terminal.text("true") == "[exit status 0]"
    assert await terminal.text("echo x; exit 7") == "x\n[exit status 7]"
    assert await terminal.text("kill -SEGV $$") == "[ended by SIGSEGV]"
    assert await terminal.text("pwd") == str(terminal.path)
    assert await terminal.text("cat; echo no input") == "no input"
    assert "[exit status 127]" in await terminal.text("no_such_command_here")


async def test_a_failing_command_is_a_result_and_no_failure(terminal: Terminal) -> None:
    result = (await terminal.call("exit 1")).result
    assert isinstance(result, ToolSuccess)
    assert isinstance(result.value, dict)
    assert result.value["exit_code"] == 1


async def test_a_folder_that_is_not_there_is_a_clear_failure(terminal: Terminal) -> None:
    gone_terminal = Terminal(terminal.room, terminal.path / "gone")
    result = await gone_terminal.call("true")
    assert "could not be started" in result.text
    assert "No such file or directory" in result.text
    assert "NUL" in (await terminal.call("echo \x00")).text


async def test_no_key_token_or_secret_reaches_a_command(terminal: Terminal) -> None:
    seen = await terminal.text("env")
    for value in ("k1", "k2", "k3", "k4"):
        assert value not in seen
    assert "KEYBOARD=qwertz" in seen
    assert "HOME=/nowhere" in seen
    assert "TERM=dumb" in seen


@pytest.mark.holds("case-034")
async def test_bytes_that_are_no_text_are_escaped_and_survive_the_log(terminal: Terminal) -> None:
    command = (
        r"printf 'head\n\xff\xfe\x00\x80\xf0\x9f\xa6' ; head -c 200000 /dev/urandom ; "
        r"printf '\ntail\xe4\xb8'"
    )
    result = await terminal.call(command)
    assert isinstance(result.result, ToolSuccess)
    assert result.text.startswith("head\n\\xff\\xfe\\x00\\x80")
    assert result.text.endswith("\ntail\\xe4\\xb8")
    assert "bytes left out" in result.text
    assert orjson.loads(orjson.dumps(result.text)) == result.text
    assert await terminal.text("head -c 5 /dev/zero") == "\\x00" * 5
    assert await terminal.text(r"printf '\r\x1b]0;title\x07\x1b[2J'") == (
        "\\r\\x1b]0;title\\x07\\x1b[2J"
    )
    assert await terminal.text(r"printf '\xff\xfeh\x00i\x00'") == "\\xff\\xfeh\\x00i\\x00"


@pytest.mark.holds("case-034")
async def test_a_character_cut_by_the_bound_is_left_out_whole(terminal: Terminal) -> None:
    text = await terminal.text("for i in $(seq 1 20000); do printf '€'; done; echo")
    body = text.replace("\n", "")
    head, _, tail = body.partition("[…")
    assert set(head) == {"€"}
    assert set(tail.partition("…]")[2]) == {"€"}


@pytest.mark.holds("case-033")
async def test_endless_output_is_counted_not_kept(terminal: Terminal) -> None:
    text = await terminal.text("yes | head -c 50000000; echo the end")
    assert len(text) < 40_000
    assert "49970" in text  # fifty million and eight, less thirty thousand
    assert text.endswith("the end")


@pytest.mark.holds("case-060")
@pytest.mark.parametrize(
    "command", ["sleep 300 & echo started $!", "sleep 300 >/dev/null 2>&1 & echo started $!"]
)
async def test_a_background_child_neither_holds_the_call_nor_outlives_it(
    terminal: Terminal, command: str
) -> None:
    with trio.fail_after(30):
        text = await terminal.text(command)
    assert text.startswith("started ")
    assert "left in the background were ended" in text
    assert await all_gone(int(text.split()[1]))


@pytest.mark.holds("case-060")
async def test_a_detached_child_is_reported(terminal: Terminal) -> None:
    with trio.fail_after(30):
        text = await terminal.text("setsid sh -c 'echo $$; exec sleep 300' & sleep 0.2")
    child = int(text.split()[0])
    assert "detached itself" in text
    assert alive(child)
    os.kill(child, signal.SIGKILL)


@pytest.mark.holds("case-060")
async def test_a_child_that_ignores_term_is_killed_at_the_deadline(terminal: Terminal) -> None:
    with trio.fail_after(30):
        text = await terminal.text("echo $$; (trap '' TERM; sleep 300) | cat", timeout=2)
    assert "timed out after 2 s" in text
    assert await all_gone(int(text.split()[0]))


@pytest.mark.holds("case-060")
async def test_a_flood_of_errors_does_not_hang(terminal: Terminal) -> None:
    with trio.fail_after(20):
        assert "ok" in await terminal.text("yes 2>/dev/null | head -c 5000000 >&2; echo ok")


async def test_a_cancelled_command_is_gone_with_its_children_quickly(terminal: Terminal) -> None:
    pids = terminal.path / "pids"
    command = f"trap '' TERM; sleep 300 & echo $$ $! > {pids}; wait; sleep 300"
    finished: list[Committed] = []

    async def run() -> None:
        finished.append(await terminal.call(command))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.fail_after(30):
            while not pids.exists() or not pids.read_text().strip():  # noqa: ASYNC110 - nothing signals that a process is gone
                await trio.sleep(0.01)
        start = trio.current_time()
        terminal.room.signal.cancel()
    assert trio.current_time() - start < 2  # TERM, 0.1 s, KILL; generous for a busy machine
    assert finished[0].code == "ABORTED"
    assert await all_gone(*map(int, pids.read_text().split()))
