"""The model seam: preparing a call, and streaming it through the `llm/stream` chain.

What comes in: registrations of adapters, call configurations from the loop, frozen requests. What
goes out: prepared calls, each bound to one registration from the logging of its header to its
dispatch, and lawful chunk streams. It never retries, never logs, never touches a session.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs

from dsh import catalog as ev
from dsh.catalog.records import AssistantMessage, LlmCallConfigAdapterDefaults, ModelSource
from dsh.errors import HarnessError, LlmError
from dsh.hooks import Line
from dsh.kernel import Context, ServiceKey, core_of, plugin
from dsh.llm.failure import failure_of, raised
from dsh.llm.history import HistoryFolds
from dsh.llm.identity import WeakIdentityMap
from dsh.llm.metadata import check_models, check_resolved
from dsh.llm.normalise import LawfulStream, refuse
from dsh.llm.routes import Registration, RouteTable, routes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog.records import LlmCallConfig, Message, RetryPolicy
    from dsh.hooks.live import ChunkStream, LlmRequest, TurnSignal
    from dsh.kernel import CoreContext
    from dsh.llm.adapter import (
        LlmAdapter,
        ModelInfo,
        ProviderInfo,
        ResolvedModel,
        SystemPromptUpdate,
    )
    from dsh.llm.routes import Route

__all__ = ["LLM", "LlmRuntime", "PreparedCall", "llm_plugin"]


@final
class PreparedCall:
    """One model call, resolved and ready; `stream` may be used once.

    `config` has the adapter's defaults filled in, and `adapter_defaults` says which those are
    (None: none). `known` is False when no adapter serves the provider: then the configuration is
    as it was proposed, and only a listener of `llm/stream` can answer the call.
    """

    __slots__ = ("_route", "_runtime", "_used", "adapter_defaults", "config", "model")

    def __init__(
        self,
        runtime: LlmRuntime,
        route: Route | None,
        config: LlmCallConfig,
        model: ResolvedModel | None,
        adapter_defaults: LlmCallConfigAdapterDefaults | None,
    ) -> None:
        self._runtime: Final = runtime
        self._route: Final = route
        self._used = False
        self.config: Final = config
        self.model: Final = model
        self.adapter_defaults: Final = adapter_defaults

    @property
    def known(self) -> bool:
        """Whether an adapter serves the provider."""
        return self._route is not None

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """The policy captured when the adapter was registered; None without an adapter."""
        return self._route.policy if self._route is not None else None

    @property
    def context_window(self) -> int | None:
        """Input and output capacity together, in tokens, if known."""
        return self.model.context_window if self.model is not None else None

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """What the model can read; always contains "text"."""
        return self.model.input_modalities if self.model is not None else ("text",)

    @property
    def system_prompt_update(self) -> SystemPromptUpdate | None:
        """How the route takes a changed system prompt."""
        return self.model.system_prompt_update if self.model is not None else None

    def stream(self, request: LlmRequest) -> ChunkStream:
        """The one attempt of this call, through the `llm/stream` chain.

        Raises INVALID_PREPARED_CALL when the request says anything else than `config`, or when
        this call was streamed before. Failures of the model come as the terminal chunk; failures
        of listeners are raised. Leaving the context closes the connection at once.
        """
        wrong = _differs(request, self.config)
        if self._used or wrong is not None:
            raise LlmError(
                f"this call was prepared for another request: {wrong}; prepare the call again"
                if wrong is not None
                else "this prepared call was already streamed; prepare a new one for each attempt",
                code="INVALID_PREPARED_CALL",
            )
        self._used = True
        return self._runtime.dispatch(request, self._route)


@final
class LlmRuntime:
    """The registry of adapters and the door to every model call. Service `LLM`."""

    def __init__(self, core: CoreContext) -> None:
        self._core: Final = core
        self._table: Final = RouteTable(self._routes_changed)
        # Messages without a foreign adapter's replay state, by identity, so that an adapter that
        # caches encodings meets the same object in each request.
        self._stripped: WeakIdentityMap[AssistantMessage, AssistantMessage] = WeakIdentityMap()
        # By adapter that reads replay states: histories without the foreign ones.
        self._own: Final[dict[LlmAdapter, HistoryFolds[_Own]]] = {}

    def register(self, ctx: Context, adapter: LlmAdapter, routes: Sequence[str]) -> Registration:
        """Serve these provider routes with `adapter`, as an effect of `ctx`; all or nothing.

        Raises LlmError: DUPLICATE_ADAPTER for a route that is taken, INVALID_REGISTRATION for no
        route, an empty name or one name twice, INVALID_RETRY_POLICY or INVALID_PROVIDER_METADATA
        for what the adapter says of itself.
        The handle's `replace(routes)` changes them in one step.
        """
        if not routes:
            raise LlmError(
                f"{type(adapter).__name__} was registered without a route; name its provider",
                code="INVALID_REGISTRATION",
            )
        registration = Registration(self._table, adapter, routes_of(adapter, routes))
        label = f"llm adapter {type(adapter).__name__} for {', '.join(routes)}"
        registration.begin(partial(ctx.effect, label=label))
        return registration

    def routes(self) -> tuple[str, ...]:
        """The providers that have an adapter, sorted."""
        return self._table.names()

    def provider_info(self, provider: str) -> ProviderInfo:
        """How to name a provider to a person. Raises LlmError NO_ADAPTER."""
        return self._table.need(provider).info

    def verify(self, provider: str) -> None:
        """Check a provider before a session exists: it is served, and its key can be sent.

        Raises LlmError NO_ADAPTER (naming the nearest and all providers) or MissingCredential.
        """
        self._table.need(provider).adapter.verify(provider)

    async def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The provider's advisory catalogue. Raises LlmError; cancellable."""
        adapter = self._table.need(provider).adapter
        return check_models(provider, await adapter.list_models(provider))

    async def prepare_call(
        self, config: LlmCallConfig, signal: TurnSignal | None = None
    ) -> PreparedCall:
        """Resolve the exact model through one registration and fill in the adapter's defaults.

        A provider without an adapter is tolerated (`PreparedCall.known` is False). Raises LlmError
        for everything else: INVALID_MODEL_METADATA, UNSUPPORTED_REASONING_EFFORT (an effort the
        model does not take is refused, never changed), or whatever resolving ran into. With a
        `signal` the resolving is cancelled with it, and the loop's own exception is raised.
        """
        route = self._table.find(config.provider)
        if route is None:
            return PreparedCall(self, None, config, None, None)
        if signal is None:
            model = await _resolved(route, config)
        else:
            found: list[ResolvedModel] = []
            with signal.scope():
                found.append(await _resolved(route, config))
            signal.raise_if_set()
            if not found:
                raise LlmError("resolving the model was cut off", code="ABORTED")
            model = found[0]
        _check_effort(config, model)
        filled, defaults = _with_defaults(config, model)
        return PreparedCall(self, route, filled, model, defaults)

    def stream(self, request: LlmRequest) -> ChunkStream:
        """One attempt without preparation, for auxiliary calls; the route is looked up inside."""
        return self.dispatch(request, None)

    def dispatch(self, request: LlmRequest, route: Route | None) -> ChunkStream:
        """Run `request` through `llm/stream`; `route` binds it, None looks the provider up last."""

        def default() -> ChunkStream:
            bound = route if route is not None else self._table.find(request.provider)
            if bound is None:
                return LawfulStream(request, refuse(self._table.missing(request.provider)))
            return LawfulStream(request, partial(self._open, bound, request))

        return self._core.stream(ev.llm.STREAM)(ev.llm.Stream(request=request), default)

    def _open(self, route: Route, request: LlmRequest) -> ChunkStream:
        adapter = route.adapter
        if adapter.reads_replay_state:
            folds = self._own.get(adapter)
            if folds is None:
                bare = partial(self._for_adapter, adapter=adapter)
                folds = self._own[adapter] = HistoryFolds(lambda: _Own(bare))
            own = folds.of(request.messages)
            if own.differs:
                request = attrs.evolve(request, messages=own.messages.so_far())
        return adapter.stream(request)

    def _routes_changed(self) -> None:
        # Whose replay state is foreign may be another now.
        self._own.clear()
        self._core.emit(ev.llm.AdaptersUpdated())

    def _for_adapter(self, message: Message, adapter: LlmAdapter) -> Message:
        """`message` without a replay state that another adapter made; the same object if it can."""
        if not isinstance(message, AssistantMessage):
            return message
        source = message.source
        if not isinstance(source, ModelSource) or source.replay_state is None:
            return message
        origin = self._table.find(source.provider)
        if origin is not None and origin.adapter is adapter:
            return message
        bare = self._stripped.get(message)
        if bare is None:
            bare = attrs.evolve(message, source=attrs.evolve(source, replay_state=None))
            self._stripped.put(message, bare)
        return bare


