"""Single files on the local disk: versions and atomic replacement. Blocking; runs in threads.

What comes in: resolved paths. What goes out: open files, or a file replaced whole. A file is opened
without waiting and looked at before it is read, so a pipe or a device never hangs the thread; a
file that changed between reading and replacing is refused.
"""

# Plain strings, as the system gives them: also names that are no UTF-8.
# ruff: noqa: PTH116
from __future__ import annotations

import errno
import hashlib
import os
import stat as modes
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from dsh.seams.fs import Condition, Edited, FsError, Stat, Target, Written
from dsh_plugins.fs_local.text import Form, decode, encode, newlines, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "EDIT_MAX",
    "READ_MAX",
    "chunks_of",
    "edit_file",
    "open_regular",
    "refuse",
    "stat_of",
    "version_of",
    "write_file",
]

CHUNK: Final = 65_536
READ_MAX: Final = 512 * 2**20
EDIT_MAX: Final = 16 * 2**20


def refuse(error: OSError, target: Target) -> NoReturn:
    """Say an operating system error in the seam's words."""
    name = target.display
    match error.errno:
        case errno.ENOENT:
            raise FsError(f"{name} does not exist", code="FS_NOT_FOUND") from None
        case errno.ENOTDIR:
            text = f"a part of {name} is a file, not a directory"
            raise FsError(text, code="FS_NOT_DIRECTORY") from None
        case errno.EACCES | errno.EPERM | errno.EROFS:
            text = f"{name}: {os.strerror(error.errno)}"
            raise FsError(text, code="FS_PERMISSION_DENIED") from None
        case errno.EISDIR:
            raise FsError(f"{name} is a directory", code="FS_NOT_REGULAR_FILE") from None
        case errno.ELOOP:
            text = f"{name} is a link that leads back to itself"
            raise FsError(text, code="FS_NOT_REGULAR_FILE") from None
        case _:
            text = f"{name}: {error.strerror or error}"
            raise FsError(text, code="FS_IO_ERROR") from None


