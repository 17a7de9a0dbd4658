"""The system prompt: sections, variables, tools in canonical order, and runtime context.

What comes in: registrations of plugins and the configured persona. What goes out: one assembly per
step, its text, and the runtime-context message that is due. Nothing here is logged or sent.
"""

from __future__ import annotations

from dsh.prompt.plugin import IDENTITY, system_prompt_plugin
from dsh.prompt.runtime_context import RUNTIME_CONTEXT
from dsh.prompt.service import (
    PROMPT,
    SystemPrompt,
    Text,
    TextProvider,
    ToolProvider,
    VariableProvider,
)
from dsh.prompt.tool_order import UNLISTED_TOOLS

__all__ = [
    "IDENTITY",
    "PROMPT",
    "RUNTIME_CONTEXT",
    "UNLISTED_TOOLS",
    "SystemPrompt",
    "Text",
    "TextProvider",
    "ToolProvider",
    "VariableProvider",
    "system_prompt_plugin",
]
