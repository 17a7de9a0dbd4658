"""Reads what a schema folder remembers: its lock, its listed changes, and files written once.

What comes in: a schema folder. What goes out: `Past`, or faults. `history/` has the shapes of
versions that are no longer written, `golden/` records of every version, as JSON lines. Both are
sealed: the lock knows their digests.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, TypedDict, cast

from attrs import field, frozen

from .evolve_rules import RULES
from .faults import Place, did_you_mean
from .lock import LockError, read_lock
from .read import Items, Text, read_yaml
from .values import Values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .faults import Faults
    from .lock import Fields, Lock, TypeEntry
    from .read import Node

__all__ = ["Entry", "OldShape", "Past", "digest", "golden_name", "history_name", "read_past"]

LOCK: Final = "catalog.lock.json"
CHANGES: Final = "changes.yaml"
ENTRY_KEYS: Final = ("rule", "where", "what", "level", "since", "why")
ONCE: Final = ("history", "golden")


class OldShape(TypedDict):
    """The payload of one earlier version, and every type it reaches."""

    event: str
    version: int
    payload: Fields
    types: dict[str, TypeEntry]


@frozen
class Entry:
    """One line of changes.yaml."""

    rule: str
    where: str
    what: str
    level: str
    since: str
    why: str
    place: Place = field(eq=False)

    @property
    def key(self) -> str:
        """What the change is known by."""
        return f"{self.rule} {self.where}: {self.what}"


@frozen
class Past:
    """What one folder remembers. `files` are those written once, by their path from the root."""

    folder: str
    lock: Lock | None
    entries: tuple[Entry, ...]
    files: Mapping[str, str]

    @property
    def shapes(self) -> dict[tuple[str, int], OldShape]:
        """The shapes of earlier versions, by event and version."""
        found: dict[tuple[str, int], OldShape] = {}
        for name, text in self.files.items():
            if name.startswith(f"{self.folder}/history/"):
                shape = cast("OldShape", json.loads(text))
                found[shape["event"], shape["version"]] = shape
        return found


def digest(text: str) -> str:
    """The seal of a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def history_name(folder: str, event: str, version: int) -> str:
    """Where the shape of an earlier version stands."""
    return f"{folder}/history/{event}.v{version}.json"


def golden_name(folder: str, event: str, version: int) -> str:
    """Where the records of a version stand."""
    return f"{folder}/golden/{event}.v{version}.jsonl"


def read_past(root: Path, folder: str, faults: Faults) -> Past:
    """What the schema folder `folder` below `root` remembers."""
    lock: Lock | None = None
    path = root / folder / LOCK
    name = f"{folder}/{LOCK}"
    if path.exists():
        try:
            lock = read_lock(path.read_text(encoding="utf-8"), name)
        except (LockError, UnicodeDecodeError) as error:
            faults.add(Place(name, 1, 1), "lock", str(error), "take it back from git")
    files: dict[str, str] = {}
    for kind in ONCE:
        for file in sorted((root / folder / kind).rglob("*.json*")):
            files[file.relative_to(root).as_posix()] = file.read_bytes().decode("utf-8", "replace")
    past = Past(folder, lock, _entries(root, f"{folder}/{CHANGES}", faults), files)
    _check_seals(past, faults)
    return past


def _check_seals(past: Past, faults: Faults) -> None:
    sealed = past.lock["sealed"] if past.lock else {}
    for name, seal in sealed.items():
        if name not in past.files:
            what = "is gone, and records of that version stay readable for ever"
            faults.add(Place(name, 1, 1), "sealed-file", what, f"run: git checkout {name}")
        elif digest(past.files[name]) != seal:
            what = "was edited, and is written once"
            faults.add(Place(name, 1, 1), "sealed-file", what, f"run: git checkout {name}")
    if past.lock is not None:
        for name in past.files.keys() - sealed.keys():
            what = "does not stand in the lock"
            remedy = "remove it; python -m codegen writes such files itself"
            faults.add(Place(name, 1, 1), "sealed-file", what, remedy)


def _entries(root: Path, name: str, faults: Faults) -> tuple[Entry, ...]:
    """The entries of changes.yaml; none if there is no such file."""
    path = root / name
    if not path.exists():
        return ()
    top = read_yaml(name, path.read_bytes(), faults)
    values = Values(faults)
    if top is None:
        return ()
    keys = values.keys(top, name, ("changes",), ("changes",)) or {}
    listed = keys.get("changes")
    if listed is None or (isinstance(listed, Text) and not listed.value):
        return ()  # nothing is listed yet
    if not isinstance(listed, Items):
        faults.add(listed.place, "wrong-shape", "changes is not a list", "write [] or - rule: …")
        return ()
    found = [_entry(item, values) for item in listed.items]
    return tuple(entry for entry in found if entry is not None)


def _entry(node: Node, values: Values) -> Entry | None:
    what = "an entry of changes"
    keys = values.keys(node, what, ENTRY_KEYS, ENTRY_KEYS)
    if keys is None or not set(ENTRY_KEYS) <= keys.keys():
        return None
    text = {key: values.text(keys[key], f"{key} of {what}") or "" for key in ENTRY_KEYS}
    if text["rule"] and text["rule"] not in RULES:
        values.faults.add(
            keys["rule"].place,
            "unknown-rule",
            f"rule of {what} is {text['rule']!r}",
            did_you_mean(text["rule"], RULES, "copy the entry that python -m codegen proposes"),
        )
    if values.one_of(keys["level"], f"level of {what}", ("REVIEW", "BREAKING")) is None:
        return None
    return Entry(**text, place=node.place)
