"""How long a server asks to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm import retry_after_ms

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
#: A local clock that is an hour off: the response's own date counts.
WRONG_NOW = 1_792_567_680_000 + 3_600_000


@pytest.mark.holds("case-038")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("0", 0),
        ("7", 7000),
        (" 7 ", 7000),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30000),
        ("Wednesday, 21-Oct-26 07:28:30 GMT", 30000),
        ("Wed Oct 21 07:28:30 2026", 30000),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0),
        ("-3", None),
        ("+3", None),
        ("1.5", 1500),
        ("1e3", None),
        ("1000abc", None),
        ("", None),
        ("NaN", None),
        ("9" * 400, None),
        ("1382400", 16 * 24 * 3600 * 1000),
        ("٣", None),
        ("7, 9", None),
        ("Wed, 31 Feb 2026 07:28:30 GMT", None),
        ("Wed, 21 Foo 2026 07:28:30 GMT", None),
        ("Sat Oct  3 07:28:30 2026", 0),
    ],
)
def test_each_form_gives_its_delay_or_is_ignored_as_a_whole(
    said: str, expected: float | None
) -> None:
    assert retry_after_ms({"retry-after": said, "date": DATE}, WRONG_NOW) == expected


@pytest.mark.holds("case-038")
def test_the_header_in_milliseconds_wins_and_other_headers_do_not_count() -> None:
    headers = {"retry-after-ms": "2500", "retry-after": "7", "date": DATE}
    assert retry_after_ms(headers, WRONG_NOW) == 2500
    assert retry_after_ms({**headers, "retry-after-ms": "x"}, WRONG_NOW) == 7000
    assert retry_after_ms({"x-ratelimit-reset-requests": "1m6.4s"}, WRONG_NOW) is None


def test_without_a_date_of_its_own_a_response_is_measured_by_the_local_clock() -> None:
    now = 1_792_567_680_000
    assert retry_after_ms({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, now) == 30000
    old = retry_after_ms({"retry-after": "Sunday, 06-Nov-94 08:49:37 GMT"}, now)
    assert old == 0


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_header_breaks_the_reader(said: str, date: str) -> None:
    found = retry_after_ms({"retry-after": said, "date": date}, WRONG_NOW)
    assert found is None or found >= 0
