"""Findings: what `dsh doctor` found out, each with where and one thing to do.

What comes in: what the checks know. What goes out: lines for a person, or JSON. Nothing is checked
here, and nothing secret is ever part of a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import asdict

from dsh.cli.screen.inert import inert
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dsh.cli.screen.outputs import Style

__all__ = ["Finding", "Status", "as_json", "lines_of", "summary"]

Status: TypeAlias = Literal["ok", "FAIL", "warn", "skip"]

STYLES: Final[Mapping[Status, Style]] = {
    "ok": "green",
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


def lines_of(findings: Iterable[Finding], styled: Callable[[str, Style], str]) -> Iterator[str]:
    """The report, line by line."""
    for one in findings:
        first, *rest = inert(one.text).splitlines() or [""]
        yield f"{styled(f'{one.status:<4}', STYLES[one.status])}  {one.what:<9}  {first}".rstrip()
        for line in rest:
            yield f"{'':17}{line}"
        if one.do is not None:
            yield f"{'':17}do: {inert(one.do)}"


def summary(findings: Iterable[Finding]) -> str:
    """How many are to fix, and how many to look at."""
    kinds = [one.status for one in findings]
    return f"{kinds.count('FAIL')} to fix, {kinds.count('warn')} to look at"


def as_json(finding: Finding) -> dict[str, object]:
    """The finding as an object: status, what, text, do."""
    return asdict(finding)
