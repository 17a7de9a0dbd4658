"""Messages as a caller makes them: `user_message("…")` and fresh ids.

What comes in: text or content blocks. What goes out: a frozen `UserMessage` with an identity of
its own. Nothing is sent from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from dsh.catalog import records

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["new_message_id", "user_message"]


def new_message_id() -> str:
    """A fresh message id, unique in the world."""
    return f"msg_{uuid4().hex}"


def user_message(
    content: str | Sequence[records.ContentBlock],
    *,
    id: str | None = None,  # noqa: A002  (the record's own field name)
    source: records.MessageSource | None = None,
) -> records.UserMessage:
    """A message for an agent's inbox: from the user, unless `source` says otherwise.

    `content` is text, or blocks that are taken as they are. `id` defaults to a fresh one; two
    pending messages with one id are refused by the inbox.
    """
    blocks = (records.TextBlock(text=content),) if isinstance(content, str) else tuple(content)
    return records.UserMessage(
        id=new_message_id() if id is None else id,
        content=blocks,
        source=records.UserSource() if source is None else source,
    )
