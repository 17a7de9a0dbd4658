"""One composition file: YAML text to located nodes.

What comes in: the text of a file and its name. What goes out: one `Node` tree, or a ConfigError
with the place of the fault. Scalars follow YAML 1.2: only true/false, null, decimal, 0x and 0o
numbers and floats are not text, so `no`, `on`, `012` and `12:30` stay the words they are. Duplicate
keys, anchors, merge keys, tags and second documents are refused. No code is ever run.
Imported only when a composition file exists: the YAML library costs a run without one nothing.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Final, cast

import yaml

from dsh.boot.nodes import Issue, Node, Place, Scalar
from dsh.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_file", "read_text"]

BOOLEANS: Final = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
BASED: Final = {re.compile(r"0o[0-7]+"): 8, re.compile(r"0x[0-9a-fA-F]+"): 16}
FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
MERGE_KEY: Final = "<<"
DEPTH_MAX: Final = 40


def read_file(path: Path, shown: str) -> Node:
    """The whole file at `path` as a node; `shown` is how messages call it.

    Raises ConfigError when it cannot be read, is no UTF-8, or is no YAML that we accept.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {shown}: {error.strerror or error}; give a readable file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{shown} is not UTF-8 (byte {error.start}); save it as UTF-8 text"
        ) from error
    return read_text(text, shown)


def read_text(text: str, shown: str) -> Node:
    """`text` as a node. Raises ConfigError with every fault that can be told apart."""
    reader = _Reader(text, shown)
    try:
        node = reader.document()
    except yaml.YAMLError as error:
        fault = _fault(error, shown)
        raise ConfigError("the composition is not valid YAML", issues=(fault,)) from error
    finally:
        reader.loader.dispose()
    if reader.issues:
        raise ConfigError(
            f"{shown} cannot be read", issues=tuple(str(issue) for issue in reader.issues)
        )
    return node


def _fault(error: yaml.YAMLError, shown: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        hint = "; indent with spaces" if "'\\t'" in str(error.problem) else ""
        return f"{shown}:{mark.line + 1}:{mark.column + 1}: {error.problem}{hint}"
    return f"{shown}: {' '.join(str(error).split())}"


class _Reader:
    """Walks the parser's events, so that anchors, tags and duplicate keys are seen as written."""

    def __init__(self, text: str, shown: str) -> None:
        self.loader = yaml.SafeLoader(text)
        self.shown = shown
        self.issues: list[Issue] = []
        self.depth = 0

    def document(self) -> Node:
        """The one document of the stream; an empty stream is null."""
        self.take()  # stream start
        if self.loader.check_event(yaml.StreamEndEvent):
            return Node(None, Place(self.shown, 1, 1), "")
        self.take()  # document start
        node = self.value()
        self.take()  # document end
        if not self.loader.check_event(yaml.StreamEndEvent):
            self.refuse(self.peek(), "a second document; keep one per file")
        return node

    def take(self) -> yaml.Event:
        event: object = self.loader.get_event()  # type: ignore[no-untyped-call]
        return cast("yaml.Event", event)

    def peek(self) -> yaml.Event:
        event: object = self.loader.peek_event()  # type: ignore[no-untyped-call]
        return cast("yaml.Event", event)

    def refuse(self, event: yaml.Event, problem: str) -> None:
        self.issues.append(Issue(self.place(event), problem))

    def place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        if mark is None:
            return Place(self.shown)
        return Place(self.shown, mark.line + 1, mark.column + 1)

    def value(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            place = self.place(self.peek())
            raise ConfigError(f"{place}: nested deeper than {DEPTH_MAX} levels; flatten it")
        try:
            return self.part()
        finally:
            self.depth -= 1

    def part(self) -> Node:
        event = self.take()
        place = self.place(event)
        if isinstance(event, yaml.AliasEvent):
            self.refuse(event, f"*{event.anchor}: aliases are not used here; write the value again")
            return Node(None, place)
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.refuse(event, f"&{event.anchor}: anchors are not used here; remove it")
        if isinstance(event, yaml.ScalarEvent):
            self.no_tag(event, event.tag)
            return Node(self.scalar(event), place, event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            self.no_tag(event, event.tag)
            items: list[Node] = []
            while not self.loader.check_event(yaml.SequenceEndEvent):
                items.append(self.value())
            self.take()
            return Node(tuple(items), place)
        if isinstance(event, yaml.MappingStartEvent):
            self.no_tag(event, event.tag)
        return Node(self.mapping(), place)

    def mapping(self) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            event = self.peek()
            key = self.value()
            item = self.value()
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse(event, "a key must be plain text")
                continue
            name = event.value
            if name == MERGE_KEY:
                self.refuse(event, "merge keys (<<) are not used here; write the entries again")
            elif name in entries:
                first = entries[name].key
                self.refuse(event, f"duplicate key {name!r}; it is first at {first}")
            else:
                entries[name] = Node(item.value, item.place, item.raw, key.place)
        self.take()
        return entries

    def no_tag(self, event: yaml.Event, tag: str | None) -> None:
        if tag is not None and tag != "!":
            self.refuse(event, f"the tag {tag!r} is not used here; write plain values")

    def scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text = event.value
        if event.style is not None or event.tag == "!":
            return text
        if text in NULLS:
            return None
        if text in BOOLEANS:
            return BOOLEANS[text]
        if INTEGER.fullmatch(text):
            return int(text)
        for pattern, base in BASED.items():
            if pattern.fullmatch(text):
                return int(text, base)
        if FLOAT.fullmatch(text):
            number = float(text)
            if isfinite(number):
                return number
            self.refuse(event, f"{text} is larger than any number we can carry")
        return text
