"""The table of evolution: what each kind of change means for old logs, plugins and configuration.

What comes in: nothing. What goes out: `RULES`, by rule and role, and the `Found` changes that carry
their levels. A role is how data is used: stored in logs; given to plugins (input); made by plugins
(output); written in compositions (config).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LEVELS", "ROLES", "RULES", "Found", "Level", "Role", "found"]

Role: TypeAlias = Literal["stored", "input", "output", "config"]
Level: TypeAlias = Literal["COMPATIBLE", "REVIEW", "UPCASTER", "BREAKING"]
ROLES: Final[tuple[Role, ...]] = ("stored", "input", "output", "config")
LEVELS: Final[tuple[Level, ...]] = ("COMPATIBLE", "REVIEW", "UPCASTER", "BREAKING")

_SHORT: Final[Mapping[str, Level]] = {
    "C": "COMPATIBLE",
    "R": "REVIEW",
    "U": "UPCASTER",
    "B": "BREAKING",
}


def _row(letters: str) -> dict[Role, Level]:
    """Levels of the four roles in order; `-` where a rule cannot occur."""
    return {
        role: _SHORT[letter] for role, letter in zip(ROLES, letters, strict=True) if letter != "-"
    }


#: rule → role → level. Letters: stored, input, output, config.
RULES: Final[Mapping[str, Mapping[Role, Level]]] = {
    "FIELD_ADDED_OPTIONAL": _row("CCCC"),
    "FIELD_ADDED_REQUIRED": _row("UCBB"),
    "FIELD_NO_DELETE": _row("UBBB"),
    "FIELD_TYPE_WIDENED": _row("RRCC"),
    "FIELD_TYPE_NARROWED": _row("UCBB"),
    "FIELD_TYPE_CHANGED": _row("UBBB"),
    "FIELD_TYPE_RENAMED": _row("CBBC"),
    "FIELD_DEFAULT_ADDED": _row("CCCC"),
    "FIELD_DEFAULT_CHANGED": _row("RRRR"),
    "FIELD_DEFAULT_REMOVED": _row("UCBB"),
    "FIELD_UNIT_CHANGED": _row("RRRR"),
    "FIELD_BOUNDS_LOOSENED": _row("---C"),
    "FIELD_BOUNDS_TIGHTENED": _row("---B"),
    "FIELD_LIVE_ADDED": _row("---C"),
    "FIELD_LIVE_REMOVED": _row("---R"),
    "FIELD_LIMIT_ADDED": _row("---C"),
    "FIELD_LIMIT_REMOVED": _row("---B"),
    "ENUM_VALUE_ADDED": _row("RRCC"),
    "ENUM_VALUE_NO_DELETE": _row("UCBB"),
    "VARIANT_ADDED": _row("RRCC"),
    "VARIANT_NO_DELETE": _row("UBBB"),
    "DECISION_VARIANT_ADDED": _row("--R-"),
    "DECISION_VARIANT_NO_DELETE": _row("--B-"),
    "DECISION_CHANGED": _row("--B-"),
    "RESERVED_NO_DELETE": _row("B--B"),
    "EVENT_ADDED": _row("RCC-"),
    "EVENT_ADDED_IGNORABLE": _row("C-C-"),
    "LOOP_PHASE_ADDED": _row("-R--"),
    "EVENT_RETIRED": _row("U-B-"),
    "EVENT_NO_DELETE": _row("BBB-"),
    "EVENT_SAME_KIND": _row("BBB-"),
    "EVENT_SAME_SURFACE": _row("B---"),
    "EVENT_UNKNOWN_POLICY": _row("R---"),
    "EVENT_POLICY": _row("-R--"),
    "EVENT_EMIT_WIDENED": _row("CCC-"),
    "EVENT_EMIT_NARROWED": _row("CCB-"),
    "CLASS_RENAMED": _row("CBBB"),
    "SECTION_ADDED": _row("---C"),
    "SECTION_NO_DELETE": _row("---B"),
    "PUBLIC_NO_DELETE": _row("B---"),
}


@frozen
class Found:
    """One change: which rule, where in the catalog, from what to what, and what it means.

    `levels` has the roles it is judged in. `reached` are the durable events that store it;
    `unversioned` the public records that do, which have no version to bump.
    """

    rule: str
    where: str
    what: str
    levels: Mapping[Role, Level]
    reached: tuple[str, ...] = ()
    unversioned: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """The worst level."""
        worst: Level = "COMPATIBLE"
        for level in self.levels.values():
            if LEVELS.index(level) > LEVELS.index(worst):
                worst = level
        return worst

    @property
    def key(self) -> str:
        """What changes.yaml and the lock know it by."""
        return f"{self.rule} {self.where}: {self.what}"

    @property
    def needs_entry(self) -> bool:
        """Whether changes.yaml must have a line for it."""
        return bool({"REVIEW", "BREAKING"} & set(self.levels.values()))

    @property
    def entry_level(self) -> Level:
        """What that line must own up to."""
        return "BREAKING" if "BREAKING" in self.levels.values() else "REVIEW"


def found(
    rule: str,
    where: str,
    what: str,
    roles: Mapping[Role, tuple[str, ...]],
    unversioned: tuple[str, ...] = (),
) -> Found:
    """A change, judged in each role of `roles`, which names who has it in that role.

    What needs an upcaster where there is no version to lift is a break.
    """
    levels: dict[Role, Level] = {
        role: level for role, level in RULES[rule].items() if role in roles
    }
    if levels.get("stored") == "UPCASTER" and unversioned:
        levels["stored"] = "BREAKING"
    reached = tuple(name for name in roles.get("stored", ()) if name not in unversioned)
    return Found(rule, where, what, levels, reached, unversioned)
