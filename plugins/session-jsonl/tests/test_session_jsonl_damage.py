"""Torn ends and damage: every cut opens as a prefix, every other harm is refused with its place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import orjson
import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh.errors import SessionCorrupt, SessionError, SessionUnreadable, StorageFailed
from dsh.seams.disk import Disk
from dsh.session import interrupted_closers, verify
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import StoredEvent, StoredLog, encode_header, encode_line, encode_rows
from dsh_plugins.session_jsonl import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path


class Fast(Disk):
    """A disk that is not waited for: these tests look at content, not at durability."""

    @override
    def sync(self, fd: int) -> None:
        assert fd >= 0


def store(root: Path) -> JsonlStore:
    return JsonlStore(root, now_ms=lambda: 5, disk=Fast())


def placed(root: Path, data: bytes, session_id: str = "s") -> Path:
    """A log file with this content, where the store looks for it."""
    path = root / "work" / session_id / "session.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def lines(events: tuple[StoredEvent, ...]) -> list[bytes]:
    return [encode_line(event) for event in events]


def golden() -> tuple[tuple[StoredEvent, ...], bytes]:
    """A log with every kind of line, and its file: text beyond ASCII, packed rows, replacements."""
    log = LogWriting()
    log.whole_turn("写文件 🦀", "wör", "t", "e", calls=("c1", "c2"))
    log.turn_start()
    log.step_start()
    log.user("more")
    log.chunks("é", "🦀", "z")
    log.reply(calls=("c3",))
    log.call("c3")
    events = tuple(log.session.events)
    return events, encode_header(header()) + b"\n" + encode_rows(events)


@pytest.mark.holds("case-048")
async def test_cut_after_every_byte_it_opens_as_a_prefix_or_says_why(tmp_path: Path) -> None:
    events, data = golden()
    expected, head = lines(events), data.index(b"\n") + 1
    for cut in range(len(data) + 1):
        root = tmp_path / str(cut)
        path = placed(root, data[:cut])
        if cut < head:
            with pytest.raises(SessionCorrupt, match=r"session\.jsonl:1: "):
                await store(root).read("s")
            continue
        log = await store(root).read("s")
        kept = len(log.events)
        assert lines(log.events) == expected[:kept]
        assert (log.torn is None) == (data[cut - 1 : cut] == b"\n")
        assert path.read_bytes() == data[:cut], "reading changes nothing"
        handle = await store(root).open("s", "write")
        assert path.read_bytes() == data[:cut], "opening changes nothing"
        assert handle.next_seq == kept
        more = interrupted_closers(log.events) or _a_turn(log.events)
        await handle.append(more)
        await handle.aclose()
        again = await store(root).read("s")
        assert lines(again.events) == [*expected[:kept], *lines(more)]
        assert again.torn is None
        assert verify(again) == ()


def _a_turn(events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
    """One event that may follow a balanced log."""
    number = sum(event.type == ev.turn.START.name for event in events) + 1
    return (StoredEvent("turn/start", len(events), 1, ev.turn.Start(turn=number)),)


async def read_or_refusal(root: Path) -> StoredLog | str:
    try:
        return await store(root).read("s")
    except SessionError as error:
        return error.message


async def test_no_flipped_bit_is_read_as_something_else(tmp_path: Path) -> None:
    """Except inside a value, where a log of lines has no way to know: those stay well-formed."""
    events, data = golden()
    expected = lines(events)
    path = placed(tmp_path, data)
    for place in range(0, len(data), 3):
        harmed = bytearray(data)
        harmed[place] ^= 0x80
        path.write_bytes(harmed)
        log = await read_or_refusal(tmp_path)
        if isinstance(log, str):
            assert "session.jsonl" in log
            continue
        if log.torn is not None:
            assert lines(log.events) == expected[: len(log.events)]
            assert len(log.events) >= len(events) - 1
        else:
            assert verify(log) == ()
            assert len(log.events) == len(events)


def rows(*seqs: object) -> bytes:
    """The file of case 050: one todo-like event for each seq."""
    body = [
        b'{"seq":%b,"time":%d,"type":"turn/start","data":{"turn":1}}' % (orjson.dumps(seq), time)
        for time, seq in enumerate(seqs)
    ]
    return b"\n".join([encode_header(header()), *body, b""])


@pytest.mark.holds("case-050")
@pytest.mark.parametrize(
    ("data", "line", "told"),
    [
        (rows(0, 1, 3), 4, "seq 3 where 2 is due"),
        (rows(0, 1, 1, 2), 4, "seq 1 where 2 is due"),
        (rows(0, 1, 2, 1), 5, "seq 1 where 3 is due"),
        (rows(0, 1.0, 2), 3, "`seq` is 1.0"),
        (rows(0, "1", 2), 3, '`seq` is "1"'),
        (rows(0, True, 2), 3, "`seq` is true"),
        (rows(1, 2, 3), 2, "seq 1 where 0 is due"),
        (rows(-1, 0, 1), 2, "`seq` is -1"),
        (rows(0, 1, 1e30), 4, "`seq` is 1e"),
    ],
)
async def test_seqs_that_do_not_count_up_are_refused_with_their_line(
    tmp_path: Path, data: bytes, line: int, told: str
) -> None:
    path = placed(tmp_path, data)
    for attempt in (store(tmp_path).read("s"), store(tmp_path).open("s", "write")):
        with pytest.raises(SessionCorrupt) as refused:
            await attempt
        assert f"{path}:{line}: " in refused.value.message
        assert told in refused.value.message
    assert path.read_bytes() == data


HEAD = encode_header(header())
EVENT = b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}'


@pytest.mark.holds("case-052")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the file is empty"),
        (b"\n", "not JSON"),
        (HEAD, "not finished"),
        (b"\xef\xbb\xbf" + HEAD + b"\n" + EVENT + b"\n", "byte order mark"),
        (HEAD + b"\r\n" + EVENT + b"\r\n", "CR LF"),
        (HEAD + b"\n" + HEAD + b"\n" + EVENT + b"\n", "2: a second header line"),
        (HEAD + b"\n\n" + EVENT + b"\n", "2: an empty line"),
        (EVENT + b"\n", "not a header"),
        (encode_header(header("other")) + b"\n" + EVENT + b"\n", "names session 'other', not 's'"),
        ((HEAD + b"\n").decode().encode("utf-16"), "session.jsonl:1:"),
        (HEAD + b"\n{}\n" + EVENT + b"\n", "2: `type` is missing"),
        (HEAD + b"\n" + b"\x00" * 40 + b"\n" + EVENT + b"\n", "2: not JSON"),
        (HEAD + b"\n" + EVENT[:-3] + b"\n" + EVENT + b"\n", "2: not JSON"),
        (HEAD + b'\n{"type":"turn/start","seq":0,"time":1,"data":{}}\n', "turn/start: turn"),
        (HEAD + b'\n[0,1,"a"]\n', "2: a packed row"),
    ],
)
async def test_a_damaged_file_is_refused_and_never_blocks_the_list(
    tmp_path: Path, data: bytes, told: str
) -> None:
    placed(tmp_path, data)
    healthy = HEAD.replace(b'"s"', b'"ok"')
    placed(tmp_path, healthy + b"\n" + EVENT + b"\n", "ok")
    for attempt in (store(tmp_path).read("s"), store(tmp_path).open("s", "write")):
        with pytest.raises(SessionCorrupt, match=r"session\.jsonl") as refused:
            await attempt
        assert told in refused.value.message
    listed = {row.id: row for row in await store(tmp_path).list()}
    assert set(listed) == {"s", "ok"}
    assert listed["ok"].problem is None
    if listed["s"].header is None:
        assert "session.jsonl" in (listed["s"].problem or "")


@pytest.mark.holds("case-052")
async def test_a_header_alone_is_an_empty_session(tmp_path: Path) -> None:
    placed(tmp_path, HEAD + b"\n")
    log = await store(tmp_path).read("s")
    assert (log.events, log.torn) == ((), None)
    handle = await store(tmp_path).open("s", "write")
    await handle.append([StoredEvent("turn/start", 0, 1, ev.turn.Start(turn=1))])
    await handle.aclose()
    assert len((await store(tmp_path).read("s")).events) == 1


@pytest.mark.holds("case-052")
async def test_a_newer_format_is_not_called_damage(tmp_path: Path) -> None:
    path = placed(tmp_path, b'{"type":"session","version":99,"shape":"new"}\n{"x":1}\n')
    for attempt in (store(tmp_path).read("s"), store(tmp_path).open("s", "write")):
        with pytest.raises(SessionUnreadable, match="newer format") as refused:
            await attempt
        assert str(path) in refused.value.message
    (row,) = await store(tmp_path).list()
    assert "newer format" in (row.problem or "")


@pytest.mark.holds("case-052")
async def test_what_is_no_file_has_a_row_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "work" / "s" / "session.jsonl").mkdir(parents=True)
    (tmp_path / "work" / "empty").mkdir()
    (tmp_path / "work" / "a file").write_text("not a session")
    (tmp_path / "stray.txt").write_text("not a folder")
    (row,) = await store(tmp_path).list()
    assert row.id == "s"
    assert "cannot be read" in (row.problem or "")
    with pytest.raises(SessionError, match=r"session\.jsonl"):
        await store(tmp_path).read("s")


class Locked(Disk):
    """A disk where nothing may be read."""

    @override
    def read(self, path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))


class ReadOnly(Disk):
    """A disk where logs may be read and not be written."""

    @override
    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_RDWR and path.name == "session.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return super().open(path, flags)


async def test_without_permission_the_error_names_the_file_and_holds_no_lock(
    tmp_path: Path,
) -> None:
    path = placed(tmp_path, HEAD + b"\n")
    locked = JsonlStore(tmp_path, now_ms=lambda: 5, disk=Locked())
    for attempt in (locked.read("s"), locked.open("s", "write")):
        with pytest.raises(StorageFailed, match="Permission denied") as refused:
            await attempt
        assert str(path) in refused.value.message
    with pytest.raises(StorageFailed, match="Permission denied"):
        await JsonlStore(tmp_path, now_ms=lambda: 5, disk=ReadOnly()).open("s", "write")
    await (await store(tmp_path).open("s", "write")).aclose()
