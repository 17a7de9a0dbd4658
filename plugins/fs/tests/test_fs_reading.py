"""Reading text files: numbered, exact, bounded."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.hooks.live import ToolFailed

if TYPE_CHECKING:
    from plugins.fs.tests.conftest import Desk


async def test_lines_are_numbered_and_totals_exact(desk: Desk) -> None:
    (desk.path / "f.txt").write_text("one\ntwo\n\nfour")
    assert await desk.text("read_file", path="f.txt") == (
        "1\tone\n2\ttwo\n3\t\n4\tfour\n[lines 1-4 of 4, 13 bytes]"
    )


async def test_pages_continue_where_the_last_one_ended(desk: Desk) -> None:
    (desk.path / "f.txt").write_text("".join(f"line {n}\n" for n in range(1, 26)))
    first = await desk.text("read_file", path="f.txt", limit=10)
    assert first.endswith("[lines 1-10 of 25, 191 bytes; continue with offset=11]")
    second = await desk.text("read_file", path="f.txt", offset=11, limit=10)
    assert second.startswith("11\tline 11\n")
    last = await desk.text("read_file", path="f.txt", offset=21)
    assert last.endswith("25\tline 25\n[lines 21-25 of 25, 191 bytes]")
    beyond = await desk.call("read_file", path="f.txt", offset=26)
    assert beyond.text == "Error: f.txt has 25 lines; there is no line 26"


async def test_an_empty_file_is_said_to_be_empty(desk: Desk) -> None:
    (desk.path / "f.txt").write_text("")
    assert await desk.text("read_file", path="f.txt") == "[f.txt is empty]"


@pytest.mark.holds("case-033")
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("min.js", ("var a=" + "€" * 10_000_000 + ";").encode()),
        ("many.txt", b"x\n" * 3_000_000),
        ("zw.txt", ("👩‍👩‍👧‍👦" * 200_000).encode()),
    ],
)
async def test_huge_files_give_bounded_results_in_bounded_memory(
    desk: Desk, name: str, data: bytes
) -> None:
    (desk.path / name).write_bytes(data)
    size = len(data)
    del data
    tracemalloc.start()
    try:
        text = await desk.text("read_file", path=name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert len(text.encode()) < 60_000
    assert f"{size} bytes" in text
    assert "cut:" in text or "continue with offset=2001" in text


async def test_a_missing_file_names_its_neighbours(desk: Desk) -> None:
    (desk.path / "readme.md").write_text("x")
    result = await desk.call("read_file", path="readme.txt")
    assert result.code == "FS_NOT_FOUND"
    assert "similar names there: readme.md" in result.text


async def test_what_is_no_regular_file_is_refused_at_once(desk: Desk) -> None:
    os.mkfifo(desk.path / "pipe")
    (desk.path / "folder").mkdir()
    (desk.path / "loop").symlink_to("loop")
    with trio.fail_after(5):
        for name in ("pipe", "folder", "/dev/zero", "loop"):
            assert (await desk.call("read_file", path=name)).code == "FS_NOT_REGULAR_FILE"
            assert isinstance(
                (await desk.call("write_file", path=name, content="x")).result, ToolFailed
            )
    assert (await desk.call("read_file", path="folder/../pipe/x")).code == "FS_NOT_DIRECTORY"


async def test_binary_data_is_no_text(desk: Desk) -> None:
    (desk.path / "b").write_bytes(b"\x7fELF\x00\x01")
    assert (await desk.call("read_file", path="b")).code == "FS_NOT_TEXT"
    assert (await desk.call("edit_file", path="b", old_string="E", new_string="F")).code == (
        "FS_NOT_TEXT"
    )


async def test_the_terminal_is_not_controlled_by_what_is_read(desk: Desk) -> None:
    (desk.path / "f").write_bytes("\x1b[2Ja\u202eb\x9bc\rd\te\n".encode())
    assert (await desk.text("read_file", path="f")).startswith(
        "1\t\\x1b[2Ja\\u202eb\\x9bc\\rd\te\n"
    )
