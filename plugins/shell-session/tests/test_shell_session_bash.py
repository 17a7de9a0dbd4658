"""The kept bash behind the unchanged tool: what stays, what ends it, and who shares it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from typing_extensions import override

from dsh import Context, plugin
from dsh.boot import ProcessEnviron
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Secret
from dsh.seams.shell import SHELL
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh.testing.processes import alive, all_gone
from dsh_plugins.shell import shell
from dsh_plugins.shell_session import shell_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from dsh.kernel import Fiber


class Keys(Credentials):
    """Knows one secret."""

    @override
    def resolve(self, name: str) -> Secret:
        return Secret(name, "x")

    @override
    def reserve(self, names: Iterable[str]) -> None:
        del names

    @override
    def secret_names(self) -> frozenset[str]:
        return frozenset({"MODEL_KEY"})


@attrs.define
class Desk:
    """Runs commands as the model would."""

    room: ToolRoom
    path: Path
    fiber: Fiber

    async def bash(self, command: str, **more: object) -> Committed:
        given = self.room.call("bash", {"command": command, **more})
        finished = await self.room.tools.execute(attrs.evolve(given, cwd=str(self.path)))
        return Committed("c", 0, finished.result, finished.decided_by)

    async def text(self, command: str, **more: object) -> str:
        with trio.fail_after(20):
            return (await self.bash(command, **more)).text


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    @plugin(name="variables", provides=(ENVIRON, CREDENTIALS))
    async def variables(ctx: Context) -> None:
        given = {"PATH": os.defpath, "MODEL_KEY": "sk-secret", "PLAIN": "seen"}
        ctx.provide(ENVIRON, ProcessEnviron(given))
        ctx.provide(CREDENTIALS, Keys())

    async with open_tool_room() as room:
        await room.kernel.mount(variables).ready()
        fiber = room.kernel.mount(shell_session)
        await fiber.ready()
        await room.kernel.mount(shell).ready()
        yield Desk(room, tmp_path, fiber)


async def test_directory_variables_and_functions_stay(desk: Desk) -> None:
    (desk.path / "sub").mkdir()
    await desk.text("cd sub; export A=1; f() { echo f$A; }")
    assert await desk.text("pwd; echo $A; f") == f"{desk.path}/sub\n1\nf1"


@pytest.mark.parametrize("command", ["exit 3", "(exit 3)", "set -e; (exit 3)"])
async def test_the_status_is_told_and_the_next_command_works(desk: Desk, command: str) -> None:
    assert await desk.text(command) == "[exit status 3]"
    assert await desk.text("echo on") == "on"


@pytest.mark.parametrize("command", ["exec >&- 2>&-", "exec >&- 2>&-; sleep 0.2", "exec 0<&-"])
async def test_a_command_that_closes_the_shells_own_pipes_ends_and_a_fresh_one_follows(
    desk: Desk, command: str
) -> None:
    assert (await desk.text(command)).startswith("[")
    assert await desk.text("echo on") == "on"


async def test_a_bash_that_was_killed_while_idle_is_replaced_and_leaves_nothing(desk: Desk) -> None:
    bash, child = map(int, (await desk.text("sleep 300 & echo $$ $!")).split())
    os.kill(bash, signal.SIGKILL)
    while alive(bash):  # noqa: ASYNC110 - nothing signals that a process is gone
        await trio.sleep(0.01)
    assert await desk.text("echo on") == "on"
    assert not alive(child)


async def test_output_is_seen_while_it_comes_but_for_the_mark(desk: Desk) -> None:
    provider = desk.room.kernel.root.require(SHELL)
    seen = bytearray()
    told = await provider.run(
        "printf 'a\\x1fb\\n'; seq 50000; printf '\\x1f'",
        cwd=str(desk.path),
        timeout=20,
        watch=seen.extend,
    )
    numbers = b"".join(b"%d\n" % n for n in range(1, 50_001))
    assert bytes(seen) == b"a\x1fb\n" + numbers + b"\x1f"
    assert told.tail == bytes(seen)[-15_000:]


async def test_odd_commands(desk: Desk) -> None:
    assert "syntax error" in await desk.text("if then")
    assert await desk.text("cat <<'E'\nit's \"quoted\" $A\nE") == 'it\'s "quoted" $A'
    assert await desk.text("cat; echo end") == "end"  # there is no input
    assert await desk.text("printf 'no newline'") == "no newline"
    assert await desk.text(r"printf '\xff\000x'") == "\\xff\\x00x"
    assert await desk.text("echo $MODEL_KEY.$PLAIN") == ".seen"


async def test_a_deadline_ends_it_with_its_children_and_a_fresh_one_follows(desk: Desk) -> None:
    text = await desk.text("A=1; sleep 300 & echo $!; wait", timeout=0.5)
    assert "timed out" in text
    child = int(text.split()[0])
    assert await all_gone(child)
    assert await desk.text("echo .$A") == "."


async def test_a_cancelled_command_is_ended_and_the_next_turn_has_a_bash(desk: Desk) -> None:
    async def cancel() -> None:
        while not (desk.path / "began").exists():  # noqa: ASYNC110 - a process says it by a file
            await trio.sleep(0.01)
        desk.room.signal.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        done = await desk.bash("touch began; sleep 300")
    assert done.code == "ABORTED"


async def test_a_background_child_delays_nothing_and_output_is_bounded(desk: Desk) -> None:
    assert await desk.text("sleep 300 & echo started") == "started"
    text = await desk.text("head -c 300000 /dev/zero | tr '\\0' x; echo end")
    assert "bytes left out" in text
    assert text.endswith("end")
    assert len(text) < 40_000


async def test_unloading_ends_everything(desk: Desk) -> None:
    child = int(await desk.text("sleep 300 & echo $!"))
    await desk.fiber.dispose()
    assert await all_gone(child)
