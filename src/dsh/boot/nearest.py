"""Did-you-mean: the nearest known names to a mistyped one.

What comes in: a word and the words that would have been right. What goes out: the tail of an error
message. It never decides anything; an unknown name stays an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or `.` when nothing is near: either way the end of a sentence."""
    # Imported here: a run without a mistake does not pay for it.
    from difflib import get_close_matches  # noqa: PLC0415

    folded = {candidate.lower().replace("_", "-"): candidate for candidate in candidates}
    found = get_close_matches(word.lower().replace("_", "-"), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[found[0]]!r}?" if found else "."
