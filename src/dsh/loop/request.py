"""Requests: the one place that joins prompt, messages, route and tool schemas.

What comes in: the surface's system nodes, the rendered prompt, the prepared call's facts, what was
logged last. What goes out: which events the admission must append (prompt, header, context), the
config that `agent/request` starts from, and the frozen request. Everything here is a pure
function (`PromptNodes` only remembers how far it has read); nothing is appended or awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson
from attrs import evolve

from dsh.catalog import codec, records
from dsh.hooks import frozen, live
from dsh.session import canonical_header, same_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks import History
    from dsh.wire import StoredEvent

__all__ = [
    "AppendPrompt",
    "HeaderPlan",
    "PromptNode",
    "PromptNodes",
    "PromptOp",
    "ReplacePrompt",
    "effective_prompt",
    "generate_request",
    "plan_context",
    "plan_header",
    "plan_prompt",
    "request_header",
    "same_config",
    "same_tools",
    "seed_config",
    "series_starts",
    "text_of",
]


@frozen
class PromptNode:
    """A `system/message` that is on the surface now. Empty text: dormant, it derives no message."""

    seq: int
    text: str


@frozen
class AppendPrompt:
    """Append a `system/message` with this text at the tail (or as node 0)."""

    text: str


@frozen
class ReplacePrompt:
    """Replace exactly the node `seq` by a `system/message` with this text; cite it."""

    seq: int
    text: str


PromptOp: TypeAlias = AppendPrompt | ReplacePrompt


def text_of(content: Sequence[records.ContentBlock]) -> str:
    """The text blocks of `content`, joined without anything between."""
    return "".join(block.text for block in content if isinstance(block, records.TextBlock))


def effective_prompt(nodes: Sequence[PromptNode]) -> str:
    """The newest non-empty node's text; "" when there is none."""
    return next((node.text for node in reversed(nodes) if node.text), "")


def plan_prompt(
    nodes: Sequence[PromptNode], text: str, *, in_history: bool, starts_series: bool
) -> tuple[PromptOp, ...]:
    """D6: what brings the surface's prompt to `text`, in the order of appending; often nothing.

    `in_history` is the prepared call's capability, never that of the route before it.
    """
    if not nodes:
        return (AppendPrompt(text),)
    if in_history and not starts_series and text:
        return () if effective_prompt(nodes) == text else (AppendPrompt(text),)
    head, *later = nodes
    emptied: list[PromptOp] = [ReplacePrompt(node.seq, "") for node in later if node.text]
    if head.text != text:
        emptied.append(ReplacePrompt(head.seq, text))
    return tuple(emptied)


class PromptNodes:
    """The system nodes of a growing surface, read once each; a replacement makes it read anew.

    Dormant ones are left out, but for the first: nothing is ever done about them.
    """

    def __init__(self) -> None:
        self._generation = -1
        self._read = 0
        self._nodes: list[PromptNode] = []

    def current(
        self, nodes: Sequence[int], generation: int, events: Sequence[StoredEvent]
    ) -> Sequence[PromptNode]:
        """The system nodes among the surface's `nodes` (seqs, in order), until the next call."""
        if generation != self._generation:
            self._generation, self._read, self._nodes = generation, 0, []
        for index in range(self._read, len(nodes)):
            message = getattr(events[nodes[index]].data, "message", None)
            if isinstance(message, records.SystemMessage):
                text = text_of(message.content)
                if text or not self._nodes:
                    self._nodes.append(PromptNode(nodes[index], text))
        self._read = len(nodes)
        return self._nodes


def series_starts(
    *,
    declared: bool,
    generation: int,
    remembered: int,
    tools: Sequence[records.ToolSchema],
    logged: records.EpochHeader | None,
) -> bool:
    """D7: the next request does not extend the previous one's messages.

    `remembered` is the surface's generation at attach or at the last built request. Resuming, and
    switching the route, are no reasons.
    """
    if declared or generation != remembered:
        return True
    return logged is not None and not same_tools(logged.tools, tools)


