"""Makes sample payloads: what golden records and `dsh catalog show` have as examples.

What comes in: a durable event and the catalogs whose types it uses. What goes out: payloads as JSON
has them, in the wire's spelling: the smallest one, and as many full ones as it takes to show every
variant of every union. Always the same for the same schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .model import EnumType, IdType, ListType, RefType, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Catalog, Event, Field, Json, Record, Type, UnionDef

__all__ = ["Samples"]

DEPTH_MAX: Final = 6


class Samples:
    """Makes samples of types that stand in some catalogs."""

    def __init__(self, catalogs: Iterable[Catalog]) -> None:
        self.records: dict[str, Record] = {}
        self.unions: dict[str, UnionDef] = {}
        for catalog in catalogs:
            self.records |= {each.name: each for each in (*catalog.records, *catalog.variants)}
            self.unions |= {each.name: each for each in catalog.unions}
        self._most = 1

    def of(self, event: Event) -> list[dict[str, Json]]:
        """The payloads of an event: the smallest first."""
        smallest = self._fields(event.fields, 0, full=False, depth=0)
        self._most = 1
        first = self._fields(event.fields, 0, full=True, depth=0)
        full = [first]
        full += [
            self._fields(event.fields, turn, full=True, depth=0) for turn in range(1, self._most)
        ]
        found: list[dict[str, Json]] = [smallest]
        for each in full:
            if each not in found:
                found.append(each)
        return found

    def _fields(
        self, fields: Iterable[Field], turn: int, *, full: bool, depth: int
    ) -> dict[str, Json]:
        made: dict[str, Json] = {}
        for field in fields:
            if not field.required and (not full or depth > DEPTH_MAX):
                continue
            value = self._value(field.type, field.name, turn, full=full, depth=depth)
            if field.has_default and value == field.default:
                continue
            made[field.wire] = value
        return made

    def _record(self, record: Record, turn: int, *, full: bool, depth: int) -> Json:
        if record.bare:
            return record.tag
        tag: dict[str, Json] = {record.tag_field: record.tag} if record.tag_field else {}
        return tag | self._fields(record.fields, turn, full=full, depth=depth + 1)

    def _value(self, kind: Type, name: str, turn: int, *, full: bool, depth: int) -> Json:
        match kind:
            case Scalar():
                return _scalar(kind.name, name, turn)
            case IdType():
                return f"{name}-{turn + 1}"
            case EnumType():
                self._most = max(self._most, len(kind.values))
                return kind.values[turn % len(kind.values)]
            case ListType():
                return self._items(kind.item, name, turn, full=full, depth=depth)
            case RefType() if kind.name in self.unions:
                variants = self.unions[kind.name].variants
                self._most = max(self._most, len(variants))
                chosen = variants[turn % len(variants)]
                return self._record(chosen, turn, full=full, depth=depth)
            case RefType():
                return self._record(self.records[kind.name], turn, full=full, depth=depth)
            case _:
                return None

    def _items(self, item: Type, name: str, turn: int, *, full: bool, depth: int) -> Json:
        """A list: empty in the smallest payload, else one item of each variant."""
        if not full or depth > DEPTH_MAX:
            return []
        if isinstance(item, RefType) and item.name in self.unions:
            return [
                self._record(variant, turn, full=True, depth=depth)
                for variant in self.unions[item.name].variants
            ]
        return [self._value(item, name, turn, full=True, depth=depth)]


def _scalar(kind: str, name: str, turn: int) -> Json:
    match kind:
        case "int":
            return turn + 1
        case "number":
            return turn + 0.5
        case "bool":
            return turn % 2 == 0
        case "flag":
            return True
        case "json":
            return {"key": [turn, "two", None, 2.5, True]}
        case "object":
            return {"key": f"value {turn + 1}", "snake_key": [1]}
        case _:
            return f"{name.replace('_', ' ')} {turn + 1}"
