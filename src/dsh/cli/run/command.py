"""`dsh run`: a prompt in, the final answer on standard output, an exit code.

What comes in: typed options. What goes out: what `dsh run --help` promises. The turn itself is in
`turn` beside; here is what comes before it (plan, prompt, permissions) and after it (the answer,
the last line).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from dsh.boot import DEMO_PROMPT, process_environ
from dsh.catalog import records
from dsh.cli.failures import explained, loop_is_lost
from dsh.cli.run.preparing import planned_for, show_contained, with_demo
from dsh.cli.run.turn import Ended, TurnRun
from dsh.cli.screen.inert import inert, one_line
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.outputs import Screen, open_screen
from dsh.cli.screen.progress import reason_in_words
from dsh.errors import UsageError

if TYPE_CHECKING:
    from dsh.cli.grammar.arguments import RunOptions

__all__ = ["run"]

BLAME: Final = "It was raised by {}; repair it, or disable its row. --debug shows more"


def run(options: RunOptions) -> int:
    """Run one turn. Returns the exit code; everything that goes wrong is said on standard error."""
    screen = open_screen(options.color, process_environ())
    work: TurnRun | None = None
    code = 1
    try:
        prompt = _prompt(options)
        options = with_demo(options, screen)
        plan = planned_for(options)
        gc.freeze()
        gc.enable()
        work = TurnRun(options, plan, prompt, screen)
        work.leave = partial(_leave, options, screen)
        show_contained(work.progress.say, debug=options.debug)
        ended = trio.run(work.run)
        # It is decided; a late Ctrl-C must not turn a finished run into a killed one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = _finished(ended, options, screen)
    except OutletClosed as error:
        code = 141 if error.broken else 1
        if not error.broken:
            screen.say(f"dsh: {error}\n")
    except BaseException as error:  # noqa: BLE001 - the last frame: a person gets a sentence
        before = work is None or not work.started
        text, code = explained(error, debug=options.debug, before_session=before)
        (screen.say if work is None else work.progress.say)(text)
        if loop_is_lost(error):
            screen.finish()
            if screen.err.failed:  # ours was closed with the rest
                with suppress(OSError):
                    os.write(2, text.encode(errors="backslashreplace"))
            os._exit(code)  # its remains would complain while Python ends
    screen.finish()
    return code


def _leave(options: RunOptions, screen: Screen, ended: Ended) -> None:
    """End the process as the run ended. The log is closed; only what ignores us still runs."""
    try:
        code = _finished(ended, options, screen)
    except OutletClosed:
        code = ended.code
    screen.finish()
    os._exit(code)


def _prompt(options: RunOptions) -> str:
    prompt = options.prompt if options.prompt is not None else DEMO_PROMPT
    if prompt == "-":
        prompt = _standard_input()
    if not prompt.strip():
        raise UsageError('the prompt is empty; write dsh run "PROMPT"')
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError("the prompt is not UTF-8 text; check the terminal's locale") from error
    return prompt


def _standard_input() -> str:
    if sys.stdin is None:
        return ""
    # Python's own handler runs only when a read returns. Nothing has begun, so the signal may do
    # what it does to any filter: end the process at once.
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    data = sys.stdin.buffer.read()
    if hears:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 (byte {error.start}); convert it first"
        ) from error


def _finished(ended: Ended, options: RunOptions, screen: Screen) -> int:
    """The answer on standard output, why there is none on standard error. Raises OutletClosed."""
    outcome = ended.outcome
    if outcome is None:
        screen.say("stopped before the turn began\n")
        return ended.code
    answered = isinstance(outcome.reason, records.CompletedTurnEnd | records.MaxTokensTurnEnd)
    if answered and outcome.text and not screen.out.is_terminal and not options.json:
        screen.out.text(inert(outcome.text.rstrip("\n")) + "\n")
    said = _refusal(outcome.reason, ended.culprit)
    if said is not None:
        screen.say(f"dsh: {said}\n")
    if ended.path is not None:
        screen.say(f"log {ended.path}\n")
    return ended.code


def _refusal(reason: records.TurnEndReason, culprit: str | None) -> str | None:
    """Why a turn did not complete, in one sentence with a remedy; None when it did."""
    match reason:
        case records.CompletedTurnEnd() | records.AbortedTurnEnd():
            return None
        case records.ErrorTurnEnd(error=failure):
            status = f" ({failure.status})" if failure.status is not None else ""
            said = f"the turn failed: {one_line(failure.code)}{status}: {one_line(failure.message)}"
            return said if culprit is None else f"{said}. {BLAME.format(inert(culprit))}"
        case records.MaxTokensTurnEnd():
            return "the reply reached the output cap and is cut; raise maxTokens or ask for less"
        case _:
            return f"the turn was {reason_in_words(reason)}"
