"""The tools that only look: `read_file`, `glob` and `grep`. They may overlap.

What comes in: paths and patterns from a model. What goes out: numbered lines, paths and matches,
always within a bound, with the exact totals and what to do to see the rest.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import attrs

from dsh.hooks import frozen
from dsh.seams.fs import Entry, FileSystem, FsError, Query, Target
from dsh.tools import Tool, define_tool, param, visible, visible_name
from dsh_plugins.fs.subjects import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.hooks.live import ToolRun
    from dsh_plugins.fs.intents import Intents

__all__ = ["glob_tool", "grep_tool", "read_tool"]

LINES_DEFAULT: Final = 2_000
LINE_MAX: Final = 2_000
PAGE_BYTES: Final = 50_000
FOUND_DEFAULT: Final = 200
FOUND_MAX: Final = 2_000
OUTPUT_BYTES: Final = 40_000
ALTERNATIVES_MAX: Final = 64


# --- read_file -----------------------------------------------------------------------------------


@frozen
class ReadArgs:
    """The arguments of `read_file`."""

    path: str = attrs.field(metadata=param("The file, absolute or relative to the workspace."))
    offset: int = attrs.field(default=1, metadata=param("The first line to read, from 1.", ge=1))
    limit: int = attrs.field(
        default=LINES_DEFAULT,
        metadata=param("How many lines to read.", ge=1, le=LINES_DEFAULT),
    )


def read_tool(files: FileSystem, intents: Intents) -> Tool:
    """`read_file` over a file system."""

    async def execute(args: ReadArgs, run: ToolRun) -> str:
        target = await files.locate(args.path, run.cwd)
        try:
            page = await files.read(
                target,
                start=args.offset,
                count=args.limit,
                line_max=LINE_MAX,
                byte_max=PAGE_BYTES,
            )
        except FsError as error:
            if error.code == "FS_NOT_FOUND":
                intents.observed(target, None, run)
                raise FsError(await _near(files, target, run.cwd), code="FS_NOT_FOUND") from None
            raise
        intents.observed(target, page.version, run)
        last = page.start + len(page.lines) - 1
        if page.total_lines == 0:
            return f"[{target.display} is empty]"
        if not page.lines:
            told = f"{target.display} has {page.total_lines} lines; there is no line {args.offset}"
            raise FsError(told, code="FS_NOT_FOUND")
        cut = dict(page.cut)
        width = len(str(last))
        shown = [
            f"{number:>{width}}\t{line}"
            + (f" [… cut: {cut[number]} characters]" if number in cut else "")
            for number, line in enumerate(page.lines, page.start)
        ]
        facts = [f"lines {page.start}-{last} of {page.total_lines}, {page.total_bytes} bytes"]
        if last < page.total_lines:
            facts.append(f"continue with offset={last + 1}")
        if cut:
            facts.append(
                "for the rest of a long line use bash, as in `sed -n 1p F | cut -c 2000-4000`"
            )
        if page.encoding == "bytes":
            facts.append("not UTF-8: odd bytes stand as \\xNN here, and are kept by edits")
        elif page.encoding != "utf-8":
            facts.append(page.encoding)
        if page.crlf:
            facts.append("CRLF line ends, kept by edits")
        return "\n".join([*shown, f"[{'; '.join(facts)}]"])

    return define_tool(
        name="read_file",
        description=(
            "Read a text file of the workspace: numbered lines, at most "
            f"{LINES_DEFAULT} at once. The numbers are not part of the file."
        ),
        args=ReadArgs,
        output=str,
        execute=execute,
        execution_mode="parallel",
        subject=path_of(files),
    )


async def _near(files: FileSystem, target: Target, cwd: str) -> str:
    """The text for a file that is not there: what its folder has of similar name."""
    folder, _, name = target.path.rpartition("/")
    told = f"{target.display} does not exist"
    try:
        parent = await files.locate(folder or "/", cwd)
        names = [entry.path.rstrip("/") for entry in await files.list(parent)]
    except FsError:
        return f"{told}, nor does its folder; list files with glob"
    near = get_close_matches(name, names, n=3)
    shown = ", ".join(visible_name(one) for one in near)
    return f"{told}; similar names there: {shown}" if near else f"{told}; list files with glob"


# --- glob ----------------------------------------------------------------------------------------


def alternatives(pattern: str) -> list[str]:
    """`*.{ts,tsx}` as its patterns. Nested braces are expanded too, up to a bound."""
    waiting, done = [pattern], list[str]()
    while waiting and len(done) + len(waiting) <= ALTERNATIVES_MAX:
        one = waiting.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if found is None:
            done.append(one)
        else:
            waiting += [one[: found.start()] + p + one[found.end() :] for p in found[1].split(",")]
    return done + waiting


def chooser(pattern: str) -> Callable[[str], bool]:
    """Whether a path below the root matches: as one line of an ignore file would.

    Raises FsError for a pattern that is none.
    """
    lines: list[str] = []
    for one in alternatives(pattern):
        plain = one.removeprefix("./")
        lines.append(f"\\{plain}" if plain.startswith(("!", "#")) else plain)
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - most runs never walk a folder

    try:
        return GitIgnoreSpec.from_lines(lines).match_file
    except ValueError as error:
        raise FsError(f"{pattern!r} is no pattern: {error}", code="FS_ABORTED") from None


def _stopped(files: Sequence[Entry]) -> str:
    return f"the walk stopped after {len(files)} files; give a narrower path"


def bounded(lines: Sequence[str]) -> tuple[str, int]:
    """As many lines as fit the output, joined, and how many those are."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > OUTPUT_BYTES:
            return "\n".join(lines[:count]), count
    return "\n".join(lines), len(lines)


