"""Foreign text: what a terminal would obey is shown instead."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.screen.inert import cells, clipped, inert, one_line


@pytest.mark.holds("CL1")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
        ("a\rb", "a\\x0db"),
        ("a\x08b\x7f", "a\\x08b\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("safe\u202egnp.exe", "safe\\u202egnp.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\u2028b", "a\\u2028b"),
        ("\udcff", "\\udcff"),
        ("tab\tnewline\n中文 🙂 é", "tab\tnewline\n中文 🙂 é"),
    ],
)
def test_controls_become_visible_and_text_stays(text: str, shown: str) -> None:
    assert inert(text) == shown


@pytest.mark.holds("CL1")
@given(st.text())
def test_nothing_that_moves_a_cursor_survives(text: str) -> None:
    shown = inert(text)
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert not any(
        unicodedata.category(letter) == "Cc" and letter not in "\t\n" for letter in shown
    )
    assert "\n" not in one_line(text)


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_clipping_never_exceeds_the_width(text: str, width: int) -> None:
    assert cells(clipped(text, width)) <= max(width, 1)


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert (cells("abc"), cells("中文"), cells("e\u0301")) == (3, 4, 1)
    assert clipped("中文中文", 5) == "中文…"
    assert clipped("short", 5) == "short"
