"""The plugin `approval`: questions about tool calls, put to whoever can answer, one at a time.

What comes in: questions from the tool pipeline, through the approval seam. What goes out: one
outcome each, with a pair of `approval/asked` and `approval/decided` in the session's log for every
question that was put to somebody. It fails closed, remembers no grant, and answers nothing itself:
answerers listen to `approval/request`.
"""

from __future__ import annotations

from dsh import Context, plugin
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.seams.approval import APPROVAL
from dsh.session import SESSIONS, Sessions
from dsh_plugins.approval.catalog import ApprovalConfig
from dsh_plugins.approval.service import STANDING, Approvals

__all__ = ["approval"]


@frozen
class _Deps:
    sessions: Sessions = required(SESSIONS)


@plugin(name="approval", config=ApprovalConfig, deps=_Deps, provides=(APPROVAL,))
async def approval(ctx: Context, config: ApprovalConfig, deps: _Deps) -> None:
    """Provide the approval seam."""
    deps.sessions.project(ctx, STANDING)
    ctx.provide(APPROVAL, Approvals(ctx, deps.sessions, config.policy))
