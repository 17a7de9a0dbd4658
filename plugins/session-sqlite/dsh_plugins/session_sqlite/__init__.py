"""The plugin `session-sqlite`: session logs in one SQLite database behind the seam PERSISTENCE.

What comes in: the path of the database, which the composition names. What goes out: a store. Its
one writing connection lives as long as the plugin; it never sees an event that was not committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsh import Context, plugin
from dsh.errors import ConfigError
from dsh.seams.persistence import PERSISTENCE
from dsh_plugins.session_sqlite.catalog import SessionSqliteConfig
from dsh_plugins.session_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["SqliteStore", "session_sqlite"]


@plugin(name="session-sqlite", config=SessionSqliteConfig, provides=(PERSISTENCE,))
async def session_sqlite(ctx: Context, config: SessionSqliteConfig) -> None:
    """Provide the store. Raises ConfigError for a path that is not absolute."""
    path = Path(config.path)
    if not path.is_absolute():
        raise ConfigError(
            f"session-sqlite.path is {config.path!r}; give an absolute path, "
            "so that it means the same wherever dsh is started"
        )
    store = SqliteStore(path, now_ms=ctx.clock.now_ms)

    async def connection() -> Callable[[], Awaitable[None]]:
        return store.aclose

    await ctx.aeffect(connection, label="database connection")
    ctx.provide(PERSISTENCE, store)
