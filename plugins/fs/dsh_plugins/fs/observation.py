"""Read before you change: which files a session has seen, and in which version.

What comes in: `fs/observed` notices, and the intents of writes and edits. What goes out: the
condition under which the change may happen, or a refusal that says what to read. Kept in memory, by
session: a resumed session has seen nothing yet. A change by something else, a command too, makes
the observation stale; the disk compares versions in the step that changes the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from dsh import Next
from dsh import catalog as ev
from dsh.hooks.live import ToolExecution
from dsh.seams.fs import FsError

if TYPE_CHECKING:
    from dsh import Context
    from dsh.hooks import Scope

__all__ = ["guard_by_observation"]

#: Beyond so many files the oldest observation is forgotten: that file has to be read again.
FILES_MAX: Final = 10_000


class _Seen:
    """The observations of every session. By the agent's scope, which lives and ends with it."""

    def __init__(self) -> None:
        self._by_scope: WeakKeyDictionary[Scope, dict[str, ev.records.FsObservation]] = (
            WeakKeyDictionary()
        )

    def of(self, actor: object) -> dict[str, ev.records.FsObservation] | None:
        """What the actor's session has seen; None for an actor without one."""
        if not isinstance(actor, ToolExecution) or actor.agent is None:
            return None
        return self._by_scope.setdefault(actor.agent.scope, {})

    def note(self, event: ev.fs.Observed) -> None:
        seen = self.of(event.actor)
        if seen is None:
            return
        seen.pop(event.target.target_key, None)
        seen[event.target.target_key] = event.observation
        if len(seen) > FILES_MAX:
            del seen[next(iter(seen))]


def guard_by_observation(ctx: Context) -> None:
    """Register the policy for the plugin of `ctx`. Other answerers of the intents come first."""
    known = _Seen()
    ctx.on(ev.fs.OBSERVED)(known.note)

    @ctx.on(ev.fs.WRITE_INTENT)
    async def before_write(
        event: ev.fs.WriteIntent, call_next: Next[ev.fs.WriteIntentDecision]
    ) -> ev.fs.WriteIntentDecision:
        seen = known.of(event.actor)
        if seen is None:
            return await call_next()
        match seen.get(event.target.target_key):
            case ev.records.PresentObservation(version=version):
                return ev.fs.ReplaceIfVersion(version=version)
            case _:
                return ev.fs.CreateIfAbsent()

    @ctx.on(ev.fs.EDIT_INTENT)
    async def before_edit(
        event: ev.fs.EditIntent, call_next: Next[ev.fs.EditIntentDecision]
    ) -> ev.fs.EditIntentDecision:
        seen = known.of(event.actor)
        if seen is None:
            return await call_next()
        name = event.target.display_path
        match seen.get(event.target.target_key):
            case ev.records.PresentObservation(version=version):
                return ev.fs.ExpectVersion(version=version)
            case ev.records.AbsentObservation():
                told = f"{name} did not exist when it was last looked at; create it with write_file"
                raise FsError(told, code="FS_NOT_FOUND")
            case None:
                told = f"{name} was not read in this session; read it first"
                raise FsError(told, code="FS_NOT_OBSERVED")
