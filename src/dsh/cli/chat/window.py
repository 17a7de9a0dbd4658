"""The window of a conversation: an editor under the scrollback, with what is going on above it.

What comes in: finished lines and views, from the trio thread; keys, from the terminal. What goes
out: what was typed, as calls in the trio thread. The editor runs in one worker thread with its own
event loop; a finished line is written once, above the region that is redrawn, and never touched
again. No alternate screen, nothing is cleared but that region.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, final

import trio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.widgets import SearchToolbar

from dsh.cli.chat.front import Hands, View
from dsh.cli.chat.window_keys import Draft, bindings
from dsh.cli.chat.window_parts import Asking, Picking, WindowOutput
from dsh.cli.chat.words import candidates, usage_line
from dsh.cli.screen.inert import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding.key_processor import KeyProcessor

    from dsh.cli.chat.front import Marked, Picked, PickRows

__all__ = ["ChatWindow"]

REDRAW_SECONDS: Final = 0.05
INPUT_ROWS: Final = 8
WORD_ROWS: Final = 6
NOTICE_SECONDS: Final = 4.0
#: How long an escape may be the beginning of another key, which a slow line sends in pieces.
ESCAPE_SECONDS: Final = 0.2
#: How long after a question appeared a key may begin its answer, in seconds.
QUIET: Final = 0.7


@final
class ChatWindow:
    """A `Front` on a terminal that can be redrawn."""

    def __init__(self, *, colored: bool, term: str, history: History) -> None:
        self.draft_state: Final = Draft(term)
        self.asking: Asking | None = None
        self.picking: Picking | None = None
        self.view = View()
        self._colored: Final = colored
        self._term: Final = term
        self._notice: tuple[str, float] = ("", 0.0)
        self._pending: Final[deque[str]] = deque()
        self._closing = False
        self._said_since = True
        self._since = 0.0
        self._token: trio.lowlevel.TrioToken | None = None
        self._hands: Hands | None = None
        self._search: Final = SearchToolbar()
        self.buffer: Final = Buffer(
            multiline=True, history=history, on_text_changed=self.draft_state.changed
        )
        self._app: Final = self._application()

    # -- from the trio thread --------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Columns, as of now."""
        return self._size().columns

    async def run(
        self, hands: Hands, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the editor until cancelled. Raises what broke it."""
        self._hands = hands
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._close_when_cancelled)
            task_status.started()
            await trio.to_thread.run_sync(self._edit)
            nursery.cancel_scope.cancel()
        self._write_pending()

    async def _close_when_cancelled(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.close()

    def close(self) -> None:
        """Ask the editor to end. Safe at any time and from any thread."""
        self._closing = True
        self._in_editor(self._exit)

    def print(self, line: str) -> None:
        """Add one finished line."""
        self._said_since = True
        self._pending.append(line)
        if self._token is None:
            self._write_pending()
        else:
            self._app.invalidate()

    def page(self, text: str) -> None:
        """Show a long text, whole, in the scrollback."""
        for line in text.split("\n"):
            self.print(line)

    def clipboard(self, encoded: str) -> None:
        """Offer a text to the terminal's clipboard (OSC 52)."""

        def offer() -> None:
            self._app.output.write_raw(f"\x1b]52;c;{encoded}\x07")
            self._app.output.flush()

        self._in_editor(offer)

    def show(self, view: View) -> None:
        """Show what is going on."""
        if view != self.view:
            self.view = view
            self._app.invalidate()

    def notice(self, text: str) -> None:
        """Say something for a few seconds."""
        self._notice = (text, monotonic() + NOTICE_SECONDS)
        self._app.invalidate()

    def draft(self, text: str) -> None:
        """Put text into the editor, before the draft."""

        def put() -> None:
            rest = self.buffer.text
            self.buffer.text = f"{text}\n{rest}" if rest else text
            self.buffer.cursor_position = len(self.buffer.text)

        self._in_editor(put)

    def _filter(self, needle: str) -> None:
        self.buffer.text = needle
        self.buffer.cursor_position = len(needle)

    def clear(self) -> None:
        """Empty the editor."""

        def empty() -> None:
            self.buffer.reset()
            self.draft_state.cleared()
            self._app.invalidate()  # emptying it does not ask for a redraw

        self._in_editor(empty)

    def interrupt(self) -> None:
        """The signal of Ctrl-C."""
        self._in_editor(self.ctrl_c)

    async def line(self, prompt: str) -> str | None:
        """The next line that answers; a draft that was begun before stays a draft."""
        if self._said_since:  # a question, or more of it; else this one stands there already
            self._since, self._said_since = monotonic(), False
        asking = self.asking = Asking(prompt, self._since, trio.Event())
        self._app.invalidate()
        try:
            await asking.answered.wait()
        finally:
            self.asking = None
            self._app.invalidate()
        return asking.answer

    async def pick(self, title: str, lists: Sequence[PickRows], marked: Marked) -> Picked | None:
        """Let one row be chosen."""
        picking = self.picking = Picking.begun(title, lists, marked)
        if marked.needle:  # what is being typed already filters, too
            self._in_editor(partial(self._filter, marked.needle))
        self._app.invalidate()
        try:
            await picking.chosen.wait()
        finally:
            self.picking = None
            self._app.invalidate()
        picking.left(marked)
        return picking.choice

    # -- from the editor's thread ----------------------------------------------------------------

    def tell(self, act: Callable[[], object]) -> None:
        """Call `act` in the trio thread, soon."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(act)

    def submit(self, text: str, *, literal: bool) -> None:
        """A whole message, or an answer to the question that stands there."""
        hands, asking = self._hands, self.asking
        if hands is None:
            return
        if asking is not None and self.answering and not literal:

            def answer() -> None:
                asking.answer = text
                asking.answered.set()

            self.tell(answer)
            return
        self.tell(partial(hands.send if literal else hands.submit, text))

    @property
    def asked(self) -> bool:
        """Whether a question stands there."""
        return self.asking is not None

    @property
    def answering(self) -> bool:
        """Whether what is being typed can be an answer: begun well after the question."""
        asking, draft = self.asking, self.draft_state
        if asking is None or draft.pasted:
            return False
        return draft.since is None or draft.since >= asking.since + QUIET

    def ctrl_c(self) -> None:
        """The trio thread knows whether a turn runs, so it decides what to do."""
        hands = self._hands
        if self.picking is not None:
            self.choose(None)
        elif hands is not None:
            self.tell(partial(hands.interrupt, self.buffer.text))

    def leave(self) -> None:
        """Ctrl-D on an empty line."""
        if self.picking is not None:
            self.choose(None)
        elif self._hands is not None:
            self.tell(self._hands.leave)

    def take_back(self) -> None:
        """Up on an empty line while something is queued."""
        if self._hands is not None:
            self.tell(self._hands.take_back)

    def choose(self, choice: Picked | None) -> None:
        """End the choosing."""
        picking = self.picking
        if picking is None:
            return

        def chosen() -> None:
            picking.choice = choice
            picking.needle = needle
            picking.chosen.set()

        needle = self.buffer.text
        self.buffer.reset()
        self.draft_state.cleared()
        self.tell(chosen)

    # -- the editor ------------------------------------------------------------------------------

    def _edit(self) -> None:
        self._app.run(pre_run=self._begin, set_exception_handler=False, handle_sigint=False)

    def _begin(self) -> None:
        if self._closing:
            self._in_editor(self._exit)

    def _exit(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _in_editor(self, act: Callable[[], None]) -> None:
        loop = self._app.loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                context = self._app.context
                loop.call_soon_threadsafe(act, context=context.copy() if context else None)

    def _application(self) -> Application[None]:
        output = WindowOutput(sys.stdout, self._size, term=self._term, enable_cpr=False)
        output.colored = self._colored
        has_rows = Condition(lambda: bool(self._rows()))
        # A pasted block may be long; the editor scrolls inside its rows.
        edit = Window(
            BufferControl(self.buffer, search_buffer_control=self._search.control),
            height=Dimension(min=1, max=INPUT_ROWS),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=self._prefix,
        )
        rows = FormattedTextControl(lambda: "\n".join(self._rows()))
        status = FormattedTextControl(self._status)
        app: Application[None] = Application(
            layout=Layout(
                HSplit(
                    [
                        ConditionalContainer(Window(rows, dont_extend_height=True), has_rows),
                        edit,
                        self._search,
                        Window(status, height=1),
                    ]
                ),
                focused_element=edit,
            ),
            key_bindings=bindings(self),
            full_screen=False,
            mouse_support=False,
            erase_when_done=True,
            min_redraw_interval=REDRAW_SECONDS,
            color_depth=None if self._colored else ColorDepth.DEPTH_1_BIT,
            output=output,
            before_render=self._before_render,
        )
        app.ttimeoutlen = ESCAPE_SECONDS
        app.key_processor.after_key_press += self._key_pressed
        return app

    def _key_pressed(self, keys: KeyProcessor) -> None:
        self.draft_state.key(more=bool(keys.input_queue))

    def _before_render(self, app: Application[None]) -> None:
        """Write finished lines above the region; let the region shrink when it has become lower."""
        size = app.output.get_size()
        if self._pending:
            app.renderer.erase(leave_alternate_screen=False)
            lines = [self._pending.popleft() for _ in range(len(self._pending))]
            app.output.write_raw("".join(f"{line}\n" for line in lines))
            return
        screen = app.renderer.last_rendered_screen
        wanted = app.layout.container.preferred_height(size.columns, size.rows).preferred
        if screen is not None and screen.height > wanted:
            app.renderer.erase(leave_alternate_screen=False)

    def _write_pending(self) -> None:
        while self._pending:
            sys.stdout.write(self._pending.popleft() + "\n")
        sys.stdout.flush()

    def _size(self) -> Size:
        try:
            size = os.get_terminal_size(1)
        except OSError:
            return Size(rows=24, columns=80)
        return Size(rows=size.lines or 24, columns=size.columns or 80)

    def _prefix(self, line: int, wraps: int) -> StyleAndTextTuples:
        prompt = "> "
        if self.picking is not None:
            prompt = "filter: "
        elif self.asking is not None and self.answering:
            prompt = self.asking.prompt
        shown = prompt if (line, wraps) == (0, 0) else " " * len(prompt)
        return [("", shown)]

    def _rows(self) -> list[str]:
        width = self.width
        rows = list(self.view.rows)
        if self.picking is not None:
            rows = self.picking.shown_rows(self.buffer.text)
        elif not self.draft_state.pasted:
            rows += self._words(self.buffer.text)
        text, until = self._notice
        if text and monotonic() < until:
            rows += text.split("\n")[:2]
        return [clipped(row, width) for row in rows]

    def _words(self, draft: str) -> list[str]:
        """What a draft that begins with a slash may become."""
        found = [usage_line(word) for word in candidates(draft)]
        rest = len(found) - WORD_ROWS
        return [*found[:WORD_ROWS], f"+{rest} more: /help"] if rest > 0 else found

    def _status(self) -> str:
        return clipped(self.view.status, self.width)
