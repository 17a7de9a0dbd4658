"""The file seam: what file tools need of a file system, with versions and exact conditions.

What comes in: paths as a model wrote them, texts, conditions. What goes out: pages of text, walks,
matches, and the versions of what was seen. Every failure is an `FsError` with a stable code. A
provider never shows a half-written file, and never changes a file that is not what was expected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dsh.errors import ToolError
from dsh.hooks import frozen
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FS",
    "Condition",
    "Edited",
    "Entry",
    "FileSystem",
    "FsCode",
    "FsError",
    "Matches",
    "Page",
    "Query",
    "Stat",
    "Target",
    "Walk",
    "Written",
]

FsCode: TypeAlias = Literal[
    "FS_NOT_FOUND",
    "FS_NOT_DIRECTORY",
    "FS_NOT_TEXT",
    "FS_NOT_REGULAR_FILE",
    "FS_TOO_LARGE",
    "FS_PERMISSION_DENIED",
    "FS_SANDBOX_DENIED",
    "FS_IO_ERROR",
    "FS_STALE_VERSION",
    "FS_NOT_OBSERVED",
    "FS_AMBIGUOUS_EDIT",
    "FS_EDIT_NOT_FOUND",
    "FS_ABORTED",
]


class FsError(ToolError):
    """A file operation that did not happen. The text says what to do instead."""

    default_code = "FS_IO_ERROR"

    def __init__(self, message: str, *, code: FsCode) -> None:
        super().__init__(message, code=code)


@frozen(kw_only=True, slots=True)
class Target:
    """One place in the file system.

    `path` is absolute with links resolved; it may hold bytes that are no UTF-8, as `os.fsdecode`
    gives them. `key` is the same, `display` relative to the workspace where it is inside, and both
    are safe to log. `outside`: it is not below the workspace it was located from.
    """

    path: str
    key: str
    display: str
    outside: bool


@frozen(kw_only=True, slots=True)
class Stat:
    """What is at a target. `size` in bytes; `version` changes whenever the content may have."""

    kind: Literal["file", "directory", "other"]
    size: int
    version: str


@frozen(kw_only=True, slots=True)
class Condition:
    """When a write or an edit may happen. `version` None: only if there is nothing yet."""

    version: str | None


@frozen(kw_only=True, slots=True)
class Page:
    r"""Some lines of a text file. `start` counts from 1; totals are those of the whole file.

    `lines` are without their ends and cut to the length asked for; `cut` has the full length, in
    characters, of each cut line by its number. `last` is False if lines follow. `encoding` is what
    the file is kept in; "bytes" means that some are no UTF-8 and stand as `\xNN`.
    """

    start: int
    lines: tuple[str, ...]
    cut: tuple[tuple[int, int], ...]
    total_lines: int
    total_bytes: int
    encoding: str
    crlf: bool
    version: str


@frozen(kw_only=True, slots=True)
class Written:
    """A whole file was written. `kept`: what of the old file's form was kept, for the model."""

    version: str
    created: bool
    size: int
    kept: tuple[str, ...]


@frozen(kw_only=True, slots=True)
class Edited:
    """A file was changed in place. `line` is that of the first replacement, from 1."""

    version: str
    replaced: int
    line: int


@frozen(kw_only=True, slots=True)
class Entry:
    """One file found by a walk. `path` is relative to its root, as `os.fsdecode` gives it."""

    path: str
    size: int


@frozen(kw_only=True, slots=True)
class Walk:
    """Files below a root, by path in code point order. `complete` is False at the bound."""

    files: tuple[Entry, ...]
    complete: bool


@frozen(kw_only=True, slots=True)
class Query:
    """What to look for in files: a regular expression, line by line."""

    pattern: str
    ignore_case: bool = False
    context: int = 0
    limit: int = 100


@frozen(kw_only=True, slots=True)
class Matches:
    """Lines found. Each is (index of the file, line number, text, is a match).

    `matches` and `files` count everything, also beyond the limit. `skipped` files were not text.
    """

    lines: tuple[tuple[int, int, str, bool], ...]
    matches: int
    files: int
    skipped: int


class FileSystem(ABC):
    """The files that tools may touch. All methods raise FsError."""

    @abstractmethod
    def place(self, path: str, cwd: str) -> Target:
        """The target of a path as a model wrote it, relative to `cwd`. It need not exist.

        For whoever judges a call before it runs. It may block the thread, for a moment.
        """

    @abstractmethod
    async def locate(self, path: str, cwd: str) -> Target:
        """What `place` gives, without blocking."""

    @abstractmethod
    async def stat(self, target: Target) -> Stat | None:
        """What is there now; None if nothing is."""

    @abstractmethod
    async def read(
        self, target: Target, *, start: int, count: int, line_max: int, byte_max: int
    ) -> Page:
        """Lines `start` to `start + count - 1`, fewer if `byte_max` bytes of text are reached."""

    @abstractmethod
    async def write(self, target: Target, text: str, condition: Condition | None) -> Written:
        """Put `text` there, whole or not at all, also if the machine stops meanwhile.

        Encoding, byte order mark and CRLF line ends of an existing file are kept. Not cancellable
        once it has begun.
        """

    @abstractmethod
    async def edit(
        self, target: Target, old: str, new: str, *, every: bool, condition: Condition | None
    ) -> Edited:
        """Replace `old`, which must be there exactly once unless `every`. Atomic like `write`."""

    @abstractmethod
    async def list(self, target: Target) -> Sequence[Entry]:
        """What a directory holds, by name; directories end with `/` and have size 0."""

    @abstractmethod
    async def walk(self, target: Target, *, workspace: str, ignored: bool) -> Walk:
        """The files below a directory; without `ignored`, not what ignore files exclude."""

    @abstractmethod
    async def search(self, root: Target, files: Sequence[Entry], query: Query) -> Matches:
        """Search files of a walk. Cancelled: the search is ended and waited for."""


FS: Final[ServiceKey[FileSystem]] = ServiceKey("fs")
