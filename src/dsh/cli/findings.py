"""Findings: what `dsh doctor` found out, each with where and one thing to do.

What comes in: what the checks know. What goes out: lines for a person, or JSON. Nothing is checked
here, and nothing secret is ever part of a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import asdict

from dsh.cli.inert import inert
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dsh.cli.screen import Screen, Style

__all__ = ["Finding", "Status", "as_json", "printed", "summary"]

Status: TypeAlias = Literal["ok", "FAIL", "warn", "skip"]

STYLES: Final[Mapping[Status, Style]] = {
    "ok": "plain",
    "FAIL": "red",
    "warn": "yellow",
    "skip": "plain",
}


@frozen(slots=True)
class Finding:
    """One line of the report. `do`: one command or edit that repairs it."""

    status: Status
    what: str
    text: str
    do: str | None = None


def printed(findings: Iterable[Finding], screen: Screen) -> None:
    """The report, on standard output."""
    for one in findings:
        first, *rest = inert(one.text).splitlines() or [""]
        head = screen.styled(f"{one.status:<4}", STYLES[one.status])
        screen.out.text(f"{head}  {one.what:<9}  {first}".rstrip() + "\n")
        for line in rest:
            screen.out.text(f"{'':17}{line}\n")
        if one.do is not None:
            screen.out.text(f"{'':17}do: {inert(one.do)}\n")


def summary(findings: Iterable[Finding]) -> str:
    """How many are to fix, and how many to look at."""
    kinds = [one.status for one in findings]
    return f"{kinds.count('FAIL')} to fix, {kinds.count('warn')} to look at"


def as_json(finding: Finding) -> dict[str, object]:
    """The finding as an object: status, what, text, do."""
    return asdict(finding)