@frozen
class GlobArgs:
    """The arguments of `glob`."""

    pattern: str = attrs.field(
        metadata=param(
            "Which files, as in an ignore file: `*.py` at any depth, `/src/*.py`, `d/*.{md,txt}`.",
            min_length=1,
        )
    )
    path: str = attrs.field(
        default=".", metadata=param("The folder to look in; the workspace if absent.")
    )
    limit: int = attrs.field(
        default=FOUND_DEFAULT, metadata=param("How many paths to list.", ge=1, le=FOUND_MAX)
    )
    include_ignored: bool = attrs.field(
        default=False, metadata=param("List also what ignore files exclude.")
    )


def glob_tool(files: FileSystem) -> Tool:
    """`glob` over a file system."""

    async def execute(args: GlobArgs, run: ToolRun) -> str:
        root = await files.locate(args.path, run.cwd)
        walk = await files.walk(root, workspace=run.cwd, ignored=args.include_ignored)
        wanted = chooser(args.pattern)
        found = [entry for entry in walk.files if wanted(entry.path)]
        shown, count = bounded([visible_name(entry.path) for entry in found[: args.limit]])
        under = "" if root.display == "." else f" under {root.display}"
        facts = [f"{len(found)} files{under}"]
        if count < len(found):
            facts.append(f"the first {count} are shown; narrow the pattern or raise the limit")
        if not walk.complete:
            facts.append(_stopped(walk.files))
        return "\n".join([shown, f"[{'; '.join(facts)}]"] if shown else [f"[{'; '.join(facts)}]"])

    return define_tool(
        name="glob",
        description=(
            "List files by pattern, sorted by path. Files excluded by .gitignore or .ignore, and "
            "the folder .git, are left out. Bytes of a name that cannot be shown stand as \\xNN."
        ),
        args=GlobArgs,
        output=str,
        execute=execute,
        execution_mode="parallel",
        subject=path_of(files),
    )


# --- grep ----------------------------------------------------------------------------------------


@frozen
class GrepArgs:
    """The arguments of `grep`."""

    pattern: str = attrs.field(
        metadata=param("A regular expression (Python), searched line by line.", min_length=1)
    )
    path: str = attrs.field(
        default=".", metadata=param("The folder or file to look in; the workspace if absent.")
    )
    glob: str | None = attrs.field(
        default=None, metadata=param("Only files that match this pattern, as in the tool glob.")
    )
    ignore_case: bool = attrs.field(
        default=False, metadata=param("Do not distinguish upper and lower case.")
    )
    context: int = attrs.field(
        default=0, metadata=param("Lines to show before and after each match.", ge=0, le=20)
    )
    limit: int = attrs.field(
        default=FOUND_DEFAULT, metadata=param("How many matches to show.", ge=1, le=FOUND_MAX)
    )
    include_ignored: bool = attrs.field(
        default=False, metadata=param("Search also what ignore files exclude.")
    )


def grep_tool(files: FileSystem) -> Tool:
    """`grep` over a file system."""

    async def execute(args: GrepArgs, run: ToolRun) -> str:
        root = await files.locate(args.path, run.cwd)
        root, entries, stopped = await _searched(files, root, args, run.cwd)
        query = Query(
            pattern=args.pattern,
            ignore_case=args.ignore_case,
            context=args.context,
            limit=args.limit,
        )
        found = await files.search(root, entries, query)
        lines = [
            f"{visible_name(entries[index].path)}{':' if hit else '-'}{number}"
            f"{':' if hit else '-'} {visible(text)}"
            for index, number, text, hit in found.lines
        ]
        shown, count = bounded(lines)
        hits = sum(1 for row in found.lines[:count] if row[3])
        facts = [f"{found.matches} matches in {found.files} of {len(entries)} files"]
        if hits < found.matches:
            facts.append(f"the first {hits} are shown; narrow the search or raise the limit")
        if found.skipped:
            facts.append(f"{found.skipped} files are not text")
        if stopped is not None:
            facts.append(stopped)
        return "\n".join([shown, f"[{'; '.join(facts)}]"] if shown else [f"[{'; '.join(facts)}]"])

    return define_tool(
        name="grep",
        description=(
            "Search files with a regular expression: `path:line: text`, sorted by path. Files "
            "excluded by .gitignore or .ignore, the folder .git, and what is not text are left out."
        ),
        args=GrepArgs,
        output=str,
        execute=execute,
        execution_mode="parallel",
        subject=path_of(files),
    )


async def _searched(
    files: FileSystem, root: Target, args: GrepArgs, cwd: str
) -> tuple[Target, Sequence[Entry], str | None]:
    """The one file that `path` names, or the chosen ones below it, and if the walk stopped that."""
    found = await files.stat(root)
    if found is None:
        raise FsError(f"{root.display} does not exist; list files with glob", code="FS_NOT_FOUND")
    if found.kind == "other":
        told = f"{root.display} is neither a file nor a folder"
        raise FsError(told, code="FS_NOT_REGULAR_FILE")
    if found.kind == "file":
        folder, _, name = root.path.rpartition("/")
        parent = await files.locate(folder or "/", cwd)
        return parent, (Entry(path=name, size=found.size),), None
    walk = await files.walk(root, workspace=cwd, ignored=args.include_ignored)
    stopped = None if walk.complete else _stopped(walk.files)
    if args.glob is None:
        return root, walk.files, stopped
    wanted = chooser(args.glob)
    return root, [entry for entry in walk.files if wanted(entry.path)], stopped
