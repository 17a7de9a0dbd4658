"""The naming law: from the words of the schema to the names of Python and of the wire.

What comes in: event names, field names, tags. What goes out: module, token, class and wire names.
Pure text; whether a name is allowed is decided in `lint`.
"""

from __future__ import annotations

import keyword
import re

__all__ = [
    "RESERVED_CLASSES",
    "RESERVED_DOMAINS",
    "camel",
    "domain_pattern",
    "field_pattern",
    "is_python_name",
    "module_of",
    "pascal",
    "token_of",
    "word_pattern",
]

_WORD = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
word_pattern = re.compile(rf"{_WORD}(?:/{_WORD})*")
domain_pattern = re.compile(rf"{_WORD}(?:\.{_WORD})*")
field_pattern = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")

RESERVED_DOMAINS = frozenset(
    {
        "records",
        "config",
        "codec",
        "history",
        "reference",
        "refusal",
        "registry",
        "hooks",
        "live",
        "errors",
        "dsh",
    }
)
RESERVED_CLASSES = frozenset(
    [
        "Any",
        "ClassVar",
        "Final",
        "Literal",
        "TypeAlias",
        "Mapping",
        "JsonValue",
        "JsonObject",
        "Context",
        "Next",
        "StreamNext",
        "Logged",
        "Hook",
        "Waterfall",
        "StreamHook",
        "Serial",
        "Emit",
        "Parallel",
        "Durable",
        "Notice",
        "CoreNotice",
        "CoreBarrier",
        "LogOnly",
        "CoreLogOnly",
        "CoreSurface",
        "AnyDurable",
    ]
)


def module_of(domain: str) -> str:
    """`system-prompt` → `system_prompt`, `acme.deploy` → `acme_deploy`."""
    return domain.replace("-", "_").replace(".", "_")


def token_of(rest: str) -> str:
    """`inbox/spliced` → `INBOX_SPLICED`."""
    return rest.replace("/", "_").replace("-", "_").upper()


def pascal(words: str) -> str:
    """`inbox/spliced` → `InboxSpliced`, `tool-call` → `ToolCall`."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[/_.-]", words))


def camel(field: str) -> str:
    """`max_tokens` → `maxTokens`."""
    first, *rest = field.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def is_python_name(name: str) -> bool:
    """True if a Python class or field may be called so."""
    return name.isidentifier() and not keyword.iskeyword(name)
