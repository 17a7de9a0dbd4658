"""Escapes tried against the file tools under `sandbox`: paths, links, look-alikes and races."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import trio

from dsh import Next
from dsh import catalog as ev
from dsh_plugins.sandbox.catalog import SandboxConfig

if TYPE_CHECKING:
    from plugins.sandbox.tests.conftest import Place


@pytest.fixture
async def guarded(place: Place) -> Place:
    """The place under the sandbox; without `bwrap`, which is about processes."""
    await place.confined(SandboxConfig(), "/nowhere")
    return place


async def test_what_is_inside_works(guarded: Place) -> None:
    assert (await guarded.write("a/b/c")).code is None
    assert (await guarded.write(str(guarded.workspace / "d"))).code is None
    assert (await guarded.write("a/../e")).code is None


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
async def test_no_path_leads_outside(guarded: Place, path: str) -> None:
    for name, target in (
        ("link-file", guarded.outside / "f"),
        ("link-folder", guarded.outside),
        ("link-chain", guarded.workspace / "link-folder"),
        ("link-dangling", guarded.outside / "escaped"),
    ):
        (guarded.workspace / name).symlink_to(target)
    path = path.format(
        outside=guarded.outside, workspace=guarded.workspace, upper=str(guarded.workspace).upper()
    )
    for done in (await guarded.write(path), await guarded.edit(path)):
        print(f"{path}: refused by {done.decided_by}")  # noqa: T201 - the list, for `pytest -s`
        assert done.decided_by == "sandbox"
        assert "is outside of the workspace" in done.text
    assert guarded.untouched()
    assert not await trio.Path("/dev/shm/escaped").exists()


#: Two-dot leader, fullwidth full stops, division slashes, an escape of another language.
LOOK_ALIKES = (
    "\u2025/escaped",
    "\uff0e\uff0e/outside/f",
    "\u2215etc\u2215escaped",
    "%2e%2e/escaped",
)


@pytest.mark.parametrize("path", LOOK_ALIKES)
async def test_look_alikes_are_names_in_the_workspace(guarded: Place, path: str) -> None:
    assert (await guarded.write(path)).code is None
    assert (guarded.workspace / path).read_text(encoding="utf-8") == "escaped\n"
    assert guarded.untouched()


async def test_a_hard_link_from_outside_is_not_written_through(guarded: Place) -> None:
    os.link(guarded.outside / "f", guarded.workspace / "f")
    for done in (await guarded.write("f"), await guarded.edit("f")):
        assert done.code == "FS_NOT_REGULAR_FILE"
    assert guarded.untouched()


async def test_pipes_and_devices_in_the_workspace_are_refused(guarded: Place) -> None:
    os.mkfifo(guarded.workspace / "pipe")
    for done in (await guarded.write("pipe"), await guarded.edit("pipe")):
        assert done.code == "FS_NOT_REGULAR_FILE"


@pytest.mark.parametrize("deep", [False, True])
async def test_a_folder_swapped_for_a_link_after_the_check_is_refused(
    guarded: Place, *, deep: bool
) -> None:
    folder = guarded.workspace / "a"
    (folder / "b").mkdir(parents=True)
    (guarded.outside / "b").mkdir()
    ctx = await guarded.room.plugin("racer")

    @ctx.on(ev.fs.WRITE_INTENT)
    async def swap(
        _event: ev.fs.WriteIntent, call_next: Next[ev.fs.WriteIntentDecision]
    ) -> ev.fs.WriteIntentDecision:
        folder.rename(guarded.workspace / "moved")
        folder.symlink_to(guarded.outside)
        return await call_next()

    done = await guarded.write("a/b/escaped" if deep else "a/escaped")
    assert done.code == "FS_SANDBOX_DENIED"
    assert list(guarded.outside.rglob("escaped")) == []
