"""Admission: prompt, messages, header and route become history in one synchronous act.

What comes in: a prepared call and what the step is to admit. What goes out: the appended events
that were due, and the frozen request derived from the log after them. From the first comparison to
the finished request there is no checkpoint, so nothing can come between.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.agent import mark_loop_request, new_message_id
from dsh.catalog import records
from dsh.hooks import frozen
from dsh.loop.request import (
    AppendPrompt,
    PromptNodes,
    PromptOp,
    ReplacePrompt,
    generate_request,
    plan_context,
    plan_header,
    plan_prompt,
    request_header,
    same_config,
    seed_config,
    series_starts,
)

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.llm import PreparedCall
    from dsh.session import Session

__all__ = ["Admission", "Proposal"]


@frozen(kw_only=True, eq=False)
class Proposal:
    """What one step is to admit. `messages` is empty when a retry admits nothing anew."""

    turn: int
    step: int
    prompt: str
    tools: tuple[records.ToolSchema, ...]
    messages: tuple[records.UserMessage, ...]
    starts_series: bool


class Admission:
    """Builds the requests of one agent, and remembers what the last one stood on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._nodes = PromptNodes()
        self._generation = session.surface.generation
        self._first = True
        self._header: records.EpochHeader | None = None

    def seed_config(self, options: records.AgentOptions) -> records.LlmCallConfig:
        """What `agent/request` starts from; its innermost answer."""
        return seed_config(options, self._session.request_header(), first=self._first)

    def admit(
        self, proposal: Proposal, call: PreparedCall, signal: live.TurnSignal
    ) -> live.LlmRequest:
        """Append what is due and return the request.

        Raises what append raises; what was appended before that stays, as in any log.
        """
        session = self._session
        logged = session.request_header()
        starts = series_starts(
            declared=proposal.starts_series,
            generation=session.surface.generation,
            remembered=self._generation,
            tools=proposal.tools,
            logged=logged,
        )
        header = self._header_of(call, proposal.tools)
        with session.batch():
            self._reconcile(proposal, call, starts_series=starts)
            for message in proposal.messages:
                session.append(ev.user.Message(message=message), surface=records.Append())
            starts = starts or session.surface.generation != self._generation
            plan = plan_header(logged, header, first=self._first, starts_series=starts)
            if plan is not None:
                session.append(
                    ev.request.Header(
                        header=plan.header, reason=plan.reason, starts_series=plan.starts_series
                    )
                )
            self._log_route(call)
        self._generation = session.surface.generation
        self._first = False
        request = generate_request(
            header, session.derive_messages(), session_id=session.id, signal=signal
        )
        mark_loop_request(request)
        return request

    def _header_of(
        self, call: PreparedCall, tools: tuple[records.ToolSchema, ...]
    ) -> records.EpochHeader:
        """The last request's header, if nothing of it changed: then nobody compares or encodes."""
        last = self._header
        if (
            last is None
            or len(last.tools) != len(tools)
            or not all(map(is_, last.tools, tools))
            or not same_config(last.config, call.config)
            or last.adapter_defaults != call.adapter_defaults
        ):
            last = self._header = request_header(call.config, call.adapter_defaults, tools)
        return last

    def _reconcile(self, proposal: Proposal, call: PreparedCall, *, starts_series: bool) -> None:
        session = self._session
        nodes = self._nodes.current(
            session.surface.nodes, session.surface.generation, session.events
        )
        for op in plan_prompt(
            nodes,
            proposal.prompt,
            in_history=call.system_prompt_update == "in-history",
            starts_series=starts_series,
        ):
            self._append_prompt(proposal, op)

    def _append_prompt(self, proposal: Proposal, op: PromptOp) -> None:
        payload = ev.system.Message(
            turn=proposal.turn,
            step=proposal.step,
            message=records.SystemMessage(
                id=new_message_id(),
                content=(records.TextBlock(text=op.text),),
                source=records.SystemPromptSource(),
            ),
        )
        match op:
            case AppendPrompt():
                self._session.append(payload, surface=records.Append())
            case ReplacePrompt(seq=seq):
                self._session.append(
                    payload,
                    surface=records.Replace(start_seq=seq, end_seq=seq),
                    sources=(seq,),
                )

    def _log_route(self, call: PreparedCall) -> None:
        logged = self._session.request_context()
        facts = records.RequestContext(
            provider=call.config.provider,
            model=call.config.model,
            context_window=call.context_window,
            system_prompt_update=call.system_prompt_update,
        )
        known = (
            None
            if logged is None
            else records.RequestContext(
                provider=logged.provider,
                model=logged.model,
                context_window=logged.context_window,
                system_prompt_update=logged.system_prompt_update,
            )
        )
        due = plan_context(known, facts)
        if due is not None:
            self._session.append(
                ev.request.RouteContext(
                    provider=due.provider,
                    model=due.model,
                    context_window=due.context_window,
                    system_prompt_update=due.system_prompt_update,
                )
            )
