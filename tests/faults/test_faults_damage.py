"""Cut anywhere, any bit flipped: a log of every kind of event opens as a prefix or says why."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from dsh import catalog as ev
from dsh.catalog import registry
from dsh.errors import SessionError
from dsh.hooks import AnyDurable, CoreLogOnly, CoreSurface, Durable, LogOnly
from dsh.session import interrupted_closers, lawful_prefix, salvage_log, verify
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import StoredEvent, StoredLog, decode_payload, encode_line, token_of
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_jsonl.reading import ReadLog, read_log
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.seams.persistence import SessionPersistence

ROOT = Path(__file__).parents[2]
#: Their places are ruled by the laws of turns and steps; `LogWriting` writes them.
RULED = {
    token.name
    for token in (
        ev.turn.START, ev.turn.END, ev.step.START, ev.step.END, ev.assistant.CHUNK, ev.tool.CALL,
    )
}  # fmt: skip


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def tokens() -> dict[str, Durable[AnyDurable]]:
    """Every durable event that a log may hold: of the core, and of each plugin of ours."""
    found = dict(registry.DURABLES)
    for path in ROOT.glob("plugins/*/schema/golden/*/*.jsonl"):
        package = path.parents[3].name.replace("-", "_")
        import_module(f"dsh_plugins.{package}.catalog")
        name = f"{path.parent.name}/{path.name.partition('.')[0]}"
        token = token_of(name)
        assert token is not None, f"{name} has records and nobody declares it"
        found[name] = token
    return found


def samples(token: Durable[AnyDurable]) -> list[bytes]:
    """Its golden records, wherever its schema is."""
    name = f"{token.name}.v{token.version}.jsonl"
    (path,) = (*ROOT.glob(f"schema/golden/{name}"), *ROOT.glob(f"plugins/*/schema/golden/{name}"))
    return path.read_bytes().splitlines()


def golden() -> tuple[StoredEvent, ...]:
    """Two lawful turns, between them and inside every other event that a log may hold."""
    log = LogWriting()
    log.whole_turn("写文件 🦀", "wör", "t", "e", calls=("c1", "c2"))
    log.turn_start()
    log.step_start()
    log.system("be brief")
    log.user("more")
    for name, token in sorted(tokens().items()):
        if name in RULED or issubclass(token.payload, CoreSurface):
            continue
        for sample in samples(token):
            payload = decode_payload(name, orjson.loads(sample), version=token.version, raw=sample)
            assert isinstance(payload, LogOnly | CoreLogOnly)
            log.session.append(payload)
    log.chunks("é", "🦀", "z")
    log.reply(calls=("c3",))
    log.call("c3")
    return tuple(log.session.events)


def filed(root: Path, data: bytes | None = None) -> Path:
    path = root / "work" / "s" / "session.jsonl"
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return path


async def written(store: SessionPersistence, events: Sequence[StoredEvent]) -> None:
    """The log in three batches, each followed by a barrier."""
    handle = await store.create(header())
    third = len(events) // 3
    for batch in (events[:third], events[third : 2 * third], events[2 * third :]):
        await handle.append(batch)
        await handle.flush()
    await handle.aclose()


async def the_file(root: Path, events: Sequence[StoredEvent]) -> bytes:
    await written(JsonlStore(root, now_ms=lambda: 5), events)
    return filed(root).read_bytes()


def test_the_golden_log_has_every_event_and_is_lawful() -> None:
    events = golden()
    assert {event.type for event in events} == set(tokens())
    assert len(tokens()) > len(registry.DURABLES), "those of plugins too"
    assert verify(StoredLog(header=header(), events=events)) == ()


@pytest.mark.holds("case-048")
async def test_cut_after_every_byte_it_reads_as_a_prefix(tmp_path: Path) -> None:
    events = golden()
    data, expected = await the_file(tmp_path, events), lines(events)
    first = data.index(b"\n") + 1
    seen: set[int] = set()
    for cut in range(len(data) + 1):
        if cut < first:
            with pytest.raises(SessionError, match="x:1: "):
                read_log(data[:cut], path="x", session_id="s")
            continue
        found = read_log(data[:cut], path="x", session_id="s")
        assert found.events == () or lines(found.events[-1:]) == [expected[len(found.events) - 1]]
        assert data[: found.good].endswith(b"\n")
        seen.add(len(found.events))
    assert len(seen) > len(events) - 5


@pytest.mark.holds("case-048", "SR10")
async def test_cut_after_every_line_it_is_repaired_and_goes_on(tmp_path: Path) -> None:
    events = golden()
    data, expected = await the_file(tmp_path / "whole", events), lines(events)
    ends = [place + 1 for place in range(len(data)) if data[place : place + 1] == b"\n"]
    for number, end in enumerate(ends[:-1]):
        root = tmp_path / str(number)
        filed(root, data[: end + 5 * (number % 2)])
        store = JsonlStore(root, now_ms=lambda: 5)
        handle = await store.open("s", "write")
        kept = await handle.read_log()
        await handle.append(interrupted_closers(kept))
        await handle.aclose()
        log = await store.read("s")
        assert lines(log.events)[: len(kept)] == expected[: len(kept)]
        assert verify(log) == ()
        assert interrupted_closers(log.events) == ()


def read_or_refused(data: bytes) -> ReadLog | str:
    try:
        return read_log(data, path="x", session_id="s")
    except SessionError as error:
        return error.message


async def test_no_flipped_bit_in_a_file_is_a_wrong_read(tmp_path: Path) -> None:
    """What barriers acknowledged is sealed: a flip is refused, or told as an unfinished end."""
    events = golden()
    data, expected = await the_file(tmp_path, events), lines(events)
    refused = torn = 0
    for place in range(0, len(data), 3):
        harmed = bytearray(data)
        harmed[place] ^= 1 << (place % 8)
        found = read_or_refused(bytes(harmed))
        if isinstance(found, str):
            assert found.startswith("x:")
            refused += 1
            continue
        assert found.torn is not None, f"byte {place}: read as if nothing were wrong"
        assert lines(found.events) == expected[: len(found.events)]
        assert len(found.events) >= len(events) - 1
        torn += 1
    assert refused > 100
    assert torn < refused


@pytest.mark.parametrize("backend", ["jsonl", "sqlite"])
async def test_what_stands_before_a_damage_is_salvaged(tmp_path: Path, backend: str) -> None:
    events = golden()
    store: SessionPersistence
    if backend == "jsonl":
        store = JsonlStore(tmp_path, now_ms=lambda: 5)
        path = filed(tmp_path)
    else:
        path = tmp_path / "sessions.db"
        store = SqliteStore(path, now_ms=lambda: 5)
    await written(store, events)
    if isinstance(store, SqliteStore):
        await store.aclose()
    harm(path, b'"message":"', b'"messagE":"')
    with pytest.raises(SessionError):
        await store.read("s")
    found = await store.recover("s")
    assert found.damage is not None
    saved = await salvage_log(store, found, source_id="s", child_id="new", now_ms=1)
    copy = await store.read("new")
    assert lines(copy.events) == lines(events)[: len(copy.events)] == lines(saved.kept)
    assert lawful_prefix(copy.events) == (len(copy.events), None)
    assert 10 < len(copy.events) < len(events)
    if isinstance(store, SqliteStore):
        await store.aclose()


def harm(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
