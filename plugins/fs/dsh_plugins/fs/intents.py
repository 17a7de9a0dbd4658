"""What file tools ask and tell others: under which condition to write, and what was seen.

What comes in: a target, and the call on whose behalf it is used. What goes out: the condition that
a policy sets (none without one), and `fs/observed` notices. A listener that raises fails the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.seams.fs import Condition

if TYPE_CHECKING:
    from dsh import Context
    from dsh.hooks.live import ToolRun
    from dsh.seams.fs import Target

__all__ = ["Intents"]


def _target(target: Target) -> ev.records.FsTarget:
    return ev.records.FsTarget(target_key=target.key, display_path=target.display)


class Intents:
    """The three file events, dispatched for the plugin of `ctx`."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def before_write(self, target: Target, run: ToolRun) -> Condition | None:
        """`fs/write-intent`: the condition of the next whole write."""

        async def unconditional() -> ev.fs.WriteIntentDecision:
            return None

        asked = ev.fs.WriteIntent(target=_target(target), actor=run)
        match await self._ctx.waterfall(ev.fs.WRITE_INTENT)(asked, unconditional):
            case None:
                return None
            case ev.fs.CreateIfAbsent():
                return Condition(version=None)
            case ev.fs.ReplaceIfVersion(version=version):
                return Condition(version=version)

    async def before_edit(self, target: Target, run: ToolRun) -> Condition | None:
        """`fs/edit-intent`: the condition of the next edit."""

        async def unconditional() -> ev.fs.EditIntentDecision:
            return None

        asked = ev.fs.EditIntent(target=_target(target), actor=run)
        match await self._ctx.waterfall(ev.fs.EDIT_INTENT)(asked, unconditional):
            case None:
                return None
            case ev.fs.ExpectVersion(version=version):
                return Condition(version=version)

    def observed(self, target: Target, version: str | None, run: ToolRun) -> None:
        """`fs/observed`: the file was seen at this version; None: it is not there."""
        seen: ev.records.FsObservation = (
            ev.records.AbsentObservation()
            if version is None
            else ev.records.PresentObservation(version=version)
        )
        self._ctx.emit(ev.fs.Observed(target=_target(target), observation=seen, actor=run))
