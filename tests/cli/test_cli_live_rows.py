"""The live lines of a conversation, and the emulated terminal that the stories look at."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.cli.chat.live_rows import Gauge, activity_rows, queued_rows, status_row
from dsh.cli.chat.transcript import Doing
from dsh.cli.screen.card_lines import RunningTool
from dsh.cli.screen.inert import cells
from dsh.cli.screen.retries import Waiting
from dsh.testing.emulator import Emulator

TEXT = st.text(alphabet="ab 修复é\x1b\t\n·", max_size=200)


@pytest.mark.holds("CL20")
@settings(max_examples=150, deadline=None)
@given(
    width=st.integers(30, 140),
    partial=TEXT,
    tools=st.lists(st.tuples(TEXT, TEXT, st.booleans()), max_size=7),
    queued=st.lists(TEXT, max_size=4),
    stopping=st.booleans(),
    waiting=st.booleans(),
)
def test_no_live_row_is_wider_than_the_window_and_they_are_few(
    width: int,
    partial: str,
    tools: list[tuple[str, str, bool]],
    queued: list[str],
    *,
    stopping: bool,
    waiting: bool,
) -> None:
    doing = Doing(turn=1, step=2, open=True, since=0, partial=partial.replace("\n", ""))
    for number, (name, subject, asked) in enumerate(tools):
        clean = (" ".join(name.split())[:20], " ".join(subject.split()))
        doing.tools[str(number)] = RunningTool(
            clean[0].replace("\x1b", ""), clean[1].replace("\x1b", ""), 0, asked
        )
    if waiting:
        doing.waiting = Waiting("RATE_LIMIT (429), try 2 of 5", 9000, "slow {down}")
    rows = activity_rows(doing, now=5000, width=width, stopping=stopping)
    assert 0 < len(rows) <= 6
    rows += queued_rows(queued, 2, width)
    gauge = Gauge(session="s7f3", model="deepseek-chat", context=18000, window=128000, tokens=20)
    rows.append(status_row(doing, gauge, now=5000, width=width, separator=" · ", stopping=stopping))
    assert [row for row in rows if cells(row) > width or "\x1b" in row or "\n" in row] == []


@pytest.mark.holds("CL20")
def test_segments_of_the_status_line_drop_whole_from_the_right() -> None:
    doing = Doing()
    gauge = Gauge(session="s7f3", model="deepseek-chat", context=18000, window=128000, tokens=2400)
    shown = [
        status_row(doing, gauge, now=0, width=width, separator=" · ", stopping=False)
        for width in (70, 50, 40, 20, 8)
    ]
    assert [" ".join(row.split()) for row in shown] == [
        "idle · ctx 14% of 128k · deepseek-chat · s7f3 · 2.4k tokens /help",
        "idle · ctx 14% of 128k · deepseek-chat · s7f3",
        "idle · ctx 14% of 128k · deepseek-chat",
        "idle /help",
        "idle",
    ]


def test_the_emulator_wraps_scrolls_and_wraps_anew() -> None:
    terminal = Emulator(10, 3)
    terminal.feed("abcdefghijkl\r\nzwei 修复\r\n\x1b[1mthree\x1b[0m\r\nfour".encode())
    assert terminal.screen == ["zwei 修复", "three", "four"]
    assert terminal.transcript == ["abcdefghijkl", "zwei 修复", "three", "four"]
    terminal.feed(b"\x1b[4D\x1b[1A\x1b[J!")
    assert terminal.transcript == ["abcdefghijkl", "zwei 修复", "!"]
    terminal.resize(5)
    assert terminal.transcript == ["abcdefghijkl", "zwei 修复", "!"]
    terminal.feed(b"?")
    assert terminal.screen[-1] == "!?"
    assert terminal.strange == []


def test_the_emulator_keeps_what_it_does_not_know_and_waits_for_halves() -> None:
    terminal = Emulator(20, 3)
    terminal.feed(b"\x1b[2")
    terminal.feed(b"J\x1b]0;title\x07ok\x1b[?1049h")
    assert terminal.strange == ["\x1b[2J", "\x1b[?1049h"]
    assert "\x1b]0;title\x07" in terminal.asked
    assert terminal.screen == ["ok"]
