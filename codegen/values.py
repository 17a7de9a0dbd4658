"""Reads what stands under a key: text, numbers, truth values, defaults.

What comes in: nodes of the YAML tree. What goes out: Python values, or None with a fault noted.
A plain scalar that another YAML reader would take for a number or a truth value is not text: it
must be quoted.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING

from attrs import frozen

from .faults import did_you_mean
from .model import EnumType, ListType, MapType, Scalar
from .read import Entries, Items, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .faults import Faults, Place
    from .model import Json, Type
    from .read import Node

__all__ = ["Values", "number_of"]

_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NOT_TEXT = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|true|false|True|False|TRUE|FALSE|null|Null|NULL|~"
)
INT_MAX = 2**53 - 1


def number_of(text: str) -> float | int | None:
    """The JSON number that a text is; None for any other text."""
    if _INT.fullmatch(text) and abs(int(text)) <= INT_MAX:
        return int(text)
    if _NUMBER.fullmatch(text) and not _INT.fullmatch(text) and isfinite(float(text)):
        return float(text)
    return None


@frozen
class Values:
    """Typed reading of nodes; every method notes a fault and returns None if it cannot."""

    faults: Faults

    def text(self, node: Node, what: str) -> str | None:
        """Text that is not empty."""
        if not isinstance(node, Text):
            self.faults.add(
                node.place, "wrong-shape", f"{what} is not text", "write one line of text"
            )
            return None
        if node.plain and not node.value:
            self.faults.add(
                node.place, "no-value", f"{what} has no value", "write it, or drop the key"
            )
            return None
        if node.plain and _NOT_TEXT.fullmatch(node.value):
            self.faults.add(
                node.place,
                "quote-this",
                f"{what} is text, but {node.value} reads as something else",
                f'write "{node.value}"',
            )
            return None
        if not node.value.strip():
            self.faults.add(node.place, "empty-text", f"{what} is blank", "say it in one line")
            return None
        return node.value

    def text_at(self, keys: Mapping[str, Node], key: str, what: str) -> str:
        """The text under a key; "" when it is absent or faulty."""
        return (self.text(keys[key], f"{key} of {what}") or "") if key in keys else ""

    def truth_at(self, keys: Mapping[str, Node], key: str, what: str) -> bool:
        """The truth value under a key; False when it is absent or faulty."""
        return key in keys and self.truth(keys[key], f"{key} of {what}") is True

    def texts_at(self, keys: Mapping[str, Node], key: str, what: str) -> tuple[str, ...]:
        """The list of texts under a key; empty when it is absent."""
        return self.texts(keys[key], f"{key} of {what}") if key in keys else ()

    def number_at(self, keys: Mapping[str, Node], key: str, what: str) -> float | int | None:
        """The number under a key; None when it is absent or faulty."""
        return self.number(keys[key], f"{key} of {what}") if key in keys else None

    def truth(self, node: Node, what: str) -> bool | None:
        """`true` or `false`, written exactly so."""
        if isinstance(node, Text) and node.plain and node.value in {"true", "false"}:
            return node.value == "true"
        shown = node.value if isinstance(node, Text) else "a list or mapping"
        self.faults.add(node.place, "not-boolean", f"{what} is {shown!r}", "write true or false")
        return None

    def integer(self, node: Node, what: str) -> int | None:
        """A whole number within ±(2**53 - 1)."""
        if isinstance(node, Text) and node.plain and _INT.fullmatch(node.value):
            value = int(node.value)
            if abs(value) <= INT_MAX:
                return value
        shown = node.value if isinstance(node, Text) else "a list or mapping"
        self.faults.add(
            node.place,
            "not-integer",
            f"{what} is {shown!r}",
            "write digits only, as in 8192, without leading zeros, underscores or quotes",
        )
        return None

    def number(self, node: Node, what: str) -> float | int | None:
        """A JSON number."""
        if isinstance(node, Text) and node.plain and _NUMBER.fullmatch(node.value):
            if _INT.fullmatch(node.value):
                return self.integer(node, what)
            value = float(node.value)
            if isfinite(value):
                return value
        shown = node.value if isinstance(node, Text) else "a list or mapping"
        self.faults.add(
            node.place, "not-number", f"{what} is {shown!r}", "write a number, as in 0.5 or 10"
        )
        return None

    def texts(self, node: Node, what: str) -> tuple[str, ...]:
        """A list of texts without repetitions."""
        if not isinstance(node, Items):
            self.faults.add(node.place, "wrong-shape", f"{what} is not a list", "write [a, b]")
            return ()
        found: list[str] = []
        for item in node.items:
            text = self.text(item, f"an item of {what}")
            if text in found:
                self.faults.add(
                    item.place, "repeated", f"{text!r} stands twice in {what}", "keep one"
                )
            elif text is not None:
                found.append(text)
        return tuple(found)

    def keys(
        self, node: Node, what: str, allowed: Sequence[str], required: Sequence[str] = ()
    ) -> Mapping[str, Node] | None:
        """A mapping with only the allowed keys and all required ones."""
        if not isinstance(node, Entries):
            self.faults.add(
                node.place, "wrong-shape", f"{what} is not a mapping", "write key: value lines"
            )
            return None
        for key, place in node.keys.items():
            if key not in allowed:
                self.faults.add(
                    place,
                    "unknown-key",
                    f"{key!r} is not a key of {what}",
                    did_you_mean(key, allowed, f"known are {', '.join(allowed)}"),
                )
        for key in required:
            if key not in node.entries:
                self.missing(node.place, what, key)
        return node.entries

    def missing(self, place: Place, what: str, key: str) -> None:
        """Note that a key is missing."""
        self.faults.add(place, f"missing-{key}", f"{what} has no {key!r}", f"add {key}:")

    def each(self, node: Node, what: str) -> list[tuple[str, Place, Node]]:
        """The entries of a mapping whose keys are names: name, its place, what is below."""
        if isinstance(node, Entries):
            return [(name, node.keys[name], below) for name, below in node.entries.items()]
        self.faults.add(
            node.place, "wrong-shape", f"{what} is not a mapping", "write key: value lines"
        )
        return []

    def one_of(self, node: Node, what: str, allowed: Sequence[str]) -> str | None:
        """One of some words."""
        if isinstance(node, Text) and node.value in allowed:
            return node.value
        shown = node.value if isinstance(node, Text) else "a list or mapping"
        self.faults.add(
            node.place,
            "unknown-value",
            f"{what} is {shown!r}",
            did_you_mean(shown, allowed, f"one of {', '.join(allowed)}"),
        )
        return None

    def default(self, node: Node, kind: Type, of: str, *, nullable: bool) -> Json:
        """A default value of the given type."""
        what = f"the default of {of}"
        if nullable and isinstance(node, Text) and node.plain and node.value in {"null", "~"}:
            return None
        if isinstance(kind, ListType | MapType):
            return self._default_items(node, kind, of)
        if isinstance(kind, EnumType):
            return self.one_of(node, what, kind.values)
        if kind == Scalar("string"):
            empty = isinstance(node, Text) and not node.value and not node.plain
            return "" if empty else self.text(node, what)
        readers: Mapping[Type, Callable[[Node, str], Json]] = {
            Scalar("int"): self.integer,
            Scalar("number"): self.number,
            Scalar("bool"): self.truth,
        }
        if kind in readers:
            return readers[kind](node, what)
        if kind != Scalar("unknown"):
            self.faults.add(
                node.place,
                "bad-default",
                f"{what} cannot be written here",
                "make the field optional instead",
            )
        return None

    def _default_items(self, node: Node, kind: ListType | MapType, of: str) -> Json:
        """The default of a list or map."""
        what = f"the default of {of}"
        if isinstance(kind, ListType) and isinstance(node, Items):
            return [self.default(item, kind.item, of, nullable=False) for item in node.items]
        if isinstance(kind, MapType) and isinstance(node, Entries) and not node.entries:
            return {}
        remedy = "write [] or [a, b]" if isinstance(kind, ListType) else "a map's default is {}"
        wanted = "a list" if isinstance(kind, ListType) else "an empty map"
        self.faults.add(node.place, "bad-default", f"{what} is not {wanted}", remedy)
        return None
