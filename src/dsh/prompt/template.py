"""Strict `{{name}}` references: found once, substituted once, never guessed.

What comes in: a section's text and the values of variables. What goes out: the text with every
reference replaced, or PromptError naming the section, the reference and what is known. Values are
put in as they are and never scanned again. Nothing else is a template language.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dsh.errors import PromptError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLE_NAME", "substitute"]

VARIABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE: Final = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}(?!\})")


@frozen
class _Reference:
    name: str


@lru_cache(maxsize=512)
def _parts(text: str) -> tuple[str | _Reference, ...]:
    """The literal pieces and references of `text`. Raises ValueError with the malformed place."""
    parts: list[str | _Reference] = []
    done = 0
    while (start := text.find("{{", done)) >= 0:
        match = _REFERENCE.match(text, start)
        if match is None:
            raise ValueError(text[start : start + 24])
        parts += [text[done:start], _Reference(match[1])]
        done = match.end()
    parts.append(text[done:])
    return tuple(parts)


def substitute(text: str, values: Mapping[str, str | None], *, where: str) -> str:
    """`text` with its references replaced. Raises PromptError; `where` names the text in it."""
    try:
        parts = _parts(text)
    except ValueError as error:
        raise PromptError(
            f"{where} has a malformed reference at {str(error)!r}; "
            "write {{name}} with a lower-case name, without spaces or more braces"
        ) from None
    return "".join(
        part if isinstance(part, str) else _value(part.name, values, where) for part in parts
    )


def _value(name: str, values: Mapping[str, str | None], where: str) -> str:
    value = values.get(name)
    if value is not None:
        return value
    if name in values:
        raise PromptError(
            f"{where} refers to {{{{{name}}}}}, which has no value here; "
            "give the agent one, or drop the reference"
        )
    known = ", ".join(sorted(values)) or "none"
    raise PromptError(
        f"{where} refers to {{{{{name}}}}}, which nobody registered; registered: {known}"
    )
