"""Agents as plugins and embedders see them: handles, inbox, signals, initiator, the registry.

What comes in: wishes for agents, and a loop that fulfils them. What goes out: live agents and what
one can say to them. This room never imports a loop; it would serve another one as well.
"""

from __future__ import annotations

from dsh.agent.handle import AgentFactory, AgentHandle, Commit, CreateAgent, ResumeAgent, Setup
from dsh.agent.inbox import INBOX, Inbox, InboxLists, InboxNotices
from dsh.agent.initiator import Initiators, initiator, require_initiator
from dsh.agent.messages import new_message_id, user_message
from dsh.agent.plugin import IDENTITIES, agents_plugin
from dsh.agent.provenance import is_loop_request, mark_loop_request
from dsh.agent.registry import AGENTS, Agents, Entry
from dsh.agent.signal import ActivitySignal, TurnCancelled
from dsh.agent.turns import LOOPS, Loops, OpenTurn, StepDone, TurnProgram
from dsh.agent.work import ConsumedWork, consumed_work

__all__ = [
    "AGENTS",
    "IDENTITIES",
    "INBOX",
    "LOOPS",
    "ActivitySignal",
    "AgentFactory",
    "AgentHandle",
    "Agents",
    "Commit",
    "ConsumedWork",
    "CreateAgent",
    "Entry",
    "Inbox",
    "InboxLists",
    "InboxNotices",
    "Initiators",
    "Loops",
    "OpenTurn",
    "ResumeAgent",
    "Setup",
    "StepDone",
    "TurnCancelled",
    "TurnProgram",
    "agents_plugin",
    "consumed_work",
    "initiator",
    "is_loop_request",
    "mark_loop_request",
    "new_message_id",
    "require_initiator",
    "user_message",
]
