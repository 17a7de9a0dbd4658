"""What must not leave: values of keys, and what the configuration says.

What comes in: texts on their way out. What goes out: the same without them. It is the last thing
that happens to a text, so it does not matter where it came from.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, final

from dsh.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.seams.environ import Credentials, Environ

__all__ = ["TEXT_MAX", "Redaction"]

#: Characters of one text; the rest is left out.
TEXT_MAX: Final = 32_768
#: A shorter value is no key that could be recognised in a text.
SECRET_MIN: Final = 6
REDACTED: Final = "[redacted]"


@final
class Redaction:
    """Made once; keys are looked up with `renew`, because they may be reserved later."""

    def __init__(self, patterns: Sequence[str], environ: Environ, credentials: Credentials) -> None:
        self._patterns: Final = [_compiled(pattern) for pattern in patterns]
        self._environ: Final = environ
        self._credentials: Final = credentials
        self._secrets: list[str] = []

    def renew(self) -> None:
        """Look up the values of all variables that hold keys, the longest first."""
        values = (self._environ.get(name) for name in self._credentials.secret_names())
        found = {
            form
            for value in values
            if value is not None and len(value) >= SECRET_MIN
            for form in _forms(value)
        }
        self._secrets = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text as it may be sent."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REDACTED)
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        # Cut last, so that no piece of a key is left at the edge.
        if len(text) > TEXT_MAX:
            text = f"{text[:TEXT_MAX]}… ({len(text) - TEXT_MAX} characters more)"
        return text


def _forms(value: str) -> tuple[str, ...]:
    """A value as it stands in a text, in a JSON text, and in one within another."""
    # Not by orjson: a variable may hold bytes that are no text.
    once = json.dumps(value, ensure_ascii=False)[1:-1]
    return value, once, json.dumps(once, ensure_ascii=False)[1:-1]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PluginError(
            f"{pattern!r} is no regular expression: {error} (at telemetry.redact)",
            code="BAD_CONFIG",
        ) from None
