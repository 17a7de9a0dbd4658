"""Judges a schema against its lock: what must still be said before the lock may move.

What comes in: the catalog, and what its folder remembers. What goes out: the changes, the demands
that are open (each with its place and what to write), the new lock, and files that are written
once. It writes nothing; while a demand is open, nothing of the catalog is generated.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from attrs import frozen

from .evolve import all_types, changes_between, upcast_needed
from .evolve_fields import parsed, symbols
from .faults import Fault, Place
from .golden import golden_text, history_text
from .history import Step, judge_steps
from .lock import lock_of, lock_text
from .past import LOCK, digest, golden_name, history_name
from .places import Places
from .render.reach import named_in
from .render.templating import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .evolve_rules import Found
    from .lock import Lock
    from .model import Catalog
    from .past import Entry, OldShape, Past
    from .samples import Samples

__all__ = ["Review", "entry_text", "judge"]


@frozen
class Review:
    """What became of one schema folder. `demands` open means that nothing is written."""

    folder: str
    changes: tuple[Found, ...]
    demands: tuple[Fault, ...]
    proposed: str
    lock: str
    once: dict[str, str]
    steps: tuple[Step, ...]
    entries: tuple[Entry, ...]

    @property
    def files(self) -> dict[str, str]:
        """The lock, and what is written once and not there yet."""
        return {f"{self.folder}/{LOCK}": self.lock, **self.once}


def entry_text(change: Found, since: str) -> str:
    """The entry that changes.yaml needs for a change; the author fills in why."""
    return (
        f"- rule: {change.rule}\n"
        f"  where: {_quoted(change.where)}\n"
        f"  what: {_quoted(change.what)}\n"
        f"  level: {change.entry_level}\n"
        f'  since: "{since}"\n'
        "  why: …\n"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Judge:
    """One judgement of one folder."""

    def __init__(
        self, catalog: Catalog, core: Catalog | None, past: Past, *, since: str, samples: Samples
    ) -> None:
        self.catalog, self.past, self.since, self.samples = catalog, past, since, samples
        self.places = Places(catalog, past.folder)
        self.new = lock_of(catalog, core)
        self.old = past.lock
        self.changes = changes_between(self.old, self.new) if self.old else ()
        self.demands: list[Fault] = []
        self.unlisted: list[Found] = []

    def demand(self, place: Place, rule: str, what: str, remedy: str) -> None:
        self.demands.append(Fault(place, rule, what, remedy))

    # Entries of changes.yaml

    def entries(self) -> list[str]:
        """Match entries with changes; returns the keys that are accounted for from now on."""
        accounted = list(self.old["accounted"]) if self.old else []
        spent = Counter(accounted)
        free: dict[str, Entry] = {}
        for entry in self.past.entries:
            if spent[entry.key]:
                spent[entry.key] -= 1
            elif entry.key in free:
                self.demand(entry.place, "unknown-entry", f"{entry.key} stands twice", "keep one")
            else:
                free[entry.key] = entry
        for change in self.changes:
            if not change.needs_entry or self.answered_elsewhere(change):
                continue
            found_entry = free.pop(change.key, None)
            if found_entry is None:
                self.unlisted.append(change)
            else:
                self.check_entry(found_entry, change)
                accounted.append(change.key)
        for left in free.values():
            self.demand(
                left.place, "unknown-entry", f"no such change: {left.key}", "remove the entry"
            )
        file = f"{self.past.folder}/changes.yaml"
        for change in self.unlisted:
            self.demand(
                self.places.of(change.where),
                "unlisted-change",
                f"{change.entry_level} {change.key} ({_levels(change)})",
                f"undo it, or list it in {file} as below",
            )
        return accounted

    def answered_elsewhere(self, change: Found) -> bool:
        """Whether the core has to answer for a change, because the type is its own.

        A plugin of ours still answers for what only its own use makes a break.
        """
        own_break = change.entry_level == "BREAKING" and not self.catalog.foreign
        return self.is_borrowed(change.where) and not own_break

    def is_borrowed(self, where: str) -> bool:
        """Whether a change is one of a type that the core declares."""
        kind, _, path = where.partition(" ")
        name = path.partition(".")[0]
        if kind not in {"id", "enum", "record", "union"} or self.old is None:
            return False
        return name in self.new["borrowed"] or name in self.old["borrowed"]

    def check_entry(self, entry: Entry, change: Found) -> None:
        if entry.level != change.entry_level:
            self.demand(
                entry.place,
                "entry-level",
                f"{change.key} is listed as {entry.level}, and is {change.entry_level}",
                f"write level: {change.entry_level}",
            )
        if entry.why.strip() in {"…", "..."}:
            self.demand(entry.place, "entry-why", f"no reason for {change.key}", "say why")

    # Versions

    def versions(self) -> None:
        """A version goes up by one exactly when old records need a step."""
        old = self.old
        if old is None:
            return
        needed = upcast_needed(self.changes, old, self.new)
        for event in self.catalog.events:
            if event.kind != "durable":
                continue
            before = old["events"].get(event.name, {"kind": "", "payload": {}})
            if before["kind"] != "durable":
                wanted, why = 1, "it is new"
            elif event.name in needed:
                wanted = before.get("version", 1) + 1
                why = "old records need a step: " + "; ".join(needed[event.name])
            else:
                wanted, why = before.get("version", 1), "no old record needs a step"
            if event.version != wanted:
                rule = "version-missing" if event.version < wanted else "version-idle"
                self.demand(
                    event.place,
                    rule,
                    f"{event.name} has version {event.version}, and {why}",
                    f"write version: {wanted}" if wanted > 1 else "remove version:",
                )
        for retired in self.catalog.retired:
            gone = old["events"].get(retired.name)
            if gone is not None and gone.get("version", 1) != retired.version:
                self.demand(
                    retired.place,
                    "retired-version",
                    f"{retired.name} is retired at version {retired.version}",
                    f"write version: {gone.get('version', 1)}, its last one",
                )
            if gone is not None and "surface" in gone and not retired.becomes:
                self.demand(
                    retired.place,
                    "retired-surface",
                    f"{retired.name} put messages before the model",
                    "say under becomes: which event its messages are read as",
                )
            if gone is None and retired.name not in old["retired"]:
                self.demand(
                    retired.place,
                    "retired-unknown",
                    f"{retired.name} was never an event",
                    "remove the entry",
                )

    # Names that were used once

    def names(self) -> None:
        """What is removed from stored data or configuration reserves its name."""
        for change in self.changes:
            kind, _, path = change.where.partition(" ")
            owner, _, name = path.rpartition(".")
            lasting = {"stored", "config"} & change.levels.keys()
            if not lasting or not self.leaves_a_name(change.rule, kind):
                continue
            if self.is_borrowed(change.where):
                continue
            if name not in self.places.reserved(kind, owner):
                self.demand(
                    self.places.of(f"{kind} {owner}"),
                    "name-not-reserved",
                    f"{name!r} is gone from {kind} {owner}, and old data has it",
                    f"add reserved: [{name}] to {kind} {owner}",
                )

    def leaves_a_name(self, rule: str, kind: str) -> bool:
        """Whether a change takes away a name that could be used again."""
        if rule == "FIELD_NO_DELETE":
            return kind in {"event", "record", "config"}
        return (rule, kind) in {("ENUM_VALUE_NO_DELETE", "enum"), ("VARIANT_NO_DELETE", "union")}

    # Files that are written once

    def once(self) -> Iterator[tuple[str, str]]:
        """Shapes of versions that have just become old, and records of new ones."""
        old = self.old
        for event in self.catalog.events:
            if event.kind == "durable":
                name = golden_name(self.past.folder, event.name, event.version)
                if name not in self.past.files:
                    yield name, golden_text(event, self.samples)
        if old is None:
            return
        gone = {each.name for each in self.catalog.retired}
        versions = {event.name: event.version for event in self.catalog.events}
        for name, entry in old["events"].items():
            version = entry.get("version", 1)
            if entry["kind"] == "durable" and (name in gone or versions.get(name, 0) > version):
                file = history_name(self.past.folder, name, version)
                if file not in self.past.files:
                    yield file, history_text(_shape(old, name, version))

    def result(self) -> Review:
        """Everything together."""
        accounted = self.entries()
        self.versions()
        self.names()
        once = dict(self.once())
        shapes = self.past.shapes
        if self.old is not None:
            for name, entry in self.old["events"].items():
                version = entry.get("version", 1)
                if history_name(self.past.folder, name, version) in once:
                    shapes[name, version] = _shape(self.old, name, version)
        steps = judge_steps(self.catalog, self.new, shapes, self.demand, folder=self.past.folder)
        sealed = {**self.past.files, **once}
        self.new["accounted"] = accounted
        self.new["sealed"] = {name: digest(sealed[name]) for name in sorted(sealed)}
        text = header(self.catalog.home, self.catalog.command)
        return Review(
            folder=self.past.folder,
            changes=self.changes,
            demands=tuple(sorted(set(self.demands))),
            proposed="".join(entry_text(change, self.since) for change in self.unlisted),
            lock=lock_text(self.new, text),
            once=once,
            steps=steps,
            entries=self.past.entries,
        )


def _levels(change: Found) -> str:
    return ", ".join(f"{role} {level}" for role, level in change.levels.items())


def _shape(lock: Lock, name: str, version: int) -> OldShape:
    """The payload of an event as a lock has it, and the types it reaches."""
    types, known = all_types(lock), symbols(all_types(lock))
    payload = lock["events"][name]["payload"]
    waiting = {
        each for entry in payload.values() for each in named_in(parsed(entry["type"], known)[0])
    }
    reached: set[str] = set()
    while waiting:
        each = waiting.pop()
        if each in reached or each not in types:
            continue
        reached.add(each)
        waiting |= set(types[each].get("union", {}).values())
        for entry in types[each].get("record", {}).values():
            waiting |= named_in(parsed(entry["type"], known)[0])
    return {
        "event": name,
        "version": version,
        "payload": payload,
        "types": {each: types[each] for each in sorted(reached)},
    }


def judge(
    catalog: Catalog, core: Catalog | None, past: Past, *, since: str, samples: Samples
) -> Review:
    """Judge one folder. `core` is what the catalog stands on; `since` the version being made."""
    return _Judge(catalog, core, past, since=since, samples=samples).result()
