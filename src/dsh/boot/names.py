"""Names of plugins: the documents' spellings, and ours.

What comes in: a plugin name as a composition writes it. What goes out: the name under which the
plugin is installed. It never looks anything up; unknown names pass through unchanged.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ROOMS", "canonical"]

SCOPED: Final = "@deepseek-ai/dsh-"

#: The rows that boot mounts itself, in this order, before those of the composition.
ROOMS: Final = ("sessions", "agents", "llm", "tools", "system-prompt", "loops", "agent-loop")

DOCUMENTED: Final = {
    "agent": "agents",
    "compaction-basic": "compaction",
    "fs-observation-policy": "fs",
    "llm-deepseek": "openai-chat",
    "llm-openai-compatible": "openai-chat",
    "session": "sessions",
    "session-checkpoint-policy": "checkpoint",
    "session-persistence-jsonl": "session-jsonl",
    "session-persistence-sqlite": "session-sqlite",
    "tool-call-timeout-policy": "tool-timeout",
    "user-approval": "approval",
}


def canonical(written: str) -> str:
    """The plugin that `written` means: without the scope prefix, documented names mapped."""
    name = written.removeprefix(SCOPED)
    return DOCUMENTED.get(name, name)
