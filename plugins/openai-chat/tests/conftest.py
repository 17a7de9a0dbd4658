"""What the wire tests share: an adapter over given servers, without boot."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import pytest
from typing_extensions import override

from dsh.errors import MissingCredential
from dsh.kernel import SystemClock
from dsh.seams.environ import Credentials, Environ, Secret
from dsh_plugins.openai_chat.adapter import ChatAdapter
from dsh_plugins.openai_chat.catalog import ProviderProfile
from dsh_plugins.openai_chat.families import server_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping


class OpenChat(Protocol):
    """The type of the fixture `open_chat`."""

    def __call__(
        self,
        base_url: str = "",
        *,
        profile: ProviderProfile | None = None,
        variables: Mapping[str, str] | None = None,
        provider: str = "p",
    ) -> AbstractAsyncContextManager[ChatAdapter]: ...


class Variables(Environ, Credentials):
    """Variables of a test, as both seams."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)

    @override
    def get(self, name: str) -> str | None:
        return self.values.get(name)

    @override
    def variables(self) -> Mapping[str, str]:
        return self.values

    @override
    def resolve(self, name: str) -> Secret:
        value = self.values.get(name)
        if not value:
            raise MissingCredential(f"{name} is not set")
        if not all(33 <= ord(character) < 127 for character in value):
            raise MissingCredential(f"{name} cannot be sent", code="INVALID_CREDENTIAL")
        return Secret(name, value)

    @override
    def reserve(self, names: Iterable[str]) -> None:
        del names

    @override
    def secret_names(self) -> frozenset[str]:
        return frozenset()


@asynccontextmanager
async def _open_chat(
    base_url: str = "",
    *,
    profile: ProviderProfile | None = None,
    variables: Mapping[str, str] | None = None,
    provider: str = "p",
) -> AsyncGenerator[ChatAdapter]:
    chosen = profile if profile is not None else ProviderProfile(base_url=base_url)
    seams = Variables(variables or {})
    adapter = ChatAdapter({provider: server_of(provider, chosen)}, seams, seams, SystemClock())
    try:
        yield adapter
    finally:
        await adapter.aclose()


@pytest.fixture
def open_chat() -> OpenChat:
    """`async with open_chat(base_url, profile=…, variables=…) as adapter`."""
    return _open_chat
