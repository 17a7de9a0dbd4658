"""What a killed house had told others, compared with what its log says.

What comes in: what reached the client, the model server, the tools and the screen, and the log as a
stranger reads it. What goes out: every loss in words; none is the only good answer. It starts and
kills nothing.
"""

from __future__ import annotations

import re
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

__all__ = ["Found", "Kills", "judged_copies", "screen_losses"]

#: Events of the turn that the scenario `first-writes` stores.
WHOLE_TURN: Final = 11
#: What the screen of a conversation tells of what the model server of the kills says.
CALLED: Final = re.compile(r"\becho (c\d+) >>")
DONE: Final = re.compile(r"\becho (c\d+) >>.* \d+ lines? ")
ENDED: Final = re.compile(r"^-- turn (\d+) done")
RETRIED: Final = re.compile(r"\btry (\d+) of \d+ in\b")
SAID: Final = re.compile(r"\bw\d+\.|\bmarking \d+\.")


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
    #: The lines of a conversation's screen, oldest first.
    screen: Sequence[str] = ()

    @property
    def nothing(self) -> bool:
        """Whether it was killed before anybody heard of it."""
        return not (self.client or self.effects or self.requests)

    @property
    def over(self) -> bool:
        """Whether a conversation had done all that it was asked for."""
        return any(ENDED.search(line) for line in self.screen)

    def without_log(self) -> list[str]:
        """The losses if no log is there: everything that was told."""
        told = (*self.client, *self.effects, *self.requests, *self.shown.split())
        losses = [f"no log, but {len(told)} things were told"] if told else []
        return losses + screen_losses(self.screen, ())

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
        kills.shown += sum(len(line) for line in self.screen)
        return losses + self._shown_and_lost(log, kills) + screen_losses(self.screen, log.events)

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
        text = _streamed(log.events).encode()
        shown = self.shown.rstrip(b"\n")  # the end of its line is ours
        if text.startswith(shown):
            return []
        return [f"{shown[-40:]!r} was shown and is not in the log, whose text ends {text[-40:]!r}"]


def screen_losses(screen: Sequence[str], events: Sequence[StoredEvent]) -> list[str]:
    """What a conversation's screen told and the log does not know.

    Its lines are those of `dsh chat`: a prompt after `>` (the last one is still being typed), what
    the model said, calls of `bash` and that they are over, waits before a retry, ends of turns.
    What a command writes while it runs is in no log.
    """
    data = [event.data for event in events]
    asked = {_text(one.message) for one in data if isinstance(one, ev.user.Message)}
    called = {one.call_id for one in data if isinstance(one, ev.tool.Call)}
    done = {one.message.tool_call_id for one in data if isinstance(one, ev.tool.Result)}
    ended = {str(one.turn) for one in data if isinstance(one, ev.turn.End)}
    retries = {str(one.retry + 1) for one in data if isinstance(one, ev.llm.Retry)}
    prompts = [line.removeprefix(">").strip() for line in screen if line.startswith(">")]
    losses = [f"prompt {prompt!r}" for prompt in prompts[:-1] if prompt not in asked]
    for line in screen:
        for pattern, known, what in (
            (CALLED, called, "call"),
            (DONE, done, "the end of call"),
            (ENDED, ended, "the end of turn"),
            (RETRIED, retries, "try"),
        ):
            found = pattern.search(line)
            if found is not None and found[1] not in known:
                losses.append(f"{what} {found[1]}")
    # A kill in the middle of a redraw leaves a word twice on the screen.
    said = dict.fromkeys(word for line in screen for word in SAID.findall(line))
    logged = set(SAID.findall(_streamed(events)))
    losses += [f"word {word!r}" for word in said if word not in logged]
    return [f"{loss} was shown and is not in the log" for loss in losses]


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
    return [_text(message) for message in derive(events)]


def _text(message: records.Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, records.TextBlock))


def _streamed(events: Sequence[StoredEvent]) -> str:
    """All text that the model said, as far as it came."""
    return "".join(
        event.data.chunk.text
        for event in events
        if isinstance(event.data, ev.assistant.Chunk)
        and isinstance(event.data.chunk, records.TextDeltaChunk)
    )


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
