"""Builds a catalog from the YAML of one schema folder.

What comes in: files as bytes, and the core's catalog when a plugin's schema is read. What goes out:
a resolved Catalog, or faults: all of them, in all files. Names are collected first, so that files
may use each other's records in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define, evolve, frozen

from .events import EventBuilder
from .evolution import retired_of
from .faults import Place, did_you_mean
from .fields import FieldBuilder, variant_class
from .model import (
    Catalog,
    ConfigSection,
    Domain,
    EnumDef,
    EnumType,
    IdDef,
    IdType,
    RefType,
)
from .names import domain_pattern, module_of, pascal
from .read import Entries, Items, Text, read_yaml
from .values import Values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .faults import Faults
    from .model import Event, Record, Type, UnionDef
    from .read import Node

__all__ = ["Origin", "SchemaFile", "Symbols", "build_catalog", "symbols_of"]

TOP_KEYS: Final = {
    "domain": ("domain", "title", "doc", "events", "retired"),
    "section": ("section", "class", "doc", "fields", "records", "reserved"),
    "domains": ("domains",),
    "records": ("ids", "enums", "records", "unions"),
}
Symbols = dict[str, "Type"]


@define
class SchemaFile:
    """One file: its name as faults give it, and its content."""

    name: str
    content: bytes
    root: Entries | None = None

    @property
    def kind(self) -> str:
        """domain, section, domains, records, or "" when it is none of them."""
        keys = self.root.entries if self.root else {}
        for kind in ("domain", "section", "domains"):
            if kind in keys:
                return kind
        return "records" if keys.keys() & set(TOP_KEYS["records"]) else ""


def _choices(node: Node) -> tuple[str, ...]:
    """The words of an enum's `values`, leniently: faults are noted when it is built."""
    values = node.entries.get("values") if isinstance(node, Entries) else None
    items = values.items if isinstance(values, Items) else []
    return tuple(item.value for item in items if isinstance(item, Text))


def symbols_of(catalog: Catalog) -> Symbols:
    """The type names a finished catalog gives to those that stand on it."""
    found: Symbols = {}
    for each in catalog.ids:
        found[each.name] = IdType(each.name, each.module)
    for enum in catalog.enums:
        found[enum.name] = EnumType(enum.name, enum.values, enum.module)
    for record in (*catalog.records, *catalog.variants):
        found[record.name] = RefType(record.name, record.module)
    for union in catalog.unions:
        found[union.name] = RefType(union.name, union.module, is_union=True)
    return found


