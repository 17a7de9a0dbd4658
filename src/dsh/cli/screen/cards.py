"""Tool calls in a line or two: what was asked, how it ended, a glance at the output.

What comes in: the log's `tool/call` and `tool/result` payloads. What goes out: short inert texts.
It knows the habits of tool parameters (a command, a path), never a particular tool's code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import orjson

from dsh.catalog.records import TextBlock
from dsh.cli.screen.inert import one_line
from dsh.cli.screen.previews import parsed_arguments
from dsh.hooks import frozen
from dsh.seams.previews import PreviewLines

if TYPE_CHECKING:
    from dsh import catalog as ev

__all__ = ["Outcome", "outcome_of", "seconds", "subject_of"]

#: Parameters that say best what a call is about, in order.
TELLING: Final = ("command", "path", "pattern", "query", "url")
#: How the result of a program that failed says so, in its last line.
EXIT_LINE: Final = re.compile(r"\[exit (?:status|code) (-?\d+)\]")
#: What a tool says of a page of lines below it: `[lines 1-5 of 5, 213 bytes]`.
FOOT_LINE: Final = re.compile(r"\[lines? \d.*\]")
#: Deciders that a person knows under another name.
YOU: Final = {"terminal": "you"}
SHOWN: Final = PreviewLines()
MINUTE_TENTHS: Final = 600


@frozen(kw_only=True, slots=True)
class Outcome:
    """How a call ended, for a line. `preview` are the last lines of its output, inert."""

    summary: str
    preview: tuple[str, ...]
    hidden: int
    denied_by: str | None
    failed: bool


def subject_of(call: ev.tool.Call) -> str:
    """What the call is about, on one line."""
    arguments = parsed_arguments(call.arguments)
    if not isinstance(arguments, dict):
        return one_line(call.arguments)
    named = cast("dict[str, object]", arguments)
    for key in TELLING:
        value = named.get(key)
        if isinstance(value, str):
            return one_line(value)
    said = {key: one if isinstance(one, str) else _json(one) for key, one in named.items()}
    if len(said) == 1:
        return one_line(next(iter(said.values())))
    return one_line(", ".join(f"{key}: {value}" for key, value in said.items()))


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def outcome_of(result: ev.tool.Result, lines: PreviewLines = SHOWN) -> Outcome:
    """How it ended, with as much of its output as `lines` says."""
    message = result.message
    text = "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
    printed = [line for line in text.splitlines() if line.strip()]
    status = _status(result)
    if status is None and printed and (ended := EXIT_LINE.fullmatch(printed[-1].strip())):
        status = int(ended[1])
        printed.pop()
    footed = bool(printed) and not message.is_error and FOOT_LINE.fullmatch(printed[-1]) is not None
    if footed:
        printed.pop()
    failed = message.is_error or (status is not None and status != 0)
    # What a tool puts a foot under is a page of something that can be read elsewhere.
    shown = lines.failed if failed else lines.tool * (not footed)
    denied = result.decided_by is not None and message.is_error
    if denied:
        shown = max(shown, SHOWN.failed)  # it names the remedy
    last = printed[max(len(printed) - shown, 0) :]
    preview = tuple(one_line(line.removeprefix("Error: ")) for line in last)
    if denied and result.decided_by is not None:
        summary = f"denied by {YOU.get(result.decided_by, result.decided_by)}"
    elif status is not None:
        summary = f"exit {status}"
    elif message.is_error:
        summary = result.error.code if result.error is not None else "failed"
    else:
        summary = "1 line" if len(printed) == 1 else f"{len(printed)} lines"
    return Outcome(
        summary=one_line(summary),
        preview=preview,
        hidden=0 if footed and not failed else max(len(printed) - len(preview), 0),
        denied_by=result.decided_by if message.is_error else None,
        failed=failed,
    )


def _status(result: ev.tool.Result) -> int | None:
    """The exit status a tool put into its display data, if it runs programs."""
    meta = result.meta
    if isinstance(meta, Mapping):
        for key in ("exit_code", "exitCode"):
            value = meta.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def seconds(milliseconds: int) -> str:
    """A span as people read it: `0.4 s`, `2 min 04 s`."""
    tenths = max(milliseconds, 0) // 100
    if tenths < MINUTE_TENTHS:
        return f"{tenths / 10:.1f} s"
    minutes, rest = divmod(tenths // 10, 60)
    return f"{minutes} min {rest:02} s"
