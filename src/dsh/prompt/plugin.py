"""The row `system-prompt`: provides the prompt service, the identity and the persona.

What comes in: its config. What goes out: `PROMPT`, two sections, and the projection that remembers
which runtime context the model has.
"""

from __future__ import annotations

from typing import Final

from dsh.catalog.config import SystemPromptConfig
from dsh.hooks import frozen
from dsh.kernel import Context, core_of, plugin, required
from dsh.prompt.runtime_context import RUNTIME_CONTEXT
from dsh.prompt.service import PROMPT, SystemPrompt
from dsh.session import SESSIONS, Sessions

__all__ = ["IDENTITY", "system_prompt_plugin"]

#: What the identity section says; `includeHarnessIdentity: false` leaves it out.
IDENTITY: Final = (
    "You run inside dsh, an agent harness. You act through the tools you are given; "
    "what they return is all you know of the outside."
)
IDENTITY_ORDER: Final = -100


@frozen
class PromptDeps:
    """What the service stands on."""

    sessions: Sessions = required(SESSIONS)


@plugin(name="system-prompt", config=SystemPromptConfig, deps=PromptDeps, provides=(PROMPT,))
async def system_prompt_plugin(ctx: Context, config: SystemPromptConfig, deps: PromptDeps) -> None:
    """Provide `PROMPT`. Raises ConfigError for a malformed `toolOrder`."""
    prompt = SystemPrompt(core_of(ctx), config)
    deps.sessions.project(ctx, RUNTIME_CONTEXT)
    if config.include_harness_identity:
        prompt.section(ctx, "identity", IDENTITY, order=IDENTITY_ORDER)
    if config.persona:
        prompt.section(ctx, "persona", config.persona)
    if not config.include_runtime_context:
        prompt.suppress_runtime_context(ctx)
    ctx.provide(PROMPT, prompt)
