"""Steps from old versions to new ones: which there must be, and which the schema declares.

What comes in: the catalog, its lock, and the shapes of earlier versions. What goes out: one `Step`
for each event and earlier version, and demands where a shape is missing or a declared step does not
lead from the one shape to the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from .evolve import all_types, changes_between
from .past import history_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .faults import Place
    from .lock import FieldEntry, Fields, Lock
    from .model import Catalog, Json, Upcast
    from .past import OldShape

__all__ = ["Demand", "Step", "judge_steps"]

Demand: TypeAlias = "Callable[[Place, str, str, str], None]"
Shapes: TypeAlias = "Mapping[tuple[str, int], OldShape]"


@frozen
class Step:
    """One step: data of `source` becomes data of `target`. `upcast` None: a function does it."""

    source: OldShape
    target: OldShape
    upcast: Upcast | None

    @property
    def key(self) -> str:
        """What the tables of steps know it by."""
        return f"{self.source['event']}@{self.source['version']}"


@frozen
class _Want:
    """A step there must be: between which events and versions, and where to complain."""

    event: str
    version: int
    target: str
    target_version: int
    place: Place
    upcasts: tuple[Upcast, ...]


def _wanted(catalog: Catalog) -> Iterator[_Want]:
    for event in catalog.events:
        if event.kind == "durable":
            for version in range(1, event.version):
                yield _Want(
                    event.name, version, event.name, version + 1, event.place, event.upcasts
                )
    for old in catalog.retired:
        for version in range(1, old.version):
            yield _Want(old.name, version, old.name, version + 1, old.place, old.upcasts)
        if old.becomes:
            yield _Want(
                old.name, old.version, old.becomes, old.becomes_version, old.place, old.upcasts
            )


def judge_steps(
    catalog: Catalog, lock: Lock, shapes: Shapes, demand: Demand, *, folder: str
) -> tuple[Step, ...]:
    """Every step from an earlier version, in order of event and version."""
    current = {event.name: event.version for event in catalog.events if event.kind == "durable"}

    def shape_of(event: str, version: int) -> OldShape | None:
        if current.get(event) == version:
            payload = lock["events"][event]["payload"]
            return {
                "event": event,
                "version": version,
                "payload": payload,
                "types": all_types(lock),
            }
        return shapes.get((event, version))

    found: list[Step] = []
    for want in _wanted(catalog):
        source = shape_of(want.event, want.version)
        target = shape_of(want.target, want.target_version)
        if source is None:
            missing = history_name(folder, want.event, want.version)
            demand(
                want.place,
                "history-missing",
                f"{want.event} was never written as version {want.version}: there is no {missing}",
                "write the version the lock has, plus one if old records need a step",
            )
        elif target is None:
            demand(
                want.place,
                "retired-successor",
                f"{want.event} becomes {want.target}@{want.target_version}, which never was",
                f"write a version of {want.target} that is, or was"
                if want.target in current
                else "name a durable event of this schema",
            )
        else:
            upcast = next((each for each in want.upcasts if each.version == want.version), None)
            step = Step(source, target, upcast)
            if upcast is not None:
                _check_declared(step, upcast, demand)
            found.append(step)
    return tuple(sorted(found, key=lambda step: (step.source["event"], step.source["version"])))


def _check_declared(step: Step, upcast: Upcast, demand: Demand) -> None:
    """A declared step leads from all data of its source to data of its target."""
    payload: Fields = dict(step.source["payload"])
    source, target = step.source, step.target

    def refuse(does: str, shape: OldShape, known: Fields) -> None:
        what = f"upcast {step.key} {does}, which version {shape['version']} does not have"
        demand(upcast.place, "upcast-field", what, f"one of {', '.join(known)}")

    for old, new in upcast.rename:
        if old in payload:
            payload[new] = payload.pop(old)
        else:
            refuse(f"renames {old!r}", source, payload)
    for name in upcast.drop:
        if payload.pop(name, None) is None:
            refuse(f"drops {name!r}", source, payload)
    for name, value in upcast.defaults:
        entry = target["payload"].get(name)
        if entry is None:
            refuse(f"gives {name!r} a value", target, target["payload"])
        elif not _fits(entry, value):
            what = f"upcast {step.key} gives {name!r} the value {value!r}"
            demand(upcast.place, "upcast-field", what, f"write a value of type {entry['type']}")
        else:
            payload[name] = entry
    left = _open(step, payload)
    if left:
        demand(
            upcast.place,
            "upcast-incomplete",
            f"upcast {step.key} leaves open: {'; '.join(left)}",
            "declare what is missing, or remove the step here and write it as a function",
        )


def _fits(entry: FieldEntry, value: Json) -> bool:
    """Whether a value is of the class that its type asks for; records are left to the decoder."""
    simple: Mapping[str, type | tuple[type, ...]] = {
        "string": str,
        "int": int,
        "number": (int, float),
        "bool": bool,
        "flag": bool,
        "object": dict,
    }
    wanted = simple.get(entry["type"])
    if isinstance(value, bool) and wanted is not bool and wanted is not None:
        return False
    return wanted is None or isinstance(value, wanted)


def _open(step: Step, payload: Fields) -> list[str]:
    """What differs between the source, as far as it was lifted, and the target."""
    name = step.target["event"]

    def lock(shape: OldShape, fields: Fields) -> Lock:
        made: Lock = {
            "lock": 1,
            "owner": "",
            "accounted": [],
            "sealed": {},
            "public": [],
            "events": {name: {"kind": "durable", "payload": fields}},
            "retired": {},
            "config": {},
            "types": shape["types"],
            "borrowed": {},
        }
        return made

    before, after = lock(step.source, payload), lock(step.target, step.target["payload"])
    return [
        change.key
        for change in changes_between(before, after)
        if change.levels.get("stored") in {"UPCASTER", "BREAKING"}
    ]
