"""The words by which providers say what went wrong: one table, used for every model failure.

What comes in: an HTTP status (absent for an error inside a stream), the provider's own error code
and its message. What goes out: one of the stable failure codes. A new wording is a new row here
and a row in the test table; nothing else in the repository looks at an error's text.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

__all__ = ["classify"]

#: The conversation does not fit. Only these start a compaction, so each row names the *input*:
#: "max_tokens is too large" or "string too long" must not match.
_OVERFLOW: Final = re.compile(
    r"""context[_ ]length[_ ]exceeded
    | context_window_exceeded
    | exceed_context_size
    | model_max_prompt_tokens_exceeded
    | maximum\ context\ length
    | model's\ context\ length
    | exceeds?\ (?:the\ |its\ |this\ model's\ |the\ model's\ )?(?:available\ )?context
    | context\ window\ (?:is\ )?exceeded
    | (?:larger|longer|greater)\ than\ the\ (?:model's\ )?context
    | prompt\ (?:is\ )?too\ long
    | input\ is\ too\ long
    | prompt\ exceeds\ max(?:imum)?\ length
    | (?:input|prompt)\ token\ count\b.{0,60}\bexceeds\ the\ (?:maximum|limit)
    | input\ length\b.{0,60}\bexceed
    | too\ many\ (?:input|prompt)\ tokens
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

#: The account cannot pay. Waiting does not help, so this is told apart from a rate limit.
_QUOTA: Final = re.compile(
    r"""insufficient[_ ](?:quota|balance|credits?|funds)
    | exceeded\ your\ current\ quota
    | billing[_ ]hard[_ ]limit
    | credit\ balance\ is\ too\ low
    | (?:out\ of|no\ remaining|not\ enough|requires\ more)\ credits?
    | balance\ (?:is\ )?(?:insufficient|not\ enough|too\ low)
    | account.{0,40}\bin\ arrears
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_RATE_LIMIT: Final = re.compile(
    r"""rate[_ -]?limit
    | too[_ ]many[_ ]requests
    | tokens\ per\ (?:min|day|hour)
    | requests\ per\ (?:min|day|hour|second)
    | quota\ exceeded\ for\ (?:quota\ )?metric
    | throttl
    """,
    re.IGNORECASE | re.VERBOSE,
)

_AUTH: Final = re.compile(
    r"""invalid[_ ]api[_ ]key
    | incorrect\ api\ key
    | authentication[_ ](?:error|fails?|failed)
    | permission_(?:error|denied)
    | unauthori[sz]ed
    """,
    re.IGNORECASE | re.VERBOSE,
)

_SERVER: Final = re.compile(
    r"""(?:internal_)?server_error
    | internal\ (?:server\ )?error
    | overloaded
    | service[_ ]unavailable
    | bad\ gateway
    | upstream\ (?:error|connect)
    """,
    re.IGNORECASE | re.VERBOSE,
)

_FILTER: Final = re.compile(
    r"content[_ ]filter|content_policy_violation|data_inspection_failed", re.IGNORECASE
)

_INVALID: Final = re.compile(
    r"invalid[_ ](?:request|parameter|value|argument)|bad_request", re.IGNORECASE
)

#: How much of a message is looked at: wordings stand at the front, a body may be 64 KiB.
_LOOKED_AT: Final = 4000


def classify(status: int | None, code: str | None, message: str) -> str:
    """Name a provider's refusal by status, its own code and its words.

    `status` is the HTTP status, or the number an in-band error carries, or None when there is
    none; 200 counts as none. The order is: pay, wait, authenticate, shrink, then the bare status.
    413 counts as CONTEXT_WINDOW_EXCEEDED: whatever limit the server or a proxy before it has, a
    shorter conversation is what can pass it.
    """
    said = f"{code or ''} {message[:_LOOKED_AT]}"
    if status == HTTPStatus.PAYMENT_REQUIRED or _QUOTA.search(said):
        return "QUOTA"
    if status == HTTPStatus.TOO_MANY_REQUESTS or (
        status not in {401, 403, 404} and _RATE_LIMIT.search(said)
    ):
        return "RATE_LIMIT"
    if status in {401, 403}:
        return "AUTH"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (
        status != HTTPStatus.NOT_FOUND and _OVERFLOW.search(said)
    ):
        return "CONTEXT_WINDOW_EXCEEDED"
    if status is None or status < HTTPStatus.MULTIPLE_CHOICES:
        return _by_words(said)
    if status in {400, 422}:
        return "CONTENT_FILTER" if _FILTER.search(code or "") else "INVALID_REQUEST"
    return "SERVER" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else f"HTTP_{status}"


def _by_words(said: str) -> str:
    """The code of an error that came inside a stream that had begun well."""
    for code, words in (
        ("AUTH", _AUTH),
        ("CONTENT_FILTER", _FILTER),
        ("SERVER", _SERVER),
        ("INVALID_REQUEST", _INVALID),
    ):
        if words.search(said):
            return code
    return "UNKNOWN"
