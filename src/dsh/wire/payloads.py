"""Payloads to JSON text and back, for every durable event that this installation knows.

What comes in: payload objects, or the decoded `data` of a line with its type and version. What
goes out: checked JSON bytes, payload objects, or a refusal that names the path. Core events go to
the generated codec, the others to the extension that declared them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import orjson

from dsh.catalog import codec, registry
from dsh.catalog.records import ReasoningDeltaChunk, TextDeltaChunk
from dsh.catalog.refusal import INT_MAX, is_clean
from dsh.wire.envelope import UnknownEvent
from dsh.wire.ext import foreign
from dsh.wire.upcasters import MissingStepError, retired, upcast

if TYPE_CHECKING:
    from dsh.catalog import assistant
    from dsh.hooks import AnyDurable, Durable
    from dsh.wire.ext import ForeignEvent

__all__ = [
    "NotJson",
    "Unwritable",
    "WireFault",
    "decode_payload",
    "encode_payload",
    "is_plain_delta",
    "owner_of",
    "token_of",
]


class WireFault(ValueError):
    """A line, or a part of one, is not what this format allows. The text says which part."""


class NotJson(WireFault):
    """A line is no JSON at all: what the end of a log looks like after a loss of power."""


class Unwritable(ValueError):
    """A payload cannot be written so that it could be read again. The text names the path."""


_STRICT: Final = orjson.OPT_STRICT_INTEGER
_TEXTUAL: Final = (TextDeltaChunk, ReasoningDeltaChunk)
#: Tokens that were once found to be the core's own, which they stay.
_CORE: Final[set[object]] = set()


def token_of(name: str) -> Durable[AnyDurable] | None:
    """The token of a durable event, of the core or an extension; None if nobody declares it."""
    token = registry.DURABLES.get(name)
    if token is not None:
        return token
    found = foreign(name)
    return None if found is None else found[1].token


def owner_of(name: str) -> str | None:
    """`name@version` of the extension that declares the event; None for the core."""
    found = foreign(name)
    return None if found is None else found[0]


def encode_payload(payload: AnyDurable) -> bytes:
    """The payload as compact JSON text, in the wire's spelling.

    Raises Unwritable when a value is of the wrong kind, when JSON would lose it (NaN, lone
    surrogates, integers beyond ±(2**53 - 1)), or when no catalog here could read it back.
    """
    token = payload.TOKEN
    found = None if token in _CORE else _declared(token)
    try:
        data = codec.encode(payload) if found is None else found.encode(payload)
        return orjson.dumps(data, option=_STRICT)
    except (codec.CodecError, TypeError, AttributeError, KeyError) as error:
        # The last three: something of a foreign class where a record or a value is due.
        raise Unwritable(f"{token.name}: {error}") from error


def _declared(token: Durable[AnyDurable]) -> ForeignEvent | None:
    """The extension's coding of an event; None if it is the core's. Raises Unwritable."""
    if token_of(token.name) is not token:
        raise Unwritable(
            f"no catalog here declares {token.name!r}, so the line could never be read again; "
            "import the catalog that declares it"
        )
    found = foreign(token.name)
    if found is None:
        _CORE.add(token)
        return None
    return found[1]


def is_plain_delta(payload: assistant.Chunk) -> bool:
    """Whether a chunk is a piece of text or reasoning that `encode_payload` would not refuse.

    Says no where it cannot tell at a glance.
    """
    chunk = payload.chunk
    if not isinstance(chunk, _TEXTUAL):
        return False
    text, index = chunk.text, chunk.index
    turn, step = payload.turn, payload.step
    return (
        text.__class__ is str
        and (text.isascii() or is_clean(text))
        and index.__class__ is int
        and turn.__class__ is int
        and step.__class__ is int
        and 0 <= index <= INT_MAX
        and 0 <= turn <= INT_MAX
        and 0 <= step <= INT_MAX
    )


def decode_payload(
    name: str, data: object, *, version: int, raw: bytes
) -> AnyDurable | UnknownEvent:
    """The payload of a line, brought to the current version, or to the event that took its place.

    An unknown type, a version newer than ours, or a retired event without a successor becomes an
    `UnknownEvent` that keeps `raw`. Raises WireFault when the data of a known type is not of its
    shape.
    """
    token = token_of(name)
    if token is None:
        return _retired_payload(name, data, version=version, raw=raw)
    if version > token.version:
        return UnknownEvent(raw, "newer version")
    if version < token.version:
        data = _lifted(name, data, version=version, current=token.version)
    try:
        found = foreign(name)
        return codec.decode(name, data) if found is None else found[1].decode(data)
    except codec.CodecError as error:
        raise WireFault(f"{name}: {error}") from error


def _lifted(name: str, data: object, *, version: int, current: int) -> dict[str, object]:
    """Old data, carried up. Raises WireFault when a step cannot read it."""
    if not isinstance(data, dict):
        raise WireFault(f"{name}: data of version {version} is not an object")
    try:
        old = cast("dict[str, object]", data)
        return upcast(name, old, version=version, current=current)
    except MissingStepError as error:
        raise WireFault(
            f"{name}: nothing here carries version {version} up to {current} "
            f"(no step {error.args[0]}); install the release of {owner_of(name) or 'dsh'} that does"
        ) from error
    except Exception as error:  # a step of an extension may raise anything
        raise WireFault(
            f"{name}: data of version {version} is not of its shape: "
            f"{type(error).__name__}: {error}"
        ) from error


def _retired_payload(
    name: str, data: object, *, version: int, raw: bytes
) -> AnyDurable | UnknownEvent:
    """The payload of an event that no catalog has today: retired, or never heard of."""
    found = retired(name)
    if found is None:
        return UnknownEvent(raw, "unknown type")
    last, successor, made = found
    if version > last:
        return UnknownEvent(raw, "newer version")
    if successor is None:
        return UnknownEvent(raw, "retired")
    # The step from the last version makes the successor's data.
    lifted = _lifted(name, data, version=version, current=last + 1)
    return decode_payload(successor, lifted, version=made, raw=raw)
