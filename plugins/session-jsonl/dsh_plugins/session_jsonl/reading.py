"""From the bytes of a log file to its events, or to the line where it is damaged.

What comes in: the whole file, its path, the id that was asked for. What goes out: header, events,
and how far the good lines reach. An unfinished last line is set aside, never guessed at; damage
anywhere else is refused with its place. Nothing here opens or changes a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from dsh.errors import SessionCorrupt, SessionError, SessionUnreadable
from dsh.hooks import frozen
from dsh.wire import (
    NotJson,
    Recovered,
    RowReader,
    SealBroken,
    StoredEvent,
    WireFault,
    decode_header,
    decode_line,
)

if TYPE_CHECKING:
    from dsh.catalog.records import SessionHeader
    from dsh_plugins.session_jsonl.blobs import Blobs

__all__ = ["ReadLog", "corrupt", "read_header", "read_log", "recover_log"]


@frozen(kw_only=True, slots=True, eq=False)
class ReadLog:
    """What a file holds. `good` is the length of the good lines; `torn` says what came after.

    `crc` is the checksum of the good lines since the newest seal, 0 when there are none.
    """

    header: SessionHeader
    events: tuple[StoredEvent, ...]
    good: int
    torn: str | None
    crc: int


def corrupt(path: str, line: int, reason: str) -> NoReturn:
    """Refuse a damaged file."""
    raise SessionCorrupt(f"{path}:{line}: {reason}; the log was not changed")


def read_header(line: bytes, *, path: str, session_id: str | None) -> SessionHeader:
    """The header in a file's first line. `session_id` is checked against it, if given.

    Raises SessionCorrupt, or SessionUnreadable for another format; both name the file.
    """
    try:
        header = decode_header(line)
    except SessionUnreadable as error:
        raise SessionUnreadable(f"{path}: {error}") from None
    except WireFault as fault:
        corrupt(path, 1, str(fault))
    if session_id is not None and header.id != session_id:
        corrupt(path, 1, f"the header names session {header.id!r}, not {session_id!r}")
    return header


def read_log(data: bytes, *, path: str, session_id: str, blobs: Blobs | None = None) -> ReadLog:
    """All events of a file. Raises SessionCorrupt naming the line, SessionUnreadable.

    `blobs` looks up payloads that stand beside the file; without it such a line is damage.
    """
    first, newline, body = data.partition(b"\n")
    if not newline:
        corrupt(path, 1, "the header line is not finished" if data else "the file is empty")
    header = read_header(first, path=path, session_id=session_id)
    read = _Lines(first, body, blobs)
    while read.next():
        pass
    if read.fault is not None:
        corrupt(path, read.number, read.fault)
    return ReadLog(
        header=header, events=tuple(read.events), good=read.good, torn=read.torn, crc=read.crc
    )


def recover_log(
    data: bytes, *, path: str, session_id: str, blobs: Blobs | None = None
) -> Recovered:
    """The events before the first damage, and what lies behind it. Nothing is refused."""
    first, newline, body = data.partition(b"\n")
    header, damage = None, None
    try:
        if not newline:
            corrupt(path, 1, "the header line is not finished" if data else "the file is empty")
        header = read_header(first, path=path, session_id=session_id)
    except SessionError as error:
        damage = error.message
    read = _Lines(first, body, blobs)
    while read.next():
        pass
    if read.fault is not None:
        damage = f"{path}:{read.number}: {read.fault}"
    elif read.torn is not None:
        damage = f"{path}:{read.number}: {read.torn}"
    return Recovered(
        header=header, events=tuple(read.events), damage=damage, beyond=_beyond(data, read)
    )


def _beyond(data: bytes, read: _Lines) -> str | None:
    if read.fault is None:
        return None
    _, _, rest = data[read.good :].partition(b"\n")
    rows = [line for line in rest.split(b"\n") if line]
    seqs: list[int] = []
    for line in rows:
        try:
            seqs.append(decode_line(line).seq)
        except WireFault:
            continue  # damaged too, or the packed rest of a stream
    if not rows:
        return None
    shown = f", with events of seq {min(seqs)} to {max(seqs)}" if seqs else ""
    return f"{len(rows)} lines ({len(rest)} bytes) after that{shown}"


class _Lines:
    """One pass over the lines after the header, up to the end or to the first damage.

    `good` is how far sound lines reach, `number` the line that was looked at last. `fault` says
    what is wrong with it; `torn` that it is an unfinished last line, which is no damage. Where a
    seal does not fit, only what the seal before it covers is sound.
    """

    def __init__(self, header: bytes, body: bytes, blobs: Blobs | None) -> None:
        self._blobs: Final = blobs
        self.events: list[StoredEvent] = []
        self.good = len(header) + 1
        self.number = 1
        self.fault: str | None = None
        self.torn: str | None = None
        self._lines: Final = body.split(b"\n")
        self._rest: Final = self._lines.pop()
        self._reader: Final = RowReader(header)
        self._sealed = (0, self.good)

    @property
    def crc(self) -> int:
        """The checksum of the good lines since the newest seal."""
        return self._reader.crc

    def next(self) -> bool:
        """Read one more line; False at the end of what can be read."""
        place = self.number - 1
        self.number += 1
        if place == len(self._lines):
            if self._rest:
                self._tear(self._rest)
            return False
        line = self._lines[place]
        try:
            whole = line if self._blobs is None else self._blobs.whole(line)
            new = self._reader.read(whole, stored=line)
        except NotJson as fault:
            if place == len(self._lines) - 1 and not self._rest:
                self._tear(line)
            else:
                self.fault = str(fault) if line else "an empty line"
            return False
        except SealBroken as fault:
            count, self.good = self._sealed
            del self.events[count:]
            self.fault = str(fault)
            return False
        except WireFault as fault:
            self.fault = str(fault)
            return False
        if new and new[0].seq != len(self.events):
            self.fault = f"seq {new[0].seq} where {len(self.events)} is due"
            return False
        self.events += new
        self.good += len(line) + 1
        if not new:
            self._sealed = (len(self.events), self.good)
        return True

    def _tear(self, rest: bytes) -> None:
        self.torn = f"{len(rest)} bytes of an unfinished line after seq {len(self.events) - 1}"
