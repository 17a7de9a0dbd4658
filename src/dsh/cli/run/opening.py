"""Opening the session of a run: the checks before there is one, then create or resume.

What comes in: a running house and what the person asked for. What goes out: a live agent with its
session, and how much of its log was stored before; or a refusal while nothing has begun. It sends
no message and reads no event.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from dsh import catalog as ev
from dsh.boot import did_you_mean, read_known, workspace
from dsh.catalog import records
from dsh.cli.screen.inert import one_line
from dsh.cli.sessions.choosing import chosen
from dsh.errors import InvariantError, LlmError, SessionNotFound, UsageError
from dsh.hooks import frozen
from dsh.llm import LLM
from dsh.seams.persistence import PERSISTENCE
from dsh.session import SESSIONS, Session
from dsh.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dsh.agent import AgentHandle
    from dsh.boot import Harness, Plan
    from dsh.cli.grammar.arguments import RunOptions
    from dsh.hooks import Scope
    from dsh.wire import StoredEvent

__all__ = ["Opened", "opened"]

SCRIPTED: Final = "scripted"


@frozen(kw_only=True, slots=True, eq=False)
class Opened:
    """A session that is live. `stored`: how many of its events the store had before."""

    handle: AgentHandle
    session: Session
    stored: int


async def opened(
    harness: Harness,
    options: RunOptions,
    plan: Plan,
    say: Callable[[str], None],
    named: Callable[[str], None],
) -> Opened:
    """Check provider and key, choose the session, create or resume it.

    `named` is told the session's id before it exists, so that no event of it is missed. Raises
    UsageError, MissingCredential, SessionBusy and the store's own refusals; cancellable, and then
    there is no session (or the resumed one is as it was).
    """
    _check(harness, options.provider)  # before it is asked which model of it
    place = await _opened(harness, options, plan, say, named)
    for line in _strange_tools(harness, place.handle.agent.scope, options.allow):
        say(line)
    return place


async def _opened(
    harness: Harness,
    options: RunOptions,
    plan: Plan,
    say: Callable[[str], None],
    named: Callable[[str], None],
) -> Opened:
    if options.resume is not None:
        store = harness.service(PERSISTENCE)
        summary = await chosen(store, options.resume, plan.cwd)
        return await _resumed(harness, options, plan, summary.id, say, named)
    route = _route(options, plan)
    _check(harness, route.provider)
    if options.session is not None:
        try:
            return await _resumed(harness, options, plan, options.session, say, named)
        except SessionNotFound:
            pass  # its first use
    session_id = options.session if options.session is not None else f"s{uuid4().hex[:10]}"
    named(session_id)
    handle = await harness.agents.create(session_id, options=route, cwd=str(plan.cwd))
    say(f"session {session_id}\n")
    return Opened(handle=handle, session=_session(harness, session_id), stored=0)


async def _resumed(
    harness: Harness,
    options: RunOptions,
    plan: Plan,
    session_id: str,
    say: Callable[[str], None],
    named: Callable[[str], None],
) -> Opened:
    log = await read_known(harness.service(PERSISTENCE), session_id)
    cwd = log.header.cwd
    if cwd is not None and Path(cwd) != plan.cwd:
        workspace(Path(cwd))
        say(f"session {session_id} works in {cwd}, not here\n")
    wish = _logged_route(log.events, options) or _route(options, plan)
    _check(harness, wish.provider)
    named(session_id)
    handle = await harness.agents.resume(session_id, options=wish)
    turns = handle.agent.turn
    say(f"session {session_id} resumed after {turns} turn{'' if turns == 1 else 's'}\n")
    return Opened(handle=handle, session=_session(harness, session_id), stored=len(log.events))


def _route(options: RunOptions, plan: Plan) -> records.AgentOptions:
    """Provider and model of a new session: as asked, else as the profile has them."""
    provider = options.provider if options.provider is not None else plan.profile.provider
    model = options.model
    if model is None and provider == plan.profile.provider:
        model = plan.profile.model
    if model is None and provider == SCRIPTED:
        model = SCRIPTED  # it has no models: the script is the model
    if model is None:
        raise UsageError(f"which model of {provider!r}? add --model NAME")
    return records.AgentOptions(provider=provider, model=model)


def _logged_route(
    events: Sequence[StoredEvent], options: RunOptions
) -> records.AgentOptions | None:
    """What the session used last, where the command line says nothing else."""
    if options.provider is not None:
        return None
    for event in reversed(events):
        if isinstance(event.data, ev.request.Header):
            config = event.data.header.config
            model = options.model if options.model is not None else config.model
            return records.AgentOptions(provider=config.provider, model=model)
    return None


def _check(harness: Harness, provider: str | None) -> None:
    """Refuse a provider that nobody serves, or whose key cannot be sent, before anything is."""
    if provider is not None:
        try:
            harness.service(LLM).verify(provider)
        except LlmError as error:
            raise UsageError(error.message) from error


def _strange_tools(harness: Harness, scope: Scope, allowed: Sequence[str]) -> Iterator[str]:
    """A line for each `--allow` that names no tool there is: what it means to allow is denied."""
    names = [tool.name for tool in harness.service(TOOLS).schemas(scope)]
    for one in allowed:
        tool = one.partition(":")[0]
        if tool not in names and not any(letter in tool for letter in "*?["):
            hint = did_you_mean(tool, names)
            yield f"warning: --allow {one_line(one)}: there is no tool {one_line(tool)!r}{hint}\n"


def _session(harness: Harness, session_id: str) -> Session:
    session = harness.service(SESSIONS).get(session_id)
    if session is None:
        raise InvariantError(f"the agent of session {session_id!r} is live without its session")
    return session
