"""Escapes tried against the file tools under `sandbox`; and how processes are started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.boot import ProcessEnviron
from dsh.errors import ToolError
from dsh.seams.environ import ENVIRON
from dsh.seams.sandbox import SANDBOX
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh_plugins.fs import fs
from dsh_plugins.fs.catalog import FsConfig
from dsh_plugins.fs_local import fs_local
from dsh_plugins.sandbox import sandbox
from dsh_plugins.sandbox.catalog import SandboxConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@attrs.define
class Place:
    """A workspace beside an outside that must stay as it is."""

    room: ToolRoom
    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    async def write(self, path: str) -> Committed:
        given = self.room.call("write_file", {"path": path, "content": "escaped\n"})
        finished = await self.room.tools.execute(attrs.evolve(given, cwd=str(self.workspace)))
        return Committed("c1", 0, finished.result, finished.decided_by)

    async def edit(self, path: str) -> Committed:
        arguments = {"path": path, "old_string": "safe", "new_string": "escaped"}
        given = self.room.call("edit_file", arguments)
        finished = await self.room.tools.execute(attrs.evolve(given, cwd=str(self.workspace)))
        return Committed("c1", 0, finished.result, finished.decided_by)

    def untouched(self) -> bool:
        """Whether nothing outside was made or changed."""
        names = sorted(path.name for path in self.outside.rglob("*"))
        text = (self.outside / "f").read_text(encoding="utf-8")
        return (names, text) == (["f"], "safe\n") and not list(self.folder.glob("*escaped*"))


async def mounted(room: ToolRoom, config: SandboxConfig, path: str) -> None:
    @plugin(name="variables", provides=(ENVIRON,))
    async def variables(ctx: Context) -> None:
        ctx.provide(ENVIRON, ProcessEnviron({"PATH": path}))

    await room.kernel.mount(variables).ready()
    await room.kernel.mount(sandbox, config).ready()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with open_tool_room() as room:
        made = Place(room, tmp_path)
        made.workspace.mkdir()
        made.outside.mkdir()
        (made.outside / "f").write_text("safe\n", encoding="utf-8")
        await room.kernel.mount(fs_local).ready()
        await room.kernel.mount(fs, FsConfig(observe=False)).ready()
        await mounted(room, SandboxConfig(), "/nowhere")
        yield made


async def test_what_is_inside_works(place: Place) -> None:
    assert (await place.write("a/b/c")).code is None
    assert (await place.write(str(place.workspace / "d"))).code is None
    assert (await place.write("a/../e")).code is None


@pytest.mark.parametrize(
    "path",
    [
        "../outside/escaped", "../outside/f", "a/../../outside/f", "{outside}/escaped",
        "{workspace}/../outside/f", "{workspace}evil/escaped", "/proc/self/root{outside}/escaped",
        "/proc/self/cwd/../../../../../..{outside}/escaped", "/dev/shm/escaped",
        "/tmp/../{outside}/f",
        "link-file", "link-folder/escaped", "link-folder/f", "link-chain/f", "link-dangling",
        "{upper}/escaped", ".//..//outside//f",
    ],
)  # fmt: skip
async def test_no_path_leads_outside(place: Place, path: str) -> None:
    for name, target in (
        ("link-file", place.outside / "f"),
        ("link-folder", place.outside),
        ("link-chain", place.workspace / "link-folder"),
        ("link-dangling", place.outside / "escaped"),
    ):
        (place.workspace / name).symlink_to(target)
    path = path.format(
        outside=place.outside, workspace=place.workspace, upper=str(place.workspace).upper()
    )
    for done in (await place.write(path), await place.edit(path)):
        assert done.decided_by == "sandbox"
        assert "is outside of the workspace" in done.text
    assert place.untouched()
    assert not await trio.Path("/dev/shm/escaped").exists()


#: Two-dot leader, fullwidth full stops, division slashes, an escape of another language.
LOOK_ALIKES = (
    "\u2025/escaped",
    "\uff0e\uff0e/outside/f",
    "\u2215etc\u2215escaped",
    "%2e%2e/escaped",
)


@pytest.mark.parametrize("path", LOOK_ALIKES)
async def test_look_alikes_are_names_in_the_workspace(place: Place, path: str) -> None:
    assert (await place.write(path)).code is None
    assert (place.workspace / path).read_text(encoding="utf-8") == "escaped\n"
    assert place.untouched()


async def test_a_hard_link_from_outside_is_not_written_through(place: Place) -> None:
    os.link(place.outside / "f", place.workspace / "f")
    for done in (await place.write("f"), await place.edit("f")):
        assert done.code == "FS_NOT_REGULAR_FILE"
    assert place.untouched()


async def test_pipes_and_devices_in_the_workspace_are_refused(place: Place) -> None:
    os.mkfifo(place.workspace / "pipe")
    for done in (await place.write("pipe"), await place.edit("pipe")):
        assert done.code == "FS_NOT_REGULAR_FILE"


@pytest.mark.parametrize("deep", [False, True])
async def test_a_folder_swapped_for_a_link_after_the_check_is_refused(
    place: Place, *, deep: bool
) -> None:
    folder = place.workspace / "a"
    (folder / "b").mkdir(parents=True)
    (place.outside / "b").mkdir()
    ctx = await place.room.plugin("racer")

    @ctx.on(ev.fs.WRITE_INTENT)
    async def swap(
        _event: ev.fs.WriteIntent, call_next: Next[ev.fs.WriteIntentDecision]
    ) -> ev.fs.WriteIntentDecision:
        folder.rename(place.workspace / "moved")
        folder.symlink_to(place.outside)
        return await call_next()

    done = await place.write("a/b/escaped" if deep else "a/escaped")
    assert done.code == "FS_SANDBOX_DENIED"
    assert list(place.outside.rglob("escaped")) == []


async def test_without_bwrap_it_says_so_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_tool_room() as room:
        await mounted(room, SandboxConfig(), str(tmp_path))
        assert "NOT ENFORCED" in caplog.text
        assert "they can write everywhere you can" in caplog.text
        found = room.kernel.root.require(SANDBOX)
        assert found.confined(["bash", "-c", "ls"], "/work") == ("bash", "-c", "ls")


async def test_without_bwrap_and_required_nothing_runs(tmp_path: Path) -> None:
    async with open_tool_room() as room:
        await mounted(room, SandboxConfig(required=True), str(tmp_path))
        with pytest.raises(ToolError, match="bwrap was not found"):
            room.kernel.root.require(SANDBOX).confined(["ls"], "/work")


async def test_with_bwrap_the_workspace_alone_is_writable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    async with open_tool_room() as room:
        await mounted(room, SandboxConfig(network=False), str(tmp_path))
        given = room.kernel.root.require(SANDBOX).confined(["ls", "-l"], str(tmp_path))
    text = " ".join(given)
    assert text.startswith(f"{program} --ro-bind / / ")
    assert f"--bind {tmp_path} {tmp_path} --chdir {tmp_path} --unshare-net" in text
    assert given[-3:] == ("--", "ls", "-l")
    assert "NOT ENFORCED" not in caplog.text
