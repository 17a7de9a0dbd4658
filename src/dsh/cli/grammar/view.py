"""The grammar of `dsh view`, and of what `dsh sessions show` can be asked for.

What comes in: the holder of commands, and what argparse read. What goes out: their parsers, typed
options, and the words of their help.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from dsh.cli.grammar.shared import Commands, Shared, add_shared, common, number
from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.cli.grammar.shared import Parser

__all__ = ["ViewOptions", "add_telling", "add_view", "view_options"]

VIEW: Final = """\
Makes one HTML file of a session: turns, steps, tries and tool calls on a time axis; what the model
saw at any step and what changed since the one before; search, filters, links, keys (? lists them).
The file needs no network and asks for none. It holds full prompts and results.

  dsh view --open                     the newest session here, in your browser
  dsh view s7f3 -o s7f3.html          a file to keep or to send
  dsh view s7f3 -o out.html --redact  with what looks like a key masked, best effort
  dsh view --follow --open            while it runs; Ctrl-C ends the following, not the session

Without -o the file goes to the state directory; its path is printed.
"""


@frozen(kw_only=True, slots=True)
class ViewOptions(Shared):
    """`dsh view`. `session` is None for the newest one, `output` for the state directory."""

    session: str | None
    output: Path | None
    open: bool
    follow: bool
    full: bool
    redact: bool


def add_view(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "view",
        help="a session as one page: times, requests, changes",
        description=VIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "session",
        metavar="SESSION",
        nargs="?",
        help="an id, the beginning of one, or `last` (the default): the newest of this directory",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="where to write it; `-` prints it"
    )
    parser.add_argument("--open", action="store_true", help="show it in your browser")
    parser.add_argument(
        "--follow", action="store_true", help="serve it on this machine and keep it up to date"
    )
    parser.add_argument(
        "--full", action="store_true", help="keep texts whole that are longer than 64 KiB"
    )
    parser.add_argument(
        "--redact", action="store_true", help="mask what looks like a key, best effort"
    )
    add_shared(parser)


def add_telling(show: Parser) -> None:
    """Add what `dsh sessions show` can be asked for."""
    show.add_argument("--step", metavar="TURN.STEP", help="this step only")
    show.add_argument(
        "--saw", action="store_true", help="what the model was sent at that step, and what changed"
    )
    show.add_argument(
        "--vs", dest="versus", metavar="TURN.STEP", help="compare with the request of this step"
    )
    show.add_argument("--seq", type=number, metavar="N", help="this event, as it is stored")
    show.add_argument("--grep", metavar="PATTERN", help="what says this, anywhere in its texts")
    show.add_argument("--format", dest="form", choices=("text", "md", "json"), default="text")


def view_options(given: Mapping[str, object]) -> ViewOptions:
    """What argparse read, typed. Raises UsageError for options that exclude each other."""
    output = cast("Path | None", given["output"])
    follow = given["follow"] is True
    if follow and output is not None:
        raise UsageError(
            "--follow serves the page and writes no file; "
            "leave out --output, and save the page from the browser"
        )
    return ViewOptions(
        **common(given),
        session=cast("str | None", given["session"]),
        output=output,
        open=given["open"] is True,
        follow=follow,
        full=given["full"] is True,
        redact=given["redact"] is True,
    )
