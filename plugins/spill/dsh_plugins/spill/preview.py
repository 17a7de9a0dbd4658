"""Head and tail of a long text, with a notice between them; exact in bytes. Pure.

What comes in: a text, where the whole of it is, a bound. What goes out: at most that many UTF-8
bytes, cut between characters.
"""

from __future__ import annotations

from dsh.tools import whole_head, whole_tail

__all__ = ["preview"]


def preview(text: str, path: str, limit: int) -> str:
    """The two ends of `text` around a notice, which is kept even if it is longer than `limit`."""
    data = text.encode()
    notice = _notice(len(data), path, len(data)).encode()
    room = max(limit - len(notice), 0)
    head = whole_head(data[: room * 2 // 3])
    tail = whole_tail(data[len(data) - (room - room * 2 // 3) :]) if room else b""
    omitted = len(data) - len(head) - len(tail)
    return head.decode() + _notice(omitted, path, len(data)) + tail.decode()


def _notice(omitted: int, path: str, total: int) -> str:
    return (
        f"\n[… {omitted} of {total} bytes left out; the whole is in {path}: "
        "read it in pages, or search it …]\n"
    )
