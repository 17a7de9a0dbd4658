"""A tool room with the file tools, and an empty workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh_plugins.fs import fs
from dsh_plugins.fs.catalog import FsConfig
from dsh_plugins.fs_local import fs_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@attrs.define
class Desk:
    """Calls file tools in one workspace."""

    room: ToolRoom
    path: Path

    async def call(self, name: str, **arguments: object) -> Committed:
        given = attrs.evolve(self.room.call(name, arguments), cwd=str(self.path))
        finished = await self.room.tools.execute(given)
        return Committed("c1", 0, finished.result, finished.decided_by)

    async def text(self, name: str, **arguments: object) -> str:
        return (await self.call(name, **arguments)).text


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_tool_room() as room:
        await room.kernel.mount(fs_local).ready()
        # The tools themselves; what a session must have read first is in test_fs_observation.
        await room.kernel.mount(fs, FsConfig(observe=False)).ready()
        room.host.cwd = str(workspace)
        yield Desk(room, workspace)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Desk]:
    """The same, with the observation policy."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_tool_room() as room:
        await room.kernel.mount(fs_local).ready()
        await room.kernel.mount(fs).ready()
        room.host.cwd = str(workspace)
        yield Desk(room, workspace)
