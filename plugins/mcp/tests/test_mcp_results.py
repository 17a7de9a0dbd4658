"""Results as a model reads them: every kind of block, pictures in files, bounds, faults."""

from __future__ import annotations

import base64
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_plugins.mcp.content import DataFolder, texts_of
from dsh_plugins.mcp.lines import END, Lines, TooLong

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.hooks import JsonObject, JsonValue

PICTURE = base64.b64encode(b"\x89PNG").decode()


def text(words: str) -> JsonValue:
    return {"type": "text", "text": words}


def files_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def read(folder: Path, *blocks: JsonValue, limit: int = 10_000) -> list[str]:
    return await texts_of({"content": list(blocks)}, DataFolder(str(folder)), limit)


@pytest.mark.holds("MC7")
async def test_a_picture_goes_to_a_private_file(tmp_path: Path) -> None:
    block: JsonValue = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    (shown,) = await read(tmp_path / "data", block)
    (file,) = (tmp_path / "data").iterdir()
    assert shown == f"[image, image/png, 4 bytes, kept in {file}]"
    assert file.suffix == ".png"
    assert file.read_bytes() == b"\x89PNG"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (text("a\u2028b\x00"), "a\u2028b\x00"),
        ({"type": "image", "data": "?", "mimeType": "image/png"}, "is not base64"),
        ({"type": "audio", "data": PICTURE, "mimeType": "../../x"}, "[audio, ../../x, 4 bytes"),
        ({"type": "resource", "resource": {"uri": "f:/a", "text": "in it"}}, "[resource f:/a]\nin"),
        ({"type": "resource", "resource": {"uri": "f:/b", "blob": PICTURE}}, "f:/b, data, 4 bytes"),
        ({"type": "resource"}, "without contents"),
        ({"type": "resource_link", "uri": "f:/c", "name": "see\n"}, "[resource see\\n: f:/c]"),
        ({"type": "hologram"}, "'hologram', which is not known"),
        ({"type": "text"}, ""),
        ("x", "[a block that is none]"),
    ],
)
async def test_blocks_become_text(tmp_path: Path, block: JsonValue, shown: str) -> None:
    (found,) = await read(tmp_path, block)
    assert shown in found
    assert all(file.parent == tmp_path for file in files_in(tmp_path))


async def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("in the way")
    block: JsonValue = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    (shown,) = await read(tmp_path / "taken", block)
    assert "could not be kept" in shown


async def test_structured_content_is_read_when_there_is_no_other(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    both: JsonObject = {"content": [text("words")], "structuredContent": {"a": 1}}
    alone: JsonObject = {"content": [], "structuredContent": {"a": 1}}
    assert await texts_of(both, folder, 100) == ["words"]
    assert await texts_of(alone, folder, 100) == ['{"a":1}']
    assert await texts_of({}, folder, 100) == []


@pytest.mark.holds("MC7")
async def test_the_middle_of_what_is_too_long_is_left_out(tmp_path: Path) -> None:
    found = await read(tmp_path, text("x" * 600), text("é" * 600), text("more"), limit=1_000)
    assert found[0] == "x" * 600
    assert found[1] == f"{'é' * 100}\n[… 800 bytes left out …]\n{'é' * 100}"
    assert found[2] == "\n[… 4 bytes left out …]\n"
    many = await read(tmp_path, *(text("y") for _ in range(250)))
    assert len(many) == 201
    assert many[-1] == "[50 more blocks left out]"


@given(st.lists(st.binary(max_size=8), max_size=8), st.integers(1, 5), st.integers(4, 12))
def test_lines_do_not_depend_on_how_they_are_read(
    parts: list[bytes], size: int, limit: int
) -> None:
    data = b"\n".join(parts)
    lines = Lines(limit)
    found = [
        line
        for at in range(0, len(data), size)
        for line in lines.feed(data[at : at + size])
    ]  # fmt: skip
    *ended, last = data.split(b"\n")
    assert len(found) == len(ended)
    for line, whole in zip(found, ended, strict=True):
        if isinstance(line, TooLong):
            assert len(whole) > limit
            assert len(line.head) >= min(limit, END)
            assert whole.startswith(line.head)
            assert line.tail == whole[-END:]
        else:
            assert line == whole.removesuffix(b"\r")
            assert len(whole) <= limit
    assert lines.last() == (last if len(last) <= limit else b"")
