"""`dsh view`: a session as one HTML file, or as a page that is kept up to date while it runs.

What comes in: typed options. What goes out: a file that only its owner may read, and its path on
standard output; or the address of a page on this machine, until Ctrl-C. A damaged log is shown as
far as it can be read. Nothing here writes to a session, or waits for one.
"""

from __future__ import annotations

import os
import secrets
import webbrowser
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio

from dsh.boot import places_of, process_environ
from dsh.cli.screen.figures import size_in_words
from dsh.cli.screen.inert import one_line
from dsh.cli.sessions.choosing import LAST, chosen
from dsh.cli.sessions.looking import as_far_as_readable, look
from dsh.cli.sessions.showing import document_of, facts_of
from dsh.cli.sessions.story import story
from dsh.errors import UsageError
from dsh.view import Facts

if TYPE_CHECKING:
    from dsh.cli.grammar.view import ViewOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.cli.sessions.looking import Found, Looking

__all__ = ["facts_with_story", "view"]

#: How much of the story stands in the page for readers without scripts.
NOSCRIPT_LINES: Final = 200
NOSCRIPT_WIDTH: Final = 100
STDOUT: Final = Path("-")


def view(options: ViewOptions) -> int:
    """Make the page. Returns the exit code; a refusal is said on standard error."""
    return look(options, _view)


async def _view(options: ViewOptions, looking: Looking) -> int:
    screen = looking.screen
    summary = await chosen(looking.store, options.session or LAST, looking.cwd)
    found = await as_far_as_readable(looking.store, summary)
    _warn(found, screen)
    document = document_of(found, full=options.full, redact=options.redact)
    if options.follow:
        from dsh.cli.sessions.following import following  # noqa: PLC0415

        return await following(options, looking, document, found, _show)
    page = document.whole(facts_with_story(found)).encode()
    if options.output == STDOUT:
        screen.out.data(page)
        return 0
    path = await trio.to_thread.run_sync(_written, found.id, options.output, page)
    screen.out.text(f"{path}\n")
    masked = f"{document.masked} texts masked, " if options.redact else ""
    count = len(found.events)
    screen.say(
        f"{count:,} events, {size_in_words(len(page))}, {masked}"
        "holds full prompts and results: mind whom you give it to\n"
    )
    if options.open:
        await _show(path.as_uri(), screen)
    return 0


def facts_with_story(found: Found) -> Facts:
    """What a page says of its log, with the beginning of the story for readers without scripts."""
    facts = facts_of(found)
    lines = tuple(islice(story(found, width=NOSCRIPT_WIDTH), NOSCRIPT_LINES))
    return Facts(
        session=facts.session,
        header=facts.header,
        damage=facts.damage,
        torn=facts.torn,
        noscript=lines,
    )


def _warn(found: Found, screen: Screen) -> None:
    if found.damage is not None:
        count = len(found.events)
        screen.say(
            f"warning: session {found.id} is damaged: {one_line(found.damage)}; "
            f"the {count:,} events before that are shown\n"
        )


def _written(session: str, output: Path | None, page: bytes) -> Path:
    """Put the page in place at once, for its owner alone. Returns where; raises UsageError."""
    views = places_of(process_environ()).state / "views"
    name = f"{quote(session, safe='')[:200]}.html"
    path = views / name if output is None else output.absolute()
    try:
        if output is None:
            views.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, page)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; name another file with -o FILE"
        ) from error
    return path


def _replace(path: Path, page: bytes) -> None:
    if path.exists() and not path.is_file():
        path.write_bytes(page)  # a pipe or a device
        return
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(page)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


async def _show(address: str, screen: Screen) -> None:
    """Ask the person's browser to show it. That it cannot is said, and no failure."""
    shown = await trio.to_thread.run_sync(webbrowser.open, address, abandon_on_cancel=True)
    if not shown:
        screen.say("no browser was found; open it yourself\n")
