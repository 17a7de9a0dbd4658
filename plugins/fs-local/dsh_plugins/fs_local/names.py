r"""Paths: from what a model wrote to what the system opens, and back to what may be shown.

What comes in: text from a model's arguments, or names from the system. What goes out: absolute
resolved paths, and one-line names that any log can carry. A name that is shown with escapes
(`caf\xe9.txt`) is found again by the shown form.
"""

# Plain strings, as the system gives them: also names that are no UTF-8.
# ruff: noqa: PTH118
from __future__ import annotations

import os
import re
from typing import Final

from dsh.seams.display import visible_name
from dsh.seams.fs import FsError, Target

__all__ = ["locate", "within"]

_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|([nrt]))")
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(found: re.Match[str]) -> str:
    if found[1] is not None:
        # Control characters are themselves; the bytes above are what fsdecode makes of them.
        return os.fsdecode(bytes([int(found[1], 16)]))
    return chr(int(found[2], 16)) if found[2] is not None else _LETTERS[found[3]]


def locate(path: str, cwd: str) -> Target:
    """Resolve `path` (relative to `cwd`, links followed). It need not exist. Blocking, quick."""
    if "\x00" in path:
        raise FsError("a path cannot hold a NUL character", code="FS_NOT_FOUND")
    if not path:
        raise FsError("the path is empty; '.' is the workspace", code="FS_NOT_FOUND")
    joined = os.path.join(cwd, path)
    if "\\" in path and not os.path.lexists(joined):
        shown = os.path.join(cwd, _ESCAPE.sub(_unescape, path))
        if os.path.lexists(shown):
            joined = shown
    real, root = os.path.realpath(joined), os.path.realpath(cwd)
    outside = not within(real, root)
    return Target(
        path=real,
        key=visible_name(real),
        display=visible_name(real if outside else os.path.relpath(real, root)),
        outside=outside,
    )


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it. Both absolute and resolved."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
