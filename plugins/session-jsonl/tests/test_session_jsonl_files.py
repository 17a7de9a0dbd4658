"""Where logs are, who may read them, how they are listed, and what large ones cost."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import InvalidAppend, SessionCorrupt
from dsh.kernel import open_kernel
from dsh.seams.disk import Disk
from dsh.seams.persistence import PERSISTENCE
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import StoredEvent, encode_line
from dsh_plugins.session_jsonl import JsonlStore, session_jsonl
from dsh_plugins.session_jsonl.catalog import SessionJsonlConfig
from dsh_plugins.session_jsonl.places import encoded_id, readable_cwd

if TYPE_CHECKING:
    from pathlib import Path


def store(root: Path, disk: Disk | None = None) -> JsonlStore:
    return JsonlStore(root, now_ms=lambda: 5, disk=disk)


def turns(count: int, *, start: int = 1000) -> tuple[StoredEvent, ...]:
    ticks = iter(range(start, start + 10**9))
    log = LogWriting(now_ms=lambda: next(ticks))
    for _ in range(count):
        log.whole_turn("hi", "a", "b", "c")
    return tuple(log.session.events)


def log_of(root: Path, session_id: str) -> Path:
    return next(root.rglob(f"{encoded_id(session_id)}/session.jsonl"))


async def saved(root: Path, session_id: str = "s", *, cwd: str | None = "/work") -> Path:
    handle = await store(root).create(header(session_id, cwd=cwd))
    await handle.append(turns(1))
    await handle.aclose()
    return log_of(root, session_id)


async def test_the_layout_is_readable_and_private(tmp_path: Path) -> None:
    root = tmp_path / "state" / "sessions"
    path = await saved(root, "one", cwd="/home/me/my project")
    assert path == root / "home-me-my-project" / "one" / "session.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (root, path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["session.jsonl"]
    assert not list((root / ".locks").iterdir())


async def test_the_file_is_lines_that_grep_finds(tmp_path: Path) -> None:
    path = await saved(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith('{"type":"session","version":1,"id":"s","createdAt":1,')
    assert lines[1] == '{"type":"turn/start","seq":0,"time":1000,"data":{"turn":1}}'
    assert lines[4].startswith('{"type":"assistant/chunk","seq":3,')
    assert lines[5] == '[4,1,"b",1,"c"]'
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    ("one", "name"),
    [
        ("a-b_c.1", "a-b_c.1"),
        ("..", "%2E."),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        (" é", "%20%C3%A9"),
    ],
)
def test_ids_become_names_without_collision(one: str, name: str) -> None:
    assert encoded_id(one) == name


@pytest.mark.parametrize("bad", ["", "x" * 241, "é" * 41])
async def test_ids_that_cannot_be_names_are_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(InvalidAppend, match="cannot name a folder"):
        await store(tmp_path).create(header(bad))


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        (None, "no-cwd"),
        ("/", "root"),
        ("/a/b", "a-b"),
        ("/.hidden/../x y", "hidden-..-x-y"),
        ("/" + "long/" * 100, ("long-" * 100)[:-1][-240:].lstrip("-")),
    ],
)
def test_a_cwd_becomes_a_name_for_people(cwd: str | None, name: str) -> None:
    assert readable_cwd(cwd) == name


async def test_one_id_is_one_session_whatever_its_cwd(tmp_path: Path) -> None:
    path = await saved(tmp_path, cwd="/one")
    twin = tmp_path / "two" / "s" / "session.jsonl"
    twin.parent.mkdir(parents=True)
    twin.write_bytes(path.read_bytes())
    for attempt in (store(tmp_path).read("s"), store(tmp_path).open("s", "write")):
        with pytest.raises(SessionCorrupt, match="stored twice"):
            await attempt


async def test_a_moved_folder_is_listed_with_its_problem(tmp_path: Path) -> None:
    path = await saved(tmp_path)
    path.parent.rename(path.parent.with_name("renamed"))
    (row,) = await store(tmp_path).list()
    assert (row.id, row.header) == ("renamed", None)
    assert "names session 's'" in (row.problem or "")


async def test_a_root_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert await store(tmp_path / "no").list() == ()


class Counting(Disk):
    """Counts the bytes that are read whole, and the threads that write."""

    def __init__(self) -> None:
        self.whole = 0
        self.largest = 0

    @override
    def read(self, path: Path) -> bytes:
        data = super().read(path)
        self.whole += len(data)
        return data

    @override
    def write(self, fd: int, data: memoryview, at: int) -> int:
        self.largest = max(self.largest, len(data))
        return super().write(fd, data, at)


@pytest.mark.holds("case-058")
async def test_listing_reads_a_bounded_part_of_each_file(tmp_path: Path) -> None:
    disk = Counting()
    handle = await store(tmp_path).create(header())
    await handle.append(turns(300))
    await handle.aclose()
    (row,) = await store(tmp_path, disk).list()
    assert row.bytes > 100_000
    assert disk.whole == 0


@pytest.mark.holds("case-058")
async def test_what_a_turn_costs_does_not_depend_on_the_turns_before(tmp_path: Path) -> None:
    events = turns(400)
    per_turn = len(events) // 400
    sizes: list[int] = []
    handle = await store(tmp_path).create(header())
    path = tmp_path / "work" / "s" / "session.jsonl"
    for turn in range(400):
        await handle.append(events[turn * per_turn : (turn + 1) * per_turn])
        sizes.append(path.stat().st_size)
    await handle.aclose()
    early, late = sizes[20] - sizes[10], sizes[399] - sizes[389]
    assert late <= early * 1.1  # only the digits of seqs and turns grow


async def test_a_large_batch_is_written_whole_and_off_the_trio_thread(tmp_path: Path) -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user("x" * 3_000_000)
    events = tuple(log.session.events)
    disk = Counting()
    handle = await store(tmp_path, disk).create(header())
    await handle.append(events[:1])
    async with trio.open_nursery() as nursery:
        ticks: list[float] = []

        async def tick() -> None:
            ticks.append(trio.current_time())
            await trio.lowlevel.checkpoint()

        nursery.start_soon(tick)
        await handle.append(events[1:])
    assert ticks
    assert disk.largest > 3_000_000
    await handle.aclose()
    log_read = await store(tmp_path).read("s")
    assert [encode_line(event) for event in log_read.events] == [encode_line(e) for e in events]


async def test_the_plugin_provides_the_store_at_its_root(tmp_path: Path) -> None:
    async with open_kernel() as kernel:
        await kernel.mount(session_jsonl, SessionJsonlConfig(root=str(tmp_path / "r"))).ready()
        found = kernel.root.require(PERSISTENCE)
        handle = await found.create(header())
        await handle.append([StoredEvent("turn/start", 0, 1, ev.turn.Start(turn=1))])
        await handle.aclose()
        assert (await found.list())[0].path == str(tmp_path / "r" / "work" / "s" / "session.jsonl")
        fiber = kernel.mount(session_jsonl, SessionJsonlConfig(root="relative"), id="other")
        with pytest.raises(Exception, match="absolute path"):
            await fiber.ready()
    assert isinstance(records.Append(), records.Append)
