"""What the wire tests share: an adapter over given servers, without boot."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from dsh.kernel import SystemClock
from dsh.testing.wires import Variables
from dsh_plugins.openai_chat.adapter import ChatAdapter
from dsh_plugins.openai_chat.catalog import ProviderProfile
from dsh_plugins.openai_chat.families import server_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from dsh.testing.wires import OpenServer


@asynccontextmanager
async def _open_chat(
    base_url: str = "",
    *,
    profile: ProviderProfile | None = None,
    variables: Mapping[str, str] | None = None,
    provider: str = "p",
) -> AsyncGenerator[ChatAdapter]:
    chosen = profile if profile is not None else ProviderProfile(base_url=base_url)
    seams = Variables(variables)
    adapter = ChatAdapter({provider: server_of(provider, chosen)}, seams, seams, SystemClock())
    try:
        yield adapter
    finally:
        await adapter.aclose()


@pytest.fixture
def open_chat() -> OpenServer[ProviderProfile]:
    """`async with open_chat(base_url, profile=…, variables=…) as adapter`."""
    return _open_chat
