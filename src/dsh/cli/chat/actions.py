"""What the words after a slash do.

What comes in: the conversation and a word's argument. What goes out: lines on its front, the end.
The words about sessions are in `session_words` beside. Numbers and lists come from the same places
that the views read.
"""

from __future__ import annotations

from base64 import b64encode
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from dsh.boot import did_you_mean
from dsh.catalog.records import PluginSource, TextBlock
from dsh.cli.chat.session_words import (
    SESSION_WORDS,
    log_of,
    open_session,
    refuse_while_running,
    write_private,
)
from dsh.cli.chat.words import help_lines
from dsh.cli.doctor.examining import looked_at, session_findings
from dsh.cli.doctor.findings import lines_of, summary
from dsh.cli.screen.inert import clipped, inert, one_line
from dsh.cli.screen.questions import homely
from dsh.errors import UsageError
from dsh.seams.compaction import COMPACTION
from dsh.seams.token_meter import TOKEN_METER
from dsh.tools import TOOLS
from dsh.wire import UnknownEvent, encode_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from dsh.cli.chat.talk import Talk
    from dsh.hooks import JsonValue

__all__ = ["COMMANDS"]


async def _help(talk: Talk, _argument: str) -> None:
    for line in help_lines():
        talk.front.print(line)


async def _later(talk: Talk, argument: str) -> None:
    if not argument:
        raise UsageError("what should come after this turn? write /later TEXT")
    talk.later(argument)


async def _out(talk: Talk, argument: str) -> None:
    results = talk.transcript.results
    number = _number(argument, len(results), "output", "no tool has answered in this session yet")
    tool, result = results[number - 1]
    text = "\n".join(b.text for b in result.message.content if isinstance(b, TextBlock))
    talk.front.print(f"-- output {number}: {tool.name} {tool.subject}".rstrip() + " --")
    if tool.change is not None:
        talk.front.page(inert("\n".join(tool.change.lines)))
    talk.front.page(inert(text))


def _number(argument: str, count: int, what: str, none: str) -> int:
    """The one that is meant, from 1; the newest if none is named."""
    if not count:
        raise UsageError(none)
    number = int(argument) if argument.isdecimal() else count
    if (argument and not argument.isdecimal()) or not 0 < number <= count:
        raise UsageError(f"no {what} {argument!r}; there are 1 to {count}")
    return number


async def _copy(talk: Talk, argument: str) -> None:
    replies = talk.transcript.replies
    number = _number(argument, len(replies), "reply", "there is no reply to copy yet")
    reply = replies[number - 1]
    path = talk.plan.places.state / "last-reply.md"
    await write_private(path, reply + "\n")
    talk.front.clipboard(b64encode(reply.encode()).decode())
    talk.front.print(f"copied reply {number} of {len(replies)}; it is in {homely(str(path))}, too")


async def _context(talk: Talk, _argument: str) -> None:
    place, gauge = talk.place, talk.gauge()
    if place is None:
        raise UsageError("no session is open")
    meter = talk.harness.context.get(TOKEN_METER)
    messages = len(place.session.derive_messages())
    talk.front.print(f"session {gauge.session}, {gauge.model}, {messages} messages")
    if meter is None:
        talk.front.print("tokens are not counted: mount token-meter")
        return
    measured, usage = meter.measure(place.session), meter.usage(place.session).session
    about = "about " if gauge.estimated else ""
    window = f" of {gauge.window}" if gauge.window else ""
    talk.front.print(
        f"next request  {about}{measured.total_tokens}{window} tokens, "
        f"{measured.envelope_tokens} of them tool schemas"
    )
    talk.front.print(
        f"spent         in {usage.prompt_tokens}, {usage.cache_read_tokens} of them cached, "
        f"out {usage.output_tokens}, {usage.attempts} requests"
    )


async def _compact(talk: Talk, _argument: str) -> None:
    engine = talk.harness.context.get(COMPACTION)
    if engine is None:
        raise UsageError("nothing compacts here: add a row with the name compaction")
    refuse_while_running(talk, "/compact")
    if talk.place is not None and await engine.compact_now(talk.place.handle.agent) is None:
        talk.front.print("there is nothing to compact yet")


