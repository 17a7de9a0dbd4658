"""Lints of names: no two things may be called the same, or nearly the same.

What comes in: one catalog and those beside it. What goes out: faults.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .fields import all_fields
from .names import RESERVED_CLASSES, RESERVED_DOMAINS, is_python_name, module_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .faults import Faults, Place
    from .model import Catalog, Domain

__all__ = [
    "event_twice",
    "module_clash",
    "name_not_injective",
    "near_neighbour",
    "reserved_name",
    "wire_clash",
]

GENERATED_MODULES = frozenset(
    {"records", "config", "codec", "registry", "reference", "refusal", "history"}
)


def _names(domain: Domain) -> Iterator[tuple[str, str, Place]]:
    """Every name a domain's module defines, with what it stands for."""
    for event in domain.events:
        yield event.payload_class, f"the payload of {event.name}", event.place
        yield event.token, f"the token of {event.name}", event.place
        for answer in event.answers:
            yield answer.name, f"an answer to {event.name}", answer.place
        if event.answers:
            yield event.decision, f"the decision of {event.name}", event.place


def name_not_injective(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """No two things of one domain map to one Python name."""
    for domain in catalog.domains:
        seen: dict[str, str] = {}
        for name, what, place in _names(domain):
            if name in seen:
                faults.add(
                    place,
                    "name-not-injective",
                    f"{what} is called {name}, and so is {seen[name]}",
                    "rename one, or give the event another class:",
                )
            seen.setdefault(name, what)


def event_twice(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """An event belongs to one catalog."""
    if catalog.owner == "core":
        return
    taken = {event.name: other.owner for other in others for event in other.events}
    for event in catalog.events:
        if event.name in taken:
            faults.add(
                event.place,
                "event-twice",
                f"{event.name} of {catalog.owner} belongs to {taken[event.name]} already",
                "choose a domain of your own",
            )


def module_clash(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """No two domains map to one module."""
    seen: dict[str, str] = {}
    for domain in catalog.domains:
        if domain.module in seen and domain.events:
            faults.add(
                domain.events[0].place,
                "module-clash",
                f"{seen[domain.module]!r} and {domain.name!r} both map to {domain.module}.py",
                "rename one",
            )
        seen.setdefault(domain.module, domain.name)


def reserved_name(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """Domains and classes leave the names alone that generated modules need."""
    for domain in catalog.domains:
        place = domain.events[0].place if domain.events else None
        reserved = {module_of(name) for name in RESERVED_DOMAINS} | GENERATED_MODULES
        if place is not None and domain.module in reserved:
            faults.add(
                place, "reserved-name", f"no domain may be called {domain.name!r}", "rename it"
            )
        for name, what, at in _names(domain):
            if name in RESERVED_CLASSES or not is_python_name(name):
                faults.add(
                    at, "reserved-name", f"{what} would be called {name}", "give it another class:"
                )
    for record in (*catalog.records, *catalog.variants):
        if record.name in RESERVED_CLASSES or not is_python_name(record.name):
            faults.add(
                record.place, "reserved-name", f"no record may be called {record.name}", "rename it"
            )


def _letters(name: str) -> str:
    return "".join(c for c in name if c.isalnum())


def _shapes(name: str) -> set[str]:
    """The name and every form of it with one letter dropped."""
    return {name, *(name[:i] + name[i + 1 :] for i in range(len(name)))}


def near_neighbour(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """Events whose names differ by a letter name each other in `near:`, and no others do."""
    everyone = {event.name: event for one in (*others, catalog) for event in one.events}
    by_shape: dict[str, set[str]] = defaultdict(set)
    for name in everyone:
        for shape in _shapes(_letters(name)):
            by_shape[shape].add(name)
    for event in catalog.events:
        shapes = _shapes(_letters(event.name))
        neighbours = {name for shape in shapes for name in by_shape[shape]} - {event.name}
        clashing = {name for name in neighbours if _letters(name) == _letters(event.name)}
        for name in sorted(neighbours - clashing - set(event.near)):
            faults.add(
                event.place,
                "near-neighbour",
                f"{event.name} is one letter from {name}",
                f"rename it, or add near: [{name}] to both",
            )
        for name in sorted(set(event.near) - neighbours):
            what = "is no event" if name not in everyone else "is not that near"
            faults.add(
                event.place, "near-neighbour", f"near of {event.name}: {name} {what}", "remove it"
            )


def wire_clash(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """No two fields of a class have one spelling on the wire."""
    for where, fields in all_fields(catalog):
        seen: dict[str, str] = {}
        for field in fields:
            if field.wire in seen:
                faults.add(
                    field.place,
                    "wire-clash",
                    f"{where}: {seen[field.wire]} and {field.name} are both written {field.wire}",
                    "rename one",
                )
            seen.setdefault(field.wire, field.name)
