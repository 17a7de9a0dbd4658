"""A search that may begin anywhere in a foreign text reads no part of it again and again.

No clock is asked. What such a pattern repeats without a bound stands at its end, where it is taken
as part of the match; everything before that is bounded. So each place of a text is read at most as
often as the bounds say, however long the text is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsh.view.redaction import ASSIGNED, SHAPES

PAGE = Path(__file__).parents[2] / "src/dsh/view/page"
SCRIPTS = {
    path.name: re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for path in sorted(PAGE.glob("*.js"))
}
#: A regular expression of a script: what stands between its slashes.
LITERAL = re.compile(
    r"(?:[=(,:?!|&]|return)\s*/((?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+)/[dgimsuvy]*(?=[.,;)\s])"
)
#: Where one is used: a check that none is overlooked.
USED = re.compile(r"/[a-z]*\.(?:test|exec)\(|(?:\bmatch\w*|replace|search|split)\(/|[A-Z] =\s+/")
#: A character and a set of characters: what they are does not matter here.
ONE = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])*\]")
REPEATED = re.compile(r"[*+]|\{\d*,\}")


def unbounded(pattern: str) -> list[str]:
    """What is repeated without a bound although something must match after it, as it stands."""
    plain = ONE.sub("x", pattern)
    return [
        plain[max(0, one.start() - 10) : one.end() + 10]
        for one in REPEATED.finditer(plain)
        if _goes_on(plain[one.end() :].lstrip("?+"))
    ]


def _goes_on(rest: str) -> bool:
    """Whether anything must match between here and the end, other alternatives left out."""
    depth, other = 0, False
    for sign in rest:
        if other:
            depth += {"(": 1, ")": -1}.get(sign, 0)
            other = depth >= 0
        elif sign == "|":
            depth, other = 0, True
        elif sign != ")":
            return True
    return False


def without_layout(pattern: re.Pattern[str]) -> str:
    """A pattern written over several lines, as if it stood in one."""
    assert pattern.flags & re.VERBOSE
    return re.sub(r"\s+# .*$|(?<!\[)\s(?!\])", "", pattern.pattern, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "pattern",
    ["[a-z]*token", "BEGIN.*?END", "(`+)x", "(?:x{1,9}|y+ )z", "(?:x+)*", "a(b|c+|d)e", "x{3,} y"],
)
def test_the_rule_bites(pattern: str) -> None:
    assert len(unbounded(pattern)) == 1


@pytest.mark.parametrize(
    "pattern", ["k-[a-z]{8,}", "(?:a(b+|c)|[*+]d)", r"\*\+[^]{1,3}?\+x", "x*?"]
)
def test_the_rule_lets_pass_what_is_bounded_or_stands_last(pattern: str) -> None:
    assert unbounded(pattern) == []


@pytest.mark.parametrize("pattern", [SHAPES, ASSIGNED], ids=["shapes", "assigned"])
def test_masking_costs_no_square_of_a_texts_length(pattern: re.Pattern[str]) -> None:
    assert unbounded(without_layout(pattern)) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_costs_no_square_of_a_texts_length(name: str) -> None:
    literals = LITERAL.findall(SCRIPTS[name])
    assert len(literals) == len(USED.findall(SCRIPTS[name]))
    # A pattern that begins with ^ is tried at one place only.
    assert [(one, unbounded(one)) for one in literals if one[0] != "^" and unbounded(one)] == []
