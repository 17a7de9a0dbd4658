"""A row in words: what it is, what it is about, how it came out; the same on the page and in text.

What comes in: rows. What goes out: short texts on one line, inert because a row's own are. It looks
at nothing but the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh.view.tables import Row, RowKind, Spent, State
    from dsh.view.words import Words

__all__ = ["Told", "count_in_words", "counted", "told"]

STATES: Final[dict[State, str]] = {
    "open": "not finished",
    "failed": "failed",
    "retried": "tried again",
    "denied": "denied",
    "aborted": "aborted",
    "cut": "cut off",
    "blocked": "blocked",
    "crashed": "crashed",
    "ok": "",
}
#: Kinds whose note says how they came out; of the others the state does.
NOTED: Final[frozenset[RowKind]] = frozenset(
    {"turn", "tool", "decision", "user", "request", "queue", "system"}
)
KILO: Final = 1000


@frozen(slots=True)
class Told:
    """`name` is what a row is, `about` its subject, `result` how it came out and who decided."""

    name: str
    about: str
    result: str


def told(row: Row, words: Words) -> Told:
    """A row in words."""
    return Told(_name(row), _about(row, words), _result(row))


def count_in_words(spent: Spent | None) -> str:
    """`in 18.4k (82% cached) · out 612`; empty when nothing was reported."""
    if spent is None or not (spent.input or spent.output):
        return ""
    share = f" ({100 * spent.cached // spent.input}% cached)" if spent.cached else ""
    return f"in {short(spent.input)}{share} · out {short(spent.output)}"


def short(count: int) -> str:
    """`612`, `18.4k`, `1.2M`."""
    if count < KILO:
        return str(count)
    if count < KILO * KILO:
        return f"{count / KILO:.1f}k"
    return f"{count / KILO / KILO:.1f}M"


def _name(row: Row) -> str:
    match row.kind:
        case "tool" | "unknown" | "event":
            return row.name
        case "user":
            return "you"
        case "try":
            return f"try {row.attempt}"
        case "reply" if (row.attempt or 1) > 1:
            return f"try {row.attempt}"
        case "turn":
            return f"turn {row.turn}"
        case "decision":
            return "approval"
        case _:
            return row.kind


def _about(row: Row, words: Words) -> str:  # noqa: PLR0911  one answer a kind
    match row.kind:
        case "reply":
            return _reply(row)
        case "try":
            waited = "" if row.delay is None else f", waited {words.seconds(row.delay)}"
            return f"{row.name}{waited}: {row.note}"
        case "compaction":
            tokens = ""
            if row.before is not None and row.after is not None:
                tokens = f", {short(row.before)} -> {short(row.after)} tokens"
            problem = f": {row.note}" if row.note else ""
            return f"{counted(len(row.hidden), 'message')} -> 1{tokens}{problem}"
        case "prune":
            saved = short(row.before or 0)
            return f"{counted(len(row.hidden), 'message')} shortened, ~{saved} tokens less"
        case "decision":
            return ": ".join(part for part in (row.name, row.text) if part)
        case "rewrite":
            return f"arguments of {row.name or 'a call'} replaced"
        case "event":
            return row.text or (f"logged by {row.by}" if row.by else "")
        case "unknown":
            return f"{row.text}; declared by {row.by}"
        case _:
            return row.text


def _reply(row: Row) -> str:
    if row.state == "failed":
        said = f' after "{row.text}"' if row.text else ""
        return f"{row.name}: {row.note}{said}"
    if row.text:
        return row.text
    if row.calls:
        return counted(row.calls, "tool call")
    return "…" if row.state == "open" else "(no text)"


def _result(row: Row) -> str:
    parts = [(row.note or STATES[row.state]) if row.kind in NOTED else STATES[row.state]]
    if row.kind == "turn" and not row.note:
        parts = [STATES["open"]]
    if row.by and row.kind not in {"event", "unknown"} and row.by not in row.note:
        parts.append(row.by)
    if row.backwards:
        parts.append("clock went back")
    return " · ".join(part for part in parts if part)


def counted(count: int, word: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
