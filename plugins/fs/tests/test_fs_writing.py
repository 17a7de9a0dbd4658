"""Writes: whole or not at all, never over what was not expected."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh.hooks.live import ToolFailed, ToolSuccess
from dsh_plugins.fs_local.text import Form, encode

if TYPE_CHECKING:
    from dsh.testing import Committed
    from plugins.fs.tests.conftest import Desk


async def test_a_write_creates_folders_and_replaces_whole(desk: Desk) -> None:
    assert await desk.text("write_file", path="a/b/c.txt", content="ü\n") == (
        "created a/b/c.txt (3 bytes)"
    )
    assert await desk.text("write_file", path="a/b/c.txt", content="x") == (
        "replaced a/b/c.txt (1 bytes)"
    )
    assert sorted(os.listdir(desk.path / "a/b")) == ["c.txt"]  # nothing is left beside it  # noqa: PTH208


@pytest.mark.holds("case-065")
async def test_a_replaced_file_keeps_mode_and_link(desk: Desk) -> None:
    file = desk.path / "run.sh"
    file.write_text("echo 1\n")
    file.chmod(0o750)
    (desk.path / "link").symlink_to("run.sh")
    await desk.call("edit_file", path="link", old_string="1", new_string="2")
    assert (desk.path / "link").is_symlink()
    assert file.read_text() == "echo 2\n"
    assert file.stat().st_mode & 0o777 == 0o750


async def test_a_hard_link_is_refused_rather_than_separated(desk: Desk) -> None:
    (desk.path / "f").write_text("x")
    os.link(desk.path / "f", desk.path / "g")
    for call in (
        {"name": "write_file", "path": "f", "content": "y"},
        {"name": "edit_file", "path": "g", "old_string": "x", "new_string": "y"},
    ):
        result = await desk.call(**call)
        assert result.code == "FS_NOT_REGULAR_FILE"
        assert "hard links" in result.text
    assert (desk.path / "g").read_text() == "x"


async def test_a_folder_that_may_not_be_written_is_said_plainly(desk: Desk) -> None:
    if os.geteuid() == 0:
        target = "/proc/version"
    else:
        (desk.path / "closed").mkdir(mode=0o500)
        target = "closed/f"
    result = await desk.call("write_file", path=target, content="x")
    assert isinstance(result.result, ToolFailed)
    assert result.code in ("FS_PERMISSION_DENIED", "FS_IO_ERROR", "FS_NOT_FOUND")


@pytest.mark.holds("case-065")
@pytest.mark.parametrize(
    "names", [("f.txt", "./f.txt", "sub/../f.txt", "ABSOLUTE", "link", "f.txt")]
)
async def test_six_edits_of_one_file_in_one_message_are_all_there(
    desk: Desk, names: tuple[str, ...]
) -> None:
    file = desk.path / "f.txt"
    (desk.path / "sub").mkdir()
    (desk.path / "link").symlink_to("f.txt")
    for _ in range(10):
        file.write_text("".join(f"line {n}.\n" for n in range(1, 101)))
        blocks = [
            ev.records.ToolCallBlock(
                id=f"c{n}",
                name="edit_file",
                arguments=json.dumps(
                    {
                        "path": str(file) if name == "ABSOLUTE" else name,
                        "old_string": f"line {n * 10}.",
                        "new_string": f"edited {n}",
                    }
                ),
            )
            for n, name in enumerate(names, 1)
        ]
        await desk.room.batch(*blocks)
        assert all(isinstance(done.result, ToolSuccess) for done in desk.room.host.results)
        assert file.read_text().count("edited") == len(names)


@pytest.mark.holds("case-065")
async def test_writers_that_overlap_lose_nothing_and_readers_see_whole_files(desk: Desk) -> None:
    file = desk.path / "f.txt"
    count = 30
    file.write_text("".join(f"line {n}.\n" for n in range(count)))
    results: list[Committed] = []
    seen: set[int] = set()

    async def edit(number: int) -> None:
        results.append(
            await desk.call(
                "edit_file",
                path="f.txt",
                old_string=f"line {number}.\n",
                new_string=f"done {number}.\n",
            )
        )

    async with trio.open_nursery() as watching:

        async def watch() -> None:
            while True:
                seen.add(file.read_text().count("\n"))
                await trio.lowlevel.checkpoint()

        watching.start_soon(watch)
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(edit, number)
        watching.cancel_scope.cancel()
    assert all(isinstance(result.result, ToolSuccess) for result in results)
    assert file.read_text().count("done") == count
    assert seen == {count}


async def test_a_change_from_outside_between_reading_and_replacing_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = desk.path / "f"
    file.write_text("one\n")

    def meanwhile(text: str, form: Form, display: str) -> bytes:
        file.write_text("one\nby another\n")
        return encode(text, form, display)

    monkeypatch.setattr("dsh_plugins.fs_local.disk.encode", meanwhile)
    result = await desk.call("edit_file", path="f", old_string="one", new_string="two")
    assert result.code == "FS_STALE_VERSION"
    assert file.read_text() == "one\nby another\n"
    assert sorted(os.listdir(desk.path)) == ["f"]  # noqa: PTH208


async def test_intents_set_conditions_and_observations_are_told(desk: Desk) -> None:
    ctx = await desk.room.plugin("policy")
    versions: list[str] = []
    decision: list[ev.fs.WriteIntentDecision] = [ev.fs.CreateIfAbsent()]

    @ctx.on(ev.fs.WRITE_INTENT)
    async def write(_event: ev.fs.WriteIntent, _call_next: object) -> ev.fs.WriteIntentDecision:
        return decision[0]

    @ctx.on(ev.fs.EDIT_INTENT)
    async def edit(_event: ev.fs.EditIntent, _call_next: object) -> ev.fs.EditIntentDecision:
        return ev.fs.ExpectVersion(version="old")

    @ctx.on(ev.fs.OBSERVED)
    def observe(event: ev.fs.Observed) -> None:
        seen = event.observation
        versions.append(
            seen.version if isinstance(seen, ev.records.PresentObservation) else "absent"
        )

    assert (await desk.call("read_file", path="f")).code == "FS_NOT_FOUND"
    assert isinstance((await desk.call("write_file", path="f", content="1")).result, ToolSuccess)
    assert (await desk.call("write_file", path="f", content="2")).code == "FS_NOT_OBSERVED"
    decision[0] = ev.fs.ReplaceIfVersion(version="old")
    assert (await desk.call("write_file", path="f", content="2")).code == "FS_STALE_VERSION"
    decision[0] = ev.fs.ReplaceIfVersion(version=versions[-1])
    assert isinstance((await desk.call("write_file", path="f", content="2")).result, ToolSuccess)
    assert (await desk.call("edit_file", path="f", old_string="2", new_string="3")).code == (
        "FS_STALE_VERSION"
    )
    assert versions[0] == "absent"
    assert len(versions) == 3
