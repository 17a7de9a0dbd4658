"""The plugin `session-jsonl`: session logs as JSON lines behind the seam PERSISTENCE.

What comes in: its root folder, which the composition names. What goes out: a store. It
holds no session of its own and keeps no descriptor open beyond the handles that it gave out.
"""

from __future__ import annotations

from pathlib import Path

from dsh import Context, plugin
from dsh.errors import ConfigError
from dsh.seams.persistence import PERSISTENCE
from dsh_plugins.session_jsonl.catalog import SessionJsonlConfig
from dsh_plugins.session_jsonl.store import JsonlStore

__all__ = ["JsonlStore", "session_jsonl"]


@plugin(name="session-jsonl", config=SessionJsonlConfig, provides=(PERSISTENCE,))
async def session_jsonl(ctx: Context, config: SessionJsonlConfig) -> None:
    """Provide the store. Raises ConfigError for a root that is not absolute."""
    root = Path(config.root)
    if not root.is_absolute():
        raise ConfigError(
            f"session-jsonl.root is {config.root!r}; give an absolute path, "
            "so that it means the same wherever dsh is started"
        )
    ctx.provide(PERSISTENCE, JsonlStore(root, now_ms=ctx.clock.now_ms))
