"""Spilled texts as files: a folder for each session, private, under names that cannot be guessed.

What comes in: texts. What goes out: their paths. Folders are made for this user alone (0700), files
as new ones (O_EXCL, 0600). An existing folder that belongs to somebody else is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Final

import trio
from typing_extensions import override

from dsh.seams.spill import SpillStore

__all__ = ["FolderStore"]

NAME_MAX: Final = 60
UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


class FolderStore(SpillStore):
    """`root`: the folder for all sessions; None makes a fresh temporary one at the first use."""

    def __init__(self, root: str | None) -> None:
        self._root = Path(root).expanduser() if root is not None else None

    @override
    async def keep(self, session_id: str, name: str, text: str) -> str:
        return await trio.to_thread.run_sync(self._keep, session_id, name, text)

    def _keep(self, session_id: str, name: str, text: str) -> str:
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="dsh-spill-"))
        folder = self._root / hashlib.sha256(session_id.encode()).hexdigest()[:16]
        _private(self._root)
        _private(folder)
        shown = UNSAFE.sub("-", name)[:NAME_MAX]
        path = folder / f"{os.urandom(6).hex()}-{shown}.txt"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        return str(path)


def _private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is no folder of this user")
