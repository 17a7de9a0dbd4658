"""Classifies what changed between two locks.

What comes in: the lock as it was reviewed, and that of the schema as it is. What goes out: every
change under its rule, judged in every role that reaches it. A shared record is judged once, in all
roles of all who use it; the worst of them counts.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from .evolve_fields import Types, compare_fields, compare_types, parsed, symbols
from .evolve_rules import LEVELS, Found, Role, found
from .render.reach import named_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .lock import EventEntry, Fields, Lock, SectionEntry, TypeEntry
    from .model import Type

__all__ = ["changes_between", "upcast_needed"]

PHASES: Final = ("waterfall", "stream", "serial")
Roles = dict[Role, tuple[str, ...]]


def all_types(lock: Lock) -> dict[str, TypeEntry]:
    """What the catalog declares and what it borrows."""
    return {**lock["borrowed"], **lock["types"]}


def _names(fields: Fields, known: Mapping[str, Type]) -> set[str]:
    return {name for entry in fields.values() for name in named_in(parsed(entry["type"], known)[0])}


def event_roles(name: str, event: EventEntry) -> Roles:
    """The roles of an event's payload."""
    roles: Roles = {"stored": (name,)} if event["kind"] == "durable" else {"input": (name,)}
    if event.get("emit") == "any":
        roles["output"] = (name,)
    return roles


def _uses(lock: Lock) -> Iterator[tuple[Role, str, set[str]]]:
    """Role, whose it is, and the types it names: every place where a role begins."""
    known = symbols(all_types(lock))
    for name, event in lock["events"].items():
        for role in event_roles(name, event):
            yield role, name, _names(event["payload"], known)
        for fields in event.get("answers", {}).values():
            yield "output", name, _names(fields, known)
        if "returns" in event:
            yield "output", name, named_in(parsed(event["returns"], known)[0])
        if "chunk" in event:
            chunk = named_in(parsed(event["chunk"], known)[0])
            yield "input", name, chunk
            yield "output", name, chunk
    for name, section in lock["config"].items():
        yield "config", name, _names(section["fields"], known)
    for name in lock["public"]:
        yield "stored", name, {name}


def type_roles(lock: Lock) -> dict[str, dict[Role, set[str]]]:
    """For each type, the roles that reach it and who has it in each."""
    types, known = all_types(lock), symbols(all_types(lock))
    below = {
        name: _names(entry.get("record", {}), known) | set(entry.get("union", {}).values())
        for name, entry in types.items()
    }
    found_roles: dict[str, dict[Role, set[str]]] = defaultdict(lambda: defaultdict(set))
    for role, root, start in _uses(lock):
        waiting, seen = set(start), set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen and name in types:
                seen.add(name)
                found_roles[name][role].add(root)
                waiting |= below[name]
    return found_roles


