"""Putting tool calls together from the fragments of a stream, whatever shape they come in.

What comes in: the `tool_calls` lists of the deltas, in order. What goes out: for each fragment the
call it belongs to and what it adds. Pure.

Servers differ in every field: no index, always index 0, ids that are repeated, empty, null or
missing, names in pieces or again in each fragment, arguments before the name, as null or as an
object. The rules, in this order:

1. A fragment with an index belongs to the call at that index, unless it has another id *and* a
   name: then it starts a new call there (gateways that number every call 0).
2. Without an index, an id that is known means that call, and a new id starts a new call.
3. With neither, it belongs to the newest call, unless it has a name and the newest call's
   arguments are already a whole JSON object: then it starts a new call.
4. The first id that is not empty is kept; a second call with the same id gets one of its own.
5. A name that repeats or extends the name so far replaces it, any other is appended to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import JsonValue

__all__ = ["CallFragments", "PartialCall"]


class PartialCall:
    """One call as far as it is known. `shown` counts the characters of arguments already told."""

    __slots__ = ("block_index", "call_id", "name", "parts", "shown_name", "told", "wire_id")

    def __init__(self) -> None:
        self.wire_id = ""
        self.call_id = ""
        self.name = ""
        self.parts: list[str] = []
        self.block_index = -1
        self.shown_name = ""
        self.told = 0

    @property
    def arguments(self) -> str:
        """The raw text so far."""
        return "".join(self.parts)


class CallFragments:
    """All calls of one reply."""

    def __init__(self) -> None:
        self.calls: Final[list[PartialCall]] = []
        self._by_index: dict[int, PartialCall] = {}
        self._by_id: dict[str, PartialCall] = {}
        self._ids: set[str] = set()
        self._current: PartialCall | None = None

    def add(self, fragment: Mapping[str, JsonValue]) -> PartialCall:
        """Add one fragment; returns the call that it belongs to."""
        function = fragment.get("function")
        if not isinstance(function, dict):
            function = fragment
        wire_id = _text(fragment.get("id"))
        name = _text(function.get("name"))
        index = fragment.get("index")
        call = self._find(index if type(index) is int else None, wire_id, name)
        if wire_id and not call.wire_id:
            call.wire_id = wire_id
            self._by_id.setdefault(wire_id, call)
        if name and name != call.name:
            call.name = name if name.startswith(call.name) else call.name + name
        added = _arguments(function.get("arguments"))
        if added:
            call.parts.append(added)
        return call

    def identify(self, call: PartialCall) -> str:
        """The id that the call has from now on: the server's, or one of ours."""
        if not call.call_id:
            wanted = call.wire_id
            if not wanted or wanted in self._ids:
                wanted = f"call_{uuid4().hex}"
            self._ids.add(wanted)
            call.call_id = wanted
        return call.call_id

    def _find(self, index: int | None, wire_id: str, name: str) -> PartialCall:
        if index is not None:
            known = self._by_index.get(index)
            other = known is not None and wire_id and known.wire_id and wire_id != known.wire_id
            if known is None or (other and name):
                known = self._by_index[index] = self._new()
            self._current = known
            return known
        if wire_id:
            known = self._by_id.get(wire_id)
            if known is None:
                current = self._current
                late = current is not None and not current.wire_id and not name
                known = current if late and current is not None else self._new()
            self._current = known
            return known
        current = self._current
        if current is None or (name and current.name and _is_whole(current.arguments)):
            current = self._current = self._new()
        return current

    def _new(self) -> PartialCall:
        call = PartialCall()
        self.calls.append(call)
        return call


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    # Some servers send the arguments as JSON instead of as text that is JSON.
    return "" if value is None else orjson.dumps(value).decode()


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False
