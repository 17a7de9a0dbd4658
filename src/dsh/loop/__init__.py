"""The agent loop: turns and steps, requests, attempts, tool batches, cancellation, and the factory.

What comes in: the rooms below and agents' wishes. What goes out: one plugin, `agent_loop`. Nothing
imports this room but boot and tests; whatever a plugin needs of an agent is in `dsh.agent`.
"""

from __future__ import annotations

from dsh.loop.plugin import agent_loop

__all__ = ["agent_loop"]
