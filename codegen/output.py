"""Tells what came out, and writes it: the only place that prints differences and changes files.

What comes in: reviews with open demands, or the files that are not as they should be. What goes
out: text on both streams, files, and the exit code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .generate import Change
    from .review import Review

__all__ = ["tell_demands", "write"]


def tell_demands(reviews: Sequence[Review]) -> None:
    """Say what must still be written, and where."""
    count = 0
    for review in reviews:
        for demand in review.demands:
            print(demand.text, file=sys.stderr)
        if review.proposed:
            name = f"{review.folder}/changes.yaml"
            print(f"\nadd to {name}, under changes:, and say why:\n", file=sys.stderr)
            print(review.proposed, file=sys.stderr)
        count += len(review.demands)
    what = "thing is" if count == 1 else "things are"
    print(
        f"codegen: {count} {what} to be said about changes of the schema; nothing was written",
        file=sys.stderr,
    )


def write(
    root: Path, found: Sequence[Change], *, check: bool, command: str = "python -m codegen"
) -> int:
    """Show the changes and make them, unless `check`; returns the exit code."""
    for change in found:
        sys.stdout.write(change.diff())
    if not found:
        return 0
    if check:
        for change in found:
            print(f"codegen: {change.word}: {change.path}", file=sys.stderr)
        print(f"codegen: not as the schema says; run: {command}", file=sys.stderr)
        return 1
    for change in found:
        path = root / change.path
        if change.wanted is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(change.wanted, encoding="utf-8", newline="\n")
    print(f"codegen: wrote {len(found)} file{'s' if len(found) != 1 else ''}", file=sys.stderr)
    return 1
