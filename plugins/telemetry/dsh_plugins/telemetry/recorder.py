"""From what happens in sessions to spans and metrics.

What comes in: events of session logs, frames of attempts, bodies of tools as they run. What goes
out: finished spans, and measurements. A trace is one turn: the turn, its steps, in them attempts
and tool calls. It follows what it is told and decides nothing; a beginning that it did not see has
no span. Texts are taken only if `content` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from attrs import field, mutable

from dsh import catalog as ev
from dsh.catalog import records
from dsh_plugins.telemetry.messages import output_messages
from dsh_plugins.telemetry.spans import CLIENT, Mark, Place, Span, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import Logged
    from dsh.hooks.live import Agent, Session, ToolExecution
    from dsh_plugins.telemetry.measures import Measures
    from dsh_plugins.telemetry.spans import Value

__all__ = ["Recorder"]

#: What an error without a code is called.
OTHER: Final = "_OTHER"


@mutable(slots=True, eq=False)
class _Course:
    """What is open in one session."""

    session: str
    created_at: int
    number: int
    config: records.LlmCallConfig | None = None
    turn: Span | None = None
    step: Span | None = None
    attempt: Span | None = None
    first_chunk: int | None = None
    failure: records.LlmFailure | None = None
    attempts: int = 0
    retry: int = 0
    calls: dict[str, Span] = field(factory=dict)
    #: Bodies that have run: when they began and ended.
    bodies: dict[str, tuple[int, int | None]] = field(factory=dict)

    def place(self, *path: object, turn: int | None = None) -> Place:
        """The place of something in this turn, or in another one of the session."""
        number = self.number if turn is None else turn
        return place_of(self.session, self.created_at, number, *path)


@final
class Recorder:
    """All sessions. `done` gets each span when it is over."""

    def __init__(self, done: Callable[[Span], None], measures: Measures, *, content: bool) -> None:
        self._done: Final = done
        self._measures: Final = measures
        self._content: Final = content
        self._courses: Final[dict[str, _Course]] = {}
        self._agents: Final[dict[str, Agent]] = {}

    # -- what is open ----------------------------------------------------------------------------

    def where(self, session: Session) -> Place | None:
        """The innermost span of the session that is open."""
        course = self._courses.get(session.id)
        if course is None:
            return None
        span = course.step or course.turn
        return None if span is None else span.place

    def close(self, now: int) -> None:
        """End every span that is open: nobody will say how it went on."""
        for session in tuple(self._courses):
            self.closed(session, now)

    def closed(self, session: str, now: int) -> None:
        """A session has ended: keep nothing of it."""
        course = self._courses.pop(session, None)
        if course is not None:
            for span in (*course.calls.values(), course.attempt, course.step, course.turn):
                if span is not None:
                    span.attributes["dsh.unfinished"] = True
                    self._end(span, now)

    def joined(self, agent: Agent) -> None:
        """An agent was published: its session's parent is known from here on."""
        self._agents[agent.session.id] = agent

    def left(self, agent: Agent) -> None:
        """An agent is gone."""
        self._agents.pop(agent.session.id, None)

    # -- turns and steps -------------------------------------------------------------------------

    def turn_started(self, event: Logged[ev.turn.Start]) -> None:
        """Open the turn's span, linked to the turn before and to the agent above."""
        session, turn = event.session, event.data.turn
        header = session.header
        before = self._courses.get(session.id)
        config = before.config if before is not None else None
        course = _Course(session.id, header.created_at, turn, config=config)
        self._courses[session.id] = course
        name = header.agent_preset or "dsh"
        span = Span(f"invoke_agent {name}", course.place(), event.time)
        span.put(
            gen_ai__operation__name="invoke_agent",
            gen_ai__agent__name=name,
            gen_ai__agent__id=session.id,
            gen_ai__conversation__id=session.id,
            dsh__turn=turn,
            dsh__session__parent=header.parent_session,
        )
        # A seed's turns were told under the name of the session they come from.
        if turn > 1 and (before is not None or header.parent_session is None):
            span.links.append(course.place(turn=turn - 1))
        agent = self._agents.get(session.id)
        above = agent.parent if agent is not None else None
        place = None if above is None else self.where(above.session)
        if place is not None:
            span.links.append(place)
        course.turn = span

    def turn_ended(self, event: Logged[ev.turn.End]) -> None:
        """Close the turn's span with the reason."""
        course = self._courses.get(event.session.id)
        span = None if course is None else course.turn
        if course is None or span is None:
            return
        reason = event.data.reason
        span.put(dsh__turn__end=reason.kind)
        match reason:
            case records.ErrorTurnEnd(error=error):
                span.fail(error.code, error.message)
            case records.AbortedTurnEnd(reason=cause):
                span.put(dsh__turn__cause=cause.kind)
            case records.BlockedTurnEnd(plugin=plugin):
                span.put(dsh__turn__plugin=plugin)
            case _:
                pass
        self._modelled(span, course)
        course.turn = None
        self._end(span, event.time)
        self._measured("gen_ai.invoke_agent.duration", span, "gen_ai.agent.name")

    def step_started(self, event: Logged[ev.step.Start]) -> None:
        """Open a step's span below its turn."""
        course = self._courses.get(event.session.id)
        if course is None or course.turn is None:
            return
        number = event.data.step
        span = Span("step", course.place(number), event.time, parent=course.turn.place.span)
        span.put(
            gen_ai__conversation__id=event.session.id, dsh__turn=event.data.turn, dsh__step=number
        )
        course.step = span
        course.attempts = course.retry = 0

    def step_ended(self, event: Logged[ev.step.End]) -> None:
        """Close the step's span."""
        course = self._courses.get(event.session.id)
        if course is not None and course.step is not None:
            span, course.step = course.step, None
            self._end(span, event.time)

    # -- attempts --------------------------------------------------------------------------------

    def configured(self, event: Logged[ev.request.Header]) -> None:
        """Keep what the next requests ask for."""
        course = self._courses.get(event.session.id)
        if course is not None:
            course.config = event.data.header.config

    def framed(self, event: ev.agent.AssistantStream, now_ms: Callable[[], int]) -> None:
        """An attempt begins, goes on, ends."""
        course = self._courses.get(event.agent.session.id)
        if course is None:
            return
        match event.frame:
            case records.StartFrame():
                self._attempt_started(course, event.agent, now_ms())
            case records.ChunkFrame(time=time, chunk=chunk):
                if course.first_chunk is None:
                    course.first_chunk = time
                if isinstance(chunk, records.FinishChunk):
                    self._finished(course, chunk)
            case records.EndFrame(outcome=outcome):
                self._attempt_ended(course, outcome, now_ms())

    def _attempt_started(self, course: _Course, agent: Agent, now: int) -> None:
        if course.step is None:
            return
        course.attempts += 1
        course.first_chunk = course.failure = None
        config = course.config
        model = config.model if config is not None else agent.options.model
        number = course.step.attributes["dsh.step"]
        span = Span(
            f"chat {model}",
            course.place(number, "attempt", course.attempts),
            now,
            parent=course.step.place.span,
            kind=CLIENT,
        )
        span.put(
            gen_ai__operation__name="chat",
            gen_ai__conversation__id=agent.session.id,
            gen_ai__request__stream=True,
            dsh__attempt=course.attempts,
            dsh__retry=course.retry or None,
        )
        course.attempt = span
        self._modelled(span, course, agent.options)

    def _finished(self, course: _Course, chunk: records.FinishChunk) -> None:
        span = course.attempt
        if span is None:
            return
        match chunk.reason:
            case records.ErrorFinish(failure=failure) | records.AbortedFinish(failure=failure):
                course.failure = failure
                span.fail(failure.code, failure.message)
                span.put(http__response__status_code=failure.status)
            case reason:
                span.put(gen_ai__response__finish_reasons=(reason.kind,))

    def _attempt_ended(
        self, course: _Course, outcome: records.AssistantStreamOutcome, now: int
    ) -> None:
        span, course.attempt = course.attempt, None
        if span is None:
            return
        committed = isinstance(outcome, records.CommittedOutcome)
        if "dsh.outcome" not in span.attributes:
            unanswered = "failed" if course.failure is not None else "cancelled"
            span.put(dsh__outcome="committed" if committed else unanswered)
        if course.first_chunk is not None:
            waited = (course.first_chunk - span.start) / 1000
            span.put(gen_ai__response__time_to_first_chunk=waited)
            name = "gen_ai.client.operation.time_to_first_chunk"
            self._measures.add(name, waited, _chosen(span, *MODEL))
        self._end(span, now)
        self._measured("gen_ai.client.operation.duration", span, *MODEL)

    def replied(self, event: Logged[ev.assistant.Message]) -> None:
        """A reply was logged: its cost, and whether it was cut."""
        course = self._courses.get(event.session.id)
        span = None if course is None else course.attempt
        if span is None:
            return
        if event.data.interrupted:
            span.put(dsh__outcome="interrupted")
        usage = event.data.usage
        if usage is not None:
            read, written = usage.cache_read_tokens, usage.cache_write_tokens
            billed = usage.input_tokens + (read or 0) + (written or 0)
            span.put(
                gen_ai__usage__input_tokens=billed,
                gen_ai__usage__output_tokens=usage.output_tokens,
                gen_ai__usage__cache_read__input_tokens=read,
                gen_ai__usage__cache_creation__input_tokens=written,
                gen_ai__usage__reasoning__output_tokens=usage.reasoning_tokens,
            )
            for kind, count in (("input", billed), ("output", usage.output_tokens)):
                attributes = {**_chosen(span, *MODEL), "gen_ai.token.type": kind}
                self._measures.add("gen_ai.client.token.usage", count, attributes)
        if self._content:
            finish = span.attributes.get("gen_ai.response.finish_reasons")
            span.put(gen_ai__output__messages=output_messages(event.data.message, finish))

    def retried(self, event: Logged[ev.llm.Retry]) -> None:
        """A failed attempt will be made again."""
        course = self._courses.get(event.session.id)
        if course is None or course.step is None:
            return
        data = event.data
        course.retry = data.retry
        marked: dict[str, Value] = {
            "dsh.retry": data.retry,
            "dsh.delay_ms": data.delay_ms,
            "error.type": data.failure.code,
        }
        course.step.marks.append(Mark(ev.llm.RETRY.name, event.time, marked))
        counted = {"gen_ai.provider.name": data.provider, "error.type": data.failure.code}
        self._measures.add("dsh.llm.retries", 1, counted)

    # -- tools -----------------------------------------------------------------------------------

    def called(self, event: Logged[ev.tool.Call]) -> None:
        """A call was logged: its span begins, at the latest when its body does."""
        course = self._courses.get(event.session.id)
        if course is None or course.step is None:
            return
        data = event.data
        span = Span(
            f"execute_tool {data.name}",
            course.place(data.step, "call", data.call_id),
            event.time,
            parent=course.step.place.span,
        )
        span.put(
            gen_ai__operation__name="execute_tool",
            gen_ai__conversation__id=event.session.id,
            gen_ai__tool__name=data.name,
            gen_ai__tool__call__id=data.call_id,
            gen_ai__tool__type="function",
        )
        if self._content:
            span.put(gen_ai__tool__call__arguments=data.arguments)
        course.calls[data.call_id] = span

    def began(self, call: ToolExecution, now: int) -> None:
        """The body of a call begins."""
        course = self._course_of(call)
        if course is not None:
            course.bodies[call.call_id] = (now, None)

    def ended(self, call: ToolExecution, now: int) -> None:
        """The body of a call has ended."""
        course = self._course_of(call)
        if course is not None and call.call_id in course.bodies:
            course.bodies[call.call_id] = (course.bodies[call.call_id][0], now)

    def answered(self, event: Logged[ev.tool.Result]) -> None:
        """The result of a call was logged. The span is that of the body, if it ran."""
        course = self._courses.get(event.session.id)
        data = event.data
        span = None if course is None else course.calls.pop(data.message.tool_call_id, None)
        if course is None or span is None:
            return
        body = course.bodies.pop(data.message.tool_call_id, None)
        end = event.time
        if body is not None:
            span.start, end = body[0], end if body[1] is None else body[1]
        span.put(dsh__tool__ran=body is not None, dsh__tool__decided_by=data.decided_by)
        text = "\n".join(
            block.text for block in data.message.content if isinstance(block, records.TextBlock)
        )
        if data.message.is_error:
            code = data.error.code if data.error is not None else None
            span.fail(code or OTHER, text)
        if self._content:
            span.put(gen_ai__tool__call__result=text)
        self._end(span, end)
        if body is not None:
            self._measured("gen_ai.execute_tool.duration", span, "gen_ai.tool.name")

    def _course_of(self, call: ToolExecution) -> _Course | None:
        # A nested call is part of the call that made it.
        if call.agent is None or call.parent is not None:
            return None
        return self._courses.get(call.agent.session.id)

    # -- spans -----------------------------------------------------------------------------------

    def _modelled(
        self, span: Span, course: _Course, options: records.AgentOptions | None = None
    ) -> None:
        config = course.config
        if config is not None:
            span.put(
                gen_ai__provider__name=config.provider,
                gen_ai__request__model=config.model,
                gen_ai__request__max_tokens=config.max_tokens,
                gen_ai__request__temperature=config.temperature,
            )
        elif options is not None:
            span.put(gen_ai__provider__name=options.provider, gen_ai__request__model=options.model)

    def _end(self, span: Span, now: int) -> None:
        span.end = max(now, span.start)  # a wall clock may go backwards
        self._done(span)

    def _measured(self, name: str, span: Span, *attributes: str) -> None:
        end = span.start if span.end is None else span.end
        chosen = _chosen(span, *attributes, "error.type")
        self._measures.add(name, (end - span.start) / 1000, chosen)


MODEL: Final = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")


def _chosen(span: Span, *names: str) -> dict[str, Value | None]:
    return {name: span.attributes.get(name) for name in names}
