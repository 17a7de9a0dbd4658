"""One tool room for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.testing import BatchBench, ToolRoom, open_tool_room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def room() -> AsyncIterator[ToolRoom]:
    async with open_tool_room() as opened:
        yield opened


@pytest.fixture
async def bench(room: ToolRoom) -> BatchBench:
    made = BatchBench(room)
    await made.register()
    return made
