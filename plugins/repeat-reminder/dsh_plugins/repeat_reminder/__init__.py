"""The plugin `repeat-reminder`: a model that repeats itself is told so; a stuck one is stopped.

What comes in: calls with their results, and what the user says. What goes out: reminders behind the
results, and the end of a turn as blocked when nothing new has come of its calls for long. No single
call is ever refused. Counts are kept in memory: a resume starts them anew.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import orjson
from attrs import field, mutable

from dsh import Context, Logged, Next, plugin
from dsh import catalog as ev
from dsh.agent import user_message
from dsh_plugins.repeat_reminder.catalog import RepeatReminderConfig

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.hooks.live import Session, ToolExecution, ToolResult

__all__ = ["repeat_reminder"]

NAME: Final = "repeat-reminder"
SHOWN: Final = 500


def _canonical(arguments: JsonValue) -> str:
    return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()


def _digest(*parts: str) -> bytes:
    made = sha256()
    for part in parts:
        made.update(len(part).to_bytes(8, "big") + part.encode())
    return made.digest()


@mutable(slots=True, eq=False)
class _Run:
    """One session: the equal calls in a row, and what this turn has brought so far."""

    last: bytes = b""
    equal: int = 0
    known: set[bytes] = field(factory=set)
    stale: int = 0

    def reset(self) -> None:
        self.last, self.equal = b"", 0

    def turn(self) -> None:
        self.known.clear()
        self.stale = 0

    def saw(self, call: ToolExecution, arguments: str, result: ToolResult) -> None:
        this = _digest(call.name, arguments)
        self.equal = self.equal + 1 if this == self.last else 1
        self.last = this
        text = [one.text for one in result.content if isinstance(one, ev.records.TextBlock)]
        brought = _digest(call.name, arguments, *text)
        self.stale = self.stale + 1 if brought in self.known else 0
        self.known.add(brought)


def _reminder(call: ToolExecution, arguments: str, count: int, *, first: bool) -> str:
    if first:
        return (
            f"You have called {call.name} {count} times in a row with the same arguments. "
            "If the results do not help, try something else."
        )
    shown = arguments if len(arguments) <= SHOWN else f"{arguments[:SHOWN]}…"
    return (
        f"You have called {call.name} {count} times in a row with the same arguments: {shown}. "
        "Repeating it will not change the result. Choose another way, or say what you lack."
    )


def _said_by_user(messages: tuple[ev.records.UserMessage, ...]) -> bool:
    return any(isinstance(message.source, ev.records.UserSource) for message in messages)


@plugin(name=NAME, config=RepeatReminderConfig)
async def repeat_reminder(ctx: Context, config: RepeatReminderConfig) -> None:
    """Count at reviews, remind there, and look before each step whether anything is new."""
    runs: WeakKeyDictionary[Session, _Run] = WeakKeyDictionary()

    def run_of(session: Session) -> _Run:
        run = runs.get(session)
        if run is None:
            run = runs[session] = _Run()
        return run

    @ctx.on(ev.turn.START)
    def begins(event: Logged[ev.turn.Start]) -> None:
        run_of(event.session).turn()

    @ctx.on(ev.tools.POST_EXECUTE)
    async def count(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        decision = await call_next()
        call = event.exec
        excluded = any(fnmatchcase(call.name, pattern) for pattern in config.exclude)
        if call.agent is None or call.parent is not None or excluded:
            return decision
        run, arguments = run_of(call.agent.session), _canonical(call.arguments)
        run.saw(call, arguments, event.result)
        if run.equal not in config.remind_at:
            return decision
        first = run.equal == min(config.remind_at)
        text = _reminder(call, arguments, run.equal, first=first)
        source = ev.records.PluginSource(plugin=NAME, form="instructions")
        return _with_context(decision, user_message(text, source=source))

    @ctx.on(ev.agent.PRE_STEP)
    async def look(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        run = run_of(step.agent.session)
        if _said_by_user(step.messages):
            run.reset()
            run.turn()
        if config.stop_after and run.stale >= config.stop_after:
            return ev.agent.Reject(reason=f"{run.stale} tool calls in a row brought nothing new")
        return await call_next()


def _with_context(
    decision: ev.tools.PostExecuteDecision, message: ev.records.UserMessage
) -> ev.tools.PostExecuteDecision:
    contexts = (*decision.additional_contexts, message)
    if isinstance(decision, ev.tools.Block):
        return ev.tools.Block(feedback=decision.feedback, additional_contexts=contexts)
    return ev.tools.Accept(
        content=decision.content, value=decision.value, additional_contexts=contexts
    )
