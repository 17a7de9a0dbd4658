"""The one classifier: whatever went wrong with a model call becomes an `LlmFailure`.

What comes in: an exception from an adapter, or an error object that a server sent inside its
stream. What goes out: plain, serialisable facts: code, message, status, Retry-After, request id.
An exception here may be hostile (its `str` raises, its attributes lie); it is contained. Nothing
here retries, logs or keeps the exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeGuard

import orjson
import trio

from dsh.catalog.records import LlmFailure
from dsh.errors import HarnessError, LlmError
from dsh.hooks import frozen
from dsh.llm.wording import classify

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

__all__ = ["ErrorFacts", "describe", "error_facts", "failure_of", "raised"]

MESSAGE_MAX: Final = 2000
CHAIN_MAX: Final = 8
#: How deep an error object may be wrapped in others, and where its JSON may begin in a text.
NESTED_MAX: Final = 4
NESTED_FROM: Final = 80
#: An HTTP status, and one that says that something failed.
_STATUS: Final = range(100, 600)
_FAILED: Final = range(400, 600)
_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


@frozen(slots=True)
class ErrorFacts:
    """What an error object of a server says: its own code or type, its words, a status if any."""

    code: str | None
    message: str
    status: int | None = None

    def kind(self, status: int | None = None) -> str:
        """The stable failure code, `status` being the HTTP status if one was not 200."""
        return classify(status if status is not None else self.status, self.code, self.message)


def error_facts(value: JsonValue, depth: int = 0) -> ErrorFacts:
    """Read an error object in any of the shapes servers use.

    `{"error": {"message", "code", "type"}}`, `{"error": "words"}`, `{"message"}`, `{"detail"}`, a
    bare string, and each of these again as JSON text inside a message.
    """
    if isinstance(value, str):
        return _from_text(value, depth)
    if not isinstance(value, Mapping):
        return ErrorFacts(None, "" if value is None else orjson.dumps(value, default=str).decode())
    inner = value.get("error")
    if inner is not None and inner is not False and depth < NESTED_MAX:
        found = error_facts(inner, depth + 1)
        if found.message or found.code:
            return found if found.code else ErrorFacts(_code_of(value), found.message, found.status)
    code, status = _code_of(value), _status_of(value)
    for key in ("message", "detail", "msg", "error_description"):
        words = value.get(key)
        if isinstance(words, str) and words:
            nested = _from_text(words, depth)
            return ErrorFacts(nested.code or code, nested.message, nested.status or status)
        if words:
            return ErrorFacts(code, orjson.dumps(words, default=str).decode(), status)
    return ErrorFacts(code, code or orjson.dumps(value, default=dict).decode(), status)


def _from_text(text: str, depth: int) -> ErrorFacts:
    start = text.find("{")
    if 0 <= start <= NESTED_FROM and depth < NESTED_MAX:
        try:
            nested: JsonValue = orjson.loads(text[start:])
        except orjson.JSONDecodeError:
            return ErrorFacts(None, text)
        found = error_facts(nested, depth + 1)
        if found.code or found.message:
            return found
    return ErrorFacts(None, text)


def _code_of(value: Mapping[str, JsonValue]) -> str | None:
    for key in ("code", "type", "status"):
        said = value.get(key)
        if isinstance(said, str) and said and said != "error":
            return said
    return None


def _status_of(value: Mapping[str, JsonValue]) -> int | None:
    for key in ("code", "status", "status_code"):
        said = value.get(key)
        if type(said) is int and said in _FAILED:
            return said
    return None


def failure_of(error: BaseException) -> LlmFailure:
    """The facts of one failure, fit for the log. Never raises, whatever `error` does.

    An `LlmError` (or another `HarnessError`) keeps its code and facts; a group of one counts as
    its member; network errors of trio and the system become TRANSPORT or TIMEOUT; the rest is
    UNKNOWN. The message shows the whole chain of causes, once each.
    """
    error = _sole(error)
    if isinstance(error, LlmError):
        return LlmFailure(
            message=_cut(describe(error)),
            code=_code(_read(error, "code")),
            status=_http_status(_read(error, "status")),
            provider_retry_after_ms=_delay(_read(error, "retry_after_ms")),
            request_id=_short_text(_read(error, "request_id")),
        )
    if isinstance(error, HarnessError):
        code = _code(_read(error, "code"))
    elif isinstance(error, trio.TooSlowError | TimeoutError):
        code = "TIMEOUT"
    elif isinstance(error, OSError | trio.BrokenResourceError | trio.ClosedResourceError):
        code = "TRANSPORT"
    else:
        code = "UNKNOWN"
    return LlmFailure(message=_cut(describe(error)), code=code)


def raised(failure: LlmFailure) -> LlmError:
    """The exception for a failure that ends a turn: the same facts, to be raised."""
    return LlmError(
        failure.message,
        code=failure.code,
        status=failure.status,
        retry_after_ms=failure.provider_retry_after_ms,
        request_id=failure.request_id,
    )


def describe(error: BaseException) -> str:
    """The text of an error and of what caused it, outermost first, repeated texts once."""
    said: list[str] = []
    seen: set[int] = set()
    todo: list[BaseException] = [error]
    while todo and len(said) < CHAIN_MAX:
        current = todo.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        text = _text(current)
        if text and not any(text in earlier for earlier in said):
            said.append(text)
        if _is_group(current):
            todo[:0] = current.exceptions
        cause = current.__cause__
        if cause is None and not current.__suppress_context__:
            cause = current.__context__
        if cause is not None:
            todo.append(cause)
    return ": ".join(said)


def _sole(error: BaseException) -> BaseException:
    while _is_group(error) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        said = error.message if isinstance(error, HarnessError) else str(error)
        text = said.strip().encode(errors="replace").decode()
    except Exception:  # noqa: BLE001 - a hostile __str__ must not hide the failure it belongs to
        return f"{name} (its text could not be read)"
    if isinstance(error, BaseExceptionGroup):
        # The group's own words only count members, which follow anyway.
        return text.partition(" (")[0]
    if not text:
        return name
    return text if isinstance(error, HarnessError) else f"{name}: {text}"


def _read(error: BaseException, name: str) -> object:
    try:
        value: object = getattr(error, name)
    except Exception:  # noqa: BLE001 - a hostile attribute counts as absent
        return None
    return value


def _code(value: object) -> str:
    return value if type(value) is str and _CODE.fullmatch(value) else "UNKNOWN"


def _http_status(value: object) -> int | None:
    return value if type(value) is int and value in _STATUS else None


def _delay(value: object) -> float | None:
    if type(value) is int or type(value) is float:
        return float(value) if isfinite(value) and value > 0 else None
    return None


def _short_text(value: object) -> str | None:
    return value[:200] if type(value) is str and value else None


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]} … (cut)"
