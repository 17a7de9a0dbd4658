"""A model's arguments text, read exactly once.

What comes in: the raw text of one tool call. What goes out: the one frozen value that policy,
approval, log and body all see, or the text itself with the reason why it is no JSON. Nothing is
repaired here: a call never runs with arguments that the model did not write.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dsh.hooks import EMPTY_OBJECT, InvalidJson, frozen, frozen_json
from dsh.tools.failures import wellformed

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

__all__ = ["ParsedArguments", "parse_arguments"]


@frozen(kw_only=True, slots=True)
class ParsedArguments:
    """`value` is frozen JSON; with a `problem` it is the raw text, and the call cannot run."""

    value: JsonValue
    problem: str | None = None


class _Refused(ValueError):
    """A text that some JSON readers accept and others read differently."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        # What approval shows and what runs could differ: readers disagree which value counts.
        raise _Refused(f"the key {twice!r} stands twice in one object; send each key once")
    return found


def _no_constant(word: str) -> object:
    raise _Refused(f"{word} is not JSON; use null or a string")


def parse_arguments(text: str) -> ParsedArguments:
    """Read arguments. Empty, blank and `null` mean `{}`; anything that is no JSON stays text."""
    if not text or text.isspace():
        return ParsedArguments(value=EMPTY_OBJECT)
    try:
        found: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        value = frozen_json(found)
    except RecursionError:
        problem = "the arguments are nested too deeply"
    except InvalidJson as error:
        problem = f"the arguments hold a value that cannot be kept without loss: {error}"
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        problem = f"the arguments are not valid JSON: {error.msg} at {where}"
    except ValueError as error:  # _Refused, and an integer with more digits than int() reads
        problem = f"the arguments are refused: {error}"
    else:
        return ParsedArguments(value=EMPTY_OBJECT if value is None else value)
    return ParsedArguments(value=wellformed(text), problem=problem)
