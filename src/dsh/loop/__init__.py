"""The agent loop: turns and steps, requests, attempts, tool batches, cancellation, and the factory.

What comes in: the rooms below and agents' wishes. What goes out: two plugins, the machinery of
every loop and our own loop on it. Nothing imports this room but boot and tests; whatever a plugin
needs of an agent, also to be a loop itself, is in `dsh.agent`.
"""

from __future__ import annotations

from dsh.loop.plugin import agent_loop, loops_plugin

__all__ = ["agent_loop", "loops_plugin"]
