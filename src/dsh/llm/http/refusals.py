"""What went wrong between this side and the server, as classified failures.

What comes in: httpx exceptions, and answers that are no stream. What goes out: `LlmError` with a
stable code, the status, Retry-After, the request id, the provider's own words (cut) and the
remedy. A key that the server repeats in its words is taken out of them.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import httpx
import orjson
import trio

from dsh.errors import LlmError
from dsh.llm.failure import error_facts
from dsh.llm.retry_after import retry_after_ms
from dsh.llm.wording import classify
from dsh.seams.display import visible_name

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.seams.environ import Secret

__all__ = ["broken_reply", "hide", "redirect_host", "refusal", "unreachable"]

#: How much of an error's body is read, and how long that may take.
BODY_MAX: Final = 64 * 1024
BODY_SECONDS: Final = 5.0
SHOWN_MAX: Final = 600


def unreachable(error: Exception, where: str, idle: float) -> LlmError:
    """A failure before the answer's headers were there."""
    match error:
        case trio.TooSlowError() | httpx.ReadTimeout():
            return LlmError(f"{where} did not answer within {idle:g} s", code="TIMEOUT")
        case httpx.ConnectTimeout():
            return LlmError(f"{where} did not accept a connection in time", code="TRANSPORT")
        case httpx.InvalidURL() | httpx.UnsupportedProtocol() | httpx.LocalProtocolError():
            return LlmError(
                f"{where} is no address a request can be sent to; check `baseUrl`",
                code="INVALID_REQUEST",
            )
        case httpx.ConnectError() | httpx.ProxyError():
            return LlmError(
                f"cannot connect to {where}; check that it runs, and `baseUrl`", code="TRANSPORT"
            )
        case _:
            return LlmError(f"{where} closed the connection without an answer", code="TRANSPORT")


def broken_reply(error: Exception, where: str, idle: float) -> LlmError:
    """A failure while the reply was being read."""
    match error:
        case trio.TooSlowError() | httpx.ReadTimeout():
            return LlmError(f"{where} sent nothing for {idle:g} s", code="TIMEOUT")
        case httpx.RemoteProtocolError():
            return LlmError(f"{where} closed the connection inside its reply", code="STREAM_CLOSED")
        case _:
            return LlmError(f"the connection to {where} broke inside its reply", code="TRANSPORT")


def refusal(
    response: httpx.Response, body: bytes, where: str, secret: Secret | None, now_ms: int
) -> LlmError:
    """The failure that an answer without a stream is. `now_ms` is epoch ms, for Retry-After."""
    status, headers = response.status_code, response.headers
    # Hidden before anything is cut, so that no piece of a key is left at an edge.
    said = hide(body.decode(errors="replace"), secret)
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return LlmError(
            f"{where} answered with content type {headers.get('content-type', '(none)')!r} "
            f"instead of an event stream: {_cut(said)}",
            code="MALFORMED_RESPONSE",
            status=status,
            request_id=_request_id(headers),
        )
    try:
        facts = error_facts(cast("JsonValue", orjson.loads(said)))
    except orjson.JSONDecodeError:
        facts = error_facts(said)
    code = classify(status, facts.code, facts.message)
    words = _cut(facts.message or facts.code or "(no words)")
    wait = retry_after_ms(headers, now_ms)
    asked = f"; it asks to wait {wait / 1000:.10g} s" if wait else ""
    return LlmError(
        f"{where} answered {status}: {words}{asked}{_remedy(status, code, headers, secret)}",
        code=code,
        status=status,
        retry_after_ms=wait or None,
        request_id=_request_id(headers),
    )


def _remedy(status: int, code: str, headers: httpx.Headers, secret: Secret | None) -> str:
    if code == "AUTH":
        if secret is None:
            return "; it wants a key: name its variable in `apiKeyEnv`"
        return f"; check the key in {secret.name}"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        target = redirect_host(headers)
        return f"; it points to {target!r}, and redirects are not followed: set `baseUrl`"
    if status == HTTPStatus.NOT_FOUND:
        return "; check the model's name and `baseUrl`"
    return "; add credit at the provider, or choose another one" if code == "QUOTA" else ""


def redirect_host(headers: httpx.Headers) -> str:
    """The host to which an answer redirects, visible and short; `elsewhere` if it names none."""
    try:
        host = httpx.URL(headers.get("location", "")).host
    except httpx.InvalidURL:
        return "elsewhere"
    return visible_name(host)[:SHOWN_MAX] or "elsewhere"


def _cut(text: str) -> str:
    shown = " ".join(text[: 2 * SHOWN_MAX].split())
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]} … (cut)"


def hide(text: str, secret: Secret | None) -> str:
    """`text` without the key, should a server have repeated it."""
    return text if secret is None else text.replace(secret.reveal(), f"[the key in {secret.name}]")


def _request_id(headers: httpx.Headers) -> str | None:
    for name in ("x-request-id", "request-id", "x-ds-trace-id", "cf-ray"):
        value: str | None = headers.get(name)
        if value:
            return value[:200]
    return None
