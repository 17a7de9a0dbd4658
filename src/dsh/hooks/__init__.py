"""The contract's vocabulary: hook tokens, `Next`, `Logged`, payload markers, scopes, live objects.

What comes in: nothing. What goes out: pure types and small frozen values that the generated
catalog and every room above stand on. This room never awaits, reads a clock or touches a disk.
"""

from __future__ import annotations

from dsh.hooks.classes import frozen
from dsh.hooks.history import History, Line
from dsh.hooks.jsonvalue import (
    EMPTY_OBJECT,
    FrozenDict,
    InvalidJson,
    JsonObject,
    JsonValue,
    frozen_array,
    frozen_json,
    frozen_object,
)
from dsh.hooks.payloads import (
    AnyDurable,
    AnyNotice,
    CoreBarrier,
    CoreLogOnly,
    CoreNotice,
    CoreSurface,
    LogOnly,
    Notice,
)
from dsh.hooks.scope import Scope
from dsh.hooks.tokens import (
    Durable,
    EffectHandle,
    Emit,
    ErrorPolicy,
    Hook,
    Logged,
    Next,
    Parallel,
    Registrar,
    Serial,
    Stream,
    StreamNext,
    Waterfall,
)

__all__ = [
    "EMPTY_OBJECT",
    "AnyDurable",
    "AnyNotice",
    "CoreBarrier",
    "CoreLogOnly",
    "CoreNotice",
    "CoreSurface",
    "Durable",
    "EffectHandle",
    "Emit",
    "ErrorPolicy",
    "FrozenDict",
    "History",
    "Hook",
    "InvalidJson",
    "JsonObject",
    "JsonValue",
    "Line",
    "LogOnly",
    "Logged",
    "Next",
    "Notice",
    "Parallel",
    "Registrar",
    "Scope",
    "Serial",
    "Stream",
    "StreamNext",
    "Waterfall",
    "frozen",
    "frozen_array",
    "frozen_json",
    "frozen_object",
]
