"""A model server for tests and for trying things out: real sockets, scripted, faulty on demand.

What comes in: replies, script entries, or a function of the request; faults. What goes out: a
server on 127.0.0.1 that speaks chat completions and Anthropic's messages, and a record of every
request and connection.
Made for the tests of dsh and of plugin authors; `python -m dsh.testing.model_server` runs one.
"""

from __future__ import annotations

from dsh.testing.model_server.messages_wire import (
    messages_error,
    messages_event,
    messages_reply_of,
)
from dsh.testing.model_server.replies import (
    DONE,
    Close,
    Gate,
    Hang,
    Reset,
    Step,
    Wait,
    WireReply,
    at_random,
    broken_off,
    by_bytes,
    delta,
    error_reply,
    event,
    recut,
    reply_of,
    sse_reply,
)
from dsh.testing.model_server.server import (
    Answer,
    Answers,
    ModelServer,
    RecordedRequest,
    open_model_server,
)
from dsh.testing.model_server.strict_history import refusal_of
from dsh.testing.model_server.strict_messages import messages_refusal_of

__all__ = [
    "DONE",
    "Answer",
    "Answers",
    "Close",
    "Gate",
    "Hang",
    "ModelServer",
    "RecordedRequest",
    "Reset",
    "Step",
    "Wait",
    "WireReply",
    "at_random",
    "broken_off",
    "by_bytes",
    "delta",
    "error_reply",
    "event",
    "messages_error",
    "messages_event",
    "messages_refusal_of",
    "messages_reply_of",
    "open_model_server",
    "recut",
    "refusal_of",
    "reply_of",
    "sse_reply",
]
