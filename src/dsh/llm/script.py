"""The script of the scripted model: a YAML list, one entry for each model request.

What comes in: the text of a script file, or plain values. What goes out: parsed entries, or one
`ConfigError` with every mistake, each with the file and the number of its entry. Reading is
strict: an unknown key, a number where text is due, or a tool without a name is refused.

    - text: Let me look.
      tools:
        - {name: read_file, arguments: {path: notes.txt}}
    - text: It says hello.
      expect: {lastMessageContains: hello}

Keys: `text`, `reasoning`, `tools` (`name`, `arguments` as a mapping or as raw text, `id`), `finish`
(`stop`, `max-tokens` or `error`), `error` (`code`, `message`, `status`, `retryAfterMs`), `usage`
(`inputTokens`, `outputTokens`, `cacheReadTokens`, `cacheWriteTokens`, `reasoningTokens`), `delay`
(seconds before the reply), `expect` (`lastMessageContains`).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeGuard

import orjson

from dsh.catalog.records import LlmFailure, Usage
from dsh.errors import ConfigError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Script", "ScriptEntry", "ScriptedCall", "parse_script", "read_script"]

ScriptFinish: TypeAlias = Literal["stop", "max-tokens", "error"]

DELAY_MAX: Final = 3600
_STATUS: Final = range(100, 600)
_ENTRY_KEYS: Final = ("text", "reasoning", "tools", "finish", "error", "usage", "delay", "expect")
_USAGE_KEYS: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cache_read_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}


@frozen(kw_only=True, slots=True)
class ScriptedCall:
    """One tool call of an entry. `arguments` is the JSON text that the model "writes"."""

    name: str
    arguments: str = "{}"
    id: str | None = None


@frozen(kw_only=True, slots=True)
class ScriptEntry:
    """The reply to one model request. `delay` is in seconds."""

    text: str = ""
    reasoning: str = ""
    tools: tuple[ScriptedCall, ...] = ()
    finish: ScriptFinish | None = None
    error: LlmFailure | None = None
    usage: Usage | None = None
    delay: float = 0.0
    last_message_contains: str | None = None


@frozen(kw_only=True, slots=True)
class Script:
    """A parsed script and what it is called in messages."""

    entries: tuple[ScriptEntry, ...]
    name: str = "script"


def parse_script(text: str, name: str) -> Script:
    """Read a script from YAML text. Raises ConfigError with all mistakes; `name` is the file."""
    import yaml  # noqa: PLC0415 - only a run with a script file pays for the YAML library

    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not YAML: {error}") from None
    return read_script(value, name)


def read_script(value: object, name: str) -> Script:
    """Read a script from plain values, as YAML or JSON gives them. Raises ConfigError."""
    if not _is_list(value):
        raise ConfigError(
            f"{name} is {_kind(value)}; expected a list, one entry for each model request"
        )
    reader = _Reader(name)
    entries = tuple(reader.entry(number, item) for number, item in enumerate(value, start=1))
    if reader.faults:
        raise ConfigError(f"{name} is not a script of the scripted model", issues=reader.issues())
    return Script(entries=entries, name=name)


class _Reader:
    """Collects every mistake, so that a script is mended in one go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.where = ""
        self.faults: list[str] = []

    def issues(self) -> tuple[str, ...]:
        return tuple(self.faults)

    def fault(self, problem: str) -> None:
        self.faults.append(f"{self.name}, {self.where}: {problem}")

    def entry(self, number: int, value: object) -> ScriptEntry:
        self.where = f"entry {number}"
        if not self.mapping(value, "an entry", _ENTRY_KEYS):
            return ScriptEntry()
        error = self.error(value["error"]) if "error" in value else None
        finish = self.finish(value.get("finish"))
        if error is not None and finish not in {None, "error"}:
            self.fault(f"finish is {finish!r} beside an error; take one of them out")
        return ScriptEntry(
            text=self.text(value, "text"),
            reasoning=self.text(value, "reasoning"),
            tools=self.tools(value.get("tools", [])),
            finish=finish,
            error=error,
            usage=self.usage(value["usage"]) if "usage" in value else None,
            delay=self.delay(value.get("delay", 0)),
            last_message_contains=self.expect(value["expect"]) if "expect" in value else None,
        )

    def mapping(
        self, value: object, what: str, keys: Sequence[str]
    ) -> TypeGuard[Mapping[str, object]]:
        if not _is_mapping(value):
            self.fault(f"{what} is {_kind(value)}; expected a mapping with {', '.join(keys)}")
            return False
        for key in value:
            if key not in keys:
                near = get_close_matches(str(key), keys, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(keys)}"
                self.fault(f"unknown key {key!r} in {what}{meant}")
        return True

    def text(self, value: Mapping[str, object], key: str) -> str:
        said = value.get(key, "")
        if isinstance(said, str):
            return said
        self.fault(f"{key} is {_kind(said)}; write it in quotes")
        return ""

    def tools(self, value: object) -> tuple[ScriptedCall, ...]:
        if not _is_list(value):
            self.fault(f"tools is {_kind(value)}; expected a list of {{name, arguments}}")
            return ()
        return tuple(self.call(item) for item in value)

    def call(self, value: object) -> ScriptedCall:
        if not self.mapping(value, "a tool", ("name", "arguments", "id")):
            return ScriptedCall(name="")
        name = self.text(value, "name")
        if not name:
            self.fault("a tool has no name")
        arguments = value.get("arguments", {})
        if not isinstance(arguments, str):
            try:
                arguments = orjson.dumps(arguments).decode()
            except TypeError as error:
                self.fault(f"arguments of {name!r} are no JSON: {error}")
                arguments = "{}"
        return ScriptedCall(name=name, arguments=arguments, id=self.text(value, "id") or None)

    def finish(self, value: object) -> ScriptFinish | None:
        match value:
            case None:
                return None
            case "stop":
                return "stop"
            case "max-tokens":
                return "max-tokens"
            case "error":
                return "error"
            case _:
                self.fault(f"finish is {value!r}; expected stop, max-tokens or error")
                return None

    def error(self, value: object) -> LlmFailure | None:
        if not self.mapping(value, "error", ("code", "message", "status", "retryAfterMs")):
            return None
        status, wait = value.get("status"), value.get("retryAfterMs")
        if status is not None and not (type(status) is int and status in _STATUS):
            self.fault(f"error.status is {status!r}; expected 100 to 599")
            status = None
        if wait is not None and not (_is_number(wait) and wait > 0):
            self.fault(f"error.retryAfterMs is {wait!r}; expected a number of milliseconds above 0")
            wait = None
        return LlmFailure(
            code=self.text(value, "code") or "SCRIPTED_ERROR",
            message=self.text(value, "message") or "the script says that this request fails",
            status=status if isinstance(status, int) else None,
            provider_retry_after_ms=float(wait) if _is_number(wait) else None,
        )

    def usage(self, value: object) -> Usage | None:
        if not self.mapping(value, "usage", tuple(_USAGE_KEYS)):
            return None
        counts: dict[str, int] = {"input_tokens": 0, "output_tokens": 0}
        for key, field in _USAGE_KEYS.items():
            said = value.get(key)
            if type(said) is int and said >= 0:
                counts[field] = said
            elif said is not None:
                self.fault(f"usage.{key} is {said!r}; expected a whole number of tokens")
        return Usage(
            input_tokens=counts["input_tokens"],
            output_tokens=counts["output_tokens"],
            cache_read_tokens=counts.get("cache_read_tokens"),
            cache_write_tokens=counts.get("cache_write_tokens"),
            reasoning_tokens=counts.get("reasoning_tokens"),
        )

    def delay(self, value: object) -> float:
        if _is_number(value) and 0 <= value <= DELAY_MAX:
            return float(value)
        self.fault(f"delay is {value!r}; expected seconds, 0 to {DELAY_MAX}")
        return 0.0

    def expect(self, value: object) -> str | None:
        if not self.mapping(value, "expect", ("lastMessageContains",)):
            return None
        return self.text(value, "lastMessageContains") or None


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) is int or type(value) is float


def _kind(value: object) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return f"the truth value {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"
