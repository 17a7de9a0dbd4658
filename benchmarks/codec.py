"""The log's codec beside cattrs: `python -m benchmarks.codec`.

What comes in: the golden records of every durable event, and one long reply as a model gives it.
What goes out: microseconds of CPU for each, and how many times faster the generated codec is than
the oracle of its tests; than a cattrs converter tuned by hand, that knows the wire's names and tags
and refuses the same scalars (and, unlike codec and oracle, takes enums, JSON values and objects
of a wrong class as they come); and than one that writes without looking. All turn the same decoded
JSON into payloads, and back. Medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Literal, TypeAlias, Union, cast, get_args, get_origin

import attrs
import cattrs
from attrs import frozen
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from dsh.catalog import codec, registry
from dsh.hooks import AnyDurable, frozen_json
from dsh.testing import oracle

Write: TypeAlias = Callable[[object], dict[str, object]]
Read: TypeAlias = Callable[[Mapping[str, object], object], object]
GOLDEN = Path(__file__).parents[1] / "schema" / "golden"
ROUNDS = 15
INT_MAX = 2**53 - 1


def camel(name: str) -> str:
    """The wire's spelling of a field."""
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def tag_of(cls: type) -> tuple[str, str] | None:
    """The tag of a variant."""
    for name, text in vars(cls).get("__annotations__", {}).items():
        if str(text).startswith("ClassVar[Literal["):
            return name, cast("str", getattr(cls, name))
    return None


def text(value: object, _hint: object = None) -> object:
    """Text that UTF-8 can carry."""
    if not isinstance(value, str) or not (value.isascii() or value.encode()):
        raise ValueError(value)
    return value


def integer(value: object, _hint: object = None) -> object:
    """An integer that JSON carries without loss."""
    if type(value) is not int or not -INT_MAX <= value <= INT_MAX:
        raise ValueError(value)
    return value


def boolean(value: object, _hint: object = None) -> object:
    """True or false, and no number."""
    if value.__class__ is not bool:
        raise ValueError(value)
    return value


def number(value: object, _hint: object = None) -> object:
    """A number that JSON has."""
    if value.__class__ not in {int, float} or not isfinite(cast("float", value)):
        raise ValueError(value)
    return value


CHECKS = {str: text, int: integer, bool: boolean, float: number}


class Opaque:
    """Stands for JSON values in annotations."""


