"""The catalog, resolved: what the templates lay out, with every decision taken.

What comes in: what `build` made of the YAML. What goes out: frozen values. Types are trees of the
small classes below; names are already those of Python and of the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import field, frozen

if TYPE_CHECKING:
    from .faults import Place

__all__ = [
    "Answer",
    "Catalog",
    "ConfigSection",
    "Derived",
    "Domain",
    "EnumDef",
    "EnumType",
    "Event",
    "Field",
    "IdDef",
    "IdType",
    "Kind",
    "ListType",
    "LiveType",
    "MapType",
    "PluginInfo",
    "Record",
    "RefType",
    "Retired",
    "Scalar",
    "Type",
    "UnionDef",
    "UnionType",
    "Upcast",
]

Kind: TypeAlias = Literal["durable", "waterfall", "stream", "serial", "emit", "parallel"]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@frozen
class Scalar:
    """string, int, number, bool, flag, json, object or logged."""

    name: str


@frozen
class EnumType:
    """One of some words. `name` is its alias in `module`, or "" when written in place."""

    name: str
    values: tuple[str, ...]
    module: str = ""


@frozen
class IdType:
    """A string with a meaning."""

    name: str
    module: str


@frozen
class RefType:
    """A record, a variant, or a union of them. `module` is where the class or alias lives."""

    name: str
    module: str
    is_union: bool = False


@frozen
class ListType:
    """A tuple of items."""

    item: Type


@frozen
class MapType:
    """Items by name."""

    item: Type


@frozen
class LiveType:
    """An object of the running harness; never stored."""

    name: str


@frozen
class UnionType:
    """Live types of which one is given."""

    members: tuple[Type, ...]


Type: TypeAlias = Scalar | EnumType | IdType | RefType | ListType | MapType | LiveType | UnionType


@frozen
class Field:
    """One field of a class. Without `has_default` and `optional` it is required."""

    name: str
    wire: str
    type: Type
    doc: str
    place: Place = field(eq=False)
    nullable: bool = False
    optional: bool = False
    has_default: bool = False
    default: Json = None
    unit: str | None = None
    live: bool = False
    limit: bool = False
    min: float | int | None = None
    max: float | int | None = None
    above: float | int | None = None
    nonempty: bool = False

    @property
    def required(self) -> bool:
        """True if whoever makes the object must give it."""
        return not (self.optional or self.has_default or self.type == Scalar("flag"))


@frozen
class Derived:
    """A read-only sum of other fields, unless one field has the answer itself."""

    name: str
    summands: tuple[Field, ...]
    unless: str | None
    doc: str


@frozen
class Record:
    """A class of fields. A variant of a union has its tag."""

    name: str
    module: str
    doc: str
    fields: tuple[Field, ...]
    place: Place = field(eq=False)
    tag_field: str = ""
    tag: str = ""
    bare: bool = False
    derived: tuple[Derived, ...] = ()
    public: str | None = None
    reserved: tuple[str, ...] = ()


@frozen
class UnionDef:
    """Records told apart by a tag field."""

    name: str
    module: str
    doc: str
    tag_field: str
    variants: tuple[Record, ...]
    place: Place = field(eq=False)
    public: str | None = None
    reserved: tuple[str, ...] = ()


@frozen
class EnumDef:
    """A named choice of words."""

    name: str
    module: str
    doc: str
    values: tuple[str, ...]
    place: Place = field(eq=False)
    reserved: tuple[str, ...] = ()


@frozen
class IdDef:
    """A named kind of identity."""

    name: str
    module: str
    doc: str
    place: Place = field(eq=False)


@frozen
class Answer:
    """One class a listener may answer with."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    place: Place = field(eq=False)


@frozen
class Upcast:
    """How data of one version becomes data of the next, as the schema declares it.

    Names are the schema's; `defaults` are values of fields that the old version did not have.
    """

    version: int
    rename: tuple[tuple[str, str], ...]
    defaults: tuple[tuple[str, Json], ...]
    drop: tuple[str, ...]
    place: Place = field(eq=False)


@frozen
class Event:
    """One event. `rest` is its name after the domain."""

    name: str
    domain: str
    rest: str
    kind: Kind
    since: str
    purpose: str
    emitter: str
    emit: str
    errors: str
    payload_class: str
    token: str
    fields: tuple[Field, ...]
    place: Place = field(eq=False)
    scope: str = ""
    rerun: bool = False
    surface: bool = False
    ignorable: bool = False
    version: int = 1
    default: str = ""
    note: str = ""
    listeners: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    none: str = ""
    returns: Type | None = None
    chunk: Type | None = None
    reserved: tuple[str, ...] = ()
    upcasts: tuple[Upcast, ...] = ()

    @property
    def by_plugin(self) -> str:
        """The plugin that emits it; "" for a room of dsh."""
        head, _, plugin = self.emitter.partition("/")
        return plugin if head == "plugin" else ""

    @property
    def decision(self) -> str:
        """The name of the alias for all its answers."""
        return f"{self.payload_class}Decision"


@frozen
class Retired:
    """A durable event that is written no more. `becomes` is its successor, "" for none.

    `version` was its last one; `becomes_version` is the version of the successor that its last
    upcaster makes.
    """

    name: str
    since: str
    doc: str
    version: int
    place: Place = field(eq=False)
    becomes: str = ""
    becomes_version: int = 1
    upcasts: tuple[Upcast, ...] = ()


@frozen
class Domain:
    """All events of one domain: one generated module."""

    name: str
    module: str
    title: str
    doc: str
    source: str
    events: tuple[Event, ...]
    owner: str = "core"
    retired: tuple[Retired, ...] = ()

    @property
    def has_durable(self) -> bool:
        """True if an event of it is stored."""
        return any(event.kind == "durable" for event in self.events)


@frozen
class ConfigSection:
    """The configuration of one row."""

    section: str
    class_name: str
    module: str
    doc: str
    fields: tuple[Field, ...]
    records: tuple[Record, ...]
    source: str
    place: Place = field(eq=False)
    reserved: tuple[str, ...] = ()


@frozen
class Catalog:
    """Everything one schema folder declares.

    `owner` is "core", or the name of the plugin or foreign distribution. `home` is the folder as
    generated files name it, `command` what makes them again; `foreign` tells a stranger's.
    """

    owner: str
    package: str
    ids: tuple[IdDef, ...]
    enums: tuple[EnumDef, ...]
    records: tuple[Record, ...]
    unions: tuple[UnionDef, ...]
    domains: tuple[Domain, ...]
    sections: tuple[ConfigSection, ...]
    sources: tuple[str, ...]
    home: str = "schema/"
    command: str = "python -m codegen"
    foreign: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in the order of their files."""
        return tuple(event for domain in self.domains for event in domain.events)

    @property
    def retired(self) -> tuple[Retired, ...]:
        """All events that are written no more."""
        return tuple(each for domain in self.domains for each in domain.retired)

    @property
    def types(self) -> tuple[IdDef | EnumDef | Record | UnionDef, ...]:
        """All named types but the variants of unions."""
        return (*self.ids, *self.enums, *self.records, *self.unions)

    @property
    def shapes(self) -> tuple[Record | UnionDef, ...]:
        """All records and unions."""
        return (*self.records, *self.unions)

    @property
    def variants(self) -> tuple[Record, ...]:
        """All classes that stand in a union."""
        return tuple(variant for union in self.unions for variant in union.variants)


@frozen
class PluginInfo:
    """What a plugin.toml says."""

    name: str
    package: str
    entry: str
    summary: str
    folder: str
    extra: str = ""
    dependencies: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()
