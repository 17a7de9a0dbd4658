"""Mounting and unmounting each of our plugins, over and over: nothing is left behind.

`DSH_CYCLES=10000` (the session `cycles` of nox) does it ten thousand times each.
"""

from __future__ import annotations

import gc
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh.boot import Harness, ProcessEnviron, Row, open_harness, process_environ
from dsh.catalog import records
from dsh.kernel import FiberState
from dsh.prompt import PROMPT
from dsh.tools import TOOLS
from dsh.wire import FORMAT_VERSION, encode_header

if TYPE_CHECKING:
    from collections.abc import Mapping

CYCLES = int(process_environ().get("DSH_CYCLES") or 12)
ROOMS = ("sessions", "agents", "llm", "tools", "system-prompt", "loops", "agent-loop")
OURS = sorted(
    entry.name
    for entry in entry_points(group="dsh.plugins")
    if entry.module.startswith("dsh_plugins.")
)
#: What may not stand beside the plugin under test.
INSTEAD: Mapping[str, tuple[str, ...]] = {
    "session-sqlite": ("session-jsonl",),
    "shell-session": ("shell-local",),
}
#: What it cannot do without.
BESIDE: Mapping[str, tuple[str, ...]] = {
    "budget": ("token-meter",),
    "compaction": ("token-meter",),
}
#: A loop takes the place of the loop.
IDS: Mapping[str, str] = {"reflect-loop": "agent-loop"}


def rows_for(name: str, folder: Path) -> list[Row]:
    if name in ROOMS:
        return []
    header = records.SessionHeader(version=FORMAT_VERSION, id="recorded", created_at=0)
    (folder / "recorded.jsonl").write_bytes(encode_header(header) + b"\n")
    needed = {
        "replay": {"log": str(folder / "recorded.jsonl")},
        "session-sqlite": {"path": str(folder / "sessions.db")},
    }
    rows = [Row(name=one) for one in BESIDE.get(name, ())]
    rows += [Row(name=other, disabled=True) for other in INSTEAD.get(name, ())]
    return [*rows, Row(name=name, id=IDS.get(name, name), config=needed.get(name, {}))]


def census(harness: Harness) -> dict[str, object]:
    """Everything countable that a plugin could leave behind."""
    shared = harness.kernel.shared
    tools = harness.kernel.root.get(TOOLS)
    prompt = harness.kernel.root.get(PROMPT)
    return {
        "listeners": [(row.event, row.plugin, row.slot) for row in harness.kernel.listeners()],
        "fibers": sorted(fiber.path for fiber in shared.fibers),
        "services": shared.services.names(),
        "watched": shared.services.watched(),
        "drains": len(shared.drains),
        "scopes": len(shared.scopes),
        "effects": sorted(
            (fiber.path, effect.label)
            for fiber in shared.fibers
            for effect in fiber.activation.effects
        ),
        "tools": None if tools is None else sorted(tools.names()),
        "prompt": None if prompt is None else repr(sorted(prompt.__dict__)),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": sum(_counts(one.name) for one in threading.enumerate()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


async def cycle(harness: Harness, name: str) -> None:
    """Unmount the row for good, and mount it again."""
    one = harness.live.rows[name]
    await one.fiber.dispose()
    assert one.fiber.state is FiberState.DISPOSED
    harness.live.mount(one.row)
    await harness.kernel.settled()


@pytest.mark.holds("KN16")
@pytest.mark.parametrize("name", [*ROOMS, *OURS])
async def test_nothing_is_left_of_any_plugin_of_ours(tmp_path: Path, name: str) -> None:
    async with open_harness(
        profile="demo",
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        rows=rows_for(name, tmp_path),
    ) as harness:
        name = IDS.get(name, name)
        assert name in harness.rows, f"{name} is not mounted"
        for _ in range(3):  # caches fill
            await cycle(harness, name)
        await harness.kernel.settled()
        await wait_all_tasks_blocked(0.2)
        objects = counted()  # collects first: what earlier tests left must not be counted as ours
        before = census(harness)
        for _ in range(CYCLES):
            await cycle(harness, name)
        await wait_all_tasks_blocked()
        for _ in range(500):  # whoever works in a thread does not count as blocked
            if census(harness) == before:
                break
            await wait_all_tasks_blocked(0.01)
        assert census(harness) == before
        assert harness.rows[name].fiber.state is FiberState.ACTIVE
        # A leak of one object for each cycle would show; caches of fixed size do not.
        assert counted() - objects < max(CYCLES // 2, 250)


def counted() -> int:
    """All objects but deadlines: trio forgets those of ended scopes by the thousand."""
    gc.collect()
    return sum(not _is_deadline(one) for one in gc.get_objects())


def _is_deadline(one: object) -> bool:
    match one:
        case trio.CancelScope() | (float(), int(), trio.CancelScope()):
            return True
        case _:
            return False


def _counts(thread: str) -> bool:
    """Trio keeps idle workers for later, and the watch of an earlier kernel may be ending."""
    return "trio" not in thread.lower() and thread != "dsh block watch"
