"""The type language: `list<T>`, `map<T>`, `enum<a|b>`, `T | null`, `live<X>` and names.

What comes in: the text of a `type:` key and the names that are known. What goes out: a resolved
type and whether null is allowed, or TypeFaultError with what is wrong and what to write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import frozen

from .faults import did_you_mean
from .model import EnumType, ListType, LiveType, MapType, Scalar, Type, UnionType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LIVE_SCOPES", "SCALARS", "TypeFaultError", "parse_type"]

SCALARS: Final = ("string", "int", "number", "bool", "flag", "json", "object", "logged")
OTHER_NAMES: Final = {
    "str": "string",
    "text": "string",
    "integer": "int",
    "float": "number",
    "boolean": "bool",
    "any": "json",
    "dict": "object",
    "true": "flag",
}
#: The live objects, and how the scope is found from each: attribute, and whether it may be None.
LIVE_SCOPES: Final[Mapping[str, tuple[tuple[str, bool], ...]]] = {
    "Actor": (),
    "Agent": (("scope", False),),
    "AssembleContext": (("scope", True), ("agent", True)),
    "Failure": (),
    "LlmRequest": (),
    "PromptAssembly": (),
    "Session": (("scope", True),),
    "ToolExecution": (("agent", True),),
    "ToolFailed": (),
    "ToolRun": (("agent", True),),
    "ToolSuccess": (),
    "TurnSignal": (),
}
_TOKENS = re.compile(r"\s*(?:([A-Za-z][A-Za-z0-9_/.-]*)|([<>|]))")


class TypeFaultError(Exception):
    """A `type:` that cannot be read; `offset` is where in its text."""

    def __init__(self, rule: str, what: str, remedy: str, offset: int) -> None:
        super().__init__(what)
        self.rule = rule
        self.what = what
        self.remedy = remedy
        self.offset = offset


@frozen
class _Word:
    text: str
    offset: int


class _Parser:
    def __init__(self, text: str, known: Mapping[str, Type]) -> None:
        self.text = text
        self.known = known
        self.words: list[_Word] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKENS.match(text, at)
            if match is None:
                bad = text[at:].lstrip()[:1]
                raise TypeFaultError(
                    "bad-type",
                    f"{bad!r} is no part of a type",
                    "write list<T>, map<T>, enum<a|b>, T | null or live<X>",
                    at + len(text[at:]) - len(text[at:].lstrip()),
                )
            word = match.group(1) or match.group(2)
            self.words.append(_Word(word, match.start(1) if match.group(1) else match.start(2)))
            at = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.words[self.at].text if self.at < len(self.words) else ""

    def offset(self) -> int:
        return self.words[self.at].offset if self.at < len(self.words) else len(self.text)

    def take(self, expected: str = "") -> str:
        word, offset = self.peek(), self.offset()
        if not word or (expected and word != expected):
            shown = repr(word) if word else "the end"
            raise TypeFaultError(
                "bad-type",
                f"{shown} in {self.text!r} where {expected or 'a type'!r} is due",
                "write list<T>, map<T>, enum<a|b>, T | null or live<X>",
                offset,
            )
        self.at += 1
        return word

    def alternatives(self) -> tuple[list[Type], bool]:
        found: list[Type] = []
        nullable = False
        while True:
            if self.peek() == "null":
                self.take()
                nullable = True
            else:
                found.append(self.single())
            if self.peek() != "|":
                return found, nullable
            self.take("|")

    def inner(self) -> Type:
        self.take("<")
        offset = self.offset()
        members, nullable = self.alternatives()
        self.take(">")
        if nullable:
            raise TypeFaultError(
                "null-inside", "null inside a list or map", "leave such items out", offset
            )
        return self.joined(members, offset)

    def joined(self, members: list[Type], offset: int) -> Type:
        if len(members) == 1:
            return members[0]
        if members and all(isinstance(member, LiveType) for member in members):
            return UnionType(tuple(members))
        raise TypeFaultError(
            "bad-union",
            f"{self.text!r} joins several types",
            "declare a union with a tag under `unions:` (only live types may be joined here)",
            offset,
        )

    def single(self) -> Type:
        offset = self.offset()
        word = self.take()
        if word == "list":
            return ListType(self.inner())
        if word == "map":
            return MapType(self.inner())
        if word == "enum":
            return EnumType("", self.choices())
        if word == "live":
            return self.live()
        if word in SCALARS:
            return Scalar(word)
        if word in self.known:
            return self.known[word]
        raise TypeFaultError("unknown-type", f"unknown type {word!r}", self.suggest(word), offset)

    def suggest(self, word: str) -> str:
        if word in OTHER_NAMES:
            return f"write {OTHER_NAMES[word]!r}"
        return did_you_mean(
            word,
            [*SCALARS, *self.known, "list", "map", "enum", "live"],
            "declare it, or write json",
        )

    def choices(self) -> tuple[str, ...]:
        self.take("<")
        found = [self.take()]
        while self.peek() == "|":
            self.take("|")
            offset = self.offset()
            word = self.take()
            if word in found:
                raise TypeFaultError(
                    "bad-type", f"{word!r} stands twice in an enum", "keep one", offset
                )
            found.append(word)
        self.take(">")
        return tuple(found)

    def live(self) -> Type:
        self.take("<")
        offset = self.offset()
        word = self.take()
        if word not in LIVE_SCOPES:
            raise TypeFaultError(
                "unknown-live",
                f"unknown live object {word!r}",
                did_you_mean(word, LIVE_SCOPES, f"one of {', '.join(LIVE_SCOPES)}"),
                offset,
            )
        self.take(">")
        return LiveType(word)


def parse_type(text: str, known: Mapping[str, Type]) -> tuple[Type, bool]:
    """The type and whether null is allowed. Raises TypeFaultError with the offset in `text`."""
    parser = _Parser(text, known)
    members, nullable = parser.alternatives()
    if parser.at < len(parser.words):
        raise TypeFaultError(
            "bad-type",
            f"{parser.peek()!r} after the end of a type in {text!r}",
            "write list<T>, map<T>, enum<a|b>, T | null or live<X>",
            parser.offset(),
        )
    if not members:
        raise TypeFaultError("bad-type", "null alone is no type", "write T | null", 0)
    return parser.joined(members, 0), nullable
