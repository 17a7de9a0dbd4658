"""Builds what the schema says about its own past: upcasts, and events that are retired.

What comes in: the nodes under `upcast:` and `retired:`. What goes out: model objects, or faults.
Whether an upcast fits the shapes it joins is decided in `history`, which knows the old ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .model import Retired, Upcast
from .names import domain_pattern, word_pattern
from .read import Entries, Items, Text
from .values import number_of

if TYPE_CHECKING:
    from .faults import Place
    from .model import Json
    from .read import Node
    from .values import Values

__all__ = ["retired_of", "upcasts_of"]

UPCAST_KEYS: Final = ("rename", "default", "drop")
RETIRED_KEYS: Final = ("since", "doc", "version", "becomes", "upcast")
_COUNT: Final = re.compile(r"[1-9][0-9]*")
_SUCCESSOR: Final = re.compile(r"(?P<name>[^@]+)@(?P<version>[1-9][0-9]*)")


def upcasts_of(node: Node, name: str, version: int, values: Values) -> tuple[Upcast, ...]:
    """The declared steps of an event, each from a version below `version`."""
    found: list[Upcast] = []
    for key, place, below in values.each(node, f"upcast of {name}"):
        what = f"upcast {name}@{key}"
        if not _COUNT.fullmatch(key) or int(key) >= version:
            values.faults.add(
                place,
                "upcast-version",
                f"{what}: {key!r} is no earlier version than {version}",
                "write the version the step starts from, as in 1:",
            )
            continue
        keys = values.keys(below, what, UPCAST_KEYS)
        if keys is None:
            continue
        renames: list[tuple[str, str]] = []
        for old, _, target in values.each(keys["rename"], what) if "rename" in keys else ():
            renames.append((old, values.text(target, f"rename of {old} in {what}") or old))
        defaults: list[tuple[str, Json]] = []
        for field, _, value in values.each(keys["default"], what) if "default" in keys else ():
            defaults.append((field, _json(value, f"default of {field} in {what}", values)))
        drop = values.texts_at(keys, "drop", what)
        found.append(Upcast(int(key), tuple(renames), tuple(defaults), drop, place))
    return tuple(sorted(found, key=lambda each: each.version))


def _json(node: Node, what: str, values: Values) -> Json:
    """A value as JSON has it: plain true, false, null and numbers are those, all else is text."""
    match node:
        case Items():
            return [_json(item, what, values) for item in node.items]
        case Entries():
            return {key: _json(below, what, values) for key, below in node.entries.items()}
        case Text(plain=True, value="true" | "false" as word):
            return word == "true"
        case Text(plain=True, value="null"):
            return None
        case Text(plain=True) if (number := number_of(node.value)) is not None:
            return number
        case Text(plain=False):
            return node.value
        case Text():
            return values.text(node, what)


def retired_of(node: Node, domain: str, values: Values) -> tuple[Retired, ...]:
    """The events of a domain that are written no more."""
    found: list[Retired] = []
    for rest, place, below in values.each(node, f"retired of {domain}"):
        name = f"{domain}/{rest}"
        what = f"retired event {name}"
        if not word_pattern.fullmatch(rest):
            values.faults.add(
                place, "event-name", f"{rest!r} is no event name", "write what the event was called"
            )
            continue
        keys = values.keys(below, what, RETIRED_KEYS, ("since", "doc", "version"))
        if keys is None:
            continue
        version = values.integer(keys["version"], f"version of {what}") if "version" in keys else 1
        becomes, becomes_version = "", 1
        if "becomes" in keys:
            becomes, becomes_version = _successor(keys["becomes"], what, values)
        # The last step leads from the last version to the successor.
        steps = (version or 1) + 1
        found.append(
            Retired(
                name=name,
                since=values.text_at(keys, "since", what),
                doc=values.text_at(keys, "doc", what),
                version=version or 1,
                place=place,
                becomes=becomes,
                becomes_version=becomes_version,
                upcasts=upcasts_of(keys["upcast"], name, steps, values) if "upcast" in keys else (),
            )
        )
    return tuple(found)


def _successor(node: Node, what: str, values: Values) -> tuple[str, int]:
    """`domain/word@version`."""
    text = values.text(node, f"becomes of {what}") or ""
    match = _SUCCESSOR.fullmatch(text)
    domain, _, rest = (match["name"] if match else "").partition("/")
    if match and domain_pattern.fullmatch(domain) and word_pattern.fullmatch(rest):
        return match["name"], int(match["version"])
    if text:
        _bad_successor(node.place, what, text, values)
    return "", 1


def _bad_successor(place: Place, what: str, text: str, values: Values) -> None:
    values.faults.add(
        place,
        "retired-successor",
        f"becomes of {what} is {text!r}",
        "write the successor and the version of it that is made, as in turn/end@1",
    )
