"""Faults: what is wrong in the schema, where, and what to do about it.

What comes in: places in YAML files and short texts. What goes out: one line for each fault, in a
stable order. Nothing here stops at the first one, and nothing here prints.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Fault", "Faults", "Place", "SchemaError", "did_you_mean"]


@frozen(order=True)
class Place:
    """A position in a file: lines and columns count from 1."""

    file: str
    line: int
    column: int

    @property
    def text(self) -> str:
        """As editors and terminals take it: file:line:column."""
        return f"{self.file}:{self.line}:{self.column}"


@frozen(order=True)
class Fault:
    """One fault. `rule` is its stable id; `remedy` says what to do."""

    place: Place
    rule: str
    what: str
    remedy: str

    @property
    def text(self) -> str:
        """The one line that is shown."""
        return f"{self.place.text}: {self.rule}: {self.what}; {self.remedy}"


class SchemaError(Exception):
    """The schema has faults; `faults` are all of them, in order of place."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join(fault.text for fault in faults))
        self.faults = faults


@define
class Faults:
    """Collects faults while the schema is read, so that all are told at once."""

    found: list[Fault] = field(factory=list)

    def add(self, place: Place, rule: str, what: str, remedy: str) -> None:
        """Note one fault and go on."""
        self.found.append(Fault(place, rule, what, remedy))

    def raise_if_any(self) -> None:
        """Raise SchemaError with everything found so far, sorted and without repetitions."""
        if self.found:
            raise SchemaError(tuple(sorted(set(self.found))))


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A remedy: the nearest known name, else `otherwise`."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else otherwise