async def _compacted(talk: Talk, _argument: str) -> None:
    """The newest summary, whole: what the model reads in place of what it stands for."""
    session = open_session(talk)
    for message in reversed(session.derive_messages()):
        source = message.source
        if isinstance(source, PluginSource) and source.plugin == "compaction":
            text = "\n".join(b.text for b in message.content if isinstance(b, TextBlock))
            talk.front.page(inert(text))
            return
    raise UsageError("nothing was compacted in this session")


async def _tools(talk: Talk, _argument: str) -> None:
    scope = talk.place.handle.agent.scope if talk.place is not None else None
    for tool in talk.harness.service(TOOLS).schemas(scope):
        told = clipped(one_line(tool.description), max(talk.front.width - 14, 20))
        talk.front.print(f"{one_line(tool.name):<12} {told}")


async def _permissions(talk: Talk, _argument: str) -> None:
    """The rules in force, as the log has them."""
    events = talk.place.session.events if talk.place is not None else ()
    for event in reversed(events):
        owner = (event.owner or "").partition("@")[0]
        if owner == "permissions" and not isinstance(event.data, UnknownEvent):
            stored: dict[str, JsonValue] = orjson.loads(encode_line(event))
            for line in _rules(stored["data"]):
                talk.front.print(line)
            return
    talk.front.print("the rules are logged with the first request; there was none yet")


def _rules(data: JsonValue) -> Iterator[str]:
    """The payload of `permissions/rules` as rows: decision, tool, pattern, where it was written."""
    if not isinstance(data, dict):
        return
    rules, sources = data.get("rules"), data.get("sources")
    if not isinstance(rules, list) or not isinstance(sources, list):
        return
    for rule, source in zip_longest(rules, sources[: len(rules)], fillvalue=""):
        if isinstance(rule, dict):
            pattern = f" {rule['pattern']}" if "pattern" in rule else ""
            what = f"{rule.get('tool')}{pattern}"
            yield (
                one_line(f"{rule.get('decision')}").ljust(6)
                + f" {one_line(what):<32} {one_line(str(source))}".rstrip()
            )
    yield f"{one_line(str(data.get('ask'))):<6} everything else"


async def _plugins(talk: Talk, _argument: str) -> None:
    for one in talk.harness.rows.values():
        state = one.fiber.state.name.lower()
        path, _, line = one.fiber.spec.place.rpartition(":")
        place = f"{'/'.join(Path(path).parts[-2:])}:{line}"
        row = f"{one.row.row.id:<16} {state:<8} {one_line(place)}"
        talk.front.print(clipped(row, talk.front.width))


async def _model(talk: Talk, _argument: str) -> None:
    if talk.place is not None:
        options = talk.place.handle.agent.options
        talk.front.print(
            f"{options.provider}/{options.model}; another one: dsh chat --resume "
            f"{talk.session_id} --model NAME"
        )


async def _doctor(talk: Talk, _argument: str) -> None:
    findings = [
        *looked_at(talk.harness, talk.harness.live.plan),
        *session_findings(talk.harness, await log_of(talk), is_open=True),
    ]
    for line in lines_of(findings, talk.styled):
        talk.front.print(line)
    talk.front.print(summary(findings))


async def _thinking(talk: Talk, argument: str) -> None:
    talk.transcript.thinking_shown = _switch("/thinking", argument)
    talk.front.notice(f"thinking is {'shown' if talk.transcript.thinking_shown else 'not shown'}")


async def _debug(talk: Talk, argument: str) -> None:
    talk.debug = _switch("/debug", argument)
    talk.front.notice(f"debug is {'on' if talk.debug else 'off'}")


async def _quit(talk: Talk, _argument: str) -> None:
    talk.leave()


def _switch(word: str, argument: str) -> bool:
    if argument not in ("on", "off"):
        hint = did_you_mean(argument, ("on", "off")) if argument else "."
        raise UsageError(f"{word} takes on or off{hint}")
    return argument == "on"


COMMANDS: Final[dict[str, Callable[[Talk, str], Awaitable[None]]]] = {
    **SESSION_WORDS,
    "help": _help,
    "later": _later,
    "out": _out,
    "copy": _copy,
    "context": _context,
    "compact": _compact,
    "compacted": _compacted,
    "doctor": _doctor,
    "tools": _tools,
    "permissions": _permissions,
    "plugins": _plugins,
    "model": _model,
    "thinking": _thinking,
    "debug": _debug,
    "quit": _quit,
}
