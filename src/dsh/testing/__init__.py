"""For tests, ours and those of plugin authors: a store in memory, logs made by hand.

What comes in: what a test wants to happen. What goes out: the real rooms of dsh with a part of the
world replaced. Nothing in the product imports this room.
"""

from __future__ import annotations

from dsh.llm import Script, ScriptedCall, ScriptedModel, ScriptEntry, parse_script
from dsh.testing.batch_bench import BatchBench, BenchArgs
from dsh.testing.cancelling import (
    WAYS,
    Interrupted,
    Scene,
    Stage,
    Way,
    interrupted,
    uninterrupted,
)
from dsh.testing.house import OPTIONS, TestHouse, TickingClock, open_test_house
from dsh.testing.http_stub import HttpAnswer, HttpAsked, HttpStub, open_http_stub
from dsh.testing.lawful import broken_laws, unanswered_on_the_wire
from dsh.testing.logs import LogWriting
from dsh.testing.memory_files import MemoryFiles, memory_files
from dsh.testing.memory_store import MemoryStore
from dsh.testing.model import ScriptedReplies, call, calls, fails, says, stalls
from dsh.testing.model_server import (
    Close,
    Gate,
    Hang,
    ModelServer,
    RecordedRequest,
    Reset,
    Wait,
    WireReply,
    at_random,
    broken_off,
    by_bytes,
    delta,
    error_reply,
    event,
    messages_error,
    messages_event,
    messages_refusal_of,
    messages_reply_of,
    open_model_server,
    recut,
    refusal_of,
    reply_of,
    sse_reply,
)
from dsh.testing.played_shell import PlayedShell, Ran, played_shell
from dsh.testing.scenes import SCENES
from dsh.testing.seeded import run_seeded
from dsh.testing.steps import AtStep
from dsh.testing.talker import Talker
from dsh.testing.tool_parts import (
    EchoArgs,
    always_pre,
    always_review,
    call_block,
    context_of,
    echo,
    echo_tool,
    text_blocks,
    told,
    wrap_execute,
)
from dsh.testing.tool_room import Committed, ListHost, ManualSignal, ToolRoom, open_tool_room
from dsh.testing.weather import Life, live_through

__all__ = [
    "OPTIONS",
    "SCENES",
    "WAYS",
    "AtStep",
    "BatchBench",
    "BenchArgs",
    "Close",
    "Committed",
    "EchoArgs",
    "Gate",
    "Hang",
    "HttpAnswer",
    "HttpAsked",
    "HttpStub",
    "Interrupted",
    "Life",
    "ListHost",
    "LogWriting",
    "ManualSignal",
    "MemoryFiles",
    "MemoryStore",
    "ModelServer",
    "PlayedShell",
    "Ran",
    "RecordedRequest",
    "Reset",
    "Scene",
    "Script",
    "ScriptEntry",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReplies",
    "Stage",
    "Talker",
    "TestHouse",
    "TickingClock",
    "ToolRoom",
    "Wait",
    "Way",
    "WireReply",
    "always_pre",
    "always_review",
    "at_random",
    "broken_laws",
    "broken_off",
    "by_bytes",
    "call",
    "call_block",
    "calls",
    "context_of",
    "delta",
    "echo",
    "echo_tool",
    "error_reply",
    "event",
    "fails",
    "interrupted",
    "live_through",
    "memory_files",
    "messages_error",
    "messages_event",
    "messages_refusal_of",
    "messages_reply_of",
    "open_http_stub",
    "open_model_server",
    "open_test_house",
    "open_tool_room",
    "parse_script",
    "played_shell",
    "recut",
    "refusal_of",
    "reply_of",
    "run_seeded",
    "says",
    "sse_reply",
    "stalls",
    "text_blocks",
    "told",
    "unanswered_on_the_wire",
    "uninterrupted",
    "wrap_execute",
]
