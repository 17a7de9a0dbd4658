"""The tools that change files: `write_file` and `edit_file`. They run alone.

What comes in: whole texts and literal replacements from a model. What goes out: one line that says
what was done. Each asks the matching intent first, and tells what it left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from dsh.hooks import frozen
from dsh.tools import Tool, define_tool, param
from dsh_plugins.fs.subjects import path_of

if TYPE_CHECKING:
    from dsh.hooks.live import ToolRun
    from dsh.seams.fs import FileSystem
    from dsh_plugins.fs.intents import Intents

__all__ = ["edit_tool", "write_tool"]


@frozen
class WriteArgs:
    """The arguments of `write_file`."""

    path: str = attrs.field(metadata=param("The file, absolute or relative to the workspace."))
    content: str = attrs.field(metadata=param("The whole new content."))


def write_tool(files: FileSystem, intents: Intents) -> Tool:
    """`write_file` over a file system."""

    async def execute(args: WriteArgs, run: ToolRun) -> str:
        target = await files.locate(args.path, run.cwd)
        condition = await intents.before_write(target, run)
        done = await files.write(target, args.content, condition)
        intents.observed(target, done.version, run)
        kept = f"; kept: {', '.join(done.kept)}" if done.kept else ""
        verb = "created" if done.created else "replaced"
        return f"{verb} {target.display} ({done.size} bytes{kept})"

    return define_tool(
        name="write_file",
        description=(
            "Write a whole text file, and the folders it needs. An existing file is replaced at "
            "once and keeps its encoding, line ends and mode. To change a part, use edit_file."
        ),
        args=WriteArgs,
        output=str,
        execute=execute,
        subject=path_of(files),
    )


@frozen
class EditArgs:
    """The arguments of `edit_file`."""

    path: str = attrs.field(metadata=param("The file, absolute or relative to the workspace."))
    old_string: str = attrs.field(
        metadata=param("The text to replace, exactly as it stands in the file.", min_length=1)
    )
    new_string: str = attrs.field(metadata=param("The text to put in its place."))
    replace_all: bool = attrs.field(
        default=False, metadata=param("Replace every occurrence, not only a unique one.")
    )


def edit_tool(files: FileSystem, intents: Intents) -> Tool:
    """`edit_file` over a file system."""

    async def execute(args: EditArgs, run: ToolRun) -> str:
        target = await files.locate(args.path, run.cwd)
        condition = await intents.before_edit(target, run)
        done = await files.edit(
            target, args.old_string, args.new_string, every=args.replace_all, condition=condition
        )
        intents.observed(target, done.version, run)
        times = "1 place" if done.replaced == 1 else f"{done.replaced} places"
        return f"edited {target.display} ({times}, the first in line {done.line})"

    return define_tool(
        name="edit_file",
        description=(
            "Replace a text in a file, literally. It must stand there exactly once, unless "
            "replace_all is set. Line ends and encoding of the file are kept."
        ),
        args=EditArgs,
        output=str,
        execute=execute,
        subject=path_of(files),
    )
