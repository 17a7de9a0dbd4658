"""Where a session's files are: `<root>/<readable-cwd>/<encoded-id>/session.jsonl`.

What comes in: ids and working directories. What goes out: paths. An id maps to its folder name
without collisions; a cwd's folder is for people and may be shared. Only `find` looks at the disk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dsh.errors import InvalidAppend, SessionCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOG_NAME", "Places", "encoded_id"]

LOG_NAME: Final = "session.jsonl"
LOCK_FOLDER: Final = ".locks"
NAME_BYTES: Final = 240
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def encoded_id(session_id: str) -> str:
    """The id as a folder name: bytes that are not plain are written as %XX, as is a first dot.

    Raises InvalidAppend for an id that is empty or too long for a folder name.
    """
    raw = session_id.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in raw)
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if not name or len(name) > NAME_BYTES:
        raise InvalidAppend(
            f"the session id {session_id[:60]!r} cannot name a folder: "
            f"it is empty, or longer than {NAME_BYTES} bytes when written as %XX"
        )
    return name


def readable_cwd(cwd: str | None) -> str:
    """The cwd as a folder name for people: `/home/me/work` becomes `home-me-work`."""
    if cwd is None:
        return "no-cwd"
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", cwd).strip("-.")
    return words[-NAME_BYTES:].lstrip("-.") or "root"


class Places:
    """The paths under one root."""

    def __init__(self, root: Path) -> None:
        self.root: Final = root

    def log(self, session_id: str, cwd: str | None) -> Path:
        """Where a new session's log will be."""
        return self.root / readable_cwd(cwd) / encoded_id(session_id) / LOG_NAME

    def lock(self, session_id: str) -> Path:
        """The lock file of an id, whatever its cwd."""
        return self.root / LOCK_FOLDER / f"{encoded_id(session_id)}.lock"

    def find(self, session_id: str) -> Path | None:
        """The stored log of an id, or None. Raises SessionCorrupt if two folders have one."""
        name = encoded_id(session_id)
        found = [log for folder in self._folders() if (log := folder / name / LOG_NAME).exists()]
        if len(found) > 1:
            raise SessionCorrupt(
                f"session {session_id!r} is stored twice: {found[0]} and {found[1]}; "
                "move one of them away"
            )
        return found[0] if found else None

    def logs(self) -> Iterator[tuple[str, Path]]:
        """The folder name and the log of every stored session."""
        for folder in self._folders():
            try:
                entries = sorted(entry.name for entry in folder.iterdir())
            except OSError:
                continue
            for name in entries:
                if not name.startswith("."):
                    yield name, folder / name / LOG_NAME

    def _folders(self) -> list[Path]:
        try:
            entries = sorted(self.root.iterdir())
        except FileNotFoundError:
            return []
        return [entry for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
