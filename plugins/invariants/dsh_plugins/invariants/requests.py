"""The request law: what a loop sends is what its log says, and nothing else.

What comes in: requests on their way to a model. What goes out: nothing, or a breach. Only requests
that a loop marked are looked at. Messages are read from the log anew, but only those of nodes that
came since the last request of the session; after a replacement all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.agent import is_loop_request
from dsh.hooks import frozen
from dsh.session import message_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.catalog import records
    from dsh.hooks import live
    from dsh.session import Session, Sessions
    from dsh_plugins.invariants.breach import Book
    from dsh_plugins.invariants.laws import Trace

__all__ = ["Requests"]


@frozen
class _Compared:
    """How far a session's requests have been compared: surface nodes, and messages of them."""

    generation: int
    nodes: int
    messages: int
    last: records.Message | None


class Requests:
    """The law for all sessions of one house."""

    def __init__(
        self, book: Book, sessions: Sessions, trace_of: Callable[[Session], Trace]
    ) -> None:
        self._book: Final = book
        self._sessions: Final = sessions
        self._trace_of: Final = trace_of
        self._compared: Final[dict[Session, _Compared]] = {}

    def check(self, request: live.LlmRequest) -> None:
        """Raise LawBroken unless a marked request equals its reconstruction."""
        if not is_loop_request(request):
            return
        session = self._sessions.get(request.session_id or "")
        if session is None:
            raise self._broken(None, f"it is of session {request.session_id!r}, which is not live")
        seen = (
            self._standing(session, request)
            or self._header(session, request)
            or self._messages(session, request)
        )
        if seen is not None:
            raise self._broken(session.next_seq, seen)

    def forget(self, session: live.Session) -> None:
        """The session has left."""
        for known in tuple(self._compared):
            if known is session:
                del self._compared[known]

    def _broken(self, seq: int | None, seen: str) -> Exception:
        return self._book.breach("request", ev.llm.STREAM.name, seq, seen)

    def _standing(self, session: Session, request: live.LlmRequest) -> str | None:
        trace = self._trace_of(session)
        if not trace.in_step:
            return f"a request leaves where {trace.place}"
        if not trace.headed:
            return "a request leaves, and no request/header is in the log"
        return None

    def _header(self, session: Session, request: live.LlmRequest) -> str | None:
        header = session.request_header()
        if header is None:
            return "no request/header is in the log"
        config = header.config
        for name, sent, logged in (
            ("provider", request.provider, config.provider),
            ("model", request.model, config.model),
            ("reasoningEffort", request.reasoning_effort, config.reasoning_effort),
            ("temperature", request.temperature, config.temperature),
            ("maxTokens", request.max_tokens, config.max_tokens),
            ("stop", tuple(request.stop), tuple(config.stop)),
            ("tools", request.tools, header.tools),
        ):
            if sent != logged:
                return f"{name} is {sent!r}; the logged header says {logged!r}"
        if request.system is not None:
            return "it has a system field; the prompt is a message of the log"
        return None

    def _messages(self, session: Session, request: live.LlmRequest) -> str | None:
        surface, known = session.surface, self._compared.get(session)
        if known is None or known.generation != surface.generation:
            known = _Compared(surface.generation, 0, 0, None)
        sent, place = request.messages, known.messages
        if len(sent) < place or (place and sent[place - 1] is not known.last):
            return f"it does not begin with the {place} messages of the request before"
        events = session.events
        for seq in surface.nodes[known.nodes :]:
            due = message_of(events[seq])
            if due is None:
                continue
            if place >= len(sent):
                return f"the message of seq {seq} is missing at its end"
            if sent[place] != due:
                return f"message {place} is not that of seq {seq}"
            place += 1
        if place != len(sent):
            return f"it has {len(sent)} messages; the log derives {place}"
        last = sent[place - 1] if place else None
        self._compared[session] = _Compared(surface.generation, len(surface), place, last)
        return None
