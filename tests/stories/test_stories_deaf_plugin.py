"""A plugin that ignores cancellation: the run ends all the same, with its answer and its code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

PLUGIN = """
import trio
from dsh import Context, plugin

async def poll() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

@plugin(name="deaf")
async def deaf(ctx: Context) -> None:
    ctx.spawn(poll, label="polling")
"""


@pytest.mark.holds("KN35", "case-067")
async def test_a_run_ends_within_the_grace_and_names_who_ignores_cancellation(
    cli: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "installed"
    meta = folder / "deaf-1.0.dist-info"
    meta.mkdir(parents=True)
    (folder / "deaf_plugin.py").write_text(PLUGIN, encoding="utf-8")
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: deaf\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dsh.plugins]\ndeaf = deaf_plugin:deaf\n")
    (cli.workspace / "my.yml").write_text("- {name: deaf}\n", encoding="utf-8")
    begun = time.monotonic()
    path = f"{folder}:{cli.environment().get('PYTHONPATH', '')}"
    ran = await cli.having(PYTHONPATH=path).run(
        "run", "--profile", "demo", "--config", "my.yml", "--cwd", str(cli.workspace), "go"
    )
    assert ran.code == 0
    assert ran.out.startswith("Done. ")
    assert "plugin 'deaf', in poll at" in ran.err
    assert "deaf_plugin.py:7" in ran.err
    assert "ignores cancellation" in ran.err
    assert "Traceback" not in ran.err
    assert time.monotonic() - begun < 20