@final
class _Own:
    """A fold of messages: the same, without the replay states that other adapters made."""

    __slots__ = ("_bare", "differs", "messages")

    def __init__(self, bare: Callable[[Message], Message]) -> None:
        self._bare: Final = bare
        self.messages: Final[Line[Message]] = Line()
        #: Whether any message is another object than it was.
        self.differs = False

    def add(self, message: Message) -> None:
        bare = self._bare(message)
        self.differs = self.differs or bare is not message
        self.messages.add(bare)


async def _resolved(route: Route, config: LlmCallConfig) -> ResolvedModel:
    try:
        found = await route.adapter.resolve_model(config.provider, config.model)
    except HarnessError:
        raise
    except Exception as error:
        raise raised(failure_of(error)) from error
    return check_resolved(config.provider, config.model, found)


def _check_effort(config: LlmCallConfig, model: ResolvedModel) -> None:
    effort, known = config.reasoning_effort, model.reasoning_efforts
    if effort is None or known is None or effort in known:
        return
    takes = f"one of {', '.join(known)}" if known else "no reasoning effort"
    raise LlmError(
        f"model {config.model!r} of provider {config.provider!r} takes {takes}; asked for "
        f"{effort!r}. Change `reasoningEffort`, or leave it out.",
        code="UNSUPPORTED_REASONING_EFFORT",
    )