class _Diff:
    """One comparison."""

    def __init__(self, old: Lock, new: Lock) -> None:
        self.old, self.new = old, new
        before, after = all_types(old), all_types(new)
        self.types = Types(before, after, symbols(before), symbols(after))
        self.found: list[Found] = []

    def fields(
        self, old: Fields, new: Fields, where: str, roles: Roles, public: tuple[str, ...] = ()
    ) -> None:
        def say(rule: str, name: str, what: str) -> None:
            self.found.append(found(rule, f"{where}.{name}", what, roles, public))

        compare_fields(old, new, self.types, say)

    def reserved(
        self,
        old: TypeEntry | EventEntry | SectionEntry,
        new: TypeEntry | EventEntry | SectionEntry,
        where: str,
        roles: Roles,
    ) -> None:
        for name in sorted(set(old.get("reserved", [])) - set(new.get("reserved", []))):
            self.found.append(
                found("RESERVED_NO_DELETE", f"{where}.{name}", "is no longer reserved", roles)
            )

    # Types

    def all_types(self) -> None:
        before, after = type_roles(self.old), type_roles(self.new)
        for name, entry in self.types.old.items():
            if name not in self.types.new:
                continue
            roles: Roles = {}
            for role in ("stored", "input", "output", "config"):
                who = before.get(name, {}).get(role, set()) & after.get(name, {}).get(role, set())
                if who:
                    roles[role] = tuple(sorted(who))
            public = tuple(each for each in roles.get("stored", ()) if each in self.new["public"])
            self.type(name, entry, self.types.new[name], roles, public)
        for name in set(self.old["public"]) - set(self.new["public"]):
            what = "is no longer public" if name in self.types.new else "is gone"
            self.found.append(
                found("PUBLIC_NO_DELETE", f"record {name}", what, {"stored": (name,)})
            )

    def type(
        self, name: str, old: TypeEntry, new: TypeEntry, roles: Roles, public: tuple[str, ...]
    ) -> None:
        def say(rule: str, where: str, what: str) -> None:
            self.found.append(found(rule, where, what, roles, public))

        kinds = [
            next(kind for kind in ("id", "enum", "union", "record") if kind in entry)
            for entry in (old, new)
        ]
        if kinds[0] != kinds[1]:
            say("FIELD_TYPE_CHANGED", f"{kinds[0]} {name}", f"is now {kinds[1]} {name}")
            return
        where = f"{kinds[0]} {name}"
        if "enum" in old and "enum" in new:
            for value in set(old["enum"]) - set(new["enum"]):
                say("ENUM_VALUE_NO_DELETE", f"{where}.{value}", "is gone")
            for value in set(new["enum"]) - set(old["enum"]):
                say("ENUM_VALUE_ADDED", f"{where}.{value}", "is new")
        if "union" in old and "union" in new:
            self.variants(where, old["union"], new["union"], roles, public)
        tags = [entry.get("tag", "") for entry in (old, new)]
        if tags[0] != tags[1]:
            say("FIELD_TYPE_CHANGED", where, f"the tag {tags[0]!r} is now {tags[1]!r}")
        if ("bare" in old) != ("bare" in new):
            say("FIELD_TYPE_CHANGED", where, "is written another way")
        if "record" in old and "record" in new:
            self.fields(old["record"], new["record"], where, roles, public)
        self.reserved(old, new, where, roles)

    def variants(
        self,
        where: str,
        old: Mapping[str, str],
        new: Mapping[str, str],
        roles: Roles,
        public: tuple[str, ...],
    ) -> None:
        """Compares the variants of a union: tag → class."""

        def say(rule: str, tag: str, what: str) -> None:
            self.found.append(found(rule, f"{where}.{tag}", what, roles, public))

        for tag, before in old.items():
            after = new.get(tag)
            if after is None:
                say("VARIANT_NO_DELETE", tag, f"{before} is gone")
            elif before != after:
                say("CLASS_RENAMED", tag, f"{before} is now {after}")
                # Under another class it is still the same data.
                if before in self.types.old and after in self.types.new:
                    pair = self.types.old[before], self.types.new[after]
                    self.type(after, *pair, roles, public)
        for tag in new.keys() - old.keys():
            say("VARIANT_ADDED", tag, f"{new[tag]} is new")

    # Events

    def all_events(self) -> None:
        for name, event in self.old["events"].items():
            if name in self.new["events"]:
                self.event(name, event, self.new["events"][name])
                continue
            roles = event_roles(name, event)
            if name in self.new["retired"]:
                becomes = self.new["retired"][name].get("becomes", "")
                what = f"is read as {becomes}" if becomes else "is kept, and read as nothing"
                self.found.append(found("EVENT_RETIRED", f"event {name}", what, roles))
            else:
                what = f"the {event['kind']} event is gone"
                self.found.append(found("EVENT_NO_DELETE", f"event {name}", what, roles))
        for name, event in self.new["events"].items():
            if name not in self.old["events"]:
                self.found.append(self.added(name, event))
        for name in self.old["retired"]:
            if name not in self.new["retired"]:
                where, what = f"event {name}", "is no longer retired"
                stored: Roles = {"stored": (name,)}
                self.found.append(found("RESERVED_NO_DELETE", where, what, stored))

    def added(self, name: str, event: EventEntry) -> Found:
        where, what = f"event {name}", f"a new {event['kind']} event"
        roles = event_roles(name, event)
        if event["kind"] in PHASES:
            return found("LOOP_PHASE_ADDED", where, what, roles)
        if "ignorable" in event:
            return found("EVENT_ADDED_IGNORABLE", where, f"{what}, ignorable", roles)
        return found("EVENT_ADDED", where, what, roles)

    def event(self, name: str, old: EventEntry, new: EventEntry) -> None:
        where = f"event {name}"
        roles = event_roles(name, old)
        if old["kind"] != new["kind"]:
            what = f"{old['kind']} is now {new['kind']}"
            self.found.append(found("EVENT_SAME_KIND", where, what, roles))
            return

        def say(rule: str, what: str, in_roles: Roles = roles) -> None:
            self.found.append(found(rule, where, what, in_roles))

        self.fields(old["payload"], new["payload"], where, event_roles(name, new) | roles)
        self.reserved(old, new, where, roles)
        if ("surface" in old) != ("surface" in new):
            now = "is now" if "surface" in new else "is no longer"
            say("EVENT_SAME_SURFACE", f"{now} a message for the model")
        if ("ignorable" in old) != ("ignorable" in new):
            say(
                "EVENT_UNKNOWN_POLICY",
                f"is now {'ignorable' if 'ignorable' in new else 'required'}",
            )
        emit = (old.get("emit", ""), new.get("emit", ""))
        if emit[0] != emit[1]:
            rule = "EVENT_EMIT_WIDENED" if emit[1] == "any" else "EVENT_EMIT_NARROWED"
            say(rule, f"emit {emit[0]} is now {emit[1]}", event_roles(name, new) | roles)
        if old.get("class_name") != new.get("class_name"):
            told = [entry.get("class_name", "the law's name") for entry in (old, new)]
            say("CLASS_RENAMED", f"class {told[0]} is now {told[1]}", {"input": (name,)})
        policy = [
            f"{key} {old_value or 'no'} is now {new_value or 'no'}"
            for key, old_value, new_value in (
                ("errors", old.get("errors", ""), new.get("errors", "")),
                ("scope", old.get("scope", ""), new.get("scope", "")),
                ("rerun", "yes" if "rerun" in old else "", "yes" if "rerun" in new else ""),
            )
            if old_value != new_value
        ]
        for what in policy:
            say("EVENT_POLICY", what, {"input": (name,)})
        self.decision(name, old, new)

    def decision(self, name: str, old: EventEntry, new: EventEntry) -> None:
        """Compares what listeners may answer."""
        where, roles = f"event {name}", Roles({"output": (name,)})

        def say(rule: str, place: str, what: str) -> None:
            self.found.append(found(rule, place, what, roles))

        before, after = old.get("answers", {}), new.get("answers", {})
        for answer in before:
            if answer in after:
                self.fields(before[answer], after[answer], f"{where}: {answer}", roles)
            else:
                say("DECISION_VARIANT_NO_DELETE", f"{where}: {answer}", "is gone")
        for answer in after:
            if answer not in before:
                say("DECISION_VARIANT_ADDED", f"{where}: {answer}", "is new")
        if ("none" in old) != ("none" in new):
            added = "none" in new
            rule = "DECISION_VARIANT_ADDED" if added else "DECISION_VARIANT_NO_DELETE"
            say(rule, f"{where}: None", "is new" if added else "is gone")
        for what, one, two in (
            ("returns", old.get("returns"), new.get("returns")),
            ("chunk", old.get("chunk"), new.get("chunk")),
        ):
            if one == two:
                continue
            if one is None or two is None:
                say(
                    "DECISION_CHANGED",
                    where,
                    f"{what} {one or 'nothing'} is now {two or 'nothing'}",
                )
                continue
            types = [self.types.parsed(one, new=False)[0], self.types.parsed(two, new=True)[0]]
            if compare_types(types[0], types[1], self.types):
                say("DECISION_CHANGED", where, f"{what} {one} is now {two}")

    # Configuration

    def all_sections(self) -> None:
        for name, section in self.old["config"].items():
            where, roles = f"config {name}", Roles({"config": (name,)})
            if name not in self.new["config"]:
                self.found.append(found("SECTION_NO_DELETE", where, "is gone", roles))
                continue
            new = self.new["config"][name]
            self.fields(section["fields"], new["fields"], where, roles)
            self.reserved(section, new, where, roles)
            if section["class_name"] != new["class_name"]:
                what = f"class {section['class_name']} is now {new['class_name']}"
                self.found.append(found("CLASS_RENAMED", where, what, roles))
        for name in self.new["config"]:
            if name not in self.old["config"]:
                added: Roles = {"config": (name,)}
                self.found.append(found("SECTION_ADDED", f"config {name}", "a new section", added))


def changes_between(old: Lock, new: Lock) -> tuple[Found, ...]:
    """Every change, worst first, then by place."""
    diff = _Diff(old, new)
    diff.all_types()
    diff.all_events()
    diff.all_sections()
    # A class that is renamed in two unions is told once.
    once = {each.key: each for each in diff.found}
    order = sorted(
        once.values(), key=lambda each: (-LEVELS.index(each.level), each.where, each.what)
    )
    return tuple(order)


def upcast_needed(changes: tuple[Found, ...], old: Lock, new: Lock) -> dict[str, tuple[str, ...]]:
    """The durable events whose old records need a step, each with the changes that ask for it."""
    needed: dict[str, list[str]] = {}
    for each in changes:
        if each.levels.get("stored") == "UPCASTER" and each.rule != "EVENT_RETIRED":
            for name in each.reached:
                needed.setdefault(name, []).append(each.key)
    both = old["events"].keys() & new["events"].keys()
    return {name: tuple(needed[name]) for name in sorted(needed) if name in both}
