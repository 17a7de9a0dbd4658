"""`dsh sessions show`: a session as a story, or a part: a step's request, an event, a search.

What comes in: typed options and the store. What goes out: text, or JSON for programs, on standard
output. A damaged log is told as far as it can be read, and what is missing is said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import orjson

from dsh import catalog as ev
from dsh.catalog.records import ReasoningBlock, TextBlock, ToolCallBlock
from dsh.cli.screen.inert import clipped, inert, one_line
from dsh.cli.sessions.looking import as_far_as_readable
from dsh.cli.sessions.markdown import markdown
from dsh.cli.sessions.positions import step_named, steps_of
from dsh.cli.sessions.story import WORDS, story, trajectory_of
from dsh.errors import UsageError
from dsh.session import message_of
from dsh.view import Document, Facts, Trajectory, compared, sent_at
from dsh.wire import encode_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh.catalog.records import ContentBlock
    from dsh.cli.grammar.sessions import SessionsOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.cli.sessions.looking import Found
    from dsh.seams.persistence import SessionPersistence, SessionSummary
    from dsh.view import Request, Row
    from dsh.wire import StoredEvent

__all__ = ["document_of", "facts_of", "showing"]

PIPE_WIDTH: Final = 100
SIGNS: Final = {"unchanged": " ", "added": "+", "removed": "-", "replaced": "-"}
Wanted: TypeAlias = "Callable[[Row], bool]"


async def showing(
    options: SessionsOptions,
    store: SessionPersistence,
    summary: SessionSummary,
    screen: Screen,
) -> int:
    """Print what was asked for. Returns the exit code; raises UsageError for what is not there."""
    _refuse_together(options)
    found = await as_far_as_readable(store, summary)
    _refuse_absent(found, options)
    width = screen.width if screen.out.is_terminal else PIPE_WIDTH
    if options.seq is not None:
        screen.out.text(_event(found, options.seq))
    elif options.saw or options.versus is not None:
        for line in _saw(found, options, width):
            screen.out.text(line + "\n")
    elif options.form == "json":
        screen.out.data(_as_json(found) + b"\n")
    elif options.form == "md":
        for line in markdown(found, turn=options.turn):
            screen.out.text(line + "\n")
    else:
        wanted = _wanted(found, options)
        count = 0
        for line in story(found, width=width, turn=options.turn, wanted=wanted):
            screen.out.text(line + "\n")
            count += 1
        if wanted is not None:
            screen.say(f"{count} rows\n")
    return 0


def document_of(found: Found, *, full: bool = False, redact: bool = False) -> Document:
    """The page of a log, in the command line's words. `full`: nothing is cut."""
    document = Document(Trajectory(WORDS), full=full, redact=redact)
    document.see_all(found.events)
    return document


def facts_of(found: Found) -> Facts:
    """What a page says about this log as a whole."""
    return Facts(
        session=found.id,
        header=found.header,
        damage=None if found.damage is None else one_line(found.damage),
        torn=None if found.torn is None else one_line(found.torn),
    )


def _as_json(found: Found) -> bytes:
    """What the page knows without the bodies: turns, steps, requests, rows, spans, sums."""
    return document_of(found).index(facts_of(found))


def _event(found: Found, seq: int) -> str:
    """One stored event, for reading."""
    for event in found.events:
        if event.seq == seq:
            row: object = orjson.loads(encode_line(event))
            return inert(orjson.dumps(row, option=orjson.OPT_INDENT_2).decode()) + "\n"
    last = found.events[-1].seq if found.events else "none"
    raise UsageError(f"--seq {seq}: there is no such event; the last one is {last}")


def _refuse_together(options: SessionsOptions) -> None:
    """Raise UsageError for options of which one would be forgotten."""
    if options.form == "text" or options.seq is not None or options.saw:
        return
    parts = {"--step": options.step, "--grep": options.grep}
    if options.form == "json":
        parts["--turn"] = None if options.turn is None else str(options.turn)
    what = "whole turns" if options.form == "md" else "the whole session"
    for name, given in parts.items():
        if given is not None:
            raise UsageError(f"--format {options.form} tells {what}; leave out {name}")


