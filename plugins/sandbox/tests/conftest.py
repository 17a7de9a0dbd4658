"""A workspace beside an outside that must stay as it is, and the tools that try to get there."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import attrs
import pytest

from dsh import Context, plugin
from dsh.boot import ProcessEnviron
from dsh.seams.environ import ENVIRON
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh_plugins.fs import fs
from dsh_plugins.fs.catalog import FsConfig
from dsh_plugins.fs_local import fs_local
from dsh_plugins.sandbox import sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from dsh_plugins.sandbox.catalog import SandboxConfig


@attrs.define
class Place:
    """A workspace, an outside with one file, and calls of tools in the workspace."""

    room: ToolRoom
    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    async def call(self, tool: str, **arguments: object) -> Committed:
        given = self.room.call(tool, arguments)
        finished = await self.room.tools.execute(attrs.evolve(given, cwd=str(self.workspace)))
        return Committed("c1", 0, finished.result, finished.decided_by)

    async def write(self, path: str) -> Committed:
        return await self.call("write_file", path=path, content="escaped\n")

    async def edit(self, path: str) -> Committed:
        return await self.call("edit_file", path=path, old_string="safe", new_string="escaped")

    def untouched(self) -> bool:
        """Whether nothing outside was made or changed."""
        names = sorted(path.name for path in self.outside.rglob("*"))
        found = (self.outside / "f").stat()
        text = (self.outside / "f").read_text(encoding="utf-8")
        same = (names, text, found.st_mtime_ns) == (["f"], "safe\n", 0)
        return same and not list(self.folder.glob("*escaped*"))

    async def confined(self, config: SandboxConfig, path: str) -> None:
        """Mount the sandbox, where programs are found in `path`."""

        @plugin(name="variables", provides=(ENVIRON,))
        async def variables(ctx: Context) -> None:
            ctx.provide(ENVIRON, ProcessEnviron({"PATH": path}))

        await self.room.kernel.mount(variables).ready()
        await self.room.kernel.mount(sandbox, config).ready()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is not below /tmp, of which a sandbox has one of its own."""
    with TemporaryDirectory(dir="/var/tmp", prefix="dsh-sandbox-") as made:
        yield Path(made).resolve()


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[Place]:
    """The place with the file tools; the sandbox is mounted by the test."""
    async with open_tool_room() as room:
        made = Place(room, folder)
        made.workspace.mkdir()
        made.outside.mkdir()
        (made.outside / "f").write_text("safe\n", encoding="utf-8")
        os.utime(made.outside / "f", ns=(0, 0))
        await room.kernel.mount(fs_local).ready()
        await room.kernel.mount(fs, FsConfig(observe=False)).ready()
        yield made
