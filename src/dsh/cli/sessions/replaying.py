"""`dsh sessions replay`: a recorded session run again in memory, with the recording as its model.

What comes in: a stored session. What goes out: one line for each turn on standard output, the same
or the first difference; exit code 1 if anything differs. No request leaves, no tool body runs, and
nothing is stored.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dsh import catalog as ev
from dsh.agent import CreateAgent
from dsh.boot import Row, mounted, planned, read_known
from dsh.catalog import records
from dsh.cli.screen.inert import one_line
from dsh.cli.screen.progress import reason_in_words
from dsh.errors import UsageError
from dsh.hooks import frozen
from dsh.session import SESSIONS, RecordedTurn, Recording, is_regenerated
from dsh.wire import encode_header, encode_rows

if TYPE_CHECKING:
    from dsh.boot import Harness, Plan
    from dsh.cli.grammar.sessions import SessionsOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.seams.persistence import SessionPersistence, SessionSummary
    from dsh.wire import StoredLog

__all__ = ["Told", "replaying", "verdict"]

DIFFERS: Final = "REPLAY_DIFFERS"
ENDED: Final = "REPLAY_ENDED"
STORES: Final = ("session-jsonl", "session-sqlite")


async def replaying(
    options: SessionsOptions, store: SessionPersistence, summary: SessionSummary, screen: Screen
) -> int:
    """Replay a session, or one turn of it. Raises UsageError for a turn that is not there."""
    log = await read_known(store, summary.id)
    recording = Recording(log.events)
    turns = _wanted(recording, options.turn)
    different = 0
    with tempfile.TemporaryDirectory(prefix="dsh-replay-") as folder:
        path = Path(folder) / "session.jsonl"
        lines = encode_header(log.header) + b"\n" + encode_rows(log.events)
        await trio.to_thread.run_sync(path.write_bytes, lines)
        async with mounted(_plan(options, path, log)) as harness:
            for turn in turns:
                told = await _replayed(harness, log, recording, turn)
                different += told.differs
                screen.out.text(f"turn {turn.number}: {one_line(told.text)}\n")
                await screen.flushed()
    screen.say(f"{summary.id}: {len(turns)} replayed, {different} different\n")
    return 1 if different else 0


def _wanted(recording: Recording, number: int | None) -> tuple[RecordedTurn, ...]:
    if number is None:
        return tuple(recording.turns.values())
    if number not in recording.turns:
        raise UsageError(f"--turn {number}: the session has {len(recording.turns)} turns")
    return (recording.turns[number],)


def _plan(options: SessionsOptions, path: Path, log: StoredLog) -> Plan:
    """The composition of a run, without a store, with the recording before everything else.

    Every call is allowed, because no body runs; whatever was denied then is answered as it was.
    """
    rows = [Row(name=name, disabled=True) for name in STORES]
    rows.append(Row(name="replay", config={"log": str(path)}))
    allow = {"decision": "allow", "tool": "*"}
    rows.append(Row(name="permissions", config={"rules": [allow]}))
    cwd = Path(log.header.cwd) if log.header.cwd is not None else options.cwd
    return planned(
        options.config,
        profile=options.profile,
        rows=rows,
        sets=options.sets,
        cwd=cwd if cwd is not None and cwd.is_dir() else None,
    )


@frozen(slots=True)
class Told:
    """How a turn went, for its line."""

    text: str
    differs: bool


async def _replayed(
    harness: Harness, log: StoredLog, recording: Recording, turn: RecordedTurn
) -> Told:
    """One turn on the recorded history before it."""
    prompt = _prompt(recording, turn)
    if prompt is None:
        return Told("no prompt reached the model; nothing to replay", differs=False)
    handle = await harness.agents.make(
        CreateAgent(
            session_id=f"replay-{turn.number}-{log.header.id}",
            options=_options(next(iter(turn.steps.values()))[0].header),
            cwd=log.header.cwd,
            seed=log.events[: turn.start],
            parent_session=log.header.id,
        )
    )
    try:
        outcome = await handle.agent.ask(prompt)
        steps = _steps(harness, handle.agent.id, turn.number)
    finally:
        await handle.aclose()
    match outcome.reason:
        case records.ErrorTurnEnd(error=failure) if failure.code == DIFFERS:
            return Told(f"differs at {failure.message}", differs=True)
        case records.ErrorTurnEnd(error=failure) if failure.code == ENDED:
            return Told(
                f"the same up to where the recording ends ({failure.message})", differs=False
            )
        case _:
            return verdict(turn, outcome.reason, steps)


def _prompt(recording: Recording, turn: RecordedTurn) -> records.UserMessage | None:
    """The message that started the turn; the player adds the others where they were admitted."""
    if not turn.steps:
        return None
    admitted = [m for m in recording.admitted(turn.number, 1) if not is_regenerated(m)]
    return admitted[0] if admitted else None


def _options(header: records.EpochHeader) -> records.AgentOptions:
    """What the agent asked for, without what the adapter had filled in."""
    config, marks = header.config, header.adapter_defaults
    return records.AgentOptions(
        provider=config.provider,
        model=config.model,
        reasoning_effort=None if marks and marks.reasoning_effort else config.reasoning_effort,
        max_tokens=None if marks and marks.max_tokens else config.max_tokens,
    )


def _steps(harness: Harness, session_id: str, turn: int) -> int:
    """How many steps this turn of a live session had."""
    session = harness.service(SESSIONS).get(session_id)
    events = () if session is None else session.events
    return sum(isinstance(one.data, ev.step.Start) and one.data.turn == turn for one in events)


def verdict(turn: RecordedTurn, reason: records.TurnEndReason, steps: int) -> Told:
    """What a replayed turn showed in which no request and no history differed."""
    then = "never ended" if turn.end is None else reason_in_words(turn.end)
    if reason != turn.end:
        return Told(f"{reason_in_words(reason)} now, recorded was: {then}", differs=True)
    if steps != len(turn.steps):
        told = f"differs: {steps} steps now, {len(turn.steps)} were recorded"
        return Told(told, differs=True)
    requests = sum(len(attempts) for attempts in turn.steps.values())
    return Told(f"the same, {requests} request{'' if requests == 1 else 's'}", differs=False)
