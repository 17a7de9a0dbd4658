"""Cutting long tool results: room without a model.

What comes in: a session and how much of a result may stay. What goes out: rewritten results in the
log, each announced by a `compaction/prune`. Only text is cut; other blocks stay where they are. A
result that was cut once is short enough never to be cut again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve

from dsh import catalog as ev
from dsh.catalog import records
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.seams.token_meter import TokenMeter
    from dsh.session import Session

__all__ = ["Cut", "cut_blocks", "prune"]

MARK: Final = "\n[… {} characters were taken out here to save room …]\n"


@frozen(slots=True)
class Cut:
    """In characters. `head` and `tail` with the mark between them are shorter than `threshold`."""

    threshold: int
    head: int
    tail: int


def cut_blocks(
    blocks: Sequence[records.ContentBlock], cut: Cut
) -> tuple[records.ContentBlock, ...] | None:
    """The same blocks with the middle of their text taken out, or None if they are short."""
    total = sum(len(block.text) for block in blocks if isinstance(block, records.TextBlock))
    if total <= cut.threshold:
        return None
    made: list[records.ContentBlock] = []
    at, marked = 0, False
    gone_from, gone_to = cut.head, total - cut.tail
    for block in blocks:
        if not isinstance(block, records.TextBlock):
            made.append(block)
            continue
        text, start = block.text, at
        at += len(text)
        if at <= gone_from or start >= gone_to:
            made.append(block)
            continue
        front, back = text[: max(0, gone_from - start)], text[max(0, gone_to - start) :]
        mark, marked = "" if marked else MARK.format(gone_to - gone_from), True
        if front or mark or back:
            made.append(records.TextBlock(text=f"{front}{mark}{back}"))
    return tuple(made)


def prune(session: Session, meter: TokenMeter, cut: Cut, *, spare_newest: bool) -> int:
    """Cut every long result on the surface; returns how many were cut.

    `spare_newest` leaves those alone that the model has not answered yet.
    """
    events = session.events
    nodes = tuple(session.surface.nodes)
    last = len(nodes)
    if spare_newest:
        last = next(
            (
                place
                for place in range(len(nodes) - 1, -1, -1)
                if isinstance(events[nodes[place]].data, ev.assistant.Message)
            ),
            0,
        )
    done = 0
    for seq in nodes[:last]:
        data = events[seq].data
        if not isinstance(data, ev.tool.Result):
            continue
        content = cut_blocks(data.message.content, cut)
        if content is None:
            continue
        with session.batch():
            session.append(
                ev.compaction.Prune(
                    shadowed_range=records.SeqRange(start=seq, end=seq),
                    shadowed_seqs=(seq,),
                    shadowed_token_count=meter.estimate(data.message),
                )
            )
            session.append(
                evolve(data, message=evolve(data.message, content=content)),
                surface=records.Replace(start_seq=seq, end_seq=seq),
                sources=(seq,),
            )
        done += 1
    return done
