"""The form of a stored session: envelope, lines, packed rows, unknown events, old versions.

What comes in: catalog payloads and headers, or bytes of a log. What goes out: the same in the other
form, or a refusal that says what is wrong. This room never opens a file, reads a clock or awaits.
"""

from __future__ import annotations

from dsh.wire.blobs import BLOB_BYTES, with_payload, without_large_payloads
from dsh.wire.envelope import FORMAT_VERSION, Recovered, StoredEvent, StoredLog, UnknownEvent
from dsh.wire.lines import (
    decode_header,
    decode_line,
    encode_header,
    encode_line,
    refuse_unreadable,
    runs_of,
)
from dsh.wire.packing import RowReader, SealBroken, encode_rows, seal_row
from dsh.wire.payloads import (
    NotJson,
    Unwritable,
    WireFault,
    decode_payload,
    encode_payload,
    is_plain_delta,
    owner_of,
    token_of,
)

__all__ = [
    "BLOB_BYTES",
    "FORMAT_VERSION",
    "NotJson",
    "Recovered",
    "RowReader",
    "SealBroken",
    "StoredEvent",
    "StoredLog",
    "UnknownEvent",
    "Unwritable",
    "WireFault",
    "decode_header",
    "decode_line",
    "decode_payload",
    "encode_header",
    "encode_line",
    "encode_payload",
    "encode_rows",
    "is_plain_delta",
    "owner_of",
    "refuse_unreadable",
    "runs_of",
    "seal_row",
    "token_of",
    "with_payload",
    "without_large_payloads",
]