def _refuse_absent(found: Found, options: SessionsOptions) -> None:
    """Raise UsageError for a turn or a step that the session does not have."""
    steps = steps_of(found.events)
    turns = [one.data.turn for one in found.events if isinstance(one.data, ev.turn.Start)]
    if options.turn is not None and options.turn not in turns:
        has = f"its last one is {turns[-1]}" if turns else "it has none yet"
        raise UsageError(f"the session has no turn {options.turn}; {has}")
    if options.step is not None and step_named(options.step) not in steps:
        has = f"its last one is {steps[-1][0]}.{steps[-1][1]}" if steps else "it has none yet"
        raise UsageError(f"the session has no step {options.step}; {has}")


def _wanted(found: Found, options: SessionsOptions) -> Wanted | None:
    """Which rows are asked for alone, if some are."""
    if options.grep is not None:
        try:
            pattern = re.compile(options.grep, re.IGNORECASE)
        except re.error as error:
            raise UsageError(f"--grep {options.grep!r} is no pattern: {error}") from None
        events = {event.seq: event for event in found.events}
        return lambda row: any(_says(pattern, events[seq]) for seq in row.seqs)
    if options.step is not None:
        turn, step = step_named(options.step)
        return lambda row: (row.turn, row.step) == (turn, step)
    return None


def _says(pattern: re.Pattern[str], event: StoredEvent) -> bool:
    row = cast("dict[str, object]", orjson.loads(encode_line(event)))
    return any(pattern.search(text) for text in _texts(row.get("data")))


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value."""
    match value:
        case str():
            yield value
        case list():
            for one in cast("list[object]", value):
                yield from _texts(one)
        case dict():
            for one in cast("dict[str, object]", value).values():
                yield from _texts(one)
        case _:
            pass


def _request(trajectory: Trajectory, text: str | None) -> tuple[int, Request]:
    """The last request of a step, or of the session; with its index."""
    requests = trajectory.tables.requests
    if not requests:
        raise UsageError("nothing was sent to a model in this session")
    if text is None:
        return len(requests) - 1, requests[-1]
    turn, step = step_named(text)
    found = [
        (place, one) for place, one in enumerate(requests) if (one.turn, one.step) == (turn, step)
    ]
    if not found:
        last = requests[-1]
        raise UsageError(
            f"no request was sent in step {text}; the last one was in {last.turn}.{last.step}"
        )
    return found[-1]


def _saw(found: Found, options: SessionsOptions, width: int) -> Iterator[str]:
    """What the model was shown at a step, and what changed since the request before, or `--vs`."""
    trajectory = trajectory_of(found.events)
    events = {event.seq: event for event in found.events}
    ops = trajectory.tables.ops
    place, request = _request(trajectory, options.step)
    if options.versus is not None:
        _, other = _request(trajectory, options.versus)
    else:
        other = trajectory.tables.requests[place - 1] if place else request
    now, before = sent_at(ops, request, events), sent_at(ops, other, events)
    yield (
        f"request {request.turn}.{request.step}, {len(now.nodes)} messages, "
        f"compared with {other.turn}.{other.step}"
    )
    if request.input is not None:
        yield f"input {request.input:,} tokens, {request.cache_read or 0:,} of them from the cache"
    if now.header != before.header:
        yield f"~ settings or tools: #{before.header} -> #{now.header}"
    for change in compared(ops, now, before):
        message = message_of(events[change.seq])
        if message is None:
            continue
        text = one_line(" ".join(_block_text(block) for block in message.content))
        head = f"{SIGNS[change.what]} {f'#{change.seq}':>6} {message.role:<9} "
        yield clipped(head + text, width)


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return text
        case ToolCallBlock(name=name, arguments=arguments):
            return f"{name} {arguments}"
        case _:
            return f"[{block.type}]"
