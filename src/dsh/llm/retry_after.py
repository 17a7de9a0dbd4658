"""How long a server asks to wait: Retry-After in all the forms that servers use.

What comes in: response headers and the local time. What goes out: milliseconds, or None when
nothing usable was said. Pure. Whether to follow it is the retry policy's decision.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["retry_after_ms"]

#: Longer numbers mean nothing; 15 digits of milliseconds are thirty thousand years.
_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_CLOCK: Final = r"(?P<h>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2})"
#: The three spellings of RFC 9110: IMF-fixdate, RFC 850, asctime.
_RFC850: Final = re.compile(
    rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-(?P<mon>[A-Z][a-z]{{2}})-(?P<y>[0-9]{{2}}) "
    rf"{_CLOCK} GMT"
)
_DATES: Final = (
    re.compile(
        rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{2}}) (?P<mon>[A-Z][a-z]{{2}}) (?P<y>[0-9]{{4}}) "
        rf"{_CLOCK} GMT"
    ),
    _RFC850,
    re.compile(
        rf"[A-Z][a-z]{{2}} (?P<mon>[A-Z][a-z]{{2}}) (?P<day>[ 0-9][0-9]) {_CLOCK} (?P<y>[0-9]{{4}})"
    ),
)


def retry_after_ms(headers: Mapping[str, str], now_ms: int) -> float | None:
    """The wait a response asks for, in ms, never negative; 0 is "now", None "nothing said".

    `retry-after-ms` wins over `retry-after`. A date counts from the response's own Date header if
    it has one, else from `now_ms` (epoch ms), so that a wrong local clock does not matter. Signs,
    exponents, lists, other digits than ASCII and anything else are ignored as a whole.
    """
    exact = _number(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact
    said = headers.get("retry-after", "").strip(" \t")
    seconds = _number(said)
    if seconds is not None:
        return seconds * 1000
    then = _epoch_ms(said, now_ms)
    if then is None:
        return None
    now = _epoch_ms(headers.get("date", "").strip(" \t"), now_ms)
    return float(max(0, then - (now if now is not None else now_ms)))


def _number(text: str) -> float | None:
    text = text.strip(" \t")
    return float(text) if _NUMBER.fullmatch(text) else None


def _epoch_ms(text: str, now_ms: int) -> int | None:
    for form in _DATES:
        found = form.fullmatch(text)
        if found is None:
            continue
        year, month = int(found["y"]), _MONTHS.find(found["mon"])
        if month % 3:
            return None
        if form is _RFC850:
            year = _full_year(year, now_ms)
        day, hour, minute, second = (int(found[part]) for part in ("day", "h", "m", "s"))
        try:
            then = datetime(year, month // 3 + 1, day, hour, minute, min(second, 59), tzinfo=UTC)
        except ValueError:
            return None
        return int(then.timestamp()) * 1000
    return None


def _full_year(two_digits: int, now_ms: int) -> int:
    """RFC 9110: a two-digit year more than 50 years ahead is the most recent such year."""
    this_year = 1970 + now_ms // 31_556_952_000
    year = this_year - this_year % 100 + two_digits
    return year - 100 if year > this_year + 50 else year
