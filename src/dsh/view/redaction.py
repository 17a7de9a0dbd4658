"""Masking what looks like a key, best effort, for a page that leaves the house.

What comes in: JSON or plain text. What goes out: the same with such texts masked, and how many
there were. It knows shapes, not secrets: what has no shape of a key is not found.
"""

from __future__ import annotations

import re
from typing import Final, final

__all__ = ["MASK", "Redaction"]

MASK: Final = "[masked]"
#: Key shapes of well-known issuers, bearer tokens, private keys, and `…key = value` assignments.
SHAPES: Final = re.compile(
    r"""
    \b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}
  | \bgh[opsru]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
  | \bxox[abposr]-[A-Za-z0-9-]{10,} | \bAKIA[A-Z0-9]{16}\b | \bAIza[A-Za-z0-9_-]{30,}
  | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}
  | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?-----END[ ][A-Z ]*PRIVATE[ ]KEY-----
  | (?<=earer[ ])[A-Za-z0-9._~+/=-]{12,}
    """,
    re.VERBOSE | re.DOTALL,
)
ASSIGNED: Final = re.compile(
    r"""(?i)\b([a-z0-9_-]*(?:api_?key|secret|passw(?:or)?d|token))(\\?["']?\s*[=:]\s*\\?["']?)"""
    r"""([^\s"'\\,;&]{6,})"""
)


@final
class Redaction:
    """Masks texts and counts. `count` is what was masked so far."""

    def __init__(self) -> None:
        self.count = 0

    def masked(self, text: str) -> str:
        """`text` with everything that looks like a key masked. JSON stays JSON."""
        text, shapes = SHAPES.subn(MASK, text)
        text, assigned = ASSIGNED.subn(self._assigned, text)
        self.count += shapes + assigned
        return text

    def _assigned(self, match: re.Match[str]) -> str:
        # A number is a count (`"tokens": 123456`), and JSON needs it whole.
        value = match[3]
        if value.strip("}]").isdigit() or value == MASK:
            self.count -= 1
            return match[0]
        return f"{match[1]}{match[2]}{MASK}"
