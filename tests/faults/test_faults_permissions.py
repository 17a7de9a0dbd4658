"""What this user may not read or write, as the system itself refuses it: told clearly, unchanged.

Permissions do not bind root, so the process that is refused is another user's where root runs this.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import orjson
import pytest
import trio

from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Generator

NOBODY = 65534
#: How many the session has.
EVENTS = 7
#: Does some things with a store, prints the outcomes as JSON. Root first does everything once, so
#: that all is imported, and then becomes somebody whom permissions bind, for good.
PROGRAM = """
import os, sys, tempfile
from pathlib import Path
import orjson, trio
from dsh.errors import HarnessError
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore
kind, place, nobody, *wanted = sys.argv[1:]
made = JsonlStore if kind == "jsonl" else SqliteStore
async def act(store, doing):
    match doing:
        case "fill":
            log = LogWriting()
            log.whole_turn("hi", "a")
            handle = await store.create(header())
            await handle.append(tuple(log.session.events))
            await handle.aclose()
        case "read":
            return len((await store.read("s")).events)
        case "list":
            return [[row.id, row.problem] for row in await store.list()]
        case "open":
            await (await store.open("s", "write")).aclose()
        case "append":
            handle = await store.open("s", "write")
            log = LogWriting()
            log.whole_turn("hi", "a")
            log.whole_turn("again")
            try:
                await handle.append(tuple(log.session.events)[handle.next_seq:])
            finally:
                await handle.aclose()
        case "create":
            await (await store.create(header("new"))).aclose()
        case "remove":
            await store.remove("s")
    return "done"
async def warm_up(folder):
    store = made(folder / "x", now_ms=lambda: 5)
    for doing in ("fill", "read", "list", "open", "create", "remove"):
        await act(store, doing)
with tempfile.TemporaryDirectory() as folder:
    trio.run(warm_up, Path(folder))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(nobody))
    os.setuid(int(nobody))
told = []
for doing in wanted:
    try:
        told.append(trio.run(act, made(Path(place), now_ms=lambda: 5), doing))
    except HarnessError as error:
        told.append({"refused": type(error).__name__, "text": error.message})
print(orjson.dumps(told).decode())
"""


class Stored:
    """A store with one session, below a folder that others can reach."""

    def __init__(self, kind: str, top: Path) -> None:
        self.kind = kind
        self.top = top
        self.place = top / ("sessions" if kind == "jsonl" else "sessions.db")

    def file(self) -> Path:
        """The log, or the database."""
        return next(self.place.rglob("session.jsonl")) if self.kind == "jsonl" else self.place

    def asked(self, *doing: str) -> list[object]:
        """What a user whom permissions bind is told, for each."""
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, self.kind, str(self.place), str(NOBODY), *doing],
            capture_output=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr.decode()
        return cast("list[object]", orjson.loads(found.stdout))

    async def fill(self) -> None:
        log = LogWriting()
        log.whole_turn("hi", "a")
        sqlite = SqliteStore(self.place, now_ms=lambda: 5)
        store = JsonlStore(self.place, now_ms=lambda: 5) if self.kind == "jsonl" else sqlite
        handle = await store.create(header())
        await handle.append(tuple(log.session.events))
        await handle.aclose()
        await sqlite.aclose()


@pytest.fixture(params=["jsonl", "sqlite"])
def stored(request: pytest.FixtureRequest) -> Generator[Stored, None, None]:
    """Everybody may do everything with it, until the test says otherwise."""
    with tempfile.TemporaryDirectory(prefix="dsh-test-") as name:
        found = Stored(str(request.param), Path(name) / "state")
        found.top.mkdir()
        trio.run(found.fill)
        Path(name).chmod(0o755)
        allow(found.top, folders=0o777, files=0o666)
        if found.asked("read") != [EVENTS]:
            pytest.skip(f"another user cannot reach {name}")
        yield found
        allow(found.top, folders=0o700, files=0o600)


def allow(top: Path, *, folders: int, files: int) -> None:
    """Set the permissions of it and of everything below."""
    top.chmod(folders | 0o700)
    for path in sorted(top.rglob("*"), reverse=True):
        path.chmod(folders if path.is_dir() else files)
    top.chmod(folders)


def refusal(answer: object) -> str:
    """The text of an answer that is the one right refusal."""
    assert isinstance(answer, dict), answer
    told = cast("dict[str, str]", answer)
    assert told["refused"] == "StorageFailed", told
    return told["text"]


def test_what_may_only_be_read_is_read_and_the_rest_is_told(stored: Stored) -> None:
    before = {path: path.read_bytes() for path in stored.top.rglob("*") if path.is_file()}
    allow(stored.top, folders=0o555, files=0o444)
    count, listed, *refused = stored.asked("read", "list", "open", "create", "remove")
    assert (count, listed) == (EVENTS, [["s", None]])
    for text in map(refusal, refused):
        assert "ermission denied" in text or "readonly" in text
        assert f"session-{stored.kind}." in text or str(stored.place) in text
    after = {path: path.read_bytes() for path in stored.top.rglob("*") if path.is_file()}
    assert after == before


def test_a_file_that_may_only_be_read_in_a_folder_that_may_be_written(stored: Stored) -> None:
    file = stored.file()
    before = file.read_bytes()
    file.chmod(0o444)
    refused, count, listed = stored.asked("append", "read", "list")
    assert (count, listed) == (EVENTS, [["s", None]])
    text = refusal(refused)
    assert "ermission denied" in text or "readonly" in text
    assert str(file) in text
    assert file.read_bytes() == before


def test_a_log_that_may_not_be_read_is_told_and_blocks_no_list(stored: Stored) -> None:
    file = stored.file()
    file.chmod(0)
    *refused, listed = stored.asked("read", "open", "list")
    for text in map(refusal, refused):
        assert str(file) in text
    if stored.kind == "jsonl":
        assert listed == [["s", f"{file}: cannot be read: Permission denied"]]
    else:
        assert str(file) in refusal(listed)


def test_a_folder_that_may_not_be_entered_is_told(stored: Stored) -> None:
    stored.top.chmod(0)
    for text in map(refusal, stored.asked("read", "open", "create", "list", "remove")):
        assert str(stored.top) in text
