"""One event or header as one line of JSON, and back.

What comes in: stored events, headers, or bytes of one line without its newline. What goes out: the
same in the other form. Keys stand in a fixed order: type, v, seq, time, owner, ignorable,
surfaceOp, sourceEventSeqs, data. This module opens nothing; the line's place is its caller's.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, cast

import orjson

from dsh.catalog import codec
from dsh.catalog.records import SessionHeader
from dsh.errors import SessionUnreadable
from dsh.wire.envelope import FORMAT_VERSION, StoredEvent, UnknownEvent
from dsh.wire.payloads import NotJson, WireFault, decode_payload, encode_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dsh.hooks import AnyDurable

__all__ = [
    "decode_header",
    "decode_line",
    "encode_header",
    "encode_line",
    "refuse_unreadable",
    "runs_of",
]

HEADER_TYPE: Final = "session"


def runs_of(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending seqs as `[first, last]` runs."""
    if not seqs:
        return []
    if seqs[-1] - seqs[0] == len(seqs) - 1:
        return [(seqs[0], seqs[-1])]
    runs: list[tuple[int, int]] = []
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            runs.append((first, last))
            first = seq
        last = seq
    runs.append((first, last))
    return runs


def encode_line(event: StoredEvent, data: bytes | None = None) -> bytes:
    """The event as one line, without newline. `data` is its payload's JSON, if already made.

    An unknown event is given back byte for byte. Raises Unwritable as `encode_payload` does.
    """
    payload = event.data
    if isinstance(payload, UnknownEvent):
        return payload.raw
    if data is None:
        data = encode_payload(payload)
    head = f'{{"type":"{event.type}"'
    if event.v != 1:
        head += f',"v":{event.v}'
    head += f',"seq":{event.seq},"time":{event.time}'
    if event.owner is not None:
        head += f',"owner":{orjson.dumps(event.owner).decode()}'
    if event.ignorable:
        head += ',"ignorable":true'
    if event.surface_op is not None:
        op = orjson.dumps(codec.encode_surface_op(event.surface_op))
        head += f',"surfaceOp":{op.decode()}'
    if event.source_event_seqs is not None:
        head += f',"sourceEventSeqs":{orjson.dumps(runs_of(event.source_event_seqs)).decode()}'
    return b'%b,"data":%b}' % (head.encode(), data)


def decode_line(line: bytes) -> StoredEvent:
    """Read one line that holds one event. Raises WireFault, saying what of it is wrong.

    An event that this installation does not know comes back with `UnknownEvent` as its data;
    `refuse_unreadable` decides whether that is fatal.
    """
    try:
        row: object = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error}") from None
    return event_of(row, line)


def event_of(row: object, raw: bytes) -> StoredEvent:
    """The event of one parsed line; `raw` is kept if its type is unknown."""
    if not isinstance(row, dict):
        raise WireFault(f"a {type(row).__name__} where an event is due")
    fields = cast("dict[str, object]", row)
    name = fields.get("type")
    if type(name) is not str:
        raise WireFault("`type` is missing or not text")
    if name == HEADER_TYPE:
        raise WireFault("a second header line")
    seq = _count(fields, "seq")
    time = _count(fields, "time")
    if "data" not in fields:
        raise WireFault("`data` is missing")
    if len(fields) == 4:  # noqa: PLR2004  type, seq, time, data: most lines of most logs
        try:
            data = decode_payload(name, fields["data"], version=1, raw=raw)
        except WireFault as fault:
            raise WireFault(f"seq {seq}: {fault}") from fault
        return StoredEvent(
            _type(data, name), seq, time, data, _version(data, 1), ignorable=_skipped(data)
        )
    return _decorated(fields, name=name, seq=seq, time=time, raw=raw)


def _decorated(
    fields: dict[str, object], *, name: str, seq: int, time: int, raw: bytes
) -> StoredEvent:
    seen = 4
    version = 1
    if "v" in fields:
        version = _count(fields, "v")
        seen += 1
        if version == 0:
            raise WireFault("`v` counts from 1")
    owner = fields.get("owner")
    if owner is not None:
        seen += 1
        if type(owner) is not str:
            raise WireFault("`owner` is not text")
    if "ignorable" in fields:
        seen += 1
        if fields["ignorable"] is not True:
            raise WireFault("`ignorable` may only be true")
    op = None
    if "surfaceOp" in fields:
        seen += 1
        try:
            op = codec.decode_surface_op(fields["surfaceOp"])
        except codec.CodecError as error:
            raise WireFault(f"`surfaceOp`: {error}") from None
    sources = None
    if "sourceEventSeqs" in fields:
        seen += 1
        sources = _decode_runs(fields["sourceEventSeqs"], below=seq)
    if seen != len(fields):
        known = {"type", "v", "seq", "time", "owner", "ignorable", "surfaceOp"}
        extra = sorted(set(fields) - known - {"sourceEventSeqs", "data"})
        raise WireFault(f"unknown or empty envelope fields: {', '.join(extra) or 'owner'}")
    try:
        data = decode_payload(name, fields["data"], version=version, raw=raw)
    except WireFault as fault:
        raise WireFault(f"seq {seq}: {fault}") from fault
    return StoredEvent(
        _type(data, name),
        seq,
        time,
        data,
        _version(data, version),
        owner,
        "ignorable" in fields or _skipped(data),
        op,
        sources,
    )


