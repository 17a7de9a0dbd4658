"""The plugin `chat`: how much of what tools print and change is shown in a conversation.

What comes in: its configuration, also while it is edited. What goes out: three numbers, through the
preview seam. It shows nothing itself.
"""

from __future__ import annotations

from typing import Literal, final

from typing_extensions import override

from dsh import Context, plugin
from dsh.seams.previews import PREVIEWS, PreviewLines, Previews
from dsh_plugins.chat.catalog import ChatConfig

__all__ = ["chat"]


@final
class Configured(Previews):
    """The numbers of the configuration as it is now."""

    def __init__(self, config: ChatConfig) -> None:
        self._config = config

    @override
    def lines(self) -> PreviewLines:
        now = self._config
        return PreviewLines(tool=now.tool_lines, failed=now.failed_lines, change=now.change_lines)

    async def accept(self, new: ChatConfig, _old: ChatConfig) -> Literal["applied", "restart"]:
        """Take over an edited configuration: every field of it is live."""
        self._config = new
        return "applied"


@plugin(name="chat", config=ChatConfig, provides=(PREVIEWS,))
async def chat(ctx: Context, config: ChatConfig) -> None:
    """Provide the numbers, and follow edits of them."""
    configured = Configured(config)
    ctx.on_config(configured.accept)
    ctx.provide(PREVIEWS, configured)
