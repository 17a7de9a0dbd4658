"""Which front a conversation gets: the window where a terminal can be redrawn, else plain lines.

What comes in: the screen, the environment, `--plain`. What goes out: a front. The editor's library
is imported here and only for the window; it is the extra `chat`, and plain lines do without it.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dsh.cli.chat.plain_front import PlainFront

if TYPE_CHECKING:
    from dsh.boot import Plan
    from dsh.cli.chat.front import Front
    from dsh.cli.screen.outputs import Screen
    from dsh.seams.environ import Environ

__all__ = ["chosen_front", "editor_is_there"]

COLUMNS_MIN: Final = 30
ROWS_MIN: Final = 6


def chosen_front(
    plan: Plan, screen: Screen, environ: Environ, *, plain: bool
) -> tuple[Front, bool]:
    """The front, and whether it redraws (and so sends escapes)."""
    term = environ.get("TERM") or "dumb"
    input_is_terminal = sys.stdin is not None and os.isatty(0)
    if (
        plain
        or environ.get("ACCESSIBLE")
        or term == "dumb"
        or not input_is_terminal
        or not screen.out.is_terminal
        or _too_small()
    ):
        return PlainFront(screen, prompts=input_is_terminal and screen.out.is_terminal), False
    if not editor_is_there():
        screen.say("plain lines; for the editor: pip install 'dsh-trio[chat]'\n")
        return PlainFront(screen, prompts=True), False
    # Imported here: 0.2 s that only the window needs.
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415

    from dsh.cli.chat.window import ChatWindow  # noqa: PLC0415

    plan.places.prepare()
    history = plan.places.state / "history"
    history.touch(mode=0o600)
    return ChatWindow(colored=screen.colored, term=term, history=FileHistory(str(history))), True


def editor_is_there() -> bool:
    """Whether the extra `chat` is installed."""
    return find_spec("prompt_toolkit") is not None


def _too_small() -> bool:
    size = os.get_terminal_size(1)
    return 0 < size.columns < COLUMNS_MIN or 0 < size.lines < ROWS_MIN
