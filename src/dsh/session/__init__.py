"""The session log: append, surface, derived messages, projections, write path, repair, proof.

What comes in: payloads of the catalog, headers, seeds, a store's handle. What goes out: live
sessions and the registry of them. This room never opens a file and never drives an agent.
"""

from __future__ import annotations

from dsh.session.copies import LogStore, Salvaged, fork_log, salvage_log
from dsh.session.fork import Fork, closed_boundary, forked
from dsh.session.headers import canonical_header, same_header
from dsh.session.log import Session
from dsh.session.messages import SurfacePayload, derive, message_of
from dsh.session.projections import Projection, ProjectionSet
from dsh.session.recording import (
    RecordedRequest,
    RecordedTurn,
    Recording,
    first_difference,
    first_message_difference,
    is_regenerated,
    same_message,
)
from dsh.session.repair import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    interrupted_closers,
    interrupted_result,
)
from dsh.session.store import SESSIONS, Sessions, sessions_plugin
from dsh.session.surface import Surface, SurfaceFault
from dsh.session.verify import Problem, lawful_prefix, verify
from dsh.session.writer import LogSink, LogWriter

__all__ = [
    "SESSIONS",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "Fork",
    "LogSink",
    "LogStore",
    "LogWriter",
    "Problem",
    "Projection",
    "ProjectionSet",
    "RecordedRequest",
    "RecordedTurn",
    "Recording",
    "Salvaged",
    "Session",
    "Sessions",
    "Surface",
    "SurfaceFault",
    "SurfacePayload",
    "canonical_header",
    "closed_boundary",
    "derive",
    "first_difference",
    "first_message_difference",
    "fork_log",
    "forked",
    "interrupted_closers",
    "interrupted_result",
    "is_regenerated",
    "lawful_prefix",
    "message_of",
    "salvage_log",
    "same_header",
    "same_message",
    "sessions_plugin",
    "verify",
]
