"""Renders the Python modules of a catalog: records, domains, config, registry, front door.

What comes in: a resolved Catalog. What goes out: file texts by their path inside the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..model import LiveType, RefType, Scalar, UnionType
from .spelling import ClassView, Speller, docstring, imports, quoted, wrapped_names
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..model import Catalog, ConfigSection, Domain, Event

__all__ = [
    "CORE_COMMAND",
    "HOOKS",
    "alias",
    "config_module",
    "domain_module",
    "front_door",
    "records_module",
    "registry_module",
]

CORE_COMMAND: Final = "python -m codegen"
HOOKS: Final = (
    "AnyDurable", "CoreBarrier", "CoreLogOnly", "CoreNotice", "CoreSurface", "Durable", "Emit",
    "JsonObject", "JsonValue", "LogOnly", "Logged", "Notice", "Parallel", "Serial",
    "Stream as StreamHook", "Waterfall", "frozen", "frozen_array", "frozen_json", "frozen_object",
    "live",
)  # fmt: skip
STANDARD: Final[Mapping[str, Sequence[str]]] = {
    "collections.abc": ("Mapping",),
    "typing": ("ClassVar", "Final", "Literal", "TypeAlias"),
}
ATTRS: Final[Mapping[str, Sequence[str]]] = {"attrs": ("converters", "field", "validators")}
Block = ClassView | list[str]


def code_of(blocks: Iterable[Block]) -> str:
    """All code of some blocks, without documentation: what imports are needed for."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, ClassView):
            lines += ["frozen", f"class {block.name}{block.bases}", *block.lines]
        else:
            lines += block
    return "\n".join(lines)


