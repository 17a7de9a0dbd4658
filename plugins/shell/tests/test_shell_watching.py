"""What is shown of a running command: the end of its output, seldom, and never after its end."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import attrs
import pytest
import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.seams.shell import Shell, ShellResult, Watch
from dsh.testing import ToolRoom, open_tool_room, played_shell
from dsh_plugins.shell import shell
from dsh_plugins.shell.watching import EVERY, FIRST, TAIL_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio.testing import MockClock

    Prints: TypeAlias = Callable[[Watch], Awaitable[None]]


@attrs.define
class Printing(Shell):
    """A command that prints as the test says, on the test's clock."""

    prints: Prints
    watch: Watch | None = None

    @override
    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout: float,
        owner: str | None = None,
        watch: Watch | None = None,
    ) -> ShellResult:
        assert watch is not None
        self.watch = watch
        await self.prints(watch)
        return ShellResult(
            exit_code=0,
            signal=None,
            head=b"the end",
            tail=b"",
            omitted=0,
            timed_out=False,
            stopped_background=False,
            detached=False,
        )


@attrs.define
class Viewer:
    """Runs `bash` and notes what was shown, and when."""

    room: ToolRoom
    began: float = 0.0
    shown: list[tuple[float, str]] = attrs.field(factory=list)

    async def bash(self, prints: Prints) -> Printing:
        printing = Printing(prints)
        await self.room.kernel.mount(played_shell(printing)).ready()
        await self.room.kernel.mount(shell).ready()
        ctx = await self.room.plugin("viewer")

        @ctx.on(ev.tools.PROGRESS)
        def note(event: ev.tools.Progress) -> None:
            assert event.exec.name == "bash"
            self.shown.append((round(trio.current_time() - self.began, 6), event.text))

        self.began = trio.current_time()
        await self.room.run("bash", {"command": "make"})
        return printing


@pytest.fixture
async def viewer() -> AsyncIterator[Viewer]:
    async with open_tool_room() as room:
        yield Viewer(room)


@pytest.mark.holds("TP1")
async def test_a_flood_is_shown_ten_times_a_second_and_each_time_its_end(
    viewer: Viewer, autojump_clock: MockClock
) -> None:
    async def flood(watch: Watch) -> None:
        for number in range(200):
            watch(b"line %d\n" % number * 50)
            await trio.sleep(0.01)

    await viewer.bash(flood)
    ended = trio.current_time() - viewer.began
    times = [time for time, _ in viewer.shown]
    assert times[0] >= FIRST
    assert all(later - time >= EVERY - 1e-6 for time, later in pairwise(times))
    assert 10 < len(times) <= 1 + (ended - FIRST) / EVERY
    for _, text in viewer.shown:
        assert len(text.encode()) <= TAIL_MAX
        assert text.startswith("line ")  # no line is cut in two
        assert text.endswith("\n")


@pytest.mark.holds("TP1")
async def test_what_is_odd_or_cut_is_shown_safely(
    viewer: Viewer, autojump_clock: MockClock
) -> None:
    async def odd(watch: Watch) -> None:
        watch(b"\x1b[2J\xff")
        await trio.sleep(1)
        watch("€".encode() * 3_000)  # one long line, whose start lies within a character
        await trio.sleep(1)

    await viewer.bash(odd)
    assert [text for _, text in viewer.shown] == ["\\x1b[2J\\xff", "€" * (TAIL_MAX // 3)]


@pytest.mark.holds("TP1")
async def test_a_silent_command_shows_nothing(viewer: Viewer, autojump_clock: MockClock) -> None:
    async def silent(_watch: Watch) -> None:
        await trio.sleep(60)

    await viewer.bash(silent)
    assert viewer.shown == []


@pytest.mark.holds("TP1")
async def test_a_quick_command_shows_nothing_and_none_does_after_its_end(
    viewer: Viewer, autojump_clock: MockClock
) -> None:
    async def quick(watch: Watch) -> None:
        watch(b"almost\n")
        await trio.sleep(FIRST / 2)

    printing = await viewer.bash(quick)
    assert printing.watch is not None
    printing.watch(b"a straggler\n")
    await trio.sleep(5)
    assert viewer.shown == []


@pytest.mark.holds("TP1")
async def test_nothing_is_shown_after_a_cancellation(
    viewer: Viewer, autojump_clock: MockClock
) -> None:
    async def lingering(watch: Watch) -> None:
        watch(b"one\n")
        try:
            await trio.sleep(FIRST / 2)
            viewer.room.signal.cancel()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                watch(b"two\n")
                await trio.sleep(5)

    await viewer.bash(lingering)
    assert viewer.shown == []
