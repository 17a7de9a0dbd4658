"""Two processes, one session: owners are named, dead ones block nobody, kill -9 loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh.errors import SessionBusy
from dsh.session import verify
from dsh.testing.logs import header
from dsh.wire import StoredEvent
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.seams.persistence import SessionPersistence

OWNER = """
import sys, pathlib, trio
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

async def main():
    made = JsonlStore if sys.argv[1] == "jsonl" else SqliteStore
    store = made(pathlib.Path(sys.argv[2]), now_ms=lambda: 1_700_000_000_000)
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


@frozen
class Shared:
    """A place for sessions that several processes use."""

    backend: str
    place: Path
    locks: Path

    def store(self) -> SessionPersistence:
        if self.backend == "jsonl":
            return JsonlStore(self.place, now_ms=lambda: 5)
        return SqliteStore(self.place, now_ms=lambda: 5)

    def owner(self) -> subprocess.Popen[str]:
        """A process that owns session `s` and prints how many events were acknowledged."""
        return subprocess.Popen(
            [sys.executable, "-c", OWNER, self.backend, str(self.place)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )


@pytest.fixture(params=["jsonl", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    if request.param == "jsonl":
        return Shared("jsonl", tmp_path, tmp_path / ".locks")
    return Shared("sqlite", tmp_path / "sessions.db", tmp_path / "sessions.db-locks")


def acknowledged(process: subprocess.Popen[str], lines: int) -> int:
    assert process.stdout is not None
    last = "0"
    for _ in range(lines):
        last = process.stdout.readline()
    return int(last)


@pytest.mark.holds("case-054")
async def test_a_running_owner_is_named_and_reading_works(shared: Shared) -> None:
    process = shared.owner()
    try:
        count = acknowledged(process, 3)
        for stop in (None, signal.SIGSTOP):
            if stop is not None:
                process.send_signal(stop)
            for attempt in (
                shared.store().open("s", "write"),
                shared.store().create(header()),
                shared.store().remove("s"),
            ):
                with pytest.raises(SessionBusy) as refused:
                    await attempt
                assert f"pid {process.pid} on {os.uname().nodename}" in refused.value.message
                assert "since 2023-11-14T22:13:20" in refused.value.message
            assert len((await shared.store().read("s")).events) >= count
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.holds("case-054")
@pytest.mark.parametrize("lines", [1, 2, 9, 40])
async def test_a_killed_owner_blocks_nobody_and_lost_nothing_acknowledged(
    shared: Shared, lines: int
) -> None:
    process = shared.owner()
    count = acknowledged(process, lines)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert list(shared.locks.iterdir()), "the dead owner's lock file is still there"
    handle = await shared.store().open("s", "write")
    events = await handle.read_log()
    assert len(events) >= count
    texts = [e.data.chunk for e in events if isinstance(e.data, ev.assistant.Chunk)]
    assert [chunk.text for chunk in texts if isinstance(chunk, ev.records.TextDeltaChunk)] == [
        f"w{number}" for number in range(len(texts))
    ]
    await handle.append([StoredEvent("step/end", handle.next_seq, 1, ev.step.End(turn=1, step=1))])
    await handle.aclose()
    assert verify(await shared.store().read("s")) == ()
    assert not list(shared.locks.iterdir())
