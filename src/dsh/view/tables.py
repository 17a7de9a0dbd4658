"""What a trajectory consists of: turns, steps, requests, rows, spans, and what changed since when.

What comes in: entities as the trajectory makes and changes them. What goes out: the same as plain
JSON values, whole or only those that changed since a revision. Times are milliseconds since the
log's first event, never going backwards. It knows no event and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, final

from attrs import define, field, fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attrs import AttrsInstance

__all__ = [
    "Entity",
    "Kind",
    "Op",
    "Request",
    "Row",
    "RowKind",
    "Span",
    "State",
    "Step",
    "Tables",
    "Turn",
]

RowKind: TypeAlias = Literal[
    "turn", "user", "context", "system", "reply", "try", "tool", "compaction", "prune", "replace",
    "decision", "rewrite", "queue", "request", "seed", "event", "unknown",
]  # fmt: skip
#: `retried`: failed, and tried again. `cut`: ended early, and not sent again. `open`: the log ends
#: inside it. `crashed`: closed by the repair after a crash.
State: TypeAlias = Literal[
    "ok", "open", "failed", "retried", "denied", "aborted", "cut", "blocked", "crashed"
]
SpanKind: TypeAlias = Literal["model", "tool", "approval", "backoff", "compaction", "mark"]


@define(eq=False)
class Spent:
    """Tokens as they were reported: all input, the part read from the cache, output."""

    input: int = 0
    cached: int = 0
    output: int = 0


@define(eq=False)
class Turn:
    """One turn. `words` say how it ended; `row` is its head in the ledger."""

    number: int
    row: int
    begin: int
    end: int | None = None
    state: State = "open"
    words: str = ""
    steps: int = 0
    spent: Spent = field(factory=Spent)


@define(eq=False)
class Step:
    """One step. `tool_wall` is how long any tool ran, `tool_sum` what all of them took together."""

    turn: int
    number: int
    begin: int
    end: int | None = None
    tool_wall: int = 0
    tool_sum: int = 0


@define(eq=False)
class Request:
    """One request to a model: the first `ops` surface operations, under the header `header`.

    `header` and `context` are seqs; `row` is the attempt. `cache_read` and `input` were reported.
    """

    turn: int
    step: int
    attempt: int
    row: int
    ops: int
    header: int | None = None
    context: int | None = None
    input: int | None = None
    cache_read: int | None = None


@define(eq=False)
class Op:
    """One surface operation: the node `seq`, which hides `start` to `end` if they are given."""

    seq: int
    start: int | None = None
    end: int | None = None


@define(eq=False)
class Span:
    """A stretch of time that belongs to a row. `first` is when the first token came."""

    kind: SpanKind
    lane: int
    row: int
    begin: int
    end: int | None = None
    first: int | None = None
    state: State = "ok"


@define(eq=False)
class Row:
    """One line of the ledger.

    `seqs` are the events it tells of, the first one being its anchor. `text` says what it is about,
    `note` how it came out, `name` which tool, plugin or type; `by` is the plugin that decided.
    `first`, `chunks`, `gaps` tell how a reply streamed: first token, count, silences over a second
    as [when, how long]. `delay` is the wait before the next try, `waited` that for an approval.
    `hidden` and `node` are the seqs a replacement hid, and put in their place.
    """

    kind: RowKind
    seqs: list[int]
    turn: int
    step: int
    begin: int
    end: int | None = None
    state: State = "ok"
    name: str = ""
    text: str = ""
    note: str = ""
    by: str = ""
    request: int | None = None
    attempt: int | None = None
    first: int | None = None
    chunks: int = 0
    gaps: list[tuple[int, int]] = field(factory=list["tuple[int, int]"])
    calls: int = 0
    spent: Spent | None = None
    delay: int | None = None
    waited: int = 0
    partial: bool = False
    before: int | None = None
    after: int | None = None
    hidden: list[int] = field(factory=list[int])
    node: int | None = None
    backwards: bool = False


Entity: TypeAlias = Turn | Step | Request | Op | Span | Row
Kind: TypeAlias = Literal["turns", "steps", "requests", "ops", "spans", "rows"]
KINDS: Final[tuple[Kind, ...]] = ("turns", "steps", "requests", "ops", "spans", "rows")


@final
class Tables:
    """All entities of one log, each kind a list that only grows, and when each changed last."""

    def __init__(self) -> None:
        self.turns: Final[list[Turn]] = []
        self.steps: Final[list[Step]] = []
        self.requests: Final[list[Request]] = []
        self.ops: Final[list[Op]] = []
        self.spans: Final[list[Span]] = []
        self.rows: Final[list[Row]] = []
        #: Counts every change; what `changed` takes. Read only.
        self.revision = 0
        #: The revision in which each entity changed last, the newest at the end.
        self._changes: Final[dict[tuple[Kind, int], int]] = {}

    def add(self, kind: Kind, entity: Entity) -> int:
        """Put one more entity at the end of its table. Returns its index."""
        table = cast("list[Entity]", getattr(self, kind))
        table.append(entity)
        self.touch(kind, len(table) - 1)
        return len(table) - 1

    def touch(self, kind: Kind, index: int) -> None:
        """Say that an entity changed."""
        self.revision += 1
        self._changes.pop((kind, index), None)
        self._changes[kind, index] = self.revision

    def changed(self, since: int = 0) -> dict[Kind, list[tuple[int, Entity]]]:
        """Everything that changed after revision `since`, with its index in its table."""
        found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        for (kind, index), revision in reversed(self._changes.items()):
            if revision <= since:
                break
            found[kind].append(index)
        changes: dict[Kind, list[tuple[int, Entity]]] = {}
        for kind, indices in found.items():
            table = cast("Sequence[Entity]", getattr(self, kind))
            changes[kind] = [(index, table[index]) for index in sorted(indices)]
        return changes


def _slots(cls: type[AttrsInstance]) -> tuple[tuple[str, object], ...]:
    """The fields of a class with the values that are left out: None and what they begin with."""
    return tuple(
        (one.name, one.default if isinstance(one.default, (int, str)) else None)
        for one in fields(cls)
    )


SLOTS: Final = {cls: _slots(cls) for cls in (Turn, Step, Request, Op, Span, Row, Spent)}


def plain(entity: Entity | Spent) -> dict[str, object]:
    """An entity as a JSON object; fields that hold nothing, or their default, are left out."""
    made: dict[str, object] = {}
    for name, default in SLOTS[type(entity)]:
        value: object = getattr(entity, name)
        if value is None or value in (default, []):
            continue
        made[name] = plain(value) if isinstance(value, Spent) else value
    return made
