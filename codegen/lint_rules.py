"""Lints of events and types: who may emit what, what an answer may be, what nobody uses.

What comes in: one catalog and those beside it. What goes out: faults.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .model import RefType
from .render.reach import configured_names, reached, types_of_event

if TYPE_CHECKING:
    from .faults import Faults
    from .model import Catalog

__all__ = [
    "decision_size",
    "emit_follows_emitter",
    "loop_phase_closed",
    "since_form",
    "surface_message",
    "unused_opt_out",
    "unused_type",
]

ANSWERS_MAX = 4
KINDS_ALL = ("durable", "waterfall", "stream", "serial", "emit", "parallel")
_SINCE = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")


def since_form(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """`since` is a version."""
    for event in catalog.events:
        if event.since and not _SINCE.fullmatch(event.since):
            faults.add(
                event.place,
                "since-form",
                f"since of {event.name} is {event.since!r}",
                'write the first version that has it, as in "0.1"',
            )


def emit_follows_emitter(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """What rooms of dsh emit is `core`; what a plugin emits is `any`."""
    for event in catalog.events:
        if not event.emit or not event.emitter:
            continue
        wanted = "any" if event.by_plugin else "core"
        if event.emit != wanted and not (event.surface and event.emit == "core"):
            faults.add(
                event.place,
                "emit-follows-emitter",
                f"{event.name} is emitted by {event.emitter}, and emit is {event.emit}",
                f"write emit: {wanted}",
            )


def loop_phase_closed(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """A plugin's schema holds durable events, notices and configuration, nothing else."""
    if catalog.owner == "core":
        return
    for event in catalog.events:
        if event.kind not in {"durable", "emit"}:
            faults.add(
                event.place,
                "loop-phase-closed",
                f"{catalog.owner} declares {event.name}, a {event.kind} event",
                "phases of the loop are a reviewed change of schema/; a plugin declares durable "
                "events and notices",
            )
        if event.surface:
            faults.add(
                event.place,
                "loop-phase-closed",
                f"{catalog.owner} declares {event.name} as a surface event",
                "only the core adds messages for the model; drop surface:",
            )
        if event.emitter and event.by_plugin != catalog.owner:
            faults.add(
                event.place,
                "loop-phase-closed",
                f"{event.name} of {catalog.owner} has the emitter {event.emitter}",
                f"write emitter: plugin/{catalog.owner}",
            )


def surface_message(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """The payload of a surface event wraps one message of the model-visible history."""
    messages = {
        variant.name
        for union in catalog.unions
        if union.name == "Message"
        for variant in union.variants
    }
    for event in catalog.events:
        if not event.surface:
            continue
        kinds = {field.name: field.type for field in event.fields if field.required}
        message = kinds.get("message")
        if not isinstance(message, RefType) or message.name not in messages:
            faults.add(
                event.place,
                "surface-message",
                f"{event.name} is a surface event without a message",
                "add a field message of a type that stands in the union Message",
            )


def decision_size(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """An answer is one of one to four classes; a single one needs `none:`."""
    for event in catalog.events:
        count = len(event.answers)
        if count > ANSWERS_MAX:
            faults.add(
                event.place,
                "decision-size",
                f"{event.name} has {count} answers",
                f"at most {ANSWERS_MAX}, so that a type checker's message can be read",
            )
        if event.kind == "waterfall" and count == 1 and not event.none:
            faults.add(
                event.place,
                "decision-size",
                f"{event.name} has one answer and no none:",
                "say under none: what None means, or use returns:",
            )


def _used(catalog: Catalog, others: tuple[Catalog, ...]) -> set[str]:
    catalogs = (catalog, *others)
    start = configured_names(catalogs)
    for each in catalogs:
        start |= types_of_event(each, KINDS_ALL)
    return reached(catalogs, start)


def unused_type(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """Every record, union, enum and id is reached by an event, a section, or says why not."""
    public = {each.name for each in catalog.shapes if each.public}
    used = _used(catalog, others) | reached((catalog, *others), public)
    for each in catalog.types:
        if each.name not in used:
            faults.add(
                each.place,
                "unused-type",
                f"nothing uses {each.name}",
                "remove it, or say under public: who does",
            )


def unused_opt_out(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """`public:` stands only where no event or section reaches the type."""
    used = _used(catalog, others)
    for each in catalog.shapes:
        if each.public and each.name in used:
            faults.add(
                each.place,
                "unused-opt-out",
                f"{each.name} is public, but events or configuration use it",
                "remove public:",
            )
