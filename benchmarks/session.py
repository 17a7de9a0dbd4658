"""The shape of the session log: is it flat, how big is it on disk and in memory, what does it sync.

What comes in: `--small` for a smoke run, `--json` for machines. What goes out: one line a figure,
CPU seconds of this process unless it says otherwise, and ratios where flatness is the question.
It asserts nothing; benchmarks/README.md says how to read it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen
from typing_extensions import override

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.seams.disk import Disk
from dsh.session import Session, fork_log, interrupted_closers
from dsh.testing import call, calls, open_test_house, says
from dsh.testing.logs import LogWriting, header
from dsh.wire import RowReader, encode_rows
from dsh_plugins.checkpoint import checkpoint
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh.hooks.live import ToolRun
    from dsh.seams.persistence import SessionPersistence
    from dsh.wire import StoredEvent

#: Chunks of one turn: with turn, step, message and ends a turn is this and seven events more.
CHUNKS: Final = 93
EVENTS_A_TURN: Final = CHUNKS + 7


@frozen(kw_only=True)
class Sizes:
    """How much is measured. `marks` are lengths of one growing log, `reopened` one of a stored."""

    marks: tuple[int, ...]
    reopened: int
    sessions: int
    steps: int


FULL = Sizes(marks=(1_000, 10_000, 100_000, 1_000_000), reopened=100_000, sessions=10_000, steps=50)
SMALL = Sizes(marks=(1_000, 5_000), reopened=2_000, sessions=200, steps=5)


def turn(log: LogWriting) -> None:
    """One turn of `EVENTS_A_TURN` events."""
    log.turn_start()
    log.step_start()
    log.user("what is next?")
    sources = log.chunks(*("word " for _ in range(CHUNKS)))
    log.reply("word " * CHUNKS, sources=sources)
    log.step_end()
    log.turn_end()


def growing(sizes: Sizes) -> Iterator[dict[str, object]]:
    """Append, and derive once a turn, at each length of one log, in memory as a live one is."""
    log = LogWriting()
    log.session.writer.without_store()
    first = None
    for mark in sizes.marks:
        # Long enough to hold its share of the collector's work, which comes in large pieces.
        window = mark // EVENTS_A_TURN // 4
        while log.session.next_seq < mark - window * EVENTS_A_TURN:
            turn(log)
        log.session.derive_messages()
        gc.collect()
        appending = deriving = 0.0
        for _ in range(window):
            start = time.process_time()
            turn(log)
            between = time.process_time()
            log.session.derive_messages()
            appending += between - start
            deriving += time.process_time() - between
        append = 1e6 * appending / (window * EVENTS_A_TURN)
        first = append if first is None else first
        yield {
            "figure": f"append at {mark:,} events",
            "usPerEvent": round(append, 2),
            "toFirst": round(append / first, 2),
            "usPerDerive": round(1e6 * deriving / window, 1),
            "messages": len(log.session.derive_messages()),
        }


def retained(sizes: Sizes) -> Iterator[dict[str, object]]:
    """Memory that a live log keeps for each event."""
    count = sizes.marks[1]
    tracemalloc.start()
    log = LogWriting()
    log.session.writer.without_store()
    while log.session.next_seq < count:
        turn(log)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield {"figure": "memory per retained event", "bytes": round(size / log.session.next_seq)}


def events_of(count: int) -> tuple[StoredEvent, ...]:
    """A log of about `count` events."""
    log = LogWriting()
    log.session.writer.without_store()
    while log.session.next_seq < count:
        turn(log)
    return tuple(log.session.events)


def on_disk() -> Iterator[dict[str, object]]:
    """Bytes of a streamed chunk, written two at a time as a live stream of 150 a second is."""
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.chunks(*("word " for _ in range(1000)))
    events = tuple(log.session.events)[2:]
    size, before = 0, None
    for place in range(0, len(events), 2):
        part = events[place : place + 2]
        size += len(encode_rows(part, before=before))
        before = part[-1]
    whole = len(encode_rows(events))
    yield {
        "figure": "bytes on disk per streamed chunk",
        "writtenByTwos": round(size / len(events), 1),
        "writtenAtOnce": round(whole / len(events), 1),
        "textOfIt": 5,
    }


async def reopened(name: str, store: SessionPersistence, sizes: Sizes) -> dict[str, object]:
    """Open for writing, read, repair, seed: what a resume does with a stored log."""
    events = events_of(sizes.reopened)
    handle = await store.create(header())
    await handle.append(events)
    await handle.aclose()
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    handle = await store.open("s", "write")
    found = await handle.read_log()
    interrupted_closers(found)
    session = Session(handle.header, now_ms=lambda: 1)
    for event in found:
        session.adopt(event, stored=True)
    messages = len(session.derive_messages())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await handle.aclose()
    return {
        "figure": f"reopen {len(events):,} events, {name}",
        "seconds": round(wall, 2),
        "cpuSeconds": round(cpu, 2),
        "messages": messages,
    }


async def forked(store: SessionPersistence) -> dict[str, object]:
    """Fork the session that was reopened: read, check, write whole, sync."""
    wall = time.perf_counter()
    fork = await fork_log(store, await store.read("s"), child_id="child", now_ms=1)
    return {
        "figure": f"fork {len(fork.seed):,} events, JSON lines",
        "seconds": round(time.perf_counter() - wall, 2),
    }


def coded(sizes: Sizes) -> Iterator[dict[str, object]]:
    """Events to the lines of a log and back, most of them streamed chunks."""
    events = events_of(sizes.marks[1])
    start = time.process_time()
    lines = encode_rows(events)
    between = time.process_time()
    reader = RowReader()
    for line in lines.split(b"\n")[:-1]:
        reader.read(line)
    end = time.process_time()
    yield {
        "figure": "lines of a log",
        "usPerEventEncoded": round(1e6 * (between - start) / len(events), 2),
        "usPerEventDecoded": round(1e6 * (end - between) / len(events), 2),
    }


async def listed(name: str, store: SessionPersistence, sizes: Sizes) -> dict[str, object]:
    """List many sessions."""
    events = events_of(EVENTS_A_TURN)
    for number in range(sizes.sessions):
        handle = await store.create(header(f"s{number}", cwd=f"/work/{number % 7}"))
        await handle.append(events)
        await handle.aclose()
    wall = time.perf_counter()
    rows = await store.list()
    return {
        "figure": f"list {len(rows):,} sessions, {name}",
        "seconds": round(time.perf_counter() - wall, 2),
    }


class NoSync(Disk):
    """A disk that is not waited for, so that making many sessions takes no afternoon."""

    def __init__(self) -> None:
        self.syncs = 0

    @override
    def sync(self, fd: int) -> None:
        self.syncs += 1


@frozen(kw_only=True)
class Nothing:
    """No arguments."""


async def syncs_a_step(folder: Path, sizes: Sizes) -> dict[str, object]:
    """How often the disk is synced for a step with one tool call."""

    async def execute(args: Nothing, run: ToolRun) -> str:
        return f"{run.name} {args}"

    tool = define_tool(name="noop", description="", args=Nothing, output=str, execute=execute)
    disk = NoSync()
    store = JsonlStore(folder, now_ms=lambda: 1, disk=disk)
    replies = [calls(call("noop")) for _ in range(sizes.steps)]
    async with open_test_house(
        replies=[*replies, says("done")], tools=[tool], store=store, plugins=[checkpoint]
    ) as house:
        agent = await house.agent()
        before = disk.syncs
        await agent.agent.ask(user_message("go"))
        spent = disk.syncs - before
        steps = sum(isinstance(e.data, ev.step.Start) for e in house.session(agent).events)
        await agent.aclose()
    return {"figure": "syncs per step with one tool call", "syncs": round(spent / steps, 2)}


async def stored(sizes: Sizes) -> list[dict[str, object]]:
    """Everything that needs a disk."""
    with tempfile.TemporaryDirectory(prefix="dsh-bench-") as name:
        folder = Path(name)
        sqlite = SqliteStore(folder / "reopened.db", now_ms=lambda: 1)
        many = SqliteStore(folder / "many.db", now_ms=lambda: 1)
        one = JsonlStore(folder / "one", now_ms=lambda: 1)
        told = [
            await reopened("JSON lines", one, sizes),
            await forked(one),
            await reopened("SQLite", sqlite, sizes),
            await listed(
                "JSON lines", JsonlStore(folder / "many", now_ms=lambda: 1, disk=NoSync()), sizes
            ),
            await listed("SQLite", many, sizes),
            await syncs_a_step(folder / "syncs", sizes),
        ]
        await sqlite.aclose()
        await many.aclose()
        return told


def figures(sizes: Sizes) -> Iterator[dict[str, object]]:
    """Every figure, one after the other."""
    yield from on_disk()
    yield from coded(sizes)
    yield from trio.run(stored, sizes)
    yield from retained(sizes)
    yield from growing(sizes)


def main() -> None:
    """Read the options and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a smoke run")
    parser.add_argument("--json", action="store_true", help="one JSON object a figure")
    options = parser.parse_args()
    for line in figures(SMALL if options.small else FULL):
        cells = "  ".join(f"{key} {value}" for key, value in line.items() if key != "figure")
        text = json.dumps(line) if options.json else f"{line['figure']:<44}{cells}"
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