def _with_defaults(
    config: LlmCallConfig, model: ResolvedModel
) -> tuple[LlmCallConfig, LlmCallConfigAdapterDefaults | None]:
    effort = config.reasoning_effort is None and model.reasoning_effort is not None
    cap = config.max_tokens is None and model.max_tokens is not None
    if not effort and not cap:
        return config, None
    filled = attrs.evolve(
        config,
        reasoning_effort=model.reasoning_effort if effort else config.reasoning_effort,
        max_tokens=model.max_tokens if cap else config.max_tokens,
    )
    return filled, LlmCallConfigAdapterDefaults(reasoning_effort=effort, max_tokens=cap)


def _differs(request: LlmRequest, config: LlmCallConfig) -> str | None:
    """The first field in which the request is not what was prepared, in words."""
    for name, asked, prepared in (
        ("provider", request.provider, config.provider),
        ("model", request.model, config.model),
        ("reasoning effort", request.reasoning_effort, config.reasoning_effort),
        ("temperature", request.temperature, config.temperature),
        ("max tokens", request.max_tokens, config.max_tokens),
        ("stop", request.stop, config.stop),
    ):
        if asked != prepared:
            return f"{name} is {asked!r}, was {prepared!r}"
    return None


LLM: Final[ServiceKey[LlmRuntime]] = ServiceKey("llm")


@plugin(name="llm", provides=(LLM,))
async def llm_plugin(ctx: Context) -> None:
    """The row `llm`: provides the model seam."""
    ctx.provide(LLM, LlmRuntime(core_of(ctx)))
