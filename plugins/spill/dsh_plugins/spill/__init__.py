"""The plugin `spill`: a large result goes to a file, and the model reads its head and tail.

What comes in: results that every other policy has accepted. What goes out: the same, or for plain
text beyond the bound a preview with the place of the whole. The tool's own value stays as it is. It
never turns a success into an error: if the file cannot be written, the result stays whole.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import attrs

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.hooks.live import ToolSuccess
from dsh.seams.spill import SPILL
from dsh_plugins.spill.catalog import SpillConfig
from dsh_plugins.spill.preview import preview
from dsh_plugins.spill.store import FolderStore

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["spill"]


def _plain(content: Sequence[ev.records.ContentBlock]) -> str | None:
    """The text, if it is nothing but text."""
    texts = [block.text for block in content if isinstance(block, ev.records.TextBlock)]
    return "\n".join(texts) if texts and len(texts) == len(content) else None


@plugin(name="spill", config=SpillConfig, provides=(SPILL,))
async def spill(ctx: Context, config: SpillConfig) -> None:
    """Provide the store, and look at each result after all others have."""
    store = FolderStore(config.root)
    ctx.provide(SPILL, store)

    @ctx.on(ev.tools.POST_EXECUTE, prepend=True)
    async def shorten(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        decision = await call_next()
        call = event.exec
        if (
            not isinstance(decision, ev.tools.Accept)
            or decision.value is not None
            or not isinstance(event.result, ToolSuccess)
            or call.parent is not None
            or call.agent is None
            or any(fnmatchcase(call.name, pattern) for pattern in config.exclude)
        ):
            return decision
        text = _plain(decision.content if decision.content is not None else event.result.content)
        if text is None or len(text.encode()) <= config.max_inline_bytes:
            return decision
        try:
            path = await store.keep(call.agent.session.id, f"{call.name}-{call.call_id}", text)
        except OSError as error:
            ctx.log.warning("the result of %s could not be spilled: %s", call.call_id, error)
            return decision
        short = preview(text, path, config.max_inline_bytes)
        return attrs.evolve(decision, content=(ev.records.TextBlock(text=short),))
