"""The plugin `replay`: a recorded session in place of the model and of the tools.

What comes in: a log file, and the requests and calls of a loop that runs on the same history. What
goes out: the recorded streams, token by token, and the recorded results; or a failure that names
the first difference. No request leaves and no tool body runs while it is mounted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from dsh import Context, plugin
from dsh.errors import ConfigError
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.session import SESSIONS, Recording, Sessions
from dsh.wire import RowReader, WireFault, decode_header
from dsh_plugins.replay.catalog import ReplayConfig
from dsh_plugins.replay.player import Player

if TYPE_CHECKING:
    from dsh.wire import StoredEvent

__all__ = ["Deps", "Player", "replay"]


@frozen(slots=True)
class Deps:
    """What the plugin needs of others."""

    sessions: Sessions = required(SESSIONS)


@plugin(name="replay", config=ReplayConfig, deps=Deps)
async def replay(ctx: Context, config: ReplayConfig, deps: Deps) -> None:
    """Serve the recording. Raises ConfigError when the log cannot be read."""
    events = await trio.to_thread.run_sync(_events, Path(config.log))
    Player(Recording(events), deps.sessions).listen(ctx)


def _events(path: Path) -> tuple[StoredEvent, ...]:
    """The events of a log file; an unfinished last line is left out."""
    try:
        first, _, body = path.read_bytes().partition(b"\n")
        decode_header(first)
        reader = RowReader()
        return tuple(event for line in body.split(b"\n")[:-1] for event in reader.read(line))
    except (OSError, WireFault) as error:
        raise ConfigError(f"replay.log: {path} cannot be read: {error}") from error
