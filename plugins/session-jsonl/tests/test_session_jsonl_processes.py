"""Two processes, one session: owners are named, dead ones block nobody, kill -9 loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.errors import SessionBusy
from dsh.session import verify
from dsh.testing.logs import header
from dsh.wire import StoredEvent
from dsh_plugins.session_jsonl import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path

OWNER = """
import sys, pathlib, trio
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh_plugins.session_jsonl import JsonlStore

async def main():
    store = JsonlStore(pathlib.Path(sys.argv[1]), now_ms=lambda: 1_700_000_000_000)
    log = LogWriting()
    handle = await store.create(header())
    async with trio.open_nursery() as nursery:
        log.turn_start()
        await log.session.writer.drain_into(handle)
        log.session.writer.attach(handle)
        nursery.start_soon(log.session.writer.run)
        log.step_start()
        for number in range(10_000_000):
            log.chunks(f"w{number}")
            if number % 7 == 0:
                await log.session.writer.barrier()
                print(log.session.next_seq, flush=True)
            await trio.sleep(0.0005)

trio.run(main)
"""


def owner(root: Path) -> subprocess.Popen[str]:
    """A process that owns session `s` and prints how many events were acknowledged."""
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def acknowledged(process: subprocess.Popen[str], lines: int) -> int:
    assert process.stdout is not None
    last = "0"
    for _ in range(lines):
        last = process.stdout.readline()
    return int(last)


def store(root: Path) -> JsonlStore:
    return JsonlStore(root, now_ms=lambda: 5)


@pytest.mark.holds("case-054")
async def test_a_running_owner_is_named_and_reading_works(tmp_path: Path) -> None:
    process = owner(tmp_path)
    try:
        count = acknowledged(process, 3)
        for stop in (None, signal.SIGSTOP):
            if stop is not None:
                process.send_signal(stop)
            for attempt in (
                store(tmp_path).open("s", "write"),
                store(tmp_path).create(header()),
                store(tmp_path).remove("s"),
            ):
                with pytest.raises(SessionBusy) as refused:
                    await attempt
                assert f"pid {process.pid} on {os.uname().nodename}" in refused.value.message
                assert "since 2023-11-14T22:13:20" in refused.value.message
            assert len((await store(tmp_path).read("s")).events) >= count
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.holds("case-054")
@pytest.mark.parametrize("lines", [1, 2, 9, 40])
async def test_a_killed_owner_blocks_nobody_and_lost_nothing_acknowledged(
    tmp_path: Path, lines: int
) -> None:
    process = owner(tmp_path)
    count = acknowledged(process, lines)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert list((tmp_path / ".locks").iterdir()), "the dead owner's lock file is still there"
    handle = await store(tmp_path).open("s", "write")
    events = await handle.read_log()
    assert len(events) >= count
    texts = [e.data.chunk for e in events if isinstance(e.data, ev.assistant.Chunk)]
    assert [chunk.text for chunk in texts if isinstance(chunk, ev.records.TextDeltaChunk)] == [
        f"w{number}" for number in range(len(texts))
    ]
    await handle.append([StoredEvent("step/end", handle.next_seq, 1, ev.step.End(turn=1, step=1))])
    await handle.aclose()
    assert verify(await store(tmp_path).read("s")) == ()
    assert not list((tmp_path / ".locks").iterdir())
