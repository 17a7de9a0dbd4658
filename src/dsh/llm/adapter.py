"""What a model adapter implements, and what the seam may ask of it.

What comes in: nothing at run time. What goes out: the abstract adapter, the facts of one exact
model, and the retry policy an adapter has unless it says otherwise. An adapter turns one frozen
`LlmRequest` into one stream of chunks; it never retries, never logs a body, and never reads the
environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from dsh.catalog.records import NormalRetryPolicy
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import RetryPolicy
    from dsh.hooks.live import ChunkStream, LlmRequest

__all__ = ["DEFAULT_RETRY_POLICY", "LlmAdapter", "ModelInfo", "ProviderInfo", "ResolvedModel"]

SystemPromptUpdate: TypeAlias = Literal["in-history"]

#: Used by adapters that state no policy: the schema's own defaults.
DEFAULT_RETRY_POLICY: Final[RetryPolicy] = NormalRetryPolicy()


@frozen(kw_only=True, slots=True)
class ResolvedModel:
    """The facts of one exact model, as its adapter knows them.

    `context_window` is input and output together, in tokens. `max_tokens` and `reasoning_effort`
    are the adapter's defaults for a call that says nothing of them; None: it sends nothing.
    `reasoning_efforts` are the ids the model takes: () for none at all, None when the adapter
    cannot know (any id is passed on). `input_modalities` always contains "text".
    """

    context_window: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    reasoning_efforts: tuple[str, ...] | None = None
    input_modalities: tuple[str, ...] = ("text",)
    system_prompt_update: SystemPromptUpdate | None = None


@frozen(kw_only=True, slots=True)
class ModelInfo:
    """One row of a provider's advisory catalogue. A model that is not listed may still be used."""

    id: str
    name: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None


@frozen(kw_only=True, slots=True)
class ProviderInfo:
    """How a provider is called where a person reads it."""

    name: str
    where: str | None = None


class LlmAdapter(ABC):
    """One wire protocol with its connections. Registered under one or more provider routes."""

    #: Whether `stream` reads `replay_state` of earlier assistant messages. Then messages made by
    #: other adapters reach it without theirs.
    reads_replay_state: ClassVar[bool] = False

    @abstractmethod
    def stream(self, request: LlmRequest) -> ChunkStream:
        """One attempt: a context manager over the reply's chunks, entered at most once.

        The chunks obey `dsh.llm.grammar`. A failure is raised, best as `LlmError` with a code;
        the seam turns it into the terminal chunk. Leaving the context closes the connection at
        once. Cancellable at every await; nothing is left running then.
        """

    @abstractmethod
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        """The facts of exactly this model. May ask the server; cancellable."""

    def retry_policy(self, provider: str) -> RetryPolicy:
        """When a failed call of this route is tried again. Read once, at registration."""
        del provider
        return DEFAULT_RETRY_POLICY

    def provider_info(self, provider: str) -> ProviderInfo:
        """How to call this route where a person reads it. Read once, at registration."""
        return ProviderInfo(name=provider)

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        """What the provider advertises; may be empty, is never a limit."""
        del provider
        return ()

    def verify(self, provider: str) -> None:
        """Check what can be checked without a network: a key that is there and can be sent.

        Raises MissingCredential, or another UsageError. Called before a session exists, so that a
        person hears of it at once; the key is resolved again for each request.
        """
        del provider