def import_groups(code: str, local: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Groups of imports as isort orders them, empty ones left out."""
    groups = [imports(code, STANDARD), imports(code, ATTRS), imports(code, local)]
    return [group for group in groups if group]


def exports(names: Iterable[str]) -> list[str]:
    """The lines of `__all__`, sorted as ruff sorts it."""
    ordered = sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
    return wrapped_names([quoted(name) for name in ordered], "__all__ = [", "]")


def alias(name: str, members: Sequence[str]) -> list[str]:
    """A type alias for a union."""
    line = f"{name}: TypeAlias = {' | '.join(members)}"
    if len(line) <= 100:  # noqa: PLR2004
        return [line]
    first, *others = members
    return [f"{name}: TypeAlias = (", f"    {first}", *(f"    | {other}" for other in others), ")"]


def documented(text: str) -> list[str]:
    """A comment that documentation tools take for the next line."""
    return [f"#: {line}" for line in _wrapped(text)]


def _wrapped(text: str) -> list[str]:
    quoted_lines = docstring(text, width=100)
    return [line.replace('"""', "") for line in quoted_lines if line != '"""']


def records_blocks(
    catalog: Catalog, prefix: Mapping[str, str], configured: set[str]
) -> tuple[list[Block], list[str]]:
    """Ids, enums, classes and unions of a catalog, and the names they define."""
    plain, config = Speller(prefix), Speller(prefix, config=True)
    names: list[str] = []
    head: list[str] = []
    for each in catalog.ids:
        head += [*documented(each.doc), f"{each.name}: TypeAlias = str"]
        names.append(each.name)
    for enum in catalog.enums:
        values = ", ".join(map(quoted, enum.values))
        head += [*documented(enum.doc), f"{enum.name}: TypeAlias = Literal[{values}]"]
        names.append(enum.name)
    blocks: list[Block] = [head]
    for record in (*catalog.records, *catalog.variants):
        blocks.append((config if record.name in configured else plain).record(record))
        names.append(record.name)
    tail: list[str] = []
    for union in catalog.unions:
        tail += [*documented(union.doc), *alias(union.name, [v.name for v in union.variants])]
        names.append(union.name)
    return [block for block in (*blocks, tail) if block], names


def records_module(catalog: Catalog, configured: set[str]) -> str:
    """`records.py`: all records, variants, unions, enums and ids."""
    blocks, names = records_blocks(catalog, {"records": ""}, configured)
    return render(
        "module.py.j2",
        header=header("schema/records/*.yaml", CORE_COMMAND),
        doc=docstring("Records: the data that events, messages and configuration are made of."),
        imports=import_groups(code_of(blocks), {"dsh.hooks": HOOKS}),
        preamble=[exports(names)],
        blocks=blocks,
    )


def base_of(event: Event) -> str:
    """The marker base of an event's payload, in parentheses."""
    core = event.emit == "core"
    match event.kind:
        case "durable":
            base = "CoreSurface" if event.surface else ("CoreLogOnly" if core else "LogOnly")
        case "emit":
            base = "CoreNotice" if core else "Notice"
        case "parallel":
            base = "CoreBarrier"
        case _:
            return ""
    return f"({base})"


def scope_of(event: Event) -> str:
    """A function from the payload to its scope, as code."""
    if event.scope in {"", "global"}:
        return "None"
    path = f"p.{event.scope}"
    if event.scope.endswith(".agent"):
        return f"lambda p: None if {path} is None else {path}.scope"
    return f"lambda p: {path}.scope"


def answer_classes(event: Event, speller: Speller) -> list[str]:
    """The classes a listener may return, as code; empty when a class cannot tell."""
    if event.answers:
        found = [answer.name for answer in event.answers]
        return [*found, "type(None)"] if event.none and event.kind == "waterfall" else found
    kind = event.returns
    members = kind.members if isinstance(kind, UnionType) else (kind,)
    return [
        speller.type(member)
        for member in members
        if isinstance(member, LiveType) or (isinstance(member, RefType) and not member.is_union)
    ]


def answer_type(event: Event, speller: Speller) -> str:
    """The type a waterfall or serial event answers with."""
    if event.kind == "serial":
        names = [answer.name for answer in event.answers]
        return names[0] if len(names) == 1 else " | ".join(names)
    if event.answers:
        return event.decision
    return speller.type(event.returns or Scalar("json"))


def token(event: Event, speller: Speller, owner: str) -> list[str]:
    """The lines that make the token."""
    kind = "StreamHook" if event.kind == "stream" else event.kind.capitalize()
    options: list[str] = []
    argument = event.payload_class
    match event.kind:
        case "waterfall" | "serial":
            argument += f", {answer_type(event, speller)}"
            classes = answer_classes(event, speller)
            inner = ", ".join(classes) + ("," if len(classes) == 1 else "")
            options.append(f"answers=({inner})")
        case "stream":
            argument += f", {speller.type(event.chunk or Scalar('json'))}"
        case _:
            pass
    if event.kind == "durable":
        options += [f"{flag}=True" for flag in ("surface", "ignorable") if getattr(event, flag)]
        if event.version > 1:
            options.append(f"version={event.version}")
        options.append(f"owner={quoted(owner)}")
    else:
        options += [f"errors={quoted(event.errors)}", f"scope_of={scope_of(event)}"]
        options.append(f"owner={quoted(event.by_plugin or owner)}")
    if event.rerun:
        options.append("rerun=True")
    head = f"{event.token}: Final[{kind}[{argument}]] = {kind}("
    line = f"{head}{quoted(event.name)}, {event.payload_class}, {', '.join(options)})"
    if len(line) <= 100:  # noqa: PLR2004
        return [line]
    return [
        head,
        f"    {quoted(event.name)},",
        f"    {event.payload_class},",
        *(f"    {option}," for option in options),
        ")",
    ]


def event_blocks(event: Event, speller: Speller, owner: str) -> list[Block]:
    """Payload, answers, alias and token of one event."""
    lines: list[str] = []
    for field in event.fields:
        lines += speller.field(field)
    doc = f"`{event.name}` ({event.kind}): {event.purpose} {event.note}"
    payload = ClassView(
        event.payload_class,
        base_of(event),
        docstring(doc, speller.details(event.fields)),
        tuple(lines),
    )
    tail: list[str] = []
    if event.answers:
        names = [answer.name for answer in event.answers]
        tail += alias(event.decision, [*names, *(["None"] if event.none else [])])
    tail += [*documented(event.purpose), *token(event, speller, owner)]
    return [payload, *(speller.answer(answer, event.name) for answer in event.answers), tail]


def domain_module(catalog: Catalog, domain: Domain) -> str:
    """One module for all events of one domain."""
    core = catalog.owner == "core"
    prefix = {"records": "records."}
    if not core:
        prefix[f"{catalog.package}.records"] = ""
    speller = Speller(prefix)
    blocks: list[Block] = []
    names: list[str] = []
    for event in domain.events:
        blocks += event_blocks(event, speller, catalog.owner)
        names += [event.payload_class, event.token, *(answer.name for answer in event.answers)]
        names += [event.decision] if event.answers else []
    local: dict[str, Sequence[str]] = {"dsh.catalog": ("records",), "dsh.hooks": HOOKS}
    if not core:
        local[f"{catalog.package}.records"] = own_names(catalog)
    return render(
        "module.py.j2",
        header=header(domain.source, catalog.command),
        doc=docstring(f"Events of `{domain.name}/…`. {domain.doc}"),
        imports=import_groups(code_of(blocks), local),
        preamble=[exports(names)],
        blocks=blocks,
    )


def own_names(catalog: Catalog) -> tuple[str, ...]:
    """The types a catalog's front door has."""
    return tuple(each.name for each in (*catalog.types, *catalog.variants))


def section_blocks(section: ConfigSection, speller: Speller) -> list[Block]:
    """The classes of one config section, records first."""
    blocks: list[Block] = [speller.record(record) for record in section.records]
    lines: list[str] = []
    for field in section.fields:
        lines += speller.field(field)
    doc = docstring(f"Row `{section.section}`: {section.doc}", speller.details(section.fields))
    blocks.append(ClassView(section.class_name, "", doc, tuple(lines)))
    return blocks


def sections_of(catalog: Catalog, speller: Speller) -> tuple[list[Block], list[str]]:
    """The classes of all config sections and their names."""
    blocks: list[Block] = []
    for section in catalog.sections:
        blocks += section_blocks(section, speller)
    return blocks, [block.name for block in blocks if isinstance(block, ClassView)]


def config_module(catalog: Catalog) -> str:
    """`config.py`: the sections of the rows that dsh itself mounts."""
    blocks, names = sections_of(
        catalog, Speller({"records": "records.", "config": ""}, config=True)
    )
    table = ["#: The configuration class of each row.", "SECTIONS: Final[Mapping[str, type]] = {"]
    table += [f"    {quoted(s.section)}: {s.class_name}," for s in catalog.sections]
    blocks.append([*table, "}"])
    local = {"dsh.catalog": ("records",), "dsh.hooks": HOOKS}
    return render(
        "module.py.j2",
        header=header("schema/config/*.yaml", CORE_COMMAND),
        doc=docstring(
            "Configuration of the rows that dsh mounts itself. Field metadata: `wire` is the "
            "spelling in composition files, `live` whether an edit takes effect without a restart, "
            "`limit` that a project file which was found by itself may lower it."
        ),
        imports=import_groups(code_of(blocks), local),
        preamble=[exports([*names, "SECTIONS"])],
        blocks=blocks,
    )


def registry_module(catalog: Catalog) -> str:
    """`registry.py`: all tokens by event name, imported on first use."""
    return render(
        "registry.py.j2",
        header=header("schema/events/*.yaml", CORE_COMMAND),
        domains=sorted(catalog.domains, key=lambda domain: domain.module),
        durables=[event for event in catalog.events if event.kind == "durable"],
        module_of={domain.name: domain.module for domain in catalog.domains},
        events=catalog.events,
    )


def front_door(catalog: Catalog) -> str:
    """`__init__.py`: domains by name, imported on first use."""
    modules = sorted(
        [*(d.module for d in catalog.domains), "codec", "config", "records", "registry"]
    )
    return render("front_door.py.j2", header=header("schema/", CORE_COMMAND), modules=modules)
