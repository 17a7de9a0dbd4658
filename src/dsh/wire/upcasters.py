"""How an old payload becomes a current one: one pure step per event and version.

What comes in: the JSON object of an older version. What goes out: that of the next version, or of
the event that took its place. Steps that the schema declares are generated; the others are written
here, and in the modules that extensions name. The table is total: a version bump in the schema
without its step here is a type error. No event of the core needs one yet, so the table is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from dsh.catalog import history
from dsh.wire.ext import history_of

if TYPE_CHECKING:
    from dsh.wire.ext import Retired

__all__ = ["UPCASTERS", "MissingStepError", "Upcaster", "retired", "upcast"]

Upcaster: TypeAlias = Callable[[dict[str, object]], dict[str, object]]

#: `<event>@<version>` → the step from that version. Steps get data they may not change.
UPCASTERS: Final[history.Upcasters] = {}


class MissingStepError(KeyError):
    """Nobody here carries this version up: the catalog is older than what it should read."""


def step_of(event: str, version: int) -> Upcaster:
    """The step from `version`. Raises MissingStepError naming it, if nobody has it."""
    key = f"{event}@{version}"
    foreign = history_of(event)
    tables: tuple[Mapping[str, object], ...] = (
        (history.DECLARED, UPCASTERS) if foreign is None else (foreign.declared, foreign.upcasters)
    )
    for table in tables:
        if key in table:
            # Each step takes its own shape; all shapes are JSON objects.
            return cast("Upcaster", table[key])
    raise MissingStepError(key)


def retired(event: str) -> Retired | None:
    """Last version, successor and its version, if `event` is written no more; else None."""
    foreign = history_of(event)
    return (history.RETIRED if foreign is None else foreign.retired).get(event)


def upcast(event: str, data: dict[str, object], *, version: int, current: int) -> dict[str, object]:
    """Carry `data` from `version` up to `current`, one step each.

    Raises MissingStepError; for a released catalog that cannot happen. Steps raise what they do.
    """
    for step in range(version, current):
        data = step_of(event, step)(data)
    return data
