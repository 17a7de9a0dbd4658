"""Foreign text in a Markdown document: where it may be quoted, where only a fence holds it."""

from __future__ import annotations

import pytest

from dsh.cli.sessions.contained import code, fenced, quoted


@pytest.mark.holds("CL50")
@pytest.mark.parametrize(
    "text",
    [
        "plain words, a * b, 3 < 4 and x<3",
        "# A heading\n\n- a list\n\n| a | b |\n|---|---|\n\n[a page](https://example.org/x)",
        "`<b>` and ``a ` b`` are code; so is\n\n```html\n<img src=x> @somebody\n```\n\nthat.",
        "~~~\n``` never closed in here\n~~~",
        "a mail to me@example.org",
        "[there](docs/view.md) and [here](#part)",
    ],
)
def test_harmless_markdown_is_quoted_as_it_is(text: str) -> None:
    lines = list(quoted(text))
    assert all(line.startswith(">") for line in lines)
    assert "\n".join(line[2:] for line in lines) == text


@pytest.mark.holds("CL50")
@pytest.mark.parametrize(
    "text",
    [
        "<img src=https://example.org/seen>",
        "<!-- everything after this",
        "![seen](https://example.org/seen.png)",
        "thanks, @somebody",
        "[tool]: https://example.org/elsewhere",
        "- [a\\]b]: https://example.org",
        "[go](javascript:alert)",
        "[go](<https://example.org>)",
        "```\nnever closed",
        "```\nclosed by another\n~~~",
        "```\nclosed\n  ```\n<b>outside, however it looks",
        "- ```\n  ```\n![outside](x)\n```",
        "- a\n  ```\n![outside](x)\n```\n```",
        "> ```\n<b>outside",
        "a ` b\n`<b>` c `",
        "\\`<b>\\`",
        "| `a | <b> |` |",
        "~~~ `not a fence of this kind",
        "\t```\n<b>\n\t```",
    ],
)
def test_what_could_do_more_than_be_read_is_fenced(text: str) -> None:
    first, *_, last = quoted(text)
    assert first.endswith("markdown")
    assert last == first.removesuffix("markdown")
    assert set(last) == {"`"}


@pytest.mark.holds("CL50")
def test_a_fence_is_longer_than_every_run_of_backticks_in_it() -> None:
    assert list(fenced("a\n````\nb\n")) == ["`````", "a", "````", "b", "`````"]
    assert list(fenced("")) == ["```", "", "```"]


@pytest.mark.holds("CL1", "CL50")
def test_controls_are_shown_and_one_line_stays_one() -> None:
    assert next(iter(quoted("a\x1b[31m\u202eb"))) == "> a\\x1b[31m\\u202eb"
    assert code("a `b`\n# c") == "`a 'b' # c`"
    assert code("") == "` `"