class _Build:
    """One run over one folder."""

    def __init__(self, files: list[SchemaFile], faults: Faults, base: Symbols, module: str) -> None:
        self.files = files
        self.faults = faults
        self.values = Values(faults)
        self.module = module
        #: Records that stand beside a config section live in the config module.
        self.config_module = module.removesuffix("records") + "config"
        self.known: Symbols = dict(base)
        self.places: dict[str, Place] = {}
        self.base = base

    def declare(self, name: str, place: Place, kind: Type) -> None:
        """Enter a type's name; a second one is a fault."""
        if not name[:1].isupper() or not name.isidentifier():
            self.faults.add(
                place, "type-name", f"{name!r} cannot name a type", "begin with a capital letter"
            )
        elif name in self.places:
            self.faults.add(
                place,
                "duplicate-name",
                f"{name!r} is already the name of a type, declared at {self.places[name].text}",
                "rename one of the two",
            )
        elif name in self.base:
            self.faults.add(
                place, "duplicate-name", f"{name!r} is a type of the core", "choose another name"
            )
        else:
            self.places[name] = place
            self.known[name] = kind

    def collect(self) -> None:
        """Enter the names of all types of all files."""
        for file in self.files:
            root = file.root
            if root is None:
                continue
            module = self.config_module if file.kind == "section" else self.module
            for group in ("ids", "enums", "records", "unions"):
                below = root.entries.get(group)
                if isinstance(below, Entries):
                    for name, node in below.entries.items():
                        self.collect_one(group, name, below.keys[name], node, module)

    def collect_one(self, group: str, name: str, place: Place, node: Node, module: str) -> None:
        """Enter one name; for a union also those of its variants."""
        if group == "ids":
            self.declare(name, place, IdType(name, module))
        elif group == "enums":
            self.declare(name, place, EnumType(name, _choices(node), module))
        elif group == "records":
            self.declare(name, place, RefType(name, module))
        else:
            self.declare(name, place, RefType(name, module, is_union=True))
            variants = node.entries.get("variants") if isinstance(node, Entries) else None
            if isinstance(node, Entries) and isinstance(variants, Entries):
                for word, below in variants.entries.items():
                    class_name = variant_class(node.entries, word, below)
                    self.declare(class_name, variants.keys[word], RefType(class_name, module))

    def root_of(self, file: SchemaFile) -> Mapping[str, Node]:
        """The top keys of a file, checked."""
        if file.root is None:
            return {}
        return self.values.keys(file.root, "a schema file", TOP_KEYS[file.kind]) or {}

    def ids(self, node: Node) -> list[IdDef]:
        return [
            IdDef(name, self.module, self.values.text(below, f"id {name}") or "", below.place)
            for name, _, below in self.values.each(node, "ids")
        ]

    def enums(self, node: Node) -> list[EnumDef]:
        found: list[EnumDef] = []
        for name, _, below in self.values.each(node, "enums"):
            what = f"enum {name}"
            keys = self.values.keys(below, what, ("doc", "values", "reserved"), ("doc", "values"))
            if keys is None:
                continue
            doc = self.values.text(keys["doc"], f"doc of {what}") if "doc" in keys else ""
            values = self.values.texts(keys["values"], what) if "values" in keys else ()
            reserved = self.values.texts_at(keys, "reserved", what)
            found.append(EnumDef(name, self.module, doc or "", values, below.place, reserved))
        return found

    def records(self, node: Node, fields: FieldBuilder, module: str) -> list[Record]:
        built = [
            fields.record(name, below, module)
            for name, _, below in self.values.each(node, "records")
        ]
        return [record for record in built if record is not None]

    def unions(self, node: Node, fields: FieldBuilder) -> list[UnionDef]:
        built = [
            fields.union(name, below, self.module)
            for name, _, below in self.values.each(node, "unions")
        ]
        return [union for union in built if union is not None]

    def section(self, file: SchemaFile, fields: FieldBuilder) -> ConfigSection | None:
        """One config section."""
        keys = self.root_of(file)
        for key in ("doc", "fields"):
            if key not in keys and file.root is not None:
                self.values.missing(file.root.place, "a config section", key)
        name = self.values.text(keys["section"], "section")
        if name is None or file.root is None:
            return None
        given = self.values.text(keys["class"], "class") if "class" in keys else None
        module = self.config_module
        return ConfigSection(
            section=name,
            class_name=given or f"{pascal(name)}Config",
            module=module,
            doc=(self.values.text(keys["doc"], "doc") or "") if "doc" in keys else "",
            fields=fields.fields(keys["fields"], name) if "fields" in keys else (),
            records=tuple(self.records(keys["records"], fields, module))
            if "records" in keys
            else (),
            source=file.name,
            place=file.root.place,
            reserved=self.values.texts_at(keys, "reserved", f"section {name}"),
        )


def _titles(build: _Build) -> dict[str, tuple[str, str, Place]]:
    """What domains.yaml says: name → title, doc, place."""
    found: dict[str, tuple[str, str, Place]] = {}
    for file in build.files:
        if file.kind != "domains":
            continue
        for name, _, node in build.values.each(build.root_of(file)["domains"], "domains"):
            keys = build.values.keys(node, f"domain {name}", ("title", "doc"), ("title", "doc"))
            if keys is not None and {"title", "doc"} <= keys.keys():
                title = build.values.text(keys["title"], "title") or ""
                doc = build.values.text(keys["doc"], "doc") or ""
                found[name] = (title, doc, node.place)
    return found


