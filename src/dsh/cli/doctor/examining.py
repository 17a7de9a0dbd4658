"""What is wrong with a running house, and with one session, each with its remedy.

What comes in: a house, its plan, a stored log. What goes out: findings. Everything is looked at as
it is; only `asked` sends something, one small request to the chosen model, and only when told to.
No secret is ever part of a finding.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot import rows_of, written_values
from dsh.catalog.records import AbortedFinish, ErrorFinish, FinishChunk
from dsh.cli.doctor.findings import Finding, Status
from dsh.cli.screen.inert import one_line
from dsh.errors import HarnessError, MissingCredential
from dsh.hooks.live import LlmRequest
from dsh.kernel import FiberProblem, FiberState
from dsh.llm import LLM
from dsh.session import verify
from dsh.wire import UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh.boot import Harness, Plan
    from dsh.wire import StoredLog

__all__ = ["asked", "looked_at", "session_findings", "values_of"]

ONLINE_SECONDS: Final = 20.0
#: Enough for a reply to begin; what it says does not matter.
ONLINE_TOKENS: Final = 16
#: Parts of a configuration whose values are never shown.
HIDDEN: Final = ("headers",)


def looked_at(harness: Harness, plan: Plan) -> Iterator[Finding]:
    """Rows, listeners and keys of a house."""
    yield from _plugins(harness, plan)
    yield from _listeners(harness)
    yield from _keys(harness, plan)


def _plugins(harness: Harness, plan: Plan) -> Iterator[Finding]:
    problems = harness.kernel.audit()
    for problem in problems:
        place = harness.rows.get(problem.id)
        where = f" (row at {place.row.row.place})" if place is not None else ""
        optional = place is not None and place.row.row.optional
        yield Finding(
            "warn" if optional else "FAIL",
            "plugin",
            f"{problem.reason}{where}",
            _remedy(problem, plan),
        )
    for issue in plan.composition.skipped:
        yield Finding("warn", "plugin", f"optional row left out: {issue}")
    if not problems:
        views = rows_of(harness)
        yield Finding("ok", "plugin", f"{len(views)} rows, all active: dsh plugins lists them")


def _remedy(problem: FiberProblem, plan: Plan) -> str:
    off = f"switch it off: a row with `id: {problem.id}` and `disabled: true`"
    if problem.cycle:
        return f"disable one of {', '.join(problem.cycle)}"
    if problem.state is FiberState.PENDING:
        for row in plan.composition.disabled:
            if row.name in problem.missing or row.id in problem.missing:
                return f'delete "disabled: true" of the row {row.id!r} (first at {row.place})'
        return f"add a row whose plugin provides {', '.join(problem.missing)}, or {off}"
    return f"repair it at the place named, or {off}"


def _listeners(harness: Harness) -> Iterator[Finding]:
    count = 0
    silent = False
    for view in rows_of(harness):
        for row in view.listeners:
            count += 1
            if row.never is not None:
                silent = True
                text = f"{row.plugin} at {row.place} can never run: {row.never}"
                yield Finding("warn", "listener", text)
    if not silent:
        yield Finding("ok", "listener", f"{count} registered, each can be reached")


def _keys(harness: Harness, plan: Plan) -> Iterator[Finding]:
    """Whether each route could be used now; only the profile's own provider has to be."""
    llm = harness.kernel.root.get(LLM)
    if llm is None:
        yield Finding("skip", "key", "skipped: the model seam is not active")
        return
    for provider in sorted(llm.routes()):
        try:
            llm.verify(provider)
        except HarnessError as error:
            problem, _, remedy = str(error).partition("; ")
            needed = provider == plan.profile.provider
            lesser: Status = "warn" if isinstance(error, MissingCredential) else "skip"
            yield Finding(
                "FAIL" if needed else lesser, "key", f"{provider}: {problem}", remedy or None
            )
        else:
            yield Finding("ok", "key", f"{provider}: usable")


