"""The catalogs beside the core one: durable events that plugins and strangers declared.

What comes in: a generated extension catalog registers itself here when it is imported. What goes
out: who declared a type, and how its payload is written and read. Nothing here knows a disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from attrs import field

from dsh.catalog import registry
from dsh.errors import PluginError
from dsh.hooks import AnyDurable, Durable, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "CATALOG_API",
    "ForeignCatalog",
    "ForeignEvent",
    "Retired",
    "durable",
    "foreign",
    "history_of",
    "register",
]

D = TypeVar("D", bound=AnyDurable)
#: Last version, successor (None: read as nothing), and the successor's version that is made.
Retired: TypeAlias = tuple[int, str | None, int]

#: What generated extension catalogs are written against. It changes when they must be made again.
CATALOG_API: Final = 1


@frozen(slots=True, eq=False)
class ForeignEvent:
    """One durable event of an extension: its token and its two straight-line functions."""

    token: Durable[AnyDurable]
    encode: Callable[[AnyDurable], dict[str, object]]
    decode: Callable[[object], AnyDurable]


@frozen(kw_only=True, slots=True, eq=False)
class ForeignCatalog:
    """What one extension declares. `owner` is `name@version` of the declaring distribution."""

    owner: str
    api: int
    events: tuple[ForeignEvent, ...]
    declared: Mapping[str, object] = field(factory=dict[str, object])
    upcasters: Mapping[str, object] = field(factory=dict[str, object])
    retired: Mapping[str, Retired] = field(factory=dict[str, Retired])


_OWNERS: Final[dict[str, str]] = {}
_EVENTS: Final[dict[str, ForeignEvent]] = {}
#: Who carries up old data: by the names of current and of retired events.
_HISTORY: Final[dict[str, ForeignCatalog]] = {}
_NO_STEPS: Final[dict[str, object]] = {}
_NONE_RETIRED: Final[dict[str, Retired]] = {}


def durable(
    token: Durable[D],
    encode: Callable[[D], dict[str, object]],
    decode: Callable[[object], D],
) -> ForeignEvent:
    """Bind a token to the functions that write and read its payload."""
    return ForeignEvent(
        cast("Durable[AnyDurable]", token),
        cast("Callable[[AnyDurable], dict[str, object]]", encode),
        decode,
    )


def register(
    *,
    owner: str,
    api: int,
    events: Sequence[ForeignEvent],
    declared: Mapping[str, object] = _NO_STEPS,
    upcasters: Mapping[str, object] = _NO_STEPS,
    retired: Mapping[str, Retired] = _NONE_RETIRED,
) -> ForeignCatalog:
    """Make an extension's events known. All or nothing; registering the same again is harmless.

    `declared` and `upcasters` are the steps from its earlier versions, `<event>@<version>` each;
    `retired` are events it no longer writes.

    Raises PluginError when the catalog was generated for another `CATALOG_API`, or when one of its
    names belongs to the core or to another extension already.
    """
    if api != CATALOG_API:
        raise PluginError(
            f"the catalog of {owner} was generated for catalog api {api}, this dsh has "
            f"{CATALOG_API}; generate it again with `python -m dsh_codegen generate`"
        )
    for event in events:
        name = event.token.name
        taken = "the core" if name in registry.TOKENS else _OWNERS.get(name)
        if taken is not None and _EVENTS.get(name) is not event:
            raise PluginError(
                f"the catalog of {owner} declares {name!r}, which belongs to {taken}; "
                "choose another name, under a domain of its own"
            )
    catalog = ForeignCatalog(
        owner=owner,
        api=api,
        events=tuple(events),
        declared=declared,
        upcasters=upcasters,
        retired=retired,
    )
    for event in events:
        _OWNERS[event.token.name] = owner
        _EVENTS[event.token.name] = event
        _HISTORY[event.token.name] = catalog
    for name in retired:
        _HISTORY.setdefault(name, catalog)
    return catalog


def history_of(name: str) -> ForeignCatalog | None:
    """The extension that carries up old data of an event; None for the core's events."""
    return _HISTORY.get(name)


def foreign(name: str) -> tuple[str, ForeignEvent] | None:
    """Who declared the event and how it is coded, or None when no extension here declares it."""
    event = _EVENTS.get(name)
    return None if event is None else (_OWNERS[name], event)
