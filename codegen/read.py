"""Reads YAML into a tree that knows the line and column of every key and value.

What comes in: the bytes of a schema file. What goes out: `Text`, `Items` and `Entries` nodes, or
faults. Scalars stay text; what they mean is decided by the key they stand under, so that `on`, `no`
and `12:30` are never booleans or numbers. Anchors, aliases, merge keys, tags, tabs, repeated keys
and second documents are refused, so that a file means what it looks like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import yaml
from attrs import field, frozen

from .faults import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .faults import Faults

__all__ = ["Entries", "Items", "Node", "Text", "read_yaml"]

DEPTH_MAX = 24


@frozen
class Text:
    """A scalar as it was written. `plain` means without quotes."""

    place: Place
    value: str
    plain: bool


@frozen
class Items:
    """A list."""

    place: Place
    items: list[Node]


@frozen
class Entries:
    """A mapping; `keys` has the place of each key."""

    place: Place
    entries: dict[str, Node] = field(factory=dict)
    keys: dict[str, Place] = field(factory=dict)


Node: TypeAlias = Text | Items | Entries


class _RefusedError(Exception):
    """This file cannot be read any further; the fault is already noted."""


class _Builder:
    """Turns the events of one document into nodes."""

    def __init__(self, file: str, text: str, faults: Faults) -> None:
        self.file = file
        self.faults = faults
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=loader))

    def place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1) if mark else Place(self.file, 1, 1)

    def refuse(self, place: Place, rule: str, what: str, remedy: str) -> _RefusedError:
        self.faults.add(place, rule, what, remedy)
        return _RefusedError()

    def document(self) -> Node | None:
        """The one document of the file; None when there is none."""
        root: Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise self.refuse(
                        self.place(event),
                        "second-document",
                        "a second document begins here",
                        "put it into a file of its own",
                    )
                root = self.node(next(self.events), 0)
        return root

    def node(self, event: yaml.Event, depth: int) -> Node:
        """The node that begins with `event`."""
        place = self.place(event)
        if isinstance(event, yaml.AliasEvent):
            raise self.refuse(
                place, "alias", f"an alias, *{event.anchor}", "write the value out here"
            )
        if depth > DEPTH_MAX:
            raise self.refuse(place, "nesting", f"nested deeper than {DEPTH_MAX}", "flatten it")
        if isinstance(event, yaml.NodeEvent):
            self.check_decoration(event, place)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(place, list(self.items(depth)))
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(place, depth)
        value, style = getattr(event, "value", ""), getattr(event, "style", None)
        return Text(place, str(value), plain=not style)

    def check_decoration(self, event: yaml.NodeEvent, place: Place) -> None:
        """Note anchors and tags; the node below them is still read."""
        anchor, tag = str(event.anchor or ""), str(getattr(event, "tag", None) or "")
        if anchor:
            self.faults.add(
                place, "anchor", f"an anchor, &{anchor}", "write the value out where it is used"
            )
        if tag:
            self.faults.add(place, "tag", f"a tag, {tag}", "leave it out; keys decide types")

    def items(self, depth: int) -> Iterator[Node]:
        """The members of the list that has just begun."""
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            yield self.node(event, depth + 1)

    def mapping(self, place: Place, depth: int) -> Entries:
        """The mapping that has just begun."""
        found = Entries(place)
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, depth + 1)
            value = self.node(next(self.events), depth + 1)
            if not isinstance(key, Text):
                self.faults.add(
                    key.place, "key", "a key that is not a word", "keys are single words"
                )
            elif key.value == "<<" and key.plain:
                self.faults.add(
                    key.place, "merge-key", "a merge key, <<", "write the merged keys out"
                )
            elif key.value in found.entries:
                self.faults.add(
                    key.place,
                    "duplicate-key",
                    f"{key.value!r} stands here for the second time, first on line "
                    f"{found.keys[key.value].line}",
                    "keep one of the two",
                )
            else:
                found.entries[key.value] = value
                found.keys[key.value] = key.place
        return found


def _text_of(file: str, content: bytes, faults: Faults) -> str | None:
    """The file's text, or None with a fault noted."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        place = Place(file, line, column)
        faults.add(
            place, "encoding", f"byte 0x{content[error.start]:02x} is not UTF-8", "save as UTF-8"
        )
        return None
    if text.startswith("\ufeff"):
        faults.add(Place(file, 1, 1), "encoding", "a byte order mark", "save as UTF-8 without one")
        return None
    for number, line_text in enumerate(text.split("\n"), 1):
        lead = line_text[: len(line_text) - len(line_text.lstrip())]
        if "\t" in lead:
            place = Place(file, number, lead.index("\t") + 1)
            faults.add(place, "tab", "a tab in the indentation", "indent with spaces")
            return None
    return text


def read_yaml(file: str, content: bytes, faults: Faults) -> Entries | None:
    """The mapping at the top of a schema file; None, with faults noted, if there is none.

    `file` is only named in faults. Nothing is opened or run.
    """
    text = _text_of(file, content, faults)
    if text is None:
        return None
    try:
        root = _Builder(file, text, faults).document()
    except _RefusedError:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)
        faults.add(place, "syntax", f"not YAML: {error.problem}", "see schema/README.md")
        return None
    except yaml.YAMLError as error:
        first = str(error).split("\n", 1)[0]
        faults.add(Place(file, 1, 1), "syntax", f"not YAML: {first}", "see schema/README.md")
        return None
    if root is None or (isinstance(root, Text) and not root.value):
        faults.add(Place(file, 1, 1), "empty-file", "nothing in it", "remove the file, or fill it")
        return None
    if not isinstance(root, Entries):
        what = "a list" if isinstance(root, Items) else "a single value"
        faults.add(
            root.place, "not-a-mapping", f"{what} at the top", "begin with a key and a colon"
        )
        return None
    return root
