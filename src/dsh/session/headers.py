"""What the log says of a request beside its messages: canonical form, comparison, latest value.

What comes in: request headers and route contexts. What goes out: a canonical header, without
markers that mark nothing, and whether two headers mean the same. Prompt text is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from attrs import evolve

from dsh.catalog import codec

if TYPE_CHECKING:
    from dsh.catalog.records import EpochHeader

__all__ = ["canonical_header", "same_header"]


def canonical_header(header: EpochHeader) -> EpochHeader:
    """The header without an `adapter_defaults` that marks nothing. Most headers come back as is."""
    marks = header.adapter_defaults
    if marks is not None and not codec.encode_record(marks):
        header = evolve(header, adapter_defaults=None)
    return header


def same_header(one: EpochHeader, other: EpochHeader) -> bool:
    """Whether two headers ask for the same: every field of the config, markers, tools in order.

    Compared as canonical JSON, because 1, 1.0 and true are equal in Python and differ on the wire.
    """
    return one is other or _text(one) == _text(other)


def _text(header: EpochHeader) -> bytes:
    fields = codec.encode_record(canonical_header(header))
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
