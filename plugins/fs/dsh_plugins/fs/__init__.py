"""The plugin `fs`: file tools for a coding agent, over whoever provides the file seam.

What comes in: calls of `read_file`, `write_file`, `edit_file`, `glob` and `grep`. What goes out:
text within bounds, and what the provider made of the files. It opens none itself; which paths may
be touched is the permissions' business.
"""

from __future__ import annotations

from dsh import Context, plugin
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.seams.fs import FS, FileSystem
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.fs.catalog import FsConfig
from dsh_plugins.fs.intents import Intents
from dsh_plugins.fs.observation import guard_by_observation
from dsh_plugins.fs.reading import glob_tool, grep_tool, read_tool
from dsh_plugins.fs.writing import edit_tool, write_tool

__all__ = ["fs"]


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)
    files: FileSystem = required(FS)


@plugin(name="fs", config=FsConfig, deps=_Deps)
async def fs(ctx: Context, config: FsConfig, deps: _Deps) -> None:
    """Register the five tools over the provider; another provider, and they are registered anew."""
    if config.observe:
        guard_by_observation(ctx)
    files, intents = deps.files, Intents(ctx)
    for tool in (
        read_tool(files, intents),
        write_tool(files, intents),
        edit_tool(files, intents),
        glob_tool(files),
        grep_tool(files),
    ):
        deps.tools.register(ctx, tool)