class Peer:
    """A cattrs converter over the catalog's classes, each resolved once.

    A `strict` one refuses what the codec refuses of scalars, in both directions; the other takes
    values as they come, as cattrs does when it writes.
    """

    def __init__(self, *, strict: bool) -> None:
        self.documented = strict
        self.converter = cattrs.Converter(detailed_validation=False, forbid_extra_keys=True)
        made = self.converter
        for cls, check in CHECKS.items():
            made.register_structure_hook(cls, check)
            if strict:
                made.register_unstructure_hook(cls, check)
        made.register_structure_hook(Opaque, lambda value, _: frozen_json(value))
        made.register_unstructure_hook(Opaque, lambda value: value)
        self.ready: set[object] = set()

    def prepare(self, cls: type) -> None:
        """Resolve a class and everything it holds, and generate its functions."""
        if cls in self.ready:
            return
        self.ready.add(cls)
        names = {**vars(sys.modules[cls.__module__]), "JsonValue": Opaque, "JsonObject": Opaque}
        hints = {
            a.name: cast("object", eval(a.type, names) if isinstance(a.type, str) else a.type)
            for a in attrs.fields(cls)
        }
        for attribute in attrs.fields(cls):
            # What attrs.resolve_types does, which cannot read the aliases of JSON values.
            object.__setattr__(attribute, "type", hints[attribute.name])
        type.__setattr__(cls, "__attrs_types_resolved__", cls)
        for hint in hints.values():
            self.prepare_hint(hint)
        renames = {
            a.name: override(rename=camel(a.name), omit_if_default=True) for a in attrs.fields(cls)
        }
        made = self.converter
        # No field is called like an option of these two.
        write: Write = make_dict_unstructure_fn(cls, made, **renames)  # type: ignore[arg-type]
        read: Read = make_dict_structure_fn(cls, made, **renames)  # type: ignore[arg-type]
        tag = tag_of(cls)
        if tag is not None:
            write, read = partial(_tagged, write, tag), partial(_untagged, read, tag[0])
        made.register_unstructure_hook(cls, write)
        made.register_structure_hook(cls, read)  # pyright: ignore[reportUnknownArgumentType]

    def prepare_hint(self, hint: object) -> None:
        """Resolve what an annotation names."""
        members = get_args(hint)
        if get_origin(hint) in {Union, UnionType}:
            classes = [each for each in members if attrs.has(cast("type", each))]
            for each in classes:
                self.prepare(each)
            if len(classes) > 1:
                self.prepare_union(hint, classes, nullable=type(None) in members)
        elif get_origin(hint) is not Literal:
            for each in members:
                if each is not Ellipsis:
                    self.prepare_hint(each)
            if isinstance(hint, type) and attrs.has(hint):
                self.prepare(hint)

    def prepare_union(self, hint: object, classes: list[type], *, nullable: bool) -> None:
        """A union of variants: one look at the tag decides."""
        if hint in self.ready:
            return
        self.ready.add(hint)
        made, by_tag = self.converter, {tag_of(each): each for each in classes}
        field = next(tag[0] for tag in by_tag if tag is not None)
        table = {tag[1]: each for tag, each in by_tag.items() if tag is not None}
        if self.documented and not nullable:
            words = {each: tag for tag, each in table.items()}
            configure_tagged_union(hint, made, tag_generator=words.__getitem__, tag_name=field)
            return

        def decode(value: object, _hint: object) -> object:
            if value is None and nullable:
                return None
            if isinstance(value, str):  # written as its tag alone
                return table[value]()
            data = cast("Mapping[str, object]", value)
            cls = table[cast("str", data[field])]
            return cast("object", made.structure(data, cls))  # pyright: ignore[reportUnknownMemberType]

        made.register_structure_hook_func(lambda each: each == hint, decode)
        made.register_unstructure_hook_func(lambda each: each == hint, made.unstructure)


def _tagged(write: Write, tag: tuple[str, str], value: object) -> dict[str, object]:
    return {tag[0]: tag[1], **write(value)}


def _untagged(read: Read, field: str, value: Mapping[str, object], hint: object) -> object:
    return read({key: each for key, each in value.items() if key != field}, hint)


@frozen
class Sample:
    """One payload: its class, its JSON, and itself."""

    event: str
    cls: type[AnyDurable]
    data: object
    payload: AnyDurable


def samples() -> dict[str, list[Sample]]:
    """The golden records of all events together, and single ones that matter most."""
    all_of_them: list[Sample] = []
    for path in sorted(GOLDEN.rglob("*.jsonl")):
        event, _, version = (
            path.relative_to(GOLDEN).as_posix().removesuffix(".jsonl").rpartition(".v")
        )
        if event not in registry.DURABLES or registry.DURABLES[event].version != int(version):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            data: object = json.loads(line)
            payload = codec.decode(event, data)
            all_of_them.append(Sample(event, type(payload), data, payload))
    reply = {
        "turn": 3,
        "step": 7,
        "message": {
            "role": "assistant",
            "id": "msg_0123456789abcdef",
            "content": [
                {"type": "reasoning", "text": "The test fails because of a rounding error. " * 4},
                {"type": "text", "text": "I will look at the file first."},
                {
                    "type": "tool-call",
                    "id": "call_1",
                    "name": "read_file",
                    "arguments": '{"path":"a"}',
                },
                {
                    "type": "tool-call",
                    "id": "call_2",
                    "name": "grep",
                    "arguments": '{"pattern":"b"}',
                },
            ],
            "source": {"kind": "model", "provider": "deepseek", "model": "deepseek-chat"},
        },
        "usage": {"inputTokens": 4000, "outputTokens": 180, "cacheReadTokens": 3800},
    }
    payload = codec.decode("assistant/message", reply)
    replies = [Sample("assistant/message", type(payload), reply, payload)]
    chunk = {"turn": 3, "step": 7, "chunk": {"type": "text-delta", "index": 0, "text": " word"}}
    piece = codec.decode("assistant/chunk", chunk)
    chunks = [Sample("assistant/chunk", type(piece), chunk, piece)]
    return {"a reply": replies, "a chunk": chunks, "all events": all_of_them}


