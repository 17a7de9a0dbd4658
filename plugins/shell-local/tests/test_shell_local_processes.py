"""The processes of a command: what a sandbox puts around them, and that they die with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.seams.output import Ends
from dsh.seams.processes import Reaper
from dsh.testing.processes import all_gone
from dsh_plugins.shell_local import LocalShell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


async def written(path: Path, words: int) -> list[int]:
    """The numbers that processes wrote into a file, once there are so many."""
    found: list[str] = []
    with trio.fail_after(30):
        while len(found) < words:
            await trio.sleep(0.02)
            with suppress(FileNotFoundError):
                found = (await trio.Path(path).read_text()).split()
    return [int(word) for word in found]


#: A house as far as its processes go: one provider of the shell seam, and a command that runs.
HARNESS = """
import signal, sys, trio
# Whoever started the tests may have had these ignored, which a child inherits.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from dsh.seams.processes import Reaper
from dsh_plugins.shell_local import LocalShell
from dsh_plugins.shell_session.keeping import SessionShells

def environment():
    return {"PATH": "/bin:/usr/bin"}

async def main(kind, pids, before):
    local = LocalShell(environment, Reaper())
    kept = SessionShells(environment, lambda argv, cwd: argv, Reaper())
    shell = local if kind == "local" else kept
    if before:
        await shell.run(before, cwd="/", timeout=60)
    command = "trap '' TERM HUP; sleep 300 & echo $$ $! >> " + pids
    # With job control each background job has a process group of its own.
    command += "; set -m; sleep 300 & echo $! >> " + pids
    command += "; (trap '' TERM HUP INT; sleep 300; :) & echo $! >> " + pids + "; wait; sleep 300"
    await shell.run(command, cwd="/", timeout=600)

trio.run(main, *sys.argv[1:])
"""


@pytest.mark.holds("case-062")
@pytest.mark.parametrize("kind", ["local", "session"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_children_die_with_the_harness_however_it_dies(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    pids = tmp_path / "pids"
    # A kept shell may hold processes of an earlier command, too.
    before = f"sleep 300 & echo $! >> {pids}" if kind == "session" else ""
    process = subprocess.Popen(  # noqa: ASYNC220 - a process of its own, to be killed
        [sys.executable, "-c", HARNESS, kind, str(pids), before],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        children = await written(pids, 5 if before else 4)
        process.send_signal(number)
        assert await trio.to_thread.run_sync(process.wait) != 0
        assert await all_gone(*children)
    finally:
        process.kill()


@pytest.mark.holds("case-060")
@pytest.mark.parametrize("how", ["", ">/dev/null 2>&1"])
async def test_job_control_hides_no_background_job(tmp_path: Path, how: str) -> None:
    reaper = Reaper()
    provider = LocalShell(lambda: {"PATH": os.defpath}, reaper)
    command = f"set -m; sleep 300 {how} & echo $!"
    with trio.fail_after(20):
        done = await provider.run(command, cwd=str(tmp_path), timeout=10)
    assert done.stopped_background
    assert await all_gone(int(done.head))
    await reaper.aclose()


async def test_the_reaper_forgets_what_has_ended_and_goes_with_the_plugin(tmp_path: Path) -> None:
    reaper = Reaper()
    provider = LocalShell(lambda: {"PATH": os.defpath}, reaper)
    done = await provider.run("echo $$", cwd=str(tmp_path), timeout=10)
    assert done.head.strip().isdigit()
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)  # noqa: ASYNC220 - a process of its own, to be killed
    try:
        reaper.hold(stranger.pid)
        reaper.release(stranger.pid)
        await reaper.aclose()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_reaper_that_was_killed_is_replaced_by_one_that_knows_what_was_held() -> None:
    reaper = Reaper()
    kept = subprocess.Popen(["sleep", "300"], start_new_session=True)  # noqa: ASYNC220 - a process of its own, to be killed
    try:
        reaper.hold(kept.pid)
        assert reaper.pid is not None
        os.kill(reaper.pid, signal.SIGKILL)
        os.waitid(os.P_PID, reaper.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it is dead, and only to be reaped
        reaper.pipe()
        await reaper.aclose()
        assert await trio.to_thread.run_sync(kept.wait) == -signal.SIGKILL
    finally:
        kept.kill()
        kept.wait()


async def test_a_command_starts_through_the_sandbox_if_there_is_one(tmp_path: Path) -> None:
    asked: list[tuple[list[str], str]] = []

    def confined(argv: Sequence[str], cwd: str) -> Sequence[str]:
        asked.append((list(argv), cwd))
        return ["env", "CONFINED=yes", *argv]

    reaper = Reaper()
    provider = LocalShell(lambda: {"PATH": os.defpath}, reaper, confined=confined)
    command = "echo \"$CONFINED '$0' $1\""
    done = await provider.run(command, cwd=str(tmp_path), timeout=10)
    assert done.head == b"yes '/bin/bash' \n"
    assert asked == [(["/bin/bash", "-c", command], str(tmp_path))]
    await reaper.aclose()


async def test_whoever_watches_sees_every_byte_before_the_end(tmp_path: Path) -> None:
    reaper = Reaper()
    seen = bytearray()
    provider = LocalShell(lambda: {"PATH": os.defpath}, reaper, head=10, tail=10)
    await provider.run("seq 100000", cwd=str(tmp_path), timeout=30, watch=seen.extend)
    assert bytes(seen) == b"".join(b"%d\n" % n for n in range(1, 100_001))
    await reaper.aclose()


def test_the_ends_of_an_output_are_exact() -> None:
    data = bytes(range(256)) * 40
    for size in (1, 7, 300, 4096):
        ends = Ends(head=100, tail=50)
        for start in range(0, len(data), size):
            ends.add(data[start : start + size])
        assert ends.ends() == (data[:100], data[-50:], len(data) - 150)
    small = Ends(head=100, tail=50)
    small.add(data[:120])
    assert small.ends() == (data[:100], data[100:120], 0)
