"""One compaction as a bracket in the log: opened, closed exactly once, the surface changed inside.

What comes in: a session, the nodes to stand in for, and a way to get a summary. What goes out: the
replaced surface, or a bracket that is closed with the reason. Between the finished summary and the
end of the bracket nothing is awaited, so nothing can come between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from dsh import catalog as ev
from dsh.agent import new_message_id
from dsh.catalog import records
from dsh.errors import AgentError, SessionError
from dsh.hooks import frozen
from dsh.seams.compaction import Compacted, CompactionFailed
from dsh.session import SurfaceFault
from dsh_plugins.compaction.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dsh.hooks.live import TurnSignal
    from dsh.seams.token_meter import TokenMeter
    from dsh.session import Session
    from dsh_plugins.compaction.history import SessionHistory
    from dsh_plugins.compaction.summary import Summary

__all__ = ["Order", "Trigger", "note_no_progress", "transact"]

Trigger: TypeAlias = Literal["pressure", "overflow", "manual", "region"]


@frozen(kw_only=True, slots=True)
class Order:
    """What one compaction is to do. `shadowed` are neighbours on the surface, in its order.

    `whole`: nothing of the surface may change meanwhile; else only the shadowed nodes may not.
    """

    compaction_id: str
    trigger: Trigger
    turn: int | None
    instructions: str | None
    shadowed: tuple[int, ...]
    whole: bool


async def transact(
    session: Session,
    meter: TokenMeter,
    history: SessionHistory,
    order: Order,
    *,
    summarise: Callable[[], Awaitable[Summary]],
    pinned: Callable[[], Sequence[records.UserMessage]],
    signal: TurnSignal,
) -> Compacted:
    """Carry out one compaction. Raises CompactionFailed, TurnCancelled, and what else came up.

    However it ends, the bracket is closed, unless the log takes nothing any more: then the open
    start remains, and a resumed session knows that nobody holds it.
    """
    history.advance(session)
    if history.open is not None:
        raise CompactionFailed("busy", f"compaction {history.open!r} of this session is open")
    before = meter.measure(session).total_tokens
    surface = tuple(session.surface.nodes)
    # The lock: whoever comes next finds it open.
    _open(session, order)
    problem: str | None = "cancelled"
    done: Compacted | None = None
    try:
        signal.raise_if_set()
        summary = await summarise()
        signal.raise_if_set()
        _refuse_changed(session, order, surface)
        done = _commit(session, meter, order, summary, pinned(), before)
    except CompactionFailed as failed:
        problem = f"{failed.kind}: {failed.message}"
        raise
    except AgentError:
        # The turn's own cancellation.
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise
    else:
        problem = None
        return done
    finally:
        _close(session, order, problem, done)


def _open(session: Session, order: Order) -> None:
    session.append(
        ev.compaction.Start(
            compaction_id=order.compaction_id,
            turn=order.turn,
            trigger=order.trigger,
            instructions=order.instructions,
        )
    )


def _refuse_changed(session: Session, order: Order, surface: tuple[int, ...]) -> None:
    nodes = session.surface.nodes
    if order.whole and tuple(nodes) != surface:
        raise CompactionFailed("changed", "the conversation changed while it was summarised")
    op = records.Replace(start_seq=order.shadowed[0], end_seq=order.shadowed[-1])
    try:
        same = tuple(session.surface.shadowed(op)) == order.shadowed
    except SurfaceFault:
        same = False
    if not same:
        raise CompactionFailed("changed", "what was summarised is not there any more")


def _commit(
    session: Session,
    meter: TokenMeter,
    order: Order,
    summary: Summary,
    pinned: Sequence[records.UserMessage],
    before: int,
) -> Compacted:
    message = checkpoint(new_message_id(), order.compaction_id, summary.text, pinned)
    prices = {price.seq: price.tokens for price in meter.prices(session)}
    shadowed = sum(prices[seq] for seq in order.shadowed)
    if meter.estimate(message) >= shadowed:
        raise CompactionFailed(
            "summary",
            f"the summary is not smaller than what it stands for "
            f"({meter.estimate(message)} tokens for {shadowed})",
        )
    first, last = order.shadowed[0], order.shadowed[-1]
    try:
        with session.batch():
            session.append(
                ev.compaction.Summary(
                    compaction_id=order.compaction_id,
                    summary=(records.TextBlock(text=summary.text),),
                    shadowed_range=records.SeqRange(start=first, end=last),
                    shadowed_seqs=order.shadowed,
                    shadowed_token_count=shadowed,
                    provider=summary.provider,
                    model=summary.model,
                    max_tokens=summary.max_tokens,
                    usage=summary.usage,
                    raw_output=summary.output,
                    llm_stream_call=True,
                )
            )
            logged = session.append(
                ev.user.Message(message=message),
                surface=records.Replace(start_seq=first, end_seq=last),
                sources=tuple(sorted(order.shadowed)),
            )
    except SessionError as error:
        raise CompactionFailed("commit", error.message, code=error.code) from error
    measured = meter.measure(session)
    return Compacted(
        compaction_id=order.compaction_id,
        summary_seq=logged.seq,
        shadowed=order.shadowed,
        tokens_before=before,
        tokens_after=measured.total_tokens,
        prefix_tokens=measured.envelope_tokens + _before(session, prices, logged.seq),
    )


def _before(session: Session, prices: dict[int, int], seq: int) -> int:
    tokens = 0
    for node in session.surface.nodes:
        if node == seq:
            break
        tokens += prices[node]
    return tokens


def _close(session: Session, order: Order, problem: str | None, done: Compacted | None) -> None:
    """The one attempt to close; a log that takes nothing any more keeps the open start."""
    if session.closed:
        return
    session.append(
        ev.compaction.End(
            compaction_id=order.compaction_id,
            turn=order.turn,
            error=problem,
            tokens_before=None if done is None else done.tokens_before,
            tokens_after=None if done is None else done.tokens_after,
            prefix_tokens=None if done is None else done.prefix_tokens,
        )
    )


def note_no_progress(session: Session, order: Order, tokens: int, reason: str) -> None:
    """Log that nothing could be done, and why: an empty bracket."""
    _open(session, order)
    session.append(
        ev.compaction.End(
            compaction_id=order.compaction_id,
            turn=order.turn,
            error=f"no progress: {reason}",
            tokens_before=tokens,
            tokens_after=tokens,
        )
    )