def version_of(found: os.stat_result) -> str:
    """An opaque token that changes whenever the content may have changed."""
    facts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def stat_of(target: Target) -> Stat | None:
    """What is at the target; None if nothing is."""
    try:
        found = os.stat(target.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse(error, target)
    if modes.S_ISREG(found.st_mode):
        kind = "file"
    else:
        kind = "directory" if modes.S_ISDIR(found.st_mode) else "other"
    return Stat(kind=kind, size=found.st_size, version=version_of(found))  # type: ignore[arg-type]


def _regular(found: os.stat_result, target: Target) -> None:
    if modes.S_ISDIR(found.st_mode):
        raise FsError(
            f"{target.display} is a directory; list its files with glob", code="FS_NOT_REGULAR_FILE"
        )
    if not modes.S_ISREG(found.st_mode):
        raise FsError(
            f"{target.display} is no regular file (a pipe, a socket or a device)",
            code="FS_NOT_REGULAR_FILE",
        )


def open_regular(target: Target) -> tuple[int, os.stat_result]:
    """Open for reading, without waiting for the other end of a pipe."""
    try:
        handle = os.open(target.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        refuse(error, target)
    try:
        found = os.fstat(handle)
        _regular(found, target)
    except BaseException:
        os.close(handle)
        raise
    return handle, found


def chunks_of(handle: int, target: Target) -> Iterator[bytes]:
    """The rest of an open file, piece by piece; stops when the call is cancelled."""
    while True:
        trio.from_thread.check_cancelled()
        try:
            data = os.read(handle, CHUNK)
        except OSError as error:
            refuse(error, target)
        if not data:
            return
        yield data


def _current(target: Target) -> os.stat_result | None:
    try:
        found = os.stat(target.path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse(error, target)
    _regular(found, target)
    if found.st_nlink > 1:
        raise FsError(
            f"{target.display} has {found.st_nlink} names (hard links), and replacing it would "
            "separate them; give it a file of its own first, as in `cp -p f f.new && mv f.new f`",
            code="FS_NOT_REGULAR_FILE",
        )
    return found


def _check(found: os.stat_result | None, condition: Condition | None, target: Target) -> None:
    if condition is None:
        return
    if condition.version is None and found is not None:
        raise FsError(
            f"{target.display} exists already and was not read; read it first",
            code="FS_NOT_OBSERVED",
        )
    if condition.version is not None and found is None:
        raise FsError(f"{target.display} does not exist any more", code="FS_STALE_VERSION")
    if (
        condition.version is not None
        and found is not None
        and version_of(found) != condition.version
    ):
        raise FsError(
            f"{target.display} was changed since it was read; read it again",
            code="FS_STALE_VERSION",
        )


def _folder(path: str, target: Target) -> int:
    """Open a resolved folder, making what is missing of it, and follow no link on the way.

    The path was resolved before. If a part of it is a link now, something swapped it meanwhile, and
    the write would land somewhere else.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open("/", flags)
    try:
        for part in path.split("/"):
            if not part:
                continue
            try:
                inner = os.open(part, flags, dir_fd=handle)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
                inner = os.open(part, flags, dir_fd=handle)
            os.close(handle)
            handle = inner
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.realpath(path) != path:
            told = f"a folder of {target.display} became a link meanwhile; nothing was written"
            raise FsError(told, code="FS_SANDBOX_DENIED") from None
        refuse(error, target)
    return handle


def _replace(target: Target, data: bytes, seen: os.stat_result | None) -> os.stat_result:
    """Put `data` there whole: a new file beside it, synced, moved over it."""
    path, name = os.path.split(target.path)
    folder = _folder(path, target)
    try:
        return _replace_in(folder, name, target, data, seen)
    finally:
        with suppress(OSError):  # the file is complete; some file systems do not sync directories
            os.fsync(folder)
        os.close(folder)


def _replace_in(
    folder: int, name: str, target: Target, data: bytes, seen: os.stat_result | None
) -> os.stat_result:
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    beside = f".{digest}.{os.urandom(6).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(beside, flags, 0o666, dir_fd=folder)
    except OSError as error:
        refuse(error, target)
    try:
        try:
            _fill(handle, data, seen)
        finally:
            os.close(handle)
        now = _current(target)
        if (version_of(now) if now else None) != (version_of(seen) if seen else None):
            raise FsError(  # noqa: TRY301 - undone below like any other failure
                f"{target.display} was changed by something else meanwhile; nothing was written; "
                "read it again",
                code="FS_STALE_VERSION",
            )
        if seen is None:  # fails if it appeared meanwhile
            os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(beside, dir_fd=folder)
        else:
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        _discard(beside, folder)
        told = f"{target.display} appeared meanwhile; nothing was written; read it first"
        raise FsError(told, code="FS_STALE_VERSION") from None
    except OSError as error:
        _discard(beside, folder)
        refuse(error, target)
    except BaseException:
        _discard(beside, folder)
        raise


def _discard(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _fill(handle: int, data: bytes, seen: os.stat_result | None) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    if seen is not None:
        with suppress(PermissionError):  # only the owner's own groups may be given
            os.fchown(handle, seen.st_uid, seen.st_gid)
        os.fchmod(handle, modes.S_IMODE(seen.st_mode))
    os.fsync(handle)


def _whole(target: Target) -> tuple[bytes, os.stat_result]:
    handle, found = open_regular(target)
    try:
        if found.st_size > EDIT_MAX:
            raise FsError(
                f"{target.display} has {found.st_size} bytes, more than {EDIT_MAX} that can be "
                "edited here; use bash, as in `sed -i`",
                code="FS_TOO_LARGE",
            )
        return b"".join(chunks_of(handle, target)), found
    finally:
        os.close(handle)


def write_file(target: Target, text: str, condition: Condition | None) -> Written:
    """Write a whole file; an existing one keeps its encoding, mark and CRLF line ends."""
    seen = _current(target)
    _check(seen, condition, target)
    form = Form(codec="utf-8")
    if seen is not None and seen.st_size <= EDIT_MAX:
        with suppress(FsError):  # what was no text has no form to keep
            form = decode(_whole(target)[0], target.display)[1]
    kept: list[str] = []
    if form.crlf and "\r" not in text:
        kept.append("CRLF line ends")
        text = newlines(text, form)
    if form.mark:
        kept.append(f"{form.codec} with byte order mark")
    data = encode(text, form, target.display)
    made = _replace(target, data, seen)
    return Written(version=version_of(made), created=seen is None, size=len(data), kept=tuple(kept))


def edit_file(
    target: Target, old: str, new: str, *, every: bool, condition: Condition | None
) -> Edited:
    """Change a file in place: read, check, match, replace, as one step for this process."""
    seen = _current(target)
    if seen is None:
        raise FsError(
            f"{target.display} does not exist; create it with write_file", code="FS_NOT_FOUND"
        )
    _check(seen, condition, target)
    data, opened = _whole(target)
    if version_of(opened) != version_of(seen):
        raise FsError(f"{target.display} was just changed; read it again", code="FS_STALE_VERSION")
    text, form = decode(data, target.display)
    done = replace(text, old, new, every=every, form=form, display=target.display)
    made = _replace(target, encode(done.text, form, target.display), seen)
    return Edited(version=version_of(made), replaced=done.count, line=done.line)
