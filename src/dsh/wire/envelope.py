"""The envelope of one stored event, and of a whole log as read.

What comes in: decoded payloads, or the raw line of an event this installation does not know.
What goes out: `StoredEvent`, `UnknownEvent` and `StoredLog`, frozen. Nothing here reads or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh.catalog.records import SessionHeader, SurfaceOp
    from dsh.hooks import AnyDurable

__all__ = ["FORMAT_VERSION", "Recovered", "StoredEvent", "StoredLog", "UnknownEvent"]

#: The shape of header, envelope and surface mechanics. New event types do not change it.
FORMAT_VERSION: Final = 1


@frozen(slots=True, eq=False)
class UnknownEvent:
    """An event whose type, or whose version, this installation does not know, or reads no more.

    `raw` is the line as it was read, without its newline; it is written again byte for byte.
    """

    raw: bytes
    problem: Literal["unknown type", "newer version", "retired"]


@frozen(slots=True, eq=False)
class StoredEvent:
    """One event of a log: what the disk keeps of it. Compared by identity.

    `seq` counts from 0; `time` is in epoch milliseconds and may step back; `v` is the version of
    the payload's shape. `owner` is None for the core, else `name@version` of who declared the type.
    `surface_op` stands on surface events only; `source_event_seqs` are ascending and unique.
    """

    type: str
    seq: int
    time: int
    data: AnyDurable | UnknownEvent
    v: int = 1
    owner: str | None = None
    ignorable: bool = False
    surface_op: SurfaceOp | None = None
    source_event_seqs: tuple[int, ...] | None = None


@frozen(kw_only=True, slots=True, eq=False)
class StoredLog:
    """A log as a reader found it. `torn` says what of an unfinished last line was ignored.

    `events` begins at the seq that was asked for. `path` is where it was read, if it has a place.
    """

    header: SessionHeader
    events: tuple[StoredEvent, ...]
    torn: str | None = None
    path: str | None = None


@frozen(kw_only=True, slots=True, eq=False)
class Recovered:
    """What can still be read of a log, damaged or not: its beginning, up to the first damage.

    `header` is None when the first line is lost. `damage` says where reading ended and why, or
    None for a log that can be read to its end; `beyond` says what lies after the damage.
    """

    header: SessionHeader | None
    events: tuple[StoredEvent, ...]
    damage: str | None = None
    beyond: str | None = None