def timed(work: Callable[[], object], times: int) -> float:
    """Microseconds of CPU of one call."""
    start = time.process_time()
    for _ in range(times):
        work()
    return 1e6 * (time.process_time() - start) / times


def codec_rows(*, rounds: int, budget: int) -> Iterator[dict[str, object]]:
    """A row for each kind of record and each direction. `budget` is how many records a round has.

    Raises SystemExit when the peers disagree about a record.
    """
    strict, loose = Peer(strict=True), Peer(strict=False)
    groups = samples()
    for each in chain.from_iterable(groups.values()):  # before the peers resolve annotations
        if oracle.structured(each.data, each.cls) != each.payload:
            raise SystemExit(f"the oracle reads another {each.event}")
    for name, group in groups.items():
        for each in group:
            for peer in (strict, loose):
                peer.prepare(each.cls)
                if peer.converter.structure(each.data, each.cls) != each.payload:
                    raise SystemExit(f"cattrs reads another {each.event}")
        times = max(1, budget // len(group))
        for way, works in works_of(group, strict, loose).items():
            rows = [[timed(work, times) / len(group) for work in works] for _ in range(rounds)]
            ours, _, checked, unchecked = (
                statistics.median(column) for column in zip(*rows, strict=True)
            )
            ratios = [
                round(statistics.median(row[peer] / row[0] for row in rows), 2)
                for peer in range(1, len(works))
            ]
            yield {
                "row": f"codec: {way} {name}",
                "unit": "us CPU",
                "codec": round(ours, 2),
                "tunedCattrs": round(checked, 2),
                "uncheckedCattrs": round(unchecked, 2),
                "timesFasterThanOracle": ratios[0],
                "thanTuned": ratios[1],
                "thanUnchecked": ratios[2],
            }


def main() -> None:
    """Measure, and print one line for each kind of record and direction."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.codec", description="the log's codec beside cattrs"
    )
    parser.add_argument("--small", action="store_true", help="a smoke run")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    rounds, budget = (3, 200) if options.small else (ROUNDS, 4000)
    for line in codec_rows(rounds=rounds, budget=budget):
        tell(line, as_json=options.json)


Work = Callable[[], object]


def works_of(group: list[Sample], strict: Peer, loose: Peer) -> dict[str, tuple[Work, ...]]:
    """For each direction: the codec, the oracle, tuned cattrs with checks, and without."""
    write = [peer.converter.unstructure for peer in (strict, loose)]
    read = [peer.converter.structure for peer in (strict, loose)]
    return {
        "encode": (
            lambda: [codec.encode(each.payload) for each in group],
            lambda: [oracle.written(each.payload) for each in group],
            lambda: [write[0](each.payload) for each in group],
            lambda: [write[1](each.payload) for each in group],
        ),
        "decode": (
            lambda: [codec.decode(each.event, each.data) for each in group],
            lambda: [oracle.structured(each.data, each.cls) for each in group],
            lambda: [read[0](each.data, each.cls) for each in group],
            lambda: [read[1](each.data, each.cls) for each in group],
        ),
    }


def tell(row: Mapping[str, object], *, as_json: bool) -> None:
    """Print one line."""
    line = json.dumps(row) if as_json else "  ".join(f"{key} {value}" for key, value in row.items())
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
