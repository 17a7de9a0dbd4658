"""Results of foreign tools as text that a model can read.

What comes in: the blocks of a result. What goes out: texts, bounded together. Model servers do not
take pictures in tool results, so what is no text is written to a file, private to this user, and
the model reads where it is. Nothing deletes these files.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import orjson
import trio

from dsh.tools import visible_name, whole_head, whole_tail

if TYPE_CHECKING:
    from dsh.hooks import JsonObject, JsonValue

__all__ = ["DataFolder", "texts_of"]

BLOCKS_MAX: Final = 200
#: Endings for what a program may want to open; other data gets `.bin`.
ENDINGS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "application/pdf": ".pdf",
}


@final
class DataFolder:
    """Where data of results goes. The folder is made when the first piece comes."""

    def __init__(self, root: str | None) -> None:
        self._root: Path | None = None if root is None else Path(root).expanduser()
        self._made = False

    async def keep(self, data: bytes, kind: str) -> str:
        """Write it to a file of its own; the file's path. Raises OSError."""
        return await trio.to_thread.run_sync(self._write, data, ENDINGS.get(kind, ".bin"))

    def _write(self, data: bytes, ending: str) -> str:
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="dsh-mcp-"))
        elif not self._made:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._made = True
        handle, path = tempfile.mkstemp(prefix="mcp-", suffix=ending, dir=self._root)  # 0600
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return path


async def texts_of(result: JsonObject, folder: DataFolder, limit: int) -> list[str]:
    """The texts of a result, in order, together of at most about `limit` UTF-8 bytes."""
    listed = result.get("content")
    blocks = listed if isinstance(listed, list | tuple) else ()
    texts = [await _text(block, folder) for block in blocks[:BLOCKS_MAX]]
    if len(blocks) > BLOCKS_MAX:
        texts.append(f"[{len(blocks) - BLOCKS_MAX} more blocks left out]")
    structured = result.get("structuredContent")
    if not texts and isinstance(structured, dict):
        texts.append(orjson.dumps(structured).decode())
    return _bounded(texts, limit)


async def _text(block: JsonValue, folder: DataFolder) -> str:
    if not isinstance(block, dict):
        return "[a block that is none]"
    kind = block.get("type")
    match kind:
        case "text":
            return _string(block, "text")
        case "image" | "audio":
            return await _data(block, "data", str(kind), folder)
        case "resource_link":
            return f"[resource {_named(block)}: {_line(block, 'uri')}]"
        case "resource":
            inner = block.get("resource")
            if not isinstance(inner, dict):
                return "[a resource without contents]"
            if "blob" in inner:
                return await _data(inner, "blob", f"resource {_line(inner, 'uri')}", folder)
            return f"[resource {_line(inner, 'uri')}]\n{_string(inner, 'text')}"
        case _:
            return f"[a block of type {visible_name(str(kind))[:80]!r}, which is not known here]"


async def _data(block: JsonObject, key: str, what: str, folder: DataFolder) -> str:
    media = _line(block, "mimeType") or "data"
    try:
        data = base64.b64decode(_string(block, key), validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}, {media}: its data is not base64]"
    try:
        path = await folder.keep(data, media)
    except OSError as error:
        return f"[{what}, {media}, {len(data)} bytes: could not be kept: {error.strerror}]"
    return f"[{what}, {media}, {len(data)} bytes, kept in {path}]"


def _string(block: JsonObject, key: str) -> str:
    value = block.get(key)
    return value if isinstance(value, str) else ""


def _line(block: JsonObject, key: str) -> str:
    return visible_name(_string(block, key))[:500]


def _named(block: JsonObject) -> str:
    return _line(block, "title") or _line(block, "name") or "without a name"


def _bounded(texts: list[str], limit: int) -> list[str]:
    left = limit
    found: list[str] = []
    for text in texts:
        data = text.encode("utf-8", "backslashreplace")
        if len(data) <= left:
            left -= len(data)
            found.append(text)
            continue
        half = left // 2
        head, tail = whole_head(data[:half]), whole_tail(data[len(data) - half :])
        omitted = len(data) - len(head) - len(tail)
        found.append(f"{head.decode()}\n[… {omitted} bytes left out …]\n{tail.decode()}")
        left = 0
    return found