def _domain(
    build: _Build, file: SchemaFile, fields: FieldBuilder, titles: dict[str, tuple[str, str, Place]]
) -> Domain | None:
    """One domain and its events."""
    keys = build.root_of(file)
    place = file.root.place if file.root else Place(file.name, 1, 1)
    name = build.values.text(keys["domain"], "domain")
    if name is None:
        return None
    if not domain_pattern.fullmatch(name):
        build.faults.add(
            keys["domain"].place, "domain-name", f"{name!r} is no domain", "use small words"
        )
    title = (build.values.text(keys["title"], "title") or name) if "title" in keys else name
    doc = (build.values.text(keys["doc"], "doc") or "") if "doc" in keys else ""
    if name in titles:
        title, doc, _ = titles.pop(name)
    elif build.module == "records":
        build.faults.add(
            keys["domain"].place,
            "unknown-domain",
            f"domain {name!r} does not stand in domains.yaml",
            did_you_mean(name, titles, "add it there with title and doc"),
        )
    elif "doc" not in keys:
        build.values.missing(place, "a domain's file", "doc")
    found: list[Event] = []
    if "events" not in keys:
        build.values.missing(place, "a domain's file", "events")
    else:
        builder = EventBuilder(build.faults, build.values, fields)
        for rest, at, node in build.values.each(keys["events"], "events"):
            event = builder.event(name, rest, at, node)
            if event is not None:
                found.append(event)
    retired = retired_of(keys["retired"], name, build.values) if "retired" in keys else ()
    return Domain(name, module_of(name), title, doc, file.name, tuple(found), retired=retired)


@frozen(kw_only=True)
class Origin:
    """Whose schema a folder is: `owner` is "core" or a name, `package` where its modules go.

    `module` is that of its records; `home` and `command` are told at the top of generated files.
    """

    owner: str
    package: str
    module: str
    home: str
    command: str = "python -m codegen"
    foreign: bool = False


def build_catalog(
    files: list[SchemaFile], faults: Faults, origin: Origin, base: Symbols
) -> Catalog:
    """The catalog of one folder. `base` are type names it may use; faults go to `faults`."""
    module = origin.module
    for file in files:
        file.root = read_yaml(file.name, file.content, faults)
        if file.root is not None and not file.kind:
            faults.add(
                file.root.place,
                "unknown-file",
                "no domain:, section:, records:, unions:, enums: or ids: at the top",
                "begin with one of them",
            )
    given = len(files)
    files = [file for file in files if file.root is not None and file.kind]
    build = _Build(files, faults, base, module)
    build.collect()
    fields = FieldBuilder(faults, build.values, build.known)
    ids: list[IdDef] = []
    enums: list[EnumDef] = []
    records: list[Record] = []
    unions: list[UnionDef] = []
    for file in files:
        if file.kind == "records":
            keys = build.root_of(file)
            ids += build.ids(keys["ids"]) if "ids" in keys else []
            enums += build.enums(keys["enums"]) if "enums" in keys else []
            records += build.records(keys["records"], fields, module) if "records" in keys else []
            unions += build.unions(keys["unions"], fields) if "unions" in keys else []
    titles = _titles(build)
    domains = [_domain(build, file, fields, titles) for file in files if file.kind == "domain"]
    unread = len(files) < given
    for name, (_, _, place) in () if unread else titles.items():
        faults.add(
            place, "empty-domain", f"domain {name!r} has no file", "remove it, or add events"
        )
    sections = [build.section(file, fields) for file in files if file.kind == "section"]
    return Catalog(
        owner=origin.owner,
        package=origin.package,
        ids=tuple(ids),
        enums=tuple(enums),
        records=tuple(records),
        unions=tuple(unions),
        domains=tuple(evolve(each, owner=origin.owner) for each in domains if each is not None),
        sections=tuple(section for section in sections if section is not None),
        sources=tuple(file.name for file in files),
        home=origin.home,
        command=origin.command,
        foreign=origin.foreign,
    )