def same_tools(one: Sequence[records.ToolSchema], other: Sequence[records.ToolSchema]) -> bool:
    """Whether two tool lists are the same on the wire, in order."""
    if len(one) != len(other):
        return False
    return all(
        left is right or _wire(left) == _wire(right) for left, right in zip(one, other, strict=True)
    )


def same_config(one: records.LlmCallConfig, other: records.LlmCallConfig) -> bool:
    """Whether two configurations are the same on the wire."""
    return one is other or _wire(one) == _wire(other)


def _wire(record: records.ToolSchema | records.LlmCallConfig) -> bytes:
    return orjson.dumps(codec.encode_record(record), option=orjson.OPT_SORT_KEYS)


def request_header(
    config: records.LlmCallConfig,
    adapter_defaults: records.LlmCallConfigAdapterDefaults | None,
    tools: Sequence[records.ToolSchema],
) -> records.EpochHeader:
    """D9: the canonical header of a request; equal requests have equal ones."""
    return canonical_header(
        records.EpochHeader(config=config, adapter_defaults=adapter_defaults, tools=tuple(tools))
    )


HeaderReason: TypeAlias = Literal["initial", "resume", "change", "series"]


@frozen
class HeaderPlan:
    """A `request/header` that is due: why, and whether a series also starts with it."""

    header: records.EpochHeader
    reason: HeaderReason
    starts_series: bool


def plan_header(
    logged: records.EpochHeader | None,
    header: records.EpochHeader,
    *,
    first: bool,
    starts_series: bool,
) -> HeaderPlan | None:
    """D8: the header event that is due, or None when the request inherits the last one.

    `first`: this loop instance has built no request yet.
    """
    reason: HeaderReason
    if logged is None:
        reason = "initial"
    elif first:
        reason = "resume"
    elif not same_header(logged, header):
        reason = "change"
    elif starts_series:
        return HeaderPlan(header, "series", starts_series=False)
    else:
        return None
    return HeaderPlan(header, reason, starts_series=starts_series)


def plan_context(
    logged: records.RequestContext | None, facts: records.RequestContext
) -> records.RequestContext | None:
    """D10: the `request/context` that is due; absence of a fact counts as a value."""
    return None if logged == facts else facts


def seed_config(
    options: records.AgentOptions, logged: records.EpochHeader | None, *, first: bool
) -> records.LlmCallConfig:
    """D1, D2: what `agent/request` starts from.

    The first request of a loop instance takes the agent's options; an effort that was logged
    explicitly for exactly this route comes back when the options name none. Later requests take
    the last header, without what its adapter had filled in.
    """
    if logged is not None and not first:
        return _without_defaults(logged)
    provider, model = options.provider or "", options.model or ""
    effort = options.reasoning_effort
    if effort is None and logged is not None:
        explicit = _without_defaults(logged)
        if (explicit.provider, explicit.model) == (provider, model):
            effort = explicit.reasoning_effort
    return records.LlmCallConfig(
        provider=provider, model=model, reasoning_effort=effort, max_tokens=options.max_tokens
    )


def _without_defaults(header: records.EpochHeader) -> records.LlmCallConfig:
    marks = header.adapter_defaults
    if marks is None:
        return header.config
    config = header.config
    if marks.reasoning_effort:
        config = evolve(config, reasoning_effort=None)
    if marks.max_tokens:
        config = evolve(config, max_tokens=None)
    return config


def generate_request(
    header: records.EpochHeader,
    messages: History[records.Message],
    *,
    session_id: str,
    signal: live.TurnSignal,
) -> live.LlmRequest:
    """D11: header, history and schemas as one frozen request; it has no system field."""
    config = header.config
    return live.LlmRequest(
        provider=config.provider,
        model=config.model,
        messages=messages,
        tools=header.tools,
        reasoning_effort=config.reasoning_effort,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        stop=config.stop,
        session_id=session_id,
        signal=signal,
    )
