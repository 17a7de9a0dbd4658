"""Lays out codec modules: that of the core, and one for each plugin that stores something.

What comes in: resolved catalogs. What goes out: the text of `codec.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from .codec import CodecWriter
from .codec_making import snake
from .history import hand_written
from .modules import CORE_COMMAND, own_names
from .reach import stored_names
from .spelling import imports
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..history import Step
    from ..model import Catalog, Record

__all__ = ["core_codec", "extension_codec", "refusal_module"]


@frozen
class EventView:
    """An event as the codec's tables name it."""

    name: str
    function: str


@frozen
class RecordView:
    """A record as the codec's tables name it."""

    name: str
    function: str


@frozen
class TokenView:
    """A token and its functions, as an extension registers them."""

    token: str
    function: str


REFUSALS: Final = (
    "ABSENT", "NEW", "SLOTS", "CodecError", "bad_choice", "bad_class", "bad_int", "bad_null",
    "bad_number", "bad_tag", "bad_text", "bad_value", "is_clean", "is_number", "missing",
    "of_json", "setters", "unknown",
)  # fmt: skip


def refusal_module() -> str:
    """`refusal.py`: what all codecs raise, and their small checks."""
    return render("refusal.py.j2", header=header("codegen/templates/refusal.py.j2", CORE_COMMAND))


def _functions(catalog: Catalog, stored: set[str], writer: CodecWriter) -> list[list[str]]:
    """All functions: records, then unions, then events."""
    blocks: list[list[str]] = []
    for record in (*catalog.records, *catalog.variants):
        if record.name in stored:
            blocks += writer.record(record)
    for union in catalog.unions:
        if union.name in stored:
            blocks += [writer.union_encoder(union), writer.union_decoder(union)]
    for domain in catalog.domains:
        for event in domain.events:
            if event.kind == "durable":
                blocks += writer.event(event, domain.module)
    return blocks


def own_unions(catalog: Catalog) -> frozenset[str]:
    """The unions a catalog declares."""
    return frozenset(union.name for union in catalog.unions)


def _views(catalog: Catalog) -> list[EventView]:
    return [
        EventView(event.name, f"{domain.module}_{snake(event.payload_class)}_event")
        for domain in catalog.domains
        for event in domain.events
        if event.kind == "durable"
    ]


def core_codec(catalog: Catalog) -> str:
    """`codec.py` of the core."""
    stored = stored_names((catalog,))
    records: list[Record] = [r for r in (*catalog.records, *catalog.variants) if r.name in stored]
    unions = [snake(union.name) for union in catalog.unions if union.name in stored]
    return render(
        "codec.py.j2",
        header=header("schema/", CORE_COMMAND),
        modules=sorted(domain.module for domain in catalog.domains if domain.has_durable),
        public=sorted(f"{way}_{name}" for way in ("encode", "decode") for name in unions),
        blocks=_functions(catalog, stored, CodecWriter("records.", own_unions(catalog))),
        events=_views(catalog),
        records=[RecordView(record.name, snake(record.name)) for record in records],
    )


def extension_codec(
    core: Catalog, catalog: Catalog, version: str, steps: Sequence[Step] = ()
) -> str:
    """`codec.py` of a plugin: functions for what it declares, and its entry in the registry."""
    stored = stored_names((core, catalog))
    writer = CodecWriter("", own_unions(catalog))
    blocks = _functions(catalog, stored, writer)
    code = "\n".join(line for block in blocks for line in block)
    core_functions = [
        f"{way}_{snake(each.name)}"
        for each in (*core.shapes, *core.variants)
        for way in ("encode", "decode")
    ]
    modules = sorted(domain.module for domain in catalog.domains if domain.has_durable)
    return render(
        "extension_codec.py.j2",
        header=header(catalog.home, catalog.command),
        owner=f"{catalog.owner}@{version}",
        plugin=catalog.owner,
        package=catalog.package,
        modules=[*(["history"] if steps or catalog.retired else []), *modules],
        history=bool(steps or catalog.retired),
        upcasters=f"{catalog.package.rpartition('.')[0]}.upcasters" if hand_written(steps) else "",
        imports=[
            *imports(code, {"dsh.catalog": ("records",)}),
            *imports(code, {"dsh.catalog.codec": core_functions}),
        ],
        refusals=imports(code, {"dsh.catalog.refusal": REFUSALS}),
        hooks=imports(code, {"dsh.hooks": ("InvalidJson", "frozen_json", "frozen_object")}),
        own=imports(code, {f"{catalog.package}.records": own_names(catalog)}),
        blocks=blocks,
        events=[
            TokenView(
                f"{domain.module}.{event.token}",
                f"{domain.module}_{snake(event.payload_class)}_event",
            )
            for domain in catalog.domains
            for event in domain.events
            if event.kind == "durable"
        ],
    )