async def asked(harness: Harness, plan: Plan) -> list[Finding]:
    """Send one small request to the profile's model. Cancellable."""
    provider, model = plan.profile.provider, plan.profile.model
    route = f"{provider}/{model}"
    llm = harness.kernel.root.get(LLM)
    if llm is None or provider not in llm.routes():
        return [Finding("skip", "online", f"skipped: nobody serves {provider}")]
    clock = harness.context.clock
    began = clock.now_ms()
    request = LlmRequest(
        provider=provider,
        model=model,
        messages=(user_message("Say ok."),),
        max_tokens=ONLINE_TOKENS,
    )
    failure = f"no answer within {ONLINE_SECONDS:.0f} s"
    with trio.move_on_after(ONLINE_SECONDS):
        try:
            async with llm.stream(request) as chunks:
                async for chunk in chunks:
                    if not isinstance(chunk, FinishChunk):
                        continue
                    if not isinstance(chunk.reason, ErrorFinish | AbortedFinish):
                        took = (clock.now_ms() - began) / 1000
                        return [Finding("ok", "online", f"{route} answered in {took:.1f} s")]
                    found = chunk.reason.failure
                    failure = f"{found.code}: {found.message}"
        except HarnessError as error:
            failure = str(error)
    problem, _, remedy = one_line(failure).partition("; ")
    do = remedy or f"look at the address, the key and the model of {provider}: dsh doctor --values"
    return [Finding("FAIL", "online", f"{route}: {problem}", do)]


def values_of(plan: Plan) -> Iterator[Finding]:
    """Every configured value, and where it was written."""
    for one in written_values(plan):
        shown = "(hidden)" if any(part in HIDDEN for part in one.path) else repr(one.value)
        yield Finding("ok", "value", f"{'.'.join(one.path)} = {one_line(shown)}   {one.place}")


def session_findings(
    harness: Harness, log: StoredLog, *, is_open: bool = False
) -> Iterator[Finding]:
    """What is wrong with one session, or that nothing is. `is_open`: somebody works on it now."""
    name, header = log.header.id, log.header
    found = list(_session_faults(log)) if not is_open else []
    found += _route_faults(harness, log)
    if header.cwd is not None and not Path(header.cwd).is_dir():
        found.append(
            Finding(
                "FAIL", "session", f"its workspace {header.cwd} is gone", f"mkdir -p {header.cwd}"
            )
        )
    for owner, count in sorted(_unknown(log).items()):
        text = f"{count} events of {owner}, which is not installed; they are kept as they are"
        found.append(Finding("warn", "session", text, f"pip install {owner.partition('@')[0]}"))
    yield from found
    if not found:
        turns = sum(isinstance(event.data, ev.turn.End) for event in log.events)
        size = f"{turns} turn{'s' * (turns != 1)}, {len(log.events)} events"
        yield Finding("ok", "session", f"{name} is sound: {size}")


def _session_faults(log: StoredLog) -> Iterator[Finding]:
    name = log.header.id
    for problem in verify(log):
        place = f"seq {problem.seq}: " if problem.seq is not None else ""
        if problem.seq is None and log.torn is not None:
            yield Finding("warn", "session", f"{name}: {problem.text}", f"dsh chat --resume {name}")
        else:
            text = f"{name}: {place}{problem.text}"
            yield Finding("FAIL", "session", text, f"dsh sessions salvage {name}")
    ends = [e.data for e in log.events if isinstance(e.data, ev.turn.Start | ev.turn.End)]
    if ends and isinstance(ends[-1], ev.turn.Start):
        text = f"{name}: turn {ends[-1].turn} was interrupted; the next resume closes it"
        yield Finding("warn", "session", text, f"dsh chat --resume {name}")


def _route_faults(harness: Harness, log: StoredLog) -> Iterator[Finding]:
    """Whether the model it used last could be asked again."""
    llm = harness.kernel.root.get(LLM)
    for event in reversed(log.events):
        if llm is not None and isinstance(event.data, ev.request.Header):
            provider = event.data.header.config.provider
            try:
                llm.verify(provider)
            except HarnessError as error:
                problem, _, remedy = str(error).partition("; ")
                other = f"dsh chat --resume {log.header.id} --provider NAME --model NAME"
                text = f"it used {provider} last: {problem}"
                yield Finding("warn", "session", text, remedy or other)
            return


def _unknown(log: StoredLog) -> dict[str, int]:
    """How many events of each plugin that this installation does not know."""
    found: dict[str, int] = {}
    for event in log.events:
        if isinstance(event.data, UnknownEvent):
            owner = event.owner or "an unknown plugin"
            found[owner] = found.get(owner, 0) + 1
    return found
