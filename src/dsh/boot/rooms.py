"""The rooms of dsh as plugins: what boot mounts before the rows of the composition.

What comes in: the name of a room's row. What goes out: its plugin, imported when first asked for,
so that a command that only reads logs does not pay for the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsh.kernel import Plugin

__all__ = ["room"]


def room(name: str) -> Plugin | None:
    """The plugin of the room with that row name, or None when there is no such room."""
    match name:
        case "sessions":
            from dsh.session import sessions_plugin  # noqa: PLC0415

            return sessions_plugin
        case "agents":
            from dsh.agent import agents_plugin  # noqa: PLC0415

            return agents_plugin
        case "llm":
            from dsh.llm import llm_plugin  # noqa: PLC0415

            return llm_plugin
        case "tools":
            from dsh.tools import tools_plugin  # noqa: PLC0415

            return tools_plugin
        case "system-prompt":
            from dsh.prompt import system_prompt_plugin  # noqa: PLC0415

            return system_prompt_plugin
        case "loops":
            from dsh.loop import loops_plugin  # noqa: PLC0415

            return loops_plugin
        case "agent-loop":
            from dsh.loop import agent_loop  # noqa: PLC0415

            return agent_loop
        case _:
            return None
