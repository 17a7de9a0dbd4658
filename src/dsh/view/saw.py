"""What a request was made of, and what changed since another one.

What comes in: the operations of a trajectory, requests, and the log's events. What goes out: the
seqs of the nodes the model was shown, in order, and for two requests which of them are unchanged,
added, replaced or removed. The surface is the session's own; nothing is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from dsh.catalog.records import Append, Replace
from dsh.hooks import frozen
from dsh.session import Surface, message_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.view.tables import Op, Request
    from dsh.wire import StoredEvent

__all__ = ["Change", "Sent", "compared", "sent_at"]

What: TypeAlias = Literal["unchanged", "added", "removed", "replaced"]


@frozen(slots=True)
class Sent:
    """One request: the seqs of its messages in order, and of its header."""

    nodes: tuple[int, ...]
    header: int | None


@frozen(slots=True)
class Change:
    """A node of a request, compared with another: `replaced` stood there and does not any more."""

    what: What
    seq: int


def sent_at(
    ops: Sequence[Op], request: Request, events: Mapping[int, StoredEvent] | None = None
) -> Sent:
    """The nodes a request was made of. With `events`, those without a message are left out."""
    surface = Surface()
    for op in ops[: request.ops]:
        if op.start is None or op.end is None:
            surface.apply(op.seq, Append())
        else:
            surface.apply(op.seq, Replace(start_seq=op.start, end_seq=op.end))
    nodes = tuple(
        seq
        for seq in surface.nodes
        if events is None or seq not in events or message_of(events[seq]) is not None
    )
    return Sent(nodes, request.header)


def compared(ops: Sequence[Op], now: Sent, before: Sent) -> tuple[Change, ...]:
    """The nodes of `now` and those of `before` that are gone, in one order.

    What a node took the place of stands before it as `replaced`; what is gone without one, or came
    only later, is `removed`.
    """
    stood = set(before.nodes)
    here = set(now.nodes)
    hidden = _replacements(ops)
    told: list[Change] = []
    named: set[int] = set()
    for seq in now.nodes:
        if seq in stood:
            told.append(Change("unchanged", seq))
            continue
        gone = [one for one in hidden.get(seq, ()) if one in stood]
        named.update(gone)
        told += [Change("replaced", one) for one in gone]
        told.append(Change("added", seq))
    told += [Change("removed", seq) for seq in before.nodes if seq not in here and seq not in named]
    return tuple(told)


def _replacements(ops: Sequence[Op]) -> dict[int, list[int]]:
    """For each replacing node, every node it hides, also those its predecessors hid."""
    surface = Surface()
    hidden: dict[int, list[int]] = {}
    for op in ops:
        if op.start is None or op.end is None:
            surface.apply(op.seq, Append())
            continue
        replace = Replace(start_seq=op.start, end_seq=op.end)
        direct = surface.shadowed(replace)
        hidden[op.seq] = [one for node in direct for one in (*hidden.get(node, ()), node)]
        surface.apply(op.seq, replace)
    return hidden
