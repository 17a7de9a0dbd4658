"""The finished lines of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.cli.chat.transcript import Transcript
from dsh.cli.screen.card_lines import Looks
from dsh.seams.previews import PreviewLines
from dsh.testing import LogWriting

if TYPE_CHECKING:
    from dsh.cli.screen.outputs import Style


def lines_of(log: LogWriting) -> list[str]:
    def plain(text: str, _style: Style) -> str:
        return text

    lines: list[str] = []
    transcript = Transcript(lines.append, Looks(plain, " - ", lambda: 80, PreviewLines))
    for event in log.session.events:
        transcript.see(event.data, event.time)
    return lines


@pytest.mark.holds("CL22")
def test_messages_that_were_steered_together_are_parted_by_one_empty_line() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user("go")
    log.reply("One.")
    log.step_end()
    log.step_start()
    log.user("faster")
    log.user("and better")
    log.reply("Two.")
    assert lines_of(log) == [
        "",
        "> go",
        "",
        "One.",
        "",
        "> faster (steered into step 2)",
        "",
        "> and better (steered into step 2)",
        "",
        "Two.",
    ]
