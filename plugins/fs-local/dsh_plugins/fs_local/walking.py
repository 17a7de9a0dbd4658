"""Walks of a directory tree that honour ignore files. Blocking; runs in threads.

What comes in: a root, and the workspace it belongs to. What goes out: its regular files by path, in
code point order, within bounds. Links to directories are not followed, so a walk ends; `.git` is
never entered; what cannot be read is passed over.
"""

# Plain strings, as the system gives them: also names that are no UTF-8.
# ruff: noqa: PTH118
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import trio

from dsh.hooks import frozen
from dsh.seams.fs import Entry, FsError, Target, Walk
from dsh_plugins.fs_local.disk import refuse
from dsh_plugins.fs_local.names import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pathspec import GitIgnoreSpec

__all__ = ["list_folder", "walk_files"]

FILES_MAX: Final = 100_000
IGNORE_FILES: Final = (".gitignore", ".ignore")
IGNORE_FILE_MAX: Final = 1_048_576


@frozen(slots=True)
class _Rules:
    """One ignore file. `base` is its folder's path relative to the walk's root, or above it."""

    folder: str
    spec: GitIgnoreSpec


def _spec_of(lines: Sequence[str]) -> GitIgnoreSpec:
    """Patterns as in an ignore file; lines that are no pattern are passed over."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - most runs never walk a folder

    good: list[str] = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        good.append(line)
    return GitIgnoreSpec.from_lines(good)


def _rules_in(folder: str) -> Iterator[_Rules]:
    for name in IGNORE_FILES:
        try:
            path = os.path.join(folder, name)
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            data = os.read(handle, IGNORE_FILE_MAX)
        except OSError:
            continue
        finally:
            os.close(handle)
        yield _Rules(folder, _spec_of(os.fsdecode(data).splitlines()))


def _ignored(path: str, chain: Sequence[_Rules], *, folder: bool) -> bool:
    """Whether the nearest ignore file that says anything about `path` says: ignored."""
    for rules in reversed(chain):
        relative = os.path.relpath(path, rules.folder) + ("/" if folder else "")
        said = rules.spec.check_file(relative).include
        if said is not None:
            return said
    return False


def _above(root: str, workspace: str) -> list[_Rules]:
    """The ignore files of the workspace and of the folders between it and the root."""
    if not within(root, workspace) or root == workspace:
        return []
    chain: list[_Rules] = []
    folder = workspace
    for part in os.path.relpath(root, workspace).split("/"):
        chain.extend(_rules_in(folder))
        folder = os.path.join(folder, part)
    # Whoever asks for an ignored folder by its name wants to see what is in it.
    return [] if _ignored(root, chain, folder=True) else chain


def walk_files(target: Target, workspace: str, *, ignored: bool) -> Walk:
    """All regular files below the target, and whether the bound was not reached."""
    root = target.path
    try:
        os.scandir(root).close()
    except OSError as error:
        refuse(error, target)
    found: list[Entry] = []
    chain = [] if ignored else _above(root, os.path.realpath(workspace))
    waiting: list[tuple[str, list[_Rules]]] = [(root, chain)]
    while waiting:
        trio.from_thread.check_cancelled()
        folder, rules = waiting.pop()
        if not ignored:
            rules = [*rules, *_rules_in(folder)]
        for item in _entries(folder):
            is_folder = item.is_dir(follow_symlinks=False)
            if item.name == ".git" or (rules and _ignored(item.path, rules, folder=is_folder)):
                continue
            if is_folder:
                waiting.append((item.path, rules))
            elif item.is_file():
                if len(found) >= FILES_MAX:
                    return _sorted(found, complete=False)
                found.append(Entry(path=os.path.relpath(item.path, root), size=_size(item)))
    return _sorted(found, complete=True)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return list(listing)
    except OSError:
        return []  # it went away, or is not ours to read


def _size(item: os.DirEntry[str]) -> int:
    try:
        return item.stat().st_size
    except OSError:
        return 0


def _sorted(found: list[Entry], *, complete: bool) -> Walk:
    return Walk(files=tuple(sorted(found, key=lambda entry: entry.path)), complete=complete)


def list_folder(target: Target) -> tuple[Entry, ...]:
    """What a directory holds, by name."""
    try:
        with os.scandir(target.path) as listing:
            items = list(listing)
    except NotADirectoryError:
        text = f"{target.display} is not a directory"
        raise FsError(text, code="FS_NOT_DIRECTORY") from None
    except OSError as error:
        refuse(error, target)
    entries = [
        Entry(path=f"{item.name}/", size=0)
        if item.is_dir(follow_symlinks=False)
        else Entry(path=item.name, size=_size(item))
        for item in items
    ]
    return tuple(sorted(entries, key=lambda entry: entry.path))
