"""Fills the catalog's part of CHANGELOG.md from what the schemas' changes.yaml list.

What comes in: the file's text and the entries. What goes out: the text with the block between the
markers replaced; without markers, as it was.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .spelling import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..past import Entry

__all__ = ["fill_changelog"]

_BLOCK = re.compile(
    r"(<!-- >>> generated: catalog -->\n).*?(<!-- <<< generated: catalog -->\n)", re.DOTALL
)


def fill_changelog(text: str, entries: Iterable[Entry]) -> str:
    """The changelog with its catalog section as the entries say, newest version first."""
    by_version: dict[str, list[Entry]] = {}
    for entry in entries:
        by_version.setdefault(entry.since, []).append(entry)
    lines: list[str] = []
    for version in sorted(by_version, key=_order, reverse=True):
        lines += [f"### Catalog, {version}", ""]
        for entry in sorted(by_version[version], key=lambda each: (each.level, each.where)):
            mark = "**breaking** " if entry.level == "BREAKING" else ""
            lines.append(f"- {mark}{entry.where}: {entry.what}. {one_line(entry.why)}")
        lines.append("")
    body = "\n".join(lines) + "\n" if lines else "\n"
    return _BLOCK.sub(lambda match: f"{match[1]}{body}{match[2]}", text)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
