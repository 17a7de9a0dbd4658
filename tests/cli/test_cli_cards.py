"""Tool cards: what a call is about, what it would change, what its output looks like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.chat.live_rows import activity_rows
from dsh.cli.chat.transcript import Doing
from dsh.cli.screen.card_lines import Looks, RunningTool, card_lines
from dsh.cli.screen.cards import outcome_of, subject_of
from dsh.cli.screen.inert import cells
from dsh.cli.screen.previews import change_of
from dsh.seams.previews import PreviewLines

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

TEXT = st.text(alphabet="ab \n", max_size=12)


def call(arguments: JsonValue) -> ev.tool.Call:
    return ev.tool.Call(turn=1, step=1, call_id="c1", name="t", arguments=json.dumps(arguments))


def result(text: str, *, is_error: bool = False) -> ev.tool.Result:
    message = records.ToolResultMessage(
        id="r1",
        content=(records.TextBlock(text=text),),
        source=records.ToolSource(call_id="c1"),
        tool_call_id="c1",
        is_error=is_error,
    )
    return ev.tool.Result(turn=1, step=1, message=message)


def card(tool: RunningTool, text: str, width: int, *, is_error: bool = False) -> list[str]:
    looks = Looks(lambda said, _style: said, " · ", lambda: width, PreviewLines)
    outcome = outcome_of(result(text, is_error=is_error))
    return [line.rstrip() for line in card_lines(tool, outcome, "0.1 s", 3, looks)]


@pytest.mark.holds("CL36")
@settings(max_examples=200, deadline=None)
@given(old=TEXT, new=TEXT)
def test_a_change_shows_every_line_of_both_texts(old: str, new: str) -> None:
    change = change_of({"path": "a", "old_string": old, "new_string": new})
    assert change is not None
    before = [line[2:] for line in change.lines if line[0] in "- "]
    after = [line[2:] for line in change.lines if line[0] in "+ "]
    for shown, text in ((before, old), (after, new)):
        whole = text.split("\n") if text else []
        assert shown in (whole, whole[:-1])
        assert shown == whole or not whole[-1]
    assert (old == new) == (not change.added and not change.removed)


@pytest.mark.holds("CL36")
@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "ls"},
        {"path": "a"},
        {"path": "a", "content": "x", "mode": "append"},
        {"path": 1, "content": "x"},
        ["path", "content"],
        "text",
        None,
    ],
)
def test_what_is_no_edit_has_no_change(arguments: JsonValue) -> None:
    assert change_of(arguments) is None


@pytest.mark.holds("CL36")
def test_the_card_of_an_edit_shows_what_was_changed_and_counts_the_rest() -> None:
    context = [f"line {number}" for number in range(9)]
    old, new = "\n".join([*context, "x = 1"]), "\n".join([*context, "x = 2", "y = 3"])
    tool = RunningTool(
        "edit_file",
        "m.py",
        0,
        change=change_of({"path": "m", "old_string": old, "new_string": new}),
    )
    assert card(tool, "edited m.py", 80) == [
        f"  edit_file  m.py{' ' * 42}  +2 -1         0.1 s",
        "               line 7",
        "               line 8",
        "             - x = 1",
        "             + x = 2",
        "             + y = 3",
    ]
    long = "".join(f"{number}\n" for number in range(60))
    written = RunningTool("write_file", "n", 0, change=change_of({"path": "n", "content": long}))
    assert card(written, "created", 100)[-2:] == [
        "             + 19",
        "             40 more lines: /out 3",
    ]
    assert card(written, "Error: no space", 100, is_error=True)[1:] == ["             no space"]


@pytest.mark.holds("CL36")
def test_the_subject_is_the_telling_argument_or_all_of_them() -> None:
    assert subject_of(call({"command": "ls\n-l", "timeout": 5})) == "ls -l"
    assert subject_of(call({"name": "Ines"})) == "Ines"
    assert subject_of(call({"a": 1, "b": "x\x1b"})) == "a: 1, b: x\\x1b"
    assert subject_of(call({})) == ""


@pytest.mark.holds("CL36")
def test_a_page_of_a_file_is_counted_and_not_quoted() -> None:
    read = RunningTool("read_file", "m.py", 0)
    (line,) = card(read, "a\nb\n[lines 1-2 of 2, 4 bytes]", 80)
    assert "2 lines" in line


@pytest.mark.holds("CL37")
def test_a_tool_that_runs_alone_shows_the_end_of_its_output_others_their_last_line() -> None:
    doing = Doing(turn=1, step=1, open=True)
    doing.tools["1"] = RunningTool(
        "bash", "make", 0, shows="one\ntwo\n\nthree\x1b[2J\nfour\nfive\n"
    )
    rows = activity_rows(doing, now=12_000, width=60, stopping=False)
    assert [" ".join(row.split()) for row in rows] == [
        "bash make running 12 s",
        "two",
        "three\\x1b[2J",
        "four",
        "five",
    ]
    doing.tools["2"] = RunningTool("bash", "make other", 0)
    rows = activity_rows(doing, now=12_000, width=60, stopping=False)
    assert [" ".join(row.split()) for row in rows] == [
        'bash make running 12 s: "five"',
        "bash make other running 12 s",
    ]
    assert max(map(cells, rows)) <= 60
