"""Payloads that are too large for a line: a reference in the line, and content named by its hash.

What comes in: lines to write or as read, and what keeps or finds content by its name. What goes
out: the same lines with a reference in place of a large payload, or with the payload back in its
place. A payload is proved by its name when it is read. Where content is kept is the store's affair.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

import orjson

from dsh.wire.payloads import WireFault

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BLOB_BYTES", "with_payload", "without_large_payloads"]

#: A longer line keeps its payload elsewhere.
BLOB_BYTES: Final = 256 * 1024
#: In an envelope `data` is the last field, and no string before it can hold this unescaped.
_DATA: Final = b',"data":'
_REFERENCE: Final = re.compile(rb'\{"\$blob":"([0-9a-f]{64})","bytes":([0-9]+)\}')
#: Longer than any reference, so that the end of a line tells whether it can be one.
_TAIL: Final = 160


def without_large_payloads(rows: bytes, keep: Callable[[str, bytes], None]) -> bytes:
    """`rows`, lines with their newlines, with a reference in every line that is too long.

    `keep(name, payload)` is called for each, perhaps again for one that is kept already; what it
    raises is raised.
    """
    return b"\n".join(
        line if len(line) <= BLOB_BYTES else _shortened(line, keep) for line in rows.split(b"\n")
    )


def _shortened(line: bytes, keep: Callable[[str, bytes], None]) -> bytes:
    head, found, data = line[:-1].partition(_DATA)
    if not found or not line.endswith(b"}"):
        return line
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return line  # a line of somebody else, with its fields in another order
    name = hashlib.sha256(data).hexdigest()
    keep(name, data)
    return b'%b%b{"$blob":"%b","bytes":%d}}' % (head, _DATA, name.encode(), len(data))


def with_payload(
    line: bytes, find: Callable[[str], bytes], *, place: Callable[[str], str]
) -> bytes:
    """A line with its payload back in its place; most lines come back as they are.

    `find(name)` gives the content or raises OSError; `place(name)` is where that is, for messages.
    Raises WireFault for a payload that is missing or not what its name says.
    """
    if b'{"$blob":' not in line[-_TAIL:]:
        return line
    head, found, data = line[:-1].partition(_DATA)
    reference = _REFERENCE.fullmatch(data) if found else None
    if reference is None:
        return line
    name = reference[1].decode()
    try:
        kept = find(name)
    except OSError as error:
        raise WireFault(f"its payload is in {place(name)}: {error.strerror}") from None
    if hashlib.sha256(kept).hexdigest() != name:
        raise WireFault(f"its payload in {place(name)} is not as it was written")
    return b"%b%b%b}" % (head, _DATA, kept)
