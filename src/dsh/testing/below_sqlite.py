"""Between SQLite and the system: a test sees every call of SQLite's to the disk, and fails some.

What comes in: a folder, and what to answer to each call for a file in it. What goes out: nothing;
SQLite meets the answers. SQLite calls the system itself, so this stands in its own table of system
calls, and for the sync, which is not in that table, in the methods of the files that it opens.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import sqlite3
from contextlib import contextmanager
from ctypes import (
    CDLL,
    CFUNCTYPE,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_void_p,
)
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

if TYPE_CHECKING:
    from _ctypes import CFuncPtr
    from collections.abc import Callable, Generator

__all__ = ["Did", "below_sqlite", "out_of_reach"]

#: Of `sqlite3_vfs`, from which on it has system calls.
VERSION: Final = 3
#: SQLite's codes for what it may not open, and for what could not be synced.
CANTOPEN: Final = 14
IOERR_FSYNC: Final = 10 | 4 << 8

#: Hears of a change: which, of what file, an offset or a length, and data.
Did: TypeAlias = "Callable[[str, Path, int, bytes], None]"
#: The ends of the names of the files that stand beside a database.
ENDS: Final = ("wal", "shm", "journal")

_SetCall: Final = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GetCall: Final = CFUNCTYPE(c_void_p, c_void_p, c_char_p)
_XOpen: Final = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_XSync: Final = CFUNCTYPE(c_int, c_void_p, c_int)
_Move: Final = CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True)
_PathInto: Final = CFUNCTYPE(c_int, c_char_p, c_void_p, use_errno=True)
_Map: Final = CFUNCTYPE(c_ssize_t, c_void_p, c_size_t, c_int, c_int, c_int, c_int64, use_errno=True)
#: The system calls that are watched: what a test calls them, their shape, and which argument is the
#: file. Not the locks: one that fails counts as taken by others.
CALLS: Final = {
    b"open": ("open", CFUNCTYPE(c_int, c_char_p, c_int, c_int, use_errno=True), 0),
    b"openDirectory": ("open folder of", _PathInto, 0),
    b"unlink": ("unlink", CFUNCTYPE(c_int, c_char_p, use_errno=True), 0),
    b"stat": ("stat", _PathInto, 0),
    b"fstat": ("fstat", CFUNCTYPE(c_int, c_int, c_void_p, use_errno=True), 0),
    b"ftruncate": ("truncate", CFUNCTYPE(c_int, c_int, c_int64, use_errno=True), 0),
    b"mmap": ("map", _Map, 4),
    b"pread": ("read", _Move, 0),
    b"pread64": ("read", _Move, 0),
    b"pwrite": ("write", _Move, 0),
    b"pwrite64": ("write", _Move, 0),
}


class _Vfs(Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs want any sequence
        ("version", c_int),
        ("file_size", c_int),
        ("path_size", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        *[(f"method{number}", c_void_p) for number in range(12)],
        ("set_call", _SetCall),
        ("get_call", _GetCall),
    ]


class _Methods(Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs want any sequence
        ("version", c_int),
        *[(name, c_void_p) for name in ("close", "read", "write", "truncate")],
        ("sync", c_void_p),
        *[(f"method{number}", c_void_p) for number in range(13)],
    ]


class _File(Structure):
    """The beginning of a `sqlite3_file`."""

    _fields_ = [("address", c_void_p)]  # type: ignore[mutable-override]  # the stubs want any sequence


def _library() -> CDLL:
    """The very SQLite that the module `sqlite3` uses. Raises OSError or AttributeError."""
    place = cast("str | None", getattr(_sqlite3, "__file__", None))
    library = CDLL(place)
    library.sqlite3_libversion.restype = c_char_p
    library.sqlite3_vfs_find.restype = c_void_p
    library.sqlite3_vfs_find.argtypes = (c_char_p,)
    return library


def out_of_reach() -> str | None:
    """Why nothing can be put below SQLite here; None where it can."""
    try:
        library = _library()
        version = cast("bytes", library.sqlite3_libversion()).decode()
        address = cast("int | None", library.sqlite3_vfs_find(None))
    except (OSError, AttributeError) as error:
        return f"SQLite is built into this Python and hides its functions: {error}"
    if version != sqlite3.sqlite_version or address is None:
        return (
            f"another SQLite ({version}) than the one in use ({sqlite3.sqlite_version}) was found"
        )
    vfs = _Vfs.from_address(address)
    if vfs.version < VERSION or vfs.name != b"unix":
        return f"the files of this SQLite are opened by {vfs.name!r}, which has no table of calls"
    return None


@final
class _Seam:
    """What stands in SQLite's tables. One a process: what SQLite may still hold is never freed."""

    def __init__(self) -> None:
        self.folder = b""
        self.asked: Callable[[str], int] | None = None
        self.did: Did | None = None
        self._address: Final = cast("int", _library().sqlite3_vfs_find(None))
        self._vfs: Final = _Vfs.from_address(self._address)
        #: Which file each descriptor, and each open file of SQLite's, belongs to.
        self._fds: Final[dict[int, str]] = {}
        self._files: Final[dict[int, str | None]] = {}
        self._sound_files: Final = _XOpen(cast("int", self._vfs.open))
        self._sound_methods: Final[dict[int, _Methods]] = {}
        self._our_methods: Final[dict[int, _Methods]] = {}
        self._opens: Final = _XOpen(self._opened_file)
        self._syncs: Final = _XSync(self._synced)
        self._calls: Final = {name: self._between(name, *call) for name, call in CALLS.items()}

    def put(self) -> None:
        """Stand in the tables."""
        for name, call in self._calls.items():
            if call is not None:
                self._vfs.set_call(self._address, name, ctypes.cast(call, c_void_p))
        self._vfs.open = ctypes.cast(self._opens, c_void_p).value

    def take(self) -> None:
        """Leave the tables as they were. Files still open keep asking, and hear nothing."""
        self._vfs.open = ctypes.cast(self._sound_files, c_void_p).value
        for name in self._calls:
            self._vfs.set_call(self._address, name, None)

    def _answer(self, call: str, path: str | None) -> int:
        if self.asked is None or path is None:
            return 0
        kind = next((end for end in ENDS if path.endswith(f"-{end}")), "db")
        return self.asked(f"{call} {kind}")

    def _tell(self, call: str, path: str | None, at: int = 0, data: bytes = b"") -> None:
        if self.did is not None and path is not None:
            self.did(call, Path(path), at, data)

    def _path(self, first: object) -> str | None:
        """The file that a path or a descriptor means; None for what is not ours."""
        if isinstance(first, int):
            return self._fds.get(first)
        if not isinstance(first, bytes) or not first.startswith(self.folder):
            return None
        return os.fsdecode(first)

    def _between(self, name: bytes, told: str, shape: type[CFuncPtr], file: int) -> CFuncPtr | None:
        """Our own system call of this name, or None where this SQLite has none."""
        place = cast("int | None", self._vfs.get_call(self._address, name))
        if place is None:
            return None
        sound = shape(place)

        def call(*arguments: object) -> int:
            path = self._path(arguments[file])
            code = self._answer(told, path)
            if code == ENOSPC and told == "write" and cast("int", arguments[2]) > 1:
                # What still has room is taken; the rest is then refused.
                arguments = (*arguments[:2], cast("int", arguments[2]) // 2, arguments[3])
                code = 0
            if code:
                ctypes.set_errno(code)
                return CANTOPEN if name == b"openDirectory" else -1
            found: int = sound(*arguments)
            if found >= 0:
                error = ctypes.get_errno()
                self._happened(told, path, found, arguments)
                ctypes.set_errno(error)
            return found

        return shape(call)

    def _happened(
        self, told: str, path: str | None, found: int, arguments: tuple[object, ...]
    ) -> None:
        match told:
            case "open":
                self._fds.pop(found, None)
                if path is not None:
                    self._fds[found] = path
            case "write" if self.did is not None:
                data = ctypes.string_at(cast("int", arguments[1]), found)
                self._tell(told, path, cast("int", arguments[3]), data)
            case "truncate":
                self._tell(told, path, cast("int", arguments[1]))
            case "unlink":
                self._tell(told, path)
            case "open folder of" if not found:
                self._tell("sync folder of", path)
            case _:
                pass

    def _opened_file(
        self, vfs: int, path: int | None, file: int, flags: int, told: int | None
    ) -> int:
        code = cast("int", self._sound_files(vfs, path, file, flags, told))
        name = None if path is None else self._path(ctypes.string_at(path))
        methods = _File.from_address(file)
        if code or not methods.address or name is None:
            return code
        self._files[file] = name
        methods.address = self._table(cast("int", methods.address))
        return code

    def _table(self, address: int) -> int:
        """The methods that were found there, with our own sync."""
        if address not in self._our_methods:
            sound, ours = _Methods.from_address(address), _Methods()
            ctypes.memmove(ctypes.addressof(ours), address, ctypes.sizeof(_Methods))
            ours.sync = ctypes.cast(self._syncs, c_void_p).value
            self._our_methods[address] = ours
            self._sound_methods[ctypes.addressof(ours)] = sound
        return ctypes.addressof(self._our_methods[address])

    def _synced(self, file: int, flags: int) -> int:
        path = self._files.get(file)
        if self._answer("sync", path):
            self._tell("lose", path)
            return IOERR_FSYNC
        sound = self._sound_methods[cast("int", _File.from_address(file).address)]
        code = cast("int", _XSync(cast("int", sound.sync))(file, flags))
        if not code:
            self._tell("sync", path)
        return code


_SEAM: Final[list[_Seam]] = []


@contextmanager
def below_sqlite(
    folder: Path, asked: Callable[[str], int], did: Did | None = None
) -> Generator[None, None, None]:
    """In this block SQLite's calls for files in `folder` go through `asked`.

    It gets the call and the kind of file, as in `write wal`, and answers with the errno that the
    call is to fail with, or 0. Of a write that ENOSPC refuses the first half is taken. It is asked
    in whatever thread the call is made, and may take its time. `did` gets what has changed on the
    disk: `write`, `truncate`, `unlink`, `sync` and `sync folder of`, and `lose` for a sync that was
    refused, with the file, an offset or length, and what was written. Databases must be opened in
    the block, one of which is open at a time. Raises AssertionError where `out_of_reach` says why.
    """
    assert out_of_reach() is None, out_of_reach()
    if not _SEAM:
        _SEAM.append(_Seam())
    (seam,) = _SEAM
    assert seam.asked is None, "one at a time"
    seam.did = did
    seam.folder, seam.asked = os.fsencode(folder) + b"/", asked
    seam.put()
    try:
        yield
    finally:
        seam.take()
        seam.asked = seam.did = None
