"""Read before you change: unseen, absent, seen, stale, of another session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from dsh.hooks import Scope
from dsh.testing import call_block

if TYPE_CHECKING:
    from dsh.hooks import live
    from plugins.fs.tests.conftest import Desk


async def test_an_unseen_file_is_not_replaced_and_not_edited(watched: Desk) -> None:
    (watched.path / "f").write_text("old\n", encoding="utf-8")
    written = await watched.call("write_file", path="f", content="new\n")
    assert (written.code, "read it first" in written.text) == ("FS_NOT_OBSERVED", True)
    edited = await watched.call("edit_file", path="f", old_string="old", new_string="new")
    assert (edited.code, "read it first" in edited.text) == ("FS_NOT_OBSERVED", True)
    assert (watched.path / "f").read_text(encoding="utf-8") == "old\n"


async def test_what_was_read_is_changed_and_what_was_written_is_known(watched: Desk) -> None:
    (watched.path / "f").write_text("old\n", encoding="utf-8")
    await watched.call("read_file", path="f")
    assert (
        await watched.call("edit_file", path="f", old_string="old", new_string="a")
    ).code is None
    assert (await watched.call("write_file", path="./f", content="b\n")).code is None
    assert (await watched.call("write_file", path="made", content="x\n")).code is None
    assert (
        await watched.call("edit_file", path="made", old_string="x", new_string="y")
    ).code is None


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_a_change_by_something_else_makes_it_stale_until_it_is_read_again(
    watched: Desk, tool: str
) -> None:
    file = watched.path / "f"
    file.write_text("old\n", encoding="utf-8")
    await watched.call("read_file", path="f")
    file.write_text("old and more\n", encoding="utf-8")
    change: dict[str, object] = (
        {"content": "new\n"} if tool == "write_file" else {"old_string": "old", "new_string": "new"}
    )
    assert (await watched.call(tool, path="f", **change)).code == "FS_STALE_VERSION"
    assert file.read_text(encoding="utf-8") == "old and more\n"
    await watched.call("read_file", path="f")
    assert (await watched.call(tool, path="f", **change)).code is None


async def test_a_file_seen_as_absent_is_created_only_if_it_still_is(watched: Desk) -> None:
    assert (await watched.call("read_file", path="f")).code == "FS_NOT_FOUND"
    edited = await watched.call("edit_file", path="f", old_string="a", new_string="b")
    assert edited.code == "FS_NOT_FOUND"
    (watched.path / "f").write_text("appeared\n", encoding="utf-8")
    assert (await watched.call("write_file", path="f", content="x")).code == "FS_NOT_OBSERVED"


async def test_a_link_and_its_target_are_one_file(watched: Desk) -> None:
    (watched.path / "f").write_text("old\n", encoding="utf-8")
    (watched.path / "link").symlink_to("f")
    await watched.call("read_file", path="link")
    assert (await watched.call("write_file", path="f", content="new\n")).code is None


async def test_another_session_has_seen_nothing(watched: Desk) -> None:
    (watched.path / "f").write_text("old\n", encoding="utf-8")
    await watched.call("read_file", path="f")
    other = cast(
        "live.Agent", SimpleNamespace(id="other", scope=Scope("agent other"), session=None)
    )
    given = watched.room.call("write_file", {"path": "f", "content": "x"})
    given = attrs.evolve(given, cwd=str(watched.path), agent=other)
    finished = await watched.room.tools.execute(given)
    assert "FS_NOT_OBSERVED" in str(finished.result)


@pytest.mark.holds("case-065")
async def test_edits_of_one_message_see_each_other(watched: Desk) -> None:
    file = watched.path / "f"
    file.write_text("".join(f"line {number:03}\n" for number in range(100)), encoding="utf-8")
    (watched.path / "sub").mkdir()
    (watched.path / "link").symlink_to("f")
    await watched.call("read_file", path="f")
    names = ["f", "./f", "sub/../f", str(file), "link"]
    await watched.room.batch(
        *[
            call_block(
                f"c{n}", "edit_file", path=name, old_string=f"line {n:03}", new_string=f"new {n}"
            )
            for n, name in enumerate(names)
        ]
    )
    assert [one.code for one in watched.room.host.results] == [None] * len(names)
    text = file.read_text(encoding="utf-8")
    assert all(f"new {number}\n" in text for number in range(len(names)))
