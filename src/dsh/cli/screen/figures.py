"""Times and sizes as people read them.

What comes in: numbers. What goes out: short texts. It imports nothing that a list would have to
wait for.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["moment", "size_in_words"]

KILO: Final = 1000


def moment(epoch_ms: int) -> str:
    """A time as the reader's clock shows it: `2026-03-02 14:01`."""
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def size_in_words(count: int) -> str:
    """`71 kB`, `1.2 MB`."""
    if count < KILO:
        return f"{count} B"
    if count < KILO * KILO:
        return f"{count / KILO:.0f} kB"
    return f"{count / KILO / KILO:.1f} MB"
