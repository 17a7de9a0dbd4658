"""Payloads that are too large for a row: the table `blobs`, named by what they contain.

What comes in: an open transaction, a session's key, content or its name. What goes out: the other
one. Content stands in the same transaction as the row that names it, once a session.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

__all__ = ["drop_blobs", "find_blob", "keep_blob"]


def keep_blob(db: sqlite3.Connection, key: int, name: str, payload: bytes) -> None:
    """Keep a payload of this session; one that is kept already stays."""
    db.execute(
        "INSERT OR IGNORE INTO blobs (session, name, payload) VALUES (?, ?, ?)",
        (key, name, payload),
    )


def find_blob(db: sqlite3.Connection, key: int, name: str) -> bytes:
    """The payload of this session with this name. Raises FileNotFoundError."""
    row: tuple[object, ...] | None = db.execute(
        "SELECT payload FROM blobs WHERE session = ? AND name = ?", (key, name)
    ).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return row[0]


def drop_blobs(db: sqlite3.Connection, key: int) -> None:
    """Delete all payloads of this session."""
    db.execute("DELETE FROM blobs WHERE session = ?", (key,))
