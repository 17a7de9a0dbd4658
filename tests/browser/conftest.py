"""A real browser, and pages made of logs; without a browser these tests are skipped, and say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.cli.sessions.looking import Found
from dsh.cli.sessions.showing import document_of
from dsh.cli.sessions.view import facts_with_story
from dsh.testing.browser import Browser, found_browser, open_browser

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from dsh.testing.trajectories import TimedLog

MISSING = "no Chromium on this machine; `apt-get install chromium` brings one"


@pytest.fixture
async def browser() -> AsyncGenerator[Browser, None]:
    if found_browser() is None:
        pytest.skip(MISSING)
    async with open_browser() as opened:
        yield opened


@pytest.fixture
def written(tmp_path: Path) -> Callable[[TimedLog], str]:
    """Writes the page of a log, and gives its address."""

    def write(log: TimedLog, change: Callable[[str], str] = lambda text: text) -> str:
        found = Found(
            id=log.session.id, header=log.session.header, events=tuple(log.session.events)
        )
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.html"
        page = change(document_of(found).whole(facts_with_story(found)))
        path.write_text(page, encoding="utf-8")
        return path.as_uri()

    return write