def _type(data: AnyDurable | UnknownEvent, stored: str) -> str:
    """The event's name today: that of the successor, if it was retired."""
    return stored if isinstance(data, UnknownEvent) else data.TOKEN.name


def _skipped(data: AnyDurable | UnknownEvent) -> bool:
    """Whether nobody needs to know it: it is retired, and means nothing any more."""
    return isinstance(data, UnknownEvent) and data.problem == "retired"


def _version(data: AnyDurable | UnknownEvent, stored: int) -> int:
    """What was carried up to the current shape is written again as that."""
    return stored if isinstance(data, UnknownEvent) else data.TOKEN.version


def _count(fields: dict[str, object], key: str) -> int:
    value = fields.get(key)
    # `type(…) is int` also refuses true, which is an int in Python, and 1.0, which is not.
    if type(value) is not int or value < 0:
        shown = orjson.dumps(value).decode() if key in fields else "nothing"
        raise WireFault(f"`{key}` is {shown[:40]}, not an integer from 0")
    return value


def _decode_runs(value: object, *, below: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise WireFault("`sourceEventSeqs` is not a list of [first, last] runs")
    runs: list[range] = []
    next_free = 0
    for run in cast("list[object]", value):
        match run:
            case [int(first), int(last)] if next_free <= first <= last < below:
                runs.append(range(first, last + 1))
                next_free = last + 1
            case _:
                raise WireFault(
                    "`sourceEventSeqs` must be ascending [first, last] runs of earlier events"
                )
    return tuple(chain.from_iterable(runs))


def encode_header(header: SessionHeader) -> bytes:
    """The first line of a log, without newline."""
    try:
        fields = cast("dict[str, object]", codec.encode_record(header))
        return orjson.dumps({"type": HEADER_TYPE, **fields}, option=orjson.OPT_STRICT_INTEGER)
    except (codec.CodecError, orjson.JSONEncodeError) as error:
        raise WireFault(f"the header cannot be written: {error}") from error


def decode_header(line: bytes) -> SessionHeader:
    """Read the first line of a log. The version is looked at before anything else.

    Raises SessionUnreadable for a version other than ours, WireFault for everything else.
    """
    if line.startswith(b"\xef\xbb\xbf"):
        raise WireFault("begins with a byte order mark; an editor changed the file, remove it")
    if line.endswith(b"\r"):
        raise WireFault("lines end in CR LF; an editor changed the file, restore LF")
    try:
        row: object = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise WireFault(f"the header is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise WireFault("the first line is not a header object")
    fields = cast("dict[str, object]", row)
    if fields.pop("type", None) != HEADER_TYPE:
        raise WireFault('the first line is not a header: its type is not "session"')
    version = _count(fields, "version")
    if version != FORMAT_VERSION:
        age = "a newer" if version > FORMAT_VERSION else "an older, never released"
        raise SessionUnreadable(
            f"the log has format {version}, {age} format than this dsh reads "
            f"({FORMAT_VERSION}); open it with the dsh that wrote it"
        )
    try:
        return codec.decode_record(SessionHeader, fields)
    except codec.CodecError as error:
        raise WireFault(f"the header is not of its shape: {error}") from error


def refuse_unreadable(events: Iterable[StoredEvent], *, session: str) -> None:
    """Raise SessionUnreadable if a log holds an event that must be known and is not.

    Resume and fork ask this; views that only show do not.
    """
    for event in events:
        if isinstance(event.data, UnknownEvent) and not event.ignorable:
            owner = event.owner or "a newer dsh"
            raise SessionUnreadable(
                f"session {session} needs {event.type!r} (version {event.v}, seq {event.seq}), "
                f"{event.data.problem} here; it was declared by {owner}: install that, or only "
                "look at the session"
            )
