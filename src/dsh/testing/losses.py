"""What a killed house had told others, compared with what its log says.

What comes in: what reached the client, the model server, the tools and the screen, and the log as a
stranger reads it. What goes out: every loss in words; none is the only good answer. It starts and
kills nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import orjson
from attrs import define, field, frozen

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import derive, verify
from dsh.wire import encode_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.seams.persistence import SessionPersistence
    from dsh.testing.model_server import RecordedRequest
    from dsh.wire import StoredEvent, StoredLog

__all__ = ["Found", "Kills", "judged_copies"]

#: Events of the turn that the scenario `first-writes` stores.
WHOLE_TURN: Final = 11


@define
class Kills:
    """What a series of kills showed. `losses` is empty when all is well."""

    killed: int = 0
    ended: int = 0
    resumed: int = 0
    acknowledged: int = 0
    bodies: int = 0
    compactions: int = 0
    #: Bytes of text that stood on screens.
    shown: int = 0
    losses: list[str] = field(factory=list[str])

    def line(self, name: str) -> str:
        """The figures in one line."""
        return (
            f"{name}: {self.killed} kills, {len(self.losses)} losses; "
            f"{self.ended} had ended before, {self.resumed} resumed, "
            f"{self.compactions} compactions, {self.acknowledged} things acknowledged, "
            f"{self.bodies} of them tool bodies, {self.shown} bytes of text shown"
        )


@frozen(kw_only=True)
class Found:
    """What a killed life had told others."""

    client: Sequence[bytes]
    effects: Sequence[bytes]
    shown: bytes
    requests: Sequence[RecordedRequest]

    @property
    def nothing(self) -> bool:
        """Whether it was killed before anybody heard of it."""
        return not (self.client or self.effects or self.requests)

    def without_log(self) -> list[str]:
        """The losses if no log is there: everything that was told."""
        told = (*self.client, *self.effects, *self.requests, *self.shown.split())
        return [f"no log, but {len(told)} things were told"] if told else []

    def missing_in(self, log: StoredLog, kills: Kills) -> list[str]:
        """What was told and is not in the log."""
        kills.acknowledged += len(self.client) + len(self.effects) + len(self.requests)
        kills.bodies += len(self.effects)
        kills.compactions += sum(isinstance(e.data, ev.compaction.Start) for e in log.events)
        losses = self._client_missing(log)
        called = {e.data.call_id for e in log.events if isinstance(e.data, ev.tool.Call)}
        losses += [
            f"the body of call {call!r} ran, its tool/call is not logged"
            for call in self.effects
            if call.decode() not in called
        ]
        sent = _sent(log.events)
        # The requests of a compaction are no step's; its start is logged before it asks.
        summaries = sum(isinstance(event.data, ev.compaction.Start) for event in log.events)
        reached = 0
        for place, request in enumerate(self.requests, start=1):
            # In order, but a step may ask more than once with the same messages.
            said = _said(request)
            found = next((n for n in range(reached, len(sent)) if sent[n] == said), None)
            if found is not None:
                reached = found
            elif summaries:
                summaries -= 1
            else:
                losses.append(f"request {place} left and the log does not explain it")
        return losses + self._shown_and_lost(log, kills)

    def _client_missing(self, log: StoredLog) -> list[str]:
        losses: list[str] = []
        for line in self.client:
            if not line.startswith(b"{"):
                continue
            seq = cast("int", orjson.loads(line)["seq"])
            if seq >= len(log.events) or encode_line(log.events[seq]) != line:
                losses.append(f"the client saw seq {seq}, which the log has not like that")
        return losses

    def _shown_and_lost(self, log: StoredLog, kills: Kills) -> list[str]:
        """Text that stood on the screen must be in the log, to the byte."""
        kills.shown += len(self.shown)
        text = "".join(
            event.data.chunk.text
            for event in log.events
            if isinstance(event.data, ev.assistant.Chunk)
            and isinstance(event.data.chunk, records.TextDeltaChunk)
        ).encode()
        shown = self.shown.rstrip(b"\n")  # the end of its line is ours
        if text.startswith(shown):
            return []
        return [f"{shown[-40:]!r} was shown and is not in the log, whose text ends {text[-40:]!r}"]


def _sent(events: Sequence[StoredEvent]) -> list[list[str]]:
    """What each step of the log sent to the model, as texts."""
    found: list[list[str]] = []
    ready = False
    for place, event in enumerate(events):
        match event.data:
            case ev.step.Start():
                ready = True
            case ev.assistant.Chunk() | ev.assistant.Message() | ev.step.End() if ready:
                found.append(_texts(events[:place]))
                ready = False
            case _:
                pass
    if ready:
        found.append(_texts(events))
    return found


def _texts(events: Sequence[StoredEvent]) -> list[str]:
    return [
        "".join(block.text for block in message.content if isinstance(block, records.TextBlock))
        for message in derive(events)
    ]


def _said(request: RecordedRequest) -> list[str]:
    body = cast("dict[str, list[dict[str, object]]]", orjson.loads(request.body))
    return [str(message.get("content") or "") for message in body["messages"]]


async def judged_copies(
    store: SessionPersistence, session: str, found: Found, kills: Kills
) -> list[str]:
    """Every session of this life is whole, and every acknowledged one is there."""
    losses: list[str] = []
    there: set[str] = set()
    source = len((await store.read("source")).events) + 1
    for summary in await store.list():
        if not summary.id.startswith(f"{session}-"):
            continue
        there.add(summary.id)
        log = await store.read(summary.id)
        losses += [f"{summary.id}: {problem.text}" for problem in verify(log)]
        whole = source if log.header.parent_session is not None else WHOLE_TURN
        if len(log.events) != whole:
            losses.append(f"{summary.id} has {len(log.events)} of {whole} events")
    acknowledged = [line.decode() for line in found.client]
    kills.acknowledged += len(acknowledged)
    losses += [
        f"{name} was acknowledged and is not there" for name in acknowledged if name not in there
    ]
    return losses
