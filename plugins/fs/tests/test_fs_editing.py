"""Edits: literal, unique, and in the form in which the file was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.hooks.live import ToolSuccess

if TYPE_CHECKING:
    from plugins.fs.tests.conftest import Desk


@pytest.mark.parametrize(
    ("codec", "mark"),
    [
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-8", b""),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_encoding_mark_and_line_ends_survive_edits_and_writes(
    desk: Desk, codec: str, mark: bytes, end: str
) -> None:
    file = desk.path / "f"
    file.write_bytes(mark + f"één{end}two{end}three{end}".encode(codec))
    read = await desk.text("read_file", path="f")
    assert read.startswith("1\téén\n2\ttwo\n3\tthree\n")
    assert ("CRLF" in read) is (end == "\r\n")
    edit = {"path": "f", "old_string": "één\ntwo\n", "new_string": "eins\nzwei\ndrei\n"}
    assert isinstance((await desk.call("edit_file", **edit)).result, ToolSuccess)
    expected = f"eins{end}zwei{end}drei{end}three{end}"
    assert file.read_bytes() == mark + expected.encode(codec)
    await desk.call("write_file", path="f", content="new\nfile\n")
    assert file.read_bytes() == mark + f"new{end}file{end}".encode(codec)


async def test_mixed_line_ends_keep_what_stood_at_each_place(desk: Desk) -> None:
    file = desk.path / "f"
    file.write_bytes(b"a\r\nb\nc\r\nd\n")
    await desk.call("edit_file", path="f", old_string="b\nc\n", new_string="B\nC\n")
    assert file.read_bytes() == b"a\r\nB\r\nC\r\nd\n"
    await desk.call("edit_file", path="f", old_string="a", new_string="A")
    assert file.read_bytes() == b"A\r\nB\r\nC\r\nd\n"


async def test_bytes_that_are_no_utf8_are_shown_escaped_and_survive_an_edit(desk: Desk) -> None:
    file = desk.path / "latin"
    file.write_bytes(b"caf\xe9\nline\n")
    read = await desk.text("read_file", path="latin")
    assert read.startswith("1\tcaf\\xe9\n2\tline\n")
    assert "not UTF-8" in read
    await desk.call("edit_file", path="latin", old_string="line", new_string="zeile")
    assert file.read_bytes() == b"caf\xe9\nzeile\n"


async def test_an_edit_is_literal_and_must_be_unique(desk: Desk) -> None:
    file = desk.path / "f"
    file.write_text("a.c abc\n\\1 $x\n")
    await desk.call("edit_file", path="f", old_string="a.c", new_string="\\g<0>\\1")
    assert file.read_text() == "\\g<0>\\1 abc\n\\1 $x\n"
    result = await desk.call("edit_file", path="f", old_string="\\1", new_string="y")
    assert result.code == "FS_AMBIGUOUS_EDIT"
    assert "2 times in f (lines 1, 2)" in result.text
    assert file.read_text() == "\\g<0>\\1 abc\n\\1 $x\n"
    done = await desk.text(
        "edit_file", path="f", old_string="\\1", new_string="y", replace_all=True
    )
    assert done == "edited f (2 places, the first in line 1)"
    assert file.read_text() == "\\g<0>y abc\ny $x\n"


async def test_overlapping_occurrences_are_ambiguous(desk: Desk) -> None:
    (desk.path / "f").write_text("aaa")
    result = await desk.call("edit_file", path="f", old_string="aa", new_string="b")
    assert result.code == "FS_AMBIGUOUS_EDIT"


async def test_a_text_that_is_not_there_gets_a_hint(desk: Desk) -> None:
    (desk.path / "f").write_text("def f():\n    return 1\n")
    result = await desk.call(
        "edit_file", path="f", old_string="def f():\n  return 1", new_string=""
    )
    assert result.code == "FS_EDIT_NOT_FOUND"
    assert "stands in line 1" in result.text
    missing = await desk.call("edit_file", path="g", old_string="x", new_string="y")
    assert missing.code == "FS_NOT_FOUND"
