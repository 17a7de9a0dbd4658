"""What permission rules are matched against when a file tool is called: the path it would touch.

What comes in: the arguments of a call. What goes out: where the provider says that this is, and
whether that lies inside the workspace. Nothing is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dsh.tools import Subject

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.seams.fs import FileSystem
    from dsh.tools import SubjectOf

__all__ = ["path_of"]


def path_of(files: FileSystem) -> SubjectOf:
    """The subject of a file tool over `files`: its `path`; the workspace if it gives none."""

    def subject(arguments: JsonValue, cwd: str) -> Subject:
        path = arguments.get("path", ".") if isinstance(arguments, Mapping) else None
        if not isinstance(path, str):
            raise TypeError("the call has no path")
        target = files.place(path, cwd)
        return Subject(
            kind="path", text=target.display, absolute=target.key, outside=target.outside
        )

    return subject
