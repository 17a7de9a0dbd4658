"""Builds events from their nodes: which keys each kind has, and what they must say.

What comes in: the mapping under an event's name. What goes out: a model Event, or faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from attrs import frozen

from .evolution import upcasts_of
from .expressions import LIVE_SCOPES
from .faults import did_you_mean
from .model import Answer, Event, LiveType
from .names import pascal, token_of, word_pattern
from .read import Entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .faults import Faults, Place
    from .fields import FieldBuilder
    from .model import Field, Kind, Type
    from .read import Node
    from .values import Values

__all__ = ["KINDS", "ROOMS", "EventBuilder"]

KINDS: Final = ("durable", "waterfall", "stream", "serial", "emit", "parallel")
ROOMS: Final = ("session", "llm", "tools", "prompt", "agent", "loop", "boot", "seams", "kernel")
_COMMON: Final = (
    "kind", "since", "purpose", "emitter", "payload", "class", "note", "listeners", "near",
)  # fmt: skip
_DISPATCHED: Final = (*_COMMON, "scope", "errors", "default")
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "durable": (*_COMMON, "emit", "surface", "ignorable", "version", "reserved", "upcast"),
    "waterfall": (*_DISPATCHED, "answers", "none", "returns", "rerun"),
    "stream": (*_DISPATCHED, "chunk"),
    "serial": (*_DISPATCHED, "answers", "none"),
    "emit": (*_COMMON, "emit", "scope", "errors"),
    "parallel": (*_COMMON, "emit", "scope", "errors"),
}
_MUST: Final = ("kind", "since", "purpose", "emitter", "payload")
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "durable": (*_MUST, "emit"),
    "waterfall": (*_MUST, "scope", "errors", "default"),
    "stream": (*_MUST, "scope", "errors", "default", "chunk"),
    "serial": (*_MUST, "scope", "errors", "default", "answers", "none"),
    "emit": (*_MUST, "emit", "scope", "errors"),
    "parallel": (*_MUST, "emit", "scope", "errors"),
}
ERRORS: Final[dict[str, tuple[str, ...]]] = {
    "waterfall": ("propagate",),
    "stream": ("propagate",),
    "serial": ("propagate",),
    "emit": ("contain", "veto", "propagate"),
    "parallel": ("propagate",),
}


@frozen
class EventBuilder:
    """Builds the events of one domain."""

    faults: Faults
    values: Values
    fields: FieldBuilder

    def event(self, domain: str, rest: str, place: Place, node: Node) -> Event | None:
        """One event, or None with faults noted."""
        name = f"{domain}/{rest}"
        if not word_pattern.fullmatch(rest):
            self.faults.add(
                place,
                "event-name",
                f"{rest!r} is no event name",
                "use small words, hyphens and slashes",
            )
            return None
        below = {key: value for key, _, value in self.values.each(node, f"event {name}")}
        if not isinstance(node, Entries):
            return None
        if "kind" not in below:
            self.values.missing(place, f"event {name}", "kind")
            return None
        kind = self.values.one_of(below["kind"], f"kind of {name}", KINDS)
        if kind is None:
            return None
        what = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} event"
        self.check_keys(node, kind, what)
        keys = {key: value for key, value in below.items() if key in KEYS[kind]}
        for key in REQUIRED[kind]:
            if key not in keys:
                self.values.missing(place, f"event {name}", key)
        return self.build(cast("Kind", kind), name, rest, place, keys)

    def check_keys(self, node: Entries, kind: str, what: str) -> None:
        """Note keys that this kind does not have, and say which kinds have them."""
        for key, place in node.keys.items():
            if key in KEYS[kind]:
                continue
            kinds = [each for each in KINDS if key in KEYS[each]]
            remedy = (
                f"remove it; it is for {', '.join(kinds)}"
                if kinds
                else did_you_mean(key, KEYS[kind], f"known are {', '.join(KEYS[kind])}")
            )
            self.faults.add(place, "unknown-key", f"{key!r} is not a key of {what}", remedy)

    def build(
        self, kind: Kind, name: str, rest: str, place: Place, keys: Mapping[str, Node]
    ) -> Event:
        """The event, from keys that are known to be allowed."""
        class_name = self.values.text_at(keys, "class", name) or pascal(rest)
        fields = self.fields.fields(keys["payload"], name) if "payload" in keys else ()
        version = (
            self.values.integer(keys["version"], f"version of {name}") if "version" in keys else 1
        )
        return Event(
            name=name,
            domain=name.partition("/")[0],
            rest=rest,
            kind=kind,
            since=self.values.text_at(keys, "since", name),
            purpose=self.values.text_at(keys, "purpose", name),
            emitter=self.emitter(keys, name),
            emit=self.choice(keys, "emit", name, ("core", "any")),
            errors=self.choice(keys, "errors", name, ERRORS[kind]) if kind in ERRORS else "contain",
            payload_class=class_name,
            token=token_of(rest),
            fields=fields,
            place=place,
            scope=self.scope(keys, name, fields),
            rerun=self.values.truth_at(keys, "rerun", name),
            surface=self.values.truth_at(keys, "surface", name),
            ignorable=self.values.truth_at(keys, "ignorable", name),
            version=version or 1,
            default=self.values.text_at(keys, "default", name),
            note=self.values.text_at(keys, "note", name),
            listeners=self.values.texts_at(keys, "listeners", name),
            near=self.values.texts_at(keys, "near", name),
            answers=self.answers(keys, name),
            none=self.values.text_at(keys, "none", name),
            returns=self.returns(keys, name, place) if kind == "waterfall" else None,
            chunk=self.fields.type_of(keys["chunk"], f"chunk of {name}")[0]
            if "chunk" in keys
            else None,
            reserved=self.values.texts_at(keys, "reserved", name),
            upcasts=upcasts_of(keys["upcast"], name, version or 1, self.values)
            if "upcast" in keys
            else (),
        )

    def choice(
        self, keys: Mapping[str, Node], key: str, name: str, allowed: tuple[str, ...]
    ) -> str:
        """A key with a closed set of words."""
        return (
            (self.values.one_of(keys[key], f"{key} of {name}", allowed) or "")
            if key in keys
            else ""
        )

    def emitter(self, keys: Mapping[str, Node], name: str) -> str:
        """A room of dsh, or plugin/<name>."""
        text = self.values.text_at(keys, "emitter", name)
        if text and text not in ROOMS and not text.startswith("plugin/"):
            self.faults.add(
                keys["emitter"].place,
                "unknown-emitter",
                f"emitter of {name} is {text!r}",
                did_you_mean(text, ROOMS, f"a room ({', '.join(ROOMS)}) or plugin/<name>"),
            )
        return text

    def scope(self, keys: Mapping[str, Node], name: str, fields: tuple[Field, ...]) -> str:
        """`global`, or the path to what has the scope, through live objects."""
        text = self.values.text_at(keys, "scope", name)
        if text in {"", "global"}:
            return text
        first, *others = text.split(".")
        live = {field.name: field.type for field in fields if isinstance(field.type, LiveType)}
        kind = live.get(first)
        known = kind is not None and bool(LIVE_SCOPES[kind.name])
        if known and kind is not None and others:
            known = others == ["agent"] and ("agent", True) in LIVE_SCOPES[kind.name]
        if not known:
            self.faults.add(
                keys["scope"].place,
                "unknown-scope",
                f"scope of {name} is {text!r}, which leads to no scope",
                "global, or a field of type live<Agent>, live<Session>, live<AssembleContext>, "
                "or <exec>.agent",
            )
        return text

    def answers(self, keys: Mapping[str, Node], name: str) -> tuple[Answer, ...]:
        """The classes a listener may answer with."""
        if "answers" not in keys:
            return ()
        found: list[Answer] = []
        for word, place, node in self.values.each(keys["answers"], f"answers of {name}"):
            what = f"answer {name}.{word}"
            if not word.isidentifier() or not word[:1].isupper():
                self.faults.add(
                    place,
                    "type-name",
                    f"{word!r} cannot name a class",
                    "use CamelCase",
                )
            below = self.values.keys(node, what, ("doc", "fields"), ("doc", "fields"))
            if below is None:
                continue
            doc = self.values.text(below["doc"], f"doc of {what}") if "doc" in below else ""
            fields = self.fields.fields(below["fields"], word) if "fields" in below else ()
            found.append(Answer(word, doc or "", fields, node.place))
        return tuple(found)

    def returns(self, keys: Mapping[str, Node], name: str, place: Place) -> Type | None:
        """The type a waterfall answers with, when it has no answers of its own."""
        if "returns" in keys and "answers" in keys:
            self.faults.add(
                keys["returns"].place, "two-answers", f"{name} has answers and returns", "keep one"
            )
        if "returns" not in keys:
            if "answers" not in keys:
                self.values.missing(place, f"event {name}", "answers")
            return None
        kind, nullable = self.fields.type_of(keys["returns"], f"returns of {name}")
        if nullable:
            self.faults.add(
                keys["returns"].place,
                "null-answer",
                f"{name} returns null",
                "name the answer's class under answers: and say under none: what None means",
            )
        return kind
