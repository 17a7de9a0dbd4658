"""The keys of the window: what each does, and what is known of the draft that they make.

What comes in: keys and pastes, in the editor's thread. What goes out: calls on the window. A key
meant for one thing never does another: what came in one burst is text, not a command.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Protocol, final

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.filters import Condition, Filter, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from dsh.cli.chat.front import Picked
from dsh.cli.chat.words import completed

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

    from dsh.cli.chat.front import PickAction, View

__all__ = ["Draft", "bindings"]

#: Keys that come this soon after each other came in one burst, in seconds.
BURST: Final = 0.010
#: After so many keys of one burst an Enter was pasted; fewer may be a machine that lags.
BURST_KEYS: Final = 4
#: Terminals that put no brackets around a paste, by TERM.
BARE: Final = frozenset({"ansi", "linux", "vt100", "vt102", "vt220"})
FOLD_LINES: Final = 20
#: How long a stop that was sent to a group may take to reach this process, in seconds.
STOPPING_SECONDS: Final = 0.2
FOLDED: Final = re.compile(r"\[pasted (\d+) lines #(\d+): Ctrl-O unfolds\]")


@final
class Draft:
    """What is known of the text in the editor: since when, and whether it was pasted."""

    def __init__(self, term: str) -> None:
        self._bare: Final = term in BARE
        self.since: float | None = None
        self.pasted = False
        self._last_key = 0.0
        self._burst = 0
        self._more = False
        self._folded: Final[list[str]] = []

    def changed(self, buffer: Buffer) -> None:
        """The text has changed."""
        if not buffer.text:
            self.cleared()
        elif self.since is None:
            self.since = monotonic()

    def key(self, *, more: bool) -> None:
        """A key was handled. `more`: others had come with it, and are handled next."""
        self._burst = self._burst + 1 if self.goes_on else 1
        self._last_key, self._more = monotonic(), more

    @property
    def enter_was_pasted(self) -> bool:
        """Whether an Enter with nothing behind it was pasted with what came just before it.

        One line in one burst was typed, by a program or over a line that lags, where pastes have
        brackets: it is sent. Of several lines, the last is as much pasted as the first.
        """
        in_burst = self.goes_on and self._burst >= BURST_KEYS
        return in_burst and (self._bare or self.pasted)

    @property
    def goes_on(self) -> bool:
        """Whether the key that is handled came in one burst with the one before."""
        return self._more or monotonic() - self._last_key < BURST

    def cleared(self) -> None:
        """The editor is empty."""
        self.since = None
        self.pasted = False

    def folded(self, text: str) -> str:
        """A pasted text as it stands in the editor."""
        lines = text.count("\n") + 1
        if lines <= FOLD_LINES:
            return text
        self._folded.append(text)
        return f"[pasted {lines} lines #{len(self._folded)}: Ctrl-O unfolds]"

    def unfolded(self, text: str) -> str:
        """The text with every folded paste in its place."""

        def whole(match: re.Match[str]) -> str:
            at = int(match[2]) - 1
            return self._folded[at] if at < len(self._folded) else match[0]

        return FOLDED.sub(whole, text)


class _Window(Protocol):
    """What the keys need of the window."""

    @property
    def buffer(self) -> Buffer: ...
    @property
    def draft_state(self) -> Draft: ...
    @property
    def view(self) -> View: ...
    @property
    def asked(self) -> bool: ...
    @property
    def picking(self) -> _Picking | None: ...
    def submit(self, text: str, *, literal: bool) -> None: ...
    def notice(self, text: str) -> None: ...
    def ctrl_c(self) -> None: ...
    def leave(self) -> None: ...
    def take_back(self) -> None: ...
    def choose(self, choice: Picked | None) -> None: ...


class _Picking(Protocol):
    shown: int
    index: int

    @property
    def lists(self) -> object: ...
    def rows(self, needle: str) -> list[tuple[int, str]]: ...


def bindings(window: _Window) -> KeyBindings:
    """The window's own keys; everything else edits as in a shell."""
    keys = KeyBindings()
    picking = Condition(lambda: window.picking is not None)
    editing = ~picking & ~is_searching
    buffer, draft = window.buffer, window.draft_state

    @keys.add("enter", filter=editing)
    def _enter(event: KeyPressEvent) -> None:
        more = bool(event.key_processor.input_queue)
        if more or draft.enter_was_pasted:
            draft.pasted = True
            buffer.insert_text("\n")
            return
        if window.asked and draft.goes_on:
            # Nothing is approved by what came in a burst, however short.
            window.notice("too fast for an answer; Enter again sends it")
            return
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        text = draft.unfolded(buffer.text)
        if not text.strip():
            return
        literal = draft.pasted
        # The window looks at the draft, so it is told before the draft is gone.
        window.submit(text, literal=literal)
        buffer.reset(append_to_history=True)
        draft.cleared()

    @keys.add("escape", "enter", filter=editing)
    @keys.add("c-j", filter=editing)
    def _newline(event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("up", filter=editing)
    def _up(event: KeyPressEvent) -> None:
        if not buffer.text and window.view.queued:
            window.take_back()
        else:
            buffer.auto_up()

    @keys.add("tab", filter=editing)
    def _tab(event: KeyPressEvent) -> None:
        buffer.insert_text(completed(buffer.text)[len(buffer.text) :])

    _add_pastes(keys, window, editing)
    _add_control(keys, window, editing)
    _add_picking(keys, window, picking)
    return keys


def _add_pastes(keys: KeyBindings, window: _Window, editing: Filter) -> None:
    """What the terminal says is a paste, and to see a folded one."""
    buffer, draft = window.buffer, window.draft_state

    @keys.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        draft.pasted = True
        buffer.insert_text(draft.folded(text))
        draft.pasted = bool(buffer.text)

    @keys.add("c-o", filter=editing)
    def _unfold(event: KeyPressEvent) -> None:
        buffer.text = draft.unfolded(buffer.text)
        buffer.cursor_position = len(buffer.text)


def suspend() -> None:
    """Stop the process as the key does elsewhere; returns when it is continued.

    A signal to the whole process is taken by any thread, some time later; meanwhile this one would
    go on and set the terminal up for keys that the shell then gets. So it is sent to this thread.
    """
    if os.getpgrp() == os.getpid():
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    else:  # whatever started us stops, too, so that its shell takes the terminal back
        os.kill(0, signal.SIGTSTP)
        sleep(STOPPING_SECONDS)


def _add_control(keys: KeyBindings, window: _Window, editing: Filter) -> None:
    """What is held with Ctrl: stop, leave, draw anew, suspend, the person's own editor."""
    buffer, draft = window.buffer, window.draft_state

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _stop(event: KeyPressEvent) -> None:
        window.ctrl_c()

    @keys.add("c-d", filter=Condition(lambda: not buffer.text))
    def _leave(event: KeyPressEvent) -> None:
        window.leave()

    @keys.add("c-l")
    def _redraw(event: KeyPressEvent) -> None:
        event.app.renderer.erase(leave_alternate_screen=False)

    @keys.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        _ = run_in_terminal(suspend)  # its task is the editor's own

    @keys.add("c-g", filter=editing)
    def _editor(event: KeyPressEvent) -> None:
        buffer.text = draft.unfolded(buffer.text)
        _ = buffer.open_in_editor(validate_and_handle=False)  # its task is the editor's own


def _add_picking(keys: KeyBindings, window: _Window, picking: Filter) -> None:
    """Moving in a list that waits for a choice."""

    def move(by: int) -> None:
        one = window.picking
        if one is not None:
            last = len(one.rows(window.buffer.text)) - 1
            one.index = max(0, min(last, one.index + by))

    @keys.add("up", filter=picking)
    def _up(event: KeyPressEvent) -> None:
        move(-1)

    @keys.add("down", filter=picking)
    def _down(event: KeyPressEvent) -> None:
        move(1)

    @keys.add("tab", filter=picking)
    def _tab(event: KeyPressEvent) -> None:
        one = window.picking
        if one is not None:
            one.shown, one.index = 1 - one.shown, 0

    @keys.add("escape", filter=picking, eager=True)
    def _escape(event: KeyPressEvent) -> None:
        window.choose(None)

    _add_choosing(keys, window, picking)


def _add_choosing(keys: KeyBindings, window: _Window, picking: Filter) -> None:
    """What can be done with the marked row. Letters filter, so all but Enter is held with Ctrl."""

    def choose(action: PickAction) -> None:
        one = window.picking
        rows = one.rows(window.buffer.text) if one is not None else []
        if one is not None and rows:
            row, _ = rows[min(one.index, len(rows) - 1)]
            window.choose(Picked(one.shown, row, action))

    @keys.add("enter", filter=picking)
    def _enter(event: KeyPressEvent) -> None:
        choose("open")

    @keys.add("c-v", filter=picking)
    def _view(event: KeyPressEvent) -> None:
        choose("view")

    @keys.add("c-f", filter=picking)
    def _fork(event: KeyPressEvent) -> None:
        choose("fork")
