"""Masking what looks like a key, best effort, for a page that leaves the house.

What comes in: plain text or JSON. What goes out: the same with such texts masked, and how many
there were. It knows shapes, not secrets: what has no shape of a key is not found.
"""

from __future__ import annotations

import re
from typing import Final, cast, final

import orjson

__all__ = ["MASK", "Redaction"]

MASK: Final = "[masked]"
#: Key shapes of well-known issuers, bearer tokens, private keys.
#:
#: Here and below, what repeats without a bound stands last and is masked with the rest. Anything
#: before that is bounded: a text of nothing but beginnings would be read again from each of them.
SHAPES: Final = re.compile(
    r"""
    \b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}
  | \bgh[opsru]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
  | \bxox[abposr]-[A-Za-z0-9-]{10,} | \bAKIA[A-Z0-9]{16}\b | \bAIza[A-Za-z0-9_-]{30,}
  | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,9999}\.[A-Za-z0-9_-]{10,9999}\.[A-Za-z0-9_-]{5,}
  | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY----- (?:[^-]|-(?!----)){0,20000}
    (?:-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY----- | (?=-----BEGIN[ ]))
  | (?<=earer[ ])[A-Za-z0-9._~+/=-]{12,}
    """,
    re.VERBOSE,
)
NAMED: Final = r"[a-z0-9_-]{0,40}(?:api_?key|secret|passw(?:or)?d|token)"
SECRET_NAME: Final = re.compile(NAMED, re.IGNORECASE)
ASSIGNED: Final = re.compile(
    rf"""
    (\b{NAMED}(?:\\{{0,15}}["'])?\s{{0,40}}[=:]\s{{0,40}})
    ( "(?:\\.|[^"\\]){{0,9999}}" | '[^']{{0,9999}}'
    | (?P<quote>\\{{1,15}}["']).{{0,9999}}?(?P=quote)  # in a JSON text that stands in another one
    | (?!{NAMED}\s{{0,40}}[=:])[^\s"'\\,;&{{}}]+ )
    """,
    re.IGNORECASE | re.VERBOSE,
)
QUOTE: Final = re.compile(r"""\\*["']""")
SHORTEST: Final = 6


@final
class Redaction:
    """Masks texts and counts. `count` is what was masked so far."""

    def __init__(self) -> None:
        self.count = 0

    def masked(self, text: str) -> str:
        """`text` with everything that looks like a key masked."""
        text, shapes = SHAPES.subn(MASK, text)
        self.count += shapes
        return ASSIGNED.sub(self._assigned, text)

    def masked_json(self, text: str) -> str:
        """The same for every text in a JSON text, and for what stands under a telling name."""
        return orjson.dumps(self._walk(orjson.loads(text), "")).decode()

    def _walk(self, value: object, name: str) -> object:
        match value:
            case str():
                if len(value) >= SHORTEST and SECRET_NAME.fullmatch(name):
                    self.count += 1
                    return MASK
                return self.masked(value)
            case list():
                return [self._walk(one, "") for one in cast("list[object]", value)]
            case dict():
                named = cast("dict[str, object]", value)
                return {self.masked(key): self._walk(one, key) for key, one in named.items()}
            case _:
                return value

    def _assigned(self, match: re.Match[str]) -> str:
        value = match[2].strip("\"'\\")
        # A number is a count (`tokens: 123456`), and hides nothing.
        if len(value) < SHORTEST or value.isdigit() or MASK in value:
            return match[0]
        self.count += 1
        opening = QUOTE.match(match[2])
        quote = "" if opening is None else opening[0]
        return f"{match[1]}{quote}{MASK}{quote}"
