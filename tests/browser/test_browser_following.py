"""A page that follows a session in a real browser, beside a real writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh.testing.command_line import CommandLine
from dsh.testing.trajectory_samples import parallel_log
from dsh_plugins.session_jsonl.store import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.browser import Browser

TOLD = "[...document.querySelectorAll('.row')].map((row) => row.ariaLabel).join('\\n')"
HEAD = "document.getElementById('head').textContent.replace('save', '')"


@pytest.mark.holds("P9")
async def test_a_followed_page_ends_as_the_static_one_and_the_writer_never_waits(
    browser: Browser, tmp_path: Path
) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    cli = CommandLine(home, workspace)
    log = parallel_log()
    events = tuple(log.session.events)
    handle = await JsonlStore(home / "sessions", now_ms=lambda: 0).create(log.session.header)
    await handle.append(events[:20])
    await handle.flush()
    page = await browser.page()
    async with cli.running("view", log.session.id, "--follow") as follower:
        await follower.until("/\n")
        address = follower.said.strip()
        await page.open(address)
        assert await page.text("#ending") == "running"
        few = await page.count(".row")
        for at in range(20, len(events), 8):
            with trio.fail_after(5):
                await handle.append(events[at : at + 8])
        await page.until("document.getElementById('ending').textContent === 'stopped by you'")
        assert await page.count(".row") > few
        followed = await page.value(TOLD), await page.value(HEAD)
        assert {one.removeprefix(address).partition("?")[0] for one in page.requests} == {
            "", "changes",
        }  # fmt: skip
        assert page.problems == []
        follower.interrupt()
        ended = await follower.ended()
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended
    await handle.aclose()
    made = await cli.run("view", log.session.id)
    static = await browser.page()
    await static.open(f"file://{made.out.strip()}")
    assert (await static.value(TOLD), await static.value(HEAD)) == followed
